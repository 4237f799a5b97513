//! The nearest neighbors of each observation, kept on the device while sums or distances of pairs arrive block by block.

use std::ops::Range;

use super::{Metric, Missing};
use crate::{
    Device, Limits, Needs, Result, Tensor,
    extent::{blocks, pieces},
    kernel::{Grid, small},
    kernels::{
        finish_distance::Formula,
        nearest::{MOST_KEPT, NEAREST, Offered, Params, SumForm, WG, iterations, spec},
    },
    tensor::Window,
};

/// The order of distances, expressed by the values they are computed from: sums of a term, or rescaled sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Order {
    /// True if larger sums are nearer.
    pub(crate) falling: bool,
    /// Values outside these bounds count as equal to the bound.
    pub(crate) low: f32,
    pub(crate) high: f32,
}

impl Order {
    const RISING: Self = Self { falling: false, low: f32::NEG_INFINITY, high: f32::INFINITY };
    pub(super) const FALLING: Self = Self { falling: true, ..Self::RISING };

    /// Returns the order by the sums of the first term, or `None` if the distance is not a monotone function of these sums alone.
    pub(crate) fn of_sums(metric: Metric, missing: Missing) -> Option<Self> {
        let is_of_first = match missing {
            Missing::Propagate => true,
            Missing::Ignore => metric.is_of_sum(),
            Missing::Rescale | Missing::RescaleOrZero => false,
        };
        match metric.formula(true) {
            _ if !is_of_first => None,
            Formula::Ratio | Formula::ShareOfAny | Formula::RatioOfBoth => None,
            Formula::Plain if metric == Metric::InnerProduct => Some(Self::FALLING),
            Formula::ShareOfNone => Some(Self::FALLING),
            // The distance is half the sum, clamped to at most 2.
            Formula::HalfSquare => Some(Self { high: 4.0, ..Self::RISING }),
            // The distance is a square root, and sums below 0 count as 0.
            Formula::RootOfHalf => Some(Self { low: 0.0, ..Self::RISING }),
            // The distance is the root of 1 minus the sum, or 0 if that is negative.
            Formula::RootOfRest => Some(Self { high: 1.0, ..Self::FALLING }),
            Formula::Plain
            | Formula::Root
            | Formula::Largest
            | Formula::Power
            | Formula::Angle
            | Formula::CentredAngle
            | Formula::Share
            | Formula::Half => Some(Self::RISING),
        }
    }

    /// Returns a value that is lower for a nearer neighbor; NaN for NaN.
    pub(super) fn key(&self, value: f64) -> f64 {
        let value = value.clamp(self.low.into(), self.high.into());
        if self.falling { -value } else { value }
    }

    /// Returns the order by distances, or by the rescaled sums from which they are computed.
    pub(super) fn of_distances(metric: Metric) -> Self {
        if metric == Metric::InnerProduct { Self::FALLING } else { Self::RISING }
    }
}

/// The nearest of each observation so far, on the device.
#[derive(Debug)]
pub(crate) struct Selection {
    /// (m, 2 k): sums, each a pair as [`joined`](crate::dtype::joined) takes it.
    sums: Tensor<f32>,
    /// (m, k): the indices of the nearest neighbors.
    numbers: Tensor<u32>,
    /// A flag for each observation, set if all its distances are NaN.
    undefined: Tensor<u32>,
    /// The flags of the offered observations, if these come from another matrix.
    undefined_others: Option<Tensor<u32>>,
    order: Order,
    form: SumForm,
}

/// Candidates (items) that a launch offers to observations (lines), from one window of sums.
#[derive(Clone, Debug)]
struct Items<'a> {
    sums: Window<'a>,
    /// The indices of the first line and the first item in the window.
    first: [u64; 2],
    /// The stride in sums from one line to the next, and from one item to the next.
    steps: [u64; 2],
    numbers: Range<u64>,
    offered: Offered,
}

impl Selection {
    /// The maximum k.
    pub(crate) const MOST: usize = MOST_KEPT as usize;

