//! Sharing a wgpu device and its buffers with the application that owns them.

use crate::{
    Device, DeviceOptions, Element, Error, Result, Tensor,
    device::Buffer,
    driver::{
        Memory, foreign,
        wgpu::{WgpuDriver, WgpuMemory, lent},
    },
};

const FROM_BUFFER: &str = "Tensor::from_wgpu_buffer";
const BUFFER: &str = "Tensor::wgpu_buffer";

/// The position of a tensor's elements in a wgpu buffer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WgpuBuffer {
    /// The buffer, with the usages `STORAGE`, `COPY_SRC` and, unless the application created it, `COPY_DST`.
    pub buffer: wgpu::Buffer,
    /// The byte offset of the first element.
    pub byte_offset: u64,
    /// The number of bytes of all elements, packed in C order.
    pub bytes: u64,
}

impl Device {
    /// Wraps a device that the application opened. The device needs no optional feature; WebGPU's default limits are enough.
    ///
    /// The library sets nothing global on the device (no error or loss callback), never destroys it, and waits only for work that it submitted
    /// itself. Error scopes keep its errors from the application's handler. `queue` must be the device's own. Work is submitted in portions of
    /// about 50 ms, so that the application can draw in between.
    ///
    /// # Errors
    /// [`Error::Argument`] when the device was opened with fewer than 256 invocations or less than 16,352 bytes of memory for a workgroup, or
    /// fewer than 5 storage buffers; and for a device of GL, on which wgpu panics in a thread that has waited six seconds for another thread's
    /// call.
    ///
    /// ```no_run
    /// use teatime::{Device, Tensor, linalg::matmul_tn, wgpu};
    ///
    /// let adapter = pollster::block_on(wgpu::Instance::default().request_adapter(&Default::default()))?;
    /// let (gpu, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default()))?;
    /// let device = Device::from_wgpu(gpu, queue)?;
    /// let x = Tensor::from_slice(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// // The buffer of the result, for commands of the application's own, which run after the product.
    /// let gram = matmul_tn(&x, &x)?.wgpu_buffer()?;
    /// assert_eq!(gram.bytes, 16);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_wgpu(device: wgpu::Device, queue: wgpu::Queue) -> Result<Self> {
        Self::from_wgpu_with(device, queue, &DeviceOptions::default())
    }

    /// Wraps an application's device, as [`from_wgpu`](Self::from_wgpu), with options.
    ///
    /// # Errors
    /// As [`from_wgpu`](Self::from_wgpu) and [`open_with`](Self::open_with).
    pub fn from_wgpu_with(device: wgpu::Device, queue: wgpu::Queue, options: &DeviceOptions) -> Result<Self> {
        let options = &options.resolved()?;
        Ok(Self::from_driver(lent(device, queue, options)?, options))
    }

    fn wgpu(&self, op: &'static str) -> Result<&WgpuDriver> {
        self.driver().wgpu().ok_or_else(|| {
            Error::argument(op, "device", format_args!("{} is not a wgpu device", self.info().name))
        })
    }
}

/// A checked description of rows in an application's buffer, in bytes.
#[derive(Debug)]
struct RowLayout {
    offset: u64,
    count: u64,
    bytes: u64,
    pitch: u64,
}

