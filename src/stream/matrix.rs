//! Stored matrices as linear maps.

mod members;

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};

use super::{
    Along, AsStored, Blocks, Narrow, Narrowed, Plan, Selection, Slots, StreamStats,
    convert::Convert,
    load::{BOX, load, rows_to_load},
};
use crate::{
    Budget, ChunkedArray, Device, Error, Needs, Real, Result, Run, StoredType, Tensor,
    linalg::{
        LinearMap, Matrix, Pass, RowSink,
        gram::InnerSum,
        map_tensor::{self, BLOCK, DEPTH, EachBlock, OnTheWay},
        rows::Rows,
        transpose,
    },
    waiting::lock,
};

const OP: &str = "StoredMatrix";

/// A stored matrix as a [`LinearMap`], which need not fit memory. Each pass reads its rows again, block by block, and decodes the next
/// blocks while the device multiplies the current one. Compressed chunks stay in memory, as stored, if more passes come and there is room.
///
/// Elements are converted to f32. Types and values that f32 cannot represent are refused (f64, and 32-bit and 64-bit integers beyond
/// 2^24), unless [`narrow`](Self::narrow) permits rounding to the nearest. Products equal those of a resident [`Tensor`] of f32 to the
/// bit, for any chunks, threads and memory.
///
/// # Cost
/// With [`SvdOptions::left`](crate::linalg::SvdOptions::left), [`left_vectors`](crate::linalg::left_vectors) mostly takes no pass of its
/// own. A pass reads and decodes every chunk once. It holds, within the host's budget ([`Budget::host`](crate::Budget::host) of the
/// [`Run`]), two blocks of rows and the chunks of one, and decodes ahead within half of the rest. A block has 1,024 rows, or more up to 8
/// MiB. What the budget then still leaves is for [compressed chunks](Plan::keep_chunks), which the next pass, if one comes, need not read,
/// and after these for [whole shards](Plan::hold_shards). Chunks that are kept, and the memory of a block, stay until the matrix is dropped.
/// If storage [opens chunks](ChunkedArray::open_chunk) whose rows have 4 KiB or more, of which a block has no more than some hundred,
/// elements are read where they are stored, and no chunks are held.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, linalg::{SvdOptions, randomized_svd}, store::MemoryArray, stream::StoredMatrix};
/// // Any stored array: `ZarrArray::open`, `NpyArray::open`, one of your own.
/// let array = MemoryArray::new("a", &[3u8, 0, 0, 4, 0, 0], &[3, 2], &[2, 2])?;
/// let a = StoredMatrix::new(vec![Arc::new(array)], &Device::best()?)?;
/// let svd = randomized_svd(&a, 1, &SvdOptions::default(), &Run::default())?;
/// assert!((svd.s[0] - 4.0).abs() < 1e-5 && (svd.v[(1, 0)] - 1.0).abs() < 1e-5);
/// // The whole matrix, if it fits the device.
/// assert_eq!(a.to_tensor(&Run::default())?.read()?, [3.0, 0.0, 0.0, 4.0, 0.0, 0.0]);
/// // Each pass decoded the chunk.
/// assert!(a.stats().chunks > 1);
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Debug)]
pub struct StoredMatrix {
    plan: Plan,
    device: Device,
    shape: [u64; 2],
    /// The number of rows of the longest block.
    block: u64,
    /// True if elements and products are in f64.
    is_wide: bool,
    /// True if the matrix is the transpose of the stored one, and blocks of its rows are read as columns.
    is_transposed: bool,
    slots: Slots,
    stats: Mutex<StreamStats>,
}

impl StoredMatrix {
    /// Makes the matrix of arrays (rows, columns), concatenated along their rows. Reads nothing yet.
    ///
    /// # Errors
    /// [`Error::Argument`] without an array, and for an array of f64; [`Error::Shape`] for an array that is not a matrix, and for arrays
    /// whose columns or types differ; [`Error::Store`] for more than [2^20](super::MAX_CHUNKS) chunks along an axis.
    ///
    /// Passes return an error for what cannot be read; [`Error::Budget`], with the required minimum, if a pass does not fit; and, for
    /// types other than f32, an error for the first value that is NaN, beyond f32, or an integer beyond 2^24.
    pub fn new(arrays: Vec<Arc<dyn ChunkedArray>>, device: &Device) -> Result<Self> {
        Self::build(arrays, device, false)
    }

    /// Makes a matrix like [`new`](Self::new), but rounds f64 and integers to the nearest f32.
    ///
    /// # Errors
    /// See [`new`](Self::new); f64 and large integers are not refused.
    pub fn narrow(arrays: Vec<Arc<dyn ChunkedArray>>, device: &Device) -> Result<Self> {
        Self::build(arrays, device, true)
    }

