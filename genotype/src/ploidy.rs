//! Counting of calls with different numbers of alleles in one array.
//!
//! One call of three alleles among diploid ones makes a whole array three alleles wide; the other calls are padded with -2.

use std::{slice::ChunksExact, sync::Arc};

use rayon::prelude::*;
use teatime::{
    Device, Error, Result, Run, Status,
    linalg::Pass,
    stream::{Blocks, Narrow, Narrowed},
};

use super::{
    of_ploidy::{alleles, fits},
    source::{GenotypeKind, Genotypes},
    to_usize,
};

const OP: &str = "call_ploidies";

/// Bytes of the calls that are counted at once, unless one variant has more.
const BLOCK: u64 = 8 << 20;

/// The number of calls for each number of alleles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPloidies {
    counts: Vec<u64>,
}

impl CallPloidies {
    /// Returns the counts: at index a, the number of calls with a alleles. Calls with a missing allele, and calls without any allele, do not count.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Returns the ploidy that most calls fit, or the lowest of several that equally many calls fit.
    /// Calls of one allele fit 2 as well, so the ploidy is 1 only if no call can have more alleles.
    pub fn common(&self) -> u64 {
        let most = self.counts.len() as u64 - 1;
        (most.min(2)..=most).min_by_key(|&ploidy| self.unfit(ploidy)).unwrap_or(most)
    }

    /// Returns the number of calls that do not fit a ploidy, and that [`Genotypes::with_ploidy`] makes missing.
    pub fn unfit(&self, ploidy: u64) -> u64 {
        let unfit = (0..).zip(&self.counts).filter(|(alleles, _)| !fits(*alleles, ploidy));
        unfit.map(|(_, calls)| calls).sum()
    }
}

/// Counts the selected calls by their number of alleles.
///
/// # Cost
/// One pass; holds in memory two blocks of 8 MiB, or of one variant if that is more, and the chunks of one block.
///
/// # Errors
/// [`Error::Argument`] for genotypes that are not calls; [`Error::Budget`] with the smallest budget
/// that would do; [`Error::Chunk`] for a damaged or missing chunk; [`Error::Cancelled`].
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, store::MemoryArray};
/// use teatime_genotype::{Genotypes, call_ploidies};
///
/// // One variant of three samples: a diploid call, one of three alleles, and a missing one.
/// let calls = MemoryArray::new("calls", &[0i8, 1, -2, 0, 1, 1, -1, -1, -2], &[1, 3, 3], &[1, 3, 3])?;
/// let genotypes = Genotypes::new(vec![Arc::new(calls)])?;
/// let ploidies = call_ploidies(&genotypes, &Device::cpu(), &Run::default())?;
/// assert_eq!((ploidies.counts(), ploidies.unfit(2)), (&[0, 0, 1, 1][..], 1));
/// let diploid = genotypes.with_ploidy(ploidies.common())?;
/// assert_eq!(diploid.ploidy(), 2);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn call_ploidies(genotypes: &Genotypes, device: &Device, run: &Run) -> Result<CallPloidies> {
    let none = vec![0; to_usize(genotypes.ploidy()) + 1];
    let mut counts = none.clone();
    let of_row = |calls: ChunksExact<'_, i8>| {
        calls.fold(none.clone(), |mut counts: Vec<u64>, call| {
            counts[alleles(call).unwrap_or(0)] += 1;
            counts
        })
    };
    each_row_of_calls(OP, genotypes, device, run, 0, &of_row, &mut |added| {
        counts.iter_mut().zip(added).for_each(|(count, added)| *count += added);
    })?;
    counts[0] = 0;
    Ok(CallPloidies { counts })
}

/// Gives `take` a value that `of_row` makes of the calls of each selected variant, in one pass, in order. They take `held` bytes in all.
pub(super) fn each_row_of_calls<T: Send>(
    op: &'static str,
    genotypes: &Genotypes,
    device: &Device,
    run: &Run,
    held: u64,
    of_row: &(dyn Fn(ChunksExact<'_, i8>) -> T + Sync),
    take: &mut dyn FnMut(T),
) -> Result<()> {
    let GenotypeKind::Calls { ploidy } = genotypes.kind() else {
        return Err(Error::argument(op, "genotypes", "they are dosages or PLINK's codes, not calls"));
    };
    // A value that is no allele is left for the next pass to refuse.
    let range = [i8::MIN, i8::MAX].map(f64::from);
    let narrow = Narrow { to: Narrowed::I8, range, negative_is_missing: false, nan_is_missing: false };
    let rows = (BLOCK / (genotypes.samples() * ploidy).max(1)).max(1);
    let plan = genotypes.plan(Arc::new(narrow), rows)?;
    let needed = (2 * plan.block_bytes())
        .saturating_add(plan.largest_need())
        .saturating_add(plan.selection_bytes())
        .saturating_add(held);
    let left = run.memory.fit_host(needed)?.left(device).host;

    let (row, width) = (to_usize(plan.row_bytes()).max(1), to_usize(ploidy));
    let ahead = plan.ahead(device.pool()?.current_num_threads() as u64).min(left);
    plan.hold_shards(left - ahead);
    let chunk_bytes = plan.largest_need().saturating_add(ahead);
    let mut blocks = Blocks::new(&plan, device, plan.block_rows(), chunk_bytes, &run.cancel)?;
    let pass = Pass::new(run, Status::new(0, 1, plan.rows()));
    while let Some(mut block) = blocks.next_block()? {
        run.cancel.check()?;
        let end = block.rows().end;
        let block = block.bytes().par_chunks(row);
        let of_bytes = |row: &[u8]| of_row(bytemuck::cast_slice(row).chunks_exact(width));
        let made: Vec<T> = device.pool()?.install(|| block.map(of_bytes).collect());
        made.into_iter().for_each(&mut *take);
        pass.tell(end)?;
    }
    Ok(())
}
