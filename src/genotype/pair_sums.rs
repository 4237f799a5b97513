//! Sums over variants for each pair of samples: what the exact PCA and the relationship matrix are made of.

use std::ops::Range;

use super::{
    intake::Form,
    panel::{Held, Panel},
    scaler::Standard,
    standardized::Standardized,
};
use crate::{
    Device, Result,
    linalg::{LinearMap, Matrix, Pass, gram::Sum, matmul::gram_lower},
    packed::gram::Gram,
};

/// Which sums to form besides the products.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// [`PairSums::shared`].
    pub(crate) shared: bool,
    /// [`PairSums::variance`].
    pub(crate) variance: bool,
}

/// Sums over variants, each matrix symmetric of (samples, samples).
#[derive(Debug)]
pub(crate) struct PairSums {
    /// Products of the standardised dosages of both samples: the Gram matrix of the samples.
    pub(crate) products: Matrix,
    /// Variants that pass the filters and are called in both, where wanted: exact.
    pub(crate) shared: Option<Matrix>,
    /// k p (1 - p) of those, where wanted.
    pub(crate) variance: Option<Matrix>,
    /// k p (1 - p) of all variants that pass the filters.
    pub(crate) total_variance: f64,
}

impl PairSums {
    /// Forms the sums in one pass, the first over `map`. Products of packed rows are exact but for the rounding of squared
    /// scales ([`Gram`]); others are sums in f32 on the device over each block, and in f64 on the host over the blocks. samples²
    /// operations a variant for each of the wanted matrices; where no call of a block is missing, for the products alone.
    ///
    /// # Errors
    /// What reading and computing report; [`Error::Cancelled`](crate::Error::Cancelled).
    pub(crate) fn new(map: &Standardized<'_>, wanted: Wanted, pass: &Pass<'_>) -> Result<Self> {
        let ([variants, n], ploidy) = (map.shape(), map.ploidy());
        let device = map.device();
        let mut products = match map.form() {
            Form::Packed(_) => {
                map.prepare(Gram::programs(device, n, variants, map.scaler()))?;
                Products::Packed(Gram::new(device, n, variants, map.scaler())?)
            }
            _ => Products::Dense(Sum::new(n, n, true)),
        };
        let pairs = |wanted: bool| wanted.then(|| CalledPairs::new(n));
        let (mut shared, mut variance) = (pairs(wanted.shared), pairs(wanted.variance));
        let mut total_variance = 0.0;
        let variance_of = |standard: &Standard| {
            if standard.is_kept() { standard.binomial_variance(ploidy) } else { 0.0 }
        };
        let mut add = |panel: &Panel, rows: Range<u64>, products: &mut Products| {
            let standards = panel.standards_of(&rows);
            if let Products::Dense(sum) = products {
                sum.add(&gram_lower(&map.block(panel, &rows)?)?)?;
            }
            total_variance += standards.iter().map(variance_of).sum::<f64>();
            if let Some(sum) = &mut shared {
                sum.add(panel, &rows, |standard| if standard.is_kept() { 1.0 } else { 0.0 })?;
            }
            if let Some(sum) = &mut variance {
                sum.add(panel, &rows, variance_of)?;
            }
            Ok(())
        };
        map.each_panel(pass, true, &mut |panel| {
            if let (Products::Packed(sum), Held::Packed(packed)) = (&mut products, &panel.held) {
                sum.add(packed, panel.rows.start, &panel.standards)?;
            }
            map.blocks(panel, pass, &mut |rows| add(panel, rows, &mut products))
        })?;
        let products = match products {
            Products::Packed(sum) => sum.finish()?,
            Products::Dense(sum) => sum.finish(device)?,
        };
        let [shared, variance] = [shared, variance].map(|sum| sum.map(|sum| sum.finish(device)).transpose());
        Ok(Self { products, shared: shared?, variance: variance?, total_variance })
    }
}

/// How products are summed.
enum Products {
    Packed(Gram),
    Dense(Sum),
}

/// For each pair of samples, the sum of a weight over the variants that are called in both.
struct CalledPairs {
    samples: u64,
    sum: Sum,
    /// Of blocks without a missing call, which count for every pair.
    everywhere: f64,
}

impl CalledPairs {
    fn new(samples: u64) -> Self {
        Self { samples, sum: Sum::new(samples, samples, true), everywhere: 0.0 }
    }

    /// Adds a block, with the weight of each variant.
    #[allow(clippy::cast_possible_truncation, reason = "kernels compute in f32")]
    fn add(&mut self, panel: &Panel, rows: &Range<u64>, weight: impl Fn(&Standard) -> f64) -> Result<()> {
        let standards = panel.standards_of(rows);
        let weights: Vec<f64> = standards.iter().map(weight).collect();
        let variants = || standards.iter().map(|standard| standard.called).zip(&weights);
        let is_whole =
            |(called, weight): (u64, &f64)| called == self.samples || called == 0 || *weight == 0.0;
        if variants().all(is_whole) {
            let of_called = variants().filter(|(called, _)| *called > 0);
            self.everywhere += of_called.map(|(_, weight)| weight).sum::<f64>();
            return Ok(());
        }
        // Their products are the weights.
        let roots: Vec<f32> = weights.iter().map(|weight| weight.sqrt() as f32).collect();
        self.sum.add(&gram_lower(&panel.called(rows, self.samples, &roots)?)?)
    }

    fn finish(self, device: &Device) -> Result<Matrix> {
        let mut total = self.sum.finish(device)?;
        total.data_mut().iter_mut().for_each(|value| *value += self.everywhere);
        Ok(total)
    }
}
