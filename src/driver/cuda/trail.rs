//! The launches that may be running: CUDA reports a kernel's fault at a later, unrelated call.

use std::{
    collections::VecDeque,
    env, fmt,
    sync::{Mutex, MutexGuard},
};

use crate::{Result, extent::to_usize, waiting::lock};

/// The maximum number of launches that an error names.
const NAMED: usize = 8;

/// A launch, as an error names it.
#[derive(Debug)]
pub(super) struct Launch {
    /// The name of a kernel, or of a library's product.
    pub(super) name: &'static str,
    /// The values of the kernel's constants, or the extents of the product.
    pub(super) spec: Box<[(&'static str, u32)]>,
    pub(super) grid: Option<[u32; 3]>,
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        for (name, value) in &self.spec {
            write!(f, " {name}={value}")?;
        }
        self.grid.map_or(Ok(()), |[x, y, z]| write!(f, ", grid {x} x {y} x {z}"))
    }
}

/// The last launches on a device.
#[derive(Debug)]
pub(super) struct Trail {
    recent: Mutex<Recent>,
    /// Locked while a launch is added and enqueued, so that every counted launch is on the stream.
    enqueuing: Mutex<()>,
    /// Locked from a launch to the end of the wait for it, if `TEATIME_SYNC` asks to wait for each launch.
    alone: Option<Mutex<()>>,
}

#[derive(Debug, Default)]
struct Recent {
    launched: u64,
    ended: u64,
    /// The last launches, oldest first.
    last: VecDeque<Launch>,
}

impl Trail {
    /// Makes a trail without launches. `TEATIME_SYNC` says whether each launch is waited for.
    pub(super) fn new() -> Self {
        let sync = env::var_os("TEATIME_SYNC").is_some_and(|value| !value.is_empty() && value != "0");
        Self { recent: Mutex::default(), enqueuing: Mutex::default(), alone: sync.then(Mutex::default) }
    }

    /// Returns a lock to hold while the caller launches and waits; `None` if the caller need not wait.
    pub(super) fn alone(&self) -> Option<MutexGuard<'_, ()>> {
        self.alone.as_ref().map(lock)
    }

    /// Adds a launch and enqueues it. Removes the launch again if it is refused.
    pub(super) fn enqueue<T>(&self, launch: Launch, enqueue: impl FnOnce() -> Result<T>) -> Result<T> {
        let _order = lock(&self.enqueuing);
        self.add(launch);
        let enqueued = enqueue();
        if enqueued.is_err() {
            let mut recent = lock(&self.recent);
            recent.launched -= 1;
            recent.last.pop_back();
        }
        enqueued
    }

    fn add(&self, launch: Launch) {
        let mut recent = lock(&self.recent);
        recent.launched += 1;
        recent.last.push_back(launch);
        if recent.last.len() > NAMED {
            recent.last.pop_front();
        }
    }

    /// Returns the number of launches so far, to pass to [`ended`](Self::ended) when the host has waited for them.
    pub(super) fn launched(&self) -> u64 {
        let _order = lock(&self.enqueuing);
        lock(&self.recent).launched
    }

    /// Notes that the first `launches` launches have ended without a fault.
    pub(super) fn ended(&self, launches: u64) {
        let mut recent = lock(&self.recent);
        recent.ended = recent.ended.max(launches);
    }

    /// Returns the launches that may have caused a fault, as the end of a message; empty if none was running.
    pub(super) fn suspects(&self) -> String {
        let recent = lock(&self.recent);
        let under_way = recent.launched - recent.ended;
        let named = recent.last.len().min(to_usize(under_way));
        let mut names = recent.last.iter().rev().take(named).map(Launch::to_string);
        let text = match under_way {
            0 => return String::new(),
            1 => return format!("; what was running is {}", names.next().unwrap_or_default()),
            _ => format!("; one of {under_way} launches was running (TEATIME_SYNC=1 tells which)"),
        };
        let which = if under_way > NAMED as u64 { ", the last" } else { ", from the last on" };
        text + which + ": " + &names.collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspects_are_what_has_not_ended() {
        let trail = Trail { recent: Mutex::default(), enqueuing: Mutex::default(), alone: None };
        let launch =
            |tile| trail.add(Launch { name: "k", spec: [("TILE", tile)].into(), grid: Some([tile, 2, 1]) });
        assert_eq!(trail.suspects(), "");
        launch(0);
        assert_eq!(trail.suspects(), "; what was running is k TILE=0, grid 0 x 2 x 1");
        (1..12).for_each(launch);
        let text = trail.suspects();
        assert!(text.starts_with(
            "; one of 12 launches was running (TEATIME_SYNC=1 tells which), the last: k TILE=11,"
        ));
        assert_eq!(text.matches("TILE").count(), NAMED);
        trail.ended(10);
        trail.ended(3);
        assert!(
            trail
                .suspects()
                .ends_with(", from the last on: k TILE=11, grid 11 x 2 x 1; k TILE=10, grid 10 x 2 x 1")
        );
        trail.ended(trail.launched());
        assert_eq!(trail.suspects(), "");
    }
}
