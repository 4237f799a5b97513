//! Distances of the samples of the stores from those of another store.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use teatime::{Cancel, Device, Run};
use teatime_genotype::{
    DistanceOptions, DistancesBetween, Match, SampleNeighbors, distances_between, sample_neighbors_between,
};

use super::{
    DistanceArgs, Results,
    bands::Found,
    target::{Format, Target},
};
use crate::{
    args::local,
    failure::Failure,
    matching::{
        Index, MatchBy,
        counts::{Counts, LoadingsCounts, StoresCounts},
    },
    output::Output,
    progress::Bar,
    stores::Stores,
    text,
    variants::Variants,
};

/// What messages call the other store.
const OTHER: &str = "STORE2";

const NO_FORMAT: &str =
    "PLINK's files are of distances of samples from one another; --with has .npy, .tsv and .zarr";

/// Another store, on the command line.
#[derive(Args, Debug)]
pub(super) struct WithArgs {
    /// Distances from the samples of this store, instead of from one another, over the variants that both have
    ///
    /// A Zarr store or a PLINK .bed. Variants are matched as `teatime project` does: by contig, position and alleles, or by --match id.
    /// Where reference and alternate allele have changed places, dosages of STORE2 are turned round; strands are taken as they
    /// are. Variants that do not match are counted and left out. --chr and --autosome are of STORE; --maf and --geno count the samples of
    /// both. The dosages are read at the same time, each chunk once where both have their variants in one order. Takes 30 bytes of
    /// memory for each variant of STORE2 (by id, some 150) and 8 for each of STORE. All distances have to fit memory. Not for --tree and
    /// --resume.
    #[arg(long, value_name = "STORE2", value_parser = local())]
    with: Option<PathBuf>,
    /// What variants of both are matched by, besides their alleles
    ///
    /// Positions are those of one genome build; `chr1` and `1`, `chrM` and `MT`, 23 and X are the same contigs. By id,
    /// variants without one (`.`), and those of an id that occurs more than once, are left out.
    #[arg(long = "match", value_name = "WHAT", value_enum, default_value_t, requires = "with")]
    match_by: MatchBy,
}

impl WithArgs {
    pub(super) fn is_given(&self) -> bool {
        self.with.is_some()
    }

    /// # Errors
    /// [`Failure::Usage`] for what does not go with it.
    pub(super) fn check(&self, args: &DistanceArgs) -> Result<(), Failure> {
        let refused = [
            (matches!(args.out.format, Format::Plink | Format::PlinkBinary), NO_FORMAT),
            (args.tree.is_some(), "--tree is of distances of samples from one another, not of --with"),
            (args.resume, "--resume is of distances of samples from one another, not of --with"),
        ];
        match refused.into_iter().find(|(refused, _)| self.is_given() && *refused) {
            Some((_, why)) => Err(Failure::Usage(why.into())),
            None if self.is_given() => args.stores.names_alleles("--with"),
            None => Ok(()),
        }
    }
}

/// Another store, and which of its variants those of the stores are.
#[derive(Debug)]
pub(super) struct With {
    pub(super) stores: Stores,
    matches: Vec<Option<Match>>,
    counts: Counts,
}

impl With {
    /// The store that was asked for, matched with the stores, whose contigs are counted anew.
    pub(super) fn open(
        args: &DistanceArgs,
        stores: &mut Stores,
        device: &Device,
        cancel: &Cancel,
    ) -> Result<Option<Self>, Failure> {
        let Some(path) = &args.with.with else { return Ok(None) };
        let other = args.stores.open_other(path, args.resources.budget(), cancel)?;
        let by = args.with.match_by;
        let bar = Bar::new("Matching", other.genotypes.variants() + stores.genotypes.variants());
        let mut index = Index::new(by, OTHER);
        let mut variants = Variants::new(&other.stores, by == MatchBy::Position);
        for row in other.genotypes.selected().flatten() {
            cancel.check()?;
            let variant = variants.get(row)?;
            let [not_counted, counted] = [&variant.reference, &variant.alternate];
            index.push((&variant.contig, variant.position, &variant.id), not_counted, counted);
            bar.advance(1);
        }
        let run = Run::default().cancel(cancel.clone()).memory(args.resources.budget());
        let (matches, counts) = index.matches(stores, device, &bar, &run)?;
        counts.check(path)?;
        stores.count_contigs(&matches)?;
        Ok(Some(Self { stores: other, matches, counts }))
    }