    /// Creates empty lists of k for each of m observations, with flags for observations whose distances are all NaN. Unless observations are
    /// paired with themselves, `undefined` has the flags of the other observations too. Enqueues.
    pub(crate) fn new(
        device: &Device,
        [m, k]: [u64; 2],
        order: Order,
        form: SumForm,
        undefined: [&[bool]; 2],
        is_self: bool,
    ) -> Result<Self> {
        let flags = |undefined: &[bool]| {
            // One extra flag, because a binding of a single observation's flag must have two words.
            let flags: Vec<u32> = undefined.iter().map(|&undefined| undefined.into()).chain([0]).collect();
            Tensor::from_slice(device, &flags, &[flags.len() as u64])
        };
        let mut selection = Self {
            sums: Tensor::empty(device, &[m, 2 * k])?,
            numbers: Tensor::empty(device, &[m, k])?,
            undefined: flags(undefined[0])?,
            undefined_others: if is_self { None } else { Some(flags(undefined[1])?) },
            order,
            form,
        };
        for lines in blocks(m, selection.most_lines(1)) {
            selection.launch(lines, None)?;
        }
        Ok(selection)
    }

    /// Returns the memory of m lists of k, and of n flags.
    pub(crate) fn needs(m: u64, n: u64, k: u64) -> Needs {
        Needs::device(12) * k * m + Needs::device(4) * n + Needs::device(8)
    }

    /// Offers the columns of a block of sums, (rows, 2 columns), or (rows, columns) if they are plain, to its rows. If `lower`, the block has only
    /// the pairs below the diagonal, and the rows are offered to the columns too. Each pair must be offered exactly once. Enqueues.
    pub(crate) fn offer(
        &mut self,
        sums: &Tensor<f32>,
        rows: Range<u64>,
        columns: Range<u64>,
        lower: bool,
    ) -> Result<()> {
        let width = columns.end.saturating_sub(columns.start);
        if width == 0 {
            return Ok(());
        }
        let offered = match (lower, &self.undefined_others) {
            (true, _) => Offered::Below,
            (false, None) => Offered::Others,
            (false, Some(_)) => Offered::All,
        };
        // A binding limits the number of rows of sums.
        let words = self.form.words();
        let height = (sums.device().limits().room() / (4 * words * width)).max(1);
        for part in pieces(rows.clone(), height) {
            let [first, end] = [part.start, part.end].map(|row| words * width * (row - rows.start));
            let window = sums.window(first..end);
            let (of_rows, of_columns) = ([part.start, columns.start], [columns.start, part.start]);
            let numbers = columns.clone();
            let items = Items { sums: window, first: of_rows, steps: [width, 1], numbers, offered };
            self.take(&part, &items)?;
            if lower {
                let (numbers, offered) = (part, Offered::Above);
                let items = Items { first: of_columns, steps: [1, width], numbers, offered, ..items };
                self.take(&columns, &items)?;
            }
        }
        Ok(())
    }

    /// Returns the kept sums, nearest first, as (m, 2 k) f32, and their indices, (m, k). A line that was offered fewer than k is filled with NaN
    /// and the largest index.
    pub(crate) fn into_tensors(self) -> (Tensor<f32>, Tensor<u32>) {
        (self.sums, self.numbers)
    }

    fn limits(&self) -> &Limits {
        self.sums.device().limits()
    }

    fn k(&self) -> u64 {
        self.numbers.shape()[1]
    }

    /// Returns the maximum number of lines of a launch that offers `items` items to each.
    fn most_lines(&self, items: u64) -> u64 {
        let limits = self.limits();
        let groups = u64::from(limits.groups_per_axis).saturating_pow(2);
        (limits.room() / (8 * self.k()).max(1)).min(groups).min(limits.work / items.max(1)).max(1)
    }

    /// Offers items to lines, in as many launches as the device's limits require.
    fn take(&mut self, lines: &Range<u64>, items: &Items<'_>) -> Result<()> {
        let rounds = u64::from(self.limits().iterations) / iterations(self.k());
        let most = rounds.max(1).saturating_mul(WG.into()).min(items.numbers.end - items.numbers.start);
        let most_lines = self.most_lines(most);
        for numbers in pieces(items.numbers.clone(), most) {
            let items = Items { numbers, ..items.clone() };
            for lines in pieces(lines.clone(), most_lines) {
                let is_nothing = match items.offered {
                    Offered::Below => items.numbers.start >= lines.end,
                    Offered::Above => items.numbers.end <= lines.start,
                    Offered::All | Offered::Others => false,
                };
                if !is_nothing {
                    self.launch(lines, Some(&items))?;
                }
            }
        }
        Ok(())
    }

