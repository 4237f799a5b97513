//! Broadcasting of shapes by numpy's rule, and their reduction to few axes.

use crate::{Error, Result};

/// Returns the broadcast shape: axes are aligned from the last, and an extent of 1 repeats. Fails with [`Error::Shape`]
/// where two extents differ and neither is 1.
pub(crate) fn together(op: &'static str, shapes: &[&[u64]]) -> Result<Vec<u64>> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut out = vec![1; rank];
    for shape in shapes {
        for (out, &extent) in out[rank - shape.len()..].iter_mut().zip(*shape) {
            match (*out, extent) {
                (_, 1) => {}
                (1, _) => *out = extent,
                (before, extent) if before == extent => {}
                _ => {
                    return Err(Error::shape(op, "extents that are equal, or 1", listed(shapes)));
                }
            }
        }
    }
    Ok(out)
}

fn listed(shapes: &[&[u64]]) -> String {
    shapes.iter().map(|shape| format!("{shape:?}")).collect::<Vec<_>>().join(", ")
}

/// The axes of a broadcast result after adjacent axes that the same operands have are merged, and each operand's strides along them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axes<const N: usize> {
    pub(crate) extents: [u64; 3],
    pub(crate) steps: [[u64; 3]; N],
}

impl<const N: usize> Axes<N> {
    /// Merges the axes of operands of these shapes, for a result of shape `out`, to three. The last axis is the innermost. With two axes, the
    /// middle one has extent 1. A single axis is the last. Fails with [`Error::Shape`] for more than three merged axes.
    pub(crate) fn new(op: &'static str, out: &[u64], shapes: [&[u64]; N]) -> Result<Self> {
        // Each axis has its extent and flags for the operands that have it.
        let mut axes: Vec<(u64, [bool; N])> = Vec::new();
        for (i, &extent) in out.iter().enumerate().filter(|(_, extent)| **extent != 1) {
            let has =
                shapes.map(|shape| (i + shape.len()).checked_sub(out.len()).is_some_and(|i| shape[i] != 1));
            match axes.last_mut() {
                Some((before, who)) if *who == has => *before *= extent,
                _ => axes.push((extent, has)),
            }
        }
        let none = (1, [false; N]);
        let axes = match axes[..] {
            [] => [none; 3],
            [last] => [none, none, last],
            [first, last] => [first, none, last],
            [first, middle, last] => [first, middle, last],
            _ => {
                let expected = "axes of which at most three runs repeat in different operands";
                return Err(Error::shape(op, expected, listed(&shapes)));
            }
        };
        let steps = std::array::from_fn(|operand| {
            let mut step = 1;
            let mut steps = [0; 3];
            for (out, (extent, has)) in steps.iter_mut().zip(axes).rev() {
                if has[operand] {
                    *out = step;
                    step *= extent;
                }
            }
            steps
        });
        Ok(Self { extents: axes.map(|(extent, _)| extent), steps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_become_few() {
        let of = |out: &[u64], a: &[u64], b: &[u64]| Axes::new("zip", out, [a, b]).unwrap();
        let same = of(&[2, 3, 4], &[2, 3, 4], &[2, 3, 4]);
        assert_eq!(same, Axes { extents: [1, 1, 24], steps: [[0, 0, 1]; 2] });
        let row = of(&[2, 3, 4], &[2, 3, 4], &[4]);
        assert_eq!(row, Axes { extents: [6, 1, 4], steps: [[4, 0, 1], [0, 0, 1]] });
        let column = of(&[5, 4], &[5, 4], &[5, 1]);
        assert_eq!(column, Axes { extents: [5, 1, 4], steps: [[4, 0, 1], [1, 0, 0]] });
        let channel = of(&[2, 3, 4, 5], &[2, 3, 4, 5], &[3, 1, 1]);
        assert_eq!(channel, Axes { extents: [2, 3, 20], steps: [[60, 20, 1], [0, 1, 0]] });
        assert!(Axes::new("zip", &[2, 3, 4, 5], [&[2, 1, 4, 1], &[1, 3, 1, 5]]).is_err());
    }
}
