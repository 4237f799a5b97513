//! Vulkan, Metal, DX12 and GL adapters through wgpu.

mod batch;
mod compile;
mod select;
mod staging;
mod times;
mod turn;

use std::{
    num::NonZeroU64,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, OnceLock},
};

use self::{batch::Batch, compile::Cache, times::Times, turn::Turn};
use super::{ArgSlice, Caller, Download, Driver, Fence, Memory, Slice, Staging, foreign};
use crate::{
    DeviceInfo, Error, Limits, Result,
    kernel::{Grid, KernelDef, Spec},
    timeline::{Stage, Timeline},
    waiting::lock,
};

pub(crate) use self::{
    select::{best, lent, list, open},
    staging::{WgpuDownload, WgpuStaging},
    turn::GpuBuffer,
};

#[cfg(test)]
pub(crate) use self::{compile::source, select::STORAGE_BUFFERS};

/// The number of launches of one submission: enough to hide the cost of submitting.
const LAUNCHES: u32 = 32;
/// The maximum number of bytes of host data in one staging buffer.
const PIECE: u64 = 16 << 20;

/// A buffer, or the part of an application's buffer that starts at `base`.
#[derive(Clone, Debug)]
pub(crate) struct WgpuMemory {
    pub(crate) buffer: GpuBuffer,
    pub(crate) base: u64,
}

impl WgpuMemory {
    /// Wraps an application's buffer. A device that an application lends is never a GL device.
    pub(crate) fn lent(buffer: wgpu::Buffer, base: u64) -> Self {
        Self { buffer: GpuBuffer::new(buffer, Turn::NONE), base }
    }
}

/// An open device and the work that is enqueued on it.
#[derive(Debug)]
pub(crate) struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    name: String,
    backend: wgpu::Backend,
    turn: Turn,
    /// The reason why the device is lost, once it is lost.
    lost: Arc<OnceLock<String>>,
    pipelines: Cache,
    batch: Mutex<Batch>,
    /// The parameter blocks of the launches of one submission.
    uniforms: wgpu::Buffer,
    /// The times of launches; `None` if the device does not tell them.
    times: Option<Times>,
}

impl Gpu {
    /// Runs wgpu calls in error scopes of their own, so that their errors belong to this call: on a lent device, the
    /// application's handler must not see the errors, and wgpu's default handler panics. Scopes are per thread.
    fn scoped<T>(&self, calls: impl FnOnce(&wgpu::Device) -> T) -> Result<T, wgpu::Error> {
        let _turn = self.turn.take();
        scoped(&self.device, calls)
    }

    /// Returns the error of a failed call, or that of a lost device.
    fn failed(&self, error: wgpu::Error) -> Error {
        self.probe().err().unwrap_or_else(|| Error::Driver { backend: "wgpu", source: Box::new(error) })
    }

    /// Finds out whether the device is lost. wgpu reports a loss only by a callback, which on a lent device belongs to
    /// the application. After a loss, other calls make invalid objects without an error. But a buffer that should be
    /// mapped at creation is then not mapped, which this function tests.
    fn probe(&self) -> Result<()> {
        self.alive()?;
        let descriptor = wgpu::BufferDescriptor {
            label: Some("teatime probe"),
            size: 4,
            usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: true,
        };
        let made = self.scoped(|device| device.create_buffer(&descriptor));
        match made.map(|buffer| GpuBuffer::new(buffer, self.turn.clone())) {
            Ok(buffer) if buffer.get_mapped_range_mut(..).is_err() => Err(self.lose("lost or destroyed")),
            _ => Ok(()),
        }
    }

    fn alive(&self) -> Result<()> {
        match self.lost.get() {
            Some(why) => {
                Err(Error::DeviceLost { device: self.name.as_str().into(), why: why.as_str().into() })
            }
            None => Ok(()),
        }
    }

    /// Marks the device as lost and returns the error.
    fn lose(&self, why: &str) -> Error {
        let why = self.lost.get_or_init(|| why.to_owned());
        Error::DeviceLost { device: self.name.as_str().into(), why: why.as_str().into() }
    }

    /// Records commands that move `bytes` bytes, after everything enqueued before.
    fn record(&self, bytes: u64, commands: impl FnOnce(&mut wgpu::CommandEncoder)) -> Result<()> {
        self.alive()?;
        lock(&self.batch).record(self, batch::cost(0, bytes), commands)
    }

