//! The files that `--trace` and `--report` ask for, which all commands have.

use std::{
    fs,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use serde_json::{Value, json};
use teatime::{About, Device, Error, Timeline};

use crate::{failure::Failure, note, remote};

/// Texts near the start of the files, by which they are known.
const TRACE: &str = "\"program\":\"teatime";
const REPORT: &str = "<!-- teatime timeline -->";

/// The recording of a run, and the files that it goes to: one for each that is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recording {
    trace: Option<PathBuf>,
    report: Option<PathBuf>,
    /// `None` if no file is asked for.
    timeline: Option<Timeline>,
    /// The rest of the page.
    about: Arc<Mutex<About>>,
}

impl Recording {
    /// Begins a recording if one of the files is asked for. Fails for a file that is there and not of this program, or whose folder cannot
    /// be made.
    pub(crate) fn begin(trace: Option<PathBuf>, report: Option<PathBuf>) -> Result<Self, Failure> {
        if trace.is_some() && trace == report {
            return Err(Failure::Usage("--trace and --report name one file".into()));
        }
        for (path, mark) in [(&trace, TRACE), (&report, REPORT)] {
            path.as_ref().map_or(Ok(()), |path| replaceable(path, mark)).map_err(Failure::Error)?;
        }
        let timeline = (trace.is_some() || report.is_some()).then(Timeline::default);
        Ok(Self { trace, report, timeline, about: Arc::default() })
    }

    /// Returns a device that records, if one of the files is asked for.
    pub(crate) fn recorded(&self, device: Device) -> Device {
        let Some(timeline) = &self.timeline else { return device };
        // A run that fails has no other record.
        let (info, version) = (device.info(), env!("CARGO_PKG_VERSION"));
        let entries = json!({
            "teatime_version": version,
            "threads": device.threads(),
            "device": { "name": info.name, "description": info.description, "driver": info.driver },
        });
        rows(&mut self.about().record, "", &entries);
        device.recorded_by(timeline)
    }

    fn about(&self) -> MutexGuard<'_, About> {
        self.about.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a phase of the run from `began` until now.
    pub(crate) fn phase(&self, name: &str, began: Instant) {
        if let Some(timeline) = &self.timeline {
            timeline.phase(name, began);
        }
    }

    pub(crate) fn record(&self) -> Value {
        // A path need not be text.
        let text = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        json!({ "trace": text(&self.trace), "report": text(&self.report) })
    }

    /// Takes the record of a run, and the plots among its results.
    pub(crate) fn take(&self, record: &Value, plots: impl FnOnce() -> Vec<String>) {
        if self.timeline.is_none() {
            return;
        }
        let mut about = self.about();
        about.plots = plots();
        about.record.clear();
        rows(&mut about.record, "", record);
    }

    /// Writes the files after the command ended. Returns the command's failure, or else that of a file that cannot be written.
    pub(crate) fn finish(&self, ended: Result<(), Failure>) -> Result<(), Failure> {
        let Some(timeline) = self.timeline.as_ref().filter(|_| !matches!(ended, Err(Failure::Usage(_))))
        else {
            return ended;
        };
        let mut about = self.about();
        let words: Vec<_> = remote::command_line().into_iter().skip(1).collect();
        about.title = format!("teatime {}", words.join(" "));
        if let Err(failure) = &ended {
            about.failed = failure.to_string();
        }
        // A result of the run may have taken the name meanwhile.
        let write = |path: &Option<PathBuf>, mark, write: &dyn Fn(&Path) -> Result<(), Error>| match path {
            None => Ok(()),
            Some(path) => {
                replaceable(path, mark).and_then(|()| write(path).map_err(|error| error.to_string()))
            }
        };
        let trace = write(&self.trace, TRACE, &|path| timeline.write_trace(path));
        let report = write(&self.report, REPORT, &|path| timeline.write_report(path, &about));
        match trace.and(report) {
            Ok(()) => ended,
            Err(error) if ended.is_ok() => Err(Failure::Error(format!("{error}; the results are complete"))),
            Err(error) => {
                note(&format!("warning: {error}"));
                ended
            }
        }
    }
}

/// Fails for a file that is there without the mark near its start, and for a folder that cannot be made.
fn replaceable(path: &Path, mark: &str) -> Result<(), String> {
    let io = |error| format!("{}: {error}", path.display());
    match fs::metadata(path) {
        Ok(there) if there.is_file() && there.len() > 0 => {
            let mut head = Vec::new();
            fs::File::open(path).and_then(|file| file.take(200).read_to_end(&mut head)).map_err(io)?;
            if !String::from_utf8_lossy(&head).contains(mark) {
                let why = "is there, and not a file that this option wrote; choose another name";
                return Err(format!("{}: {why}", path.display()));
            }
            Ok(())
        }
        Ok(there) if there.is_dir() => Err(format!("{}: is a folder", path.display())),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io(error)),
        _ => path.parent().map_or(Ok(()), fs::create_dir_all).map_err(io),
    }
}

/// Adds the entries of a record, with the names of those that are within others joined by dots.
fn rows(out: &mut Vec<(String, String)>, name: &str, value: &Value) {
    match value {
        Value::Object(entries) => {
            for (entry, value) in entries {
                rows(out, &if name.is_empty() { entry.clone() } else { format!("{name}.{entry}") }, value);
            }
        }
        Value::Null => {}
        Value::String(text) => out.push((name.into(), text.clone())),
        value => out.push((name.into(), value.to_string())),
    }
}
