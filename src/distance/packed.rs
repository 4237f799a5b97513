//! Distances between the columns of packed rows, computed from integer sums.
//!
//! Each distance is computed from Gram matrices of 0s, 1s and 2s, the fastest products of packed rows. For the codes of a row, g is the code, or
//! 1 if the code is missing; h is 1 if the code is 1; p is 1 if the code is 1 or missing; and x is 1 if the code is missing; otherwise h, p and
//! x are 0. With `D(v) = Σ (v - vᵀ)²` over the rows, sums over the rows in which both columns are known are
//!
//! - Σ (a - b)² = D(g) + ½ D(h) - ½ D(p) - ½ D(x),
//! - Σ |a - b| = ½ D(g) + ½ D(h) - ½ D(x),
//! - Σ `[a ≠ b]` = ¼ D(g) + ½ D(h) + ¼ D(p) - ½ D(x),
//!
//! as each pair of codes shows. With n(h) the number of 1s in both columns,
//!
//! - Σ 1 - (a - 1) (b - 1) = ½ D(g) + ½ n(h) - ½ D(x).
//!
//! `D` follows from the Gram matrix and its diagonal. Exchanging the codes 0 and 2 of a row leaves `D` the same, so rows are recoded to have 0
//! as the more frequent of the two.
//!
//! Products, as for `correlation`, are a Gram matrix of the codes with 0 for a missing code. A column's sum over the rows in which another
//! column is known is the column's sum over all rows, minus its sum over the rows in which the other column is missing (`packed::absent`).

mod codes;
mod moments;
mod results;

use std::ops::Range;

pub use self::results::PackedDiagonal;
use self::{codes::Codes, moments::ColumnMoments};
use super::{Metric, Missing};
use crate::{
    Device, Error, Needs, Result, Tensor,
    kernel::Program,
    linalg::Stats,
    packed::{
        pair_products::{COLUMNS, PairProducts, PairSet},
        row_words,
    },
};

/// The number of limbs of a row's factor: one byte is enough.
const LIMBS: u64 = 1;
/// The unit of the sums: row factors in this unit are whole numbers.
const UNIT: f64 = 0.25;
/// The largest value that a row adds to an entry of a Gram matrix: factors up to 4 for codes up to 2, and two rows of 1s.
const LARGEST: f64 = 4.0 * 4.0 + 2.0 + 2.0;

/// The maximum number of rows: sums of three times this number times [`LARGEST`] are exact in f64.
const MAX_ROWS: u64 = 1 << 46;

/// The pairs of columns of packed rows whose distances are computed at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnPairs {
    /// All pairs of that many columns.
    All(u64),
    /// The pairs of a range of that many columns with one another and with all later columns, so that the distances of all columns need not
    /// fit memory at once. The range begins with a multiple of 64 and ends with one or with the last column.
    Band(u64, Range<u64>),
    /// Each of that many columns with itself. The distances of a [`Band`](Self::Band) need these sums too.
    Diagonal(u64),
    /// The pairs of a column of one packed matrix with a column of another, given their numbers of columns. Rows hold both matrices
    /// [`side_by_side`](crate::packed::side_by_side). Their statistics are over the whole row, in which the padding of the first matrix counts
    /// as codes 0.
    Between([u64; 2]),
}

impl ColumnPairs {
    /// Returns the number of columns of a row, padding included, and the pairs that have sums.
    fn in_rows(&self) -> (u64, PairSet) {
        match self {
            Self::All(columns) => (*columns, PairSet::From(0..*columns)),
            Self::Band(columns, own) => (*columns, PairSet::From(own.clone())),
            Self::Diagonal(columns) => (*columns, PairSet::Diagonal),
            Self::Between([own, others]) => {
                let split = own.div_ceil(COLUMNS).saturating_mul(COLUMNS);
                (split.saturating_add(*others), PairSet::Across(split))
            }
        }
    }
}

