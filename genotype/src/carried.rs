//! The alleles of each variant that samples carry.

use std::slice::ChunksExact;

use teatime::{Device, Result, Run};

use super::{of_ploidy::alleles, ploidy::each_row_of_calls, source::Genotypes};

/// Returns the alleles of each selected variant that a selected sample carries: bit a of the variant's
/// integer is set for allele a, and allele 0 is the reference. Calls with a missing allele do not count.
///
/// # Cost
/// One pass; holds in memory 16 bytes for each variant, two blocks of 8 MiB, or of one variant if that is more, and the chunks of one block.
///
/// # Errors
/// Fails as [`call_ploidies`](super::call_ploidies) does.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, store::MemoryArray};
/// use teatime_genotype::{Genotypes, carried_alleles};
///
/// // Two variants of two samples: the first has the alleles 0 and 2, the second 1 and a call that is missing in part.
/// let calls = MemoryArray::new("calls", &[0i8, 2, 0, 0, 1, 1, 2, -1], &[2, 2, 2], &[1, 2, 2])?;
/// let genotypes = Genotypes::new(vec![Arc::new(calls)])?;
/// assert_eq!(carried_alleles(&genotypes, &Device::cpu(), &Run::default())?, [0b101, 0b10]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn carried_alleles(genotypes: &Genotypes, device: &Device, run: &Run) -> Result<Vec<u128>> {
    let mut carried = Vec::new();
    let of_row = |calls: ChunksExact<'_, i8>| {
        let known = calls.filter(|call| alleles(call).is_some()).flatten().filter(|allele| **allele >= 0);
        known.fold(0_u128, |bits, allele| bits | 1 << allele)
    };
    let held = genotypes.variants().saturating_mul(size_of::<u128>() as u64);
    let op = "carried_alleles";
    each_row_of_calls(op, genotypes, device, run, held, &of_row, &mut |bits| carried.push(bits))?;
    Ok(carried)
}
