//! Reading of stored matrices: checks, the element type after conversion, and the boxes that are read.

use std::{ops::Range, sync::Arc, time::Instant};

use crate::{
    Budget, Cancel, ChunkedArray, DType, Device, Element, Error, Needs, Result, Run, SharedArray, Status,
    StoredType, Tensor,
    distance::{Metric, Options, Partial, job::Measure, members::tiles},
    extent::to_usize,
    kernels::distance::BLOCK,
    stream::{
        Along, AsStored, Blocks, Convert, Narrow, Narrowed, Plan, Selection, StreamStats, load, rows_to_load,
    },
};

/// The number of features added at once, if memory allows: enough that the overhead of an addition is small.
const FEATURES: u64 = 1024;

/// The host memory in bytes for the state of an observation.
pub(super) const OBSERVATION: u64 = 32;

/// Returns the extents of a stored matrix, observations first.
fn extents(x: &Arc<dyn ChunkedArray>, columns: bool) -> Result<[u64; 2]> {
    match *x.shape() {
        [rows, cols] => Ok(if columns { [cols, rows] } else { [rows, cols] }),
        _ => Err(Error::shape("distance", "a matrix", format_args!("{} {:?}", x.name(), x.shape()))),
    }
}

/// Returns the plan for the largest of the sizes `size`, `smaller(size)` and so on that fits memory. The smallest is 1. If none fits, fails
/// with the error of the one that needs the least memory.
pub(super) fn largest_that_fits<P>(
    mut size: u64,
    smaller: impl Fn(u64) -> u64,
    plan: impl Fn(u64) -> Result<P>,
) -> Result<P> {
    let mut least: Option<Error> = None;
    loop {
        let error = match plan(size) {
            Err(error @ Error::Budget { .. }) => error,
            planned => return planned,
        };
        let error = match least.take() {
            Some(least) => error.or_of_less_memory(least),
            None => error,
        };
        if size == 1 {
            return Err(error);
        }
        (least, size) = (Some(error), smaller(size));
    }
}

/// The matrices to read, and their element type after conversion.
#[derive(Clone)]
pub(super) struct StoredOperands {
    pub(super) arrays: Vec<Arc<dyn ChunkedArray>>,
    pub(super) device: Device,
    pub(super) metric: Metric,
    pub(super) options: Options,
    /// The number of observations of each array.
    pub(super) counts: Vec<u64>,
    pub(super) features: u64,
    pub(super) staged: DType,
    convert: Arc<dyn Convert>,
}

/// A function that takes the core of a box, and the box of each array.
type BoxSink<'a, T> = dyn FnMut(&[Range<u64>], Vec<Tensor<T>>) -> Result<()> + 'a;

/// A plan for each array, each with the bytes for its chunks.
pub(super) type Plans = Vec<(u64, Plan)>;

impl StoredOperands {
    /// Fails with [`Error::Shape`]; [`Error::NoF64`]; [`Error::Argument`] as [`Metric::check`].
    pub(super) fn new<A: SharedArray>(
        x: &A,
        y: Option<&A>,
        metric: Metric,
        options: &Options,
        device: &Device,
    ) -> Result<Self> {
        metric.check(options.missing)?;
        options.not_expanded("distance")?;
        let arrays: Vec<_> = [Some(x), y].into_iter().flatten().map(A::shared).collect();
        let shapes =
            arrays.iter().map(|array| extents(array, options.columns)).collect::<Result<Vec<_>>>()?;
        let features = shapes[0][1];
        if let Some([_, others]) = shapes.iter().find(|[_, others]| *others != features) {
            let got = format_args!("{features} and {others}");
            return Err(Error::shape("distance", "as many features of x as of y", got));
        }
        let counts = shapes.iter().map(|[count, _]| *count).collect();
        let types: Vec<_> = arrays.iter().map(|array| array.dtype()).collect();
        let same = types.iter().all(|dtype| *dtype == types[0]);
        let beyond = [StoredType::I32, StoredType::U32, StoredType::I64, StoredType::U64];
        let as_stored = match types[0] {
            StoredType::Bool => Some(DType::U8),
            StoredType::F64 if options.narrow => None,
            dtype if beyond.contains(&dtype) => None,
            dtype => dtype.element(),
        };
        let whole = types.iter().any(|dtype| beyond.contains(dtype));
        let floats = [StoredType::F16, StoredType::F32, StoredType::F64];
        let mixed = !same && !types.iter().any(|dtype| floats.contains(dtype));
        let wide = types.contains(&StoredType::F64) || (whole || mixed) && device.limits().f64;
        let wide = wide && !options.narrow;
        let (to, staged) = if wide { (Narrowed::F64, DType::F64) } else { (Narrowed::F32, DType::F32) };
        let (staged, convert): (_, Arc<dyn Convert>) = match as_stored {
            Some(staged) if same => (staged, Arc::new(AsStored(types[0]))),
            _ => (staged, Arc::new(Narrow::finite(to, whole, true))),
        };
        if staged == DType::F64 {
            device.computes_f64("distance")?;
        }
        let (device, options) = (device.clone(), *options);
        Ok(Self { arrays, device, metric, options, counts, features, staged, convert })
    }

