//! The folder of results: all of them, or nothing that looks whole.

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

use serde::Deserialize;
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

/// Within it, where the results that are replaced wait for the new ones to be in place.
const ASIDE: &str = "replaced";

/// A folder of results, filled under names of their own until [`commit`](Self::commit).
///
/// The scratch folder is locked meanwhile, where its file system has locks, so that two runs do not mix the files of one record; runs
/// with other records may write to the same folder.
#[derive(Debug)]
pub(crate) struct Output {
    /// The command that the results are of.
    pub(crate) command: String,
    /// The folder that the results are moved to.
    pub(crate) target: PathBuf,
    /// The names that may be written, the record's first.
    names: Vec<String>,
    /// Results of an earlier run, which give way.
    earlier: Vec<String>,
    /// A result that is written where it stays.
    in_place: Option<String>,
    /// A warning of what other runs left there.
    pub(crate) left: Option<String>,
    // In the order in which they are dropped.
    scratch: TempDir,
    made: Made,
    /// The lock of the scratch folder.
    _lock: Option<File>,
}

impl Output {
    /// Makes the folder and the scratch folder in it, so that a place that cannot be written is known before any work.
    ///
    /// `names` are the files and folders that the command writes, its record first. A target that holds one is refused unless `overwrite`,
    /// and unless the record in it is of this command and lists it: whatever else has that name is somebody's own.
    /// `others` are not written, and give way where that record lists them.
    pub(crate) fn prepare(
        target: &Path,
        command: &str,
        names: &[&str],
        others: &[&str],
        overwrite: bool,
    ) -> Result<Self, Failure> {
        if fs::metadata(target).is_ok_and(|found| !found.is_dir()) {
            return Err(Failure::Error(format!("{}: is a file, not a folder", target.display())));
        }
        outside_stores(target)?;
        let mut made = Made::folders(target)?;
        // A folder that another run has by now is that run's to remove.
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

    /// Does as [`prepare`](Self::prepare), for a run that goes on with the result `name`, which may be there; then so may its record.
    pub(crate) fn resume(
        target: &Path,
        command: &str,
        [names, others]: [&[&str]; 2],
        name: &str,
    ) -> Result<Self, Failure> {
        let is_listed = Earlier::read(&target.join(names[0]))
            .is_some_and(|record| record.command == command && record.files.iter().any(|file| file == name));
        let begun: Vec<&str> = names.iter().copied().filter(|other| *other != name).collect();
        let mut output = Self::prepare(target, command, &begun, others, is_listed)?;
        output.names.push(name.to_owned());
        Ok(output)
    }

    /// Says that a result is written where it stays, not under another name first.
    pub(crate) fn written_in_place(&mut self, name: &str) {
        self.in_place = Some(name.to_owned());
    }

    /// The path to write a file to for now.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The file name of the record of the run, such as run.json.
    fn record(&self) -> &str {
        &self.names[0]
    }

    /// Names of what is written, the record among them.
    pub(crate) fn files(&self) -> Vec<String> {
        let there = |name: &&String| {
            *name == self.record() || self.in_place.as_ref() == Some(*name) || self.path(name).exists()
        };
        self.names.iter().filter(there).cloned().collect()
    }

    /// Writes a file of lines.
    pub(crate) fn table(
        &self,
        name: &str,
        lines: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<(), Failure> {
        let path = self.path(name);
        let mut file = BufWriter::new(File::create(&path).map_err(Failure::io(&path))?);
        lines(&mut file).and_then(|()| file.flush()).map_err(Failure::io(&path))
    }

    /// Writes a line of `header`, and one for each row of the numbers: the row's name, then each number as `text` writes it, which is given the
    /// number's column too.
    pub(crate) fn numbers(
        &self,
        name: &str,
        header: &str,
        names: impl Iterator<Item = String>,
        numbers: &Matrix,
        text: impl Fn(usize, f64) -> String,
    ) -> Result<(), Failure> {
        self.table(name, |file| {
            writeln!(file, "{header}")?;
            (0..numbers.rows()).zip(names).try_for_each(|(row, name)| {
                write!(file, "{name}")?;
                let mut row = numbers.row(row).iter().enumerate();
                row.try_for_each(|(column, x)| write!(file, "\t{}", text(column, *x)))?;
                writeln!(file)
            })
        })
    }

    /// Writes a line for each name.
    pub(crate) fn list(&self, name: &str, names: &[String]) -> Result<(), Failure> {
        self.table(name, |file| names.iter().try_for_each(|name| writeln!(file, "{name}")))
    }

    /// Ends a run: writes its record, tells what was odd, gives the results their place, and prints the summary, or else the
    /// record.
    pub(crate) fn finish(
        self,
        record: &Value,
        warnings: &[String],
        summary: Option<String>,
        cancel: &Cancel,
    ) -> Result<(), Failure> {
        let json = text::lines(&format!("{record:#}")) + "\n";
        if let Err(failure) = self.table(self.record(), |file| file.write_all(json.as_bytes())) {
            return Err(self.keep(failure));
        }
        cancel.check()?;
        for warning in warnings {
            note(&format!("warning: {}", plain(warning)));
        }
        self.commit()?;
        say(&summary.map_or(json, |summary| text::lines(&summary)))
    }

    /// The failure of a run that has results; these stay in the scratch folder, whose name it gets, unless the run was asked to
    /// stop.
    pub(crate) fn keep(mut self, failure: Failure) -> Failure {
        let Failure::Error(why) = failure else { return failure };
        self.scratch.disable_cleanup(true);
        Failure::Error(format!("{why}; the results so far are in {}", self.scratch.path().display()))
    }

    /// Gives the results, of which the record is one, their place on the disk. Where that fails, earlier results stay, and so
    /// do the new ones, in the scratch folder.
    fn commit(mut self) -> Result<(), Failure> {
        let mut moves = Moves::default();
        let Err(failure) = self.move_in(&mut moves) else {
            self.made.keep();
            return Ok(());
        };
        let undone = moves.undo();
        Err(self.keep_both(failure, undone.is_ok()))
    }

    /// Does as [`keep`](Self::keep), and names earlier results that may wait in the scratch folder too, those not `back` in their place.
    fn keep_both(self, failure: Failure, back: bool) -> Failure {
        let aside = self.path(ASIDE);
        // Not removed where it holds some.
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
        // The record is the first to go and the last to come: where it is, all files are there.
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

/// Folders that were made for results, outermost first, and go again where they are empty and not kept.
#[derive(Debug)]
struct Made(Vec<PathBuf>);

impl Made {
    /// Makes the folder and those above it, where they are not there.
    fn folders(folder: &Path) -> Result<Self, Failure> {
        let missing = folder.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
        let missing: Vec<_> = missing.collect();
        let mut made = Self(Vec::new());
        for folder in missing.into_iter().rev() {
            match fs::create_dir(folder) {
                Ok(()) => made.0.push(folder.to_path_buf()),
                // By another run, meanwhile.
                Err(_) if folder.is_dir() => {}
                Err(error) => return Err(Failure::io(folder)(error)),
            }
        }
        Ok(made)
    }

    fn keep(&mut self) {
        self.0.clear();
    }

    /// Has their names written to the disk, where the folders above may be read; the results are there in any case.
    fn sync(&self) {
        let above = self.0.iter().filter_map(|folder| folder.parent());
        let here = |path: &Path| path.as_os_str().is_empty();
        above.for_each(|path| drop(place::sync_folder(if here(path) { Path::new(".") } else { path })));
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        for folder in self.0.iter().rev() {
            // Not while another run begins there. There is nobody to tell that it failed.
            let _alone = alone(folder);
            drop(fs::remove_dir(folder));
        }
    }
}

/// Refuses a folder in a Zarr store: results among an array's chunks would damage it.
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

/// Results in the folder that a run of this command may replace: those that the record of an earlier one lists.
fn earlier(
    target: &Path,
    command: &str,
    [names, others]: [&[&str]; 2],
    overwrite: bool,
) -> Result<Vec<String>, Failure> {
    let refuse = |why: String| Err(Failure::Error(format!("{}: {why}", target.display())));
    // The record of a single file has the file's name.
    let place = if names[0] == RECORD { "folder" } else { "name" };
    let record = Earlier::read(&target.join(names[0]));
    if let Some(Earlier { command: other, .. }) = record.as_ref().filter(|record| record.command != command) {
        return refuse(format!(
            "holds results of `teatime {other}` ({}), which `teatime {command}` does not replace; choose another {place}",
            names[0]
        ));
    }
    let mut files = record.map(|record| record.files).unwrap_or_default();
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

/// Warns of what runs left in the folder that were killed, or could not put these results into place. It is nobody's to remove:
/// where not all machines see the lock, a run may be at work.
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
    // The results beside a record are whole.
    let aside = names.iter().map(|name| target.join(name).join(ASIDE)).find(|aside| aside.exists());
    if let (Some(aside), false) = (aside, target.join(record).exists()) {
        left += &format!(
            "; moved back over the files here, those of {} are the earlier results",
            aside.display()
        );
    }
    Some(left)
}

/// The command whose record the folder holds.
pub(crate) fn made_by(folder: &Path) -> Option<String> {
    Earlier::read(&folder.join(RECORD)).map(|record| record.command)
}

/// The fields of the record of an earlier run that are read.
#[derive(Debug, Deserialize)]
struct Earlier {
    command: String,
    files: Vec<String>,
}

impl Earlier {
    /// The record's text, if there is one: a file, of a size that is bounded.
    fn read(record: &Path) -> Option<Self> {
        let folder = Folder::new(record.parent()?);
        serde_json::from_value(read_json(&folder, record.file_name()?.to_str()?).ok()??).ok()
    }
}
