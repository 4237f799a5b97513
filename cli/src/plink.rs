//! What is said of PLINK .bed files on the command line.

use clap::{Args, ValueEnum};
use teatime::genotype::CountedAllele;

/// Arguments of every command that reads genotypes.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct PlinkArgs {
    /// Allele of a .bim that is counted in the .bed: its fifth column (A1) or its sixth (A2) [default: a1]
    ///
    /// A1 is the alternate allele of files that plink2 or bio2zarr made or will read, so that the dosages are those of
    /// the same genotypes as VCF or Zarr. PLINK 1.9 makes A1 the rarer one. Components of centred
    /// dosages do not depend on it; loadings and frequencies do.
    #[arg(long, value_name = "ALLELE", value_enum, ignore_case = true)]
    pub(crate) counted_allele: Option<CountedAlleleArg>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CountedAlleleArg {
    A1,
    A2,
}

impl From<CountedAlleleArg> for CountedAllele {
    fn from(counted: CountedAlleleArg) -> Self {
        match counted {
            CountedAlleleArg::A1 => Self::A1,
            CountedAlleleArg::A2 => Self::A2,
        }
    }
}