    pub(super) fn compute(
        &self,
        stores: &Stores,
        device: &Device,
        options: &DistanceOptions,
        run: &Run,
    ) -> Result<(Found, Option<Results>), Failure> {
        let (of, with) = (&stores.genotypes, &self.stores.genotypes);
        let result = distances_between(of, with, &self.matches, device, options, run)?;
        Ok((Found::from(&result), Some(Results::Between(result))))
    }

    pub(super) fn neighbors(
        &self,
        stores: &Stores,
        device: &Device,
        options: &DistanceOptions,
        k: usize,
        run: &Run,
    ) -> teatime::Result<SampleNeighbors> {
        let (of, with) = (&stores.genotypes, &self.stores.genotypes);
        sample_neighbors_between(of, with, &self.matches, device, options, k, run)
    }

    /// What is odd of it, yet allowed.
    pub(super) fn warnings(&self) -> Vec<String> {
        self.counts.unsure().into_iter().chain(self.stores.warnings()).collect()
    }

    pub(super) fn record(self) -> WithRecord {
        let Self { stores, counts, .. } = self;
        let LoadingsCounts { variants, used, swapped, alleles_unknown, fewer_alleles, .. } = counts.loadings;
        let LoadingsCounts { absent, other_alleles, repeated, ambiguous, nowhere, doubled_id, .. } =
            counts.loadings;
        let of_with =
            LeftOut { absent, other_alleles: Some(other_alleles), repeated, ambiguous, nowhere, doubled_id };
        let StoresCounts { not_in_loadings: absent, repeated, ambiguous, nowhere, doubled_id, .. } =
            counts.stores;
        let of_stores = LeftOut { absent, other_alleles: None, repeated, ambiguous, nowhere, doubled_id };
        WithRecord {
            path: stores.paths[0].display().to_string(),
            arrays: stores.arrays[0].clone(),
            samples: stores.samples.len(),
            variants,
            matched_by: counts.by,
            matched: used,
            swapped,
            alleles_unknown,
            fewer_alleles,
            left_out: of_with,
            stores_left_out: of_stores,
            changes: stores.changes(),
            lines: [counts.used(), counts.ignored()],
        }
    }
}

/// Writes distances of samples from others; `names` are those of both.
pub(super) fn write(
    output: &Output,
    target: &Target,
    result: &DistancesBetween,
    names: [&[String]; 2],
) -> Result<(), Failure> {
    let path = output.path(&target.name);
    match target.format {
        Format::Npy => result.write_npy(path)?,
        Format::Table => result.write_table(path, names, text::exact)?,
        Format::Zarr => result.write_zarr(path, names)?,
        Format::Plink | Format::PlinkBinary => return Err(Failure::Usage(NO_FORMAT.into())),
    }
    Ok(())
}

/// What the record says of the other store.
#[derive(Debug, Serialize)]
pub(super) struct WithRecord {
    path: String,
    arrays: Vec<String>,
    samples: usize,
    variants: u64,
    matched_by: MatchBy,
    /// Variants that both have.
    matched: u64,
    /// Of these, those whose reference and alternate allele have changed places.
    swapped: u64,
    /// Of these, those whose alleles nobody knows.
    alleles_unknown: u64,
    /// Of these, those of which the stores name fewer alleles.
    fewer_alleles: u64,
    /// Its other variants, and those of the stores.
    left_out: LeftOut,
    stores_left_out: LeftOut,
    #[serde(skip)]
    changes: Vec<String>,
    #[serde(skip)]
    lines: [String; 2],
}

/// Why variants did not match.
#[derive(Debug, Serialize)]
struct LeftOut {
    /// Not in the other; of the stores, those with other alleles there are among them.
    absent: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    other_alleles: Option<u64>,
    /// Of the same place and alleles as one before, and not as often in the other.
    repeated: u64,
    /// With alleles that could be those of several.
    ambiguous: u64,
    /// Without a place, or an id, by which to find them.
    nowhere: u64,
    /// Matched by id: of an id that occurs more than once.
    doubled_id: u64,
}

impl WithRecord {
    /// Lines of the summary.
    pub(super) fn summary(&self) -> Vec<(&'static str, String)> {
        let Self { path, samples, variants, changes, lines: [used, ignored], .. } = self;
        let size = [text::plural(*variants, "variant"), text::plural(*samples as u64, "sample")];
        let first =
            [("with", path.clone()), ("", size.join(" x ")), ("", used.clone()), ("", ignored.clone())];
        first.into_iter().chain(changes.iter().map(|change| ("", change.clone()))).collect()
    }
}
