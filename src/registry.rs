//! Every kernel, and what must hold for all of them, checked without a device.

#[cfg(feature = "cuda")]
use crate::kernel::{Kernel, KernelDef};

/// One line for each kernel, with `$of` around it.
macro_rules! each_kernel {
    ($of:path) => {
        vec![
            $of(&crate::bits::pack::PACK),
            $of(&crate::bits::unpack::UNPACK),
            $of(&crate::bits::planes::SPLIT_PLANES),
            $of(&crate::bits::planes::MERGE_PLANES),
            $of(&crate::genotype::dosage::DOSAGE),
            $of(&crate::linalg::matmul::MATMUL),
            $of(&crate::genotype::packed::pack::PACK_GENOTYPES),
            $of(&crate::genotype::packed::adjoint::PACKED_ADJOINT),
            $of(&crate::genotype::packed::apply::PACKED_APPLY),
            $of(&crate::genotype::packed::digits::PACKED_DIGITS),
            $of(&crate::genotype::packed::gather::PACKED_GATHER),
            $of(&crate::genotype::packed::missing::PACKED_MISSING),
            $of(&crate::genotype::packed::pairs::PACKED_PAIRS),
            $of(&crate::genotype::packed::standardize::PACKED_STANDARDIZE),
            $of(&crate::genotype::packed::uniform::PACKED_UNIFORM),
            $of(&crate::random::RANDOM),
            $of(&crate::linalg::reduce::REDUCE),
            $of(&crate::linalg::scale_columns::SCALE_COLUMNS),
            $of(&crate::genotype::standardize::STANDARDIZE),
        ]
    };
}

/// Every kernel.
#[cfg(feature = "cuda")]
pub(crate) fn kernels() -> Vec<&'static KernelDef> {
    const fn def<P>(kernel: &'static Kernel<P>) -> &'static KernelDef {
        &kernel.def
    }
    each_kernel!(def)
}

#[cfg(test)]
mod tests;