/// Sums from which the distances between columns of packed rows are computed, over panels of rows. The sums are exact, and the same on every
/// device for any division into panels. [`PackedPairs::finish`] returns the distances.
///
/// Supports [`Metric::Euclidean`], [`Metric::SqEuclidean`], [`Metric::CityBlock`], [`Metric::Hamming`], [`Metric::InnerProduct`],
/// [`Metric::Cosine`] and [`Metric::Correlation`]. [`Missing`] is the rule for missing codes.
///
/// # Cost
/// Each row takes columns² / 2 products of bytes for squared differences and for products if none of its codes is missing. A row with missing
/// codes takes twice as many, or three times for [`Metric::Euclidean`], [`Metric::SqEuclidean`] and [`Metric::Hamming`]. A row in which few
/// codes differ from the most common code takes only the products of pairs of those few codes. Missing codes cost [`Metric::Cosine`] and
/// [`Metric::Correlation`] a few more sums of all columns. Device memory: 4 columns² bytes, as much again for missing codes, and 16 columns²
/// bytes for missing codes with the last two metrics. Of a [diagonal](ColumnPairs::Diagonal), a row takes 64 products for each column; of two
/// matrices, one for each pair and 64 for each column.
///
/// ```
/// use teatime::{Device, Tensor, distance::{ColumnPairs, Metric, Missing, PackedPairs}, packed::{recode, row_words}};
///
/// let device = Device::cpu();
/// // Two rows of four codes, the first in the lowest bits: 0 1 2 1, and 2 0 0 missing.
/// let codes = Tensor::from_slice(&device, &[0b01_10_01_00u8, 0b11_00_00_10], &[2, 1])?;
/// let mut panel = Tensor::zeros(&device, &[2, row_words(4)])?;
/// let stats = recode(&codes, [0, 1, 2, 3], 4, &mut panel, 0)?.wait()?;
///
/// let mut pairs = PackedPairs::new(&device, &ColumnPairs::All(4), 2, Metric::CityBlock, Missing::Ignore)?;
/// pairs.add(&panel, 0, &stats.into_iter().map(Some).collect::<Vec<_>>())?;
/// let result = pairs.finish()?;
/// assert_eq!(result.distances.row(0), [0.0, 3.0, 4.0, 1.0]);
/// assert!(result.shared.is_some_and(|shared| shared.row(3) == [1.0, 1.0, 1.0, 1.0]));
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Debug)]
pub struct PackedPairs {
    metric: Metric,
    recipe: Recipe,
    missing: Missing,
    wanted: PairSet,
    /// The number of columns before a split, without padding; 0 without a split.
    own: u64,
    sums: PairProducts,
    /// The Gram matrix Σ x xᵀ of missing codes.
    absent: PairProducts,
    /// Σ h hᵀ, whose diagonal is the number of codes 1 in each column. Only for `ones_differ`.
    ones: Option<PairProducts>,
    of_columns: Option<Box<ColumnMoments>>,
    /// The number of added rows, and true if all their codes are known.
    rows: u64,
    complete: bool,
}

/// The kind of sums that are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recipe {
    /// The factors of D(g), D(h) and D(p), in units of `UNIT`.
    Spreads([i32; 3]),
    /// Products of codes.
    Products,
}

impl Recipe {
    /// The recipe of [`PackedPairs::ones_differ`]; half the number of 1s in both columns is added at the end.
    const ONES_DIFFER: Self = Self::Spreads([2, 0, 0]);

