//! Timelines, which record what all calls of a process do while they are entered.

use std::{path::PathBuf, sync::Mutex};

use pyo3::{prelude::*, types::PyBytes};
use teatime::{About, Device, Timeline as Recording};

use crate::errors::{exception, locked};

/// The timelines that are entered, each with its number, the last entered last.
static ENTERED: Mutex<Vec<(u64, Recording)>> = Mutex::new(Vec::new());

/// Returns a device that the timeline records which was entered last, if there is one.
pub(crate) fn recorded(device: Device) -> Device {
    match locked(&ENTERED).last() {
        Some((_, timeline)) => device.recorded_by(timeline),
        None => device,
    }
}

/// A recording of what each thread did when.
#[pyclass(frozen, module = "teatime._teatime")]
#[derive(Debug)]
pub(crate) struct Timeline {
    recording: Recording,
    number: u64,
}

#[pymethods]
impl Timeline {
    #[new]
    fn new(events: usize) -> Self {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Self { recording: Recording::new(events), number }
    }

    /// Begins to record the calls of this process.
    fn enter(&self) {
        locked(&ENTERED).push((self.number, self.recording.clone()));
    }

    /// Ends the recording.
    fn exit(&self) {
        locked(&ENTERED).retain(|(number, _)| *number != self.number);
        self.recording.end();
    }

    /// The numbers of events that are kept, and that were dropped.
    fn events(&self) -> (u64, u64) {
        self.recording.events()
    }

    fn bound(&self, py: Python<'_>) -> String {
        py.detach(|| self.recording.bound())
    }

    fn write_trace(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.recording.write_trace(path)).map_err(exception)
    }

    fn write_report(&self, py: Python<'_>, path: PathBuf, title: String) -> PyResult<()> {
        let about = About { title, ..About::default() };
        py.detach(|| self.recording.write_report(path, &about)).map_err(exception)
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &py.detach(|| self.recording.to_bytes()))
    }

    fn merge(&self, process: &str, recorded: &[u8]) -> PyResult<()> {
        self.recording.merge(process, recorded).map_err(exception)
    }
}
