//! Distances of the columns of packed rows, in whole numbers.
//!
//! Each is made of Gram matrices of 0s, 1s and 2s, which products of packed rows are fastest at. Of the codes of a row, with a missing
//! one as 1, be g; with a missing one as 0, h where the code is 1; p where it is 1 or missing; and x where it is missing. With
//! `D(v) = Σ (v - vᵀ)²` over the rows, sums over the rows that both columns know are
//!
//! - Σ (a - b)² = D(g) + ½ D(h) - ½ D(p) - ½ D(x),
//! - Σ |a - b| = ½ D(g) + ½ D(h) - ½ D(x),
//! - Σ `[a ≠ b]` = ¼ D(g) + ½ D(h) + ¼ D(p) - ½ D(x),
//!
//! as each pair of codes shows. `D` follows from the Gram matrix and its diagonal, and where codes 0 and 2 trade places it stays: most
//! codes of most rows are 0, then.
//!
//! Products, as of `correlation`, are a Gram matrix of the codes with a missing one as 0. What is added up of one column over the rows that
//! another knows too is its whole sum, less that over the rows where the other is missing (`packed::absent`).

mod moments;

use rayon::prelude::*;

use self::moments::ColumnMoments;
use super::{Distances, Metric, Missing};
use crate::{
    Device, Error, Result, Tensor,
    kernel::Program,
    kernels::packed_gather::Recode,
    linalg::Stats,
    packed::pair_products::{Kind, Multiples, PairProducts, RowTerms},
};

/// Limbs of the factors of rows: a byte is enough.
const LIMBS: u64 = 1;
/// What sums are multiples of, so that their factors are whole numbers.
const UNIT: f64 = 0.25;
/// Most that a row adds to an entry of a Gram matrix: factors up to 4, of codes up to 2, and two rows of 1s.
const LARGEST: f64 = 4.0 * 4.0 + 2.0 + 2.0;

/// Sums of distances of the columns of packed rows from one another, over panels of rows: exact, the same on every device, whatever the
/// panels. [`PackedPairs::finish`] makes distances of them.
///
/// For [`Metric::Euclidean`], [`Metric::SqEuclidean`], [`Metric::CityBlock`], [`Metric::Hamming`], [`Metric::InnerProduct`],
/// [`Metric::Cosine`] and [`Metric::Correlation`]. A missing code is as [`Missing`] says.
///
/// # Cost
/// columns² / 2 products of bytes a row, for squared differences and products where no code of it is missing; else twice that, and three
/// times for [`Metric::Euclidean`], [`Metric::SqEuclidean`] and [`Metric::Hamming`] where one is. Of a row in which few codes differ from the
/// most common one, only the pairs of those. A missing code costs [`Metric::Cosine`] and [`Metric::Correlation`] some more sums of all
/// columns. On the device 4 columns² bytes, as many again for missing codes, and for those of the last two metrics 16.
///
/// ```
/// use teatime::{Device, Tensor, distance::{Metric, Missing, PackedPairs}, packed::{recode, row_words}};
///
/// let device = Device::cpu();
/// // Two rows of four codes, the first in the lowest bits: 0 1 2 1, and 2 0 0 missing.
/// let codes = Tensor::from_slice(&device, &[0b01_10_01_00u8, 0b11_00_00_10], &[2, 1])?;
/// let mut panel = Tensor::zeros(&device, &[2, row_words(4)])?;
/// let stats = recode(&codes, [0, 1, 2, 3], 4, &mut panel, 0)?.wait()?;
///
/// let mut pairs = PackedPairs::new(&device, 4, 2, Metric::CityBlock, Missing::Ignore)?;
/// pairs.add(&panel, 0, &stats.into_iter().map(Some).collect::<Vec<_>>())?;
/// let result = pairs.finish()?;
/// assert_eq!(result.distances.row(0), [0.0, 3.0, 4.0, 1.0]);
/// assert_eq!(result.shared.unwrap().row(3), [1.0, 1.0, 1.0, 1.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Debug)]
pub struct PackedPairs {
    metric: Metric,
    missing: Missing,
    sums: PairProducts,
    /// Σ x xᵀ.
    absent: PairProducts,
    of_columns: Option<ColumnMoments>,
    /// Rows that were added, and whether all their codes are known.
    rows: u64,
    complete: bool,
}

/// What is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recipe {
    /// D of g, h and p, each so often, in units.
    Spreads([i32; 3]),
    /// Products of codes.
    Products,
}

impl Recipe {
    fn of(metric: Metric) -> Option<Self> {
        match metric {
            Metric::Euclidean | Metric::SqEuclidean => Some(Self::Spreads([4, 2, -2])),
            Metric::CityBlock => Some(Self::Spreads([2, 2, 0])),
            Metric::Hamming => Some(Self::Spreads([1, 2, 1])),
            Metric::InnerProduct | Metric::Cosine | Metric::Correlation => Some(Self::Products),
            _ => None,
        }
    }
}

