//! Typed, row-major arrays on a device.

mod host;
mod views;

use std::{fmt, marker::PhantomData, ops::Range, sync::Arc};

pub(crate) use self::host::Sent;
use self::host::Values;
pub use self::{
    host::{Arrival, HostValues, Pending},
    views::TensorView,
};
use crate::{
    Backend, Device, Element, Error, Result,
    device::Buffer,
    driver::{Download, HostBytes, Memory, Slice, Staging},
    extent::{blocks, to_usize},
    fresh,
    kernel::Access,
    launch::Arg,
    timeline::Stage,
};

/// The number of bytes copied to or from the host between two checks for cancellation, in some hundredths of a second.
const PIECE: usize = if cfg!(test) { 64 << 10 } else { 256 << 20 };

/// The number of bytes of a tensor that the host holds at once on the way to another device.
const COPY: u64 = if cfg!(test) { 64 << 10 } else { 64 << 20 };

/// A row-major array of any rank, resident on one [`Device`].
///
/// A tensor holds device memory until it is dropped. Sizes are counted in elements. One tensor is one buffer of the device, so
/// [`Limits::buffer`](crate::Limits::buffer) bounds it.
///
/// [`from_slice`](Self::from_slice) and [`write`](Self::write) take values from the host. [`read`](Self::read), [`read_into`](Self::read_into)
/// and [`into_values`](Self::into_values) return values to the host, [`to_device`](Self::to_device) copies to another device, and
/// [`rows`](Self::rows) selects rows. [`TensorView::from_slice`] uses values of the host in place.
pub struct Tensor<T: Element> {
    device: Device,
    /// Shared only with views, which borrow the tensor.
    buffer: Arc<Buffer>,
    /// The offset of the first element in the buffer, in bytes; above 0 only in views.
    offset: u64,
    /// The number of guard bytes after the last element.
    guard: u64,
    shape: Box<[u64]>,
    element: PhantomData<T>,
}

/// A window of a tensor as a kernel argument. The window begins at the device's alignment, `start` elements before the wanted ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window<'a> {
    pub(crate) arg: Arg<'a>,
    pub(crate) start: u32,
}

impl<T: Element> Tensor<T> {
    /// Creates a tensor with the host's values, in C order.
    ///
    /// # Errors
    /// [`Error::Shape`] when `values` does not hold `product(shape)` elements; [`Error::Limit`] and
    /// [`Error::OutOfMemory`] when the device has no room.
    pub fn from_slice(device: &Device, values: &[T], shape: &[u64]) -> Result<Self> {
        check_len("Tensor::from_slice", values.len(), shape)?;
        let tensor = Self::empty(device, shape)?;
        tensor.upload_bytes(0, bytemuck::cast_slice(values))?;
        Ok(tensor)
    }

    /// Creates a tensor of zeros.
    ///
    /// # Errors
    /// [`Error::Limit`] and [`Error::OutOfMemory`] when the device has no room.
    pub fn zeros(device: &Device, shape: &[u64]) -> Result<Self> {
        let tensor = Self::empty(device, shape)?;
        if !tensor.is_empty() {
            device.driver().clear(tensor.whole())?;
        }
        Ok(tensor)
    }

    /// Creates a tensor whose elements are undefined until they are written.
    ///
    /// # Errors
    /// As [`zeros`](Self::zeros).
    pub fn empty(device: &Device, shape: &[u64]) -> Result<Self> {
        Self::uninitialised(device, shape, false)
    }

    /// Creates a tensor of undefined elements. `for_upload` says that an upload fills it.
    fn uninitialised(device: &Device, shape: &[u64], for_upload: bool) -> Result<Self> {
        let len = checked_len("Tensor", shape)?;
        let bytes = len.checked_mul(T::DTYPE.size()).filter(|&bytes| bytes < 1 << 62);
        let bytes = bytes
            .ok_or_else(|| Error::shape("Tensor", "a size below 2^62 bytes", format_args!("{shape:?}")))?;
        Ok(Self::from_buffer(device, device.alloc(bytes, for_upload)?, shape))
    }

    /// Creates a tensor on memory that holds at least as many elements.
    pub(crate) fn from_buffer(device: &Device, buffer: Buffer, shape: &[u64]) -> Self {
        let guard = buffer.guard;
        Self {
            device: device.clone(),
            buffer: Arc::new(buffer),
            offset: 0,
            guard,
            shape: shape.into(),
            element: PhantomData,
        }
    }

