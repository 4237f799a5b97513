//! Tests of the guarantees of `Device::from_cuda` to an application that lends a context.

use cudarc::driver::{CudaContext, CudaStream, DevicePtr};

use super::*;
use crate::{
    TensorView, linalg,
    openings::{On, devices, skip},
};

/// A lent device with the application's handles.
struct Lent {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    device: Device,
}

impl Lent {
    fn open() -> Option<Self> {
        if let Err(why) = devices(On::Cuda) {
            skip("cuda", why);
            return None;
        }
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let device = Device::from_cuda(context.clone(), stream.clone()).unwrap();
        Some(Self { context, stream, device })
    }
}

/// Returns the address of a slice's memory.
fn address<T>(slice: &cudarc::driver::CudaSlice<T>, stream: &CudaStream) -> u64 {
    slice.device_ptr(stream).0
}

#[test]
fn slices_are_shared() {
    let Some(Lent { context, stream, device }) = Lent::open() else { return };
    let numbers = values::<f32>(70, 60);
    // The slice is filled on one stream and read on another, with work on the device's stream in between.
    let [before, after] = [context.new_stream().unwrap(), context.new_stream().unwrap()];
    let slice = before.clone_htod(&numbers).unwrap();
    let place = address(&slice, &stream);
    let allocated = device.allocated_bytes();
    let x = Tensor::from_cuda_slice(&device, slice, &[12, 5]).unwrap();
    assert_eq!(device.allocated_bytes(), allocated);
    let host = Tensor::from_slice(cpu(), &numbers, &[12, 5]).unwrap();
    let product = linalg::matmul_tn(&x, &x).unwrap().read().unwrap();
    let expected = linalg::matmul_tn(&host, &host).unwrap().read().unwrap();
    for (a, b) in product.iter().zip(&expected) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
    let slice = x.into_cuda_slice().unwrap();
    assert_eq!(address(&slice, &stream), place);
    assert_eq!(after.clone_dtoh(&slice).unwrap(), numbers);
}

