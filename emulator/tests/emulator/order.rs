//! Tests of the order of operations: operations that no event orders run in the worst order.

use std::{ffi::c_void, ptr, slice};

use bytemuck::bytes_of;
use cudarc::driver::sys::{self, CUevent, CUresult, CUstream};

use super::{Context, OK, compile, control, ok};

/// The source of the kernel of these tests, which copies words.
const COPY: &str = "EMULATOR_KERNEL(copy, 32)(const int* in, int* out) { out[threadIdx.x] = in[threadIdx.x]; }\nEMULATOR_EXPORT(copy)\n";
const BYTES: usize = 128;
const POISON: u32 = 0xabab_abab;

/// Pinned memory for 32 words.
struct Pinned(*mut c_void);

impl Pinned {
    fn new(word: u32) -> Self {
        let mut place = ptr::null_mut();
        // SAFETY: the pointer is valid for writing the result.
        unsafe { ok(sys::cuMemHostAlloc(&mut place, BYTES, 0)) };
        let mut pinned = Self(place);
        pinned.words().fill(word);
        pinned
    }

    fn words(&mut self) -> &mut [u32] {
        // SAFETY: the memory has 32 words, which no other thread reads: the emulator copies within calls of this thread.
        unsafe { slice::from_raw_parts_mut(self.0.cast(), 32) }
    }
}

/// Makes `after` wait for the work enqueued in `before`.
fn fence(before: CUstream, after: CUstream) {
    let mut event: CUevent = ptr::null_mut();
    // SAFETY: the pointer is valid for writing the result; the handles are live.
    unsafe {
        ok(sys::cuEventCreate(&mut event, 2));
        ok(sys::cuEventRecord(event, before));
        ok(sys::cuStreamWaitEvent(after, event, 0));
        ok(sys::cuEventDestroy_v2(event));
    }
}

/// A copy stream, a compute stream, and device memory for the bytes of a slot and for the kernel's result.
struct Pipeline {
    context: Context,
    copies: CUstream,
    compute: CUstream,
    function: sys::CUfunction,
    input: u64,
    output: u64,
}

impl Pipeline {
    fn new(device: i32) -> Self {
        let context = Context::new(device);
        let function = context.function(&compile("copy.cu", COPY).unwrap(), "copy");
        let (copies, compute) = (context.stream(), context.stream());
        let (input, output) = (context.alloc(BYTES), context.alloc(BYTES));
        Self { context, copies, compute, function, input, output }
    }

    fn upload(&self, slot: &Pinned) {
        // SAFETY: a slot has 32 words.
        unsafe { ok(sys::cuMemcpyHtoDAsync_v2(self.input, slot.0, BYTES, self.copies)) };
    }

    fn launch(&self) {
        let arguments = [bytes_of(&self.input), bytes_of(&self.output)];
        ok(self.context.launch(self.compute, self.function, [1, 1], 32, &arguments));
    }

    /// Reads the first word that the kernel has written, ordered by the compute stream alone.
    fn result(&self) -> Result<u32, CUresult> {
        let mut word = 0_u32;
        let place = (&raw mut word).cast();
        // SAFETY: there is room for a word. A copy to pageable memory waits.
        let code = unsafe { sys::cuMemcpyDtoHAsync_v2(place, self.output, 4, self.compute) };
        if code == OK { Ok(word) } else { Err(code) }
    }
}

#[test]
fn an_upload_without_a_fence_is_not_seen() {
    let pipeline = Pipeline::new(37);
    pipeline.upload(&Pinned::new(7));
    pipeline.launch();
    assert_eq!(pipeline.result(), Ok(POISON));
    fence(pipeline.copies, pipeline.compute);
    pipeline.launch();
    assert_eq!(pipeline.result(), Ok(7));
}

#[test]
fn a_slot_filled_in_flight_is_seen() {
    let pipeline = Pipeline::new(37);
    let mut slot = Pinned::new(7);
    pipeline.upload(&slot);
    fence(pipeline.copies, pipeline.compute);
    pipeline.launch();
    slot.words().fill(8);
    assert_eq!(pipeline.result(), Ok(8));
    // Pageable memory is copied during the call.
    let mut words = [9_u32; 32];
    let place = words.as_ptr().cast();
    // SAFETY: the array has 32 words.
    unsafe { ok(sys::cuMemcpyHtoDAsync_v2(pipeline.input, place, BYTES, pipeline.copies)) };
    words.fill(10);
    fence(pipeline.copies, pipeline.compute);
    pipeline.launch();
    assert_eq!(pipeline.result(), Ok(9));
}

