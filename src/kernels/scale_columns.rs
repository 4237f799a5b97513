//! Scales columns: `out[i, j] = x[i, j] s[j]`.

use rayon::prelude::*;

use super::wg_alone;
use crate::kernel::{CpuLaunch, Kernel, kernel, params};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        pub(crate) rows: u32,
        pub(crate) cols: u32,
        pub(crate) x0: u32,
        pub(crate) out0: u32,
    }
}

pub(crate) static SCALE_COLUMNS: Kernel<Params> =
    kernel!("scale_columns", Params, [Read, Read, Write], scale_columns, wg_alone);

fn scale_columns(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [x, s, out] = launch.args();
    let (rows, cols) = (p.rows as usize, p.cols as usize);
    let x = &x.read::<f32>()[p.x0 as usize..][..rows * cols];
    let s = &s.read::<f32>()[..cols];
    let out = &mut out.write::<f32>()[p.out0 as usize..][..rows * cols];
    out.par_chunks_mut(cols).zip(x.par_chunks(cols)).for_each(|(out, x)| {
        for ((out, x), s) in out.iter_mut().zip(x).zip(s) {
            *out = x * s;
        }
    });
}
