//! Plants bugs in the kernel that makes lists of the nearest items.

use super::each_bug_shows;
use crate::{
    Result, Tensor,
    device::Device,
    kernel::{Grid, Kernel},
    kernels::nearest::{NEAREST, Offered, Params, spec},
};

const LINES: u32 = 5;
const ITEMS: u32 = 700;
const K: u32 = 70;

/// Returns the bits of the lists after two launches: the first offers items above the lines' own indices, the second some items below.
fn lists(device: &Device, kernel: &'static Kernel<Params>) -> Result<Vec<u32>> {
    let number = |i: u32| match i % 11 {
        0 => f32::NAN,
        _ => (i.wrapping_mul(2_654_435_761) >> 25) as f32,
    };
    let sums: Vec<f32> = (0..LINES * ITEMS).flat_map(|i| [number(i), 0.0]).collect();
    let sums = Tensor::from_slice(device, &sums, &[sums.len() as u64])?;
    let flags: Vec<u32> = (0..ITEMS + LINES).map(|i| u32::from(i % 9 == 3)).collect();
    let flags = Tensor::from_slice(device, &flags, &[flags.len() as u64])?;
    // There is one list more than lines, which stays unchanged.
    const PLACES: usize = ((LINES + 1) * K) as usize;
    let places = PLACES as u64;
    let mut kept = Tensor::from_slice(device, &[7f32; 2 * PLACES], &[2 * places])?;
    let mut numbers = Tensor::from_slice(device, &[7u32; PLACES], &[places])?;
    // The lines' own indices are among those of the items.
    let all = Params {
        lines: LINES,
        items: ITEMS,
        k: K,
        line_step: ITEMS,
        item_step: 1,
        line0: 20,
        falling: 1,
        low: f32::NEG_INFINITY.to_bits(),
        high: 100f32.to_bits(),
        ..Params::default()
    };
    let above = Params { offered: Offered::Above as u32, fresh: 1, ..all };
    // The items are rows of the block, which starts behind some pairs.
    let below = Params {
        offered: Offered::Below as u32,
        items: ITEMS - 1,
        line_step: 1,
        item_step: LINES,
        sums0: 2,
        ..all
    };
    for params in [above, below] {
        let args = [
            sums.window(0..sums.len()).arg,
            flags.window(0..flags.len()).arg,
            flags.window(0..flags.len()).arg,
            kept.window_update(0..2 * places).arg,
            numbers.window_update(0..places).arg,
        ];
        // The grid has one workgroup more than the lines need.
        device.launch(kernel, &spec(K.into(), false), Grid::linear(LINES.into(), 3, 0)?, &args, &params)?;
    }
    Ok(kept.read()?.into_iter().map(f32::to_bits).chain(numbers.read()?).collect())
}

#[test]
fn bugs_in_lists_of_the_nearest_show() {
    let bugs = [
        ("if (number >= params.lines) return;", ""),
        ("if (a_is_nan != b_is_nan) return b_is_nan;", ""),
        ("if (value > high) value = high;", ""),
        ("&& number != line.skipped", ""),
        ("undefined[params.item_flags0 + item] == 0 && ", ""),
        ("i + candidates_before(found, list.keys[i], list.numbers[i])", "i"),
        (" + kept_before(list, k, key, number)", ""),
        ("    __syncthreads();\n}\n\n// Leaves", "}\n\n// Leaves"),
        ("if (params.offered == ABOVE) all.first = below;", ""),
        ("params.falling == 1 ? -value : value", "value"),
        ("(!block_any(is_near, flags, turn))", "(!is_near)"),
        ("sums + params.sums0 + line", "sums + line"),
        ("line * params.line_step", "line * params.items"),
        ("if (params.offered == BELOW) all.end = below;", ""),
    ];
    let expected = lists(&Device::cpu(), &NEAREST).unwrap();
    each_bug_shows(35, &NEAREST, &bugs, |device, kernel| Ok(lists(device, kernel)? == expected));
}