    /// Returns the measure for elements of type `T`, before any observation is known. Fails with [`Error::NoF64`].
    pub(super) fn measure<T: Element>(&self) -> Result<Measure> {
        Measure::new::<T>(&self.device, self.metric, &self.options, self.features, self.others().is_none())
    }

    /// Returns the same matrices, for a member of the device's group.
    pub(super) fn on(&self, member: &Device) -> Self {
        Self { device: member.clone(), ..self.clone() }
    }

    /// Returns the number of members of the device's group that share a search among all observations at once.
    pub(super) fn sharing(&self) -> usize {
        self.device.members().len().min(to_usize(tiles(self.counts[0]))).max(1)
    }

    /// Returns the number of observations of y.
    pub(super) fn others(&self) -> Option<u64> {
        self.counts.get(1).copied()
    }

    /// Returns the numbers of observations that are paired.
    pub(super) fn extents(&self) -> [u64; 2] {
        [self.counts[0], self.others().unwrap_or(self.counts[0])]
    }

    /// Returns the number of observations of all arrays.
    pub(super) fn observations(&self) -> u64 {
        self.counts.iter().copied().fold(0, u64::saturating_add)
    }

    /// Loads whole arrays, if memory holds them together with the `later` needs. Returns the tensors, the run with the memory that remains, and the
    /// digest of each array. Fails with [`Error::Budget`], and as [`load`] does.
    pub(super) fn load<T: Element>(
        &self,
        run: &Run,
        later: Needs,
        stats: &mut StreamStats,
    ) -> Result<(Vec<Tensor<T>>, Run, Vec<u64>)> {
        let (plans, memory) = self.to_load(&run.memory, later)?;
        let (mut tensors, mut digests) = (Vec::new(), Vec::new());
        for ((bytes, plan), array) in plans.iter().zip(&self.arrays) {
            let (tensor, digest) = load(plan, &self.device, array.shape(), *bytes, run, stats)?;
            tensors.push(tensor);
            digests.push(digest);
        }
        Ok((tensors, Run { memory, ..run.clone() }, digests))
    }

    /// Plans the loading of whole arrays, and returns the memory that remains once they are loaded. Fails with [`Error::Budget`].
    pub(super) fn to_load(&self, memory: &Budget, later: Needs) -> Result<(Plans, Budget)> {
        let device = &self.device;
        let plan = |array: &Arc<dyn ChunkedArray>| {
            let rows = rows_to_load(&**array, array.shape()[1].saturating_mul(self.staged.size()));
            let every_row = Arc::new(Selection::all(array.shape()[0]));
            let plan =
                Plan::of_rows(vec![Arc::clone(array)], every_row, None, Arc::clone(&self.convert), rows)?;
            Ok(plan.reading_in_place())
        };
        let plans = self.arrays.iter().map(plan).collect::<Result<Vec<_>>>()?;
        let of_pass = |plan: &Plan| plan.block_bytes().saturating_mul(2).saturating_add(plan.largest_need());
        // Each observation takes memory, even without features.
        let known = self.observations().saturating_mul(OBSERVATION);
        let reading = plans.iter().map(of_pass).max().unwrap_or(0).max(known);
        let held = Needs::device(self.staged.size()) * self.features * self.observations();
        memory.fit(device, held + Needs::host(reading).max(later.on(device)))?;
        let host = memory.fit(device, held + Needs::host(reading))?.left(device).host;
        // Once all arrays are loaded, reading takes no memory.
        Ok((self.with_bytes(plans, host), memory.fit(device, held)?))
    }

    /// Adds to each plan the bytes for the chunks of a box, and at most `most` for chunks decoded ahead and for whole shards.
    pub(super) fn with_bytes(&self, plans: Vec<Plan>, most: u64) -> Plans {
        let threads = self.device.threads() as u64;
        let bytes = |plan: &Plan| {
            let ahead = plan.ahead(threads).min(most);
            plan.hold_shards(most - ahead);
            plan.largest_need().saturating_add(ahead)
        };
        plans.into_iter().map(|plan| (bytes(&plan), plan)).collect()
    }