    /// Offers items to lines, or empties these lines' lists if there are no items.
    fn launch(&mut self, lines: Range<u64>, items: Option<&Items<'_>>) -> Result<()> {
        let (device, k) = (self.sums.device().clone(), self.k());
        let Self { sums, numbers, undefined, undefined_others, order, form } = self;
        let count = lines.end - lines.start;
        let undefined = &*undefined;
        let flags = undefined.window(lines.start..lines.end + 1);
        let kept = sums.window_update(2 * k * lines.start..2 * k * lines.end);
        let kept_numbers = numbers.window_update(k * lines.start..k * lines.end);
        let mut params = Params {
            lines: small(count),
            k: small(k),
            line0: small(lines.start),
            line_flags0: flags.start,
            kept0: kept.start / 2,
            numbers0: kept_numbers.start,
            falling: order.falling.into(),
            low: order.low.to_bits(),
            high: order.high.to_bits(),
            fresh: items.is_none().into(),
            ..Params::default()
        };
        // Emptying a list reads no items, but each binding needs a buffer.
        let (mut offered, mut item_flags, mut pairs) = (flags.arg, flags.arg, k);
        if let Some(items) = items {
            let [line_step, item_step] = items.steps;
            let [line, item] = items.first;
            let others = undefined_others.as_ref().unwrap_or(undefined).window(items.numbers.clone());
            let first = (lines.start - line) * line_step + (items.numbers.start - item) * item_step;
            pairs = items.numbers.end - items.numbers.start;
            params = Params {
                items: small(pairs),
                line_step: small(line_step),
                item_step: small(item_step),
                sums0: items.sums.start / small(form.words()) + small(first),
                item0: small(items.numbers.start),
                item_flags0: others.start,
                offered: items.offered as u32,
                ..params
            };
            (offered, item_flags) = (items.sums.arg, others.arg);
        }
        let grid = Grid::linear(count, device.limits().groups_per_axis, count * pairs)?;
        let args = [offered, flags.arg, item_flags, kept.arg, kept_numbers.arg];
        device.launch(&NEAREST, &spec(k, *form), grid, &args, &params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_one_sum_have_an_order() {
        for &metric in Metric::ALL {
            let (terms, _) = metric.recipe(false);
            assert_eq!(Order::of_sums(metric, Missing::Propagate).is_some(), terms.len() == 1, "{metric}");
            assert_eq!(Order::of_sums(metric, Missing::Ignore).is_some(), metric.is_of_sum(), "{metric}");
            assert_eq!(Order::of_sums(metric, Missing::Rescale), None, "{metric}");
        }
    }

    /// Distances must increase in the order of sums, and must be equal for sums that a bound makes equal.
    #[test]
    fn orders_are_those_of_distances() {
        let sums = [-0.5, 0.0, 0.25, 0.5, 1.0, 1.5, 3.0, 4.0, 4.5];
        let rules = [Missing::Propagate, Missing::Ignore];
        let with_rules = |metric: &Metric| rules.map(|missing| (*metric, missing));
        for (metric, missing) in Metric::ALL.iter().flat_map(with_rules) {
            let Some(order) = Order::of_sums(metric, missing) else { continue };
            // Near observations have a large product.
            let sign = if metric == Metric::InnerProduct { -1.0 } else { 1.0 };
            let terms = if missing == Missing::Propagate { 1 } else { 2 };
            let far = |sum: f64| sign * metric.distance(&[sum, 3.0][..terms], 4.0, missing, 0.0);
            for (a, b) in sums.iter().flat_map(|a| sums.iter().map(move |b| (*a, *b))) {
                if !far(a).is_nan() && !far(b).is_nan() {
                    let by_key = order.key(a).partial_cmp(&order.key(b));
                    assert_eq!(by_key, far(a).partial_cmp(&far(b)), "{metric} {a} {b}");
                }
            }
        }
    }
}
