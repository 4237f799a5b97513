//! Sharing a CUDA context, a stream and device memory with the application that owns them.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};

use crate::{
    Device, DeviceOptions, Element, Error, Result, Tensor,
    device::Buffer,
    driver::{
        Memory,
        cuda::{CudaDriver, lent},
    },
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
    /// [`Error::Argument`] when `stream` is another context's, or the GPU is older than compute capability 8.0.
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

    fn cuda(&self, op: &'static str) -> Result<&CudaDriver> {
        self.driver().cuda().ok_or(Error::WrongDevice { op })
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
    /// [`Error::WrongDevice`] when `device` is not a CUDA device or the slice is another context's; [`Error::Shape`] when
    /// the slice does not hold `product(shape)` elements; [`Error::Argument`] when its memory is not whole words of 4
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
    /// [`Error::WrongDevice`] when the tensor lives on another backend; [`Error::DeviceLost`].
    pub fn into_cuda_slice(self) -> Result<CudaSlice<T>> {
        let op = "Tensor::into_cuda_slice";
        let device = self.device().clone();
        let len = usize::try_from(self.len()).unwrap_or(usize::MAX);
        match self.into_memory() {
            Memory::Cuda(memory) => device.cuda(op)?.give_back(memory, len),
            _ => Err(Error::WrongDevice { op }),
        }
    }
}
