//! What can be said on the command line.

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::{
    Args, Parser, Subcommand,
    builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser},
};
use teatime::{Budget, Device, DeviceOptions, linalg::SvdOptions};
use teatime_genotype::{Method, PcaOptions, Scaler, VariantFilter};

use crate::{
    blur::BlurArgs, distance::DistanceArgs, failure::Failure, grm::GrmArgs, pairwise::PairwiseArgs,
    project::ProjectArgs, store_args::StoreArgs,
};

/// GPU math for arrays bigger than memory, on any GPU or the CPU: PCA, relationships and distances of genotypes in Zarr stores or
/// PLINK files; distances and Gaussian filters of any array.
#[derive(Debug, Parser)]
#[command(name = "teatime", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "`teatime demo` shows what it does, without any data.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Pca(Box<PcaArgs>),
    Project(Box<ProjectArgs>),
    Grm(Box<GrmArgs>),
    Distance(Box<DistanceArgs>),
    Pairwise(Box<PairwiseArgs>),
    Blur(Box<BlurArgs>),
    Demo(DemoArgs),
    Devices(DevicesArgs),
}

/// Principal components of the samples of genotype stores
///
/// Reads VCF-Zarr (`call_genotype`, as bio2zarr and sgkit write it), the scikit-allel and MalariaGEN layout
/// (`calldata/GT`, at the root or in one group per contig), and plain arrays of dosages (variants, samples) or calls
/// (variants, samples, ploidy); and PLINK 1 .bed files with the .bim and .fam beside them. The dosage of a call is its
/// number of non-reference alleles, or of copies of the --counted-allele; a call with a missing allele is missing and becomes
/// the variant's mean; variants that do not vary contribute nothing.
#[derive(Args, Debug)]
#[command(after_long_help = PCA_HELP)]
pub(crate) struct PcaArgs {
    /// Folder for the results
    #[arg(long, value_name = "DIR", value_parser = local())]
    pub(crate) out: PathBuf,
    /// Number of components
    #[arg(short = 'k', long, value_name = "N", default_value_t = PcaOptions::default().components, value_parser = at_least_one)]
    pub(crate) components: usize,
    /// How the components are computed
    ///
    /// exact: the eigenvectors of the samples' Gram matrix, in one pass. randomized: block Krylov iteration, some
    /// passes. auto: exact where that fits the memory and is cheaper than the expected passes.
    #[arg(long, value_parser = named(METHODS), default_value = default_of(METHODS))]
    pub(crate) method: Method,
    /// Randomized, also with auto: this many iterations, in N + 3 passes, the first of which counts
    #[arg(long, value_name = "N", conflicts_with = "tolerance")]
    pub(crate) power_iterations: Option<u32>,
    /// Randomized: iterate until |AᵀA v - s² v| / (s s₁) of every component is at most T [default: 1e-4]
    ///
    /// With auto, the exact method where that costs less: it is within any tolerance.
    #[arg(long, value_name = "T", value_parser = tolerance)]
    pub(crate) tolerance: Option<f64>,
    /// Randomized: most products with the matrix, a pass over the variants each
    #[arg(long, value_name = "N", default_value_t = SvdOptions::default().max_passes)]
    pub(crate) max_passes: u32,
    /// Randomized: extra vectors of each block [default: 10; to a tolerance, what makes 10 vectors in all]
    ///
    /// With a fixed number of iterations they are what makes the result good. To a tolerance they cost more
    /// than the passes that they save: all blocks are kept, and the components found among them all.
    #[arg(long, value_name = "N")]
    pub(crate) oversamples: Option<usize>,
    /// Randomized: seed of the first block
    #[arg(long, value_name = "N", default_value_t = SvdOptions::default().seed)]
    pub(crate) seed: u64,
    /// Centring and scaling of a variant's dosages
    ///
    /// Of dosages x with p = mean / ploidy: patterson (x - mean) / √(p (1 - p)), as scikit-allel and sgkit; binom2
    /// (x - mean) / √(2 p (1 - p)), as plink2; standard (x - mean) / standard deviation; center x - mean; none x.
    #[arg(long, value_parser = named(SCALERS), default_value = default_of(SCALERS))]
    pub(crate) scaler: Scaler,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Also write the loadings of the variants, which `teatime project` takes; takes one more pass
    #[arg(long)]
    pub(crate) loadings: bool,
    /// Replace the results of this command that the folder holds, as its run.json lists them
    ///
    /// Any other file of the name of a result is an error. The earlier results stay until the new ones are there.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Fail when a component has not converged, instead of warning
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print run.json instead of the summary
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) stores: StoreArgs,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