    fn build(arrays: Vec<Arc<dyn ChunkedArray>>, device: &Device, narrow: bool) -> Result<Self> {
        if let Some(array) = arrays.iter().find(|array| array.dtype() == StoredType::F64 && !narrow) {
            let why = format_args!(
                "{} is of f64, and products are in f32: `StoredMatrix::narrow` rounds to it",
                array.name()
            );
            return Err(Error::argument(OP, "arrays", why));
        }
        let beyond = [StoredType::I32, StoredType::U32, StoredType::I64, StoredType::U64];
        let exactly = !narrow && arrays.iter().any(|array| beyond.contains(&array.dtype()));
        let convert: Arc<dyn Convert> = match arrays.first().map(|array| array.dtype()) {
            Some(StoredType::F32) => Arc::new(AsStored(StoredType::F32)),
            _ => Arc::new(Narrow::finite(Narrowed::F32, exactly, false)),
        };
        Self::converted(arrays, convert, false, false, device)
    }

    /// Makes the matrix of elements that `convert` converts to f64 if `is_wide`, else to f32. With `is_transposed`, it is the transpose, of
    /// which blocks of rows are read as blocks of columns.
    pub(super) fn converted(
        arrays: Vec<Arc<dyn ChunkedArray>>,
        convert: Arc<dyn Convert>,
        is_wide: bool,
        is_transposed: bool,
        device: &Device,
    ) -> Result<Self> {
        let [rows, columns] = extents(&arrays)?;
        let size = if is_wide { 8 } else { 4 };
        let (shape, block) = if is_transposed {
            ([columns, rows], (BOX / (size * rows.max(1))).max(1).next_multiple_of(BLOCK))
        } else {
            let block = rows_to_load(&*arrays[0], columns.saturating_mul(size)).next_multiple_of(BLOCK);
            ([rows, columns], block)
        };
        let plan = plan_of(arrays, Selection::all(shape[0]), shape[1], convert, (is_transposed, block))?;
        let (device, slots, block) = (device.clone(), Slots::default(), block.min(shape[0]));
        Ok(Self { plan, device, shape, block, is_wide, is_transposed, slots, stats: Mutex::default() })
    }

    /// Reads the whole matrix into a tensor on the device, in one pass.
    ///
    /// # Errors
    /// The errors of a pass, which [`new`](Self::new) lists; [`Error::Limit`] for a matrix larger than a buffer of the device;
    /// [`Error::OutOfMemory`]; [`Error::Cancelled`].
    pub fn to_tensor(&self, run: &Run) -> Result<Tensor<f32>> {
        self.load(run)
    }

    /// Reads the whole matrix, which is not transposed, into a tensor of its elements' type.
    pub(super) fn load<R: Real>(&self, run: &Run) -> Result<Tensor<R>> {
        self.drop_kept();
        let ([bytes, left], mut stats) = (self.bytes(0, &run.memory)?, StreamStats::default());
        let taken = Needs::device(self.len_bytes()).on(&self.device).host;
        self.plan.hold_shards(left.saturating_sub(taken));
        let loaded = load(&self.plan, &self.device, &self.shape, bytes, run, &mut stats)?.0;
        lock(&self.stats).add(&stats);
        Ok(loaded)
    }

    fn len_bytes(&self) -> u64 {
        let size = if self.is_wide { 8 } else { 4 };
        self.shape.iter().fold(size, |bytes, &extent| bytes.saturating_mul(extent))
    }

    /// Returns the times and bytes of all passes so far, such as those of a decomposition. Passes that failed do not count.
    pub fn stats(&self) -> StreamStats {
        *lock(&self.stats)
    }

    /// Returns the number of bytes of decoded chunks that a pass with `columns` columns holds, and the host memory that is left for chunks that
    /// are kept between passes.
    pub(super) fn bytes(&self, columns: u64, memory: &Budget) -> Result<[u64; 2]> {
        let left = memory.fit(&self.device, self.needs(columns))?.left(&self.device).host;
        let ahead = self.plan.ahead(self.device.pool()?.current_num_threads() as u64).min(left / 2);
        Ok([self.plan.largest_need().saturating_add(ahead), left - ahead])
    }

    /// Returns the matrix, which shares kept chunks with a plan of the same arrays.
    pub(super) fn keeping(self, other: &Plan) -> Self {
        Self { plan: self.plan.keeping(other), ..self }
    }

    /// Drops the chunks and the staging slots that are kept between passes.
    pub(super) fn drop_kept(&self) {
        self.plan.keep_chunks(0);
        self.slots.clear();
    }

