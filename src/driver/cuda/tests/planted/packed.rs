//! Plants bugs in the kernels of packed genotypes. The CPU's kernels give the right results.

mod gram;

use super::{each_bug_shows, numbers};
use crate::{
    Result, Tensor,
    device::Device,
    kernel::{Grid, Kernel},
    kernels::{
        packed_adjoint::{self as adjoint, PACKED_ADJOINT},
        packed_apply::{self as apply, PACKED_APPLY},
        packed_uniform::{self as uniform, PACKED_UNIFORM},
        recode::{self as recoding, RECODE, SPEC},
    },
    packed::row_words,
    random::philox,
};

fn cpu() -> Device {
    Device::open_with("cpu", &crate::DeviceOptions::default()).unwrap()
}

fn words(len: u32) -> Vec<u32> {
    let mix =
        |i: u32| (u64::from(i) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_mul(0x2545_f491_4f6c_dd1d);
    (0..len).map(|i| (mix(i) >> 32) as u32).collect()
}

/// Returns codes, of which few are missing.
fn codes(rows: u32, row_words: u32) -> Vec<u32> {
    let few = |(i, word): (usize, u32)| {
        let called = word & !(word >> 1 & 0x5555_5555);
        if i % 211 == 11 { called | 3 << (2 * (i % 16)) } else { called }
    };
    words(rows * row_words).into_iter().enumerate().map(few).collect()
}

/// Extents of a product: columns take two passes; words take two chunks or tiles, the last of which is incomplete.
#[derive(Clone, Copy)]
struct Extents {
    rows: u32,
    words: u32,
    columns: u32,
}

impl Extents {
    fn row_limbs(self) -> u32 {
        (3 * self.columns).next_multiple_of(16)
    }
}

fn apply(
    device: &Device,
    kernel: &'static Kernel<apply::Params>,
    tile: u32,
    limbs: bool,
    of: Extents,
) -> Result<Vec<u32>> {
    let Extents { rows, words: row_words, columns } = of;
    let row_limbs = of.row_limbs();
    let packed = Tensor::from_slice(device, &codes(rows, row_words), &[rows.into(), row_words.into()])?;
    let xs = Tensor::from_slice(
        device,
        &words(4 * row_words * row_limbs),
        &[(4 * row_words).into(), row_limbs.into()],
    )?;
    let table: Vec<f32> = numbers(2 * rows).iter().map(|x| 0.01 * x).collect();
    let table = Tensor::from_slice(device, &table, &[rows.into(), 2])?;
    // The weights of some columns are out of range.
    let terms: Vec<f32> =
        (0..columns).flat_map(|c| [1e5 - 3e4 * c as f32, 10f32.powi(c as i32 % 3 - 2)]).collect();
    let terms = Tensor::from_slice(device, &terms, &[columns.into(), 2])?;
    let len = if limbs { rows.div_ceil(4) * 2 * row_limbs } else { rows * columns };
    let mut out = Tensor::from_slice(device, &vec![7u32; len as usize], &[len.into()])?;
    let params =
        apply::Params { rows, words: row_words, columns, row_limbs, packed0: 0, table0: 0, out0: 0, zero: 0 };
    let grid = Grid::linear(rows.div_ceil(tile).into(), 5, 0)?;
    let arg = |tensor: &'_ Tensor<f32>| tensor.len();
    let args = [
        packed.window(0..packed.len()).arg,
        xs.window(0..xs.len()).arg,
        table.window(0..arg(&table)).arg,
        terms.window(0..arg(&terms)).arg,
        out.window_mut(0..len.into()).arg,
    ];
    let spec = [("TILE", tile), ("MISSING", 1), ("AS_LIMBS", limbs.into())];
    device.launch(kernel, &spec, grid, &args, &params)?;
    out.read()
}

#[test]
fn bugs_in_packed_rows_times_limbs_show() {
    let both = [
        ("words[i] >> (2 * (quad + j)) & 0x03030303u", "words[i] >> (2 * quad) & 0x03030303u"),
        ("copy_wait<0>();\n        __syncthreads();", "copy_wait<0>();"),
        ("copy_wait<0>();\n", "\n"),
        ("word >= params.words || row + 8 * i >= params.rows", "row + 8 * i >= params.rows"),
        ("word >= params.words || row + 8 * i >= params.rows", "word >= params.words"),
        ("words[i] ^= 3 * masks[i];", "words[i] ^= 2 * masks[i];"),
        ("masks[0] | masks[1] | masks[2] | masks[3]", "masks[0] | masks[1] | masks[3]"),
        ("stages + word / CHUNK % 2 * STAGE", "stages"),
        ("__syncthreads();\n            // By constant", "// By constant"),
        ("}\n            __syncthreads();\n            u32 first_row", "}\n            u32 first_row"),
        ("the place of the sums.\n        __syncthreads();", "the place of the sums."),
        (
            "u32 first_row = row - threadIdx.x % WARP / 4 + 8 * i;",
            "u32 first_row = row - threadIdx.x % WARP / 4;",
        ),
        (
            "*pass = limb_columns(0, params.columns, params.columns, first);\n        __syncthreads();",
            "*pass = limb_columns(0, params.columns, params.columns, first);",
        ),
        ("total - join(sums + PART, width)", "total"),
        ("if (row + 8 * i < params.rows) fetch_ahead", "fetch_ahead"),
    ];
    let of = Extents { rows: 2 * 256 + 13, words: 20, columns: 22 };
    let expected = [false, true].map(|limbs| apply(&cpu(), &PACKED_APPLY, 64, limbs, of).unwrap());
    let right = |device: &Device, kernel| Ok(apply(device, kernel, apply::TILE, true, of)? == expected[1]);
    each_bug_shows(15, &PACKED_APPLY, &both, right);
    let right =
        |device: &Device, kernel| Ok(apply(device, kernel, apply::LARGE_TILE, true, of)? == expected[1]);
    each_bug_shows(15, &PACKED_APPLY, &both[1..5], right);
    let limbs = [
        (
            "place[set * params.row_limbs + limb * columns.all]",
            "place[set * params.row_limbs + (2 - limb) * columns.all]",
        ),
        ("fminf(fmaxf(rintf(weight), -8355711.0f), 8355711.0f)", "rintf(weight)"),
        ("rintf(weight)", "weight"),
        ("limbs_of(weight * scales.x)", "limbs_of(weight)"),
        ("AS_LIMBS == 1) clear_padding", "AS_LIMBS == 2) clear_padding"),
        ("if (row + down + k < params.rows) {", "{"),
        ("if (row + down >= params.rows) return;", ""),
    ];
    let right = |device: &Device, kernel| Ok(apply(device, kernel, 64, true, of)? == expected[1]);
    each_bug_shows(15, &PACKED_APPLY, &limbs, right);
    let values = [
        ("float_bits(y * term.y)", "float_bits(y)"),
        ("if (row + down >= rows) return;", ""),
        ("rounded_product(row.x, present)", "row.x * present"),
    ];
    let right = |device: &Device, kernel| Ok(apply(device, kernel, 64, false, of)? == expected[0]);
    each_bug_shows(15, &PACKED_APPLY, &values, right);
}

fn adjoint(
    device: &Device,
    kernel: &'static Kernel<adjoint::Params>,
    tile: u32,
    limb_count: u32,
    of: Extents,
) -> Result<Vec<u32>> {
    let Extents { rows, words: row_words, columns } = of;
    let row_limbs = (limb_count * columns).next_multiple_of(16);
    // Weights of one limb are only for rows without missing codes.
    let missing = u32::from(limb_count == 3);
    let width = (1 + missing) * row_limbs;
    let depth = 600;
    // All bytes of a limb have the same sign, so that sums of limbs exceed 16 bits.
    let limbs = |(row_limb, word): (usize, u32)| match row_limb % 2 {
        0 => (word | 0x4040_4040) & 0x7f7f_7f7f,
        _ => word | 0xc0c0_c0c0,
    };
    let weights: Vec<u32> = words(rows.div_ceil(4) * width).into_iter().enumerate().map(limbs).collect();
    let packed = Tensor::from_slice(device, &codes(rows, row_words), &[rows.into(), row_words.into()])?;
    let weights = Tensor::from_slice(device, &weights, &[rows.div_ceil(4).into(), width.into()])?;
    let entries = 16 * row_words - 5;
    let len = 2 * entries * columns;
    let mut sums = Tensor::from_slice(device, &words(len), &[len.into()])?;
    let params = adjoint::Params {
        rows,
        words: row_words,
        entries,
        columns,
        row_limbs,
        word0: 0,
        word_count: row_words,
        depth,
        packed0: 0,
        weights0: 0,
        sums0: 0,
        shift: 20,
    };
    let parts = columns.div_ceil(64);
    // The grid is folded, and has more workgroups than needed.
    let axis = 3 + parts;
    let grid = Grid::linear((row_words.div_ceil(tile) * parts * rows.div_ceil(depth)).into(), axis, 0)?;
    let args = [
        packed.window(0..packed.len()).arg,
        weights.window(0..weights.len()).arg,
        sums.window_update(0..len.into()).arg,
    ];
    let spec = [("TILE", tile), ("MISSING", missing), ("LIMBS", limb_count)];
    device.launch(kernel, &spec, grid, &args, &params)?;
    sums.read()
}

#[test]
fn bugs_in_transposed_products_show() {
    let bugs = [
        ("bytes[2 + i / 4] >> (2 * (i % 4))", "bytes[2 + i / 4] >> (2 * (i % 2))"),
        ("row / 16 * 16 + row / 2 % 2 * 8 + row / 4 % 4 * 2 + row % 2", "row"),
        ("copy_wait<STAGES - 2>();\n            __syncthreads();", "copy_wait<STAGES - 2>();"),
        ("copy_wait<STAGES - 2>()", "copy_wait<STAGES - 1>()"),
        ("row < work.end && word < params.word_count", "word < params.word_count"),
        ("if (at < entries) add_atomic", "add_atomic"),
        (
            "add_atomic(sums + at * columns.all + columns.first + column, (u64)sum << shift)",
            "sums[at * columns.all + columns.first + column] = (u64)sum << shift",
        ),
        (
            "add_atomic(sums + at * columns.all + columns.first + column, (u64)sum << shift)",
            "sums[at * columns.all + columns.first + column] += (u64)sum << shift",
        ),
        ("(i64)(i32)limbs[t", "(i32)limbs[t"),
        ("i64 sum = (i32)limbs", "i64 sum = limbs"),
        ("bytes[i] ^= 3 * masks[i];", "bytes[i] ^= masks[i];"),
        ("0x01010101u, fours + LIMB_WORDS", "0x01010101u, fours"),
        ("masks[0] | masks[1] | masks[2] | masks[3]", "masks[0] | masks[1] | masks[3]"),
        ("byte_permute(pairs[2], pairs[3], 0x7531)", "byte_permute(pairs[2], pairs[3], 0x6420)"),
        ("(i + 1) % STAGES * STAGE", "i * STAGE"),
        ("}\n            __syncthreads();\n            add(", "}\n            add("),
        ("the place of the sums.\n        __syncthreads();", "the place of the sums."),
        ("entry + row % 8 * 8 + tile + row / 8", "entry + row % 8 * 8 + tile"),
        ("if (split > (params.rows - 1) / params.depth) return;", ""),
    ];
    let of = Extents { rows: 961, words: 20, columns: 22 };
    let expected = adjoint(&cpu(), &PACKED_ADJOINT, 4, 3, of).unwrap();
    let right = |device: &Device, kernel| Ok(adjoint(device, kernel, adjoint::TILE, 3, of)? == expected);
    each_bug_shows(16, &PACKED_ADJOINT, &bugs, right);
    let large = [
        ("row < work.end && word < params.word_count", "row < work.end"),
        ("row / 16 * 16 + row / 2 % 2 * 8 + row / 4 % 4 * 2 + row % 2", "row"),
        ("copy_wait<STAGES - 2>();\n            __syncthreads();", "copy_wait<STAGES - 2>();"),
        ("if (at < entries) add_atomic", "add_atomic"),
    ];
    let right =
        |device: &Device, kernel| Ok(adjoint(device, kernel, adjoint::LARGE_TILE, 3, of)? == expected);
    each_bug_shows(16, &PACKED_ADJOINT, &large, right);
    let single = [
        ("(u64)sum << shift", "(u64)sum"),
        ("case 3: accumulate<3>", "case 3: accumulate<2>"),
        ("DEPTH / 4, 1, LIMBS>", "DEPTH / 4, 1, 0>"),
        ("(part_of_split - split * parts) * PART_COLUMNS", "0"),
        ("first % PART_COLUMNS != 0 && first < params.columns", "first < params.columns"),
    ];
    // The columns need two parts, the second of which has three tiles.
    let of = Extents { columns: 104, ..of };
    let expected = adjoint(&cpu(), &PACKED_ADJOINT, 4, 1, of).unwrap();
    for tile in [adjoint::TILE, adjoint::LARGE_TILE] {
        let right = |device: &Device, kernel| Ok(adjoint(device, kernel, tile, 1, of)? == expected);
        each_bug_shows(16, &PACKED_ADJOINT, &single, right);
    }
}

/// Returns the recoded codes, then the counts.
fn recoded(
    device: &Device,
    kernel: &'static Kernel<recoding::Params>,
    table: u32,
    cols: u32,
) -> Result<Vec<u32>> {
    const ROWS: u32 = 7;
    let row_bytes = cols.div_ceil(4);
    let row_words = u32::try_from(row_words(cols.into())).unwrap();
    let raw: Vec<u8> = (0..ROWS * row_bytes).map(|i| philox([5, 0], i.into())[0].to_le_bytes()[1]).collect();
    let raw = Tensor::from_slice(device, &raw, &[ROWS.into(), row_bytes.into()])?;
    let mut codes = Tensor::<u32>::zeros(device, &[ROWS.into(), row_words.into()])?;
    let mut counts = Tensor::<u32>::zeros(device, &[ROWS.into(), 4])?;
    let params = recoding::Params {
        rows: ROWS,
        cols,
        row_bytes,
        words: row_words,
        raw0: 0,
        packed0: 0,
        counts0: 0,
        table,
    };
    let args = [
        raw.window(0..raw.len()).arg,
        codes.window_mut(0..(ROWS * row_words).into()).arg,
        counts.window_mut(0..(4 * ROWS).into()).arg,
    ];
    device.launch(kernel, &SPEC, Grid::linear(ROWS.into(), 4, 0)?, &args, &params)?;
    let mut all = codes.read()?;
    all.extend(counts.read()?);
    Ok(all)
}

#[test]
fn bugs_in_recoding_show() {
    let bugs = [
        ("first + 16 * unit", "first / 16 * 16 + 16 * unit"),
        ("stored > 0", "stored >= 16"),
        ("mask > 0; mask /= 2", "mask > 1; mask /= 2"),
        ("= counts;\n    __syncthreads();", "= counts;"),
        ("warp < WG / WARP", "warp < WG / WARP - 1"),
        ("if (row >= params.rows) return;", ""),
        ("if (cols < 16) words[i] &= ~(0xffffffffu << (2 * cols));", ""),
        ("table >> 1) << 1", "table) << 1"),
        ("table >> 2 & 1", "table >> 1 & 1"),
        ("(a ^ c) & high", "(a ^ b) & high"),
        ("a ^ b ^ c ^ d", "a ^ b ^ c"),
        ("params.cols - own.ones - own.twos", "params.cols - own.ones"),
    ];
    // Rows start at any byte of a word, and their units need more than one warp. The first table is 1, 0, 3 and 2: each
    // term contributes to its codes. The second is 2, 2, 0 and 1.
    let all = |device: &Device, kernel| -> Result<Vec<u32>> {
        let tables = [0b10_11_00_01, 0b01_00_10_10].map(|table| recoded(device, kernel, table, 3013));
        Ok(tables.into_iter().collect::<Result<Vec<_>>>()?.concat())
    };
    let expected = all(&cpu(), &RECODE).unwrap();
    each_bug_shows(17, &RECODE, &bugs, |device, kernel| Ok(all(device, kernel)? == expected));
}

/// Converts random words to codes, behind words that stay unchanged.
fn uniform(device: &Device, kernel: &'static Kernel<uniform::Params>, columns: u32) -> Result<Vec<u32>> {
    const BEFORE: u32 = 4;
    let row_words = u32::try_from(row_words(columns.into())).unwrap();
    // There are two workgroups, in the second of which some threads have no work.
    let n = 50 * row_words;
    let mut all = words(BEFORE + n);
    // At these words, one digit changes to the next.
    let edges = [0, 0x5555_5555, 0x5555_5556, 0xaaaa_aaaa, 0xaaaa_aaab, u32::MAX];
    all[BEFORE as usize..].iter_mut().step_by(5).zip(edges).for_each(|(word, edge)| *word = edge);
    let mut packed = Tensor::from_slice(device, &all, &[all.len() as u64])?;
    let params = uniform::Params { n, words: row_words, columns, packed0: BEFORE };
    let grid = Grid::linear((n / 4).div_ceil(256).into(), 2, 0)?;
    let len = packed.len();
    device.launch(kernel, &[("WG", 256)], grid, &[packed.window_update(0..len).arg], &params)?;
    packed.read()
}

#[test]
fn bugs_in_random_codes_show() {
    let bugs = [
        ("if (first >= params.n) return;", ""),
        ("first % params.words", "first"),
        ("16 * (first", "4 * (first"),
        ("packed + params.packed0 + first", "packed + first"),
        ("count - min(count, 16u)", "count - 16"),
        ("count - min(count, 16u)", "count"),
        ("count - min(count, 2 * 16u)", "count - min(count, 16u)"),
        ("count - min(count, 3 * 16u)", "count - min(count, 2 * 16u)"),
        ("if (j < count) ", ""),
        ("j < count", "j <= count"),
        ("j < 16", "j < 15"),
        ("0x55555556u", "0x55555555u"),
        ("rest >= 0xaaaaaaabu", "rest > 0xaaaaaaabu"),
        ("digit << (2 * j)", "digit << j"),
        ("rest *= 3", "rest *= 2"),
    ];
    // The rows' last codes are in the first, the third and the last of four words.
    let all = |device: &Device, kernel| {
        [325, 360, 375]
            .into_iter()
            .map(|columns| uniform(device, kernel, columns))
            .collect::<Result<Vec<_>>>()
    };
    let expected = all(&cpu(), &PACKED_UNIFORM).unwrap();
    each_bug_shows(18, &PACKED_UNIFORM, &bugs, |device, kernel| Ok(all(device, kernel)? == expected));
}