const PCA_HELP: &str = "\
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

Exit codes: 0 done, 1 error, 2 wrong usage, 130, 143 and 129 stopped by Ctrl-C,
SIGTERM and SIGHUP. Unless the code is 0, no result is left behind (but where
only the summary could not be printed, or an error names the folder that has
what is done). run.json is written last and removed first: where it is, all
results are there. While a run writes to DIR, another that would is refused.";

/// Simulate a genotype store and show its PCA: needs no data and no GPU
///
/// Draws populations by the Balding-Nichols model, writes the genotypes as a VCF-Zarr store, and runs the same PCA as
/// `teatime pca`. A seed gives the same genotypes on every machine.
#[derive(Args, Debug)]
pub(crate) struct DemoArgs {
    /// Folder for the store and the results; an earlier demo's is replaced
    #[arg(long, value_name = "DIR", default_value = "teatime-demo", value_parser = local())]
    pub(crate) out: PathBuf,
    /// Number of variants
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=1 << 31))]
    pub(crate) variants: u64,
    /// Number of samples
    #[arg(long, value_name = "N", default_value_t = 1_500, value_parser = at_least_one)]
    pub(crate) samples: usize,
    /// Number of populations
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = at_least_one)]
    pub(crate) populations: usize,
    /// Fraction of missing calls (0 to 1)
    #[arg(long, value_name = "X", default_value_t = 0.01, value_parser = up_to_one)]
    pub(crate) missing: f64,
    /// How far the populations are apart: `F_ST` (0 to 0.95)
    #[arg(long, value_name = "X", default_value_t = 0.01, value_parser = fst)]
    pub(crate) fst: f64,
    /// Seed of the simulation
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Number of components
    #[arg(short = 'k', long, value_name = "N", default_value_t = PcaOptions::default().components, value_parser = at_least_one)]
    pub(crate) components: usize,
    /// Print run.json instead of the summary
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

/// The devices of this machine, by the names that --device takes
#[derive(Args, Debug)]
pub(crate) struct DevicesArgs {
    /// Print a JSON array instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which variants take part.
#[derive(Args, Debug)]
pub(crate) struct FilterArgs {
    /// Leave out variants with a minor allele frequency below X (0 to 0.5)
    #[arg(long, value_name = "X", default_value_t = VariantFilter::default().min_maf, value_parser = up_to_half, allow_negative_numbers = true)]
    pub(crate) maf: f64,
    /// Leave out variants with more than this fraction of missing calls (0 to 1)
    #[arg(long, value_name = "X", default_value_t = VariantFilter::default().max_missing, value_parser = up_to_one, allow_negative_numbers = true)]
    pub(crate) geno: f64,
}

impl From<&FilterArgs> for VariantFilter {
    fn from(args: &FilterArgs) -> Self {
        Self::default().min_maf(args.maf).max_missing(args.geno)
    }
}

/// Where to compute, and with how much.
#[derive(Args, Debug)]
pub(crate) struct Resources {
    /// Device to compute on, as `teatime devices` names it: cpu, cuda:0, wgpu:0 ...
    ///
    /// Also cuda, wgpu:vulkan (or metal, dx12, gl), wgpu:vulkan:N, and wgpu: with a part of the description. By default the
    /// one that the environment variable `TEATIME_DEVICE` names, else a GPU through CUDA, else a discrete GPU, else cpu.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Threads that decode, and compute on the cpu device; changes no result [default: all]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Most host memory to plan with [default: half of what is free]
    ///
    /// What is free is what the system can give without swapping, or what the memory limit of the cgroup (container, batch
    /// job) leaves, where that is less.
    ///
    /// 512M, 2G, 1.5GiB (powers of 1024), 2GB (powers of 1000). A budget below what one block needs is an error that
    /// says the least.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<u64>,
    /// Most memory of the device to plan with [default: three quarters of it]
    ///
    /// On the cpu device, --memory counts.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) device_memory: Option<u64>,
}

impl Resources {
    pub(crate) fn open(&self) -> Result<Device, Failure> {
        let options = DeviceOptions::default().threads(self.threads);
        let device = match &self.device {
            Some(name) => Device::open_with(name, &options),
            None => Device::best_with(&options),
        };
        Ok(device?)
    }

