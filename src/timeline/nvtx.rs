//! Spans as ranges of NVTX, which Nsight Systems shows, through NVIDIA's library if the system has it.
#![allow(unsafe_code, reason = "the functions of a library that is found at run time")]

use std::{
    ffi::{CString, c_char, c_int},
    sync::OnceLock,
};

use libloading::Library;

/// The names of the library: of NVTX 3, and of CUDA before version 12.
const NAMES: [&str; 2] = if cfg!(windows) {
    ["nvtx3interop.dll", "nvToolsExt64_1.dll"]
} else {
    ["libnvtx3interop.so.1", "libnvToolsExt.so.1"]
};

struct Functions {
    push: unsafe extern "C" fn(*const c_char) -> c_int,
    pop: unsafe extern "C" fn() -> c_int,
    _library: Library,
}

/// Finds the library once; `None` without it.
fn functions() -> Option<&'static Functions> {
    static FOUND: OnceLock<Option<Functions>> = OnceLock::new();
    let load = |name: &&str| {
        // SAFETY: loading the library runs no code but NVIDIA's, and these functions have these types in all its versions.
        unsafe {
            let library = Library::new(*name).ok()?;
            let (push, pop) = (*library.get(b"nvtxRangePushA").ok()?, *library.get(b"nvtxRangePop").ok()?);
            Some(Functions { push, pop, _library: library })
        }
    };
    FOUND.get_or_init(|| NAMES.iter().find_map(load)).as_ref()
}

/// Begins a range of the calling thread, which [`pop`] ends.
pub(super) fn push(stage: &str, name: &str) {
    // A range that does not begin would leave its end to another, so a name may not refuse.
    let text = [stage, name].join(" ").replace('\0', " ");
    if let (Some(functions), Ok(text)) = (functions(), CString::new(text.trim_end())) {
        // SAFETY: the text ends with a zero, and is copied during the call.
        unsafe { (functions.push)(text.as_ptr()) };
    }
}

/// Ends the range of the calling thread that began last.
pub(super) fn pop() {
    if let Some(functions) = functions() {
        // SAFETY: the function takes nothing.
        unsafe { (functions.pop)() };
    }
}
