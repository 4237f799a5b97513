//! Standardizes rows: `(x - shift[row]) scale[row]` in f32, with a fill value for missing elements.

use rayon::prelude::*;

use super::{
    WG,
    cpu::{load::load, simd::wide},
};
use crate::{
    DType,
    kernel::{CpuLaunch, Kernel, kernel, params},
};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        pub(crate) rows: u32,
        pub(crate) cols: u32,
        pub(crate) x0: u32,
        pub(crate) table0: u32,
        pub(crate) out0: u32,
        /// The code of the elements' type.
        pub(crate) x_type: u32,
        /// 1 if negative elements are missing, otherwise 0.
        pub(crate) negative_is_missing: u32,
    }
}

pub(crate) static STANDARDIZE: Kernel<Params> =
    kernel!("standardize", Params, [Read, Read, Write], standardize, specs);

pub(crate) fn spec(dtype: DType) -> [(&'static str, u32); 2] {
    [("WG", WG), ("NARROW", (dtype != DType::F32).into())]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    [DType::F32, DType::I8].map(|x| spec(x).to_vec()).to_vec()
}

fn standardize(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let dtype = DType::from_code(p.x_type);
    let [x, rows, out] = launch.args();
    let (x, table) = (&x, rows.read::<f32>()[p.table0 as usize..].as_chunks().0);
    let (cols, start) = (p.cols as usize, p.x0 as usize);
    let negative_is_missing = p.negative_is_missing == 1;
    let out = &mut out.write::<f32>()[p.out0 as usize..][..p.rows as usize * cols];
    out.par_chunks_mut(cols).zip(table).enumerate().for_each(|(row, (out, &[shift, scale, fill]))| {
        if dtype == DType::I8 {
            let x = &x.read::<i8>()[start + row * cols..][..cols];
            wide(|| narrow(x, negative_is_missing, [shift, scale, fill], out));
        } else {
            load(x, dtype, start + row * cols, out);
            stored(negative_is_missing, [shift, scale, fill], out);
        }
    });
}

/// Standardizes bytes with one compare and one select per element.
#[inline(always)]
fn narrow(x: &[i8], negative_is_missing: bool, [shift, scale, fill]: [f32; 3], out: &mut [f32]) {
    let least = if negative_is_missing { 0 } else { i8::MIN };
    for (&x, out) in x.iter().zip(out) {
        *out = if x < least { fill } else { (f32::from(x) - shift) * scale };
    }
}

fn stored(negative_is_missing: bool, [shift, scale, fill]: [f32; 3], out: &mut [f32]) {
    let least = if negative_is_missing { 0.0 } else { f32::NEG_INFINITY };
    for out in out {
        // Comparisons with NaN are false, so NaN is filled.
        *out = if *out >= least { (*out - shift) * scale } else { fill };
    }
}
