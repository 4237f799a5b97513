//! The distances computed from sums of packed rows.

use rayon::prelude::*;

use super::{
    super::{Distances, Metric, Missing, PartialSums, results::zeros},
    PackedPairs, Recipe, UNIT,
    moments::{ColumnMoments, Moments},
};
use crate::{
    Error, Result,
    extent::to_usize,
    kernels::distance::Term,
    linalg::Matrix,
    packed::pair_products::{PairProducts, PairSet},
};

impl PackedPairs {
    /// Waits and returns the distances, (columns, columns); of two matrices, from the columns of the second (rows) to those of the first. Unless
    /// all codes are known, also returns the number of rows in which both columns are known, in the same shape.
    ///
    /// # Errors
    /// [`Error::Argument`] for sums of [some columns](super::ColumnPairs::Band) or of the [diagonal](super::ColumnPairs::Diagonal); what the device reports.
    pub fn finish(self) -> Result<Distances> {
        match &self.wanted {
            PairSet::From(own) if *own != (0..self.sums.columns()) => {
                Err(mistaken("PackedPairs::finish", &self.wanted))
            }
            PairSet::Diagonal => Err(mistaken("PackedPairs::finish", &self.wanted)),
            PairSet::From(_) | PairSet::Across(_) => self.results(None),
        }
    }

    /// Waits and returns the sums of each column with itself, over the same rows as the sums for the distances.
    ///
    /// # Errors
    /// [`Error::Argument`] for sums of other pairs than a [diagonal](super::ColumnPairs::Diagonal); what the device reports.
    pub fn finish_diagonal(self) -> Result<PackedDiagonal> {
        if self.wanted != PairSet::Diagonal {
            return Err(mistaken("PackedPairs::finish_diagonal", &self.wanted));
        }
        let Self { metric, recipe, rows, .. } = self;
        let (sums, absent) = (self.sums.diagonal()?, self.absent.diagonal()?);
        Ok(PackedDiagonal { metric, recipe, rows, sums, absent })
    }

