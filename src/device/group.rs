//! Groups: several devices, opened as one, that share the work of a call.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
};

use crate::{
    Cancel, Device, DeviceKind, DeviceOptions, Error, ListedDevice, MemoryKind, Progress, Result, Run,
    Status, waiting::BETWEEN,
};

/// The result of a member's work, or its panic.
type Done<T> = thread::Result<Result<T>>;

impl Device {
    /// Makes a group of devices: a handle of the first device, with which calls that can share their work among devices do so. Such calls say it
    /// where they say what they cost. All other calls, and tensors that are created with the handle, are on the first device.
    ///
    /// Each member has a thread of the host of its own, and all members share the threads that decode. The host memory of a [`Run`] is for all
    /// members together; its device memory is for each of them. Flags and timelines of a group's handle are those of all members.
    ///
    /// # Errors
    /// [`Error::Argument`] for no device, and for a device that is named twice, unless its memory is the host's.
    ///
    /// ```
    /// use teatime::Device;
    /// let group = Device::group(&[Device::open("cpu")?, Device::open("cpu")?])?;
    /// assert_eq!(group.members().len(), 2);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn group(devices: &[Self]) -> Result<Self> {
        let refuse = |why: String| Err(Error::argument("Device::group", "devices", why));
        let all: Vec<Self> = devices.iter().flat_map(Self::members).collect();
        let Some((first, others)) = all.split_first() else { return refuse("none given".into()) };
        for (i, device) in others.iter().enumerate() {
            if !device.shares_host_memory() && all[..=i].iter().any(|other| other.is_same(device)) {
                return refuse(format!("{} is named twice", device.info().name));
            }
            if !device.shares_host_memory() && !first.shares_host_memory() {
                device.share_pool(first.pool()?);
            }
        }
        Ok(Self { others: others.into(), ..first.clone() })
    }

    /// Opens the devices of a list of names, or all cards of a backend, as a group.
    pub(super) fn open_group(names: &str, options: &DeviceOptions) -> Result<Self> {
        let (mut all, mut skipped) = (Vec::new(), Vec::new());
        for name in names.split(',').map(str::trim) {
            match name.strip_suffix(":*") {
                Some(backend) => all.extend(cards(names, backend, &mut skipped)?),
                None => all.push(name.to_owned()),
            }
        }
        // Members that compute on the CPU divide its threads.
        let count = all.iter().filter(|name| *name == "cpu").count().max(1);
        let threads = (super::threads(options.threads) / count).max(1);
        let open = |name: &String| match &**name {
            "cpu" => Self::open_with(name, &options.clone().threads(threads)),
            _ => Self::open_with(name, options),
        };
        let opened = all.iter().map(open).collect::<Result<Vec<_>>>()?;
        Ok(Self { skipped: skipped.into(), ..Self::group(&opened)? })
    }

    /// Returns the devices of a [group](Self::group), in their order; otherwise the device itself.
    pub fn members(&self) -> Vec<Self> {
        let with = |device: &Self| Self {
            cancel: self.cancel.clone(),
            timeline: self.timeline.clone(),
            others: [].into(),
            ..device.clone()
        };
        [self].into_iter().chain(&*self.others).map(with).collect()
    }

    /// # Errors
    /// [`Error::Argument`] for a group of devices of different kinds, whose results may differ in the last bits.
    pub(crate) fn has_one_kind(&self, op: &'static str) -> Result<()> {
        let kind = |device: &Self| (device.info().backend, device.info().description.clone());
        match self.others.iter().find(|other| !self.is_same(other) && kind(other) != kind(self)) {
            None => Ok(()),
            Some(other) => {
                let [one, other] = [self, other].map(|device| &device.info().description);
                let why = format_args!(
                    "{one} and {other} round differently: a group of one kind gives the same bits"
                );
                Err(Error::argument(op, "device", why))
            }
        }
    }

    /// Calls `work` with each [member](Self::members), its number and its part of `run`, and returns the results in the order of the members.
    /// Each member of a group has a thread; if one fails, the `run` of the others is cancelled. Progress is the sum of the rows that members
    /// tell, of `total`, and is reported on the calling thread.
    ///
    /// # Errors
    /// The first error of a member; of budgets for the memory of all members together.
    ///
    /// ```
    /// use teatime::{Device, Run, Tensor, linalg::sum};
    /// let group = Device::open("cpu,cpu")?;
    /// let sums = group.each_member(&Run::default(), 2, |i, device, _| {
    ///     sum(&Tensor::from_slice(device, &[i as f32, 1.0], &[2])?)
    /// })?;
    /// assert_eq!(sums, [1.0, 2.0]);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn each_member<T: Send>(
        &self,
        run: &Run,
        total: u64,
        work: impl Fn(usize, &Self, &Run) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let members = self.members();
        if let [only] = &members[..] {
            return Ok(vec![work(0, only, run)?]);
        }
        let count = members.len() as u64;
        let (stop, asked) = (Cancel::default(), run.cancel.clone());
        let stops = Cancel::asking({
            let stop = stop.clone();
            move || stop.is_cancelled() || asked.is_cancelled()
        });
        let (send, receive) = mpsc::channel::<(usize, Option<Status>)>();
        let done: Vec<Done<T>> = thread::scope(|scope| {
            let begin = |(i, member): (usize, &Self)| {
                let (member, send, stop, work) = (member.clone(), send.clone(), stop.clone(), &work);
                let told = send.clone();
                let progress = Progress::new(move |status| {
                    // A caller that no longer listens has failed.
                    let _ = told.send((i, Some(status)));
                });
                let run = Run::default()
                    .cancel(stops.clone())
                    .progress(progress)
                    .memory(run.memory.shared_by(count));
                let all = move || {
                    let done = catch_unwind(AssertUnwindSafe(|| work(i, &member, &run)));
                    if !matches!(done, Ok(Ok(_))) {
                        stop.cancel();
                    }
                    let _ = send.send((i, None));
                    done
                };
                thread::Builder::new().name(format!("teatime-member-{i}")).spawn_scoped(scope, all)
            };
            let threads: Vec<_> = members.iter().enumerate().map(begin).collect();
            if threads.iter().any(Result::is_err) {
                stop.cancel();
            }
            let (mut rows, mut working) =
                (vec![0; members.len()], threads.iter().filter(|t| t.is_ok()).count());
            while working > 0 {
                // Only this thread may see that a user interrupts.
                run.cancel.is_cancelled();
                match receive.recv_timeout(BETWEEN) {
                    Ok((i, Some(status))) => {
                        rows[i] = status.rows;
                        run.progress.tell(Status { rows: rows.iter().sum(), total, ..status });
                    }
                    Ok((_, None)) => working -= 1,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            let join = |thread: std::io::Result<thread::ScopedJoinHandle<'_, Done<T>>>| match thread {
                Ok(thread) => thread.join().unwrap_or_else(Err),
                Err(source) => Ok(Err(Error::Driver { backend: "cpu", source: source.into() })),
            };
            threads.into_iter().map(join).collect()
        });
        let done: Vec<Result<T>> =
            done.into_iter().map(|done| done.unwrap_or_else(|panic| resume_unwind(panic))).collect();
        let (made, failed): (Vec<_>, Vec<_>) = done.into_iter().partition(Result::is_ok);
        let mut errors: Vec<Error> = failed.into_iter().filter_map(Result::err).collect();
        let first = errors.iter().position(|error| !matches!(error, Error::Cancelled)).unwrap_or(0);
        if errors.is_empty() {
            return made.into_iter().collect();
        }
        Err(match errors.swap_remove(first) {
            Error::Budget { memory: MemoryKind::Host, what, minimum, given, .. } => Error::Budget {
                memory: MemoryKind::Host,
                what,
                budget: run.memory.host_bytes(),
                minimum: minimum.saturating_mul(count),
                given,
            },
            error => error,
        })
    }
}

/// Returns the names of all cards of a backend; `skipped` gets those that cannot be used. Software adapters of wgpu are not among them.
///
/// # Errors
/// [`Error::NoDevice`] if there is none.
fn cards(wanted: &str, backend: &str, skipped: &mut Vec<(String, String)>) -> Result<Vec<String>> {
    let (listed, prefix) = (Device::all(), format!("{backend}:"));
    let (mut names, mut tried) = (Vec::new(), Vec::new());
    for ListedDevice { name, info, same_card_as } in listed {
        let is_again = same_card_as.is_some_and(|other| other.starts_with(&prefix));
        match info {
            Ok(info) if name.starts_with(&prefix) && !is_again => {
                if backend == "cuda" || info.kind != DeviceKind::Software {
                    names.push(name);
                } else {
                    tried.push((name, info.description));
                }
            }
            Ok(info) => tried.push((name, info.description)),
            Err(why) if name.starts_with(&prefix) => skipped.push((name, why)),
            Err(why) => tried.push((name, format!("not here: {why}"))),
        }
    }
    if !names.is_empty() {
        return Ok(names);
    }
    tried.extend(skipped.drain(..));
    Err(Error::NoDevice { wanted: wanted.into(), tried })
}