    /// Submits the recorded commands and returns the index of the last submission.
    fn submit(&self) -> Result<wgpu::SubmissionIndex> {
        self.alive()?;
        lock(&self.batch).submit(self)
    }

    /// Waits for a submission and all earlier ones, and for nothing else: a lent device may never become idle.
    fn wait_for(&self, submission: &wgpu::SubmissionIndex) -> Result<()> {
        self.poll(wgpu::PollType::Wait { submission_index: Some(submission.clone()), timeout: None })
    }

    /// Polls the device, which calls the callbacks of work that has ended.
    fn poll(&self, how: wgpu::PollType) -> Result<()> {
        self.alive()?;
        let _turn = self.turn.take();
        // wgpu 30 panics if the device is lost during the wait.
        match catch_unwind(AssertUnwindSafe(|| self.device.poll(how))) {
            Ok(Ok(_)) => {
                self.times.iter().for_each(|times| times.collect(self));
                self.alive()
            }
            Ok(Err(error)) => Err(self.lose(&error.to_string())),
            Err(_) => Err(self.lose("it failed while work was under way")),
        }
    }

    /// Makes a buffer. If there is not enough memory, tries again after all dropped memory is free.
    fn buffer(&self, size: u64, usage: wgpu::BufferUsages, mapped_at_creation: bool) -> Result<GpuBuffer> {
        self.alive()?;
        let descriptor = wgpu::BufferDescriptor { label: Some("teatime"), size, usage, mapped_at_creation };
        let create = || self.scoped(|device| device.create_buffer(&descriptor));
        let mut made = create();
        if matches!(made, Err(wgpu::Error::OutOfMemory { .. })) {
            let last = self.submit()?;
            self.wait_for(&last)?;
            made = create();
        }
        self.alive()?;
        let made = made.map_err(|error| match error {
            wgpu::Error::OutOfMemory { .. } => Error::OutOfMemory { requested: size, free: None },
            error => self.failed(error),
        });
        Ok(GpuBuffer::new(made?, self.turn.clone()))
    }

    /// Makes a staging buffer that is mapped for the host to write.
    fn mapped_buffer(&self, bytes: u64) -> Result<GpuBuffer> {
        let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
        self.buffer(bytes.next_multiple_of(4).max(4), usage, true)
    }
}

/// Runs wgpu calls in error scopes of their own.
fn scoped<T>(device: &wgpu::Device, calls: impl FnOnce(&wgpu::Device) -> T) -> Result<T, wgpu::Error> {
    let filters =
        [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation];
    let scopes = filters.map(|filter| device.push_error_scope(filter));
    let value = calls(device);
    // The innermost scope is popped first. On native backends, the results of scopes are ready at once.
    let errors = scopes.into_iter().rev().map(|scope| pollster::block_on(scope.pop()));
    match errors.fold(None, |first, error| first.or(error)) {
        Some(error) => Err(error),
        None => Ok(value),
    }
}

/// The wgpu driver: one queue, in which copies and launches keep their order.
#[derive(Debug)]
pub(crate) struct WgpuDriver {
    gpu: Arc<Gpu>,
    info: DeviceInfo,
    limits: Limits,
}

