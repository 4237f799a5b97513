//! Transposes a matrix: `out[j, i] = x[i, j]`.

use bytemuck::Pod;
use rayon::prelude::*;

use crate::kernel::{CpuLaunch, Kernel, kernel, params, small};

params! {
    /// Parameters of the kernel: the extents of x, row strides and offsets.
    pub(crate) struct Params {
        pub(crate) m: u32,
        pub(crate) n: u32,
        pub(crate) ldx: u32,
        pub(crate) ldo: u32,
        pub(crate) x0: u32,
        pub(crate) out0: u32,
    }
}

/// The number of rows that a workgroup's threads read at once.
const LINES: u32 = 8;
/// The number of rows and of columns that a workgroup transposes.
pub(crate) const TILE: u32 = 4 * LINES;

/// Returns the constants of a program for elements of `words` words of four bytes.
pub(crate) fn spec(words: u64) -> [(&'static str, u32); 2] {
    [("LINES", LINES), ("WORDS", small(words))]
}

pub(crate) static TRANSPOSE: Kernel<Params> =
    kernel!("transpose", Params, [Read, ReadWrite], transpose, specs);

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    [1, 2].map(|words| spec(words).to_vec()).into()
}

/// The number of elements of a row of the transpose that a thread writes at once.
const PIECE: usize = 4096;

fn transpose(launch: CpuLaunch<'_>) {
    match launch.constant("WORDS") {
        1 => transpose_of::<u32>(launch),
        _ => transpose_of::<u64>(launch),
    }
}

fn transpose_of<T: Pod + Send + Sync>(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [x, out] = launch.args();
    let [m, n, ldx, ldo] = [p.m, p.n, p.ldx, p.ldo].map(|extent| extent as usize);
    let x = &x.read::<T>()[p.x0 as usize..];
    let out = &mut out.write::<T>()[p.out0 as usize..][..(n - 1) * ldo + m];
    let tile = TILE as usize;
    if m <= PIECE {
        let parts = out.par_chunks_mut(tile * ldo).enumerate();
        return parts.for_each(|(part, rows)| {
            let mut rows: Vec<_> = rows.chunks_mut(ldo).map(|row| &mut row[..m]).collect();
            turn(x, ldx, (part * tile, 0), &mut rows);
        });
    }
    // Rows are divided, so that threads can share a few long rows. A task has its first row, its start in the rows, and a tile's pieces.
    let mut tasks = Vec::new();
    for (part, rows) in out.chunks_mut(tile * ldo).enumerate() {
        let mut rows: Vec<_> = rows.chunks_mut(ldo).map(|row| row[..m].chunks_mut(PIECE)).collect();
        for first in (0..m).step_by(PIECE) {
            tasks.push((part * tile, first, rows.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>()));
        }
    }
    tasks.into_par_iter().for_each(|(column, first, mut pieces)| turn(x, ldx, (column, first), &mut pieces));
}

/// Fills pieces of rows of the transpose, tile by tile: from the columns of x from `column` on, the elements of rows from `first` on.
fn turn<T: Pod>(x: &[T], ldx: usize, (column, first): (usize, usize), pieces: &mut [&mut [T]]) {
    let (len, tile) = (pieces.first().map_or(0, |piece| piece.len()), TILE as usize);
    for start in (0..len).step_by(tile) {
        let along = start..len.min(start + tile);
        for (j, piece) in (column..).zip(&mut *pieces) {
            for (i, out) in (first + start..).zip(&mut piece[along.clone()]) {
                *out = x[i * ldx + j];
            }
        }
    }
}
