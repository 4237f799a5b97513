//! The folder of results, which holds either all results or none that look complete.

mod place;
mod runs;
pub(crate) mod target;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    iter,
    path::{self, Path, PathBuf},
};

use serde_json::Value;
use teatime::{
    Cancel,
    linalg::Matrix,
    plain,
    store::{Folder, read_json},
};
use tempfile::TempDir;

pub(crate) use self::runs::RECORD;
use self::{
    place::Moves,
    runs::{alone, lock, refuse_second, scratch_prefix, scratches},
};
use crate::{failure::Failure, note, say, text};

/// The subfolder of the scratch folder that keeps replaced results until the new ones are in place.
const ASIDE: &str = "replaced";

/// A folder of results. Files are written to a scratch folder within it and moved to their final names by [`commit`](Self::commit).
///
/// The scratch folder is locked until then if the file system has locks, so that two runs do not mix the files of one record. Runs with other
/// records may write to the same folder.
#[derive(Debug)]
pub(crate) struct Output {
    /// The command that writes the results.
    pub(crate) command: String,
    /// The folder that the results are moved to.
    pub(crate) target: PathBuf,
    /// The names that the run may write, starting with the record's.
    names: Vec<String>,
    /// Results of an earlier run, which are replaced.
    earlier: Vec<String>,
    /// The name of a result that is written at its final path.
    in_place: Option<String>,
    /// A warning about scratch folders that other runs left in the folder.
    pub(crate) left: Option<String>,
    // The fields are dropped in this order.
    scratch: TempDir,
    made: Made,
    /// The lock of the scratch folder, held until the end.
    _lock: Option<File>,
}

impl Output {
    /// Creates the folder and the scratch folder in it, so that a path that cannot be written fails before any work.
    ///
    /// `names` are the files and folders that the command writes, its record first. An existing file of such a name is an error unless
    /// `overwrite` is set, the folder's record is of this command, and that record lists the file: other files belong to the user. `others` are
    /// not written, but removed if that record lists them.
    pub(crate) fn begin(
        target: &Path,
        command: &str,
        names: &[&str],
        others: &[&str],
        overwrite: bool,
    ) -> Result<Self, Failure> {
        if fs::metadata(target).is_ok_and(|metadata| !metadata.is_dir()) {
            return Err(Failure::Error(format!("{}: is a file, not a folder", target.display())));
        }
        outside_stores(target)?;
        let mut made = Made::folders(target)?;
        // A folder that another run uses by now is for that run to remove.
        let _alone = alone(target).inspect_err(|_| made.keep())?;
        refuse_second(target, names[0]).inspect_err(|_| made.keep())?;
        let earlier = earlier(target, command, [names, others], overwrite)?;
        let left = left(target, names[0]);
        let scratch = tempfile::Builder::new().prefix(&scratch_prefix(names[0])).tempdir_in(target);
        let scratch = scratch.map_err(Failure::io(target))?;
        Ok(Self {
            command: command.to_owned(),
            target: target.to_path_buf(),
            names: names.iter().chain(others).map(ToString::to_string).collect(),
            earlier,
            in_place: None,
            left,
            _lock: lock(scratch.path()),
            scratch,
            made,
        })
    }

    /// Records that a result is written directly at its final path. If the run resumes it, it was not among the names to begin with.
    pub(crate) fn written_in_place(&mut self, name: &str) {
        if self.names.iter().all(|other| other != name) {
            self.names.push(name.to_owned());
        }
        self.in_place = Some(name.to_owned());
    }

    /// Returns the path in the scratch folder to write a file to.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Returns the file name of the run's record, such as run.json.
    fn record(&self) -> &str {
        &self.names[0]
    }

    /// Returns the names of the files written so far, including the record.
    pub(crate) fn files(&self) -> Vec<String> {
        let there = |name: &&String| {
            *name == self.record() || self.in_place.as_ref() == Some(*name) || self.path(name).exists()
        };
        self.names.iter().filter(there).cloned().collect()
    }

