//! Runs of the program that write to one folder at the same time.

use std::{
    fs::{self, File, TryLockError},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::failure::Failure;

/// The name of a run's record. It is written last and removed first, so if it exists, all other files are complete.
pub(crate) const RECORD: &str = "run.json";

/// The prefix of the names of scratch folders.
const SCRATCH: &str = ".teatime.partial-";

/// Returns the prefix of the names of a record's scratch folders: `.teatime.partial-NAME.` for `NAME.run.json`. The rest of such a name has no
/// dot.
pub(crate) fn scratch_prefix(record: &str) -> String {
    format!("{SCRATCH}{}", record.strip_suffix(RECORD).unwrap_or(record))
}

/// Returns the names of the record's scratch folders, of running and ended runs.
pub(crate) fn scratches(target: &Path, record: &str) -> Vec<String> {
    let prefix = scratch_prefix(record);
    let entries = fs::read_dir(target).into_iter().flatten();
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let names = entries.filter_map(|entry| entry.ok().filter(is_folder)?.file_name().into_string().ok());
    let is_theirs = |name: &String| name.strip_prefix(&prefix).is_some_and(|rest| !rest.contains('.'));
    let mut names: Vec<_> = names.filter(is_theirs).collect();
    names.sort_unstable();
    names
}

/// Fails if another run is writing the same results.
pub(crate) fn refuse_second(target: &Path, record: &str) -> Result<(), Failure> {
    let is_held = |name: String| {
        let file = File::open(target.join(name)).ok().filter(|_| cfg!(unix));
        file.is_some_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    };
    if !scratches(target, record).into_iter().any(is_held) {
        return Ok(());
    }
    let (path, why) = (target.display(), "wait for its end, or choose another name");
    Err(Failure::Error(format!("{path}: another run of teatime is writing {record} there; {why}")))
}

/// Locks a scratch folder until the returned file is dropped or the process ends. Returns `None` if there are no locks.
pub(crate) fn lock(folder: &Path) -> Option<File> {
    let file = File::open(folder).ok().filter(|_| cfg!(unix))?;
    file.try_lock().is_ok().then_some(file)
}

/// The maximum time to wait for other runs that are starting or ending.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until no other run is starting or ending in the folder, and blocks such runs until the returned file is dropped. Returns `None` if
/// there are no locks.
pub(crate) fn alone(folder: &Path) -> Result<Option<File>, Failure> {
    if !cfg!(unix) {
        return Ok(None);
    }
    let file = File::open(folder).map_err(Failure::io(folder))?;
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if started.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(5))
            }
            Err(TryLockError::WouldBlock) => {
                let why = "another program has locked the folder; wait for its end, or choose another";
                return Err(Failure::Error(format!("{}: {why}", folder.display())));
            }
            Err(TryLockError::Error(_)) => return Ok(None),
        }
    }
    if is(&file, folder) {
        return Ok(Some(file));
    }
    let why = "another run of teatime took it away meanwhile; try again";
    Err(Failure::Error(format!("{}: {why}", folder.display())))
}

/// Returns true if the path still names the open folder: another run may have removed a folder that it created.
fn is(open: &File, folder: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        open.metadata().map(id).ok().is_some_and(|open| fs::metadata(folder).map(id).ok() == Some(open))
    }
    #[cfg(not(unix))]
    {
        let _ = (open, folder);
        true
    }
}
