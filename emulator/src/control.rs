//! Orders that tests give to the emulator. Each is for one device, so that tests on several threads do not meet: there are 64,
//! whatever number is counted.
//!
//! All panic where the emulator cannot be built: [`load`](crate::load) says why.

use std::{
    ffi::{CStr, c_char, c_int, c_ulonglong},
    sync::{Mutex, PoisonError},
};

use super::loaded;

/// A function of the emulator's libcuda.
///
/// # Safety
/// `F` is the function's type.
unsafe fn function<F: Copy>(name: &str) -> F {
    // SAFETY: as the caller promises.
    unsafe { *loaded().expect("the emulator").1.get::<F>(name.as_bytes()).expect("a function of it") }
}

/// Sets a device's memory. 2 GiB unless this is called.
pub fn memory(device: i32, bytes: u64) {
    // SAFETY: its type in libcuda_control.cpp.
    unsafe { function::<unsafe extern "C" fn(c_int, c_ulonglong)>("emulator_memory")(device, bytes) }
}

/// Makes the `nth` allocation from now fail, the next being 1; 0 takes that back.
pub fn fail_allocation(device: i32, nth: u64) {
    // SAFETY: its type in libcuda_control.cpp.
    unsafe { function::<unsafe extern "C" fn(c_int, c_ulonglong)>("emulator_fail_allocation")(device, nth) }
}

/// Makes a device answer every call with the error `code` once it has taken `launches` more; a `code` of 0 takes
/// that back for contexts made from then on.
pub fn lose(device: i32, launches: u64, code: i32) {
    type F = unsafe extern "C" fn(c_int, c_ulonglong, c_int);
    // SAFETY: its type in libcuda_control.cpp.
    unsafe { function::<F>("emulator_lose")(device, launches, code) }
}

/// The order in which the warps of a block, and the threads of a warp, run between two barriers.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// By turns, changing with the number of the block and of the barrier; so unless this is called.
    Alternating = 0,
    /// From the first.
    Ascending = 1,
    /// From the last.
    Descending = 2,
}

/// Sets the order of later launches.
pub fn order(device: i32, order: Order) {
    // SAFETY: its type in libcuda_control.cpp.
    unsafe { function::<unsafe extern "C" fn(c_int, c_int)>("emulator_order")(device, order as c_int) }
}

/// Begins a log of the calls for a device, and of what runs there.
pub fn log_start(device: i32) {
    // SAFETY: its type in libcuda_control.cpp.
    unsafe { function::<unsafe extern "C" fn(c_int)>("emulator_log_start")(device) }
}

/// Ends the log. A line for each call, with streams as `s1`, events as `e1` and allocations as `m1`, in the order
/// they were made; and where an operation runs, a line that starts with `  run s1 `.
pub fn log_take(device: i32) -> Vec<String> {
    text("emulator_log_take", device).lines().map(Into::into).collect()
}

/// The last fault on a device: kernel, block, thread, address, and the allocation next to it.
pub fn fault(device: i32) -> String {
    text("emulator_fault", device)
}

fn text(name: &str, device: i32) -> String {
    static LOCK: Mutex<()> = Mutex::new(());
    let _one = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the type of both in libcuda_control.cpp; the text stands until the next call, which the lock keeps off.
    unsafe {
        let text = function::<unsafe extern "C" fn(c_int) -> *const c_char>(name)(device);
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}
