//! Reads what is known of the variants of stores, in batches.

use teatime::{Result, to_usize};
use teatime_genotype::Variant;

use crate::store::Store;

/// Variants read at once.
const BATCH: u64 = 4096;

/// The variants of all stores, read in batches.
pub(crate) struct Variants<'a> {
    stores: &'a [Store],
    positions: bool,
    batch: Vec<Variant>,
    first: u64,
}

impl<'a> Variants<'a> {
    /// Without `positions`, those of a .bim are 0 and need not be numbers.
    pub(crate) fn new(stores: &'a [Store], positions: bool) -> Self {
        Self { stores, positions, batch: Vec::new(), first: 0 }
    }

    /// The variant of that number, counted over all stores; numbers come in ascending order.
    ///
    /// # Panics
    /// Panics where the stores have no variant of that number.
    pub(crate) fn get(&mut self, number: u64) -> Result<&mut Variant> {
        let within = |first: u64| to_usize(number.saturating_sub(first));
        if number < self.first || within(self.first) >= self.batch.len() {
            let mut start = 0;
            for store in self.stores {
                let end = start + store.n_variants();
                if number < end {
                    let range = number - start..end.min(number + BATCH) - start;
                    self.batch = store.variants(range, self.positions)?;
                    self.first = number;
                    break;
                }
                start = end;
            }
        }
        let at = within(self.first);
        Ok(self.batch.get_mut(at).expect("a variant that takes part should be in a store"))
    }
}
