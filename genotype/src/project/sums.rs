//! The sums of a projection for each sample.

use std::ops::Range;

use rayon::prelude::*;
use teatime::{
    Device, Error, Needs, Result, Tensor,
    linalg::{BlockSum, Matrix, matmul_tn},
    packed::{Panel, Weight, WeightedSums, weight_unit},
};

use super::{
    ProjectMethod,
    reference::{Match, Matched},
};
use crate::{
    memory::f32_blocks,
    panel_sum::PanelSum,
    part::{CohortPart, PartSums},
    reader::Reader,
    to_usize,
};

/// The number of variants whose terms, each less than 2^34, have an exact sum in f64.
const PART: usize = 4096;

/// The words with which the names of sums in a part begin.
const SCORES: &str = "scores";
const MISSING: &str = "missing calls";
const NORMAL: &str = "pairs of loadings";

fn name(what: &str, words: &str) -> String {
    format!("{what} of a projection {words}")
}

/// Sums over the variants that the reference has.
#[derive(Debug)]
pub(crate) struct Totals {
    /// The scores, (samples, components).
    pub(super) scores: Matrix,
    /// The number of variants called in each sample.
    pub(crate) called: Vec<u64>,
    /// The products of loadings for each sample, over the variants called in it, with
    /// [`ProjectMethod::LeastSquares`]: the lower triangle of a matrix of the components, row by row.
    pub(super) normal: Option<Matrix>,
    /// The largest rounding error that one call adds to each of these products.
    pub(super) rounding: Vec<f64>,
}

/// The sums of a projection, to which panels are added. Over rows that are not packed they are transposed, as `PanelMap`'s products are.
pub(crate) struct ProjectionSums<'a> {
    pub(crate) matched: Matched<'a>,
    units: Units,
    /// The sums for each component; over packed rows, in the last column, the number of missing calls.
    scores: PanelSum<WeightedSums>,
    /// The number of missing calls, unless the scores have it.
    missing: Option<PanelSum<WeightedSums>>,
    /// The products of loadings: over the missing calls of packed rows, or over the calls of other rows.
    normal: Option<PanelSum<WeightedSums>>,
}

impl<'a> ProjectionSums<'a> {
    pub(crate) fn new(reader: &Reader, matched: Matched<'a>) -> Result<Self> {
        let (variants, n) = (reader.variants(), reader.samples());
        let (device, k) = (&reader.device, matched.reference.components());
        let least_squares = matched.method == ProjectMethod::LeastSquares;
        let products = least_squares.then(|| triangle(k));
        let is_packed = reader.form.is_packed();
        if is_packed {
            let columns = [Some(k + 1), products].into_iter().flatten();
            let programs = columns.flat_map(|columns| WeightedSums::programs(device, n, columns, variants));
            device.prepare(programs.collect())?;
        }
        let sum = |columns: usize| {
            Ok::<_, Error>(match is_packed {
                true => PanelSum::Packed(WeightedSums::new(device, n, columns)?),
                false => PanelSum::Dense(Box::new(BlockSum::new(device, columns as u64, n)?)),
            })
        };
        Ok(Self {
            matched,
            units: Units::new(matched),
            scores: sum(k + usize::from(is_packed))?,
            missing: (!is_packed).then(|| sum(1)).transpose()?,
            normal: products.map(sum).transpose()?,
        })
    }

    pub(crate) fn needs(reader: &Reader, matched: Matched<'_>) -> Needs {
        let (variants, n) = (reader.variants(), reader.samples());
        let k = matched.reference.components();
        let least_squares = matched.method == ProjectMethod::LeastSquares;
        let products = if least_squares { triangle(k) } else { 0 };
        if reader.form.is_packed() {
            let rows = reader.panel_rows(reader.step_bytes).min(variants);
            let columns = [k + 1, products].into_iter().filter(|&columns| columns > 0);
            let sums = columns.map(|columns| WeightedSums::needs(&reader.device, n, columns, rows));
            // The scores are held a second time, without the other sums.
            return sums.sum::<Needs>() + Needs::host(8 * (k as u64 + 1)) * n;
        }
        let rows = reader.plan.block_rows().min(variants);
        let columns = (k + 1 + products) as u64;
        // The host makes a block's loadings, their products and its scaling tables, in addition to the sums.
        let bytes = 4 * columns + 12;
        let operands = Needs { host: bytes, device: bytes } * rows;
        // The host holds the sums as they are downloaded, in f64, and their transposes. The device holds a standardised
        // block, and for least squares a mask of the missing calls, from which the mask of the called ones is made.
        let blocks = f32_blocks(reader, 1 + u64::from(least_squares));
        operands + BlockSum::needs(columns, n) + Needs::host(24 * columns) * n + blocks
    }