impl PackedPairs {
    /// Sums of no rows, of which there will be `rows` at most.
    ///
    /// # Errors
    /// [`Error::Argument`] for another metric than those above; [`Error::Limit`] for more columns than sums are exact for;
    /// [`Error::OutOfMemory`].
    pub fn new(device: &Device, columns: u64, rows: u64, metric: Metric, missing: Missing) -> Result<Self> {
        if !Self::takes(metric) {
            let why = format_args!("{metric} is not made of sums of packed rows");
            return Err(Error::argument("PackedPairs", "metric", why));
        }
        let sums = PairProducts::new(device, columns, rows.saturating_mul(3), LARGEST, 0)?;
        let of_columns = ColumnMoments::serve(metric).then(|| ColumnMoments::new(device, columns));
        Ok(Self {
            metric,
            missing,
            sums,
            absent: PairProducts::new(device, columns, rows, 1.0, 0)?,
            of_columns: of_columns.transpose()?,
            rows: 0,
            complete: true,
        })
    }

    /// Whether the metric is one of those that packed rows are for.
    pub fn takes(metric: Metric) -> bool {
        Recipe::of(metric).is_some()
    }

    /// The programs that sums of so many rows may launch, those first that compilers take longest for.
    pub fn programs(device: &Device, columns: u64, rows: u64) -> Vec<Program> {
        PairProducts::programs(device, columns, rows, LIMBS)
    }

    /// Bytes on the device besides the panel, of so many rows.
    pub fn device_bytes(device: &Device, columns: u64, rows: u64, metric: Metric) -> u64 {
        let of_pairs = PairProducts::device_bytes(device, columns, rows, 1).saturating_mul(2);
        let moments =
            if ColumnMoments::serve(metric) { ColumnMoments::device_bytes(device, columns, rows) } else { 0 };
        of_pairs.saturating_add(moments)
    }

    /// Bytes on the host: the results, and what they are read through.
    pub fn host_bytes(columns: u64, metric: Metric) -> u64 {
        let matrices = if ColumnMoments::serve(metric) { 4 } else { 2 };
        PairProducts::host_bytes(columns).saturating_mul(matrices)
    }

    /// Adds the rows of `packed` from row `from` on, of which `stats` has the codes' sums and counts, or none for a row that takes no
    /// part. Enqueues; does not wait.
    ///
    /// # Errors
    /// [`Error::Shape`] for rows of other lengths, or beyond the panel; [`Error::Argument`] for statistics that no row has, and for
    /// more rows than were said; what the device reports.
    pub fn add(&mut self, packed: &Tensor<u32>, from: u64, stats: &[Option<Stats>]) -> Result<()> {
        let Some(recipe) = Recipe::of(self.metric) else { return Ok(()) };
        let columns = self.sums.columns();
        let codes = |(row, stats): (usize, &Option<Stats>)| match stats {
            Some(stats) => Codes::new(stats, columns).map(Some).ok_or_else(|| {
                let why = format!("row {row} of {columns} columns: {stats:?}");
                Error::argument("PackedPairs::add", "stats", why)
            }),
            None => Ok(None),
        };
        let rows = stats.iter().enumerate().map(codes).collect::<Result<Vec<Option<Codes>>>>()?;
        for sums in [&self.sums, &self.absent] {
            sums.check("PackedPairs::add", "stats", packed, from, stats.len() as u64)?;
        }
        match recipe {
            Recipe::Spreads(factors) => self.add_spreads(packed, from, &rows, factors)?,
            Recipe::Products => self
                .sums
                .add(packed, from, stats.len(), |sums, row| rows[row].as_ref()?.known().terms(sums, 1))?,
        }
        if let Some(moments) = &mut self.of_columns {
            moments.add(packed, from, &rows.iter().map(Codes::part).collect::<Vec<_>>())?;
        }
        let absent = |sums: &PairProducts, row: usize| rows[row].as_ref()?.absent().terms(sums, 1);
        self.absent.add(packed, from, stats.len(), absent)?;
        self.rows += rows.iter().flatten().count() as u64;
        self.complete &= rows.iter().flatten().all(|codes| codes.absent == 0);
        Ok(())
    }

    fn add_spreads(
        &mut self,
        packed: &Tensor<u32>,
        from: u64,
        rows: &[Option<Codes>],
        factors: [i32; 3],
    ) -> Result<()> {
        for (which, recoded) in [Codes::filled, Codes::ones, Codes::odd].into_iter().enumerate() {
            let of_row = |sums: &PairProducts, row: usize| {
                let codes = rows[row].as_ref()?;
                // Of a row that is known throughout, h and p are the same.
                let factor = match (which, codes.absent) {
                    (1, 0) => factors[1] + factors[2],
                    (2, 0) => 0,
                    _ => factors[which],
                };
                recoded(codes).terms(sums, factor)
            };
            self.sums.add(packed, from, rows.len(), of_row)?;
        }
        Ok(())
    }

