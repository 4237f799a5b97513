//! Plants bugs in the kernels of Gram matrices.

use super::{Extents, cpu, each_bug_shows, words};
use crate::{
    Result, Tensor,
    device::Device,
    kernel::{Grid, Kernel},
    kernels::{
        packed_gather::{self as gather, PACKED_GATHER},
        packed_limbs::{self as limbs, PACKED_LIMBS},
        packed_pairs::{self as pairs, PACKED_PAIRS},
    },
};

fn limbs(device: &Device, kernel: &'static Kernel<limbs::Params>, of: Extents) -> Result<Vec<u32>> {
    let Extents { rows, words: row_words, columns } = of;
    let row_limbs = of.row_limbs();
    let packed = Tensor::from_slice(device, &words(rows * row_words), &[rows.into(), row_words.into()])?;
    let table = Tensor::from_slice(device, &words(6 * rows), &[rows.into(), 6])?;
    let len = u64::from(rows.div_ceil(4) * 2 * row_limbs);
    let mut out = Tensor::from_slice(device, &vec![7u32; usize::try_from(len).unwrap()], &[len])?;
    let params = limbs::Params {
        rows,
        words: row_words,
        word0: 4,
        columns,
        row_limbs,
        packed0: 0,
        table0: 0,
        out0: 0,
    };
    let args =
        [packed.window(0..packed.len()).arg, table.window(0..table.len()).arg, out.window_mut(0..len).arg];
    let grid = Grid::linear((rows.div_ceil(4) * columns).div_ceil(256).into(), 4, 0)?;
    device.launch(kernel, &[("WG", 256), ("SETS", 2), ("LIMBS", 3)], grid, &args, &params)?;
    out.read()
}

#[test]
fn bugs_in_limbs_show() {
    let bugs = [
        ("if (first >= params.rows) return;", ""),
        ("if (row >= params.rows) break;", ""),
        ("params.word0 + column / 16", "column / 16"),
        ("word >> (2 * (column % 16)) & 3", "word >> (2 * (column % 16)) & 1"),
        ("& 0xff) << (8 * r)", "& 0x7f) << (8 * r)"),
        ("(four * SETS + set) * params.row_limbs", "(four * SETS) * params.row_limbs"),
        ("words[set * LIMBS + t]", "words[t]"),
        ("pad += params.columns) to[pad] = 0;", "pad += params.columns) to[pad] = 1;"),
    ];
    let of = Extents { rows: 77, words: 8, columns: 19 };
    let expected = limbs(&cpu(), &PACKED_LIMBS, of).unwrap();
    let right = |device: &Device, kernel| Ok(limbs(device, kernel, of)? == expected);
    each_bug_shows(23, &PACKED_LIMBS, &bugs, right);
}

fn gather(device: &Device, kernel: &'static Kernel<gather::Params>) -> Result<Vec<u32>> {
    const WORDS: u32 = 8;
    // Words next to the rows stay unchanged.
    const STRIDE: u32 = WORDS + 4;
    let order: Vec<u32> = words(30).iter().map(|&word| (word & !(gather::ROWS - 1)) | (word % 9)).collect();
    // The padding of rows is 0.
    let full = |(i, word): (usize, u32)| match i % WORDS as usize {
        0..5 => word,
        5 => word & 0x3fff,
        _ => 0,
    };
    let packed: Vec<u32> = words(9 * WORDS).into_iter().enumerate().map(full).collect();
    let packed = Tensor::from_slice(device, &packed, &[9, WORDS.into()])?;
    let order = Tensor::from_slice(device, &order, &[30])?;
    let len = u64::from(30 * STRIDE);
    let mut out = Tensor::from_slice(device, &[7u32; 30 * STRIDE as usize], &[len])?;
    let params = gather::Params {
        rows: 30,
        words: WORDS,
        stride: STRIDE,
        entries: 87,
        packed0: 0,
        order0: 0,
        out0: 0,
    };
    let args =
        [packed.window(0..packed.len()).arg, order.window(0..order.len()).arg, out.window_mut(0..len).arg];
    device.launch(kernel, &[("WG", 256)], Grid::linear(1, 4, 0)?, &args, &params)?;
    out.read()
}