#[test]
fn a_slot_freed_in_flight_faults() {
    let pipeline = Pipeline::new(36);
    let slot = Pinned::new(7);
    pipeline.upload(&slot);
    // SAFETY: the test checks that the copy has not run; nothing else uses the slot.
    unsafe { ok(sys::cuMemFreeHost(slot.0)) };
    assert_eq!(pipeline.context.synchronize(), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert!(control::fault(36).contains("in pinned memory that was freed"), "{}", control::fault(36));
}

#[test]
fn a_free_before_the_last_use_faults() {
    for fenced in [true, false] {
        let mut pipeline = Pipeline::new(35);
        // SAFETY: the handles and the memory are those of the pipeline.
        unsafe {
            ok(sys::cuMemAllocAsync(&mut pipeline.input, BYTES, pipeline.copies));
            ok(sys::cuMemsetD32Async(pipeline.input, 7, 32, pipeline.copies));
            fence(pipeline.copies, pipeline.compute);
            pipeline.launch();
            if fenced {
                fence(pipeline.compute, pipeline.copies);
            }
            ok(sys::cuMemFreeAsync(pipeline.input, pipeline.copies));
            ok(sys::cuStreamSynchronize(pipeline.copies));
        }
        let result = pipeline.result();
        if fenced {
            assert_eq!(result, Ok(7));
        } else {
            assert_eq!(result, Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
            assert!(control::fault(35).contains("which is freed"), "{}", control::fault(35));
        }
    }
}

#[test]
fn memory_used_before_its_allocation_faults() {
    let mut pipeline = Pipeline::new(34);
    // SAFETY: the pointer is valid for writing the result.
    unsafe { ok(sys::cuMemAllocAsync(&mut pipeline.input, BYTES, pipeline.copies)) };
    pipeline.launch();
    assert_eq!(pipeline.result(), Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
    assert!(control::fault(34).contains("not allocated yet where this runs"), "{}", control::fault(34));
}

#[test]
fn the_log_tells_calls_and_what_ran() {
    let pipeline = Pipeline::new(33);
    let slot = Pinned::new(7);
    control::log_start(33);
    pipeline.upload(&slot);
    fence(pipeline.copies, pipeline.compute);
    pipeline.launch();
    pipeline.result().unwrap();
    let want = [
        "cuMemcpyHtoDAsync s1 m1+0 128 bytes from pinned",
        "cuEventRecord s1 e1",
        "cuStreamWaitEvent s2 e1",
        "cuLaunchKernel s2 copy (1, 1, 1) x 32 m1+0 m2+0",
        "cuMemcpyDtoHAsync s2 m2+0 4 bytes to pageable",
        "  run s1 cuMemcpyHtoDAsync s1 m1+0 128 bytes from pinned",
        "  run s1 cuEventRecord s1 e1",
        "  run s2 cuLaunchKernel s2 copy (1, 1, 1) x 32 m1+0 m2+0",
        "  run s2 cuMemcpyDtoHAsync s2 m2+0 4 bytes to pageable",
    ];
    assert_eq!(control::log_take(33), want);
}

#[test]
fn whoever_asks_gets_there() {
    let pipeline = Pipeline::new(37);
    let slot = Pinned::new(7);
    for _ in 0..3 {
        pipeline.upload(&slot);
    }
    // SAFETY: the stream is live.
    let ask = || unsafe { sys::cuStreamQuery(pipeline.copies) };
    let not_ready = CUresult::CUDA_ERROR_NOT_READY;
    assert_eq!([ask(), ask(), ask()], [not_ready, not_ready, OK]);
}

#[test]
fn the_null_stream_keeps_order_with_blocking_streams() {
    let mut pipeline = Pipeline::new(37);
    pipeline.compute = ptr::null_mut();
    // SAFETY: the pointer is valid for writing the result.
    unsafe { ok(sys::cuStreamCreate(&mut pipeline.copies, 0)) };
    pipeline.upload(&Pinned::new(7));
    pipeline.launch();
    assert_eq!(pipeline.result(), Ok(7));
}