    /// A warning for each device that would have been taken and could not be used.
    pub(crate) fn warnings(device: &Device) -> Vec<String> {
        device.skipped().iter().map(|(name, why)| format!("{name} is not used: {why}")).collect()
    }

    pub(crate) fn budget(&self) -> Budget {
        Budget::default().host(self.memory).device(self.device_memory)
    }
}

/// Values by the names that the command line gives them.
pub(crate) type Named<T> = &'static [(&'static str, T)];

const METHODS: Named<Method> =
    &[("auto", Method::Auto), ("exact", Method::Exact), ("randomized", Method::Randomized)];

pub(crate) const SCALERS: Named<Scaler> = &[
    ("patterson", Scaler::Patterson),
    ("binom2", Scaler::Binom2),
    ("standard", Scaler::Standard),
    ("center", Scaler::Center),
    ("none", Scaler::None),
];

/// One of some values, by name. Whether case matters, the argument says.
pub(crate) fn named<T: Copy + Send + Sync>(all: Named<T>) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(|(name, _)| *name)).try_map(move |text| {
        let found = all.iter().find(|(name, _)| name.eq_ignore_ascii_case(&text));
        found.map(|(_, value)| *value).ok_or("not a possible value")
    })
}

/// The name of the library's default.
pub(crate) fn default_of<T: Copy + Default + PartialEq>(all: Named<T>) -> &'static str {
    let default = T::default();
    all.iter().find(|(_, value)| *value == default).map_or("", |(name, _)| name)
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 is needed".into()),
        Ok(n) => Ok(n),
        Err(_) => Err("not a whole number".into()),
    }
}

fn between(text: &str, low: f64, high: f64) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (low..=high).contains(&value) => Ok(value),
        _ => Err(format!("not a number from {low} to {high}")),
    }
}

/// A path on this machine.
pub(crate) fn local() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let remote = path.to_str().is_some_and(|text| text.contains("://")) && !path.exists();
        let why = "stores and results are on disks so far: copy a remote one to a disk, or mount it";
        if remote { Err(why) } else { Ok(path) }
    })
}

/// A fraction up to 1/2.
pub(crate) fn up_to_half(text: &str) -> Result<f64, String> {
    between(text, 0.0, 0.5)
}

/// A fraction.
pub(crate) fn up_to_one(text: &str) -> Result<f64, String> {
    between(text, 0.0, 1.0)
}

fn fst(text: &str) -> Result<f64, String> {
    between(text, 0.0, 0.95)
}

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value < 1.0 => Ok(value),
        _ => Err("not a number above 0 and below 1".into()),
    }
}

/// The number of bytes that text such as `512M`, `2G`, `1.5GiB` or `2GB` names: K, M, G and T count in 1024, as do KiB and its like, and KB
/// and its like in 1000.
///
/// # Errors
/// Why it names none.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || "not a size such as 512M, 2G, 1.5GiB or 2GB".to_owned();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let unit = unit.trim().to_ascii_uppercase();
    let mut letters = unit.chars();
    let power = match letters.next() {
        None | Some('B') => 0,
        Some(letter) => 1 + "KMGT".find(letter).ok_or_else(wrong)?,
    };
    let base: f64 = match (power, letters.as_str()) {
        (0, "") | (1.., "" | "IB") => 1024.0,
        (1.., "B") => 1000.0,
        _ => return Err(wrong()),
    };
    let bytes = number * base.powi(i32::try_from(power).unwrap_or_default());
    if !(1.0..1e18).contains(&bytes) {
        return Err(format!("{text} is not between 1 byte and 1e18 bytes"));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "just checked")]
    Ok(bytes as u64)
}