    /// Returns the memory of the elements, and their byte offset in it.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(crate) fn memory(&self) -> (&Memory, u64) {
        (&self.buffer.memory, self.offset)
    }

    /// Returns the memory of the elements. An owned tensor's memory has no other owner.
    pub(crate) fn into_memory(self) -> Memory {
        Arc::into_inner(self.buffer).expect("views should borrow their tensor").memory
    }

    /// Creates a tensor with the first bytes of a staging slot, ordered before all work enqueued later.
    pub(crate) fn from_staging(device: &Device, slot: &mut Staging, shape: &[u64]) -> Result<Self> {
        // Memory for an upload may be had only once earlier uploads have been used.
        let mut span = device.span(Stage::Upload, "");
        let tensor = Self::uninitialised(device, shape, true)?;
        if !tensor.is_empty() {
            span.bytes = tensor.bytes();
            device.count_to_device(tensor.bytes());
            let fence = device.driver().upload(slot, tensor.whole(), device.timeline())?;
            device.driver().order_after(&fence)?;
        }
        drop(span);
        Ok(tensor)
    }

    /// Creates a tensor that [`put`](Self::put) fills.
    pub(crate) fn for_parts(device: &Device, shape: &[u64]) -> Result<Self> {
        Self::uninitialised(device, shape, true)
    }

    /// Copies `elements` from a staging slot, ordered before all work enqueued later. The first element must begin a word.
    pub(crate) fn put(&mut self, slot: &mut Staging, elements: Range<u64>) -> Result<()> {
        let [offset, end] = [elements.start, elements.end].map(|element| element * T::DTYPE.size());
        assert!(
            offset.is_multiple_of(4) && elements.end <= self.len(),
            "a part should begin a word of its tensor"
        );
        let bytes = end.next_multiple_of(4).saturating_sub(offset);
        if bytes > 0 {
            self.device.count_to_device(bytes);
            let _span = self.device.span(Stage::Upload, "").bytes(bytes);
            let fence =
                self.device.driver().upload(slot, self.slice(offset, bytes), self.device.timeline())?;
            self.device.driver().order_after(&fence)?;
        }
        Ok(())
    }

    /// Reinterprets the tensor's memory as elements of another type, which need no more memory.
    pub(crate) fn into_elements<U: Element>(self, shape: &[u64]) -> Tensor<U> {
        Tensor {
            device: self.device,
            buffer: self.buffer,
            offset: self.offset,
            guard: self.guard,
            shape: shape.into(),
            element: PhantomData,
        }
    }

    /// Returns the number of bytes that are copied at once.
    fn piece(&self) -> usize {
        if self.device.cancel().is_some() { PIECE } else { usize::MAX }
    }

    /// Copies whole words to byte `start`, which begins a word, then an incomplete last word with padding.
    fn upload_bytes(&self, start: u64, bytes: &[u8]) -> Result<()> {
        self.device.count_to_device(bytes.len() as u64);
        let _span = self.device.span(Stage::Upload, "").bytes(bytes.len() as u64);
        let (words, tail) = bytes.split_at(bytes.len() / 4 * 4);
        let write = |offset: usize, bytes: &[u8]| {
            self.device.driver().write(self.slice(start + offset as u64, bytes.len() as u64), bytes)
        };
        for (i, words) in words.chunks(self.piece()).enumerate() {
            self.device.check()?;
            write(i * PIECE, words)?;
        }
        if !tail.is_empty() {
            let mut word = [0; 4];
            word[..tail.len()].copy_from_slice(tail);
            write(words.len(), &word)?;
        }
        Ok(())
    }

    /// Replaces all elements by the host's values, in C order. Work enqueued earlier still sees the old values; does not wait for that work.
    ///
    /// # Errors
    /// [`Error::Shape`] when the numbers of values and elements differ; [`Error::DeviceLost`] and what the driver reports.
    ///
    /// ```
    /// use teatime::{Device, Tensor};
    /// let device = Device::best()?;
    /// let mut x = Tensor::<f32>::zeros(&device, &[2, 2])?;
    /// x.write(&[1.0, 2.0, 3.0, 4.0])?;
    /// assert_eq!(x.read()?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn write(&mut self, values: &[T]) -> Result<()> {
        self.check_count("Tensor::write", values.len())?;
        self.upload_bytes(0, bytemuck::cast_slice(values))
    }

    /// Fails with [`Error::Shape`] unless the number of values equals the number of elements.
    fn check_count(&self, op: &'static str, values: usize) -> Result<()> {
        if values as u64 != self.len() {
            return Err(Error::shape(op, format_args!("{:?}", self.shape), format_args!("{values} values")));
        }
        Ok(())
    }

    /// Copies the tensor on the same device. Enqueues; does not wait, except for [rows](Self::rows) that do not start at a multiple of 4 bytes,
    /// which are copied through the host.
    ///
    /// # Errors
    /// [`Error::Limit`] and [`Error::OutOfMemory`] when the device has no room.
    pub fn try_clone(&self) -> Result<Self> {
        self.to_device(&self.device)
    }

    /// Copies the tensor to a device; on the same device, the same as [`try_clone`](Self::try_clone).
    ///
    /// # Errors
    /// [`Error::Limit`] and [`Error::OutOfMemory`] when that device has no room; as [`read`](Self::read).
    ///
    /// # Cost
    /// To another device, it copies to the host, waits, and copies from the host, some tens of MiB at a time.
    ///
    /// ```
    /// use teatime::{Device, Tensor};
    /// let x = Tensor::from_slice(&Device::best()?, &[1.0f32, 2.0], &[2])?;
    /// let y = x.to_device(&Device::cpu())?;
    /// assert_eq!((y.device().info().name.as_str(), y.read()?), ("cpu", x.read()?));
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        let copy = Self::empty(device, &self.shape)?;
        if !self.device.is_same(device) || !self.offset.is_multiple_of(4) {
            let rows = self.shape.first().copied().unwrap_or(1);
            let row = self.bytes() / rows.max(1);
            // Four rows of any type end with a whole word.
            let step = (COPY / row.max(1)).next_multiple_of(4).max(4);
            if rows <= step {
                copy.upload_bytes(0, &self.download()?.bytes()?)?;
                return Ok(copy);
            }
            for rows in blocks(rows, step) {
                copy.upload_bytes(rows.start * row, &self.rows(rows)?.download()?.bytes()?)?;
            }
        } else if !self.is_empty() {
            device.count_between(self.bytes());
            let _span = device.launch_span("copy").bytes(self.bytes());
            device.driver().copy(self.whole(), copy.whole())?;
        }
        Ok(copy)
    }

    /// Returns rows of a matrix, or subarrays along the first axis, as a view, which operations accept in place of a tensor. Copies nothing. The
    /// tensor cannot be written while views exist.
    ///
    /// # Shapes
    /// (m, ...) -> (rows, ...).
    ///
    /// # Accuracy
    /// Results for a view equal those for a copy to the bit, except for products on CUDA: cuBLAS takes rows that start at a multiple of
    /// 16 bytes, our own kernels take the rest.
    ///
    /// # Errors
    /// [`Error::Shape`] for a tensor without axes; [`Error::Argument`] for a range beyond the last row, or one that ends before it starts.
    ///
    /// ```
    /// use teatime::{Device, Tensor, linalg};
    /// let x = Tensor::from_slice(&Device::best()?, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?;
    /// let last = x.rows(1..3)?;
    /// assert_eq!((last.shape(), last.read()?), (&[2, 2][..], vec![3.0, 4.0, 5.0, 6.0]));
    /// assert_eq!(linalg::matmul_nt(&last, &*x.rows(0..1)?)?.read()?, [11.0, 17.0]);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn rows(&self, rows: Range<u64>) -> Result<TensorView<'_, T>> {
        let op = "Tensor::rows";
        let Some((&count, of_row)) = self.shape.split_first() else {
            return Err(Error::shape(op, "at least one axis", "shape []"));
        };
        if rows.start > rows.end || rows.end > count {
            return Err(Error::argument(op, "rows", format_args!("{rows:?} of {count}")));
        }
        let shape: Box<[u64]> = [rows.end - rows.start].iter().chain(of_row).copied().collect();
        let row_bytes = of_row.iter().product::<u64>() * T::DTYPE.size();
        // An empty view starts at the buffer's start, because the rows may start at the buffer's end.
        let is_empty = shape.contains(&0);
        let offset = if is_empty { 0 } else { self.offset + rows.start * row_bytes };
        Ok(TensorView::new(Self { offset, guard: 0, shape, ..self.view().part }))
    }

    /// Returns a view of the whole tensor for calls on another handle of its device, such as that of a member of a group.
    pub(crate) fn seen_from(&self, device: &Device) -> TensorView<'_, T> {
        TensorView::new(Self {
            device: device.clone(),
            buffer: Arc::clone(&self.buffer),
            offset: self.offset,
            guard: self.guard,
            shape: self.shape.clone(),
            element: PhantomData,
        })
    }

    /// Returns a view of the whole tensor.
    pub(crate) fn view(&self) -> TensorView<'_, T> {
        self.seen_from(&self.device)
    }

    /// Returns the tensor's device. To launch a kernel that writes the tensor, use [`Kernel::launch`](crate::kernel::Kernel::launch), which
    /// needs no device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the extent of each axis.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the number of elements.
    pub fn len(&self) -> u64 {
        self.shape.iter().product()
    }

    /// True if the tensor has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes of the elements.
    pub fn bytes(&self) -> u64 {
        self.len() * T::DTYPE.size()
    }

    /// Returns the tensor with another shape, without a copy.
    ///
    /// # Errors
    /// [`Error::Shape`] when the number of elements differs.
    pub fn reshape(self, shape: &[u64]) -> Result<Self> {
        if checked_len("Tensor::reshape", shape)? != self.len() {
            let got = format!("{:?}", self.shape);
            return Err(Error::shape("Tensor::reshape", format_args!("as many elements as {shape:?}"), got));
        }
        Ok(Self { shape: shape.into(), ..self })
    }

    /// Reinterprets the tensor's bits as elements of another type of the same size, without a copy.
    pub(crate) fn cast<U: Element>(self) -> Tensor<U> {
        assert_eq!(T::DTYPE.size(), U::DTYPE.size(), "a cast should keep the size of an element");
        let shape = self.shape.clone();
        self.into_elements(&shape)
    }

    /// Waits for everything enqueued and copies the elements to the host, in C order.
    ///
    /// # Errors
    /// [`Error::DeviceLost`], [`Error::OutOfHostMemory`], and any error that the driver reports.
    pub fn read(&self) -> Result<Vec<T>> {
        let mut values = fresh::zeros(self.host_len()?)?;
        self.read_into(&mut values)?;
        Ok(values)
    }

    /// Returns the number of elements as `usize`.
    fn host_len(&self) -> Result<usize> {
        let fits =
            |_| Error::Limit { what: "elements on the host", requested: self.len(), max: usize::MAX as u64 };
        usize::try_from(self.len()).map_err(fits)
    }

    /// Reads the elements as [`read`](Self::read) does, into the caller's memory.
    ///
    /// # Errors
    /// [`Error::Shape`] when the numbers of values and elements differ; as [`read`](Self::read).
    ///
    /// ```
    /// use teatime::{Device, Tensor};
    /// let x = Tensor::from_slice(&Device::best()?, &[1.0f32, 2.0, 3.0], &[3])?;
    /// let mut values = [0.0; 3];
    /// x.read_into(&mut values)?;
    /// assert_eq!(values, [1.0, 2.0, 3.0]);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn read_into(&self, values: &mut [T]) -> Result<()> {
        self.check_count("Tensor::read_into", values.len())?;
        let out = bytemuck::cast_slice_mut(values);
        // A download checks the guard words after the elements, and supports rows that start within a word.
        if self.guard > 0 || !self.offset.is_multiple_of(4) || self.is_empty() {
            out.copy_from_slice(&self.download()?.bytes()?);
            return Ok(());
        }
        self.device.count_to_host(self.bytes());
        let _span = self.device.span(Stage::Download, "").bytes(self.bytes());
        for (i, out) in out.chunks_mut(self.piece()).enumerate() {
            self.device.check()?;
            let words = out.len().next_multiple_of(4) as u64;
            self.device.driver().read(self.slice((i * PIECE) as u64, words), out)?;
        }
        Ok(())
    }

    /// Waits for all enqueued work and moves the elements to the host, in C order. Elements of the cpu device are not copied.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// ```
    /// use teatime::{Device, Tensor};
    /// let x = Tensor::from_slice(&Device::best()?, &[1.0f32, 2.0, 3.0], &[3])?;
    /// assert_eq!(x.into_values()?[1..], [2.0, 3.0]);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn into_values(self) -> Result<HostValues<T>> {
        // A leaked view owns the memory too.
        if self.device.info().backend != Backend::Cpu || Arc::strong_count(&self.buffer) > 1 {
            return Ok(HostValues(Values::Owned(self.read()?)));
        }
        Ok(HostValues(match self.into_bytes()? {
            HostBytes::Owned(bytes) => Values::Owned(bytemuck::pod_collect_to_vec(&bytes)),
            HostBytes::Cpu(lines, bytes) => Values::Lines(lines, bytes),
        }))
    }

    /// Reads the elements as [`read`](Self::read) does, but as a future, in any async runtime or without one, so that no thread that enqueues or
    /// draws is blocked. The future borrows nothing, and later changes of the tensor do not affect it.
    ///
    /// # Cost
    /// A thread for each future, from its first poll on. On CUDA, 32 MiB or more are copied before this function returns.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// ```
    /// use teatime::{Device, Tensor, linalg};
    /// let x = Tensor::from_slice(&Device::best()?, &[3.0f32, 4.0], &[1, 2])?;
    /// let product = linalg::matmul_nt(&x, &x)?.read_async();
    /// // In an application, `product.await?`.
    /// assert_eq!(pollster::block_on(product)?, [25.0]);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn read_async(&self) -> impl Future<Output = Result<Vec<T>>> + Send + use<T> {
        let pending = self.download();
        async { pending?.await }
    }

    /// Starts a copy of the elements to the host, after all enqueued work. Does not wait, so that work enqueued next runs concurrently.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::OutOfMemory`].
    pub fn download(&self) -> Result<Pending<T>> {
        let guard = self.guard;
        // Copies whole words, as rows may start within a word.
        let before = self.offset % 4;
        let bytes = (before + self.bytes()).next_multiple_of(if guard > 0 { 16 } else { 4 }) + guard;
        let download = if bytes == 0 {
            Download::Ready(Vec::new())
        } else {
            self.device.count_to_host(self.bytes());
            let _span = self.device.span(Stage::Download, "").bytes(self.bytes());
            let (memory, offset) = (&self.buffer.memory, self.offset - before);
            self.device.driver().download(Slice { memory, offset, bytes }, self.device.timeline())?
        };
        let len = self.host_len()?;
        let (before, timeline) = ((self.offset % 4) as usize, self.device.timeline().cloned());
        Ok(Pending { download, before, len, guard, timeline, element: PhantomData })
    }

    /// [`download`](Self::download) of a tensor that the device no longer needs; elements of the cpu device are not copied.
    pub(crate) fn send(self) -> Result<Sent<T>> {
        if self.device.shares_host_memory() {
            Ok(Sent::Here(self))
        } else {
            self.download().map(Sent::Enqueued)
        }
    }

    /// Waits for the elements and returns them as host bytes; elements of the cpu device are not copied.
    pub(crate) fn into_bytes(self) -> Result<HostBytes> {
        // A download checks the guard words after the elements.
        if self.guard > 0 || self.is_empty() {
            return self.download()?.bytes().map(HostBytes::Owned);
        }
        let bytes = to_usize(self.bytes());
        let device = self.device.clone();
        device.count_to_host(self.bytes());
        let _span = device.span(Stage::Download, "").bytes(self.bytes());
        device.driver().take(self.into_memory(), bytes)
    }

    /// Returns the extents of a matrix.
    pub(crate) fn matrix(&self, op: &'static str) -> Result<[u64; 2]> {
        let shape: Result<[u64; 2], _> = (*self.shape).try_into();
        shape.map_err(|_| Error::shape(op, "a matrix", format_args!("shape {:?}", self.shape)))
    }

    /// Returns all elements as an argument that a [kernel](crate::kernel) reads. A [view](Self::rows) must begin at a multiple of
    /// [`Limits::alignment`](crate::Limits::alignment).
    pub fn as_read(&self) -> Arg<'_> {
        self.arg(Access::Read)
    }

    /// Returns all elements as an argument that a [kernel](crate::kernel) writes.
    pub fn as_write(&mut self) -> Arg<'_> {
        self.arg(Access::Write)
    }

    /// Returns all elements as an argument that a [kernel](crate::kernel) reads and writes.
    pub fn as_read_write(&mut self) -> Arg<'_> {
        self.arg(Access::ReadWrite)
    }

    fn arg(&self, access: Access) -> Arg<'_> {
        Arg { device: &self.device, slice: self.slice(0, self.bytes()), access, dtype: T::DTYPE }
    }

    /// Returns a window of elements that a kernel reads.
    pub(crate) fn window(&self, elements: Range<u64>) -> Window<'_> {
        self.access(elements, Access::Read)
    }

    /// Returns a window of elements that a kernel writes completely.
    pub(crate) fn window_mut(&mut self, elements: Range<u64>) -> Window<'_> {
        self.access(elements, Access::Write)
    }

    /// Returns a window of elements that a kernel reads and writes.
    pub(crate) fn window_update(&mut self, elements: Range<u64>) -> Window<'_> {
        self.access(elements, Access::ReadWrite)
    }

    fn access(&self, elements: Range<u64>, access: Access) -> Window<'_> {
        assert!(
            elements.start <= elements.end && elements.end <= self.len(),
            "a window should lie in its tensor"
        );
        let size = T::DTYPE.size();
        let [first, end] = [elements.start, elements.end].map(|element| self.offset + element * size);
        let offset = first / self.device.limits().alignment * self.device.limits().alignment;
        let start = u32::try_from((first - offset) / size).expect("an alignment should be small");
        let slice = Slice { memory: &self.buffer.memory, offset, bytes: end - offset };
        Window { arg: Arg { device: &self.device, slice, access, dtype: T::DTYPE }, start }
    }

    /// Returns all elements, for a driver's copy. The first element must begin a word.
    pub(crate) fn whole(&self) -> Slice<'_> {
        self.slice(0, self.bytes().next_multiple_of(4))
    }

    /// Returns `bytes` bytes, from byte `start` of the elements on.
    pub(crate) fn slice(&self, start: u64, bytes: u64) -> Slice<'_> {
        Slice { memory: &self.buffer.memory, offset: self.offset + start, bytes }
    }
}

