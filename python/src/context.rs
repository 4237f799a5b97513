//! The CUDA context of a thread, which calls leave as it was.

use std::{
    ops::Deref,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use teatime::{
    Backend, Device,
    cudarc::driver::{result, sys},
};

/// True once a CUDA device is open.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// The calling thread's CUDA context, which is its again when this is dropped: what other libraries take for the current GPU.
pub(crate) struct CurrentContext(sys::CUcontext);

impl CurrentContext {
    /// None where there is no CUDA.
    #[allow(unsafe_code, reason = "cudarc has no safe call for it")]
    pub(crate) fn kept() -> Option<Self> {
        // SAFETY: it loads a library that has no constructor which could do harm.
        unsafe { sys::is_culib_present() }.then(Self::of_thread)
    }

    /// As [`kept`](Self::kept), for calls once devices are open; None where none of these is CUDA's.
    pub(crate) fn kept_for_devices() -> Option<Self> {
        IS_OPEN.load(Ordering::Relaxed).then(Self::of_thread)
    }

    /// Notes a device that is open.
    pub(crate) fn note(device: &Device) {
        if device.info().backend == Backend::Cuda {
            IS_OPEN.store(true, Ordering::Relaxed);
        }
    }

    /// CUDA's library is there.
    pub(crate) fn of_thread() -> Self {
        Self(result::ctx::get_current().ok().flatten().unwrap_or(ptr::null_mut()))
    }
}

impl Drop for CurrentContext {
    #[allow(unsafe_code, reason = "cudarc has no safe call for it")]
    fn drop(&mut self) {
        // SAFETY: it was this thread's; one that is gone meanwhile is an error, of which there is nobody to tell.
        let _ = unsafe { result::ctx::set_current(self.0) };
    }
}

/// A value with memory on a device, which is freed with the thread's CUDA context left as it was.
#[derive(Debug)]
pub(crate) struct OnDevice<T>(Option<T>);

impl<T> OnDevice<T> {
    pub(crate) fn new(of: T) -> Self {
        Self(Some(of))
    }
}

impl<T> Deref for OnDevice<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl<T> Drop for OnDevice<T> {
    fn drop(&mut self) {
        let _kept = CurrentContext::kept_for_devices();
        drop(self.0.take());
    }
}