#[test]
fn bugs_in_rows_in_order_show() {
    let bugs = [
        ("if (row >= params.rows) return;", ""),
        ("place % ROWS * params.words", "row % 9 * params.words"),
        ("u32 at = item - row * params.words;", "u32 at = 0;"),
        ("row * params.stride + at", "item"),
        ("place >> 26 & 3", "place >> 26 & 1"),
        ("place >> 30;", "place >> 29;"),
        ("(word >> 1 & EACH) * 3", "(word & EACH) * 3"),
        ("(word & EACH) * 3", "word & EACH"),
        ("(zero ^ one ^ two ^ three)", "(one ^ two ^ three)"),
        ("& lows & highs", "& lows"),
        ("if (16 * at < params.entries) {", "{"),
        ("EACH >> (2 * (16 - used))", "EACH"),
    ];
    let expected = gather(&cpu(), &PACKED_GATHER).unwrap();
    let right = |device: &Device, kernel| Ok(gather(device, kernel)? == expected);
    each_bug_shows(24, &PACKED_GATHER, &bugs, right);
}

fn pairs(device: &Device, kernel: &'static Kernel<pairs::Params>) -> Result<Vec<u32>> {
    // There are two blocks, in the second of which some threads have no work.
    const ROWS: u32 = 80;
    const WORDS: u32 = 8;
    const COLUMNS: u32 = 32;
    // One word in three holds codes.
    let sparse = |(i, word): (usize, u32)| if i % 3 == 1 { word } else { 0 };
    let packed: Vec<u32> = words(ROWS * WORDS).into_iter().enumerate().map(sparse).collect();
    let packed = Tensor::from_slice(device, &packed, &[ROWS.into(), WORDS.into()])?;
    // With the shift, the terms need a few bits more than 32.
    let term = |(i, word): (usize, u32)| if i % 4 == 3 { word % 12 } else { word >> 9 };
    let table: Vec<u32> = words(4 * ROWS).into_iter().enumerate().map(term).collect();
    let table = Tensor::from_slice(device, &table, &[ROWS.into(), 4])?;
    let len = 2 * 16 * (WORDS - 4) * COLUMNS;
    let mut sums = Tensor::from_slice(device, &words(len), &[len.into()])?;
    let params = pairs::Params {
        rows: ROWS,
        words: WORDS,
        columns: COLUMNS,
        word0: 4,
        word_count: 4,
        column_word: 2,
        packed0: 0,
        table0: 0,
        sums0: 0,
    };
    let args = [
        packed.window(0..packed.len()).arg,
        table.window(0..table.len()).arg,
        sums.window_update(0..len.into()).arg,
    ];
    device.launch(kernel, &[("WG", 256)], Grid::linear(2, 4, 0)?, &args, &params)?;
    sums.read()
}

#[test]
fn bugs_in_pairs_show() {
    let bugs = [
        ("if (row >= params.rows) return;", ""),
        ("lowest(word) & ~1u", "lowest(word)"),
        ("lowest(other) & ~1u", "lowest(other)"),
        ("if (a == 3 && b == 3) return terms[2];", ""),
        ("if (a == 3 || b == 3) return min(a, b) * terms[1];", ""),
        ("min(a, b) * terms[1]", "terms[1]"),
        ("return a * b * terms[0]", "return a * terms[0]"),
        ("params.word0 + at", "at"),
        ("params.column_word + first / 16", "first / 16"),
        ("first += 16", "first += 32"),
        ("word &= ~(3u << place)", "word &= word - 1"),
        ("(16 * at + place / 2) * params.columns", "16 * at + place / 2"),
        ("sums_of + first + column / 2", "sums_of + column / 2"),
        ("value << terms[3]", "value"),
        ("u64 value = product", "u32 value = product"),
        (
            "add_atomic(sums_of + first + column / 2, value << terms[3])",
            "sums_of[first + column / 2] += value << terms[3]",
        ),
    ];
    let expected = pairs(&cpu(), &PACKED_PAIRS).unwrap();
    let right = |device: &Device, kernel| Ok(pairs(device, kernel)? == expected);
    each_bug_shows(25, &PACKED_PAIRS, &bugs, right);
}
