//! Commands recorded together and submitted in portions that a screen does not notice.

use std::collections::VecDeque;

use super::Gpu;
use crate::{DeviceInfo, DeviceKind, Result};

/// Launches of one submission: enough to hide what submitting costs.
const LAUNCHES: usize = 32;
/// The maximum cost of a submission: about 50 ms at 340 GFLOP/s or 20 GB/s, a small GPU.
const COST: u64 = 1 << 34;
/// The maximum cost of a submission on an adapter that computes on the processor.
const SOFTWARE_COST: u64 = 1 << 29;
/// Submissions under way when another one is begun, at most: enough to keep a GPU busy, and few enough that a cancelled call ends within
/// a fraction of a second and that their memory is bounded.
const AHEAD: usize = 8;
/// The maximum number of host bytes in staging buffers that are not yet copied.
const STAGED: u64 = 64 << 20;
/// The maximum number of bytes of parameters, and so of one slot where offsets need less alignment.
const PARAMS: u64 = 128;

/// The cost of `work` operations on `bytes` bytes, in operations: whichever takes longer counts most.
pub(super) fn cost(work: u64, bytes: u64) -> u64 {
    work.saturating_add(bytes.saturating_mul(16))
}

/// The commands that are recorded and not yet submitted.
#[derive(Debug)]
pub(super) struct Batch {
    encoder: Option<wgpu::CommandEncoder>,
    params: Vec<u8>,
    /// Bytes between parameter blocks.
    slot: usize,
    launches: usize,
    cost: u64,
    most_cost: u64,
    /// Bytes in staging buffers since `staged_from` was submitted.
    staged: u64,
    staged_from: Option<wgpu::SubmissionIndex>,
    /// The last submissions, the newest at the end.
    submitted: VecDeque<wgpu::SubmissionIndex>,
}

impl Batch {
    pub(super) fn new(device: &wgpu::Device, info: &DeviceInfo) -> Self {
        let alignment = u64::from(device.limits().min_uniform_buffer_offset_alignment);
        let slot = PARAMS.next_multiple_of(alignment.max(1));
        Self {
            encoder: None,
            params: Vec::new(),
            slot: usize::try_from(slot).expect("an alignment should be small"),
            launches: 0,
            cost: 0,
            most_cost: if info.kind == DeviceKind::Software { SOFTWARE_COST } else { COST },
            staged: 0,
            staged_from: None,
            submitted: VecDeque::new(),
        }
    }

    /// Bytes of a submission's parameters.
    pub(super) fn uniform_bytes(&self) -> u64 {
        (LAUNCHES * self.slot) as u64
    }

    /// Records commands, and submits what came before if they would make it too much.
    pub(super) fn record(
        &mut self,
        gpu: &Gpu,
        cost: u64,
        commands: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<()> {
        if self.encoder.is_some() && self.cost.saturating_add(cost) > self.most_cost {
            self.submit(gpu)?;
        }
        let label = Some("teatime");
        let recorded = gpu.scoped(|device| {
            let encoder = self.encoder.get_or_insert_with(|| {
                device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label })
            });
            commands(encoder);
        });
        self.cost += cost;
        recorded.map_err(|error| gpu.failed(error))
    }

    /// Records a launch; `commands` is told where its parameters will be.
    pub(super) fn launch(
        &mut self,
        gpu: &Gpu,
        cost: u64,
        params: &[u8],
        commands: impl FnOnce(&mut wgpu::CommandEncoder, u32),
    ) -> Result<()> {
        if self.launches == LAUNCHES || self.cost.saturating_add(cost) > self.most_cost {
            self.submit(gpu)?;
        }
        let offset = self.launches * self.slot;
        self.launches += 1;
        self.params.resize(offset, 0);
        self.params.extend_from_slice(params);
        let offset = u32::try_from(offset).expect("parameter blocks should be few");
        self.record(gpu, cost, |encoder| commands(encoder, offset))
    }

    /// Counts host bytes in staging buffers. Where too many are under way, tells the submission to wait for: the portion
    /// before this one, so that the copy of one overlaps the filling of the next.
    pub(super) fn staged(&mut self, gpu: &Gpu, bytes: u64) -> Result<Option<wgpu::SubmissionIndex>> {
        self.staged += bytes;
        if self.staged < STAGED {
            return Ok(None);
        }
        self.staged = 0;
        let last = self.submit(gpu)?;
        Ok(self.staged_from.replace(last))
    }

    /// A submission to wait for before more is recorded, where too many are under way.
    pub(super) fn overdue(&mut self) -> Option<wgpu::SubmissionIndex> {
        if self.submitted.len() > AHEAD { self.submitted.pop_front() } else { None }
    }

    /// Submits what is recorded; the index of the last submission, which is a new one if there was none.
    pub(super) fn submit(&mut self, gpu: &Gpu) -> Result<wgpu::SubmissionIndex> {
        let encoder = self.encoder.take();
        if let (None, Some(last)) = (&encoder, self.submitted.back()) {
            return Ok(last.clone());
        }
        self.params.resize(self.params.len().next_multiple_of(4), 0);
        let submitted = gpu.scoped(|_| {
            let commands = encoder.map(wgpu::CommandEncoder::finish);
            // This write takes effect before the encoder's commands and after all earlier submissions, so it is made once per submission.
            if !self.params.is_empty() {
                gpu.queue.write_buffer(&gpu.uniforms, 0, &self.params);
            }
            gpu.queue.submit(commands)
        });
        self.params.clear();
        (self.launches, self.cost) = (0, 0);
        let index = submitted.map_err(|error| gpu.failed(error))?;
        self.submitted.push_back(index.clone());
        // Uploads and downloads submit too, and nobody asks what of them is overdue.
        if self.submitted.len() > AHEAD + 1 {
            self.submitted.pop_front();
        }
        Ok(index)
    }
}
