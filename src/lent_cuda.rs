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
    /// Creates a device from a context and a stream that the application made with [`cudarc`].
    ///
    /// Work is enqueued on `stream`, in order with the application's own work there. Uploads of blocks use a second stream, ordered by events.
    /// Event tracking stays on, and the memory pool keeps its settings. From now on, cudarc treats the context as one with several streams.
    ///
    /// # Errors
    /// [`Error::Argument`] when `stream` belongs to another context, or the GPU is older than compute capability 7.5.
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

    /// Creates a device as [`from_cuda`](Self::from_cuda), with options.
    ///
    /// # Errors
    /// As [`from_cuda`](Self::from_cuda) and [`open_with`](Self::open_with).
    pub fn from_cuda_with(
        context: Arc<CudaContext>,
        stream: Arc<CudaStream>,
        options: &DeviceOptions,
    ) -> Result<Self> {
        let options = &options.resolved()?;
        Ok(Self::from_driver(lent(KERNELS[0], context, stream, options)?, options))
    }

    /// Returns the name, `cuda:N`, by which [`open`](Self::open) opens the device that owns the memory at an address.
    ///
    /// # Errors
    /// [`Error::Argument`] if the address is not in a CUDA device's memory; [`Error::NoDevice`] if there is no CUDA.
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
    /// Creates a tensor on the memory of an application's slice, without a copy. Work that the application enqueued on the slice, on any stream,
    /// runs first.
    ///
    /// The tensor owns the slice until [`into_cuda_slice`](Self::into_cuda_slice) returns it; a dropped tensor frees it. Its memory does not
    /// count in [`Device::allocated_bytes`].
    ///
    /// # Errors
    /// [`Error::WrongDevice`] when the slice belongs to another context; [`Error::Shape`] when the slice does not hold `product(shape)`
    /// elements; [`Error::Argument`] when `device` is not a CUDA device, and when the slice's memory is not whole words of 4 bytes, or does not
    /// start at a multiple of 16 bytes. On error the slice is dropped.
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

    /// Returns the tensor's memory as a slice that the application owns, in C order, without a copy. The slice's stream is the device's. Work
    /// enqueued on the tensor precedes that of any other stream that uses the slice through `cudarc`.
    ///
    /// # Errors
    /// [`Error::Argument`] when the tensor is on another backend; [`Error::DeviceLost`].
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

    /// Returns the address of the elements in the device's memory, for another library. The address is valid while the tensor exists, and its
    /// contents once [`Device::synchronize`] has waited for the work that fills it.
    ///
    /// # Errors
    /// [`Error::Argument`] when the tensor is on another backend.
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
    /// Creates a tensor of another library's memory on the device, in C order, for operations that read it. The tensor uses the memory in place
    /// if the memory starts at a multiple of 16 bytes and is whole words of 4; otherwise it is a copy on the device. Waits on the host for the
    /// work enqueued on `stream`, a CUDA handle, of which 1 is the default stream.
    ///
    /// # Errors
    /// [`Error::Argument`] when `device` is not a CUDA device; [`Error::Shape`] for 2^64 elements and more; for a copy also as
    /// [`Tensor::empty`].
    ///
    /// # Safety
    /// From `address` on, the memory of `device` has `product(shape)` elements. The elements stay valid and are not written until
    /// [`Device::synchronize`] has returned after the view was dropped. `stream` is a valid stream.
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
