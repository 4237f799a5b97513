//! Plants bugs in the kernel that makes distances of sums.

use super::each_bug_shows;
use crate::{
    Result, Tensor,
    device::Device,
    dtype::halves,
    kernel::{Grid, Kernel},
    kernels::finish_distance::{FINISH_DISTANCE, Formula, Missing, Params, spec},
};

/// Returns the bits of distances of some pairs of a block, in place or transposed, as f32 or as pairs, in a larger output.
fn finished(
    device: &Device,
    kernel: &'static Kernel<Params>,
    wide: bool,
    (formula, terms, missing): (Formula, u32, Missing),
    (transposed, paired): (bool, bool),
) -> Result<Vec<u32>> {
    const STEP: u32 = 23;
    let (rows, cols) = (31, 17);
    let len = 2 * (5 + 40 * STEP);
    // The sums are those of x y, x², y², x and y, some of which are the same number, and the number of features that both have.
    let made = (0..6u32).map(|term| {
        let sums = (0..len / 2).flat_map(|pair| {
            let both = f64::from(pair % 5);
            let value = match term {
                0 => f64::from(pair * 7 % 11) + 0.1,
                1 | 2 => 40.0 + f64::from(pair % 3),
                3 | 4 => f64::from(pair * (term + 1) % 7) + 1e-9,
                _ => both,
            };
            halves(if term + 1 == terms && missing != Missing::Propagate { both } else { value }, wide)
        });
        sums.collect::<Vec<_>>()
    });
    let sums: Vec<f32> = made.flatten().collect();
    let sums = Tensor::from_slice(device, &sums, &[sums.len() as u64])?;
    let flags: Vec<u32> = (0..80).map(|i| u32::from(i % 13 == 4)).collect();
    let flags = Tensor::from_slice(device, &flags, &[80])?;
    let mut out = Tensor::from_slice(device, &[7f32; 2 * (3 + 40 * 41)], &[2 * (3 + 40 * 41)])?;
    let params = Params {
        rows,
        cols,
        sums0: 5,
        sums_step: STEP,
        term_step: len / 2,
        out0: 3,
        out_row_step: if transposed { 1 } else { 40 },
        out_col_step: if transposed { 41 } else { 1 },
        row_flag0: 2,
        col_flag0: 40,
        row0: 4,
        col0: 7,
        lower: 1,
        zero_diagonal: 1,
        paired: paired.into(),
        formula: formula as u32,
        terms,
        missing: missing as u32,
        features: 5.0,
        features_rest: 0.0,
        power_high: 0x4008_0000,
        // A ratio is not scaled.
        factor_high: if matches!(formula, Formula::Root | Formula::Largest) {
            0x4000_0000
        } else {
            0x3ff0_0000
        },
        ..Params::default()
    };
    let all = out.len();
    let args = [sums.window(0..sums.len()).arg, flags.window(0..80).arg, out.window_update(0..all).arg];
    // The grid has one block more than the pairs need.
    let grid = Grid::linear(u64::from(rows * cols).div_ceil(256) + 1, 2, 0)?;
    device.launch(kernel, &spec(wide), grid, &args, &params)?;
    let bits = |x: f32| if x.is_nan() { u32::MAX } else { x.to_bits() };
    Ok(out.read()?.into_iter().map(bits).collect())
}

/// The cases in which the bugs show.
const CASES: [(Formula, u32, Missing); 6] = [
    (Formula::Root, 2, Missing::Rescale),
    (Formula::CentredAngle, 6, Missing::Ignore),
    (Formula::Angle, 3, Missing::Propagate),
    (Formula::Ratio, 2, Missing::Propagate),
    (Formula::ShareOfNone, 2, Missing::Ignore),
    (Formula::Largest, 1, Missing::Propagate),
];

#[test]
fn bugs_in_distances_of_sums_show() {
    let bugs = [
        ("if (item >= params.rows * params.cols) return;", ""),
        ("params.col0 + col > params.row0 + row", "col > row"),
        ("params.row0 + row == params.col0 + col", "row == col"),
        ("undefined[params.col_flag0 + col] == 0", "true"),
        ("row * params.sums_step", "row * params.cols"),
        ("i * params.term_step", "i"),
        ("sum * (features / both)", "sum"),
        ("case LARGEST: return sum * factor;", "case LARGEST: return sum;"),
        ("rounded_product(sums[3], sums[4])", "rounded_product(sums[3], sums[3])"),
        ("p.missing == RESCALE ? no_number() : 0", "0"),
        ("((double*)out)[at] = value;", "((double*)out)[at] = (float)value;"),
        ("if (params.paired == 1) ", "if (WIDE == 1) "),
        ("    else ((float*)out)[at] = (float)value;", "    ((float*)out)[at] = (float)value;"),
    ];
    let all = |device: &Device, kernel: &'static Kernel<Params>, wide| -> Result<Vec<Vec<u32>>> {
        let ways = [(false, false), (true, false), (false, true)];
        let of = |case| ways.map(|way| finished(device, kernel, wide, case, way));
        CASES.into_iter().flat_map(of).collect()
    };
    for wide in [false, true] {
        let expected = all(&Device::cpu(), &FINISH_DISTANCE, wide).unwrap();
        each_bug_shows(36, &FINISH_DISTANCE, &bugs, |device, kernel| {
            Ok(all(device, kernel, wide)? == expected)
        });
    }
}
