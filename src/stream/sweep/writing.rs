//! Threads that write boxes while further boxes are computed.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
};

use crate::{Device, Error, Result, driver::HostBytes, store::BoxWriter, timeline::Stage, waiting::lock};

/// The ranges of a computed box along each axis, and its output elements.
type Made = (Vec<Range<u64>>, HostBytes);

/// A function that takes boxes, and returns false if no more are wanted.
pub(super) type Give<'a> = dyn FnMut(Vec<Range<u64>>, HostBytes) -> bool + 'a;

/// Writes the boxes that `make` gives on `threads` threads, and waits for all. If both fail, returns the error of writing, the first.
pub(super) fn write_all(
    writer: &impl BoxWriter,
    threads: u64,
    device: &Device,
    make: impl FnOnce(&mut Give<'_>) -> Result<()>,
) -> Result<()> {
    let (send, receive) = mpsc::sync_channel::<Made>(0);
    let failed = AtomicBool::new(false);
    // The receiver is dropped with the last thread, so that sending a box that no thread will take fails.
    let receive = Arc::new(Mutex::new(receive));
    thread::scope(|scope| {
        let start = |_| {
            let boxes = Arc::clone(&receive);
            let put = || {
                let written = catch_unwind(AssertUnwindSafe(|| put_all(writer, device, boxes)));
                failed.fetch_or(!matches!(written, Ok(Ok(()))), Ordering::Relaxed);
                written.unwrap_or_else(|panic| resume_unwind(panic))
            };
            thread::Builder::new().name("teatime-write".into()).spawn_scoped(scope, put)
        };
        let writing = (0..threads).map(start).collect::<std::io::Result<Vec<_>>>();
        drop(receive);
        let writing = writing.map_err(|source| Error::Driver { backend: "cpu", source: source.into() })?;
        // Other threads may still be working after one thread has failed.
        let made = make(&mut |core, values| {
            let _span = device.span(Stage::Writers, "");
            send.send((core, values)).is_ok() && !failed.load(Ordering::Relaxed)
        });
        drop(send);
        let joined =
            writing.into_iter().map(|writing| writing.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.fold(Ok(()), Result::and).and(made)
    })
}

/// Writes boxes as they arrive.
fn put_all(writer: &impl BoxWriter, device: &Device, boxes: Arc<Mutex<Receiver<Made>>>) -> Result<()> {
    let next = || lock(&boxes).recv();
    while let Ok((core, values)) = next() {
        let _span = device.span(Stage::Write, "").bytes(values.bytes().len() as u64);
        device.pool()?.install(|| writer.write_box_bytes(&core, values.bytes()))?;
    }
    Ok(())
}