    pub(crate) fn put(
        &self,
        name: &str,
        lines: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<(), Failure> {
        let path = self.path(name);
        let mut file = BufWriter::new(File::create(&path).map_err(Failure::io(&path))?);
        lines(&mut file).and_then(|()| file.flush()).map_err(Failure::io(&path))
    }

    /// Writes the line `header`, and for each row of `numbers` its name and its values: `text` formats a value, given its column.
    pub(crate) fn numbers(
        &self,
        name: &str,
        header: &str,
        names: impl Iterator<Item = String>,
        numbers: &Matrix,
        text: impl Fn(usize, f64) -> String,
    ) -> Result<(), Failure> {
        self.put(name, |file| numbers.write_table(file, header, names, text))
    }

    pub(crate) fn list(&self, name: &str, names: &[String]) -> Result<(), Failure> {
        self.put(name, |file| names.iter().try_for_each(|name| writeln!(file, "{name}")))
    }

    /// Ends a run: writes its record, prints the warnings, moves the results into place, and prints the summary, or the record if there is none.
    pub(crate) fn commit(
        self,
        record: &Value,
        warnings: &[String],
        summary: Option<String>,
        cancel: &Cancel,
    ) -> Result<(), Failure> {
        let json = text::lines(&format!("{record:#}")) + "\n";
        if let Err(failure) = self.put(self.record(), |file| file.write_all(json.as_bytes())) {
            return Err(self.keep(failure));
        }
        cancel.check()?;
        for warning in warnings {
            note(&format!("warning: {}", plain(warning)));
        }
        self.move_all()?;
        say(&summary.map_or(json, |summary| text::lines(&summary)))
    }

    /// Returns the failure of a run that has results. The results stay in the scratch folder, whose path is added to the message, unless the run
    /// was cancelled.
    pub(crate) fn keep(mut self, failure: Failure) -> Failure {
        let Failure::Error(why) = failure else { return failure };
        self.scratch.disable_cleanup(true);
        Failure::Error(format!("{why}; the results so far are in {}", self.scratch.path().display()))
    }

    /// Moves the results, including the record, to their final names. If that fails, earlier results stay, and the new ones stay in the scratch
    /// folder.
    fn move_all(mut self) -> Result<(), Failure> {
        let mut moves = Moves::default();
        let Err(failure) = self.move_in(&mut moves) else {
            self.made.keep();
            return Ok(());
        };
        let undone = moves.undo();
        Err(self.keep_both(failure, undone.is_ok()))
    }

    /// Does the same as [`keep`](Self::keep), and also names the subfolder of the earlier results unless they are `back` in place.
    fn keep_both(self, failure: Failure, back: bool) -> Failure {
        let aside = self.path(ASIDE);
        // The folder is removed only if it is empty.
        drop(fs::remove_dir(&aside));
        match self.keep(failure) {
            Failure::Error(why) if !back => {
                Failure::Error(format!("{why}, earlier ones in {}", aside.display()))
            }
            failure => failure,
        }
    }

    fn move_in(&self, moves: &mut Moves) -> Result<(), Failure> {
        place::sync(self.scratch.path())?;
        let aside = self.path(ASIDE);
        fs::create_dir(&aside).map_err(Failure::io(&aside))?;
        // The record is removed first and written last: if it exists, all files do.
        let record = self.record();
        let others = || self.names.iter().map(String::as_str).filter(|name| *name != record);
        let there = |name: &&str| self.target.join(name).symlink_metadata().is_ok();
        let gives_way = |name: &&str| self.earlier.iter().any(|earlier| earlier == name) && there(name);
        for name in iter::once(record).chain(others()).filter(gives_way) {
            moves.make(self.target.join(name), aside.join(name))?;
        }
        for name in others().filter(|name| self.path(name).exists()) {
            moves.make(self.path(name), self.target.join(name))?;
        }
        place::sync_folder(&self.target)?;
        moves.make(self.path(record), self.target.join(record))?;
        place::sync_folder(&self.target)?;
        self.made.sync();
        Ok(())
    }
}

/// Folders that the run created, outermost first. Unless kept, they are removed again if they are empty.
#[derive(Debug)]
struct Made(Vec<PathBuf>);

impl Made {
    /// Creates the folder and its missing parent folders.
    fn folders(folder: &Path) -> Result<Self, Failure> {
        let missing = folder.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
        let missing: Vec<_> = missing.collect();
        let mut made = Self(Vec::new());
        for folder in missing.into_iter().rev() {
            match fs::create_dir(folder) {
                Ok(()) => made.0.push(folder.to_path_buf()),
                // Another run created it meanwhile.
                Err(_) if folder.is_dir() => {}
                Err(error) => return Err(Failure::io(folder)(error)),
            }
        }
        Ok(made)
    }

