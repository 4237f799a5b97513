//! Controls of the emulator for tests.
//!
//! Each call is for one device, so that tests on several threads do not interfere: 64 devices exist, whatever the device count says.
//!
//! All functions panic if the emulator cannot be built: [`load`](crate::load) returns the reason.

use std::{
    ffi::{CStr, c_char, c_int, c_ulonglong},
    sync::{Mutex, PoisonError},
};

use super::loaded;

/// Returns a function of the emulator's libcuda.
///
/// # Safety
/// `F` is the function's type.
unsafe fn function<F: Copy>(name: &str) -> F {
    // SAFETY: the caller promises that `F` is the function's type.
    unsafe { *loaded().expect("the emulator").1.get::<F>(name.as_bytes()).expect("a function of it") }
}

/// Sets the size of a device's memory, which is 2 GiB by default.
pub fn memory(device: i32, bytes: u64) {
    // SAFETY: the type is the one in libcuda_control.cpp.
    unsafe { function::<unsafe extern "C" fn(c_int, c_ulonglong)>("emulator_memory")(device, bytes) }
}

/// Makes the `nth` allocation from now fail, where 1 is the next one; 0 cancels this.
pub fn fail_allocation(device: i32, nth: u64) {
    // SAFETY: the type is the one in libcuda_control.cpp.
    unsafe { function::<unsafe extern "C" fn(c_int, c_ulonglong)>("emulator_fail_allocation")(device, nth) }
}

/// Makes a device answer every call with the error `code` after it has taken `launches` more launches; a `code` of 0 cancels this for contexts
/// created later.
pub fn lose(device: i32, launches: u64, code: i32) {
    type F = unsafe extern "C" fn(c_int, c_ulonglong, c_int);
    // SAFETY: the type is the one in libcuda_control.cpp.
    unsafe { function::<F>("emulator_lose")(device, launches, code) }
}

/// The order in which the warps of a block, and the threads of a warp, run between two barriers.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// Alternates with the index of the block and of the barrier; the default.
    Alternating = 0,
    /// Runs from the first to the last.
    Ascending = 1,
    /// Runs from the last to the first.
    Descending = 2,
}

/// Sets the order for launches from now on.
pub fn order(device: i32, order: Order) {
    // SAFETY: the type is the one in libcuda_control.cpp.
    unsafe { function::<unsafe extern "C" fn(c_int, c_int)>("emulator_order")(device, order as c_int) }
}

/// Starts a log of the calls for a device, and of the operations that run on it.
pub fn log_start(device: i32) {
    // SAFETY: the type is the one in libcuda_control.cpp.
    unsafe { function::<unsafe extern "C" fn(c_int)>("emulator_log_start")(device) }
}

/// Ends the log and returns its lines. Each call has a line, with streams as `s1`, events as `e1` and allocations as `m1`, numbered in order of
/// creation; each operation that runs has a line that starts with `  run s1 `. A wait for an event that lets its thread sleep ends with
/// `blocking`.
pub fn log_take(device: i32) -> Vec<String> {
    text("emulator_log_take", device).lines().map(Into::into).collect()
}

/// Returns the last fault on a device: kernel, block, thread, address, and the nearest allocation.
pub fn fault(device: i32) -> String {
    text("emulator_fault", device)
}

fn text(name: &str, device: i32) -> String {
    static LOCK: Mutex<()> = Mutex::new(());
    let _one = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: both functions have this type in libcuda_control.cpp; the text stays valid until the next call, which the lock prevents.
    unsafe {
        let text = function::<unsafe extern "C" fn(c_int) -> *const c_char>(name)(device);
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}
