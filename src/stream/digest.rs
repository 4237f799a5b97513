//! Digests of the bytes that a pass read, for the comparison of two passes.

pub use crate::digest::digest;

/// For each array, the sum of the digests of its decoded chunks, which does not depend on the order in which the chunks arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digests(Vec<u64>);

impl Digests {
    pub(super) fn new(arrays: usize) -> Self {
        Self(vec![0; arrays])
    }

    pub(super) fn add(&mut self, array: usize, digest: u64) {
        self.0[array] = self.0[array].wrapping_add(digest);
    }

    /// Returns the first array whose digests differ, or that is missing from one of the two.
    pub fn differ(&self, other: &Self) -> Option<usize> {
        (0..self.0.len().max(other.0.len())).find(|&array| self.0.get(array) != other.0.get(array))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_array_that_changed_is_told() {
        let mut passes = [Digests::new(2), Digests::new(2)];
        for (pass, order) in passes.iter_mut().zip([[1, 2], [2, 1]]) {
            order.iter().for_each(|&place| pass.add(1, digest(place, b"same")));
        }
        assert_eq!(passes[0].differ(&passes[1]), None);
        passes[1].add(1, 1);
        assert_eq!(passes[0].differ(&passes[1]), Some(1));
        let longer = Digests([&passes[0].0[..], &[0]].concat());
        assert_eq!([passes[0].differ(&longer), longer.differ(&passes[0])], [Some(2); 2]);
    }
}
