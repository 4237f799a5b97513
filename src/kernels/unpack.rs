//! Unpacks values of a few bits to elements.

use bytemuck::Pod;

use super::{
    WG,
    cpu::{
        bits::{Layout, PairedRows},
        simd::wide,
    },
};
use crate::kernel::{CpuArg, CpuLaunch, Kernel, kernel, params};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        pub(crate) rows: u32,
        /// The number of values of a row.
        pub(crate) cols: u32,
        /// The number of bytes of a packed row.
        pub(crate) stride: u32,
        pub(crate) packed0: u32,
        /// The offset of the output, in elements.
        pub(crate) out0: u32,
    }
}

pub(crate) static UNPACK: Kernel<Params> = kernel!("unpack", Params, [Read, Read, ReadWrite], unpack, specs);

pub(crate) fn spec(bits: u32, bytes: u64) -> [(&'static str, u32); 3] {
    let bytes = u32::try_from(bytes).expect("elements should be small");
    [("WG", WG), ("BITS", bits), ("BYTES", bytes)]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    [1, 2, 4].iter().flat_map(|&bits| [1, 2, 4].map(|bytes| spec(bits, bytes).to_vec())).collect()
}

fn unpack(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let (bits, bytes) = (launch.constant("BITS"), launch.constant("BYTES"));
    let [packed, table, out] = launch.args();
    let packed = &packed.read::<u8>()[p.packed0 as usize..];
    let table = &table.read::<u32>()[..1 << bits];
    let unchanged = table.iter().zip(0..).all(|(&entry, code)| entry == code);
    match (bytes, bits) {
        (1, 1) if unchanged => each(p, 8, packed, out, |codes, out| wide(|| spread_all::<1>(codes, out))),
        (1, 2) if unchanged => each(p, 4, packed, out, |codes, out| wide(|| spread_all::<2>(codes, out))),
        (1, _) if unchanged => each(p, 2, packed, out, |codes, out| wide(|| spread_all::<4>(codes, out))),
        (1, _) => by_table::<u8>(p, bits, table, packed, out),
        (2, _) => by_table::<u16>(p, bits, table, packed, out),
        _ => by_table::<u32>(p, bits, table, packed, out),
    }
}

/// Calls `f` with the bytes and the elements of each row.
fn each<T: Pod + Send>(
    p: Params,
    per: usize,
    packed: &[u8],
    out: CpuArg<'_>,
    f: impl Fn(&[u8], &mut [T]) + Sync,
) {
    let [rows, cols, stride, out0] = [p.rows, p.cols, p.stride, p.out0].map(|n| n as usize);
    let rows = PairedRows {
        from: packed,
        input: Layout { stride, per },
        to: &mut out.write::<T>()[out0..][..rows * cols],
        output: Layout { stride: cols, per: 1 },
        rows,
        len: cols,
        first: 0,
    };
    rows.for_each(&|_, packed: &[u8], out: &mut [T]| f(packed, out));
}

fn by_table<T: Pod + Send + Sync>(p: Params, bits: u32, table: &[u32], packed: &[u8], out: CpuArg<'_>) {
    match bits {
        1 => look_up::<T, 8>(p, table, packed, out),
        2 => look_up::<T, 4>(p, table, packed, out),
        _ => look_up::<T, 2>(p, table, packed, out),
    }
}

/// Unpacks by a table with the elements of each byte value: one load and one store for all the values of a byte.
fn look_up<T: Pod + Send + Sync, const PER: usize>(p: Params, table: &[u32], packed: &[u8], out: CpuArg<'_>) {
    let element =
        |code: usize| bytemuck::pod_read_unaligned(&bytemuck::bytes_of(&table[code])[..size_of::<T>()]);
    let bits = 8 / PER;
    let bytes: Vec<[T; PER]> = (0..256)
        .map(|byte| std::array::from_fn(|i| element(byte >> (i * bits) & (table.len() - 1))))
        .collect();
    let bytes: &[[T; PER]; 256] = bytes[..].try_into().expect("a byte should have 256 values");
    each(p, PER, packed, out, |packed, out: &mut [T]| {
        let (whole, rest) = out.as_chunks_mut::<PER>();
        for (out, &byte) in whole.iter_mut().zip(packed) {
            *out = bytes[usize::from(byte)];
        }
        if let Some(&byte) = packed.get(whole.len()) {
            rest.copy_from_slice(&bytes[usize::from(byte)][..rest.len()]);
        }
    });
}

/// Unpacks values without a table.
#[inline(always)]
fn spread_all<const BITS: usize>(packed: &[u8], out: &mut [u8]) {
    let (words, rest) = out.as_chunks_mut::<8>();
    let (whole, last) = packed.split_at(words.len() * BITS);
    for (out, bytes) in words.iter_mut().zip(whole.as_chunks::<BITS>().0) {
        let mut word = [0; 8];
        word[..BITS].copy_from_slice(bytes);
        *out = spread::<BITS>(u64::from_le_bytes(word));
    }
    for (out, &byte) in rest.chunks_mut(8 / BITS).zip(last) {
        out.copy_from_slice(&spread::<BITS>(byte.into())[..out.len()]);
    }
}

/// Moves eight values from the lowest bits of a word to its bytes.
#[inline(always)]
fn spread<const BITS: usize>(mut values: u64) -> [u8; 8] {
    // Each step separates halves, until all values are apart.
    values = (values | values << (32 - 4 * BITS)) & (((1 << (4 * BITS)) - 1) * 0x0000_0001_0000_0001);
    values = (values | values << (16 - 2 * BITS)) & (((1 << (2 * BITS)) - 1) * 0x0001_0001_0001_0001);
    values = (values | values << (8 - BITS)) & (((1 << BITS) - 1) * 0x0101_0101_0101_0101);
    values.to_le_bytes()
}