    fn for_metric(metric: Metric) -> Option<Self> {
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
    /// Creates empty sums, for at most `rows` rows. [`finish`](Self::finish), [`finish_columns`](Self::finish_columns) of a band, or
    /// [`finish_diagonal`](Self::finish_diagonal) takes them.
    ///
    /// # Errors
    /// [`Error::Argument`] for an unsupported metric, a band of other columns than [`ColumnPairs::Band`] says, and a matrix without columns
    /// beside another; [`Error::Limit`] for more columns or rows than sums are exact for; [`Error::OutOfMemory`].
    pub fn new(
        device: &Device,
        pairs: &ColumnPairs,
        rows: u64,
        metric: Metric,
        missing: Missing,
    ) -> Result<Self> {
        let refuse = |name, why: String| Err(Error::argument("PackedPairs", name, why));
        let mut own = 0;
        match pairs {
            ColumnPairs::Band(columns, own) => {
                let whole = |end: u64| end.is_multiple_of(64) || end == *columns;
                if own.is_empty() || own.end > *columns || !own.start.is_multiple_of(64) || !whole(own.end) {
                    return refuse("own", format!("{own:?} of {columns} columns: not whole groups of 64"));
                }
            }
            ColumnPairs::Between([first, others]) => {
                if *first == 0 || *others == 0 {
                    let why = format!("{first} and {others}: at least one of each is needed");
                    return refuse("columns", why);
                }
                own = *first;
            }
            ColumnPairs::All(_) | ColumnPairs::Diagonal(_) => {}
        }
        let Some(recipe) = Recipe::for_metric(metric) else {
            return refuse("metric", format!("{metric} is not made of sums of packed rows"));
        };
        if rows > MAX_ROWS {
            return Err(Error::Limit { what: "rows of packed sums", requested: rows, max: MAX_ROWS });
        }
        let (columns, wanted) = pairs.in_rows();
        let moments = wanted != PairSet::Diagonal && ColumnMoments::serve(metric);
        Ok(Self {
            metric,
            recipe,
            missing,
            own,
            sums: PairProducts::for_pairs(device, columns, &wanted, 3 * rows, LARGEST, 0)?,
            absent: PairProducts::for_pairs(device, columns, &wanted, rows, 1.0, 0)?,
            ones: None,
            of_columns: moments
                .then(|| ColumnMoments::new(device, columns, wanted.clone()).map(Box::new))
                .transpose()?,
            wanted,
            rows: 0,
            complete: true,
        })
    }

    /// Makes two codes which are both 1 differ by 1, not by 0: for codes a and b the sum is Σ 1 - (a - 1) (b - 1). Only for
    /// [`Metric::CityBlock`] and before any rows; with a [diagonal](ColumnPairs::Diagonal), call it on the diagonal and on the sums it is for.
    /// Costs 64 more products for each row and column, and saves half of the other products.
    ///
    /// # Errors
    /// [`Error::Argument`] for another metric, or if rows were added; [`Error::OutOfMemory`].
    pub fn ones_differ(mut self) -> Result<Self> {
        if self.metric != Metric::CityBlock || self.rows > 0 {
            let why = format_args!("{} of {} rows: for cityblock of none so far", self.metric, self.rows);
            return Err(Error::argument("PackedPairs::ones_differ", "self", why));
        }
        self.recipe = Recipe::ONES_DIFFER;
        if self.wanted != PairSet::Diagonal {
            let (device, columns, rows) = (self.sums.device(), self.sums.columns(), self.absent.left());
            let ones = PairProducts::for_pairs(device, columns, &PairSet::Diagonal, rows, 1.0, 0)?;
            self.ones = Some(ones);
        }
        Ok(self)
    }

    /// Returns the device memory of the sums that [`ones_differ`](Self::ones_differ) adds, for panels of `rows` rows.
    pub fn needs_of_ones(device: &Device, columns: u64, rows: u64) -> Needs {
        Needs::device(PairProducts::device_bytes_of(device, columns, &PairSet::Diagonal, rows, 1))
    }

    /// True if packed rows support the metric.
    pub fn takes(metric: Metric) -> bool {
        Recipe::for_metric(metric).is_some()
    }

    /// Returns the programs that sums over panels of `rows` rows may launch, for [`Device::prepare`], the slowest to compile first.
    pub fn programs(device: &Device, columns: u64, rows: u64) -> Vec<Program> {
        PairProducts::programs(device, columns, rows, LIMBS)
    }

    /// Returns the memory of sums for panels of `rows` rows, without the panels of one matrix, but with those of two matrices side by side; and
    /// of finishing the sums: the results and the buffers for reading them.
    pub fn needs(device: &Device, pairs: &ColumnPairs, rows: u64, metric: Metric) -> Needs {
        let (columns, wanted) = pairs.in_rows();
        let has_moments = wanted != PairSet::Diagonal && ColumnMoments::serve(metric);
        let matrices = |with_moments: u64| if has_moments { with_moments } else { 2 };
        let read = Needs::host(PairProducts::read_bytes(device, columns));
        // The number of pairs that have moments, and the memory besides sums.
        let (count, rest) = match pairs {
            ColumnPairs::All(_) => {
                let results = Needs::host(PairProducts::host_bytes(device, columns)) * matrices(4);
                (columns.saturating_mul(columns), results)
            }
            ColumnPairs::Band(_, own) => {
                let (width, later) = (own.end.saturating_sub(own.start), columns.saturating_sub(own.start));
                let following = later.saturating_add(columns.saturating_sub(own.end));
                let results = Needs::host(8 * matrices(6)) * width * later;
                (width.saturating_mul(following), results + read * 2 + Needs::host(32) * columns)
            }
            ColumnPairs::Diagonal(_) => (0, read * 2 + Needs::host(32) * columns),
            ColumnPairs::Between([_, others]) => {
                let split = columns.saturating_sub(*others);
                let panel = Needs::device(4 * row_words(columns)) * rows;
                let results = Needs::host(8 * matrices(6)) * split * *others;
                (split.saturating_mul(2 * others), panel + results + read + Needs::host(64) * columns)
            }
        };
        let sums = Needs::device(PairProducts::device_bytes_of(device, columns, &wanted, rows, 1)) * 2;
        let moments = has_moments.then(|| ColumnMoments::needs(device, columns, count, rows));
        sums + moments.unwrap_or_default() + rest
    }

    /// Adds the rows of `packed` from row `from` on. `stats` has the sums and counts of each row's codes, or `None` for a row to skip. Enqueues;
    /// does not wait.
    ///
    /// # Errors
    /// [`Error::Shape`] for rows of another length, or beyond the panel; [`Error::Argument`] for statistics that no row can have, and for more
    /// rows than announced; what the device reports.
    pub fn add(&mut self, packed: &Tensor<u32>, from: u64, stats: &[Option<Stats>]) -> Result<()> {
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
        match self.recipe {
            Recipe::Spreads(factors) => self.add_spreads(packed, from, &rows, factors)?,
            Recipe::Products => self
                .sums
                .add(packed, from, stats.len(), |sums, row| rows[row].as_ref()?.known().terms(sums, 1))?,
        }
        if let Some(ones) = &mut self.ones {
            ones.add(packed, from, stats.len(), |sums, row| rows[row].as_ref()?.ones().terms(sums, 1))?;
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

    /// Adds sums over other rows for the same pairs, with the same metric and rule, such as those of another member of a group of devices of one
    /// kind. They stay on their device until all are read. Does not wait.
    ///
    /// # Errors
    /// [`Error::Argument`] for another metric, rule or set of pairs; [`Error::Shape`] for other columns, or a device of another kind.
    ///
    /// ```
    /// use teatime::{Device, Tensor, distance::{ColumnPairs, Metric, Missing, PackedPairs}, packed::{recode, row_words}};
    ///
    /// let sums = |codes: u8| {
    ///     let device = Device::open("cpu")?;
    ///     let codes = Tensor::from_slice(&device, &[codes], &[1, 1])?;
    ///     let mut panel = Tensor::zeros(&device, &[1, row_words(4)])?;
    ///     let stats = recode(&codes, [0, 1, 2, 3], 4, &mut panel, 0)?.wait()?;
    ///     let mut pairs = PackedPairs::new(&device, &ColumnPairs::All(4), 1, Metric::CityBlock, Missing::Ignore)?;
    ///     pairs.add(&panel, 0, &stats.into_iter().map(Some).collect::<Vec<_>>())?;
    ///     Ok::<_, teatime::Error>(pairs)
    /// };
    /// let mut pairs = sums(0b01_10_01_00)?;
    /// pairs.join(sums(0b11_00_00_10)?)?;
    /// assert_eq!(pairs.finish()?.distances.row(0), [0.0, 3.0, 4.0, 1.0]);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn join(&mut self, other: Self) -> Result<()> {
        let kind =
            |pairs: &Self| (pairs.metric, pairs.missing, pairs.recipe, pairs.own, pairs.wanted.clone());
        if kind(self) != kind(&other) {
            let why = format!("{:?} to {:?}", kind(&other), kind(self));
            return Err(Error::argument("PackedPairs::join", "other", why));
        }
        self.sums.join(other.sums)?;
        self.absent.join(other.absent)?;
        if let (Some(own), Some(other)) = (&mut self.ones, other.ones) {
            own.join(other)?;
        }
        if let (Some(own), Some(other)) = (&mut self.of_columns, other.of_columns) {
            own.join(*other)?;
        }
        self.rows += other.rows;
        self.complete &= other.complete;
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
                // In a row without missing codes, h and p are the same.
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
}