    /// Waits for the distances, (columns, columns), and the number of rows in which both are known unless all codes are.
    ///
    /// # Errors
    /// What the device reports.
    pub fn finish(self) -> Result<Distances> {
        let Self { metric, missing, sums, absent, of_columns, rows, complete } = self;
        let device = sums.device().clone();
        // Of symmetric sums, what all pairs of two columns add: those of each with itself, less twice those of both.
        let spread = |both: i64, [one, other]: [i64; 2]| (one + other - 2 * both) as f64 * UNIT;
        let is_spread = matches!(Recipe::of(metric), Some(Recipe::Spreads(_)));
        let mut distances =
            if is_spread { sums.matrix(spread)? } else { sums.matrix(|both, _| both as f64)? };
        let n = distances.rows();
        let rows = rows as f64;
        let moments = of_columns.map(|moments| moments.finish(&distances, complete)).transpose()?;
        let distance = |pair: [usize; 2], sum: f64, shared: f64| match &moments {
            Some(_) if shared == 0.0 && missing == Missing::RescaleOrZero => 0.0,
            Some(moments) => moments.distance(metric, pair, sum, shared),
            None if complete => metric.distance(&[sum], rows, Missing::Propagate),
            None => metric.distance(&[sum, shared], rows, missing),
        };
        if complete {
            let finish = |(i, row): (usize, &mut [f64])| {
                let entries = row.iter_mut().enumerate();
                entries.for_each(|(j, value)| *value = distance([i, j], *value, rows));
            };
            let all = |data: &mut [f64]| data.par_chunks_mut(n.max(1)).enumerate().for_each(finish);
            device.pool()?.install(|| all(distances.data_mut()));
            return Ok(Distances { distances, shared: None });
        }
        let mut absent = absent.matrix(|both, _| both as f64)?;
        let missing_of: Vec<f64> = (0..n).map(|i| absent.row(i)[i]).collect();
        let rows_of = distances.data_mut().par_chunks_mut(n).zip(absent.data_mut().par_chunks_mut(n));
        let finish = |(i, (distances, absent)): (usize, (&mut [f64], &mut [f64]))| {
            for (j, (value, absent)) in distances.iter_mut().zip(absent).enumerate() {
                let alone = missing_of[i] + missing_of[j];
                let sum = if is_spread { *value - (alone - 2.0 * *absent) / 2.0 } else { *value };
                let shared = rows - alone + *absent;
                let is_missing = missing == Missing::Propagate && alone > 0.0;
                *value = if is_missing { f64::NAN } else { distance([i, j], sum, shared) };
                *absent = shared;
            }
        };
        device.pool()?.install(|| rows_of.enumerate().for_each(finish));
        Ok(Distances { distances, shared: Some(absent) })
    }
}

/// How many codes of a row are which.
#[derive(Clone, Copy, Debug)]
struct Codes {
    zero: u64,
    one: u64,
    two: u64,
    absent: u64,
}

/// A row recoded, and how many of its codes are not 0.
struct Recoded {
    recode: Recode,
    codes: u64,
}

impl Codes {
    /// None where no row has such sums.
    fn new(stats: &Stats, columns: u64) -> Option<Self> {
        let Stats { sum, sum_squares, count, .. } = *stats;
        let [one, two] = [2.0 * sum - sum_squares, (sum_squares - sum) / 2.0];
        let is_count = |value: f64| value >= 0.0 && value.fract() == 0.0 && value <= columns as f64;
        if !is_count(one) || !is_count(two) || count > columns {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and not negative")]
        let [one, two] = [one as u64, two as u64];
        Some(Self { zero: count.checked_sub(one + two)?, one, two, absent: columns - count })
    }

    /// Whether a row takes part, and has missing codes.
    fn part(row: &Option<Self>) -> Option<bool> {
        row.as_ref().map(|codes| codes.absent > 0)
    }

    fn filled(&self) -> Recoded {
        match self.two > self.zero {
            true => Recoded { recode: Recode([2, 1, 0, 1]), codes: self.zero + self.one + self.absent },
            false => Recoded { recode: Recode([0, 1, 2, 1]), codes: self.two + self.one + self.absent },
        }
    }

    fn known(&self) -> Recoded {
        Recoded { recode: Recode([0, 1, 2, 0]), codes: self.two + self.one }
    }

    fn ones(&self) -> Recoded {
        Recoded { recode: Recode([0, 1, 0, 0]), codes: self.one }
    }

    fn odd(&self) -> Recoded {
        Recoded { recode: Recode([0, 1, 0, 1]), codes: self.one + self.absent }
    }

    fn absent(&self) -> Recoded {
        Recoded { recode: Recode::MISSING, codes: self.absent }
    }
}

impl Recoded {
    /// None where nothing would be added.
    fn terms(&self, sums: &PairProducts, factor: i32) -> Option<RowTerms> {
        // Rare rows take no negative factors.
        let rare = factor > 0 && sums.is_rare(self.codes as f64);
        (factor != 0 && self.codes > 0).then_some(RowTerms {
            recode: self.recode,
            kind: Kind { rare, missing: false, limb_count: LIMBS, power: 0 },
            multiples: Multiples { one: factor, filled: 0, square: 0 },
        })
    }
}
