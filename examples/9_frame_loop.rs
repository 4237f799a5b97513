//! An application keeps drawing while a chain on its own wgpu device finds the nearest of new observations: no frame waits.
//!
//! `cargo run --release --example 9_frame_loop`

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use teatime::{
    Device, Error, Run, Tensor,
    array::{Map, Zip, argmin, map, mean, sum, zip},
    linalg::{SvdOptions, matmul, matmul_nt, truncated_svd},
    random::normal,
    wgpu,
};

const FEATURES: u64 = 40;
/// The number of known observations; `ASKED` is the number in each question.
const KNOWN: u64 = 1500;
const ASKED: u64 = 300;
const QUESTIONS: u64 = 5;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 1. The application opens a device and creates a target to draw to: a buffer here, in place of a window.
    let instance = wgpu::Instance::default();
    let Ok(adapter) = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))
    else {
        println!("no wgpu adapter here");
        return Ok(());
    };
    let (gpu, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default()))?;
    let usage = wgpu::BufferUsages::COPY_DST;
    let size = 64 << 10;
    let screen =
        gpu.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false });

    // 2. The application may wait while it loads. The first launch of a kernel compiles it, so one question is answered here.
    let device = Device::from_wgpu(gpu.clone(), queue.clone())?;
    let known = Known::load(&device)?;
    known.nearest(&observe(&device, 0, ASKED)?)?.read()?;

    // 3. Each question is enqueued between two frames, and each frame checks once whether the answer has arrived.
    let (before, mut frames) = (device.traffic(), 0u64);
    let mut context = Context::from_waker(Waker::noop());
    for question in 1..=QUESTIONS {
        let asked = observe(&device, question, ASKED)?;
        let mut answer = pin!(known.nearest(&asked)?.read_async());
        let nearest = loop {
            let mut commands = gpu.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            commands.clear_buffer(&screen, 0, None);
            queue.submit([commands.finish()]);
            frames += 1;
            if let Poll::Ready(nearest) = answer.as_mut().poll(&mut context) {
                break nearest?;
            }
            // A window would show the frame here, at its screen's rate.
            thread::sleep(Duration::from_millis(1));
        };
        // Every third observation belongs to the same group, and so does the nearest to it.
        assert!(nearest.iter().zip(0u32..).all(|(found, i)| found % 3 == i % 3));
    }

    // 4. A download counts as one wait, on a thread of its future: the frames and the chain added no waits.
    let moved = device.traffic() - before;
    println!("{frames} frames were drawn while {QUESTIONS} answers came, {} bytes in all", moved.to_host);
    assert_eq!((moved.waits, moved.to_host), (QUESTIONS, 4 * ASKED * QUESTIONS));
    Ok(())
}

/// Creates observations: every third one has the same mean, plus noise. This enqueues work and does not wait.
fn observe(device: &Device, seed: u64, count: u64) -> Result<Tensor<f32>, Error> {
    let means: Vec<f32> = (0..count).map(|i| (i % 3 * 4) as f32).collect();
    let noise = normal(device, seed, 0, count * FEATURES)?.reshape(&[count, FEATURES])?;
    zip(Zip::Add, &noise, &Tensor::from_slice(device, &means, &[count, 1])?)
}

/// The scores of the known observations, and the data for computing scores of new ones.
struct Known {
    means: Tensor<f32>,
    deviations: Tensor<f32>,
    components: Tensor<f32>,
    scores: Tensor<f32>,
    /// Half the squared length of each row of the scores.
    halves: Tensor<f32>,
}

impl Known {
    /// Creates the known observations. This waits: the host decomposes a matrix of 40 x 40.
    fn load(device: &Device) -> Result<Self, Error> {
        let x = observe(device, 7, KNOWN)?;
        let means = mean(&x, 0)?;
        let centred = zip(Zip::Subtract, &x, &means)?;
        let deviations = map(Map::SquareRoot, &mean(&zip(Zip::Multiply, &centred, &centred)?, 0)?)?;
        let z = zip(Zip::Divide, &centred, &deviations)?;
        let components = truncated_svd(&z, 3, &SvdOptions::default(), &Run::default())?.v;
        let scores = matmul(&z, &components)?;
        let squares = sum(&zip(Zip::Multiply, &scores, &scores)?, 1)?;
        let halves = zip(Zip::Multiply, &squares, 0.5)?;
        Ok(Self { means, deviations, components, scores, halves })
    }

    /// Finds the index of the known observation nearest to each row of `x`, by scores, distances and the minimum of these. This enqueues work
    /// and never waits; `neighbor_tensors` would wait, since it checks its arguments first.
    fn nearest(&self, x: &Tensor<f32>) -> Result<Tensor<u32>, Error> {
        let z = zip(Zip::Divide, &zip(Zip::Subtract, x, &self.means)?, &self.deviations)?;
        let scores = matmul(&z, &self.components)?;
        // |a - b|² / 2 is |a|² / 2 + |b|² / 2 - a·b, and its first term is the same for every b.
        argmin(&zip(Zip::Subtract, &self.halves, &matmul_nt(&scores, &self.scores)?)?, 1)
    }
}
