//! Groups: several devices, opened as one, that share the work of a call.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
};

use super::{Inner, listed};
use crate::{
    Cancel, Device, DeviceInfo, DeviceKind, DeviceOptions, Error, Needs, Progress, Result, Run, Status,
    timeline::MEMBER,
    waiting::{BETWEEN, lock},
};

/// The end of a member's work, or its panic.
type Done = thread::Result<Result<()>>;

/// The work of a member, which gets its number and its part of the run.
type MemberWork<'a, T> = dyn Fn(usize, &Device, &Run) -> Result<T> + Sync + 'a;

impl Device {
    /// Makes a group of devices: a handle of the first device, with which calls that can share their work among devices do so. Such calls say it
    /// where they say what they cost. All other calls, and tensors that are created with the handle, are on the first device.
    ///
    /// Each member has a thread of the host of its own. Cards that were opened with the same options share the threads that decode. The host
    /// memory of a [`Run`] is for all members together; its device memory is for each of them. Flags and timelines of a group's handle are those
    /// of all members.
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
        let members: Vec<Self> = devices.iter().flat_map(Self::members).collect();
        let Some((first, others)) = members.split_first() else { return refuse("none given".into()) };
        let mut cards = members.iter().filter(|device| !device.shares_host_memory());
        for (i, device) in others.iter().enumerate().filter(|(_, device)| !device.shares_host_memory()) {
            if members[..=i].iter().any(|other| other.is_same(device)) {
                return refuse(format!("{} is named twice", device.info().name));
            }
        }
        if let Some(first) = cards.next() {
            let threads = first.inner.threads;
            let others = cards.filter(|other| other.inner.threads == threads);
            let pool = first.pool()?;
            others.for_each(|other| {
                other.inner.pool.get_or_init(|| Arc::clone(pool));
            });
        }
        Ok(Self { others: others.iter().map(|other| Arc::clone(&other.inner)).collect(), ..first.clone() })
    }

    /// Opens the devices of these names, or all cards of a backend, as a group.
    pub(super) fn open_group(wanted: &str, names: &[&str], options: &DeviceOptions) -> Result<Self> {
        let (mut members, mut skipped) = (Vec::new(), Vec::new());
        for name in names {
            match name.strip_suffix(":*") {
                Some(backend) => members.extend(cards(wanted, backend, &mut skipped)?),
                None => members.push((*name).to_owned()),
            }
        }
        // Members that compute on the CPU divide its threads.
        let count = members.iter().filter(|name| *name == "cpu").count().max(1);
        let threads = (super::threads(options.threads) / count).max(1);
        let open = |name: &String| match &**name {
            "cpu" => Self::open_with(name, &options.clone().threads(threads)),
            _ => Self::open_with(name, options),
        };
        let opened = members.iter().map(open).collect::<Result<Vec<_>>>()?;
        Ok(Self { skipped: skipped.into(), ..Self::group(&opened)? })
    }

    /// Returns the devices of a [group](Self::group), in their order; otherwise the device itself.
    pub fn members(&self) -> Vec<Self> {
        let with = |inner: &Arc<Inner>| {
            let (cancel, timeline) = (self.cancel.clone(), self.timeline.clone());
            Self { cancel, timeline, ..Self::of_inner(Arc::clone(inner)) }
        };
        [&self.inner].into_iter().chain(&*self.others).map(with).collect()
    }

    /// Returns the group of the first `count` members, at least one.
    pub(crate) fn first_members(&self, count: usize) -> Self {
        let others = &self.others[..count.saturating_sub(1).min(self.others.len())];
        Self { others: others.into(), ..self.clone() }
    }

    /// Returns the memory of work for which each member takes `each`: host memory is for all together, device memory is each member's.
    pub(crate) fn members_need(&self, each: Needs) -> Needs {
        let members = self.members();
        let host = members.iter().map(|member| each.on(member).host).max().unwrap_or(0);
        Needs { host: host.saturating_mul(members.len() as u64), device: each.on(self).device }
    }

    /// True if all members have the same backend and description, so that they round in the same way. So does a device that is no group.
    pub fn is_of_one_kind(&self) -> bool {
        self.another_kind().is_none()
    }

    /// Returns a member of another kind than the first.
    fn another_kind(&self) -> Option<Self> {
        let kind = |device: &Self| (device.info().backend, device.info().description.clone());
        self.members().into_iter().find(|other| !self.is_same(other) && kind(other) != kind(self))
    }

    /// Fails with [`Error::Argument`] for a group of devices of different kinds, whose results may differ in the last bits.
    pub(crate) fn has_one_kind(&self, op: &'static str) -> Result<()> {
        match self.another_kind() {
            None => Ok(()),
            Some(other) => {
                let [one, other] = [self, &other].map(|device| &device.info().description);
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
    /// use teatime::{Device, Run, Tensor, linalg::matmul};
    /// let group = Device::open("cpu,cpu")?;
    /// let squares = group.each_member(&Run::default(), 2, |i, device, _| {
    ///     let x = Tensor::from_slice(device, &[i as f32 + 2.0], &[1, 1])?;
    ///     matmul(&x, &x)?.read()
    /// })?;
    /// assert_eq!(squares, [[4.0], [9.0]]);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn each_member<T: Send>(
        &self,
        run: &Run,
        total: u64,
        work: impl Fn(usize, &Self, &Run) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        self.each_member_by(run, total, &work)
    }

    /// Works as [`each_member`](Self::each_member). All calls with results of one type share its code.
    fn each_member_by<T: Send>(&self, run: &Run, total: u64, work: &MemberWork<'_, T>) -> Result<Vec<T>> {
        if self.others.is_empty() {
            return Ok(vec![work(0, self, run)?]);
        }
        let results: Vec<Mutex<Option<T>>> = self.members().iter().map(|_| Mutex::new(None)).collect();
        self.run_members(run, total, &|i, member, run| {
            let result = work(i, member, run)?;
            *lock(&results[i]) = Some(result);
            Ok(())
        })?;
        let result = |result: Mutex<Option<T>>| result.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(results.into_iter().filter_map(result).collect())
    }

    /// Calls `work` as [`each_member`](Self::each_member) does, where results go elsewhere.
    fn run_members(&self, run: &Run, total: u64, work: &MemberWork<'_, ()>) -> Result<()> {
        let members = self.members();
        let count = members.len() as u64;
        // A thread of the pool does not wait for others, which may need it.
        if members.iter().any(|member| member.pool().is_ok_and(|pool| pool.current_thread_index().is_some()))
        {
            return run.with_part(count, |run| in_turn(&members, run, total, work));
        }
        let stop = Cancel::default();
        let stops = stop.or(Some(&run.cancel.or(self.cancel())));
        let (send, receive) = mpsc::channel::<(usize, Option<Status>)>();
        let done: Vec<Done> = thread::scope(|scope| {
            let begin = |(i, member): (usize, &Self)| {
                let (member, send, stop) = (member.clone(), send.clone(), stop.clone());
                let told = send.clone();
                let progress = Progress::new(move |status| {
                    // A caller that no longer listens has failed.
                    let _ = told.send((i, Some(status)));
                });
                let run = Run::default()
                    .cancel(stops.clone())
                    .progress(progress)
                    .memory(run.memory.shared_by(count));
                let work_and_tell = move || {
                    let done = catch_unwind(AssertUnwindSafe(|| work(i, &member, &run)));
                    if !matches!(done, Ok(Ok(_))) {
                        stop.cancel();
                    }
                    let _ = send.send((i, None));
                    done
                };
                thread::Builder::new().name(format!("{MEMBER}{i}")).spawn_scoped(scope, work_and_tell)
            };
            let threads: Vec<_> = members.iter().enumerate().map(begin).collect();
            if threads.iter().any(Result::is_err) {
                stop.cancel();
            }
            let (mut rows, mut working) =
                (vec![0; members.len()], threads.iter().filter(|t| t.is_ok()).count());
            while working > 0 {
                // Only this thread may see that a user interrupts.
                stops.is_cancelled();
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
            let join = |thread: std::io::Result<thread::ScopedJoinHandle<'_, Done>>| match thread {
                Ok(thread) => thread.join().unwrap_or_else(Err),
                Err(source) => Ok(Err(Error::Driver { backend: "cpu", source: source.into() })),
            };
            threads.into_iter().map(join).collect()
        });
        let done: Vec<Result<()>> =
            done.into_iter().map(|done| done.unwrap_or_else(|panic| resume_unwind(panic))).collect();
        all_or_first_error(done).map_err(|error| run.memory.error_of_part(count, error))
    }
}

/// Calls `work` with one member after the other.
fn in_turn(members: &[Device], run: &Run, total: u64, work: &MemberWork<'_, ()>) -> Result<()> {
    let rows = Arc::new(AtomicU64::new(0));
    let of_member = |(i, member): (usize, &Device)| {
        let (before, told, progress) = (rows.load(Relaxed), Arc::clone(&rows), run.progress.clone());
        let progress = Progress::new(move |status| {
            told.store(before + status.rows, Relaxed);
            progress.tell(Status { rows: before + status.rows, total, ..status });
        });
        work(i, member, &run.clone().progress(progress))
    };
    members.iter().enumerate().try_for_each(of_member)
}

/// Returns the first error, if possible one that is not of a member that was stopped because of another.
fn all_or_first_error(done: Vec<Result<()>>) -> Result<()> {
    let is_cause = |done: &Result<()>| matches!(done, Err(error) if !matches!(error, Error::Cancelled));
    match done.iter().position(is_cause) {
        Some(cause) => done.into_iter().skip(cause).collect(),
        None => done.into_iter().collect(),
    }
}

/// Returns the names of a group, if that is what the text names. A part of a name, such as of an adapter, may hold commas.
pub(super) fn names(text: &str) -> Option<Vec<&str>> {
    let is_name = |text: &str| {
        let backend = text.split(':').next().unwrap_or_default();
        ["cpu", "cuda", "wgpu"].contains(&backend)
    };
    let (mut names, mut start) = (Vec::new(), 0);
    for (comma, _) in text.match_indices(',') {
        if is_name(text[comma + 1..].split(',').next().unwrap_or_default().trim()) {
            names.push(text[start..comma].trim());
            start = comma + 1;
        }
    }
    names.push(text[start..].trim());
    (names.len() > 1 || text.ends_with(":*")).then_some(names)
}

/// Returns the names of all cards of a backend; `skipped` gets those that cannot be used. An adapter of a card that another interface has
/// too counts once, integrated ones count if there are no others, and wgpu's software adapters do not. Fails with
/// [`Error::NoDevice`] if there is none.
fn cards(wanted: &str, backend: &str, skipped: &mut Vec<(String, String)>) -> Result<Vec<String>> {
    let (mut usable, mut tried) = (Vec::<(String, DeviceInfo)>::new(), Vec::new());
    for (name, info) in listed(backend) {
        match info {
            Ok(info) if backend == "cuda" || info.kind != DeviceKind::Software => {
                if !usable
                    .iter()
                    .any(|(_, other)| !other.identity.is_empty() && other.identity == info.identity)
                {
                    usable.push((name, info));
                }
            }
            Ok(info) => tried.push((name, info.description)),
            Err(why) => tried.push((name, why)),
        }
    }
    let is_discrete = |(_, info): &(String, DeviceInfo)| info.kind != DeviceKind::Integrated;
    if usable.iter().any(is_discrete) {
        usable.retain(is_discrete);
    }
    if usable.is_empty() {
        return Err(Device::with_all(Error::NoDevice { wanted: wanted.into(), tried }));
    }
    skipped.extend(tried.into_iter().filter(|_| backend == "cuda"));
    Ok(usable.into_iter().map(|(name, _)| name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_groups() {
        assert_eq!(names("cuda:0, cuda:1,cpu"), Some(vec!["cuda:0", "cuda:1", "cpu"]));
        assert_eq!(names("cuda:*"), Some(vec!["cuda:*"]));
        assert_eq!(names("wgpu:llvmpipe (LLVM 15.0.6, 256 bits)"), None);
        let two = names("wgpu:llvmpipe (LLVM 15.0.6, 256 bits),wgpu:1");
        assert_eq!(two, Some(vec!["wgpu:llvmpipe (LLVM 15.0.6, 256 bits)", "wgpu:1"]));
        assert_eq!((names("cpu"), names("")), (None, None));
    }
}