    pub(crate) fn add(&mut self, reader: &Reader, panel: &Panel) -> Result<()> {
        let matched = self.matched;
        match self.scores {
            PanelSum::Packed(_) if matched.any(&panel.rows) => self.add_packed(panel),
            PanelSum::Packed(_) => Ok(()),
            PanelSum::Dense(_) => reader.blocks(&panel.rows).try_for_each(|rows| {
                if matched.any(&rows) { self.add_block(reader, panel, rows) } else { Ok(()) }
            }),
        }
    }

    fn add_packed(&mut self, panel: &Panel) -> Result<()> {
        let Self { matched, units, scores: PanelSum::Packed(scores), normal, .. } = self else {
            return Ok(());
        };
        let rows = panel.packed()?;
        let match_of = |row: u64| matched.matches[to_usize(panel.rows.start + row)];
        let k = units.scores.len();
        scores.add(rows, |row, first, weights| {
            let Some(row_match) = match_of(row) else { return };
            if let Some(last) = weights.get_mut(k - first) {
                *last = Weight { one: 0, missing: 1 };
            }
            for (terms, weight) in units.terms(*matched, row_match, first).zip(weights) {
                *weight = Weight { one: narrow(terms.allele), missing: narrow(terms.missing) };
            }
        })?;
        let Some(PanelSum::Packed(normal)) = normal.as_mut().filter(|_| rows.missing) else { return Ok(()) };
        normal.add(rows, |row, first, weights| {
            let Some(row_match) = match_of(row) else { return };
            let columns = units.products(*matched, row_match, first).zip(weights);
            columns.for_each(|(product, weight)| weight.missing = narrow(product));
        })
    }

    fn add_block(&mut self, reader: &Reader, panel: &Panel, rows: Range<u64>) -> Result<()> {
        let Self { matched, scores: PanelSum::Dense(scores), missing, normal, .. } = self else {
            return Ok(());
        };
        let (device, k) = (&reader.device, matched.reference.components());
        let (loadings, count) = (matched.loadings(&rows), rows.end - rows.start);
        let on_device = Tensor::from_slice(device, &loadings, &[count, k as u64])?;
        let x = panel.standardized(&matched.scales(&rows))?;
        scores.add(&matmul_tn(&on_device, &x)?)?;
        let used = matched.used(&rows);
        if let Some(PanelSum::Dense(missing)) = missing.as_mut().filter(|_| panel.missing) {
            let used = Tensor::from_slice(device, &used, &[count, 1])?;
            missing.add(&matmul_tn(&used, &panel.absent()?)?)?;
        }
        let Some(PanelSum::Dense(normal)) = normal else { return Ok(()) };
        let products = loadings.chunks_exact(k).flat_map(|row| pairs(k).map(|[a, b]| row[a] * row[b]));
        let products = products.collect::<Vec<_>>();
        let products = Tensor::from_slice(device, &products, &[count, triangle(k) as u64])?;
        normal.add(&matmul_tn(&products, &panel.known(&used)?)?)
    }

    /// Waits for the sums, and returns them for [`set_part`](Self::set_part) of other sums. `words` describes the matches of all variants.
    pub(crate) fn into_part(self, words: &str) -> Result<Vec<PartSums>> {
        let sums = [(SCORES, Some(self.scores)), (NORMAL, self.normal), (MISSING, self.missing)];
        let named = |(what, sum): (&str, PanelSum<_>)| {
            Ok(PartSums { name: name(what, words), values: sum.into_values()? })
        };
        sums.into_iter().filter_map(|(what, sum)| Some((what, sum?))).map(named).collect()
    }

