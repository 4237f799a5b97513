//! The kernels for the cpu driver: plain functions over whole slices, in pieces fixed by the shape alone.

mod bits;
mod dosage;
mod load;
mod matmul;
mod pack;
mod planes;
mod random;
mod reduce;
mod scale_columns;
mod simd;
mod standardize;
mod unpack;

pub(crate) use self::{
    dosage::dosage,
    matmul::matmul,
    pack::pack,
    planes::{merge_planes, split_planes},
    random::random,
    reduce::reduce,
    scale_columns::scale_columns,
    standardize::standardize,
    unpack::unpack,
};
