//! Files that choose samples and variants: `--keep`, `--remove`, `--extract` and `--exclude`.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use clap::Args;
use teatime::{Run, stable_text::StableText, stream::digest};
use teatime_genotype::{Karyotype, Listed, SampleList, VariantList, VariantListKind};

use crate::{chosen::Chosen, failure::Failure, stores::Stores};

/// The options for files that list samples or variants.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ListArgs {
    /// Take only the samples that a file lists: a line for each, with its family and id, or its id alone
    ///
    /// As by plink2: columns are divided by spaces or tabs, those after the id are ignored, a first line `#FID IID` or `#IID` may name
    /// them, and an id alone is of family 0. Samples of a Zarr store have no families: they are known by the second column, or the only
    /// one.
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
    /// Leave out the samples that a file lists, of those that --keep takes
    #[arg(long, value_name = "FILE")]
    remove: Option<PathBuf>,
    /// Take only the variants that a file lists: ids, places such as 1:1000, or regions
    ///
    /// Ids and places are divided by spaces or lines; a word is a place if no variant has that id. FILE.bed is a BED of regions: contig,
    /// start and end in each line, 0-based and half-open as UCSC's are. bed0:FILE is one of any name, and bed1:FILE one whose start is
    /// 1-based. Of the variants that --chr or --autosome takes. Chunks without a variant that is taken are not read.
    #[arg(long, value_name = "FILE")]
    extract: Option<PathBuf>,
    /// Leave out the variants that a file lists, of those that --extract takes
    #[arg(long, value_name = "FILE")]
    exclude: Option<PathBuf>,
}

impl ListArgs {
    pub(crate) fn choose_variants(&self) -> bool {
        self.extract.is_some() || self.exclude.is_some()
    }

    /// Selects the samples that --keep and --remove leave.
    pub(crate) fn take_samples(&self, stores: &mut Stores, run: &Run) -> Result<(), Failure> {
        let every = 0..stores.samples.len() as u64;
        let mut left = vec![every];
        for (option, path) in [("--keep", &self.keep), ("--remove", &self.remove)] {
            let Some(path) = path else { continue };
            let list = SampleList::read(path, &run.memory)?;
            let listed = list.find(&stores.samples, stores.families.as_deref())?;
            left = stores.choose((option, path, "sample"), listed, left)?;
        }
        if self.keep.is_none() && self.remove.is_none() {
            return Ok(());
        }
        stores.genotypes = stores.genotypes.clone().select_samples(left.iter().cloned())?;
        for names in [Some(&mut stores.samples), stores.families.as_mut()].into_iter().flatten() {
            let (mut row, mut rows) = (0.., left.iter().cloned().flatten().peekable());
            names.retain(|_| rows.next_if_eq(&row.next().unwrap_or_default()).is_some());
        }
        Ok(())
    }

    /// Selects the variants that --extract and --exclude leave of those that are selected.
    pub(crate) fn take_variants(&self, stores: &mut Stores, run: &Run) -> Result<(), Failure> {
        let karyotype = stores.contigs.as_ref().map_or(Karyotype::HUMAN, |contigs| contigs.karyotype());
        let mut left: Vec<Range<u64>> = stores.genotypes.selected().collect();
        for (option, path) in [("--extract", &self.extract), ("--exclude", &self.exclude)] {
            let Some(path) = path else { continue };
            let (file, kind) = VariantListKind::of_argument(path);
            let list = VariantList::read(file, kind, &run.memory)?;
            let listed = list.find(&stores.sources(), &left, Some(karyotype), &run.cancel)?;
            left = stores.choose((option, path, "variant"), listed, left)?;
        }
        if !self.choose_variants() {
            return Ok(());
        }
        stores.stores.iter().for_each(|store| store.forget_variants());
        if let Some(mut contigs) = stores.contigs.take() {
            contigs.count_only(&stores.sources(), left.iter().cloned().flatten())?;
            stores.contigs = Some(contigs);
        }
        stores.genotypes = stores.genotypes.clone().select(left)?;
        Ok(())
    }
}

