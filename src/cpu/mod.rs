//! The kernels for the cpu driver: plain functions over whole slices, in pieces fixed by the shape alone.

mod bits;
mod dosage;
mod dot;
mod load;
mod matmul;
mod pack;
mod pack_genotypes;
mod packed_adjoint;
mod packed_apply;
mod packed_digits;
mod packed_gather;
mod packed_missing;
mod packed_pairs;
mod packed_standardize;
mod packed_uniform;
mod planes;
mod quads;
mod random;
mod reduce;
mod scale_columns;
mod simd;
mod sparse;
mod standardize;
mod unpack;

pub(crate) use self::{
    dosage::dosage,
    matmul::matmul,
    pack::pack,
    pack_genotypes::pack_genotypes,
    packed_adjoint::packed_adjoint,
    packed_apply::packed_apply,
    packed_digits::packed_digits,
    packed_gather::packed_gather,
    packed_missing::packed_missing,
    packed_pairs::packed_pairs,
    packed_standardize::packed_standardize,
    packed_uniform::packed_uniform,
    planes::{merge_planes, split_planes},
    random::random,
    reduce::reduce,
    scale_columns::scale_columns,
    standardize::standardize,
    unpack::unpack,
};
