//! teatime on an application's own wgpu device: buffers go in and come out without a copy through the host.
//!
//! `cargo run --example 6_lent_wgpu_device`

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;

use teatime::{Device, Tensor, linalg, wgpu};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // 1. The application opens a device with any settings; WebGPU's default limits and no features are enough.
    let instance = wgpu::Instance::default();
    let Ok(adapter) = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))
    else {
        println!("no wgpu adapter here");
        return Ok(());
    };
    let (gpu, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default()))?;

    // 2. The application has a buffer: 3 rows of 2 numbers, each row padded to 256 bytes as texture copies leave them.
    let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let size = 3 * 256;
    let frame =
        gpu.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false });
    for (row, values) in [[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]].iter().enumerate() {
        queue.write_buffer(&frame, 256 * row as u64, bytemuck::cast_slice(values));
    }
    queue.submit([]);

    // 3. teatime computes on the application's device. It would share a packed and aligned buffer; it copies these padded rows on the device.
    let device = Device::from_wgpu(gpu.clone(), queue.clone())?;
    let x = Tensor::<f32>::from_wgpu_buffer(&device, &frame, 0, &[3, 2], Some(256))?;
    let gram = linalg::matmul_tn(&x, &x)?;

    // 4. The application can use the result's buffer in its own commands, which run after the product.
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

    // 5. The host gets values through a future, with any runtime or none; meanwhile, the application can submit and draw frames.
    let arrived = pollster::block_on(gram.read_async())?;
    assert_eq!(arrived, values);
    println!("xᵀx = {arrived:?} on {}", device.info().description);
    Ok(())
}
