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
//! as each pair of codes shows, and with n(h) the 1s of both columns
//!
//! - Σ 1 - (a - 1) (b - 1) = ½ D(g) + ½ n(h) - ½ D(x).
//!
//! `D` follows from the Gram matrix and its diagonal, and where codes 0 and 2 trade places it stays: most
//! codes of most rows are 0, then.
//!
//! Products, as of `correlation`, are a Gram matrix of the codes with a missing one as 0. What is added up of one column over the rows that
//! another knows too is its whole sum, less that over the rows where the other is missing (`packed::absent`).

mod codes;
mod moments;

use std::ops::Range;

use rayon::prelude::*;

use self::{codes::Codes, moments::ColumnMoments};
use super::{Distances, Metric, Missing};
use crate::{
    Device, Error, Result, Tensor,
    kernel::Program,
    linalg::{Stats, gram::to_usize},
    packed::pair_products::{PairProducts, Wanted},
};

/// Limbs of the factors of rows: a byte is enough.
const LIMBS: u64 = 1;
/// What sums are multiples of, so that their factors are whole numbers.
const UNIT: f64 = 0.25;
/// Most that a row adds to an entry of a Gram matrix: factors up to 4, of codes up to 2, and two rows of 1s.
const LARGEST: f64 = 4.0 * 4.0 + 2.0 + 2.0;

