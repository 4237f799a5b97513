//! Products with standardised packed rows with missing codes.

use teatime::{Device, Error, Tensor, random::philox, to_usize};

use super::rows::{COLUMNS, Kind, WORDS, operand, panel, size};
use crate::{
    measure::{Job, Session},
    report::Unit,
};

/// The numbers of rows, all powers of ten: a time can be scaled to the headline.
const ROWS: [u64; 5] = [100, 1000, 10_000, 100_000, 1_000_000];
/// The number of distinct random rows, which panels repeat.
const DRAWN: u64 = 256;

/// The cases: a name, how many of 100,000 codes are missing, and true if the kernels expect missing codes.
const CASES: [(&str, u32, bool); 4] = [
    ("none missing", 0, false),
    ("0 % missing", 0, true),
    ("0.1 % missing", 100, true),
    ("1 % missing", 1000, true),
];
/// The number of measurements: two for each case.
pub(super) const ENTRIES: f64 = 2.0 * CASES.len() as f64;

/// Measures the pass `Aᵀ (A X)`, and `A X` alone at the same number of rows.
pub(super) fn missing(session: &mut Session<'_>) {
    for (name, rate, expected) in CASES {
        let kind = Kind::standardised(expected);
        let (pass, apply) = (format!("pass, {name}"), format!("packed_apply, {name}"));
        let make = |device: &Device, &rows: &u64| job(device, rows, rate, kind, true);
        let Some(largest) = session.largest(&pass, Unit::Milliseconds, &ROWS, size, make) else { continue };
        let make = |device: &Device, &rows: &u64| job(device, rows, rate, kind, false);
        session.largest(&apply, Unit::Milliseconds, &ROWS[largest..=largest], size, make);
        session.difference(&format!("packed_adjoint, {name}"), &pass, &apply);
    }
}

/// Returns a job that enqueues a pass over `rows` rows, or its first half, without the operand and the sums.
fn job(device: &Device, rows: u64, rate: u32, kind: Kind, whole: bool) -> Result<Job, Error> {
    let panels = panels(device, rows, rate)?;
    let table = kind.table(device, rows.min(panel(device)))?;
    let mut pass = kind.start(device, &operand()?)?;
    Ok(Box::new(move || {
        let mut rows = panels.iter().map(|panel| kind.rows(panel));
        if whole {
            rows.try_for_each(|rows| pass.add(rows, &table))
        } else {
            rows.try_for_each(|rows| pass.weigh(rows, &table))
        }
    }))
}

/// Returns `rows` rows in panels. `rate` in 100,000 codes are missing, and the others are 0, 1 and 2 with equal probability.
fn panels(device: &Device, rows: u64, rate: u32) -> Result<Vec<Tensor<u32>>, Error> {
    let drawn: Vec<u32> = (0..DRAWN).flat_map(|row| drawn(row, rate)).collect();
    let most = panel(device);
    let made = |rows: u64| {
        let words: Vec<u32> = drawn.iter().copied().cycle().take(to_usize(rows * WORDS)).collect();
        Tensor::from_slice(device, &words, &[rows, WORDS])
    };
    let mut panels = Vec::new();
    let mut left = rows;
    while left > 0 {
        let rows = left.min(most);
        let copied = panels.first().filter(|_| rows == most).map(Tensor::try_clone);
        panels.push(copied.unwrap_or_else(|| made(rows))?);
        left -= rows;
    }
    Ok(panels)
}

/// Returns the words of a row, with zeros beyond the columns.
fn drawn(row: u64, rate: u32) -> impl Iterator<Item = u32> {
    let code = move |column: u64| {
        if column >= COLUMNS {
            return 0;
        }
        let [draw, code, ..] = philox([0x6d15, 0x5e6], row * COLUMNS + column);
        let missing = (u64::from(draw) * 100_000) >> 32 < rate.into();
        if missing { 3 } else { code % 3 }
    };
    (0..WORDS).map(move |word| (0..16).fold(0, |word_so_far, i| word_so_far | code(16 * word + i) << (2 * i)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_codes_are_missing_as_asked() {
        for (rate, most) in [(0, 0), (100, 40), (1000, 280)] {
            let words: Vec<u32> = drawn(3, rate).collect();
            assert_eq!(words.len() as u64, WORDS);
            let codes = |word: &u32| (0..16).map(|i| *word >> (2 * i) & 3).collect::<Vec<_>>();
            let codes: Vec<u32> = words.iter().flat_map(codes).collect();
            assert!(codes[to_usize(COLUMNS)..].iter().all(|&code| code == 0));
            let missing = codes.iter().filter(|&&code| code == 3).count();
            assert!(missing <= most && (rate == 0 || missing > 0), "{missing} of {rate} in 100,000");
        }
    }

    #[test]
    fn panels_hold_all_rows() {
        let panels = panels(&Device::cpu(), 1000, 100).unwrap_or_default();
        assert_eq!(panels.iter().map(|panel| panel.shape()[0]).sum::<u64>(), 1000);
    }
}
