//! Commands that are recorded together and submitted in portions short enough not to disturb a screen.

use std::{collections::VecDeque, time::Instant};

use super::{Gpu, LAUNCHES, times::Round};
use crate::{DeviceInfo, DeviceKind, Result, timeline::Asked};

/// The maximum cost of a submission: about 50 ms on a small GPU, at 340 GFLOP/s or 20 GB/s.
const COST: u64 = 1 << 34;
/// The maximum cost of a submission on an adapter that runs on the CPU.
const SOFTWARE_COST: u64 = 1 << 29;
/// The maximum number of submissions under way when another one begins: enough to keep a GPU busy. They are few enough
/// that a cancelled call ends within a fraction of a second, and that their memory is bounded.
const AHEAD: usize = 8;
/// The maximum number of host bytes in staging buffers that have not been copied.
const STAGED: u64 = 64 << 20;
/// The maximum number of bytes of a parameter block. A slot has this size if offsets need no larger alignment.
const PARAMS: u64 = 128;

/// Returns the cost of `work` operations on `bytes` bytes, in operations: a byte counts as 16 operations.
pub(super) fn cost(work: u64, bytes: u64) -> u64 {
    work.saturating_add(bytes.saturating_mul(16))
}

/// The commands that are recorded and not submitted yet.
#[derive(Debug)]
pub(super) struct Batch {
    encoder: Option<wgpu::CommandEncoder>,
    params: Vec<u8>,
    /// The number of bytes from one parameter block to the next.
    slot: usize,
    launches: usize,
    /// The recorded launches that a timeline gets.
    timed: Option<Round>,
    cost: u64,
    most_cost: u64,
    /// The number of bytes in staging buffers since `staged_from` was submitted.
    staged: u64,
    staged_from: Option<wgpu::SubmissionIndex>,
    /// The last submissions, the newest last.
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
            timed: None,
            cost: 0,
            most_cost: if info.kind == DeviceKind::Software { SOFTWARE_COST } else { COST },
            staged: 0,
            staged_from: None,
            submitted: VecDeque::new(),
        }
    }

    /// Returns the number of bytes of a submission's parameters.
    pub(super) fn uniform_bytes(&self) -> u64 {
        u64::from(LAUNCHES) * self.slot as u64
    }

    /// Records commands. Submits the earlier commands first if the total cost would be too high.
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

    /// Records a launch; `commands` gets the offset of its parameters, and the queries of its times if a timeline asked for them.
    pub(super) fn launch(
        &mut self,
        gpu: &Gpu,
        cost: u64,
        params: &[u8],
        asked: Option<Asked>,
        commands: impl FnOnce(&mut wgpu::CommandEncoder, u32, Option<wgpu::ComputePassTimestampWrites<'_>>),
    ) -> Result<()> {
        if self.launches == LAUNCHES as usize || self.cost.saturating_add(cost) > self.most_cost {
            self.submit(gpu)?;
        }
        let offset = self.launches * self.slot;
        self.launches += 1;
        self.params.resize(offset, 0);
        self.params.extend_from_slice(params);
        let offset = u32::try_from(offset).expect("parameter blocks should be few");
        let mut timed = self.timed.take();
        if let (Some(times), Some(_), None) = (&gpu.times, &asked, &timed) {
            timed = times.round(gpu);
        }
        let writes = asked.zip(timed.as_mut()).map(|(asked, round)| round.add(asked));
        let recorded = self.record(gpu, cost, |encoder| commands(encoder, offset, writes));
        // Queries that no pass writes have no values.
        self.timed = timed.filter(|_| recorded.is_ok());
        recorded
    }

    /// Counts host bytes in staging buffers. If there are too many, submits and returns the submission to wait for: the
    /// one of the portion before, so that the copy of one portion overlaps the filling of the next.
    pub(super) fn staged(&mut self, gpu: &Gpu, bytes: u64) -> Result<Option<wgpu::SubmissionIndex>> {
        self.staged += bytes;
        if self.staged < STAGED {
            return Ok(None);
        }
        self.staged = 0;
        let last = self.submit(gpu)?;
        Ok(self.staged_from.replace(last))
    }

    /// Returns a submission to wait for before more is recorded, if too many are under way.
    pub(super) fn overdue(&mut self) -> Option<wgpu::SubmissionIndex> {
        if self.submitted.len() > AHEAD { self.submitted.pop_front() } else { None }
    }

    /// Submits the recorded commands. Returns the index of the last submission, which is an earlier one if nothing was recorded.
    pub(super) fn submit(&mut self, gpu: &Gpu) -> Result<wgpu::SubmissionIndex> {
        let encoder = self.encoder.take();
        if let (None, Some(last)) = (&encoder, self.submitted.back()) {
            return Ok(last.clone());
        }
        self.params.resize(self.params.len().next_multiple_of(4), 0);
        let timed = self.timed.take();
        let submitted = gpu.scoped(|_| {
            let commands = encoder.map(|mut encoder| {
                timed.iter().for_each(|round| round.resolve(&mut encoder));
                encoder.finish()
            });
            // This write takes effect before the encoder's commands and after all earlier submissions, so one write per submission is enough.
            if !self.params.is_empty() {
                gpu.queue.write_buffer(&gpu.uniforms, 0, &self.params);
            }
            let at = Instant::now();
            let index = gpu.queue.submit(commands);
            if let Some((times, round)) = gpu.times.as_ref().zip(timed) {
                times.submitted(round, at);
            }
            index
        });
        self.params.clear();
        (self.launches, self.cost) = (0, 0);
        let index = submitted.map_err(|error| gpu.failed(error))?;
        self.submitted.push_back(index.clone());
        // Uploads and downloads submit too, but do not call `overdue`.
        if self.submitted.len() > AHEAD + 1 {
            self.submitted.pop_front();
        }
        Ok(index)
    }
}