impl WgpuDriver {
    /// Makes a driver. For a device that this crate opened, the device's callback sets `lost`.
    fn new(
        device: wgpu::Device,
        queue: wgpu::Queue,
        info: DeviceInfo,
        limits: Limits,
        lost: Arc<OnceLock<String>>,
    ) -> Result<Self> {
        let batch = Batch::new(&device, &info);
        let backend = device.adapter_info().backend;
        let uniforms = scoped(&device, |device| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("teatime params"),
                size: batch.uniform_bytes(),
                usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        });
        let uniforms =
            uniforms.map_err(|error| Error::Driver { backend: "wgpu", source: Box::new(error) })?;
        let gpu = Gpu {
            times: Times::new(&device, &queue, &info.name),
            name: info.name.clone(),
            backend,
            turn: Turn::new(backend),
            device,
            queue,
            lost,
            pipelines: Cache::default(),
            batch: Mutex::new(batch),
            uniforms,
        };
        Ok(Self { gpu: Arc::new(gpu), info, limits })
    }

    /// Makes a bind group of the arguments' buffers and offsets, and of the parameters.
    fn bind(
        &self,
        layout: &wgpu::BindGroupLayout,
        args: &[ArgSlice<'_>],
        params: u64,
    ) -> Result<wgpu::BindGroup> {
        let mut resources = Vec::with_capacity(args.len() + 1);
        for arg in args {
            let (buffer, offset) = window(arg.slice)?;
            // A binding covers whole words; that of an empty window covers the word in which the window starts.
            let size = NonZeroU64::new(arg.slice.bytes.next_multiple_of(4).max(4));
            resources.push(wgpu::BufferBinding { buffer, offset, size });
        }
        let size = NonZeroU64::new(params.next_multiple_of(16).max(16));
        resources.push(wgpu::BufferBinding { buffer: &self.gpu.uniforms, offset: 0, size });
        let entries: Vec<_> = (0..)
            .zip(resources)
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding,
                resource: wgpu::BindingResource::Buffer(buffer),
            })
            .collect();
        let descriptor = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
        let group = self.gpu.scoped(|device| device.create_bind_group(&descriptor));
        group.map_err(|error| self.gpu.failed(error))
    }
}

impl WgpuDriver {
    /// Returns an error on GL devices.
    pub(crate) fn check_shared(&self, op: &'static str) -> Result<()> {
        select::check_shared(self.gpu.backend, op)
    }

    /// Submits the recorded commands.
    pub(crate) fn flush(&self) -> Result<()> {
        self.gpu.submit().map(drop)
    }

    /// Refuses an application's storage buffer that was not created on this device: a launch would fail later, with all recorded commands.
    pub(crate) fn check_owner(&self, op: &'static str, buffer: &wgpu::Buffer) -> Result<()> {
        self.gpu.alive()?;
        let entry = wgpu::BindGroupLayoutEntry {
            binding: 0,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: wgpu::BufferBindingType::Storage { read_only: true },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        };
        // One word is bound, since a whole buffer may be larger than a binding can be.
        let word = wgpu::BufferBinding { buffer, offset: 0, size: NonZeroU64::new(4) };
        let bound = self.gpu.scoped(|device| {
            let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: None,
                entries: &[entry],
            });
            let resource = wgpu::BindingResource::Buffer(word);
            device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &layout,
                entries: &[wgpu::BindGroupEntry { binding: 0, resource }],
            })
        });
        bound.map(drop).map_err(|_| self.gpu.probe().err().unwrap_or_else(|| self.not_ours(op)))
    }

    fn not_ours(&self, op: &'static str) -> Error {
        Error::wrong_device(op, "buffer", "another wgpu device", &self.info.name)
    }

    /// Copies (from, to, length) pieces of an application's buffer in a submission of their own, so that a mistake fails no other commands.
    pub(crate) fn copy_in(
        &self,
        op: &'static str,
        src: &wgpu::Buffer,
        dst: &wgpu::Buffer,
        pieces: impl Iterator<Item = (u64, u64, u64)>,
    ) -> Result<()> {
        self.flush()?;
        let copied = self.gpu.scoped(|device| {
            let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            for (from, to, len) in pieces {
                encoder.copy_buffer_to_buffer(src, from, dst, to, len);
            }
            self.gpu.queue.submit([encoder.finish()])
        });
        copied.map(drop).map_err(|_| self.gpu.probe().err().unwrap_or_else(|| self.not_ours(op)))
    }
}

/// Returns the buffer of a window, and the window's offset in it.
fn window(slice: Slice<'_>) -> Result<(&wgpu::Buffer, u64)> {
    match slice.memory {
        Memory::Wgpu(memory) => Ok((&memory.buffer, memory.base + slice.offset)),
        _ => Err(foreign("wgpu")),
    }
}

impl Driver for WgpuDriver {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn alloc(&self, bytes: u64) -> Result<Memory> {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let buffer = self.gpu.buffer(bytes.max(16), usage, false)?;
        Ok(Memory::Wgpu(WgpuMemory { buffer, base: 0 }))
    }

    fn clear(&self, dst: Slice<'_>) -> Result<()> {
        let (buffer, offset) = window(dst)?;
        self.gpu.record(dst.bytes, |encoder| encoder.clear_buffer(buffer, offset, Some(dst.bytes)))
    }