    /// Replaces the sums with the sums of `part`.
    pub(crate) fn set_part(&mut self, part: &CohortPart) -> Result<()> {
        let words = self.matched.words();
        let more = [(NORMAL, &mut self.normal), (MISSING, &mut self.missing)];
        let more = more.into_iter().filter_map(|(what, sum)| Some((what, sum.as_mut()?)));
        let mut sums = [(SCORES, &mut self.scores)].into_iter().chain(more);
        sums.try_for_each(|(what, sum)| sum.set_values(part.find(&name(what, &words))?))
    }

    pub(crate) fn finish(self, device: &Device) -> Result<Totals> {
        let Self { matched, units, scores, missing, normal } = self;
        let (pool, k, used) = (device.pool()?, units.scores.len(), matched.count());
        let products = &units.products;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number")]
        let whole = |called: f64| called as u64;
        let constants = |hit| units.terms(matched, hit, 0).map(|terms| terms.constant);
        let product = |hit| units.products(matched, hit, 0);
        let (scores, called, rounding) = match (scores, missing) {
            (PanelSum::Packed(sums), _) => {
                let constants = pool.install(|| total(matched.matches, matched.absent, k, constants));
                let both = sums.finish(|column, sum| match units.scores.get(column) {
                    Some(unit) => (sum - constants[column]) as f64 * unit,
                    None => (used as i128 - sum) as f64,
                })?;
                let mut scores = Matrix::zeros(both.rows(), k);
                let rows = scores.data_mut().chunks_exact_mut(k).zip(both.data().chunks_exact(k + 1));
                rows.for_each(|(row, both)| row.copy_from_slice(&both[..k]));
                let rounding = products.iter().map(|product| product.unit / 2.0).collect();
                (scores, both.column(k).map(whole).collect(), rounding)
            }
            (PanelSum::Dense(sums), Some(PanelSum::Dense(missing))) => {
                let called =
                    missing.finish()?.data().iter().map(|missing| whole(used as f64 - missing)).collect();
                let constants = pool.install(|| total(&[], matched.absent, k, constants));
                let absent = |column: usize| -(constants[column] as f64) * units.scores[column];
                let scores = with_absent(sums.finish()?.transposed(), matched, absent);
                (scores, called, vec![0.0; products.len()])
            }
            (PanelSum::Dense(_), _) => unreachable!("missing calls of other rows should have a sum"),
        };
        let normal = normal.map(|normal| match normal {
            PanelSum::Packed(missing) => {
                let totals = pool.install(|| total(matched.matches, matched.absent, products.len(), product));
                missing.finish(|column, sum| (totals[column] - sum) as f64 * products[column].unit)
            }
            PanelSum::Dense(sums) => {
                let totals = pool.install(|| total(&[], matched.absent, products.len(), product));
                let absent = |column: usize| totals[column] as f64 * products[column].unit;
                Ok(with_absent(sums.finish()?.transposed(), matched, absent))
            }
        });
        Ok(Totals { scores, called, normal: normal.transpose()?, rounding })
    }
}

/// The units of the integers: powers of two.
struct Units {
    /// The unit of each component's loadings over scales.
    scores: Vec<f64>,
    /// The units of products of loadings.
    products: Vec<LoadingPair>,
}

/// Two components, whose loadings are multiplied for each variant, and the unit of the product.
struct LoadingPair {
    components: [usize; 2],
    unit: f64,
}

/// The terms that a variant adds to a score, as integers in the score's unit.
struct Terms {
    /// The term for each allele.
    allele: f64,
    /// The term for a missing call.
    missing: f64,
    /// The term that is subtracted in both cases.
    constant: f64,
}

impl Units {
    /// Computes the units of a reference, which do not depend on the matches.
    fn new(matched: Matched<'_>) -> Self {
        let largest = &matched.reference.largest;
        let product = |components: [usize; 2]| {
            let [a, b] = components.map(|component| largest[component].loading);
            LoadingPair { components, unit: weight_unit(a * b) }
        };
        Self {
            scores: largest.iter().map(|largest| weight_unit(largest.weight)).collect(),
            products: pairs(largest.len()).map(product).collect(),
        }
    }

