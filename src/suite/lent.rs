//! Tests of the guarantees of `Device::from_wgpu` to an application that lends a device.

use std::sync::atomic::{AtomicUsize, Ordering};

use wgpu::BufferUsages;

use super::{launch, *};
use crate::{
    Arg, Timeline,
    kernel::{Binding, Grid, Kernel},
    linalg,
    openings::skip,
};

/// A lent device with the application's handles.
struct Lent {
    gpu: wgpu::Device,
    queue: wgpu::Queue,
    device: Device,
}

impl Lent {
    fn open() -> Option<Self> {
        Self::open_with(wgpu::Features::empty())
    }

    fn open_with(features: wgpu::Features) -> Option<Self> {
        match application_device(features) {
            Ok((gpu, queue)) => {
                let device = Device::from_wgpu(gpu.clone(), queue.clone()).unwrap();
                Some(Self { gpu, queue, device })
            }
            Err(why) => {
                skip("wgpu", &why);
                None
            }
        }
    }

    fn buffer(&self, usage: BufferUsages, bytes: &[u8]) -> wgpu::Buffer {
        let buffer = self.gpu.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes.len() as u64,
            usage: usage | BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.queue.write_buffer(&buffer, 0, bytes);
        self.queue.submit([]);
        buffer
    }
}

const SHARED: BufferUsages = BufferUsages::STORAGE.union(BufferUsages::COPY_SRC);

/// wgpu's GL panics if a thread waits six seconds for another's call, and an application's threads take no turns with ours.
#[test]
fn gl_is_not_shared() {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.flags = wgpu::InstanceFlags::empty();
    descriptor.backends = wgpu::Backends::GL;
    let adapters = wgpu::Instance::new(descriptor).enumerate_adapters(wgpu::Backends::GL);
    let adapters = pollster::block_on(adapters);
    let Some(adapter) = adapters.first() else { return skip("gl", "no adapter") };
    let descriptor = wgpu::DeviceDescriptor { required_limits: adapter.limits(), ..Default::default() };
    let (device, queue) = pollster::block_on(adapter.request_device(&descriptor)).unwrap();
    assert_refused(Device::from_wgpu(device, queue), &["Device::from_wgpu: `device`: it is GL's"]);

    let own = Device::open("wgpu:gl").unwrap();
    let x = Tensor::from_slice(&own, &[1.0f32], &[1]).unwrap();
    assert_refused(x.wgpu_buffer(), &["Tensor::wgpu_buffer: `device`: it is GL's"]);
}

#[test]
fn packed_buffers_are_shared() {
    let Some(lent) = Lent::open() else { return };
    let numbers = values::<f32>(60, 200);
    let buffer = lent.buffer(SHARED, bytemuck::cast_slice(&numbers));
    let before = lent.device.allocated_bytes();
    for (offset, shape) in [(0, [20, 10]), (256, [8, 17])] {
        let x = Tensor::<f32>::from_wgpu_buffer(&lent.device, &buffer, offset, &shape, None).unwrap();
        let first = offset as usize / 4;
        let len = (shape[0] * shape[1]) as usize;
        assert_eq!(x.read().unwrap(), numbers[first..first + len]);
        let one = Tensor::from_slice(&lent.device, &[1.0f32], &[1, 1]).unwrap();
        let x = x.reshape(&[len as u64, 1]).unwrap();
        assert_eq!(linalg::matmul(&x, &one).unwrap().read().unwrap(), numbers[first..first + len]);
        let out = x.wgpu_buffer().unwrap();
        assert_eq!((out.byte_offset, out.bytes, &out.buffer), (offset, len as u64 * 4, &buffer));
    }
    let x = Tensor::<f32>::from_wgpu_buffer(&lent.device, &buffer, 0, &[200], None).unwrap();
    assert_eq!(lent.device.allocated_bytes(), before, "lent memory is not counted");
    // Values that the application writes later are visible.
    lent.queue.write_buffer(&buffer, 0, bytemuck::bytes_of(&42.0f32));
    lent.queue.submit([]);
    assert_eq!(x.read().unwrap()[0], 42.0);
}

