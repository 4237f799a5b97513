//! Plants bugs in copies of rows, random numbers and elementwise functions.

use super::each_bug_shows;
use crate::{
    DType, Result, Tensor,
    device::Device,
    kernel::{Grid, Kernel, small},
    kernels::{
        copy_rows::{self, COPY_ROWS},
        elementwise::{self, ELEMENTWISE, Function},
        random::{self as random_numbers, Made, RANDOM},
    },
    tensor::Window,
};

/// Copies rows by index, some of which the launch lacks, and rows with gaps. Returns the output and the count as the kernel leaves them.
fn copied(device: &Device, kernel: &'static Kernel<copy_rows::Params>) -> Result<Vec<u32>> {
    const ROWS: u32 = 40;
    const COLS: u32 = 37;
    let numbers = |len: u16| (10..10 + len).collect::<Vec<_>>();
    let mut count = Tensor::<u32>::zeros(device, &[1])?;
    let x: Vec<u8> = numbers(3 + 20 * 37).into_iter().map(|i| (i % 251).to_le_bytes()[0]).collect();
    let x = Tensor::from_slice(device, &x, &[x.len() as u64])?;
    // More indices follow the last one, so that a launch that goes too far writes more rows.
    let indices: Vec<u32> = (0..2 + ROWS).map(|i| i * 7 % 30).chain([5; 30]).collect();
    let indices = Tensor::from_slice(device, &indices, &[indices.len() as u64])?;
    let mut out = Tensor::from_slice(device, &[1u8; 5 + 40 * 37 + 100], &[5 + 40 * 37 + 100])?;
    let params = copy_rows::Params {
        segments: 1,
        span: ROWS * COLS,
        pitch: ROWS * COLS,
        units: small(copy_rows::units((ROWS * COLS).into(), 1)),
        cols: COLS,
        x0: 3,
        out0: 5,
        index0: 2,
        first_row: 3,
        x_rows: 20,
        last_row: 25,
    };
    let (len, last) = (out.len(), indices.len());
    let args = [
        x.window(0..x.len()).arg,
        indices.window(0..last).arg,
        out.window_update(0..len).arg,
        count.window_update(0..1).arg,
    ];
    device.launch(kernel, &copy_rows::spec(1, true), Grid::linear(1, 1, 0)?, &args, &params)?;
    let x = numbers(1 + 5 * 11);
    let x = Tensor::from_slice(device, &x, &[x.len() as u64])?;
    let mut between = Tensor::from_slice(device, &[1u16; 3 + 5 * 17 + 20], &[3 + 5 * 17 + 20])?;
    let params = copy_rows::Params {
        segments: 5,
        span: 11,
        pitch: 17,
        units: small(copy_rows::units(11, 2)),
        cols: 11,
        x0: 1,
        out0: 3,
        index0: 0,
        first_row: 0,
        x_rows: 5,
        last_row: u32::MAX,
    };
    let len = between.len();
    let args = [
        x.window(0..x.len()).arg,
        x.window(0..x.len()).arg,
        between.window_update(0..len).arg,
        count.window_update(0..1).arg,
    ];
    device.launch(kernel, &copy_rows::spec(2, false), Grid::linear(1, 1, 0)?, &args, &params)?;
    let mut all: Vec<u32> = out.read()?.into_iter().map(u32::from).collect();
    all.extend(between.read()?.into_iter().map(u32::from));
    all.extend(count.read()?);
    Ok(all)
}

#[test]
fn bugs_in_copies_of_rows_show() {
    let bugs = [
        ("if (segment >= params.segments) return;", ""),
        ("if (first >= end) return;", ""),
        ("segment * params.pitch", "segment * params.span"),
        ("u32 row = segment + (from - start)", "u32 row = (from - start)"),
        ("indices[params.index0 + row]", "indices[row]"),
        ("row] - params.first_row", "row]"),
        ("params.cols - column >= VALUES", "true"),
        ("if (source < params.x_rows) {\n            load_bytes", "{\n            load_bytes"),
        ("first + i < from || ", ""),
        ("column == 0 && source", "source"),
        ("refused += source + params.first_row > params.last_row;", ""),
        ("written == (1u << VALUES) - 1", "true"),
    ];
    let expected = copied(&Device::cpu(), &COPY_ROWS).unwrap();
    each_bug_shows(31, &COPY_ROWS, &bugs, |device, kernel| Ok(copied(device, kernel)? == expected));
}

/// Makes random numbers of a kind. The last block is incomplete, and the counters carry.
fn random(
    device: &Device,
    kernel: &'static Kernel<random_numbers::Params>,
    kind: Made,
    n: u32,
) -> Result<Vec<f32>> {
    let mut out = Tensor::<f32>::zeros(device, &[n.into()])?;
    let params =
        random_numbers::Params { n, seed_low: 7, seed_high: 1, block_low: u32::MAX - 300, block_high: 2 };
    // The grid has one workgroup more than the blocks need.
    let grid = Grid::linear(u64::from(n).div_ceil(4 * 256) + 1, 2, 0)?;
    let len = out.len();
    device.launch(kernel, &random_numbers::spec(kind), grid, &[out.window_mut(0..len).arg], &params)?;
    out.read()
}

