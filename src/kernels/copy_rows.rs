//! Copies rows into another array: `out[i, j] = x[i, j]`, or `out[i, j] = x[indices[i], j]`.

use rayon::prelude::*;

use super::WG;
use crate::kernel::{CpuLaunch, Kernel, kernel, params, small};

params! {
    /// Parameters of the kernel, in elements of `BYTES` bytes. The output consists of segments of whole rows: a single segment, or one for each row.
    pub(crate) struct Params {
        pub(crate) segments: u32,
        /// The number of elements of a segment.
        pub(crate) span: u32,
        /// The number of elements from the start of one segment to the start of the next.
        pub(crate) pitch: u32,
        /// The number of [`units`] of a segment.
        pub(crate) units: u32,
        /// The number of elements of a row.
        pub(crate) cols: u32,
        pub(crate) x0: u32,
        pub(crate) out0: u32,
        pub(crate) index0: u32,
        /// The index of the first row of x that this launch has, and the number of its rows. Output rows from other rows of x stay as they are.
        pub(crate) first_row: u32,
        pub(crate) x_rows: u32,
        /// The largest valid index: larger ones are counted as errors.
        pub(crate) last_row: u32,
    }
}

pub(crate) static COPY_ROWS: Kernel<Params> =
    kernel!("copy_rows", Params, [Read, Read, ReadWrite, ReadWrite], copy_rows, specs);

/// The number of bytes of a unit, which one thread writes.
pub(crate) const UNIT: u64 = 16;

/// Returns the maximum number of units that `span` consecutive elements touch, wherever the elements start in a unit.
pub(crate) const fn units(span: u64, bytes: u64) -> u64 {
    let values = UNIT / bytes;
    (span + 2 * values - 2) / values
}

pub(crate) fn spec(bytes: u64, by_index: bool) -> [(&'static str, u32); 3] {
    [("WG", WG), ("BYTES", small(bytes)), ("BY_INDEX", by_index.into())]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    let of_size = |&bytes: &u64| [false, true].map(|by_index| spec(bytes, by_index).to_vec());
    [1, 2, 4].iter().flat_map(of_size).collect()
}

/// The number of bytes that a thread copies at once.
const PIECE: usize = 1 << 16;

fn copy_rows(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let (bytes, by_index) = (launch.constant("BYTES") as usize, launch.constant("BY_INDEX") == 1);
    let [x, indices, out, count] = launch.args();
    let [segments, span, pitch, cols] = [p.segments, p.span, p.pitch, p.cols].map(|n| n as usize);
    let x = &x.read::<u8>()[p.x0 as usize * bytes..];
    let len = ((segments - 1) * pitch + span) * bytes;
    let out = &mut out.write::<u8>()[p.out0 as usize * bytes..][..len];
    if !by_index {
        return copy(x, out, [span * bytes, pitch * bytes], Some);
    }
    // Rows by index are contiguous, in one segment.
    let indices = &indices.read::<u32>()[p.index0 as usize..][..span / cols];
    let refused = indices.par_iter().filter(|&&index| index > p.last_row).count();
    if refused > 0 {
        count.write::<u32>()[0] += small(refused as u64);
    }
    let source = |row: usize| {
        let source = indices[row].wrapping_sub(p.first_row);
        (source < p.x_rows).then_some(source as usize)
    };
    match cols * bytes {
        1 => copy_short::<1>(x, out, source),
        2 => copy_short::<2>(x, out, source),
        4 => copy_short::<4>(x, out, source),
        8 => copy_short::<8>(x, out, source),
        16 => copy_short::<16>(x, out, source),
        row => copy(x, out, [row, row], source),
    }
}

/// Fills runs of `len` bytes, which start every `pitch` bytes, with the runs of x whose indices `source` returns.
fn copy(x: &[u8], out: &mut [u8], [len, pitch]: [usize; 2], source: impl Fn(usize) -> Option<usize> + Sync) {
    let runs = (PIECE / pitch).max(1);
    out.par_chunks_mut(runs * pitch).enumerate().for_each(|(part, out)| {
        for (run, out) in (part * runs..).zip(out.chunks_mut(pitch)) {
            if let Some(source) = source(run) {
                copy_run(&x[source * len..][..len], &mut out[..len]);
            }
        }
    });
}

/// Copies a run, with several threads if it is long.
fn copy_run(x: &[u8], out: &mut [u8]) {
    if out.len() <= PIECE {
        out.copy_from_slice(x);
    } else {
        out.par_chunks_mut(PIECE).zip(x.par_chunks(PIECE)).for_each(|(out, x)| out.copy_from_slice(x));
    }
}

/// Fills rows of `N` bytes, each by one load and one store.
fn copy_short<const N: usize>(x: &[u8], out: &mut [u8], source: impl Fn(usize) -> Option<usize> + Sync) {
    let (x, out) = (x.as_chunks::<N>().0, out.as_chunks_mut::<N>().0);
    let rows = PIECE / N;
    out.par_chunks_mut(rows).enumerate().for_each(|(part, out)| {
        for (row, out) in (part * rows..).zip(out) {
            if let Some(source) = source(row) {
                *out = x[source];
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_hold_what_starts_anywhere() {
        for bytes in [1, 2, 4] {
            let values = UNIT / bytes;
            for span in 1..100 {
                let most = (0..values).map(|start| (start + span).div_ceil(values)).max();
                assert_eq!(Some(units(span, bytes)), most, "{span} elements of {bytes} bytes");
            }
        }
    }
}
