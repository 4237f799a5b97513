//! Writing of a level that is larger than memory, from means of the level before.

use std::sync::Arc;

use rayon::prelude::*;
use teatime::{
    ChunkedArray, Device, Error, Needs, Result, Run, Status, StoredType,
    store::{ArraySpec, ArrayWriter},
    stream::{Along, AsStored, Blocks, Plan, Selection},
};

use crate::mean::{Mean, means};

/// The number of buffers for writing a tile: its pixels, the pixels padded to a whole tile, and the encoded bytes.
const BUFFERS: u64 = 3;

/// The plan of a reduction, the boxes of which are computed to tiles.
struct Reduction {
    plan: Plan,
    along: Vec<Along>,
    /// The bytes for writing a tile.
    each: u64,
}

impl Reduction {
    fn new(from: Arc<dyn ChunkedArray>, to: &ArraySpec, factors: &[u64]) -> Result<Self> {
        let (tile, dtype) = (to.shard_shape.as_ref().unwrap_or(&to.chunk_shape), from.dtype());
        let along =
            tile.iter().zip(factors).map(|(extent, factor)| Along::each(extent.saturating_mul(*factor)));
        let along: Vec<Along> = along.collect();
        let rows = Arc::new(Selection::all(from.shape()[0]));
        let plan = Plan::new(vec![from], rows, None, Arc::new(AsStored(dtype)), &along)?;
        let written = BUFFERS * dtype.size() as u64;
        let each = tile.iter().fold(written, |bytes, &extent| bytes.saturating_mul(extent));
        Ok(Self { plan, along, each })
    }

    /// Returns the memory for one tile at a time. Two boxes are staged at a time.
    fn needs(&self) -> Needs {
        Needs::host(self.plan.largest_need())
            + Needs::host(self.plan.block_bytes()) * 2
            + Needs::host(self.each)
    }
}

/// Returns the memory that [`reduce`] needs at least.
pub(crate) fn needs(from: Arc<dyn ChunkedArray>, to: &ArraySpec, factors: &[u64]) -> Result<Needs> {
    Ok(Reduction::new(from, to, factors)?.needs())
}

/// Writes the missing tiles of `to`, from means of `from` by `factors`. Reports progress from `status` on, in rows of `total`.
pub(crate) fn reduce(
    from: Arc<dyn ChunkedArray>,
    to: &ArrayWriter,
    factors: &[u64],
    device: &Device,
    run: &Run,
    status: Status,
) -> Result<()> {
    if to.left().next().is_none() {
        return Ok(());
    }
    macro_rules! with {
        ($($dtype:ident $type:ty),*) => {
            match from.dtype() {
                $(StoredType::$dtype => reduce_as::<$type>(from, to, factors, device, run, status),)*
                other => Err(Error::store(from.name(), format_args!("holds {other:?}, of which there are no means"))),
            }
        };
    }
    with!(I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64, F16 half::f16, F32 f32, F64 f64)
}

fn reduce_as<T: Mean>(
    from: Arc<dyn ChunkedArray>,
    to: &ArrayWriter,
    factors: &[u64],
    device: &Device,
    run: &Run,
    mut status: Status,
) -> Result<()> {
    let reduction = Reduction::new(from, to.spec(), factors)?;
    let spare = run.memory.fit(device, reduction.needs())?.left(device).host;
    let Reduction { plan, along, each } = reduction;
    let pool = device.pool()?;
    let threads = pool.current_num_threads() as u64;
    let ahead = plan.ahead(threads).min(spare / 2);
    let at_once = (1 + (spare - ahead) / each.max(1)).min(threads);
    plan.hold_shards(spare - ahead - (at_once - 1) * each);

    let written = to.tiles().map(|index| to.is_written(&index)).collect::<Result<Vec<_>>>()?;
    let tiles = written.len() as u64;
    let mut done = written.iter().filter(|written| **written).count() as u64;
    let mut blocks = Blocks::of_boxes(&plan, device, plan.largest_need() + ahead, written, &run.cancel)?;
    let mut waiting: Vec<(Vec<u64>, Vec<T>)> = Vec::new();
    while let Some(mut block) = blocks.next_block()? {
        done += 1;
        let index = block.core.iter().zip(&along).map(|(core, along)| core.start / along.size).collect();
        let shape = block.shape.clone();
        let bytes = block.bytes();
        waiting.push((index, pool.install(|| means(bytes, &shape, factors))));
        if waiting.len() as u64 == at_once || done == tiles {
            pool.install(|| waiting.par_iter().try_for_each(|(index, pixels)| to.write(index, pixels)))?;
            waiting.clear();
            let rows = u128::from(status.total) * u128::from(done) / u128::from(tiles);
            status.rows = u64::try_from(rows).unwrap_or(status.total);
            run.progress.tell(status);
        }
    }
    Ok(())
}