/// Fails with [`Error::Shape`] unless the number of values equals the number of elements of that shape.
fn check_len(op: &'static str, values: usize, shape: &[u64]) -> Result<()> {
    if checked_len(op, shape)? != values as u64 {
        return Err(Error::shape(op, format_args!("{shape:?}"), format_args!("{values} values")));
    }
    Ok(())
}

/// Returns the number of elements.
pub(crate) fn checked_len(op: &'static str, shape: &[u64]) -> Result<u64> {
    let len = shape.iter().try_fold(1u64, |len, &extent| len.checked_mul(extent));
    // A zero extent makes the product 0 only after the other extents were multiplied and may have overflowed.
    len.or_else(|| shape.contains(&0).then_some(0))
        .ok_or_else(|| Error::shape(op, "fewer than 2^64 elements", format_args!("shape {shape:?}")))
}

impl<T: Element> fmt::Debug for Tensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor<{:?}>({:?} on {})", T::DTYPE, self.shape, self.device.info().name)
    }
}

#[cfg(feature = "ndarray")]
impl<T: Element> Tensor<T> {
    /// Creates a tensor with an array's values, whatever its memory order. Copies the values to the device; an array that is not in C order is
    /// copied on the host first.
    ///
    /// # Errors
    /// As [`from_slice`](Self::from_slice).
    pub fn from_ndarray<D: ndarray::Dimension>(
        device: &Device,
        array: &ndarray::ArrayRef<T, D>,
    ) -> Result<Self> {
        let shape: Vec<u64> = array.shape().iter().map(|&extent| extent as u64).collect();
        match array.as_slice() {
            Some(values) => Self::from_slice(device, values, &shape),
            None => Self::from_slice(device, &array.iter().copied().collect::<Vec<_>>(), &shape),
        }
    }

    /// Returns the elements as an array in C order with the tensor's shape. Waits, and copies as [`read`](Self::read) does.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::Shape`] for a shape that ndarray cannot hold.
    pub fn to_ndarray(&self) -> Result<ndarray::ArrayD<T>> {
        let shape: Vec<usize> = self.shape.iter().copied().map(to_usize).collect();
        let array = ndarray::ArrayD::from_shape_vec(shape, self.read()?);
        array.map_err(|error| Error::shape("Tensor::to_ndarray", "an array that ndarray can hold", error))
    }
}
