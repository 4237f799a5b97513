//! Runs of the program that write to one folder at the same time.

use std::{
    fs::{self, File, TryLockError},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use crate::failure::Failure;

/// The record of a run, and what says that the other files are whole: written last, removed first.
pub(crate) const RECORD: &str = "run.json";

/// The start of the names of scratch folders.
const SCRATCH: &str = ".teatime.partial-";

/// The start of the names of the scratch folders of the results that a record lists: `.teatime.partial-NAME.` of `NAME.run.json`.
/// The rest of a name has no dot.
pub(crate) fn scratch_prefix(record: &str) -> String {
    format!("{SCRATCH}{}", record.strip_suffix(RECORD).unwrap_or(record))
}

/// The scratch folders of these results, of runs that go on or have ended.
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

/// # Errors
/// [`Failure::Error`] where another run writes the same results.
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

/// Holds a scratch folder until the file is dropped or the process ends, however it ends. Where there are no locks, none.
pub(crate) fn lock(folder: &Path) -> Option<File> {
    let file = File::open(folder).ok().filter(|_| cfg!(unix))?;
    file.try_lock().is_ok().then_some(file)
}

/// The time that other runs may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until no other run begins or ends in the folder, and has them wait until the file is dropped. Where there are no locks, none.
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

/// True where the path still names the open folder: another run may have removed one that it made.
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