    /// Returns plans of boxes with `observations` observations (or all) and `features` features.
    pub(super) fn plans(&self, observations: Option<u64>, features: u64) -> Result<Vec<Plan>> {
        let plan = |(array, count): (&Arc<dyn ChunkedArray>, u64)| {
            let count = observations.unwrap_or(count);
            let along = if self.options.columns { [features, count] } else { [count, features] };
            let along = along.map(|size| Along::each(size.max(1)));
            let rows = Arc::new(Selection::all(array.shape()[0]));
            Plan::new(vec![Arc::clone(array)], rows, None, Arc::clone(&self.convert), &along)
        };
        self.arrays.iter().zip(self.counts.iter().copied()).map(plan).collect()
    }

    /// Returns the widest boxes, of the same features of all observations, that fit memory with the sums. Fails with [`Error::Budget`].
    pub(super) fn feature_boxes(&self, memory: &Budget) -> Result<Plans> {
        let device = &self.device;
        let chunk = self.arrays[0].chunk_shape()[usize::from(!self.options.columns)];
        let block = BLOCK as u64;
        let width = FEATURES.next_multiple_of(chunk.min(FEATURES)).max(chunk);
        let width = width.next_multiple_of(block).min(self.features.max(1));
        // Sums in whole blocks of features stay the same to the bit.
        let smaller = |width: u64| match width > block {
            true => (width / 2).next_multiple_of(block).min(width - 1),
            false => width / 2,
        };
        largest_that_fits(width, smaller, |width| {
            let plans = self.plans(None, width)?;
            let total = |size: fn(&Plan) -> u64| plans.iter().map(size).fold(0, u64::saturating_add);
            // For each array, one block is filled while another is added, and each block becomes a tensor.
            let staged = total(Plan::block_bytes).saturating_mul(2);
            let needs = Partial::needs(self.counts[0], self.others(), self.metric, self.options.missing)
                + Needs::device(staged)
                + Needs::host(staged)
                + Needs::host(total(Plan::largest_need));
            let left = memory.fit(device, needs)?.left(device).host / plans.len() as u64;
            Ok(self.with_bytes(plans, left))
        })
    }

    /// Passes the boxes of the plans, one of each at a time, to `sink` as tensors, with the core of the first. Leaves out those that `left_out` marks.
    /// Fails as [`Blocks::next_block`] and [`Block::tensor`](crate::stream::Block::tensor) do, and as `sink` does.
    pub(super) fn each<T: Element>(
        &self,
        plans: &[(u64, Plan)],
        left_out: &[bool],
        cancel: &Cancel,
        stats: &mut StreamStats,
        sink: &mut BoxSink<'_, T>,
    ) -> Result<()> {
        let mut streams = Vec::new();
        for (bytes, plan) in plans {
            streams.push(Blocks::of_boxes(plan, &self.device, *bytes, left_out.to_vec(), cancel)?);
        }
        loop {
            let blocks = streams.iter_mut().map(Blocks::next_block).collect::<Result<Vec<_>>>()?;
            let Some(blocks) = blocks.into_iter().collect::<Option<Vec<_>>>() else { break };
            let core = blocks[0].core.clone();
            let tensors = blocks.into_iter().map(|block| {
                let shape = block.shape.clone();
                block.tensor(&shape)
            });
            let (tensors, started) = (tensors.collect::<Result<_>>()?, Instant::now());
            sink(&core, tensors)?;
            stats.compute += started.elapsed();
        }
        streams.iter().for_each(|stream| stats.add(&stream.stats));
        Ok(())
    }

    /// Passes the boxes with the same features to `sink`, in order, and reports progress. Fails as [`each`](Self::each) does.
    pub(super) fn each_features<T: Element>(
        &self,
        plans: &[(u64, Plan)],
        run: &Run,
        mut status: Status,
        stats: &mut StreamStats,
        mut sink: impl FnMut(&[Tensor<T>]) -> Result<()>,
    ) -> Result<()> {
        if self.features == 0 || self.counts[0] == 0 {
            return Ok(());
        }
        self.each(plans, &[], &run.cancel, stats, &mut |core, tensors| {
            sink(&tensors)?;
            status.rows = core[usize::from(!self.options.columns)].end;
            run.progress.tell(status);
            Ok(())
        })
    }
}