impl Stores {
    /// Returns what an option leaves of `left`, and notes the option. Fails if nothing is left.
    fn choose(
        &mut self,
        (option, path, what): (&'static str, &Path, &'static str),
        mut listed: Listed,
        left: Vec<Range<u64>>,
    ) -> Result<Vec<Range<u64>>, Failure> {
        let count = |rows: &[Range<u64>]| rows.iter().map(|rows| rows.end - rows.start).sum();
        let after = listed.choose(&left, ["--remove", "--exclude"].contains(&option));
        // The record has no rows.
        listed.rows = Vec::new();
        let path = path.to_path_buf();
        let chosen = Chosen { option, path, what, listed, before: count(&left), after: count(&after) };
        if chosen.after == 0 {
            let absent = chosen.absent().map_or_else(String::new, |absent| format!(": {absent}"));
            let hint = match option {
                "--keep" if self.families.is_some() => "; an id alone is of family 0, as by plink2",
                "--extract" if chosen.listed.absent > 0 => "; bed0:FILE or bed1:FILE is a BED of regions",
                _ => "",
            };
            return Err(Failure::Error(format!("{}{absent}{hint}", chosen.line())));
        }
        self.chosen.push(chosen);
        Ok(after)
    }

    /// Describes the arrays of the stores, and the samples and variants that take part; for distances also if each haplotype is a sample.
    pub(crate) fn words(&self, haplotypes: Option<bool>) -> String {
        let (genotypes, haplotypes) = (&self.genotypes, haplotypes.as_ref());
        let (counted, kind, variants) = (genotypes.counted_allele(), genotypes.kind(), genotypes.variants());
        let first: [&dyn StableText; 4] = [&self.arrays, &self.contigs, &self.ploidy_mismatch, &counted];
        let last: [&dyn StableText; 2] = [&kind, &variants];
        let parts = first.into_iter().chain(haplotypes.map(|haplotypes| haplotypes as _)).chain(last);
        parts.map(StableText::stable_text).collect::<Vec<_>>().join(" ") + &self.chosen_words()
    }

    /// Describes the samples and variants that files chose, by a digest; returns an empty text without such files.
    fn chosen_words(&self) -> String {
        if self.chosen.is_empty() {
            return String::new();
        }
        let families = self.families.as_ref().map_or_else(String::new, |families| families.join("\n"));
        let names = digest(digest(0, self.samples.join("\n").as_bytes()), families.as_bytes());
        let bounds = self.genotypes.selected().flat_map(|rows| [rows.start, rows.end]);
        format!(" chosen {:016x}", bounds.fold(names, |state, bound| digest(state, &bound.to_le_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stores::Opening;

    /// Jobs that others stopped go on only with the same samples and variants, and as before where no file chose them.
    #[test]
    fn words_tell_lists_apart() {
        let bed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../genotype/tests/fixtures/plink1/few5");
        let folder = tempfile::tempdir().expect("the temporary folder should be writable");
        let words = |keep: &str, extract: &str| {
            let file = |name: &str, text: &str| {
                let path = folder.path().join(name);
                std::fs::write(&path, text).expect("the file should be written");
                (!text.is_empty()).then_some(path)
            };
            let (keep, extract) = (file("keep", keep), file("extract", extract));
            let args = ListArgs { keep, extract, ..ListArgs::default() };
            let run = Run::default();
            let mut stores =
                Stores::open(std::slice::from_ref(&bed), &Opening::default(), &run).expect("it is a store");
            args.take_samples(&mut stores, &run).expect("there are such samples");
            args.take_variants(&mut stores, &run).expect("there are such variants");
            (stores.chosen_words(), stores.samples, stores.genotypes.variants())
        };
        let all = words("", "");
        assert_eq!((all.0.as_str(), all.1.len(), all.2), ("", 5, 17));
        let (one, other) = (all.1[1].clone(), all.1[3].clone());
        let [keep, keep_other] = [&one, &other].map(|id| words(id, ""));
        assert_eq!([&keep.1, &keep_other.1], [&[one], &[other]]);
        let [extract, extract_other] = ["rs0", "rs3"].map(|id| words("", id));
        assert_eq!([extract.2, extract_other.2], [1, 1]);
        assert!(keep.0 != keep_other.0 && extract.0 != extract_other.0);
    }
}
