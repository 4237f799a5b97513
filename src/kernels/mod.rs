//! All kernels, one per module: parameters, the constants with which a kernel is compiled, and its function for the cpu device.
//! That function takes whole slices and divides them by the shape alone. The kernel's other sources are `cuda/NAME.cu` and `shaders/NAME.wgsl`.

pub(crate) mod add_block;
pub(crate) mod copy_rows;
pub(crate) mod correlate;
pub(crate) mod cpu;
pub(crate) mod denoise_tv;
pub(crate) mod distance;
pub(crate) mod elementwise;
pub(crate) mod finish_distance;
pub(crate) mod matmul;
pub(crate) mod nearest;
pub(crate) mod pack;
pub(crate) mod packed_adjoint;
pub(crate) mod packed_apply;
pub(crate) mod packed_gather;
pub(crate) mod packed_limbs;
pub(crate) mod packed_pairs;
pub(crate) mod random;
pub(crate) mod recode;
pub(crate) mod reduce;
pub(crate) mod reduce_axis;
pub(crate) mod standardize;
pub(crate) mod transpose;
pub(crate) mod unpack;

#[cfg(feature = "cuda")]
use crate::Result;
#[cfg(any(test, feature = "cuda"))]
use crate::kernel::KernelDef;

/// The number of invocations of a workgroup, unless a kernel needs another one. On a device that supports fewer, each invocation does more work.
pub(crate) const WG: u32 = 256;
/// The constants of a kernel that has only the workgroup size.
pub(crate) const WG_ALONE: [(&str, u32); 1] = [("WG", WG)];

/// Returns the number of workgroups, of `bytes` bytes each, that fit the shared memory of a CUDA multiprocessor. From compute capability 8.0
/// on, the system takes 1 KiB for each.
pub(crate) fn workgroups_in(memory: u32, bytes: u32) -> u32 {
    memory / (bytes + 1024)
}

fn wg_alone() -> Vec<Vec<(&'static str, u32)>> {
    vec![WG_ALONE.to_vec()]
}

/// Every kernel.
#[cfg(any(test, feature = "cuda"))]
pub(crate) static KERNELS: &[&KernelDef] = &[
    &distance::DISTANCE.def,
    &correlate::CORRELATE.def,
    &denoise_tv::DENOISE_TV.def,
    &pack::PACK.def,
    &unpack::UNPACK.def,
    &matmul::MATMUL.def,
    &matmul::MATMUL_F64.def,
    &packed_adjoint::PACKED_ADJOINT.def,
    &packed_apply::PACKED_APPLY.def,
    &packed_limbs::PACKED_LIMBS.def,
    &packed_gather::PACKED_GATHER.def,
    &packed_pairs::PACKED_PAIRS.def,
    &random::RANDOM.def,
    &recode::RECODE.def,
    &reduce::REDUCE.def,
    &add_block::ADD_BLOCK.def,
    &elementwise::ELEMENTWISE.def,
    &copy_rows::COPY_ROWS.def,
    &reduce_axis::REDUCE_AXIS.def,
    &finish_distance::FINISH_DISTANCE.def,
    &nearest::NEAREST.def,
    &standardize::STANDARDIZE.def,
    &transpose::TRANSPOSE.def,
];

/// Writes every CUDA kernel as PTX into a folder, for machines that have NVIDIA's driver but no NVRTC.
///
/// A program finds the folder as `kernels` next to itself, as `../share/teatime/kernels`, or by `TEATIME_CUDA_KERNELS`.
/// The folder holds the kernels of exactly this version of the crate, for compute capability 8.0 and newer. Writing
/// needs NVRTC 12.0 (no GPU), so that drivers from 525 on load the PTX: `pip install nvidia-cuda-nvrtc-cu12==12.0.140`.
///
/// # Errors
/// [`Error::Driver`](crate::Error::Driver) without NVRTC 12.0, [`Error::Io`](crate::Error::Io) if a file cannot be
/// written, [`Error::Compile`](crate::Error::Compile) if a kernel does not compile.
#[cfg(feature = "cuda")]
pub fn write_cuda_kernels(folder: impl AsRef<std::path::Path>) -> Result<()> {
    crate::driver::cuda::write_kernels(KERNELS, folder.as_ref())
}

#[cfg(test)]
mod tests;