#[test]
fn other_layouts_are_copied() {
    let Some(lent) = Lent::open() else { return };
    let bytes: Vec<u8> = (0..1024u32).map(|i| (i * 7) as u8).collect();
    for usage in [SHARED, BufferUsages::COPY_SRC] {
        let buffer = lent.buffer(usage, &bytes);
        // The offset is misaligned for a binding.
        let x = Tensor::<u8>::from_wgpu_buffer(&lent.device, &buffer, 4, &[3, 5], None).unwrap();
        assert_eq!(x.read().unwrap(), bytes[4..19]);
        // Rows have gaps; the last row has none behind it.
        let x = Tensor::<u8>::from_wgpu_buffer(&lent.device, &buffer, 8, &[2, 2, 8], Some(336)).unwrap();
        let expected: Vec<u8> =
            (0..4).flat_map(|row| bytes[8 + row * 336..][..8].to_vec()).take(32).collect();
        assert_eq!(x.read().unwrap(), expected);
        let x = Tensor::<i16>::from_wgpu_buffer(&lent.device, &buffer, 0, &[0, 4], Some(64)).unwrap();
        assert!(x.is_empty());
        // The copy is the tensor's own.
        lent.queue.write_buffer(&buffer, 4, &[0; 16]);
        lent.queue.submit([]);
    }
}

