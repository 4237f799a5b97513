//! Devices.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex},
};

use pyo3::{prelude::*, types::PyDict};
use teatime::{Device as Opened, DeviceOptions};

use crate::{
    context::CurrentContext,
    errors::{exception, forked, locked},
    timeline::recorded,
};

/// The devices that this process has opened.
static OPENED: LazyLock<Mutex<HashMap<Key, Opened>>> = LazyLock::new(Mutex::default);

/// A pickled device: the function that opens it again, and its name and number of threads.
type Pickled<'py> = (Bound<'py, PyAny>, (String, Option<usize>));

/// The name of a device, or those of several.
#[derive(Debug, FromPyObject)]
enum Names {
    One(String),
    Several(Vec<String>),
}

/// A device's name (`None` for the default) and its number of threads.
type Key = (Option<String>, Option<usize>);

/// A GPU, or the CPU.
#[pyclass(frozen, module = "teatime", eq, hash)]
#[derive(Debug, Clone)]
pub(crate) struct Device {
    opened: Opened,
    asked: Option<usize>,
    /// The name by which the device can be opened; of several devices, their names with commas between.
    #[pyo3(get)]
    name: String,
    /// The name that the hardware reports.
    #[pyo3(get)]
    description: String,
    /// `cpu`, `cuda` or `wgpu`.
    #[pyo3(get)]
    backend: String,
    /// The size of the device's memory in bytes, if the driver reports it.
    #[pyo3(get)]
    memory: Option<u64>,
    /// True if the device computes in f64.
    #[pyo3(get)]
    f64: bool,
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.opened.is_same(&other.opened) && self.threads() == other.threads() && self.name == other.name
    }
}

impl std::hash::Hash for Device {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

#[pymethods]
impl Device {
    #[new]
    #[pyo3(signature = (name = None, *, threads = None))]
    fn new(py: Python<'_>, name: Option<Names>, threads: Option<usize>) -> PyResult<Self> {
        let name = name.map(|names| match names {
            Names::One(name) => name,
            Names::Several(names) => names.join(","),
        });
        let opened = open(py, name, threads)?;
        let (f64, info) = (opened.limits().f64, opened.info().clone());
        let (backend, memory) = (info.backend.to_string(), info.memory);
        let names: Vec<String> = opened.members().iter().map(|member| member.info().name.clone()).collect();
        Ok(Self {
            opened,
            asked: threads,
            name: names.join(","),
            description: info.description,
            backend,
            memory,
            f64,
        })
    }

    /// The number of threads that decode and, on the CPU, compute.
    #[getter]
    fn threads(&self) -> usize {
        self.opened.threads()
    }

    /// The number of bytes that arrays on the device take now.
    #[getter]
    fn allocated(&self) -> u64 {
        self.opened.allocated_bytes()
    }

    fn __repr__(&self) -> String {
        match self.asked {
            Some(threads) => format!("teatime.Device({:?}, threads={threads})", self.name),
            None => format!("teatime.Device({:?})", self.name),
        }
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Pickled<'py>> {
        let open = py.import("teatime._device")?.getattr("_reopen")?;
        Ok((open, (self.name.clone(), self.asked)))
    }
}

/// The device that an argument names: a `Device`, a name, or None for the default.
#[derive(Debug, FromPyObject)]
pub(crate) enum Wanted {
    Device(Py<Device>),
    Name(String),
    Default(Option<Py<PyAny>>),
}

impl Default for Wanted {
    fn default() -> Self {
        Self::Default(None)
    }
}

impl Wanted {
    /// Opens the device, which a timeline records that is entered.
    /// Fails with `RuntimeError` if there is no such device, or as [`forked`] does; `TypeError` for another type.
    pub(crate) fn open(&self, py: Python<'_>) -> PyResult<Opened> {
        let device = match self {
            Self::Device(device) => device.get().opened.clone(),
            Self::Name(name) => open(py, Some(name.clone()), None)?,
            Self::Default(None) => open(py, None, None)?,
            Self::Default(Some(other)) => {
                return Err(pyo3::exceptions::PyTypeError::new_err(format!(
                    "`device` is a teatime.Device, its name, or None, not {}",
                    other.bind(py).get_type()
                )));
            }
        };
        Ok(recorded(device))
    }
}

fn open(py: Python<'_>, name: Option<String>, threads: Option<usize>) -> PyResult<Opened> {
    forked()?;
    let key = (name, threads);
    let opened = py.detach(|| {
        let mut opened = locked(&OPENED);
        if let Some(device) = opened.get(&key) {
            return Ok(device.clone());
        }
        let _kept = CurrentContext::kept();
        let options = DeviceOptions::default().threads(threads);
        let device = match &key.0 {
            Some(name) => Opened::open_with(name, &options)?,
            None => Opened::best_with(&options)?,
        };
        CurrentContext::note(&device);
        opened.insert(key, device.clone());
        Ok(device)
    });
    opened.map_err(exception)
}

/// Returns the entries of all devices of this machine.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    forked()?;
    let listed = py.detach(Opened::all);
    let entry = |listed: teatime::ListedDevice| {
        let entry = PyDict::new(py);
        entry.set_item("name", listed.name)?;
        match listed.info {
            Ok(info) => {
                entry.set_item("description", info.description)?;
                entry.set_item("backend", info.backend.to_string())?;
                entry.set_item("kind", info.kind.to_string())?;
                entry.set_item("memory", info.memory)?;
                entry.set_item("identity", info.identity)?;
                entry.set_item("usable", true)?;
            }
            Err(why) => {
                entry.set_item("usable", false)?;
                entry.set_item("why", why)?;
            }
        }
        entry.set_item("same_card_as", listed.same_card_as)?;
        Ok(entry)
    };
    listed.into_iter().map(entry).collect()
}
