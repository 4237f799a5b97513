//! The shares of the members of a group: each computes some parts of the pairs.

use std::ops::Range;

use crate::kernels::distance::TILE;

/// The number of parts of the observations of x that each member of a group has, if there are as many tiles.
const PARTS: u64 = 4;

/// Returns the parts of some observations of x whose pairs a member of a group computes: about as many pairs as each other member, also of a lower
/// triangle. Parts are whole tiles. They do not depend on the size of a member's blocks.
pub(super) fn share_of(rows: Range<u64>, share: [u64; 2]) -> impl Iterator<Item = Range<u64>> {
    let (tile, [_, members]) = (u64::from(TILE), share);
    let tiles = (rows.end - rows.start).div_ceil(tile);
    let count = if members == 1 { 1 } else { tiles.clamp(1, PARTS * members) };
    let cut = move |i: u64| rows.end.min(rows.start + tiles * i / count * tile);
    dealt((0..count).map(move |i| cut(i)..cut(i + 1)), share)
}

/// Returns the parts of a member of a group: about as many, and as much in all, as those of each other member, also if later parts are larger.
pub(super) fn dealt<P>(
    parts: impl Iterator<Item = P>,
    [member, members]: [u64; 2],
) -> impl Iterator<Item = P> {
    let own = parts.zip(0..).filter(move |(_, i)| {
        let (round, place) = (i / members, i % members);
        member == if round % 2 == 0 { place } else { members - 1 - place }
    });
    own.map(|(part, _)| part)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Members have all rows once, and about as many pairs.
    #[test]
    fn shares_are_alike() {
        for members in [1, 2, 3, 4, 8] {
            for m in [0, 1, 63, 64, 330, 3135, 8272, 20_480, 100_000] {
                let parts: Vec<Vec<_>> =
                    (0..members).map(|member| share_of(0..m, [member, members]).collect()).collect();
                let mut cuts: Vec<_> = parts.concat().iter().map(|part| (part.start, part.end)).collect();
                cuts.sort_unstable();
                assert!(cuts.windows(2).all(|pair| pair[0].1 == pair[1].0), "{members} {m}: {cuts:?}");
                assert_eq!((cuts[0].0, cuts[cuts.len() - 1].1), (0, m));
                let triangle = |part: &Range<u64>| (part.end - part.start) * (part.start + part.end);
                let rows = |part: &Range<u64>| part.end - part.start;
                for load in [&triangle as &dyn Fn(&Range<u64>) -> u64, &rows] {
                    let loads: Vec<u64> = parts.iter().map(|own| own.iter().map(load).sum()).collect();
                    let mean = loads.iter().sum::<u64>() as f64 / members as f64;
                    let most = loads.iter().copied().fold(0, u64::max) as f64;
                    assert!(m < 2500 * members || most <= 1.1 * mean, "{members} {m}: {loads:?}");
                }
            }
        }
    }
}