impl<T: Element> Tensor<T> {
    /// Creates a tensor of the elements in an application's buffer, which must have been created on the same wgpu device.
    ///
    /// `byte_offset` is the start of the first element, a multiple of 4. `row_pitch` is the distance in bytes between the starts of rows along
    /// the last axis, as in texture copies; without it the elements are packed.
    ///
    /// The tensor *shares* the buffer if the elements are packed, `byte_offset` is a multiple of
    /// [`Limits::alignment`](crate::Limits::alignment), and the buffer has the usage STORAGE. Then it sees later writes of the application, and
    /// the buffer must not be mapped or destroyed while work on it is enqueued. Otherwise the elements are *copied* on the device into a packed
    /// tensor; the copy is submitted without a wait. Shared memory does not count in [`Device::allocated_bytes`].
    ///
    /// # Errors
    /// [`Error::Argument`] when the buffer lacks the usage `COPY_SRC` or is too small, when `byte_offset` is misaligned or `row_pitch` is less
    /// than a row, when rows that are not packed are not whole words of 4 bytes, and when `device` is not a wgpu device; [`Error::WrongDevice`]
    /// when the buffer is from another device of the same `wgpu::Instance` (wgpu cannot detect another instance); [`Error::OutOfMemory`].
    pub fn from_wgpu_buffer(
        device: &Device,
        buffer: &wgpu::Buffer,
        byte_offset: u64,
        shape: &[u64],
        row_pitch: Option<u64>,
    ) -> Result<Self> {
        let driver = device.wgpu(FROM_BUFFER)?;
        let rows = rows::<T>(buffer, byte_offset, shape, row_pitch)?;
        if rows.count == 0 || rows.bytes == 0 {
            return Self::empty(device, shape);
        }
        let packed = rows.pitch == rows.bytes;
        let aligned = rows.offset.is_multiple_of(device.limits().alignment);
        if packed && aligned && buffer.usage().contains(wgpu::BufferUsages::STORAGE) {
            driver.check_owner(FROM_BUFFER, buffer)?;
            let memory = Memory::Wgpu(WgpuMemory::lent(buffer.clone(), rows.offset));
            return Ok(Self::from_buffer(device, Buffer::lent(memory), shape));
        }
        let tensor = Self::empty(device, shape)?;
        let (Memory::Wgpu(memory), _) = tensor.memory() else { return Err(foreign(FROM_BUFFER)) };
        let copies = (0..rows.count)
            .map(|row| (rows.offset + row * rows.pitch, row * rows.bytes, rows.bytes.next_multiple_of(4)));
        driver.copy_in(FROM_BUFFER, buffer, &memory.buffer, copies)?;
        Ok(tensor)
    }

    /// Returns the tensor's buffer, for use in the application's own work on the same wgpu device. All pending work is submitted first, so later
    /// submissions of the application run after it.
    ///
    /// # Errors
    /// [`Error::Argument`] when the tensor is on another backend, and on a device of GL, as for [`Device::from_wgpu`]; [`Error::DeviceLost`].
    pub fn wgpu_buffer(&self) -> Result<WgpuBuffer> {
        let driver = self.device().wgpu(BUFFER)?;
        driver.check_shared(BUFFER)?;
        driver.flush()?;
        match self.memory() {
            (Memory::Wgpu(memory), offset) => Ok(WgpuBuffer {
                buffer: wgpu::Buffer::clone(&memory.buffer),
                byte_offset: memory.base + offset,
                bytes: self.bytes(),
            }),
            _ => Err(foreign(BUFFER)),
        }
    }
}

/// Returns the rows that the arguments describe; packed rows become one row.
fn rows<T: Element>(
    buffer: &wgpu::Buffer,
    offset: u64,
    shape: &[u64],
    row_pitch: Option<u64>,
) -> Result<RowLayout> {
    let wrong = |name, why: String| Err(Error::argument(FROM_BUFFER, name, why));
    if !buffer.usage().contains(wgpu::BufferUsages::COPY_SRC) {
        return wrong("buffer", format!("usage {:?} without COPY_SRC", buffer.usage()));
    }
    if !offset.is_multiple_of(4) {
        return wrong("byte_offset", format!("{offset} is not a multiple of 4"));
    }
    let (&cols, outer) = shape.split_last().unwrap_or((&1, &[]));
    let too_large = || Error::argument(FROM_BUFFER, "shape", format_args!("{shape:?} is beyond 2^64 bytes"));
    let count = outer.iter().try_fold(1u64, |n, &extent| n.checked_mul(extent)).ok_or_else(too_large)?;
    let bytes = cols.checked_mul(T::DTYPE.size()).ok_or_else(too_large)?;
    let pitch = row_pitch.unwrap_or(bytes);
    if pitch < bytes {
        return wrong("row_pitch", format!("{pitch} is less than the {bytes} bytes of a row"));
    }
    let last = count.saturating_sub(1).checked_mul(pitch).and_then(|start| start.checked_add(bytes));
    let end = last.and_then(|last| last.checked_add(offset)).ok_or_else(too_large)?;
    if end > buffer.size() / 4 * 4 && count > 0 {
        let size = buffer.size();
        return wrong("buffer", format!("{size} bytes (used in words of 4), and {shape:?} ends at {end}"));
    }
    if pitch == bytes || count == 1 {
        return Ok(RowLayout { offset, count: count.min(1), bytes: count * bytes, pitch: count * bytes });
    }
    if !bytes.is_multiple_of(4) || !pitch.is_multiple_of(4) {
        return wrong("row_pitch", format!("rows of {bytes} bytes, {pitch} apart, are not whole words of 4"));
    }
    Ok(RowLayout { offset, count, bytes, pitch })
}
