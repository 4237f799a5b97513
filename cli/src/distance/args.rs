//! The arguments of `teatime distance`.

use std::path::PathBuf;

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};
use teatime::distance::{Metric, Missing};
use teatime_genotype::{DistanceOptions, Linkage, MatchBy, SampleMetric};

use super::write::{FORMATS, Target};
use crate::{
    args::{FileArgs, FilterArgs, Named, Resources, by_name, local, match_by, named, refuse, with_exits},
    failure::Failure,
    remote::input,
    store_args::StoreArgs,
};

/// Distances of the samples of genotype stores from one another, or from those of another store
///
/// Reads the stores that `teatime pca` reads. The dosage of a call is its number of non-reference alleles, or of copies of the
/// --counted-allele; a call with a missing allele is missing. One pass over the stores.
#[derive(Args, Debug)]
#[command(after_long_help = with_exits(HELP, Some(STAYS)))]
pub(crate) struct DistanceArgs {
    /// File for the distances: its ending, .npy, .tsv, .zarr, .dist or .dist.bin, says what it is
    #[arg(long, value_name = "FILE", value_parser = local().try_map(|path| Target::new(&path, &FORMATS)))]
    pub(super) out: Target,
    /// Measure of how far two samples are from each other
    ///
    /// Metrics are of dosages, as scipy defines them but for `inner_product` (the sum of x y) and ibs (a similarity, 1 - mean of
    /// |x - y| / ploidy: PLINK's --distance ibs flat-missing). cityblock with --missing rescale is PLINK's --distance flat-missing.
    /// The first seven and ibs are sums of whole numbers, and fastest; others are in f32.
    #[arg(long, value_parser = metrics(), default_value = SampleMetric::default().name())]
    pub(super) metric: SampleMetric,
    /// The exponent of --metric minkowski, above 0; inf makes it chebyshev [default: 2]
    #[arg(long, value_name = "P", allow_negative_numbers = true)]
    pub(super) p: Option<f64>,
    /// Value of --metric ibs for two heterozygous calls [default: 1]
    ///
    /// 1: PLINK's, of the number of alleles that differ. 0.5: of one allele of each, drawn at random, as sgkit's `identity_by_state` of
    /// biallelic variants; for diploid calls.
    #[arg(long, value_name = "X", value_parser = named(HET_HET))]
    pub(super) het_het: Option<SampleMetric>,
    /// The rule for variants that one of a pair has no call of [default: rescale; of ibs, ignore]
    ///
    /// rescale: sums are multiplied by the variants over those called in both, as PLINK's flat-missing; NaN where there are none.
    /// rescale-or-zero: the same, but 0. ignore: they are left out, as in sgkit, so that sums of samples that lack calls are smaller.
    /// propagate: distances of samples with a missing call are NaN. ibs, a mean, takes ignore and propagate.
    #[arg(long, value_parser = by_name(MISSING, Missing::name))]
    pub(super) missing: Option<Missing>,
    /// Take all alleles of a call but the reference for one, at variants of more than two alleles
    ///
    /// Without it, different ones differ by euclidean, sqeuclidean, cityblock, ibs, and hamming of --haplotypes, in more passes where there are
    /// such variants; others take them for one, as --with does, and warn. Dosages, .bed and --counted-allele have two alleles anyway.
    #[arg(long)]
    pub(super) merge_alleles: bool,
    /// Take each haplotype of the calls for a sample, named `SAMPLE_1`, `SAMPLE_2` ...
    ///
    /// Its dosage is 0 where its allele is the reference, 1 where it is any other, and missing where that allele is. The order of
    /// alleles in a call is taken for that of haplotypes: it means nothing where calls are not phased. For stores of calls.
    #[arg(long)]
    pub(super) haplotypes: bool,
    /// Also cluster the samples by their distances, and write the tree: D.nwk beside FILE
    ///
    /// As scipy's linkage: single, complete, average (UPGMA), weighted (WPGMA), or ward, which supposes Euclidean distances. Of ibs, by 1 - ibs;
    /// not of `inner_product`. Takes 4 samples² bytes of memory more. A distance that is NaN is an error.
    #[arg(long, value_name = "METHOD", value_parser = by_name(Linkage::ALL, Linkage::name))]
    pub(super) tree: Option<Linkage>,
    /// Write the K nearest of the other samples to each, or of those of STORE2, and how far they are, instead of the matrix
    ///
    /// Nearest first, and of equal distances the earlier sample first; of ibs and `inner_product`, those most alike. Distances that are NaN come last.
    /// A pass for each group of samples whose distances memory holds, beside one. For the metrics that --resume is for; by
    /// others, and with --with, all distances have to fit memory first. To .npy, .tsv or .zarr.
    #[arg(long, value_name = "K", conflicts_with_all = ["tree", "resume"])]
    pub(super) neighbors: Option<usize>,
    #[command(flatten)]
    pub(super) with: WithArgs,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
    #[command(flatten)]
    pub(super) results: FileArgs,
    /// Go on with D.zarr where a run was stopped, or begin one that can be gone on with
    ///
    /// Distances are computed for some samples at a time, as many as memory allows, and written at once: so they are, too, where all
    /// do not fit memory. Ends with the same bytes wherever runs were stopped. The stores and all options but those of devices
    /// and memory have to be the same. For all metrics but those that are computed in f32, of dosages 0, 1 and 2.
    #[arg(long, conflicts_with_all = ["overwrite", "tree"])]
    pub(super) resume: bool,
    #[command(flatten)]
    pub(super) stores: StoreArgs,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

/// Another store, on the command line.
#[derive(Args, Debug)]
pub(super) struct WithArgs {
    /// Distances from the samples of this store, instead of from one another, over the variants that both have
    ///
    /// A Zarr store or a PLINK .bed. Variants are matched as `teatime project` does: by contig, position and alleles, or by --match id.
    /// Dosages of STORE2 are turned round where reference and alternate allele have changed places; strands are taken as they
    /// are. Variants that do not match are counted and left out. --chr, --autosome, --keep, --remove, --extract and --exclude are of STORE;
    /// --maf and --geno count the samples of both. The dosages are read at the same time, each chunk once where both have their variants in
    /// one order. Takes 30 bytes of memory for each variant of STORE2 (by id, some 150) and 8 for each of STORE. All distances have to fit
    /// memory. Not for --tree and --resume.
    #[arg(long = "with", value_name = "STORE2", value_parser = input())]
    pub(super) store: Option<PathBuf>,
    /// Property that variants of both are matched by, besides their alleles
    ///
    /// Positions are those of one genome build; `chr1` and `1`, `chrM` and `MT`, 23 and X are the same contigs. By id,
    /// variants without one (`.`), and those of an id that occurs more than once, are left out.
    #[arg(long = "match", value_name = "WHAT", value_parser = match_by(), default_value = MatchBy::default().name(), requires = "store")]
    pub(super) match_by: MatchBy,
}

impl DistanceArgs {
    /// Returns the options of the distances: the metric, and the filter of the variants. Refuses options that contradict each other.
    pub(super) fn options(&self) -> Result<DistanceOptions, Failure> {
        let is_minkowski = matches!(self.metric, SampleMetric::Of(Metric::Minkowski(_)));
        let metric = match (self.metric, self.p) {
            (SampleMetric::Of(metric), Some(p)) => {
                SampleMetric::Of(metric.with_exponent(p).unwrap_or(metric))
            }
            (metric, _) => self.het_het.unwrap_or(metric),
        };
        let (with, plink) = (self.with.store.is_some(), self.out.format.is_plinks());
        refuse(&[
            (self.p.is_some() && !is_minkowski, "--p is of --metric minkowski alone"),
            (
                self.het_het.is_some() && self.metric != SampleMetric::Ibs,
                "--het-het is of --metric ibs alone",
            ),
            (plink && self.neighbors.is_some(), "--neighbors is for --out D.npy, D.tsv or D.zarr"),
            (
                plink && with,
                "PLINK's files are of distances of samples from one another; --with has .npy, .tsv and .zarr",
            ),
            (
                self.tree.is_some() && with,
                "--tree is of distances of samples from one another, not of --with",
            ),
            (self.resume && with, "--resume is of distances of samples from one another, not of --with"),
        ])?;
        if with {
            self.stores.names_alleles("--with")?;
        }
        let options = DistanceOptions::default().metric(metric).missing(self.missing).tree(self.tree);
        Ok(options.filter((&self.filter).into()).merge_alleles(self.merge_alleles))
    }
}

const STAYS: &str = "a D.zarr that is written some samples at a time stays for --resume";

const HELP: &str = "\
What is written, by the ending of FILE:
  D.npy       (samples, samples), f64; D.id has the name of each sample
  D.tsv       a table with the names of the samples
  D.zarr      distance (samples_0, samples_1), f64; shared_variants, where calls
              are missing; sample_id
  D.dist      PLINK's lower triangle, as text; D.dist.id has family and name
  D.dist.bin  PLINK's square matrix (--distance square bin), f64; D.dist.id
With --neighbors K, instead:
  D.npy       distances (samples, K), f64; D.neighbors.npy, the neighbors'
              numbers from 0, i64; D.id
  D.tsv       sample, rank from 1, neighbor, distance: a line for each pair
  D.zarr      neighbor (samples, neighbors), numbers from 0, i64; distance,
              likewise, f64; sample_id
With --with, rows are the samples of the stores and columns, or neighbors, those
of STORE2, of which D.with.id and, in D.zarr (samples, samples_with),
sample_id_with have the names; PLINK's files hold no such distances.
Beside it, with --tree, D.nwk has the tree as Newick: ultrametric, two samples are
as far apart along the branches as the height at which they are merged.
D.run.json is the record of the run: command line, date, device,
budgets, times, memory, counts.
Where the distances do not fit memory, D.zarr is written some samples at a time,
with --resume always: one pass first, and one for each of these groups. There
variants of more than two alleles want --merge-alleles.

Variants that do not vary take part, as in PLINK's.

At a variant of more than two alleles, samples differ by the alleles that they do
not share: |x - y| is half of the sum over alleles of how their copies differ.

Examples:
  teatime distance cohort.vcz --out distances.npy
  teatime distance cohort.bed --out cohort.dist.bin --metric cityblock \
    --missing rescale
  teatime distance chr1.vcz chr2.vcz --out ibs.zarr --metric ibs --maf 0.01
  teatime distance biobank.bed --out d.zarr --resume
  teatime distance biobank.bed --out nearest.tsv --metric ibs --neighbors 20
  teatime distance new.vcz --with reference.bed --out new.tsv --metric ibs
  teatime distance phased.vcz --out h.npy --haplotypes --metric cityblock --tree average";

/// The names of the library's metrics that genotypes support, and of identity by state.
const METRICS: &str = "euclidean sqeuclidean cityblock hamming correlation cosine inner_product chebyshev minkowski \
                       canberra braycurtis jaccard dice russellrao ibs manhattan l1 l2";

fn metrics() -> impl TypedValueParser<Value = SampleMetric> {
    PossibleValuesParser::new(METRICS.split(' ')).try_map(|name| match &*name {
        "ibs" => Ok(SampleMetric::Ibs),
        name => name.parse().map(SampleMetric::Of),
    })
}

const HET_HET: Named<SampleMetric> = &[("1", SampleMetric::Ibs), ("0.5", SampleMetric::IbsOfAlleles)];

pub(crate) const MISSING: &[Missing] =
    &[Missing::Ignore, Missing::Rescale, Missing::RescaleOrZero, Missing::Propagate];

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn all_metrics_are_known() {
        for metric in METRICS.split(' ') {
            let words = ["teatime", "distance", "store", "--out", "x.npy", "--metric", metric];
            assert!(crate::Cli::try_parse_from(words).is_ok(), "{metric}");
        }
    }
}