#[test]
fn results_are_handed_over() {
    let Some(Lent { context, stream, device }) = Lent::open() else { return };
    let x = Tensor::from_slice(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap();
    let product = linalg::matmul(&x, &x).unwrap();
    let allocated = device.allocated_bytes();
    let slice = product.into_cuda_slice().unwrap();
    assert!(device.allocated_bytes() < allocated);
    assert_eq!(slice.len(), 4);
    let other = context.new_stream().unwrap();
    assert_eq!(other.clone_dtoh(&slice).unwrap(), [7.0, 10.0, 15.0, 22.0]);
    // The slice becomes a tensor again, of another shape.
    let place = address(&slice, &stream);
    let again = Tensor::from_cuda_slice(&device, slice, &[4]).unwrap();
    assert_eq!(again.read().unwrap(), [7.0, 10.0, 15.0, 22.0]);
    assert_eq!(address(&again.into_cuda_slice().unwrap(), &stream), place);
}

#[test]
fn the_context_stays_as_it_was() {
    let Some(Lent { context, device, .. }) = Lent::open() else { return };
    drop(Tensor::from_slice(&device, &[1.0f32; 64], &[64]).unwrap());
    assert!(context.is_event_tracking());
    drop(device);
    let stream = context.new_stream().unwrap();
    assert_eq!(stream.clone_dtoh(&stream.clone_htod(&[5u32]).unwrap()).unwrap(), [5]);
    context.check_err().unwrap();
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some(Lent { stream, device, .. }) = Lent::open() else { return };
    let floats = || stream.clone_htod(&[1.0f32, 2.0]).unwrap();
    let wrong = Tensor::from_cuda_slice(&device, floats(), &[3]);
    assert!(matches!(wrong, Err(Error::Shape { op: "Tensor::from_cuda_slice", .. })), "{wrong:?}");
    let wrong = Tensor::from_cuda_slice(cpu(), floats(), &[2]);
    assert_eq!(wrong.unwrap_err().to_string(), "Tensor::from_cuda_slice: `device`: cpu is not a CUDA device");
    let odd = stream.clone_htod(&[1u8, 2, 3]).unwrap();
    assert_err!(Tensor::from_cuda_slice(&device, odd, &[3]), Error::Argument { name: "slice", .. });
    let slice = Tensor::from_slice(cpu(), &[1.0f32], &[1]).unwrap().into_cuda_slice();
    assert_err!(slice, Error::Argument { op: "Tensor::into_cuda_slice", name: "device", .. });
}

/// Makes a view of `values` in another library's memory, which starts `before` elements after a multiple of 16 bytes.
#[allow(unsafe_code, reason = "what is tested")]
fn borrowed<T: Element + cudarc::driver::DeviceRepr>(
    device: &Device,
    stream: &Arc<CudaStream>,
    values: &[T],
    before: usize,
    check: impl FnOnce(&Tensor<T>, u64),
) {
    let all: Vec<T> = values[..1].repeat(before).into_iter().chain(values.iter().copied()).collect();
    let slice = stream.clone_htod(&all).unwrap();
    let start = address(&slice, stream) + (before * size_of::<T>()) as u64;
    assert_eq!(Device::name_of_cuda_memory(start).unwrap(), "cuda:0");
    let handle = stream.cu_stream().expose_provenance() as u64;
    // SAFETY: the slice has the elements, and outlives the device's work.
    let view =
        unsafe { TensorView::from_cuda_memory(device, start, &[values.len() as u64], handle) }.unwrap();
    check(&view, start);
    drop(view);
    device.synchronize().unwrap();
    assert_eq!(stream.clone_dtoh(&slice).unwrap(), all);
}

#[test]
fn memory_of_another_library_is_read_where_it_is() {
    if let Err(why) = devices(On::Cuda) {
        return skip("cuda", why);
    }
    let device = Device::open_with("cuda:0", &DeviceOptions::default().threads(3)).unwrap();
    // CuPy's memory is in the primary context, on streams of its own.
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let floats = values::<f32>(71, 64);
    let allocated = device.allocated_bytes();
    borrowed(&device, &stream, &floats, 0, |x, start| {
        assert_eq!((x.cuda_address().unwrap(), device.allocated_bytes()), (start, allocated));
        let x = x.try_clone().unwrap().reshape(&[8, 8]).unwrap();
        let product = linalg::matmul_tn(&x, &x).unwrap();
        assert!(product.cuda_address().unwrap() > 0);
    });
    // Kernels cannot read memory in place if it is not 16-byte aligned, or is not whole words.
    for (count, before) in [(64, 1), (63, 0), (61, 3), (1, 0)] {
        let bytes: Vec<u8> = (0..count).collect();
        borrowed(&device, &stream, &bytes, before, |x, start| {
            assert_ne!(x.cuda_address().unwrap(), start);
            assert_eq!(x.read().unwrap(), bytes);
        });
    }
}

#[test]
#[allow(unsafe_code, reason = "what is tested")]
fn memory_that_cannot_be_borrowed_is_refused() {
    let Some(Lent { device, .. }) = Lent::open() else { return };
    // SAFETY: there are no elements; the host's memory is never read.
    let none = unsafe { TensorView::<f32>::from_cuda_memory(&device, 0, &[3, 0], 1) }.unwrap();
    assert_eq!((none.shape(), none.read().unwrap()), (&[3, 0][..], vec![]));
    // SAFETY: the call is refused before anything is read.
    let wrong = unsafe { TensorView::<f32>::from_cuda_memory(cpu(), 16, &[4], 1) };
    assert!(matches!(wrong, Err(Error::Argument { name: "device", .. })), "{wrong:?}");
    // SAFETY: the call is refused before anything is read.
    let wrong = unsafe { TensorView::<f32>::from_cuda_memory(&device, 16, &[1 << 40, 1 << 40], 1) };
    assert!(matches!(wrong, Err(Error::Shape { op: "TensorView::from_cuda_memory", .. })), "{wrong:?}");
    let host = Tensor::from_slice(cpu(), &[1.0f32], &[1]).unwrap().cuda_address();
    assert!(matches!(host, Err(Error::Argument { op: "Tensor::cuda_address", .. })), "{host:?}");
    let here = &raw const *cpu() as u64;
    assert_err!(Device::name_of_cuda_memory(here), Error::Argument { name: "address", .. });
}