    /// Makes a pass with `columns` columns: calls `f` with the index of the first row and the rows of each block, in order.
    fn each<R: Real>(
        &self,
        columns: u64,
        pass: &Pass<'_>,
        f: &mut dyn FnMut(u64, &Tensor<R>) -> Result<()>,
    ) -> Result<()> {
        let ([bytes, left], cancel) = (self.bytes(columns, &pass.run().memory)?, &pass.run().cancel);
        let kept = left.min(if pass.is_last() { self.plan.kept_bytes() } else { self.plan.most_kept() });
        self.plan.keep_chunks(kept);
        // Without columns, what is left is for the sums.
        self.plan.hold_shards(if columns > 0 { left - kept } else { 0 });
        let mut blocks = Blocks::new(&self.plan, &self.device, self.plan.block_rows(), bytes, cancel)?;
        blocks.reuse(&self.slots);
        if self.shape.contains(&0) {
            return Ok(());
        }
        while let Some(block) = blocks.next_block()? {
            let (rows, started) = (block.core[usize::from(self.is_transposed)].clone(), Instant::now());
            let shape = [block.shape[0], block.shape[1]];
            let stored = block.tensor(&shape)?;
            let transposed = self.is_transposed.then(|| transpose(&stored)).transpose()?;
            f(rows.start, transposed.as_ref().unwrap_or(&stored))?;
            blocks.computed(started);
            pass.tell(rows.end)?;
        }
        lock(&self.stats).add(&blocks.stats);
        drop(blocks);
        if pass.is_last() {
            self.slots.clear();
        }
        Ok(())
    }

    /// Sums `AᵀAX` over blocks of rows in a pass; `x` is Xᵀ. `each` gets the rows of each canonical block, and these rows of `A X`.
    fn normal<R: Real>(
        &self,
        x: &Tensor<R>,
        pass: &Pass<'_>,
        each: &mut EachBlock<'_, R>,
    ) -> Result<InnerSum<R>> {
        let mut sum = map_tensor::normal_sum(OP, x, self.block)?;
        self.each(x.shape()[0], pass, &mut |first, a: &Tensor<R>| {
            map_tensor::add_normal(OP, a, x, &mut sum, &mut |rows, y| {
                each(first + rows.start..first + rows.end, y)
            })
        })?;
        Ok(sum)
    }

    fn normal_of<R: Real>(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        let x = transpose(&map_tensor::upload::<R>(OP, &self.device, x, self.shape[1])?)?;
        Ok(self.normal(&x, pass, &mut |_, _| Ok(()))?.finish()?.transposed())
    }

    fn normal_rows<R: Real>(&self, x: &Tensor<f64>, pass: &Pass<'_>) -> Result<Tensor<f64>> {
        let rows = map_tensor::rows_on(OP, &self.device, x)?;
        self.normal::<R>(&rows, pass, &mut |_, _| Ok(()))?.into_f64(x.device())
    }

    fn product<R: Real>(&self, x: &Matrix, pass: &Pass<'_>, sink: &mut RowSink<'_>) -> Result<()> {
        let x = map_tensor::upload::<R>(OP, &self.device, x, self.shape[1])?;
        self.each::<R>(x.shape()[1], pass, &mut |first, a| {
            sink(first, &Matrix::from_tensor(&map_tensor::product(OP, a, &x)?)?)
        })
    }

    /// Returns the least memory of [`gram`](Self::gram), and of the two matrices on the host that its end takes.
    pub(super) fn gram_needs(&self) -> Needs {
        let n = self.shape[1];
        let sum = self.sum_needs([n, n], [DEPTH, BLOCK, self.block]);
        self.needs(0) + sum + (Needs::device(8) + Needs::host(24)) * n.saturating_mul(n)
    }

    fn sum_needs(&self, shape: [u64; 2], cut: [u64; 3]) -> Needs {
        match self.is_wide {
            true => InnerSum::<f64>::needs(&self.device, shape, cut),
            false => InnerSum::<f32>::needs(&self.device, shape, cut),
        }
    }

    /// Returns `AᵀA`, in one pass.
    pub(super) fn gram(&self, pass: &Pass<'_>) -> Result<Matrix> {
        if self.is_wide { self.gram_of::<f64>(pass) } else { self.gram_of::<f32>(pass) }
    }

    fn gram_of<R: Real>(&self, pass: &Pass<'_>) -> Result<Matrix> {
        let n = self.shape[1];
        let mut sum = InnerSum::<R>::new(OP, &self.device, [n, n], true, [DEPTH, BLOCK, self.block])?;
        self.each::<R>(0, pass, &mut |_, a| {
            let rows = Rows::new(a, 0..a.shape()[0]);
            sum.add(rows, rows)
        })?;
        sum.finish()
    }
}

