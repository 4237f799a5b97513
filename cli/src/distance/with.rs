//! Distances of the samples of the stores from those of another store.

use serde_json::{Value, json};
use teatime::{Device, Run};
use teatime_genotype::{Match, SamplePairs};

use super::DistanceArgs;
use crate::{
    failure::Failure,
    matching::{Index, MatchBy, counts::Counts},
    progress::Bar,
    report::{Report, size},
    store::Variants,
    stores::Stores,
};

/// The name of the other store in messages.
const OTHER: &str = "STORE2";

/// Another store, and the variant of it that matches each variant of the stores.
#[derive(Debug)]
pub(super) struct With {
    pub(super) stores: Stores,
    matches: Vec<Option<Match>>,
    counts: Counts,
}

impl With {
    /// Opens the store of --with and matches its variants with those of `stores`, whose contigs are then counted again.
    pub(super) fn open(
        args: &DistanceArgs,
        stores: &mut Stores,
        device: &Device,
        run: &Run,
    ) -> Result<Option<Self>, Failure> {
        let Some(path) = &args.with.store else { return Ok(None) };
        let other = args.stores.open_other(path, run)?;
        let by = args.with.match_by;
        let bar = Bar::new("Matching", other.genotypes.variants() + stores.genotypes.variants());
        let mut index = Index::new(by, OTHER);
        let mut variants = Variants::new(&other.stores, by == MatchBy::Position);
        for row in other.genotypes.selected().flatten() {
            run.cancel.check()?;
            let variant = variants.get(row)?;
            let [not_counted, counted] = [&variant.reference, &variant.alternate];
            index.push((&variant.contig, variant.position, &variant.id), not_counted, counted);
            bar.advance(1);
        }
        let (matches, counts) = index.matches(stores, device, &bar, run)?;
        counts.check(path)?;
        stores.count_contigs(&matches)?;
        Ok(Some(Self { stores: other, matches, counts }))
    }

    /// Returns the pairs of a sample of the stores with a sample of the other store.
    pub(super) fn pairs<'a>(&'a self, stores: &'a Stores) -> SamplePairs<'a> {
        SamplePairs::between(&stores.genotypes, &self.stores.genotypes, &self.matches)
    }

    /// Returns warnings of unusual properties of the other store that are no errors.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.counts.unsure().into_iter().chain(self.stores.warnings()).collect()
    }

    /// Returns the record's entry of the other store: its samples, and the variants that both stores or only one of them has.
    pub(super) fn record(&self) -> Value {
        let (other, stores) = (&self.counts.loadings, &self.counts.stores);
        json!({
            "path": self.stores.paths[0].display().to_string(),
            "arrays": self.stores.arrays[0],
            "samples": self.stores.samples.len(),
            "variants": other.variants,
            "matched_by": self.counts.by,
            "matched": other.used,
            "swapped": other.swapped,
            "alleles_unknown": other.alleles_unknown,
            "fewer_alleles": other.fewer_alleles,
            "left_out": {
                "absent": other.absent,
                "other_alleles": other.other_alleles,
                "repeated": other.repeated,
                "ambiguous": other.ambiguous,
                "nowhere": other.nowhere,
                "doubled_id": other.doubled_id,
            },
            // `absent` includes variants with other alleles.
            "stores_left_out": {
                "absent": stores.not_in_loadings,
                "repeated": stores.repeated,
                "ambiguous": stores.ambiguous,
                "nowhere": stores.nowhere,
                "doubled_id": stores.doubled_id,
            },
        })
    }

    /// Adds lines about the other store to the page.
    pub(super) fn describe(&self, report: &mut Report) {
        report.line("with", self.stores.paths[0].display().to_string());
        report.line("", size(self.counts.loadings.variants, self.stores.samples.len() as u64));
        report.lines([self.counts.used(), self.counts.ignored()]);
        report.lines(self.stores.changes());
    }
}