/// Most rows: three times as many times [`LARGEST`] are whole numbers in f64.
const MAX_ROWS: u64 = 1 << 46;

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
    recipe: Recipe,
    missing: Missing,
    wanted: Wanted,
    sums: PairProducts,
    /// Σ x xᵀ.
    absent: PairProducts,
    /// Σ h hᵀ, of which the diagonal is the codes 1 of each column, where they count.
    ones: Option<PairProducts>,
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
    /// Of [`PackedPairs::ones_differ`], besides half the 1s of both columns.
    const ONES_DIFFER: Self = Self::Spreads([2, 0, 0]);

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
    /// [`Error::Argument`] for another metric than those above; [`Error::Limit`] for more columns or rows than sums are exact for;
    /// [`Error::OutOfMemory`].
    pub fn new(device: &Device, columns: u64, rows: u64, metric: Metric, missing: Missing) -> Result<Self> {
        Self::of(device, columns, &Wanted::From(0..columns), rows, metric, missing)
    }

    /// The same for the distances of some columns from one another and from all that follow, which
    /// [`finish_columns`](Self::finish_columns) makes: so that all that are wanted need not fit memory at once. Not for
    /// [`Metric::Cosine`] and [`Metric::Correlation`].
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::Argument`] unless `own` begins with a multiple of 64 and ends with one or with the last column, and
    /// for these two metrics.
    pub fn of_columns(
        device: &Device,
        columns: u64,
        own: Range<u64>,
        rows: u64,
        metric: Metric,
        missing: Missing,
    ) -> Result<Self> {
        let whole = |end: u64| end.is_multiple_of(64) || end == columns;
        if own.is_empty() || own.end > columns || !own.start.is_multiple_of(64) || !whole(own.end) {
            let why = format_args!("{own:?} of {columns} columns: not whole groups of 64");
            return Err(Error::argument("PackedPairs", "own", why));
        }
        if Self::takes(metric) && !Self::takes_columns(metric) {
            let why = format_args!("{metric} is of all columns at once");
            return Err(Error::argument("PackedPairs", "metric", why));
        }
        Self::of(device, columns, &Wanted::From(own), rows, metric, missing)
    }

    /// The same for what [`finish_columns`](Self::finish_columns) has to know of each column before, which
    /// [`finish_diagonal`](Self::finish_diagonal) makes. A row costs 64 products a column.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn diagonal(device: &Device, columns: u64, rows: u64, metric: Metric) -> Result<Self> {
        Self::of(device, columns, &Wanted::Diagonal, rows, metric, Missing::Ignore)
    }

    fn of(
        device: &Device,
        columns: u64,
        wanted: &Wanted,
        rows: u64,
        metric: Metric,
        missing: Missing,
    ) -> Result<Self> {
        let Some(recipe) = Recipe::of(metric) else {
            let why = format_args!("{metric} is not made of sums of packed rows");
            return Err(Error::argument("PackedPairs", "metric", why));
        };
        if rows > MAX_ROWS {
            return Err(Error::Limit { what: "rows of packed sums", requested: rows, max: MAX_ROWS });
        }
        let of_all = *wanted == Wanted::From(0..columns) && ColumnMoments::serve(metric);
        Ok(Self {
            metric,
            recipe,
            missing,
            wanted: wanted.clone(),
            sums: PairProducts::of(device, columns, wanted, 3 * rows, LARGEST, 0)?,
            absent: PairProducts::of(device, columns, wanted, rows, 1.0, 0)?,
            ones: None,
            of_columns: of_all.then(|| ColumnMoments::new(device, columns)).transpose()?,
            rows: 0,
            complete: true,
        })
    }

    /// The same, but that two codes which are both 1 differ by 1, not by 0: for codes a and b that is Σ 1 - (a - 1) (b - 1). For
    /// [`Metric::CityBlock`], before any rows; of the [diagonal](Self::diagonal) as of the distances that it is for. Costs 64
    /// products a row and column more, and one in two of the others less.
    ///
    /// # Errors
    /// [`Error::Argument`] for another metric, and after rows; [`Error::OutOfMemory`].
    pub fn ones_differ(mut self) -> Result<Self> {
        if self.metric != Metric::CityBlock || self.rows > 0 {
            let why = format_args!("{} of {} rows: for cityblock of none so far", self.metric, self.rows);
            return Err(Error::argument("PackedPairs::ones_differ", "self", why));
        }
        self.recipe = Recipe::ONES_DIFFER;
        if self.wanted != Wanted::Diagonal {
            let (device, columns) = (self.sums.device(), self.sums.columns());
            self.ones =
                Some(PairProducts::of(device, columns, &Wanted::Diagonal, self.absent.left(), 1.0, 0)?);
        }
        Ok(self)
    }

    /// Bytes on the device that [`ones_differ`](Self::ones_differ) takes more, for panels of so many rows.
    pub fn device_bytes_of_ones(device: &Device, columns: u64, rows: u64) -> u64 {
        PairProducts::device_bytes_of(device, columns, &Wanted::Diagonal, rows, 1)
    }

    /// Whether the metric is one of those that packed rows are for.
    pub fn takes(metric: Metric) -> bool {
        Recipe::of(metric).is_some()
    }

    /// Whether the metric is one of those that [`of_columns`](Self::of_columns) takes.
    pub fn takes_columns(metric: Metric) -> bool {
        Self::takes(metric) && !ColumnMoments::serve(metric)
    }

    /// The programs that sums of so many rows may launch, those first that compilers take longest for.
    pub fn programs(device: &Device, columns: u64, rows: u64) -> Vec<Program> {
        PairProducts::programs(device, columns, rows, LIMBS)
    }

    /// Bytes on the device besides the panel, of so many rows.
    pub fn device_bytes(device: &Device, columns: u64, rows: u64, metric: Metric) -> u64 {
        let moments =
            if ColumnMoments::serve(metric) { ColumnMoments::device_bytes(device, columns, rows) } else { 0 };
        Self::device_bytes_of(device, columns, 0..columns, rows).saturating_add(moments)
    }

    /// The same of [`of_columns`](Self::of_columns).
    pub fn device_bytes_of(device: &Device, columns: u64, own: Range<u64>, rows: u64) -> u64 {
        PairProducts::device_bytes_of(device, columns, &Wanted::From(own), rows, 1).saturating_mul(2)
    }

    /// Bytes on the host: the results, and what they are read through.
    pub fn host_bytes(columns: u64, metric: Metric) -> u64 {
        let matrices = if ColumnMoments::serve(metric) { 4 } else { 2 };
        PairProducts::host_bytes(columns).saturating_mul(matrices)
    }

    /// The same of [`of_columns`](Self::of_columns).
    pub fn host_bytes_of(columns: u64, own: Range<u64>) -> u64 {
        let panel = columns.saturating_sub(own.start).saturating_mul(own.end.saturating_sub(own.start));
        panel.saturating_mul(16).saturating_add(columns.saturating_mul(2048 + 32))
    }

    /// Adds the rows of `packed` from row `from` on, of which `stats` has the codes' sums and counts, or none for a row that takes no
    /// part. Enqueues; does not wait.
    ///
    /// # Errors
    /// [`Error::Shape`] for rows of other lengths, or beyond the panel; [`Error::Argument`] for statistics that no row has, and for
    /// more rows than were said; what the device reports.
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
    /// [`Error::Argument`] for sums of [some columns](Self::of_columns) or of the [diagonal](Self::diagonal); what the device reports.
    pub fn finish(self) -> Result<Distances> {
        match &self.wanted {
            Wanted::From(own) if *own == (0..self.sums.columns()) => self.results(None),
            wanted => Err(mistaken("PackedPairs::finish", wanted)),
        }
    }

    /// Waits for what is to be known of each column, over the same rows that are added for the distances.
    ///
    /// # Errors
    /// [`Error::Argument`] for other sums than those of the [diagonal](Self::diagonal); what the device reports.
    pub fn finish_diagonal(self) -> Result<PackedDiagonal> {
        if self.wanted != Wanted::Diagonal {
            return Err(mistaken("PackedPairs::finish_diagonal", &self.wanted));
        }
        Ok(PackedDiagonal {
            metric: self.metric,
            recipe: self.recipe,
            rows: self.rows,
            sums: self.sums.diagonal()?,
            absent: self.absent.diagonal()?,
        })
    }

    /// Waits for the distances of the columns that were asked for from one another and from all that follow: (those and all that
    /// follow, those). Numbers of rows likewise, unless all codes of all columns are known.
    ///
    /// # Errors
    /// [`Error::Argument`] for a diagonal of another metric, of other columns or of another number of rows, and for sums of the diagonal
    /// itself; what the device reports.
    pub fn finish_columns(self, diagonal: &PackedDiagonal) -> Result<Distances> {
        let op = "PackedPairs::finish_columns";
        if self.wanted == Wanted::Diagonal {
            return Err(mistaken(op, &self.wanted));
        }
        let own = (self.metric, self.recipe, self.sums.columns(), self.rows);
        let given = (diagonal.metric, diagonal.recipe, diagonal.sums.len() as u64, diagonal.rows);
        if own != given {
            let words = |(metric, recipe, columns, rows)| {
                let ones = if recipe == Recipe::ONES_DIFFER { " with ones that differ" } else { "" };
                format!("{metric}{ones} of {columns} columns and {rows} rows")
            };
            let why = format_args!("{}, for {}", words(given), words(own));
            return Err(Error::argument(op, "diagonal", why));
        }
        self.results(Some(diagonal))
    }

    fn results(self, diagonal: Option<&PackedDiagonal>) -> Result<Distances> {
        let Self { metric, recipe, missing, sums, absent, ones, of_columns, rows, complete, .. } = self;
        let (device, n) = (sums.device().clone(), to_usize(sums.columns()));
        // Of symmetric sums, what all pairs of two columns add: those of each with itself, less twice those of both.
        let spread = |both: i64, [one, other]: [i64; 2]| (one + other - 2 * both) as f64 * UNIT;
        let is_spread = matches!(recipe, Recipe::Spreads(_));
        let squares = diagonal.map_or_else(Vec::new, |diagonal| diagonal.sums.clone());
        let mut distances = match is_spread {
            true => sums.panel(squares, spread)?,
            false => sums.panel(squares, |both, _| both as f64)?,
        };
        let (start, width) = (n - distances.rows(), distances.cols());
        let rows = rows as f64;
        let moments = of_columns.map(|moments| moments.finish(&distances)).transpose()?;
        let ones = ones.map(PairProducts::diagonal).transpose()?;
        let distance = |pair: [usize; 2], sum: f64, shared: f64| {
            let ones = ones.as_ref().map_or(0, |ones| pair.iter().map(|&column| ones[column]).sum::<i64>());
            let sum = sum + ones as f64 / 2.0;
            match &moments {
                Some(_) if shared == 0.0 && missing == Missing::RescaleOrZero => 0.0,
                Some(moments) => moments.distance(metric, pair, sum, shared),
                None if complete && rows > 0.0 => metric.distance(&[sum], rows, Missing::Propagate, 0.0),
                None => metric.distance(&[sum, shared], rows, missing, 0.0),
            }
        };
        if complete {
            let finish = |(i, row): (usize, &mut [f64])| {
                let entries = row.iter_mut().enumerate();
                entries.for_each(|(j, value)| *value = distance([start + i, start + j], *value, rows));
            };
            let all = |data: &mut [f64]| data.par_chunks_mut(width.max(1)).enumerate().for_each(finish);
            device.pool()?.install(|| all(distances.data_mut()));
            return Ok(Distances { distances, shared: None });
        }
        let mut absent = absent.panel(Vec::new(), |both, _| both as f64)?;
        let missing_of: Vec<f64> = match diagonal {
            Some(diagonal) => diagonal.absent.iter().map(|&count| count as f64).collect(),
            None => (0..n).map(|i| absent.row(i)[i]).collect(),
        };
        let rows_of = distances.data_mut().par_chunks_mut(width).zip(absent.data_mut().par_chunks_mut(width));
        let finish = |(i, (distances, absent)): (usize, (&mut [f64], &mut [f64]))| {
            for (j, (value, absent)) in distances.iter_mut().zip(absent).enumerate() {
                let (i, j) = (start + i, start + j);
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

/// The error of sums that are not for what was called.
fn mistaken(op: &'static str, wanted: &Wanted) -> Error {
    let why = match wanted {
        Wanted::From(own) => format!("sums of the columns {own:?} with all that follow"),
        Wanted::Diagonal => "sums of the diagonal".to_owned(),
    };
    Error::argument(op, "self", why)
}

/// What the distances of some columns need to know of all: [`PackedPairs::finish_columns`].
#[derive(Clone, Debug)]
pub struct PackedDiagonal {
    metric: Metric,
    recipe: Recipe,
    rows: u64,
    sums: Vec<i64>,
    absent: Vec<i64>,
}

impl PackedDiagonal {
    /// Whether no code of the rows that were added is missing: then no distances have numbers of rows.
    pub fn is_complete(&self) -> bool {
        self.absent.iter().all(|&count| count == 0)
    }
}