/// Plans a pass over some rows of a matrix with `columns` columns, `block` of them at a time; or over rows of the transpose.
fn plan_of(
    arrays: Vec<Arc<dyn ChunkedArray>>,
    rows: Selection,
    columns: u64,
    convert: Arc<dyn Convert>,
    (is_transposed, block): (bool, u64),
) -> Result<Plan> {
    let (rows, block) = (Arc::new(rows), block.max(1));
    let plan = if is_transposed {
        let along = [Along::each(columns.max(1)), Along::each(block)];
        Plan::new(arrays, Arc::new(Selection::all(columns)), Some(rows), convert, &along)
    } else {
        Plan::of_rows(arrays, rows, None, convert, block)
    };
    plan.map(Plan::reading_in_place)
}

/// Returns the numbers of rows and columns of matrices that are concatenated along their rows. Fails with [`Error::Argument`] without an
/// array, and for 2^64 rows or more; [`Error::Shape`] for an array that is not a matrix.
pub(super) fn extents(arrays: &[Arc<dyn ChunkedArray>]) -> Result<[u64; 2]> {
    if let Some(array) = arrays.iter().find(|array| array.shape().len() != 2) {
        return Err(Error::shape(OP, "a matrix", format_args!("{:?} in {}", array.shape(), array.name())));
    }
    let first = arrays.first().ok_or_else(|| Error::argument(OP, "arrays", "none given"))?;
    let rows = arrays.iter().try_fold(0u64, |rows, array| rows.checked_add(array.shape()[0]));
    let rows = rows.ok_or_else(|| Error::argument(OP, "arrays", "they have 2^64 rows or more"))?;
    Ok([rows, first.shape()[1]])
}

impl LinearMap for StoredMatrix {
    fn shape(&self) -> [u64; 2] {
        self.shape
    }

    fn device(&self) -> Option<&Device> {
        Some(&self.device)
    }

    fn precision(&self) -> f64 {
        let m = self.shape[0];
        if self.is_wide { map_tensor::precision::<f64>(m) } else { map_tensor::precision::<f32>(m) }
    }

    fn needs(&self, columns: u64) -> Needs {
        let staged = self.plan.block_bytes();
        // A cpu device has a block in a slot and one in a tensor, and keeps freed buffers. A GPU may be a block behind, so it has two.
        let on_device = match self.device.shares_host_memory() {
            true => Needs::of_freed(&self.device, staged).on(&self.device),
            false => Needs::device(staged) * 2,
        };
        let blocks = Needs::host(staged) * 2 + on_device;
        let transposed = Needs::device(if self.is_transposed { staged } else { 0 });
        // These are X and Xᵀ and the rows of A X in the type of products, the rows in f64, and the sum over blocks.
        let (size, n) = (if self.is_wide { 8 } else { 4 }, self.shape[1]);
        let products = Needs::device(2 * size) * n + (Needs::device(size) + Needs::host(8)) * self.block;
        let sum = self.sum_needs([columns, n], map_tensor::sum_cut(&self.device, self.block));
        Needs::host(self.plan.largest_need()) + blocks + transposed + products * columns + sum
    }

    fn apply_normal(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        if self.is_wide { self.normal_of::<f64>(x, pass) } else { self.normal_of::<f32>(x, pass) }
    }

    fn keeps_vectors_on(&self) -> Option<&Device> {
        Some(&self.device)
    }

    fn apply_normal_rows(&self, x: &Tensor<f64>, pass: &Pass<'_>) -> Result<Tensor<f64>> {
        if self.is_wide { self.normal_rows::<f64>(x, pass) } else { self.normal_rows::<f32>(x, pass) }
    }

    fn apply_both(
        &self,
        x: &Tensor<f64>,
        pass: &Pass<'_>,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tensor<f64>>> {
        if self.is_wide {
            return Ok(None);
        }
        let (home, mut given) = (x.device(), OnTheWay::new(sink));
        let x = map_tensor::rows_on::<f32>(OP, &self.device, x)?;
        let sum = self.normal(&*x, pass, &mut |rows, y| given.add(rows.start, y))?;
        given.finish()?;
        Ok(Some(sum.into_f64(home)?))
    }

    fn apply(&self, x: &Matrix, pass: &Pass<'_>, sink: &mut RowSink<'_>) -> Result<()> {
        if self.is_wide { self.product::<f64>(x, pass, sink) } else { self.product::<f32>(x, pass, sink) }
    }
}
