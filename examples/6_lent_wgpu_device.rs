//! An application's own wgpu device: its buffers go in and come out without a copy through the host.
//!
//! `cargo run --example 6_lent_wgpu_device`

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;

use teatime::{Device, Tensor, linalg, wgpu};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // 1. The application opens a device as it likes; WebGPU's default limits and no features are enough.
    let instance = wgpu::Instance::default();
    let Ok(adapter) = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))
    else {
        println!("no wgpu adapter here");
        return Ok(());
    };
    let (gpu, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default()))?;

    // 2. It has a buffer of its own: 3 rows of 2 numbers, each row padded to 256 bytes as texture copies leave them.
    let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let size = 3 * 256;
    let frame =
        gpu.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false });
    for (row, values) in [[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]].iter().enumerate() {
        queue.write_buffer(&frame, 256 * row as u64, bytemuck::cast_slice(values));
    }
    queue.submit([]);

    // 3. Lent, the device computes on it. Packed and aligned buffers would be shared; these rows are copied on the device.
    let device = Device::from_wgpu(gpu.clone(), queue.clone())?;
    let x = Tensor::<f32>::from_wgpu_buffer(&device, &frame, 0, &[3, 2], Some(256))?;
    let gram = linalg::matmul_tn(&x, &x)?;

    // 4. The result's buffer can go into the application's own commands, which are ordered after the product.
    let result = gram.wgpu_buffer()?;
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let size = result.bytes;
    let host =
        gpu.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false });
    let mut encoder = gpu.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(&result.buffer, result.byte_offset, &host, 0, size);
    queue.submit([encoder.finish()]);
    host.map_async(wgpu::MapMode::Read, .., |mapped| mapped.expect("a host buffer should map"));
    gpu.poll(wgpu::PollType::wait_indefinitely())?;
    let view = host.get_mapped_range(..)?;
    let values: &[f32] = bytemuck::cast_slice(&view);
    assert_eq!(values, [35.0, 44.0, 44.0, 56.0]);

    // 5. On the host, values arrive as a future of any runtime, or none; meanwhile frames are submitted and drawn.
    let arrived = pollster::block_on(gram.read_async())?;
    assert_eq!(arrived, values);
    println!("xᵀx = {arrived:?} on {}", device.info().description);
    Ok(())
}
