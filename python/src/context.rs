//! The CUDA context of a thread, which calls from Python restore.

use std::{
    ops::Deref,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

use teatime::{
    Backend, Device,
    cudarc::driver::{result, sys},
};

/// True once a CUDA device has been opened.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// The calling thread's CUDA context, which other libraries take for the current GPU. Dropping this value makes it current again.
pub(crate) struct CurrentContext(sys::CUcontext);

impl CurrentContext {
    /// Saves the thread's context; `None` if there is no CUDA.
    #[allow(unsafe_code, reason = "cudarc has no safe call for it")]
    pub(crate) fn kept() -> Option<Self> {
        // SAFETY: this loads a library without a constructor that could do harm.
        unsafe { sys::is_culib_present() }.then(Self::of_thread)
    }

    /// Does the same as [`kept`](Self::kept) once a CUDA device has been opened; `None` before.
    pub(crate) fn kept_for_devices() -> Option<Self> {
        IS_OPEN.load(Ordering::Relaxed).then(Self::of_thread)
    }

    /// Records that a device has been opened.
    pub(crate) fn note(device: &Device) {
        if device.info().backend == Backend::Cuda {
            IS_OPEN.store(true, Ordering::Relaxed);
        }
    }

    /// Saves the thread's context. CUDA's library has to be present.
    pub(crate) fn of_thread() -> Self {
        Self(result::ctx::get_current().ok().flatten().unwrap_or(ptr::null_mut()))
    }
}

impl Drop for CurrentContext {
    #[allow(unsafe_code, reason = "cudarc has no safe call for it")]
    fn drop(&mut self) {
        // SAFETY: the context was this thread's. If it no longer exists, the call fails, and nobody could handle that error.
        let _ = unsafe { result::ctx::set_current(self.0) };
    }
}

/// A value with memory on a device. Freeing it restores the thread's CUDA context.
#[derive(Debug)]
pub(crate) struct OnDevice<T>(Option<T>);

impl<T> OnDevice<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
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
