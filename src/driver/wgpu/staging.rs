//! Host memory for copies from and to a wgpu device.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use super::{Gpu, GpuBuffer};
use crate::{Error, Result, extent::to_usize, fresh};

/// The channel that reports the end of a request to map a buffer.
type Mapped = mpsc::Receiver<Result<(), wgpu::BufferAsyncError>>;

/// The time between two polls of a thread that does not wait inside wgpu.
const BETWEEN: Duration = Duration::from_micros(500);

/// A buffer that the host maps after a submission.
#[derive(Debug)]
struct Mapping {
    buffer: GpuBuffer,
    submission: wgpu::SubmissionIndex,
    mapped: Mapped,
}

impl Mapping {
    /// Requests the mapping; `submission` is the last submission that uses the buffer.
    fn request(
        gpu: &Gpu,
        buffer: GpuBuffer,
        mode: wgpu::MapMode,
        submission: wgpu::SubmissionIndex,
    ) -> Result<Self> {
        let (sender, mapped) = mpsc::channel();
        let request = gpu.scoped(|_| {
            buffer.map_async(mode, .., move |result| {
                // If the receiver was dropped, nobody waits for the result.
                let _ = sender.send(result);
            });
        });
        request.map_err(|error| gpu.failed(error))?;
        Ok(Self { buffer, submission, mapped })
    }

    /// Waits until the buffer is mapped.
    fn wait(self, gpu: &Gpu) -> Result<GpuBuffer> {
        gpu.wait_for(&self.submission)?;
        // Another thread's poll may be about to run the callback, so this waits for the callback too.
        let mapped = self.mapped.recv();
        self.buffer(gpu, matches!(mapped, Ok(Ok(()))))
    }

    /// Polls at intervals until the buffer is mapped: a thread that waits inside wgpu prevents other threads from submitting.
    fn wait_aside(self, gpu: &Gpu) -> Result<GpuBuffer> {
        loop {
            gpu.poll(wgpu::PollType::Poll)?;
            match self.mapped.recv_timeout(BETWEEN) {
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                mapped => return self.buffer(gpu, matches!(mapped, Ok(Ok(())))),
            }
        }
    }

    fn buffer(self, gpu: &Gpu, is_mapped: bool) -> Result<GpuBuffer> {
        // The request was valid, so a failure means that the device is lost.
        if is_mapped { Ok(self.buffer) } else { Err(gpu.lose("a buffer could not be mapped")) }
    }
}

/// Bytes that are being copied to the host.
#[derive(Debug)]
pub(crate) struct WgpuDownload {
    gpu: Arc<Gpu>,
    mapping: Mapping,
}

impl WgpuDownload {
    /// Submits the enqueued commands, which fill `buffer`, and requests its mapping.
    pub(super) fn new(gpu: &Arc<Gpu>, buffer: GpuBuffer) -> Result<Self> {
        let submission = gpu.submit()?;
        let mapping = Mapping::request(gpu, buffer, wgpu::MapMode::Read, submission)?;
        Ok(Self { gpu: gpu.clone(), mapping })
    }

    pub(crate) fn wait(self) -> Result<Vec<u8>> {
        let buffer = self.mapping.wait(&self.gpu)?;
        bytes(&self.gpu, &buffer)
    }

    pub(crate) fn wait_into(self, out: &mut [u8]) -> Result<()> {
        let buffer = self.mapping.wait(&self.gpu)?;
        let view = buffer.get_mapped_range(..).map_err(|error| map_error(&self.gpu, error))?;
        out.copy_from_slice(&view[..out.len()]);
        Ok(())
    }

    /// Implements [`Download::wait_aside`](crate::driver::Download::wait_aside).
    pub(crate) fn wait_aside(self) -> Result<Vec<u8>> {
        let buffer = self.mapping.wait_aside(&self.gpu)?;
        bytes(&self.gpu, &buffer)
    }
}

/// Returns a copy of a mapped buffer's bytes.
fn bytes(gpu: &Gpu, buffer: &GpuBuffer) -> Result<Vec<u8>> {
    let view = buffer.get_mapped_range(..).map_err(|error| map_error(gpu, error))?;
    Ok(view.to_vec())
}

/// A slot of host memory and a buffer that the device copies from.
///
/// The host memory is separate from the buffer: a decoder reads the bytes that it wrote, while mapped memory may be
/// uncached, and wgpu allows only writes to it. The slot can be filled again while its last upload is under way.
#[derive(Debug)]
pub(crate) struct WgpuStaging {
    bytes: Vec<u8>,
    buffer: Option<GpuBuffer>,
    in_flight: Option<Mapping>,
}

impl WgpuStaging {
    pub(super) fn new(gpu: &Gpu, bytes: u64) -> Result<Self> {
        let buffer = gpu.mapped_buffer(bytes)?;
        let len = to_usize(bytes);
        let bytes = fresh::zeros(len)?;
        Ok(Self { bytes, buffer: Some(buffer), in_flight: None })
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Copies the first `len` bytes to `dst`, and submits the copy.
    pub(super) fn upload(&mut self, gpu: &Gpu, dst: &wgpu::Buffer, offset: u64, len: u64) -> Result<()> {
        let buffer = match (self.buffer.take(), self.in_flight.take()) {
            (Some(buffer), _) => buffer,
            (None, Some(mapping)) => mapping.wait(gpu)?,
            // The last upload failed, and its buffer was dropped.
            (None, None) => gpu.mapped_buffer(self.bytes.len() as u64)?,
        };
        let used = to_usize(len).min(self.bytes.len());
        fill(gpu, &buffer, &self.bytes[..used])?;
        gpu.record(len, |encoder| encoder.copy_buffer_to_buffer(&buffer, 0, dst, offset, len))?;
        // The buffer may be mapped again only after the copy is submitted.
        let submission = gpu.submit()?;
        self.in_flight = Some(Mapping::request(gpu, buffer, wgpu::MapMode::Write, submission)?);
        Ok(())
    }
}

/// Writes to a mapped buffer and unmaps it.
pub(super) fn fill(gpu: &Gpu, buffer: &wgpu::Buffer, bytes: &[u8]) -> Result<()> {
    let mut view = buffer.get_mapped_range_mut(..).map_err(|error| map_error(gpu, error))?;
    view.slice(..bytes.len()).copy_from_slice(bytes);
    drop(view);
    gpu.scoped(|_| buffer.unmap()).map_err(|error| gpu.failed(error))
}

fn map_error(gpu: &Gpu, error: wgpu::MapRangeError) -> Error {
    gpu.probe().err().unwrap_or_else(|| Error::Driver { backend: "wgpu", source: error.to_string().into() })
}
