//! Waiting for work with regular checks for cancellation, because the waiting thread may be the only one that can detect it
//! ([`Cancel::asking`]).

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use rayon::ThreadPool;

use crate::{Cancel, Error, Result};

/// The minimum number of rows for which a decomposition runs in its own thread, so that its caller can check for cancellation.
const LONG: usize = 256;
/// The time between two checks.
pub(crate) const BETWEEN: Duration = Duration::from_millis(20);

/// Locks a mutex, also if a thread panicked while it held the lock.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a decomposition of n rows, which cannot be stopped. If a long one is cancelled, the call returns and the thread finishes by itself.
/// Fails with [`Error::Cancelled`]; [`Error::Driver`] if the system cannot start a thread; what `work` returns.
pub(crate) fn apart<T: Send + 'static>(
    cancel: Option<&Cancel>,
    n: usize,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let Some(cancel) = cancel.filter(|_| n >= LONG) else { return work() };
    let (send, receive) = mpsc::channel();
    let working = thread::Builder::new().name("teatime-host".into()).spawn(move || {
        // After a cancelled call, nobody receives the result.
        let _ = send.send(work());
    });
    let working = working.map_err(|source| Error::Driver { backend: "cpu", source: Box::new(source) })?;
    match awaited(&receive, || cancel.check())? {
        Some(done) => done,
        None => std::panic::resume_unwind(
            working.join().expect_err("a thread that did not panic should have sent what it made"),
        ),
    }
}

/// Runs `f` on one of the pool's threads, or on this thread if it is one of them, and returns the result.
pub(crate) fn install<T: Send>(
    pool: &ThreadPool,
    cancel: Option<&Cancel>,
    f: impl FnOnce() -> T + Send,
) -> T {
    let Some(cancel) = cancel.filter(|_| pool.current_thread_index().is_none()) else {
        return pool.install(f);
    };
    let (send, receive) = mpsc::channel();
    let done = pool.in_place_scope(|scope| {
        scope.spawn(move |_| {
            // The receiver waits for the result.
            let _ = send.send(f());
        });
        // Checks the flag for the work, but waits on.
        let look = || {
            cancel.is_cancelled();
            Ok(())
        };
        awaited(&receive, look).ok().flatten()
    });
    done.expect("a scope should hand on a panic")
}

/// Waits for the value; returns `None` if the sender was dropped. Calls `look` regularly to decide whether to continue.
/// Fails with the error that `look` returns.
pub(crate) fn awaited<T>(receive: &Receiver<T>, look: impl Fn() -> Result<()>) -> Result<Option<T>> {
    loop {
        look()?;
        match receive.recv_timeout(BETWEEN) {
            Ok(done) => return Ok(Some(done)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::Device;

    #[test]
    fn a_cancelled_decomposition_is_not_waited_for() {
        let (cancel, (begun, begins), (go_on, goes_on)) =
            (Cancel::default(), mpsc::channel(), mpsc::channel());
        let flag = cancel.clone();
        let canceller = thread::spawn(move || {
            begins.recv().unwrap();
            flag.cancel();
        });
        let found = apart(Some(&cancel), LONG, move || {
            begun.send(()).unwrap();
            Ok(goes_on.recv().is_ok())
        });
        assert!(matches!(found, Err(Error::Cancelled)), "{found:?}");
        canceller.join().unwrap();
        // The work was still waiting, so it can receive.
        assert!(go_on.send(()).is_ok());
    }

    #[test]
    fn what_a_decomposition_gives_and_its_panic_come_through() {
        let cancel = Cancel::default();
        for cancel in [None, Some(&cancel)] {
            for n in [1, LONG] {
                assert_eq!(apart(cancel, n, || Ok(7)).unwrap(), 7);
                assert!(matches!(
                    apart(cancel, n, || Err::<(), _>(Error::argument("svd", "a", ""))),
                    Err(Error::Argument { .. })
                ));
                let panicked = catch_unwind(AssertUnwindSafe(|| {
                    apart(cancel, n, || -> Result<()> { panic!("asked for") })
                }));
                assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"asked for"));
            }
        }
    }

    #[test]
    fn the_thread_that_calls_looks() {
        let (device, caller) = (Device::cpu(), thread::current().id());
        let pool = device.pool().unwrap();
        let (asked, is_asked) = mpsc::channel();
        let cancel = Cancel::asking(move || thread::current().id() == caller && asked.send(()).is_ok());
        let is_asked = Mutex::new(is_asked);
        let found = install(pool, Some(&cancel), || {
            is_asked.lock().unwrap().recv().unwrap();
            // A thread of the pool must not wait for itself.
            install(pool, Some(&cancel), || 7)
        });
        assert_eq!((found, cancel.is_cancelled()), (7, true));
        let panicked =
            catch_unwind(AssertUnwindSafe(|| install(pool, Some(&cancel), || -> () { panic!("asked for") })));
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"asked for"));
    }
}
