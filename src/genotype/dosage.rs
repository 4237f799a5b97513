//! Calls to dosages.

use crate::{
    Error, Result, Tensor,
    kernel::{Grid, small},
    kernels::{
        WG,
        dosage::{DOSAGE, Params},
    },
};

/// Calls of one invocation: it writes one word.
const CALLS: u64 = 4;

/// The number of non-reference alleles of each call; where an allele is negative, the smallest allele instead
/// (-1 missing, -2 padding of a lower ploidy). Enqueues; does not wait.
///
/// `calls`: (variants, samples, ploidy) -> (variants, samples). As sgkit's `count_call_alternate_alleles`, a partly
/// missing call is missing.
///
/// # Errors
/// [`Error::Shape`] unless `calls` has three axes and a ploidy of 1 to 127; [`Error::Limit`] when
/// as many calls as the alignment asks for do not fit a binding; [`Error::OutOfMemory`].
pub fn dosage(calls: &Tensor<i8>) -> Result<Tensor<i8>> {
    let &[variants, samples, ploidy @ 1..=127] = calls.shape() else {
        let got = format!("{:?}", calls.shape());
        return Err(Error::shape("dosage", "(variants, samples, ploidy of 1 to 127)", got));
    };
    let device = calls.device();
    let mut out = Tensor::empty(device, &[variants, samples])?;
    let limits = device.limits();
    let items = u64::from(limits.groups_per_axis).saturating_pow(2).saturating_mul(u64::from(WG) * CALLS);
    // Windows of both start at the alignment, since bytes and calls are one to one in the result.
    let step =
        (limits.binding.min(u64::from(u32::MAX)) / ploidy).min(items) / limits.alignment * limits.alignment;
    if step == 0 {
        let (requested, max) = (limits.alignment * ploidy, limits.binding);
        return Err(Error::Limit { what: "bytes of the calls of one step", requested, max });
    }
    let len = out.len();
    for first in (0..len).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        let end = len.min(first.saturating_add(step));
        let [n, ploidy32] = [end - first, ploidy].map(small);
        let grid =
            Grid::linear((end - first).div_ceil(u64::from(WG) * CALLS), limits.groups_per_axis, end - first)?;
        let args = [calls.window(first * ploidy..end * ploidy).arg, out.window_mut(first..end).arg];
        device.launch(&DOSAGE, &[("WG", WG)], grid, &args, &Params { len: n, ploidy: ploidy32 })?;
    }
    Ok(out)
}
