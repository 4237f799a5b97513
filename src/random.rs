//! Random numbers keyed by seed and position, computed in any order: words, uniform numbers and codes, the same to the bit on every device,
//! and normal numbers, which differ by rounding.

use crate::{
    Device, Element, Error, Result, Tensor,
    kernel::{Grid, small},
    kernels::{
        WG,
        random::{Made, Params, RANDOM, spec, split},
    },
};

pub use crate::kernels::random::philox;

/// Returns `len` words of the stream of `seed`, from word `4 first_block` on, computed on the device. Enqueues; does not wait.
///
/// Word `i` of the stream is word `i % 4` of [`philox`] with the seed as key (low word first) and counter `i / 4`.
///
/// # Shapes
/// (len,).
///
/// # Cost
/// About 20 operations for each word.
///
/// # Errors
/// [`Error::Argument`] if the stream ends before that many words; [`Error::Limit`] and [`Error::OutOfMemory`] when the device has no room.
///
/// ```
/// use teatime::{Device, random::random_words};
/// let device = Device::best()?;
/// let words = random_words(&device, 7, 0, 10)?.read()?;
/// // A part of the stream is what the whole has there.
/// assert_eq!(random_words(&device, 7, 1, 6)?.read()?, words[4..]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn random_words(device: &Device, seed: u64, first_block: u64, len: u64) -> Result<Tensor<u32>> {
    made("random_words", Made::Words, device, seed, first_block, len, BLOCK)
}

/// Returns `len` f32 numbers uniform in [0, 1), computed on the device from the words that [`random_words`] gives for the same arguments.
/// Enqueues; does not wait.
///
/// A number is the upper 24 bits of its word times 2^-24. A part of the stream equals that part of the whole: each block has four numbers.
///
/// # Shapes
/// (len,).
///
/// # Accuracy
/// Results are the same to the bit on every device.
///
/// # Cost
/// About 20 operations for each number.
///
/// # Errors
/// [`Error::Argument`] if the stream ends before that many numbers; [`Error::Limit`] and [`Error::OutOfMemory`] when the device has no room.
///
/// ```
/// use teatime::{Device, random::{random_words, uniform}};
/// let device = Device::best()?;
/// let numbers = uniform(&device, 7, 0, 10)?.read()?;
/// let words = random_words(&device, 7, 0, 10)?.read()?;
/// assert_eq!(numbers[9], (words[9] >> 8) as f32 / (1 << 24) as f32);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn uniform(device: &Device, seed: u64, first_block: u64, len: u64) -> Result<Tensor<f32>> {
    made("uniform", Made::Uniform, device, seed, first_block, len, BLOCK)
}

/// Returns `len` standard normal f32 numbers, computed on the device from the words that [`random_words`] gives for the same arguments.
/// Enqueues; does not wait.
///
/// Words a and b, at 2 i and 2 i + 1, give the numbers r cos t and r sin t at the same indices. r is the square root of -2 ln((a + 1/2) / 2^32),
/// at most 6.77, and t is 2 pi b / 2^32: Box and Muller, "A note on the generation of random normal deviates" (Annals of Mathematical Statistics
/// 29, 1958). A part of the stream equals that part of the whole: each block has four numbers.
///
/// # Shapes
/// (len,).
///
/// # Accuracy
/// Each number is within 1e-6 r of that formula on every device. Devices may differ in the last digits, since some fuse multiplications with
/// additions. All numbers are finite.
///
/// # Cost
/// About 50 operations for each number.
///
/// # Errors
/// [`Error::Argument`] if the stream ends before that many numbers; [`Error::Limit`] and [`Error::OutOfMemory`] when the device has no room.
///
/// ```
/// use teatime::{Device, random::normal};
/// let device = Device::best()?;
/// let numbers = normal(&device, 7, 0, 1000)?.read()?;
/// let mean = numbers.iter().sum::<f32>() / 1000.0;
/// assert!(mean.abs() < 0.2);
/// // Numbers from block 1 on, of four each.
/// assert_eq!(normal(&device, 7, 1, 6)?.read()?, numbers[4..10]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn normal(device: &Device, seed: u64, first_block: u64, len: u64) -> Result<Tensor<f32>> {
    made("normal", Made::Normal, device, seed, first_block, len, BLOCK)
}

/// A row without codes: a block.
const BLOCK: [u64; 2] = [4, 0];

/// Launches the kernel for `len` elements of this kind; their type has four bytes. A launch takes whole rows, each of so many words, a multiple
/// of four, with so many codes.
pub(crate) fn made<T: Element>(
    operation: &'static str,
    kind: Made,
    device: &Device,
    seed: u64,
    first_block: u64,
    len: u64,
    [words, columns]: [u64; 2],
) -> Result<Tensor<T>> {
    if first_block.checked_add(len.saturating_sub(1) / 4).is_none() {
        return Err(Error::argument(operation, "first_block", "the stream ends at block 2^64"));
    }
    let mut out = Tensor::empty(device, &[len])?;
    let [seed_low, seed_high] = split(seed);
    let limits = device.limits();
    let items = u64::from(limits.groups_per_axis).saturating_pow(2).saturating_mul(u64::from(WG) * 4);
    let step = (limits.room() / 4).min(1 << 30).min(items) / words.max(1) * words;
    if step == 0 && len > 0 {
        return Err(Error::Limit { what: "bytes of a packed row", requested: 4 * words, max: limits.room() });
    }
    let mut done = 0;
    while done < len {
        let n = step.min(len - done);
        let [block_low, block_high] = split(first_block + done / 4);
        let [count, _] = split(n);
        let grid = Grid::linear(n.div_ceil(u64::from(WG) * 4), limits.groups_per_axis, n)?;
        let target = out.window_mut(done..done + n);
        let [words, columns] = [words, columns].map(small);
        let out0 = target.start;
        let params = Params { n: count, seed_low, seed_high, block_low, block_high, out0, words, columns };
        device.launch(&RANDOM, &spec(kind), grid, &[target.arg], &params)?;
        done += n;
    }
    Ok(out)
}

/// Returns the standard normal number of this index in a stream of f64: Box-Muller on words of 53 bits, two numbers for each block.
#[cfg(test)]
pub(crate) fn gaussian(seed: u64, index: u64) -> f64 {
    let [a, b, c, d] = philox(split(seed), index / 2);
    // Excludes 0, so that the logarithm is finite.
    let uniform =
        |high: u32, low: u32| ((u64::from(high) << 21 | u64::from(low) >> 11) as f64 + 0.5) / 2f64.powi(53);
    let radius = (-2.0 * uniform(a, b).ln()).sqrt();
    let (sin, cos) = (std::f64::consts::TAU * uniform(c, d)).sin_cos();
    radius * if index.is_multiple_of(2) { cos } else { sin }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // The values are in the known-answer file of the reference implementation, for philox4x32 with 10 rounds.
        assert_eq!(philox([0, 0], 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }
}
