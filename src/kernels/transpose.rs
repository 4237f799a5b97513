//! `out[j, i] = x[i, j]`.

use bytemuck::{Pod, Zeroable};
use rayon::prelude::*;

use crate::kernel::{CpuLaunch, Kernel, kernel};

/// Parameters of the kernel: extents of x, row strides and first elements.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Params {
    pub(crate) m: u32,
    pub(crate) n: u32,
    pub(crate) ldx: u32,
    pub(crate) ldo: u32,
    pub(crate) x0: u32,
    pub(crate) out0: u32,
}

/// Rows that a workgroup's threads read at once.
const LINES: u32 = 8;
/// Rows and columns that a workgroup turns.
pub(crate) const TILE: u32 = 4 * LINES;
pub(crate) const SPEC: [(&str, u32); 1] = [("LINES", LINES)];

pub(crate) static TRANSPOSE: Kernel<Params> = kernel!("transpose", Params, [Read, Write], transpose, specs);

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    vec![SPEC.to_vec()]
}

fn transpose(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [x, out] = launch.args();
    let [m, n, ldx, ldo] = [p.m, p.n, p.ldx, p.ldo].map(|extent| extent as usize);
    let x = &x.read::<u32>()[p.x0 as usize..];
    let out = &mut out.write::<u32>()[p.out0 as usize..];
    let tile = TILE as usize;
    out[..(n - 1) * ldo + m].par_chunks_mut(tile * ldo).enumerate().for_each(|(part, out)| {
        let columns = part * tile..n.min((part + 1) * tile);
        for first in (0..m).step_by(tile) {
            for (out, j) in out.chunks_mut(ldo).zip(columns.clone()) {
                let rows = first..m.min(first + tile);
                for (out, i) in out[rows.clone()].iter_mut().zip(rows) {
                    *out = x[i * ldx + j];
                }
            }
        }
    });
}