    /// Returns the terms of a variant. With W the loading over the scale, a score is the sum over the variants of W dosage if called, or W mean if
    /// missing, less W shift. For swapped alleles the dosage becomes ploidy - dosage, with the same W, so that results stay the same to the bit.
    fn terms(&self, matched: Matched<'_>, hit: Match, first: usize) -> impl Iterator<Item = Terms> {
        let reference = matched.reference;
        let [mean, shift, scale] = reference.standard(hit.row());
        let inverse = scale.recip();
        let mean = if matched.method == ProjectMethod::Mean { mean } else { shift };
        let (sign, ploidy) = match hit {
            Match::Same(_) => (1.0, 0.0),
            Match::Swapped(_) => (-1.0, reference.ploidy() as f64),
        };
        let components = reference.row(hit.row()).iter().zip(&self.scores).skip(first);
        components.map(move |(&loading, unit)| {
            let weight = f64::from(loading) * inverse / unit;
            let [allele, missing, constant] = [weight, weight * mean, weight * shift].map(whole);
            let ploidy_term = ploidy * allele;
            Terms { allele: sign * allele, missing: missing - ploidy_term, constant: constant - ploidy_term }
        })
    }

    fn products(&self, matched: Matched<'_>, hit: Match, first: usize) -> impl Iterator<Item = f64> {
        let loadings = matched.reference.row(hit.row());
        self.products[first..].iter().map(|product| {
            let [a, b] = product.components.map(|component| f64::from(loadings[component]));
            whole(a * b / product.unit)
        })
    }
}

/// Adds to the sums of each sample what the absent variants add to each column.
fn with_absent(mut sums: Matrix, matched: Matched<'_>, absent: impl Fn(usize) -> f64) -> Matrix {
    let columns = sums.cols();
    for row in sums.data_mut().chunks_exact_mut(columns).filter(|_| !matched.absent.is_empty()) {
        (0..).zip(row).for_each(|(column, sum)| *sum += absent(column));
    }
    sums
}

/// Returns the sum of each column over the matched and the absent variants.
fn total<I: Iterator<Item = f64>>(
    matches: &[Option<Match>],
    absent: &[Match],
    columns: usize,
    terms: impl Fn(Match) -> I + Sync,
) -> Vec<i128> {
    #[allow(clippy::cast_possible_truncation, reason = "whole numbers")]
    let of_part = |part: &mut dyn Iterator<Item = &Match>| -> Vec<i128> {
        let mut sums = vec![0.0; columns];
        for hit in part {
            sums.iter_mut().zip(terms(*hit)).for_each(|(sum, term)| *sum += term);
        }
        sums.into_iter().map(|sum| sum as i128).collect()
    };
    let none = || vec![0; columns];
    let matches = matches.par_chunks(PART).map(|part| of_part(&mut part.iter().flatten()));
    let absent = absent.par_chunks(PART).map(|part| of_part(&mut part.iter()));
    matches.chain(absent).reduce(none, |mut a, b| {
        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
        a
    })
}

/// Returns the number of entries of the lower triangle of a matrix with that many rows.
pub(super) const fn triangle(rows: usize) -> usize {
    rows * (rows + 1) / 2
}

/// Returns the row and column of each entry.
pub(super) fn pairs(rows: usize) -> impl Iterator<Item = [usize; 2]> {
    (0..rows).flat_map(|a| (0..=a).map(move |b| [a, b]))
}

/// Rounds to the nearest integer, ties to even, for magnitudes below 2^51.
fn whole(x: f64) -> f64 {
    // This is 1.5 times 2^52, so that the last bit of a sum has the value 1.
    const SHIFT: f64 = 6_755_399_441_055_744.0;
    x + SHIFT - SHIFT
}

#[allow(clippy::cast_possible_truncation, reason = "within the range by the choice of the unit")]
fn narrow(number: f64) -> i32 {
    number as i32
}
