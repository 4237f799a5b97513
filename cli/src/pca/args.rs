//! The arguments of `teatime pca`.

use std::path::PathBuf;

use clap::Args;
use teatime_genotype::{Method, PcaOptions, Scaler};

use crate::{
    args::{
        FilterArgs, FolderArgs, Named, Resources, at_least_one, by_name, default_of, local, named, with_exits,
    },
    failure::Failure,
    iteration::IterationArgs,
    store_args::StoreArgs,
};

/// Principal components of the samples of genotype stores
///
/// Reads VCF-Zarr (`call_genotype`, as bio2zarr and sgkit write it), the scikit-allel and MalariaGEN layout
/// (`calldata/GT`, at the root or in one group per contig), and plain arrays of dosages (variants, samples) or calls
/// (variants, samples, ploidy); and PLINK 1 .bed files with the .bim and .fam beside them. The dosage of a call is its
/// number of non-reference alleles, or of copies of the --counted-allele; a call with a missing allele is missing and becomes
/// the variant's mean; variants that do not vary contribute nothing.
#[derive(Args, Debug)]
#[command(after_long_help = with_exits(HELP, Some("the DIR/pca.checkpoint of --resume stays")))]
pub(crate) struct PcaArgs {
    /// Folder for the results
    #[arg(long, value_name = "DIR", value_parser = local())]
    pub(super) out: PathBuf,
    /// Number of components
    #[arg(short = 'k', long, value_name = "N", default_value_t = PcaOptions::default().components, value_parser = at_least_one)]
    pub(super) components: usize,
    /// Method that computes the components
    ///
    /// exact: the eigenvectors of the samples' Gram matrix, in one pass. randomized: block Krylov iteration, some
    /// passes. auto: exact where that fits the memory and is cheaper than the expected passes.
    #[arg(long, value_parser = named(METHODS), default_value = default_of(METHODS))]
    pub(super) method: Method,
    #[command(flatten)]
    pub(super) iteration: IterationArgs,
    /// Centring and scaling of a variant's dosages
    ///
    /// For dosages x with p = mean / ploidy, patterson is (x - mean) / √(p (1 - p)), as in scikit-allel and sgkit; binom2 is
    /// (x - mean) / √(2 p (1 - p)), as in plink2; standard is (x - mean) / standard deviation; center is x - mean; none is x.
    #[arg(long, value_parser = by_name(SCALERS, Scaler::name), default_value = Scaler::default().name())]
    pub(super) scaler: Scaler,
    #[command(flatten)]
    pub(super) filter: FilterArgs,
    /// Also write the loadings of the variants, which `teatime project` takes; takes one more pass
    #[arg(long)]
    pub(super) loadings: bool,
    /// Fail when a component has not converged, instead of warning
    #[arg(long)]
    pub(super) strict: bool,
    #[command(flatten)]
    pub(super) results: FolderArgs,
    #[command(flatten)]
    pub(super) stores: StoreArgs,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

const HELP: &str = "\
Files in DIR, where A = U diag(s) Vᵀ are the scaled dosages (variants, samples)
and M counts the variants after --maf and --geno:
  pca.eigenvec     V as plink2 writes it: a row per sample (of a .fam, with the
                   family), unit-norm columns
  pca.eigenval     s² / M as plink2 --pca meanimpute writes it; of the binom2
                   scaling for patterson too (there s² / 2M)
  scores.tsv       V diag(s): scikit-allel's and sklearn's coordinates
  eigenvalues.tsv  s, explained variance s² / samples, its share of the total,
                   residual, converged
  loadings.tsv.gz  U, with each variant's counted allele, frequency, mean, scale
  pca.svg          the first two components
  run.json         the record of the run: command line, date, device, budgets,
                   times, memory, counts

Examples:
  teatime pca cohort.vcz --out pca
  teatime pca chr1.vcz chr2.vcz --out chromosomes -k 20 --maf 0.01 --geno 0.05
  teatime pca cohort.vcz --out close --tolerance 1e-5 --device wgpu:vulkan
  teatime pca cohort.bed --out reference --loadings --counted-allele a2
  teatime pca cohort.vcz --out autosomes --autosome
  teatime pca dosages.zarr --array dosage --scaler standard --out imputed --loadings
  teatime pca biobank.bed --method randomized --out biobank --resume";

const METHODS: Named<Method> =
    &[("auto", Method::Auto), ("exact", Method::Exact), ("randomized", Method::Randomized)];

pub(crate) const SCALERS: &[Scaler] =
    &[Scaler::Patterson, Scaler::Binom2, Scaler::Standard, Scaler::Center, Scaler::None];

/// Returns the options, and the reason for their method.
pub(super) fn options(args: &PcaArgs) -> Result<(PcaOptions, Option<&'static str>), Failure> {
    let methods = [Method::Auto, Method::Exact, Method::Randomized];
    let (method, reason) = args.iteration.method(args.method, methods)?;
    let options = PcaOptions::default().components(args.components).method(method).scaler(args.scaler);
    Ok((options.filter((&args.filter).into()).svd(args.iteration.options()), reason))
}
