//! Tests of devices that an application owns.

#[cfg(feature = "cuda")]
use teatime::cudarc::driver::CudaContext;
#[cfg(feature = "wgpu")]
use teatime::wgpu;
use teatime::{Device, Tensor, linalg::matmul_tn};

use super::is_required;

#[cfg(feature = "cuda")]
#[test]
fn a_lent_context_stays_the_applications() {
    // teatime's driver reports why there is no CUDA, where cudarc would panic.
    if let Err(why) = Device::open("cuda") {
        assert!(!is_required("cuda"), "{why}");
        return;
    }
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let gram = {
        let device = Device::from_cuda(context.clone(), stream.clone()).unwrap();
        let slice = stream.clone_htod(&[1.0f32, 2.0, 3.0, 4.0]).unwrap();
        let x = Tensor::from_cuda_slice(&device, slice, &[2, 2]).unwrap();
        matmul_tn(&x, &*x.rows(0..2).unwrap()).unwrap().into_cuda_slice().unwrap()
    };
    let other = context.new_stream().unwrap();
    assert_eq!(other.clone_dtoh(&gram).unwrap(), [10.0, 14.0, 14.0, 20.0]);
    context.check_err().unwrap();
}

/// The application uses its device after teatime is done with it, and sees results without a copy through the host.
#[cfg(feature = "wgpu")]
#[test]
fn a_lent_device_stays_the_applications() {
    let instance = wgpu::Instance::default();
    let options = wgpu::RequestAdapterOptions { force_fallback_adapter: false, ..Default::default() };
    let adapter = match pollster::block_on(instance.request_adapter(&options)) {
        Ok(adapter) => adapter,
        Err(why) => {
            assert!(!is_required("wgpu"), "{why}");
            return;
        }
    };
    let request = adapter.request_device(&wgpu::DeviceDescriptor::default());
    let (gpu, queue) = pollster::block_on(request).unwrap();
    let result = {
        let device = Device::from_wgpu(gpu.clone(), queue.clone()).unwrap();
        let x = Tensor::from_slice(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
        matmul_tn(&x, &*x.rows(0..2).unwrap()).unwrap().wgpu_buffer().unwrap()
    };
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let host = gpu.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: result.bytes,
        usage,
        mapped_at_creation: false,
    });
    let mut encoder = gpu.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(&result.buffer, result.byte_offset, &host, 0, result.bytes);
    queue.submit([encoder.finish()]);
    host.map_async(wgpu::MapMode::Read, .., |mapped| mapped.unwrap());
    gpu.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    let view = host.get_mapped_range(..).unwrap();
    assert_eq!(bytemuck::cast_slice::<u8, f32>(&view), [10.0, 14.0, 14.0, 20.0]);
}