#[test]
fn mistakes_are_named() {
    let Some(lent) = Lent::open() else { return };
    let buffer = lent.buffer(SHARED, &[0; 64]);
    let from = |buffer, offset, shape: &[u64], pitch| match Tensor::<u8>::from_wgpu_buffer(
        &lent.device,
        buffer,
        offset,
        shape,
        pitch,
    ) {
        Err(Error::Argument { op: "Tensor::from_wgpu_buffer", name, .. }) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(from(&buffer, 2, &[4], None), "byte_offset");
    assert_eq!(from(&buffer, 0, &[65], None), "buffer");
    assert_eq!(from(&buffer, 64, &[1], None), "buffer");
    assert_eq!(from(&buffer, 0, &[3, 4], Some(32)), "buffer");
    assert_eq!(from(&buffer, 0, &[2, 8], Some(7)), "row_pitch");
    assert_eq!(from(&buffer, 0, &[2, 7], Some(8)), "row_pitch");
    assert_eq!(from(&buffer, 0, &[u64::MAX, 3], None), "shape");
    let mute = lent.buffer(BufferUsages::STORAGE, &[0; 64]);
    assert_eq!(from(&mute, 0, &[4], None), "buffer");
    let cpu = Device::cpu();
    let error = Tensor::<u8>::from_wgpu_buffer(&cpu, &buffer, 0, &[4], None);
    let refused = "Tensor::from_wgpu_buffer: `device`: cpu is not a wgpu device";
    assert_eq!(error.unwrap_err().to_string(), refused);
    let tensor = Tensor::<u8>::zeros(&cpu, &[4]).unwrap();
    assert!(matches!(tensor.wgpu_buffer(), Err(Error::Argument { name: "device", .. })));
}

/// Another device's buffer is refused, and work that was enqueued before is not lost.
#[test]
fn foreign_buffers_are_refused() {
    let (Some(lent), Some(other)) = (Lent::open(), Lent::open()) else { return };
    let two = Tensor::from_slice(&lent.device, &[2.0f32], &[1, 1]).unwrap();
    let four = linalg::matmul(&two, &two).unwrap();
    for (usage, offset) in [(SHARED, 0), (BufferUsages::COPY_SRC, 0), (SHARED, 4)] {
        let foreign = other.buffer(usage, &[0; 64]);
        let error = Tensor::<u8>::from_wgpu_buffer(&lent.device, &foreign, offset, &[16], None);
        let is_refused = matches!(error, Err(Error::WrongDevice { name: "buffer", .. }));
        assert!(is_refused, "{usage:?} {offset}: {error:?}");
    }
    assert_eq!(four.read().unwrap(), [4.0]);
}

/// A launch that reads one tensor of a buffer and writes another is refused: wgpu would reject it along with the work enqueued before.
#[test]
fn tensors_of_one_buffer_are_not_both_used_and_written() {
    static COPY: Kernel<u32> =
        Kernel::new("copy", &[Binding::read::<u32>(), Binding::write::<u32>()], |_: &u32| vec![1, 1])
            .wgsl(launch::COPY);
    let Some(lent) = Lent::open() else { return };
    let buffer = lent.buffer(SHARED, &[1; 512]);
    let [x, mut out] = [0, 256]
        .map(|offset| Tensor::<u32>::from_wgpu_buffer(&lent.device, &buffer, offset, &[4], None).unwrap());
    let mut own = Tensor::<u32>::zeros(&lent.device, &[1]).unwrap();
    let launch = |args: &[Arg<'_>]| lent.device.launch(&COPY, &[], Grid::tiles(1, 1, 0), args, &7);
    launch(&[x.as_read(), own.as_write()]).unwrap();
    assert_refused(launch(&[x.as_read(), out.as_write()]), &["arguments 0 and 1 are of one buffer"]);
    assert_eq!(own.read().unwrap(), [0x0101_0108]);
}

/// The application's error handler stays, and is not called for errors that teatime's calls returned.
#[test]
fn handlers_are_left_alone() {
    let Some(lent) = Lent::open() else { return };
    let heard = Arc::new(AtomicUsize::new(0));
    let count = heard.clone();
    lent.gpu.on_uncaptured_error(Arc::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let device = Device::from_wgpu(lent.gpu.clone(), lent.queue.clone()).unwrap();
    assert_err!(Tensor::<u8>::zeros(&device, &[device.limits().buffer + 1]), Error::Limit { .. });
    let foreign = Lent::open().unwrap().buffer(SHARED, &[0; 64]);
    assert!(Tensor::<u8>::from_wgpu_buffer(&device, &foreign, 0, &[16], None).is_err());
    assert_eq!(Tensor::<u8>::zeros(&device, &[3]).unwrap().read().unwrap(), [0; 3]);
    assert_eq!(heard.load(Ordering::Relaxed), 0);
    // The application's own mistake reaches its handler.
    let usage = BufferUsages::MAP_READ | BufferUsages::MAP_WRITE | BufferUsages::STORAGE;
    let wrong = wgpu::BufferDescriptor { label: None, size: 4, usage, mapped_at_creation: false };
    drop(lent.gpu.create_buffer(&wrong));
    assert_eq!(heard.load(Ordering::Relaxed), 1);
}

/// A destroyed device is lost for good, and every call says so. A timeline keeps the times that it told before.
#[test]
fn loss_sticks() {
    let Some(lent) = Lent::open_with(wgpu::Features::TIMESTAMP_QUERY) else { return };
    let timeline = Timeline::default();
    let x = Tensor::<f32>::zeros(&lent.device.recorded_by(&timeline), &[2, 2]).unwrap();
    linalg::matmul(&x, &x).unwrap().read().unwrap();
    drop(linalg::matmul(&x, &x).unwrap());
    lent.gpu.destroy();
    drop(linalg::matmul(&x, &x));
    assert_err!(x.read(), Error::DeviceLost { .. });
    assert!(matches!(Tensor::<f32>::zeros(&lent.device, &[2]), Err(Error::DeviceLost { .. })));
    assert!(matches!(linalg::matmul(&x, &x), Err(Error::DeviceLost { .. })));
    assert!(matches!(lent.device.synchronize(), Err(Error::DeviceLost { .. })));
    let trace = tempfile::NamedTempFile::new().unwrap();
    timeline.write_trace(trace.path()).unwrap();
    let trace = std::fs::read_to_string(trace.path()).unwrap();
    assert!(trace.contains("wgpu:lent queue") && trace.contains("\"cat\":\"kernel\""), "{trace}");
}
