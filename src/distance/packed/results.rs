//! The distances that sums of packed rows come to.

use rayon::prelude::*;

use super::{
    super::{Distances, Metric, Missing},
    PackedPairs, Recipe, UNIT,
    moments::Moments,
};
use crate::{
    Error, Result,
    linalg::gram::to_usize,
    packed::pair_products::{PairProducts, Wanted},
};

impl PackedPairs {
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

    /// Waits for the distances of the columns of the second matrix, as rows, from those of the first; numbers of rows likewise.
    ///
    /// # Errors
    /// [`Error::Argument`] for other sums than those [between](Self::between) two matrices; what the device reports.
    pub fn finish_between(self) -> Result<Distances> {
        match &self.wanted {
            Wanted::Across(_) => self.results(None),
            wanted => Err(mistaken("PackedPairs::finish_between", wanted)),
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
        if !matches!(self.wanted, Wanted::From(_)) {
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
        let Self { metric, recipe, missing, wanted, own, sums, absent, ones, of_columns, rows, complete } =
            self;
        let (device, n, own) = (sums.device().clone(), to_usize(sums.columns()), to_usize(own));
        let is_across = matches!(wanted, Wanted::Across(_));
        // Of symmetric sums, what all pairs of two columns add: those of each with itself, less twice those of both.
        let spread = |both: i64, [one, other]: [i64; 2]| (one + other - 2 * both) as f64 * UNIT;
        let product = |both: i64, _: [i64; 2]| both as f64;
        let is_spread = matches!(recipe, Recipe::Spreads(_));
        let squares = diagonal.map_or_else(Vec::new, |diagonal| diagonal.sums.clone());
        let (mut distances, squares) = match (is_across, is_spread) {
            (true, true) => sums.across(own, spread)?,
            (true, false) => sums.across(own, product)?,
            (false, true) => sums.panel(squares, spread)?,
            (false, false) => sums.panel(squares, product)?,
        };
        // The columns of the first entry.
        let (start, width) = (n - distances.rows(), distances.cols());
        let first = if is_across { 0 } else { start };
        let of_pairs = OfPairs {
            metric,
            missing,
            rows: rows as f64,
            complete,
            moments: of_columns.map(|moments| moments.finish(&squares)).transpose()?,
            ones: ones.map(PairProducts::diagonal).transpose()?,
        };
        if complete {
            let finish = |(i, row): (usize, &mut [f64])| {
                let entries = row.iter_mut().enumerate();
                entries.for_each(|(j, value)| {
                    *value = of_pairs.distance([start + i, first + j], *value, of_pairs.rows);
                });
            };
            let all = |data: &mut [f64]| data.par_chunks_mut(width.max(1)).enumerate().for_each(finish);
            device.pool()?.install(|| all(distances.data_mut()));
            return Ok(Distances { distances, shared: None });
        }
        let known = diagonal.map_or_else(Vec::new, |diagonal| diagonal.absent.clone());
        let (mut absent, missing_of) =
            if is_across { absent.across(own, product)? } else { absent.panel(known, product)? };
        let rows_of = distances.data_mut().par_chunks_mut(width).zip(absent.data_mut().par_chunks_mut(width));
        let finish = |(i, (distances, absent)): (usize, (&mut [f64], &mut [f64]))| {
            for (j, (value, absent)) in distances.iter_mut().zip(absent).enumerate() {
                let (i, j) = (start + i, first + j);
                let alone = (missing_of[i] + missing_of[j]) as f64;
                let sum = if is_spread { *value - (alone - 2.0 * *absent) / 2.0 } else { *value };
                let shared = of_pairs.rows - alone + *absent;
                let is_missing = missing == Missing::Propagate && alone > 0.0;
                *value = if is_missing { f64::NAN } else { of_pairs.distance([i, j], sum, shared) };
                *absent = shared;
            }
        };
        device.pool()?.install(|| rows_of.enumerate().for_each(finish));
        Ok(Distances { distances, shared: Some(absent) })
    }
}

/// What distances are made of, besides the sums of pairs.
struct OfPairs {
    metric: Metric,
    missing: Missing,
    rows: f64,
    complete: bool,
    moments: Option<Moments>,
    /// How many codes of each column are 1, where they count.
    ones: Option<Vec<i64>>,
}

impl OfPairs {
    /// Of two columns, of the sum over the rows that both know, of which there are `shared`.
    fn distance(&self, pair: [usize; 2], sum: f64, shared: f64) -> f64 {
        let Self { metric, missing, rows, complete, ref moments, ref ones } = *self;
        let ones = ones.as_ref().map_or(0, |ones| pair.iter().map(|&column| ones[column]).sum::<i64>());
        let sum = sum + ones as f64 / 2.0;
        match moments {
            Some(_) if shared == 0.0 && missing == Missing::RescaleOrZero => 0.0,
            Some(moments) => moments.distance(metric, pair, sum, shared),
            None if complete && rows > 0.0 => metric.distance(&[sum], rows, Missing::Propagate, 0.0),
            None => metric.distance(&[sum, shared], rows, missing, 0.0),
        }
    }
}

/// The error of sums that are not for what was called.
fn mistaken(op: &'static str, wanted: &Wanted) -> Error {
    let why = match wanted {
        Wanted::From(own) => format!("sums of the columns {own:?} with all that follow"),
        Wanted::Across(_) => "sums of the columns of two matrices".to_owned(),
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