    fn copy(&self, src: Slice<'_>, dst: Slice<'_>) -> Result<()> {
        let ((from, from_offset), (to, to_offset)) = (window(src)?, window(dst)?);
        self.gpu.record(2 * src.bytes, |encoder| {
            encoder.copy_buffer_to_buffer(from, from_offset, to, to_offset, src.bytes);
        })
    }

    /// Uses staging buffers rather than `Queue::write_buffer`, which would take effect before the recorded commands.
    fn write(&self, dst: Slice<'_>, bytes: &[u8]) -> Result<()> {
        let (buffer, offset) = window(dst)?;
        let piece = usize::try_from(PIECE).expect("a piece should fit the address space");
        for (i, bytes) in bytes.chunks(piece).enumerate() {
            let len = bytes.len() as u64;
            let staging = self.gpu.mapped_buffer(len)?;
            staging::fill(&self.gpu, &staging, bytes)?;
            self.gpu.record(len, |encoder| {
                encoder.copy_buffer_to_buffer(&staging, 0, buffer, offset + i as u64 * PIECE, len);
            })?;
            let full = lock(&self.gpu.batch).staged(&self.gpu, len)?;
            full.map_or(Ok(()), |submission| self.gpu.wait_for(&submission))?;
        }
        Ok(())
    }

    fn download(&self, src: Slice<'_>, _: Option<&Timeline>) -> Result<Download> {
        let (from, offset) = window(src)?;
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let buffer = self.gpu.buffer(src.bytes, usage, false)?;
        self.gpu.record(src.bytes, |encoder| {
            encoder.copy_buffer_to_buffer(from, offset, &buffer, 0, src.bytes);
        })?;
        Ok(Download::Wgpu(WgpuDownload::new(&self.gpu, buffer)?))
    }

    fn launch(
        &self,
        kernel: &'static KernelDef,
        spec: Spec<'_>,
        grid: Grid,
        args: &[ArgSlice<'_>],
        params: &[u8],
        caller: Caller<'_>,
    ) -> Result<()> {
        self.gpu.alive()?;
        let pipeline = self.gpu.pipelines.get(&self.gpu, kernel, spec)?;
        let group = self.bind(&pipeline.layout, args, params.len() as u64)?;
        let bytes = args.iter().map(|arg| arg.slice.bytes).sum();
        let cost = batch::cost(grid.work, bytes);
        let asked = caller.timeline.map(|timeline| timeline.asked(Stage::Kernel, kernel.name, bytes));
        let mut batch = lock(&self.gpu.batch);
        batch.launch(&self.gpu, cost, params, asked, |encoder, offset, timestamp_writes| {
            let descriptor = wgpu::ComputePassDescriptor { label: None, timestamp_writes };
            let mut pass = encoder.begin_compute_pass(&descriptor);
            pass.set_pipeline(&pipeline.pipeline);
            pass.set_bind_group(0, &group, &[offset]);
            let [x, y, z] = grid.groups;
            pass.dispatch_workgroups(x, y, z);
        })?;
        let overdue = batch.overdue();
        drop(batch);
        overdue.map_or(Ok(()), |submission| self.gpu.wait_for(&submission))
    }

    fn staging(&self, bytes: u64) -> Result<Staging> {
        Ok(Staging::Wgpu(WgpuStaging::new(&self.gpu, bytes)?))
    }

    fn upload(&self, slot: &mut Staging, dst: Slice<'_>, _: Option<&Timeline>) -> Result<Fence> {
        let Staging::Wgpu(slot) = slot else { return Err(foreign("wgpu")) };
        let (buffer, offset) = window(dst)?;
        slot.upload(&self.gpu, buffer, offset, dst.bytes)?;
        // There is only one queue: all work that is enqueued from now on comes after the copy.
        Ok(Fence::Passed)
    }

    fn order_after(&self, _fence: &Fence) -> Result<()> {
        Ok(())
    }

    fn wgpu(&self) -> Option<&WgpuDriver> {
        Some(self)
    }

    fn tells_times(&self) -> bool {
        self.gpu.times.is_some()
    }

    fn is_lost(&self) -> bool {
        self.gpu.alive().is_err()
    }

    fn synchronize(&self) -> Result<()> {
        let last = self.gpu.submit()?;
        self.gpu.wait_for(&last)
    }
}
