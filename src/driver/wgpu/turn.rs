//! Makes threads call GL in turn: wgpu panics in a thread that has waited six seconds for another thread's GL call.

use std::{
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard},
};

use crate::waiting::lock;

/// The lock that a thread holds while it calls GL; `None` for devices of other backends.
#[derive(Clone, Debug)]
pub(crate) struct Turn(Option<Arc<Mutex<()>>>);

impl Turn {
    pub(super) fn new(backend: wgpu::Backend) -> Self {
        Self((backend == wgpu::Backend::Gl).then(Arc::default))
    }

    /// Waits for the turn, which ends when the returned guard is dropped.
    pub(super) fn take(&self) -> Option<MutexGuard<'_, ()>> {
        self.0.as_ref().map(|turn| lock(turn))
    }

    /// No lock, for devices that need none: a lent device is never a GL device.
    pub(crate) const NONE: Self = Self(None);
}

/// A buffer that is freed while the turn of its device is held.
#[derive(Clone, Debug)]
pub(crate) struct GpuBuffer {
    buffer: Option<wgpu::Buffer>,
    turn: Turn,
}

impl GpuBuffer {
    pub(crate) fn new(buffer: wgpu::Buffer, turn: Turn) -> Self {
        Self { buffer: Some(buffer), turn }
    }
}

impl Deref for GpuBuffer {
    type Target = wgpu::Buffer;

    fn deref(&self) -> &wgpu::Buffer {
        self.buffer.as_ref().expect("a buffer should be there until it is dropped")
    }
}

impl Drop for GpuBuffer {
    fn drop(&mut self) {
        let _turn = self.turn.take();
        self.buffer = None;
    }
}
