//! A tensor's elements on the host.

use std::{
    fmt,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    thread,
};

use super::Tensor;
use crate::{
    Element, Error, Result,
    device::POISON,
    driver::{CpuBytes, Download},
    timeline::{Span, Stage, Timeline},
    waiting::lock,
};

/// A tensor's elements on the host, in C order, as [`Tensor::into_values`] returns them. Dereferences to a slice, like a [`Vec`].
pub struct HostValues<T>(pub(super) Values<T>);

pub(super) enum Values<T> {
    Owned(Vec<T>),
    /// The first bytes of memory that belonged to the cpu device.
    Lines(CpuBytes, usize),
}

impl<T: Element> Deref for HostValues<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.0 {
            Values::Owned(values) => values,
            Values::Lines(lines, bytes) => bytemuck::cast_slice(&lines.bytes()[..*bytes]),
        }
    }
}

impl<T: Element> DerefMut for HostValues<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.0 {
            Values::Owned(values) => values,
            Values::Lines(lines, bytes) => bytemuck::cast_slice_mut(&mut lines.bytes_mut()[..*bytes]),
        }
    }
}

impl<T: Element> fmt::Debug for HostValues<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Elements in transfer to the host that their device no longer needs: the result of [`Tensor::send`].
#[derive(Debug)]
pub(crate) enum Sent<T: Element> {
    /// Elements of the cpu device, which are on the host already.
    Here(Tensor<T>),
    Enqueued(Pending<T>),
}

impl<T: Element> Sent<T> {
    /// Waits for the elements and returns them in C order. Fails as [`Tensor::read`] does.
    pub(crate) fn wait(self) -> Result<HostValues<T>> {
        match self {
            Self::Here(tensor) => tensor.into_values(),
            Self::Enqueued(pending) => Ok(HostValues(Values::Owned(pending.wait()?))),
        }
    }
}

/// A tensor's elements in transfer to the host, as [`Tensor::download`] returns them. Call [`wait`](Self::wait), or `await` them.
#[derive(Debug)]
#[must_use = "nothing waits for what was enqueued, and no error is seen"]
pub struct Pending<T> {
    pub(super) download: Download,
    /// The number of bytes before the first element.
    pub(super) before: usize,
    pub(super) len: usize,
    pub(super) guard: u64,
    pub(super) timeline: Option<Timeline>,
    pub(super) element: PhantomData<T>,
}

/// Makes `pending.await` work, in any async runtime or without one.
impl<T: Element> IntoFuture for Pending<T> {
    type Output = Result<Vec<T>>;
    type IntoFuture = Arrival<T>;

    fn into_future(self) -> Arrival<T> {
        Arrival { pending: Some(self), shared: Arc::default() }
    }
}

/// The future of [`Pending`]: the elements in C order, or the error of [`Tensor::read`]. The first poll starts a thread that waits for the
/// device.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Arrival<T: Element> {
    /// None after the first poll.
    pending: Option<Pending<T>>,
    shared: Arc<Mutex<Shared<T>>>,
}

#[derive(Debug)]
struct Shared<T> {
    result: Option<Result<Vec<T>>>,
    waker: Option<Waker>,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self { result: None, waker: None }
    }
}

// No part of the future is pinned.
impl<T: Element> Unpin for Arrival<T> {}

impl<T: Element> Future for Arrival<T> {
    type Output = Result<Vec<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let arrival = &mut *self;
        let mut shared = lock(&arrival.shared);
        if let Some(result) = shared.result.take() {
            return Poll::Ready(result);
        }
        shared.waker = Some(context.waker().clone());
        drop(shared);
        let Some(pending) = arrival.pending.take() else { return Poll::Pending };
        if matches!(pending.download, Download::Ready(_)) {
            return Poll::Ready(pending.wait());
        }
        let shared = Arc::clone(&arrival.shared);
        let waiting = thread::Builder::new().name("teatime-wait".into()).spawn(move || {
            let result = pending.take(Download::wait_aside);
            let mut shared = lock(&shared);
            shared.result = Some(result);
            let waker = shared.waker.take();
            drop(shared);
            waker.map(Waker::wake)
        });
        match waiting {
            Ok(_) => Poll::Pending,
            Err(source) => Poll::Ready(Err(Error::Driver { backend: "cpu", source: Box::new(source) })),
        }
    }
}

impl<T: Element> Pending<T> {
    /// Waits for the elements and returns them in C order.
    ///
    /// # Errors
    /// As [`Tensor::read`].
    pub fn wait(self) -> Result<Vec<T>> {
        self.take(Download::wait)
    }

    fn take(self, wait: fn(Download) -> Result<Vec<u8>>) -> Result<Vec<T>> {
        let len = self.len;
        let bytes = self.bytes_by(wait)?;
        let mut values = vec![T::zeroed(); len];
        bytemuck::cast_slice_mut(&mut values).copy_from_slice(&bytes);
        Ok(values)
    }

    /// Waits for the elements and returns their bytes, without another copy.
    ///
    /// # Errors
    /// As [`Tensor::read`].
    ///
    /// # Panics
    /// On devices that check their kernels, if a kernel wrote past the end of the tensor.
    pub fn bytes(self) -> Result<Vec<u8>> {
        self.bytes_by(Download::wait)
    }

    fn bytes_by(self, wait: fn(Download) -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        let span = Span::new(self.timeline.as_ref(), Stage::Wait, "");
        let mut bytes = wait(self.download)?;
        drop(span);
        let used = self.len * size_of::<T>();
        if self.guard > 0 {
            let tail = &bytes[used.next_multiple_of(4)..];
            assert!(tail.iter().all(|&byte| byte == POISON), "a kernel wrote past the end of a tensor");
        }
        bytes.truncate(self.before + used);
        bytes.drain(..self.before);
        Ok(bytes)
    }
}