    /// Waits and returns the distances of the `own` columns from one another and from all later columns. Rows are `own` and all later columns,
    /// columns are `own`. Row counts have the same shape, and are present unless all codes of all columns are known.
    ///
    /// # Errors
    /// [`Error::Argument`] for a diagonal of another metric, of other columns or of another number of rows, and for sums that are a diagonal
    /// themselves; what the device reports.
    pub fn finish_columns(self, diagonal: &PackedDiagonal) -> Result<Distances> {
        let op = "PackedPairs::finish_columns";
        if !matches!(self.wanted, PairSet::From(_)) {
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

    /// Waits and returns the sums themselves, which merge with sums over other rows and become the distances that [`finish`](Self::finish)
    /// returns. In the exported sums, negative elements count as missing unless missing elements are propagated.
    ///
    /// # Errors
    /// [`Error::Argument`] for sums of [some columns](super::ColumnPairs::Band), of the [diagonal](super::ColumnPairs::Diagonal), [between](super::ColumnPairs::Between) two
    /// matrices or with [1s that differ](Self::ones_differ); [`Error::OutOfHostMemory`]; what the device reports.
    ///
    /// # Cost
    /// One thread. Host memory: a [`PartialSums`] in addition to the memory that [`needs`](Self::needs) returns.
    pub fn export(self) -> Result<PartialSums> {
        const OP: &str = "PackedPairs::export";
        if self.wanted != PairSet::From(0..self.sums.columns()) {
            return Err(mistaken(OP, &self.wanted));
        }
        if self.recipe == Recipe::ONES_DIFFER {
            return Err(Error::argument(OP, "self", "1s that differ: no metric is made of them"));
        }
        let (metric, masked, n) = (self.metric, self.missing != Missing::Propagate, self.sums.columns());
        let mut exported = PartialSums {
            metric,
            missing: self.missing,
            negative: masked,
            features: self.rows,
            wide: true,
            undefined_x: zeros(to_usize(n))?,
            undefined_y: None,
            frames_x: if ColumnMoments::serve(metric) { vec![[0.0, 1.0]; to_usize(n)] } else { Vec::new() },
            frames_y: None,
            sums: Vec::new(),
        };
        let HostSums { of_pairs, pairs, absent, .. } = self.on_host(None)?;
        if !masked {
            let undefined = exported.undefined_x.iter_mut().zip(&of_pairs.missing_of);
            undefined.for_each(|(undefined, count)| *undefined = *count > 0);
        }
        let terms = metric.terms_in_parts(masked);
        exported.sums = terms.iter().map(|_| zeros(exported.pairs())).collect::<Result<_>>()?;
        let rows = (0..to_usize(n)).flat_map(|i| (0..=i).map(move |j| [i, j]));
        for (place, pair @ [i, j]) in rows.enumerate() {
            let count = absent.as_ref().map(|absent| absent[(i, j)]);
            let known = of_pairs.known(pair, pairs[(i, j)], count);
            for (&term, sums) in terms.iter().zip(&mut exported.sums) {
                sums[place] = of_pairs.term(term, pair, known);
            }
        }
        Ok(exported)
    }

    fn results(self, diagonal: Option<&PackedDiagonal>) -> Result<Distances> {
        let device = self.sums.device().clone();
        let HostSums { of_pairs, mut pairs, mut absent, first: [start, first] } = self.on_host(diagonal)?;
        let width = pairs.cols().max(1);
        let finish = |i: usize, row: &mut [f64], mut counts: Option<&mut [f64]>| {
            for (j, value) in row.iter_mut().enumerate() {
                let pair = [start + i, first + j];
                let count = counts.as_mut().map(|counts| &mut counts[j]);
                let [sum, shared] = of_pairs.known(pair, *value, count.as_deref().copied());
                *value = of_pairs.distance(pair, sum, shared);
                if let Some(count) = count {
                    *count = shared;
                }
            }
        };
        let rows = pairs.data_mut().par_chunks_mut(width).enumerate();
        device.pool()?.install(|| match &mut absent {
            Some(absent) => {
                let counts = absent.data_mut().par_chunks_mut(width);
                rows.zip(counts).for_each(|((i, row), counts)| finish(i, row, Some(counts)));
            }
            None => rows.for_each(|(i, row)| finish(i, row, None)),
        });
        Ok(Distances { distances: pairs, shared: absent })
    }

    /// Waits for the sums and moves them to the host.
    fn on_host(self, diagonal: Option<&PackedDiagonal>) -> Result<HostSums> {
        let Self { metric, recipe, missing, wanted, own, sums, absent, ones, of_columns, rows, complete } =
            self;
        let (n, own) = (to_usize(sums.columns()), to_usize(own));
        let is_across = matches!(wanted, PairSet::Across(_));
        // The spread of two columns is each column's sum with itself, minus twice the sum of their products.
        let spread = |both: i64, [one, other]: [i64; 2]| (one + other - 2 * both) as f64 * UNIT;
        let product = |both: i64, _: [i64; 2]| both as f64;
        let is_spread = matches!(recipe, Recipe::Spreads(_));
        let squares = diagonal.map_or_else(Vec::new, |diagonal| diagonal.sums.clone());
        let (pairs, squares) = match (is_across, is_spread) {
            (true, true) => sums.across(own, spread)?,
            (true, false) => sums.across(own, product)?,
            (false, true) => sums.panel(squares, spread)?,
            (false, false) => sums.panel(squares, product)?,
        };
        let start = n - pairs.rows();
        let (absent, missing_of) = if complete {
            (None, vec![0; n])
        } else {
            let known = diagonal.map_or_else(Vec::new, |diagonal| diagonal.absent.clone());
            let (absent, missing_of) =
                if is_across { absent.across(own, product)? } else { absent.panel(known, product)? };
            (Some(absent), missing_of)
        };
        let of_pairs = OfPairs {
            metric,
            missing,
            is_spread,
            rows: rows as f64,
            missing_of,
            moments: of_columns.map(|moments| moments.finish(&squares)).transpose()?,
            ones: ones.map(PairProducts::diagonal).transpose()?,
        };
        Ok(HostSums { of_pairs, pairs, absent, first: [start, if is_across { 0 } else { start }] })
    }
}

struct HostSums {
    of_pairs: OfPairs,
    /// The sum of each pair over all rows, including rows where a code is missing.
    pairs: Matrix,
    /// For each pair, the number of rows in which both columns are missing. None if all codes are known.
    absent: Option<Matrix>,
    /// The two columns of the first entry.
    first: [usize; 2],
}

/// The inputs of distances other than the sums of pairs.
struct OfPairs {
    metric: Metric,
    missing: Missing,
    is_spread: bool,
    rows: f64,
    /// The number of missing codes of each column.
    missing_of: Vec<i64>,
    moments: Option<Moments>,
    /// The number of codes 1 in each column. None unless 1s differ.
    ones: Option<Vec<i64>>,
}

impl OfPairs {
    /// Returns the sum of two columns over the rows in which both are known, and the number of these rows. `sum` is over all rows, and `absent`
    /// is the number of rows in which both columns are missing.
    fn known(&self, [i, j]: [usize; 2], sum: f64, absent: Option<f64>) -> [f64; 2] {
        let ones = self.ones.as_ref().map_or(0, |ones| ones[i] + ones[j]);
        let sum = sum + ones as f64 / 2.0;
        let Some(absent) = absent else { return [sum, self.rows] };
        let alone = (self.missing_of[i] + self.missing_of[j]) as f64;
        let sum = if self.is_spread { sum - (alone - 2.0 * absent) / 2.0 } else { sum };
        [sum, self.rows - alone + absent]
    }

    /// Returns the distance of two columns, from the sum over the `shared` rows in which both are known.
    fn distance(&self, pair: [usize; 2], sum: f64, shared: f64) -> f64 {
        let Self { metric, missing, rows, ref moments, .. } = *self;
        match moments {
            _ if missing == Missing::Propagate && shared < rows => f64::NAN,
            Some(_) if shared == 0.0 && missing == Missing::RescaleOrZero => 0.0,
            Some(moments) => moments.distance(metric, pair, sum, shared),
            None => metric.distance(&[sum, shared], rows, missing, 0.0),
        }
    }

    /// Returns the sum of a term of [`PartialSums`] for a pair.
    fn term(&self, term: Term, [i, j]: [usize; 2], [sum, shared]: [f64; 2]) -> f64 {
        let alone = |pair| self.moments.as_ref().map_or([0.0; 2], |moments| moments.sums(pair));
        match term {
            Term::Count => shared,
            Term::X => alone([i, j])[0],
            Term::XSquare => alone([i, j])[1],
            Term::Y => alone([j, i])[0],
            Term::YSquare => alone([j, i])[1],
            _ => sum,
        }
    }
}

/// Returns the error for a call that does not fit the kind of sums.
fn mistaken(op: &'static str, wanted: &PairSet) -> Error {
    let why = match wanted {
        PairSet::From(own) => format!("sums of the columns {own:?} with all that follow"),
        PairSet::Across(_) => "sums of the columns of two matrices".to_owned(),
        PairSet::Diagonal => "sums of the diagonal".to_owned(),
    };
    Error::argument(op, "self", why)
}

/// Sums of each column with itself, which [`PackedPairs::finish_columns`] needs for the distances of some columns.
#[derive(Clone, Debug)]
pub struct PackedDiagonal {
    metric: Metric,
    recipe: Recipe,
    rows: u64,
    sums: Vec<i64>,
    absent: Vec<i64>,
}

impl PackedDiagonal {
    /// True if no code of the added rows is missing. Then distances come without row counts.
    pub fn is_complete(&self) -> bool {
        self.absent.iter().all(|&count| count == 0)
    }
}
