//! Sharing a CUDA context, a stream and device memory with the application that owns them, or with another library.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};

use crate::{
    Device, DeviceOptions, Element, Error, Result, Tensor, TensorView,
    device::Buffer,
    driver::{
        Memory,
        cuda::{CudaDriver, lent, place_of},
        foreign,
    },
    extent::to_usize,
    kernels::KERNELS,
};

impl Device {
    /// A device on a context and a stream that the application made with [`cudarc`].
    ///
    /// Work is enqueued on `stream`, so it keeps its order with what the application enqueues there. Uploads of blocks go through a
    /// second stream, ordered by events. Event tracking stays on, the memory pool keeps its settings, and from now on cudarc treats the
    /// context as one of several streams.
    ///
    /// # Errors
    /// [`Error::Argument`] when `stream` is another context's, or the GPU is older than compute capability 7.5.
    ///
    /// ```no_run
    /// use teatime::{Device, Tensor, cudarc::driver::CudaContext, linalg::matmul_tn};
    ///
    /// let context = CudaContext::new(0)?;
    /// let stream = context.new_stream()?;
    /// let device = Device::from_cuda(context, stream.clone())?;
    /// // The application's memory in, the result's memory out: nothing is copied.
    /// let x = Tensor::from_cuda_slice(&device, stream.clone_htod(&[1.0f32, 2.0, 3.0, 4.0])?, &[2, 2])?;
    /// let gram = matmul_tn(&x, &x)?.into_cuda_slice()?;
    /// assert_eq!(stream.clone_dtoh(&gram)?, [10.0, 14.0, 14.0, 20.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_cuda(context: Arc<CudaContext>, stream: Arc<CudaStream>) -> Result<Self> {
        Self::from_cuda_with(context, stream, &DeviceOptions::default())
    }

    /// [`from_cuda`](Self::from_cuda) with options.
    ///
    /// # Errors
    /// As [`from_cuda`](Self::from_cuda) and [`open_with`](Self::open_with).
    pub fn from_cuda_with(
        context: Arc<CudaContext>,
        stream: Arc<CudaStream>,
        options: &DeviceOptions,
    ) -> Result<Self> {
        options.check()?;
        Ok(Self::from_driver(lent(KERNELS[0], context, stream, options)?, options))
    }

    /// The name by which [`open`](Self::open) opens the device that has the memory at an address: `cuda:N`.
    ///
    /// # Errors
    /// [`Error::Argument`] where the address is in no CUDA device's memory; [`Error::NoDevice`] where there is no CUDA.
    pub fn name_of_cuda_memory(address: u64) -> Result<String> {
        Ok(format!("cuda:{}", place_of("Device::name_of_cuda_memory", address)?))
    }

    fn cuda(&self, op: &'static str) -> Result<&CudaDriver> {
        self.driver().cuda().ok_or_else(|| {
            Error::argument(op, "device", format_args!("{} is not a CUDA device", self.info().name))
        })
    }
}

impl<T: Element> Tensor<T> {
    /// A tensor on the memory of an application's slice; copies nothing. What the application enqueued on the slice, on
    /// whatever stream, comes first.
    ///
    /// The tensor owns the slice until [`into_cuda_slice`](Self::into_cuda_slice) gives it back, or frees it when it is
    /// dropped. Its memory does not count in [`Device::allocated_bytes`].
    ///
    /// # Errors
    /// [`Error::WrongDevice`] when the slice is another context's; [`Error::Shape`] when
    /// the slice does not hold `product(shape)` elements; [`Error::Argument`] when `device` is not a CUDA device, and when its memory is not whole words of 4
    /// bytes, or starts within 16 of them. The slice is dropped then.
    pub fn from_cuda_slice(device: &Device, slice: CudaSlice<T>, shape: &[u64]) -> Result<Self> {
        let op = "Tensor::from_cuda_slice";
        let driver = device.cuda(op)?;
        let len = crate::tensor::checked_len(op, shape)?;
        if len != slice.len() as u64 {
            return Err(Error::shape(
                op,
                format_args!("{shape:?}"),
                format_args!("{} elements", slice.len()),
            ));
        }
        if !(len * T::DTYPE.size()).is_multiple_of(4) {
            let why = format!("{len} elements of {} bytes are not whole words of 4", T::DTYPE.size());
            return Err(Error::argument(op, "slice", why));
        }
        let memory = Memory::Cuda(driver.lend(op, slice)?);
        Ok(Self::from_buffer(device, Buffer::lent(memory), shape))
    }

    /// The tensor's memory as a slice that the application owns, in C order; copies nothing. Its stream is the device's,
    /// and what was enqueued on the tensor comes first on every other stream that uses the slice through `cudarc`.
    ///
    /// # Errors
    /// [`Error::Argument`] when the tensor lives on another backend; [`Error::DeviceLost`].
    pub fn into_cuda_slice(self) -> Result<CudaSlice<T>> {
        let op = "Tensor::into_cuda_slice";
        let device = self.device().clone();
        let len = to_usize(self.len());
        let driver = device.cuda(op)?;
        match self.into_memory() {
            Memory::Cuda(memory) => driver.give_back(memory, len),
            _ => Err(foreign(op)),
        }
    }

    /// The address of the elements in the device's memory, for another library: for as long as the tensor is there, and once
    /// [`Device::synchronize`] has waited for what fills it.
    ///
    /// # Errors
    /// [`Error::Argument`] when the tensor lives on another backend.
    pub fn cuda_address(&self) -> Result<u64> {
        let op = "Tensor::cuda_address";
        self.device().cuda(op)?;
        match self.memory() {
            (Memory::Cuda(memory), offset) => Ok(memory.address() + offset),
            _ => Err(foreign(op)),
        }
    }
}

impl<T: Element> TensorView<'_, T> {
    /// A tensor of memory that another library has on the device, in C order, for operations that read it: where it is, if it starts at a
    /// multiple of 16 bytes and is whole words of 4; else a copy on the device. Waits on the host for what is enqueued on `stream`, a
    /// handle of CUDA's, where 1 is the default stream.
    ///
    /// # Errors
    /// [`Error::Argument`] when `device` is not a CUDA device; [`Error::Shape`] for 2^64 elements and more; where it is copied,
    /// as of [`Tensor::empty`].
    ///
    /// # Safety
    /// From `address` on, there are `product(shape)` elements in the memory of `device`. They are there and are not written until
    /// [`Device::synchronize`] has returned after the view was dropped. `stream` is a stream that is there.
    #[allow(unsafe_code, reason = "nothing tells whose memory an address is")]
    pub unsafe fn from_cuda_memory(
        device: &Device,
        address: u64,
        shape: &[u64],
        stream: u64,
    ) -> Result<Self> {
        let op = "TensorView::from_cuda_memory";
        let driver = device.cuda(op)?;
        let bytes = crate::tensor::checked_len(op, shape)?.saturating_mul(T::DTYPE.size());
        // SAFETY: as the caller promises.
        unsafe { driver.wait_for(stream)? };
        if bytes > 0 && address.is_multiple_of(16) && bytes.is_multiple_of(4) {
            // SAFETY: as the caller promises.
            let memory = unsafe { driver.borrow(address) };
            return Ok(Self::new(Tensor::from_buffer(device, Buffer::lent(Memory::Cuda(memory)), shape)));
        }
        let copy = Tensor::empty(device, shape)?;
        if bytes > 0 {
            // SAFETY: as the caller promises.
            unsafe { driver.copy_from(address, copy.slice(0, bytes))? };
        }
        Ok(Self::new(copy))
    }
}