#[test]
fn bugs_in_random_numbers_show() {
    const N: u32 = 2051;
    let cpu = |kind| random(&Device::cpu(), &RANDOM, kind, N + 1).unwrap();
    let both = [
        ("if (first >= params.n) return;", ""),
        ("low < block", "block < low"),
        ("if (params.n - first > 2) out[first + 2] = words.z;", ""),
    ];
    let uniform = [("word >> 8", "word >> 7"), ("uniform_bits(words.w)}", "uniform_bits(words.z)}")];
    let expected = cpu(Made::Uniform);
    each_bug_shows(33, &RANDOM, &[&both[..], &uniform].concat(), |device, kernel| {
        Ok(random(device, kernel, Made::Uniform, N)? == expected[..N as usize])
    });
    let normal = [
        ("mirrored ? 1 - part : part", "part"),
        ("if (mirrored && exponent == 0) rest = -part;", ""),
        ("(i32)bits >> 23", "(i32)(bits >> 23)"),
        ("log_rest * rest + 0.99999964f", "log_rest * rest + 0.9999f"),
        ("0.015854329f", "0.01585f"),
        ("odd ? sine : cosine", "odd ? cosine : sine"),
        ("(quarter + 1) & 2", "quarter & 2"),
        ("normal_bits(words.z, words.w)", "normal_bits(words.w, words.z)"),
    ];
    let expected = cpu(Made::Normal);
    each_bug_shows(33, &RANDOM, &[&both[..], &normal].concat(), |device, kernel| {
        let numbers = random(device, kernel, Made::Normal, N)?;
        // A difference of NaN is not within the tolerance.
        let near = |(i, number): (usize, &f32)| {
            let [a, b] = [expected[i & !1], expected[i | 1]];
            (number - expected[i]).abs() <= 1e-6 * a.hypot(b)
        };
        Ok(numbers.iter().enumerate().all(near))
    });
}

/// Computes differences of bytes and columns of f32, or comparisons (less than), for a number of elements that is not a multiple of a word.
fn differences(
    device: &Device,
    kernel: &'static Kernel<elementwise::Params>,
    compares: bool,
) -> Result<bool> {
    const ROWS: u32 = 57;
    const COLS: u32 = 37;
    let a: Vec<u8> = (0..3 + ROWS * COLS).map(|i| (i * 7 % 251) as u8).collect();
    let b: Vec<f32> = (0..5 + ROWS).map(|i| (i * 11 % 64) as f32).collect();
    let ta = Tensor::from_slice(device, &a, &[a.len() as u64])?;
    let tb = Tensor::from_slice(device, &b, &[b.len() as u64])?;
    // The launch starts in the middle of the first row.
    let (first, n) = (2, ROWS * COLS - 2);
    let of = |i: u32| (f32::from(a[(3 + i) as usize]), b[(5 + i / COLS) as usize]);
    let mut params = elementwise::Params {
        function: if compares { Function::Less } else { Function::Subtract } as u32,
        operands: 2,
        n,
        first,
        extent1: 1,
        extent2: COLS,
        a_type: DType::U8.code(),
        a0: 3,
        a_step0: COLS,
        a_step2: 1,
        b_type: DType::F32.code(),
        b0: 5,
        b_step0: 1,
        ..Default::default()
    };
    let args = [ta.window(0..ta.len()).arg, tb.window(0..tb.len()).arg, tb.window(0..tb.len()).arg];
    // The grid has one block more than the words need.
    let mut launch = |dtype: DType, out: Window<'_>| {
        params.out_type = dtype.code();
        let [a, b, c] = args;
        let words = u64::from(n).div_ceil(if compares { 4 } else { 1 });
        let grid = Grid::linear(words.div_ceil(256) + 1, 5, 0)?;
        device.launch(kernel, &elementwise::spec(true, false), grid, &[a, b, c, out.arg], &params)
    };
    if compares {
        let mut out = Tensor::from_slice(device, &vec![7u8; n as usize + 9], &[u64::from(n) + 9])?;
        launch(DType::U8, out.window_mut(0..u64::from(n) + 9))?;
        let expected = (first..first + n).map(|i| u8::from(of(i).0 < of(i).1)).chain([7; 9]);
        return Ok(expected.eq(out.read()?));
    }
    let mut out = Tensor::from_slice(device, &vec![7f32; n as usize + 9], &[u64::from(n) + 9])?;
    launch(DType::F32, out.window_mut(0..u64::from(n) + 9))?;
    let expected = (first..first + n).map(|i| of(i).0 - of(i).1).chain([7.0; 9]);
    Ok(expected.eq(out.read()?))
}

#[test]
fn bugs_in_functions_of_elements_show() {
    let bugs = [
        ("&& item < params.n", ""),
        ("params.first + item", "item"),
        ("column = place - row * params.extent2", "column = place"),
        ("params.a0 + outer", "outer"),
        ("params.b0 + outer", "outer"),
        ("column * params.b_step2", "column"),
        ("outer * params.b_step0", "outer * params.a_step0"),
        ("params.operands > 1 ?", "params.operands > 2 ?"),
        ("params.b_type, b_place", "params.a_type, b_place"),
    ];
    each_bug_shows(34, &ELEMENTWISE, &bugs, |device, kernel| differences(device, kernel, false));
    let bugs = [
        ("case LESS: return x < y", "case LESS: return x <= y"),
        ("4 / size_of(type) : 1", "1 : 1"),
        ("store_real<T>(out, item, value)", "store_real<F32>(out, item, value)"),
    ];
    each_bug_shows(34, &ELEMENTWISE, &bugs, |device, kernel| differences(device, kernel, true));
}
