//! Products of the codes of packed rows that are mostly 0, entry by entry.

use std::ops::Range;

use super::{
    adjoint::ColumnSums,
    apply::{pieces, step},
    row_words,
};
use crate::{
    Error, Result, Tensor,
    kernel::{Grid, Program, small},
    kernels::{
        WG, WG_ALONE,
        packed_pairs::{PACKED_PAIRS, Params},
    },
};

/// Returns the program that [`packed_pairs`] launches.
pub(crate) fn program() -> Program {
    Program::new(&PACKED_PAIRS, &WG_ALONE)
}

/// Adds the products of the codes of each entry and each column to `sums`, exactly. The columns are the entries themselves, or some whole
/// words of the row. Enqueues; does not wait.
///
/// `terms` (rows, 4) are the [`Terms`](crate::kernels::packed_pairs::Terms) of each row of `rows`. The work is to read the rows, and to
/// multiply the pairs of codes that are not 0. Fails with [`Error::Shape`] when the shapes do not fit; [`Error::Limit`]
/// when a row does not fit a binding.
pub(crate) fn packed_pairs(
    packed: &Tensor<u32>,
    rows: Range<u64>,
    terms: &Tensor<u32>,
    sums: &mut ColumnSums,
) -> Result<()> {
    let op = "packed_pairs";
    let [held, words] = packed.matrix(op)?;
    let [entries, columns, _] = *sums.words.shape() else {
        return Err(Error::shape(op, "sums of (entries, columns, 2)", ""));
    };
    let count = rows.end.saturating_sub(rows.start);
    // There may be sums for only some entries of a row, from one word on.
    let until = row_words(16 * sums.first + entries);
    let fits = rows.end <= held && until <= words;
    let is_same = sums.own == sums.first;
    let fits = fits && sums.own + columns.div_ceil(16) <= words;
    let fits = fits
        && (is_same && columns == entries || columns.is_multiple_of(16) && (!is_same || columns < entries));
    if !fits || *terms.shape() != [count, 4] {
        let expected = format!("rows of {entries} entries from word {} on, {count} x 4 terms", sums.first);
        let got = format_args!("rows {rows:?} of {held} x {words}, {:?}", terms.shape());
        return Err(Error::shape(op, expected, got));
    }
    if count == 0 || entries == 0 || columns == 0 {
        return Ok(());
    }
    let device = packed.device();
    let step = step(device, words, 4 * words.max(4))?;
    let wide = sums.words_at_once()?;
    for (first, last) in pieces(0..count, step) {
        let x = packed.window((rows.start + first) * words..(rows.start + last) * words);
        let table = terms.window(4 * first..4 * last);
        let start = sums.first;
        for (word, end) in pieces(start..until, wide) {
            let [from, to] = [word, end].map(|word| (16 * (word - start)).min(entries));
            let target = sums.words.window_update(from * columns * 2..to * columns * 2);
            let params = Params {
                rows: small(last - first),
                words: small(words),
                columns: small(columns),
                word0: small(word),
                word_count: small(end - word),
                column_word: small(sums.own),
                packed0: x.start,
                table0: table.start,
                sums0: target.start,
            };
            let items = (last - first) * (end - word);
            let grid = Grid::linear(items.div_ceil(WG.into()), device.limits().groups_per_axis, items)?;
            device.launch(&PACKED_PAIRS, &WG_ALONE, grid, &[x.arg, table.arg, target.arg], &params)?;
        }
    }
    Ok(())
}