    fn keep(&mut self) {
        self.0.clear();
    }

    /// Flushes the names of the created folders to the disk, if their parents can be read; errors are ignored.
    fn sync(&self) {
        let above = self.0.iter().filter_map(|folder| folder.parent());
        let here = |path: &Path| path.as_os_str().is_empty();
        above.for_each(|path| drop(place::sync_folder(if here(path) { Path::new(".") } else { path })));
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            // No other run may start there meanwhile. Errors are ignored: nobody could handle them.
            let _alone = alone(folder);
            drop(fs::remove_dir(folder));
        }
    }
}

/// Refuses a folder inside a Zarr store: results among an array's chunks would damage it.
fn outside_stores(target: &Path) -> Result<(), Failure> {
    let path = path::absolute(target).map_err(Failure::io(target))?;
    let there = path.ancestors().find_map(|path| path.canonicalize().ok());
    for folder in there.iter().flat_map(|path| path.ancestors()) {
        let zarr = [".zgroup", ".zarray", "zarr.json"];
        if let Some(name) = zarr.iter().find(|name| folder.join(name).exists()) {
            let why = format!("is a Zarr store (it holds {name}), which results do not go into");
            return Err(Failure::Error(format!("{}: {} {why}", target.display(), folder.display())));
        }
    }
    Ok(())
}

/// Returns the results in the folder that this run may replace: those that the record of an earlier run of the command lists.
fn earlier(
    target: &Path,
    command: &str,
    [names, others]: [&[&str]; 2],
    overwrite: bool,
) -> Result<Vec<String>, Failure> {
    let refuse = |why: String| Err(Failure::Error(format!("{}: {why}", target.display())));
    // The record of a single result file is named after the file.
    let place = if names[0] == RECORD { "folder" } else { "name" };
    let record = listed(&target.join(names[0]));
    if let Some((other, _)) = record.as_ref().filter(|(other, _)| other != command) {
        return refuse(format!(
            "holds results of `teatime {other}` ({}), which `teatime {command}` does not replace; choose another {place}",
            names[0]
        ));
    }
    let mut files = record.map(|(_, files)| files).unwrap_or_default();
    files.retain(|name| names.iter().chain(others).any(|other| other == name));
    let is_ours = |name: &&str| files.iter().any(|file| file == name);
    let held = names.iter().copied().filter(|name| target.join(name).symlink_metadata().is_ok());
    let (ours, strangers): (Vec<&str>, Vec<&str>) = held.partition(is_ours);
    if let Some(name) = strangers.first() {
        let left = left(target, names[0]).map_or_else(String::new, |left| format!(" ({left})"));
        return refuse(format!(
            "holds {name}, which no {} of `teatime {command}` lists there; choose another {place}, or move it \
             away{left}",
            names[0]
        ));
    }
    match ours.first() {
        Some(name) if !overwrite => refuse(format!("holds results ({name}); --overwrite replaces them")),
        _ => Ok(files),
    }
}

/// Returns a warning of scratch folders that were left by runs that were killed or could not move their results. They are not removed: if locks
/// do not work across machines, a run may still be using them.
fn left(target: &Path, record: &str) -> Option<String> {
    let names = scratches(target, record);
    if names.is_empty() {
        return None;
    }
    let mut left = format!(
        "{}: {} left by a run that was killed or failed; to be removed, unless another machine writes there",
        target.display(),
        text::few(&names)
    );
    // If the record exists, its results are complete.
    let aside = names.iter().map(|name| target.join(name).join(ASIDE)).find(|aside| aside.exists());
    if let (Some(aside), false) = (aside, target.join(record).exists()) {
        let aside = aside.display();
        left += &format!("; moved back over the files here, those of {aside} are the earlier results");
    }
    Some(left)
}

/// Returns the command whose record the folder holds.
pub(crate) fn made_by(folder: &Path) -> Option<String> {
    listed(&folder.join(RECORD)).map(|(command, _)| command)
}

/// Returns the command and the files that the record of an earlier run names, if it exists and is a file below the size limit of metadata.
fn listed(record: &Path) -> Option<(String, Vec<String>)> {
    let folder = Folder::new(record.parent()?);
    let record = read_json(&folder, record.file_name()?.to_str()?).ok()??;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Some((text(&record["command"])?, record["files"].as_array()?.iter().map(text).collect::<Option<_>>()?))
}
