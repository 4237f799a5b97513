//! Distances of the samples of the stores from those of another store.

use serde_json::{Value, json};
use teatime::{Device, Run};
use teatime_genotype::{Match, SamplePairs, VariantIndex};

use super::DistanceArgs;
use crate::{
    failure::Failure,
    matched::Matched,
    progress::Bar,
    report::{Report, size},
    stores::Stores,
};

/// The name of the other store in messages.
const OTHER: &str = "STORE2";

/// Another store, and the variant of it that matches each variant of the stores.
#[derive(Debug)]
pub(super) struct With {
    pub(super) stores: Stores,
    matches: Vec<Option<Match>>,
    matched: Matched,
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
        let (_bar, run) = Bar::over(run, "Matching", other.genotypes.variants(), "variants");
        let index = VariantIndex::of_genotypes(by, &other.genotypes, &other.sources(), &run)?;
        let (matches, _, matched) = stores.match_with(&index, OTHER, device, &run)?;
        matched.check(path)?;
        Ok(Some(Self { stores: other, matches, matched }))
    }

    /// Returns the pairs of a sample of the stores with a sample of the other store.
    pub(super) fn pairs<'a>(&'a self, stores: &'a Stores) -> SamplePairs<'a> {
        SamplePairs::between(&stores.genotypes, &self.stores.genotypes, &self.matches)
    }

    /// Returns warnings of unusual properties of the other store that are no errors.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.matched.unsure().into_iter().chain(self.stores.warnings()).collect()
    }

    /// Returns the record's entry of the other store: its samples, and the variants that both stores or only one of them has.
    pub(super) fn record(&self) -> Value {
        let counts = &self.matched.counts;
        let other = &counts.reference;
        json!({
            "path": self.stores.paths[0].display().to_string(),
            "arrays": self.stores.arrays[0],
            "samples": self.stores.samples.len(),
            "variants": other.variants,
            "matched_by": counts.by.name(),
            "matched": other.used,
            "swapped": other.swapped,
            "alleles_unknown": other.alleles_unknown,
            "fewer_alleles": other.fewer_alleles,
            "left_out": other.named().into_iter().skip(5).collect::<Value>(),
            "stores_left_out": self.matched.of_stores("absent").into_iter().skip(1).collect::<Value>(),
        })
    }

    pub(super) fn describe(&self, report: &mut Report) {
        report.line("with", self.stores.paths[0].display().to_string());
        report.line("", size(self.matched.counts.reference.variants, self.stores.samples.len() as u64));
        report.lines([self.matched.used(), self.matched.ignored()]);
        report.lines(self.stores.changes());
    }
}
