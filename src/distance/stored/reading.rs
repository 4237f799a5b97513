//! Reading of stored matrices: checks, the element type after conversion, and the boxes that are read.

use std::{sync::Arc, time::Instant};

use crate::{
    Budget, ChunkedArray, DType, Device, Element, Error, Needs, Result, Run, Status, StoredType,
    distance::{Metric, Missing, Options, Partial, job::Measure, precision::is_wide, sums::observation_sums},
    dtype::with_dtype,
    extent::to_usize,
    kernels::distance::BLOCK,
    stream::{
        Along, AsStored, Block, Blocks, Convert, Narrow, Narrowed, Plan, Selection, StreamStats, rows_to_load,
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

/// The matrices to read, and their element type after conversion.
pub(super) struct StoredOperands<'a> {
    pub(super) arrays: &'a [Arc<dyn ChunkedArray>],
    pub(super) columns: bool,
    /// The number of observations of each array.
    pub(super) counts: Vec<u64>,
    pub(super) features: u64,
    pub(super) staged: DType,
    convert: Arc<dyn Convert>,
}

/// A plan of boxes for each array, with the same features, and bytes for the chunks of each.
pub(super) struct FeatureBoxes {
    plans: Vec<Plan>,
    chunk_bytes: u64,
}

impl<'a> StoredOperands<'a> {
    /// # Errors
    /// [`Error::Shape`]; [`Error::NoF64`]; [`Error::Argument`] as [`Metric::check`].
    pub(super) fn new(
        arrays: &'a [Arc<dyn ChunkedArray>],
        metric: Metric,
        options: &Options,
        device: &Device,
    ) -> Result<Self> {
        metric.check(options.missing)?;
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
        let (to, staged, largest) = if wide {
            (Narrowed::F64, DType::F64, f64::MAX)
        } else {
            (Narrowed::F32, DType::F32, f32::MAX.into())
        };
        let most = if whole { to.whole() } else { largest };
        let (staged, convert): (_, Arc<dyn Convert>) = match as_stored {
            Some(staged) if same => (staged, Arc::new(AsStored(types[0]))),
            _ => {
                let range = [-most, most];
                let narrow = Narrow { to, range, negative_is_missing: false, nan_is_missing: true };
                (staged, Arc::new(narrow))
            }
        };
        if staged == DType::F64 {
            device.computes_f64("distance")?;
        }
        Ok(Self { arrays, columns: options.columns, counts, features, staged, convert })
    }

    /// Returns the measure for elements of type `T`, before any observation is known.
    ///
    /// # Errors
    /// [`Error::NoF64`].
    pub(super) fn measure<T: Element>(
        &self,
        device: &Device,
        metric: Metric,
        options: &Options,
    ) -> Result<Measure> {
        let (terms, prepare) = metric.recipe(options.missing != Missing::Propagate);
        let wide = is_wide::<T>(device, &terms, prepare, options)?;
        Ok(Measure::new(device, metric, options, self.features, wide, self.others().is_none()))
    }

    /// Returns the number of observations of y.
    pub(super) fn others(&self) -> Option<u64> {
        self.counts.get(1).copied()
    }

    /// Returns the number of bytes of all elements.
    fn bytes(&self) -> u64 {
        let elements = self.counts.iter().map(|count| count.saturating_mul(self.features));
        elements.fold(0, u64::saturating_add).saturating_mul(self.staged.size())
    }

    /// Plans the loading of whole arrays: a plan and bytes for chunks for each array, and the memory that remains once they are loaded.
    ///
    /// # Errors
    /// [`Error::Budget`].
    pub(super) fn to_load(
        &self,
        device: &Device,
        memory: &Budget,
        later: Needs,
    ) -> Result<(Vec<(Plan, u64)>, Budget)> {
        let plan = |array: &Arc<dyn ChunkedArray>| {
            let rows = rows_to_load(&**array, array.shape()[1].saturating_mul(self.staged.size()));
            let every_row = Arc::new(Selection::all(array.shape()[0]));
            Plan::of_rows(vec![Arc::clone(array)], every_row, None, Arc::clone(&self.convert), rows)
        };
        let plans = self.arrays.iter().map(plan).collect::<Result<Vec<_>>>()?;
        let of_pass = |plan: &Plan| plan.block_bytes().saturating_mul(2).saturating_add(plan.largest_need());
        // Each observation takes memory, even without features.
        let known = self
            .counts
            .iter()
            .fold(0, |total: u64, &count| total.saturating_add(count.saturating_mul(OBSERVATION)));
        let reading = plans.iter().map(of_pass).max().unwrap_or(0).max(known);
        let held = Needs::device(self.bytes());
        memory.fit(device, held + Needs::host(reading).max(later.on(device)))?;
        let host = memory.fit(device, held + Needs::host(reading))?.left(device).host;
        let with_chunks = |plan: Plan| {
            let ahead = plan.ahead(device.threads() as u64).min(host);
            let bytes = plan.largest_need().saturating_add(ahead);
            (plan, bytes)
        };
        // Once all arrays are loaded, reading takes no memory.
        Ok((plans.into_iter().map(with_chunks).collect(), memory.fit(device, held)?))
    }

    /// Returns plans of boxes with `observations` observations (or all) and `features` features.
    pub(super) fn plans(&self, observations: Option<u64>, features: u64) -> Result<Vec<Plan>> {
        let plan = |(array, count): (&Arc<dyn ChunkedArray>, u64)| {
            let count = observations.unwrap_or(count);
            let along = if self.columns { [features, count] } else { [count, features] };
            let along = along.map(|size| Along::each(size.max(1)));
            let rows = Arc::new(Selection::all(array.shape()[0]));
            Plan::new(vec![Arc::clone(array)], rows, None, Arc::clone(&self.convert), &along)
        };
        self.arrays.iter().zip(self.counts.iter().copied()).map(plan).collect()
    }

    /// Returns the widest boxes that fit memory together with the sums.
    ///
    /// # Errors
    /// [`Error::Budget`].
    pub(super) fn within(
        &self,
        device: &Device,
        metric: Metric,
        missing: Missing,
        memory: &Budget,
    ) -> Result<FeatureBoxes> {
        let threads = device.threads() as u64;
        let chunk = self.arrays[0].chunk_shape()[usize::from(!self.columns)];
        let most = self.features.max(1);
        let block = BLOCK as u64;
        let mut width = FEATURES.next_multiple_of(chunk.min(FEATURES)).max(chunk);
        width = width.next_multiple_of(block).min(most);
        loop {
            let plans = self.plans(None, width)?;
            let total = |size: fn(&Plan) -> u64| plans.iter().map(size).fold(0, u64::saturating_add);
            // For each array, one block is filled while another is added, and each block becomes a tensor.
            let staged = total(Plan::block_bytes).saturating_mul(2);
            let needs = Partial::needs(self.counts[0], self.others(), metric, missing)
                + Needs::device(staged)
                + Needs::host(staged)
                + Needs::host(total(Plan::largest_need));
            match memory.fit(device, needs) {
                Ok(rest) => {
                    let ahead = plans.iter().map(|plan| plan.ahead(threads)).max().unwrap_or(0);
                    let left = rest.left(device).host / plans.len() as u64;
                    return Ok(FeatureBoxes { chunk_bytes: ahead.min(left), plans });
                }
                Err(error) if width == 1 => return Err(error),
                // Sums in whole blocks of features stay the same to the bit.
                Err(_) if width > block => width = (width / 2).next_multiple_of(block).min(width - 1),
                Err(_) => width /= 2,
            }
        }
    }

    /// Passes the arrays' blocks with the same features to `sink`, in order.
    pub(super) fn each(
        &self,
        boxes: &FeatureBoxes,
        device: &Device,
        run: &Run,
        mut status: Status,
        stats: &mut StreamStats,
        sink: &mut dyn FnMut(Vec<Block<'_>>) -> Result<()>,
    ) -> Result<()> {
        let start = |plan| {
            let bytes = Plan::largest_need(plan).saturating_add(boxes.chunk_bytes);
            Blocks::new(plan, device, plan.block_rows(), bytes, &run.cancel)
        };
        let mut streams = boxes.plans.iter().map(start).collect::<Result<Vec<_>>>()?;
        if self.features > 0 && self.counts[0] > 0 {
            loop {
                let blocks = streams.iter_mut().map(Blocks::next_block).collect::<Result<Vec<_>>>()?;
                let Some(blocks) = blocks.into_iter().collect::<Option<Vec<_>>>() else { break };
                let Some(last) = blocks.first().map(|block| block.core[usize::from(!self.columns)].end)
                else {
                    break;
                };
                let started = Instant::now();
                sink(blocks)?;
                stats.compute += started.elapsed();
                status.rows = last;
                run.progress.tell(status);
            }
        }
        streams.iter().for_each(|stream| stats.add(&stream.stats));
        Ok(())
    }

    /// Returns the sum of each observation of each array.
    pub(super) fn sums(
        &self,
        boxes: &FeatureBoxes,
        device: &Device,
        options: &Options,
        run: &Run,
        status: Status,
        stats: &mut StreamStats,
    ) -> Result<Vec<Vec<f64>>> {
        let mut sums: Vec<Vec<f64>> = self.counts.iter().map(|count| vec![0.0; to_usize(*count)]).collect();
        self.each(boxes, device, run, status, stats, &mut |blocks| {
            for (block, sums) in blocks.into_iter().zip(&mut sums) {
                let shape = block.shape.clone();
                let block_sums =
                    with_dtype!(self.staged, T => observation_sums(&block.tensor::<T>(&shape)?, options)?);
                sums.iter_mut().zip(block_sums).for_each(|(sum, added)| *sum += added);
            }
            Ok(())
        })?;
        Ok(sums)
    }
}
