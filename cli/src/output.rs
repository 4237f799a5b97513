//! The folder of results: all of them, or nothing that looks whole.

use std::{
    fs,
    io::{BufWriter, ErrorKind, Write},
    path::{Path, PathBuf},
};

use teatime::genotype::Pca;

use crate::{failure::Failure, stores::Stores, text};

/// The record of a run, and what says that the other files are whole: written last, removed first.
pub(crate) const RECORD: &str = "run.json";
pub(crate) const PLOT: &str = "pca.svg";
pub(crate) const LOADINGS: &str = "loadings.tsv.gz";
const EIGENVEC: &str = "pca.eigenvec";
const EIGENVAL: &str = "pca.eigenval";
const SCORES: &str = "scores.tsv";
const EIGENVALUES: &str = "eigenvalues.tsv";

/// Everything that a run may write.
pub(crate) const RESULTS: [&str; 7] = [RECORD, EIGENVEC, EIGENVAL, SCORES, EIGENVALUES, LOADINGS, PLOT];

/// A folder that is filled under another name, and gets its own in [`commit`](Self::commit).
#[derive(Debug)]
pub(crate) struct Output {
    target: PathBuf,
    scratch: PathBuf,
    /// Folders made for the target to be in, outermost first.
    made: Vec<PathBuf>,
    /// What may be written, and replaced in a target that exists.
    names: Vec<String>,
    exists: bool,
}

impl Output {
    /// Makes the scratch folder, so that a place that cannot be written is known before any work.
    ///
    /// `names` are the files and folders that the command writes; a target that holds one is refused unless
    /// `overwrite`, one with the record of another command always, since its other files would stay without it.
    pub(crate) fn prepare(
        target: &Path,
        command: &str,
        names: &[&str],
        overwrite: bool,
    ) -> Result<Self, Failure> {
        let io = Failure::io(target);
        let exists = match fs::metadata(target) {
            Ok(found) if found.is_dir() => true,
            Ok(_) => return Err(Failure::Error(format!("{}: is a file, not a folder", target.display()))),
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(io(error)),
        };
        // Results among an array's chunks would damage a store.
        let zarr = [".zgroup", ".zarray", "zarr.json"];
        if let Some(name) = zarr.iter().find(|name| target.join(name).exists()) {
            let why = format!("is a Zarr store (it holds {name}), not a folder for results");
            return Err(Failure::Error(format!("{}: {why}", target.display())));
        }
        if let Some(other) = made_by(target).filter(|other| other != command) {
            let why = format!(
                "holds results of `teatime {other}`; --overwrite of `teatime {command}` replaces only its own"
            );
            return Err(Failure::Error(format!("{}: {why}; choose another folder", target.display())));
        }
        let held = names.iter().find(|name| target.join(name).symlink_metadata().is_ok());
        if let (Some(name), false) = (held, overwrite) {
            let why = format!("holds results ({name}); --overwrite replaces them");
            return Err(Failure::Error(format!("{}: {why}", target.display())));
        }
        // In an existing folder, since its parent may be on another file system or not writable.
        let (parent, stem) = if exists {
            (target, "teatime".into())
        } else {
            let name = target.file_name().ok_or_else(|| io(ErrorKind::InvalidInput.into()))?;
            let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
            (parent.unwrap_or(Path::new(".")), name.to_string_lossy())
        };
        let made = make_parents(parent)?;
        let scratch = parent.join(format!(".{stem}.partial-{}", std::process::id()));
        let names = names.iter().map(ToString::to_string).collect();
        let output = Self { target: target.to_path_buf(), scratch, made, names, exists };
        fs::create_dir(&output.scratch).map_err(Failure::io(&output.scratch))?;
        Ok(output)
    }

    /// Where to write a file for now.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// Where the results will be.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Names of what is written, the record among them.
    pub(crate) fn files(&self) -> Vec<String> {
        let there = |name: &&String| *name == RECORD || self.path(name).exists();
        self.names.iter().filter(there).cloned().collect()
    }

    /// Writes a file of lines.
    pub(crate) fn table(
        &self,
        name: &str,
        lines: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<(), Failure> {
        let path = self.path(name);
        let mut file = BufWriter::new(fs::File::create(&path).map_err(Failure::io(&path))?);
        lines(&mut file).and_then(|()| file.flush()).map_err(Failure::io(&path))
    }

    /// Gives the results their place.
    pub(crate) fn commit(mut self) -> Result<(), Failure> {
        if self.exists {
            self.move_in()?;
        } else {
            fs::rename(&self.scratch, &self.target).map_err(Failure::io(&self.target))?;
        }
        self.made.clear();
        Ok(())
    }

    fn move_in(&self) -> Result<(), Failure> {
        for name in &self.names {
            let path = self.target.join(name);
            let gone = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            match gone {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(Failure::io(&path)(error)),
                _ => {}
            }
        }
        for name in self.names.iter().rev() {
            let (from, to) = (self.path(name), self.target.join(name));
            match fs::rename(&from, &to) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(Failure::io(&to)(error)),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // After a commit there is nothing; otherwise there is nobody to tell that it failed.
        drop(fs::remove_dir_all(&self.scratch));
        for folder in self.made.iter().rev() {
            drop(fs::remove_dir(folder));
        }
    }
}

/// The command whose record the folder holds.
pub(crate) fn made_by(folder: &Path) -> Option<String> {
    let record = fs::read(folder.join(RECORD)).ok()?;
    let record: serde_json::Value = serde_json::from_slice(&record).ok()?;
    record["command"].as_str().map(str::to_owned)
}

/// Makes the folders that are not there; those it made, outermost first.
fn make_parents(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let missing = folder.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
    let made: Vec<PathBuf> = missing.map(Path::to_path_buf).collect::<Vec<_>>().into_iter().rev().collect();
    fs::create_dir_all(folder).map_err(Failure::io(folder))?;
    Ok(made)
}

/// Writes the tables of every run.
pub(crate) fn tables(output: &Output, pca: &Pca, stores: &Stores) -> Result<(), Failure> {
    let k = pca.singular_values.len();
    output.table(EIGENVEC, |file| {
        writeln!(file, "{}", names(&stores.sample_header(["#IID", "#FID\tIID"]), k))?;
        for (id, row) in stores.sample_cells().zip(pca.vectors.data().chunks(k)) {
            writeln!(file, "{id}{}", joined(row, |v| text::general(v, 6)))?;
        }
        Ok(())
    })?;
    output.table(EIGENVAL, |file| {
        pca.eigenvalues().iter().try_for_each(|value| writeln!(file, "{}", text::general(*value, 6)))
    })?;
    let scores = pca.scores();
    output.table(SCORES, |file| {
        writeln!(file, "{}", names(&stores.sample_header(["sample", "family\tsample"]), k))?;
        for (id, row) in stores.sample_cells().zip(scores.data().chunks(k)) {
            writeln!(file, "{id}{}", joined(row, text::exact))?;
        }
        Ok(())
    })?;
    output.table(EIGENVALUES, |file| {
        let names = "singular_value\texplained_variance\texplained_variance_ratio\tresidual\tconverged";
        writeln!(file, "component\t{names}")?;
        let (variance, ratio) = (pca.explained_variance(), pca.explained_variance_ratio());
        for i in 0..k {
            let row = [pca.singular_values[i], variance[i], ratio[i], pca.residuals[i]];
            writeln!(file, "{}{}\t{}", i + 1, joined(&row, text::exact), pca.converged[i])?;
        }
        Ok(())
    })
}

/// The line of names above a component's columns.
pub(crate) fn names(first: &str, components: usize) -> String {
    (1..=components).fold(first.to_owned(), |line, i| format!("{line}\tPC{i}"))
}

/// Each number after a tab.
pub(crate) fn joined(row: &[f64], format: impl Fn(f64) -> String) -> String {
    row.iter().fold(String::new(), |line, value| line + "\t" + &format(*value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_output_leaves_nothing() {
        let root = std::env::temp_dir().join(format!("teatime-output-{}", std::process::id()));
        let target = root.join("a/b/out");
        let output = Output::prepare(&target, "pca", &RESULTS, false).unwrap();
        output.table(SCORES, |file| writeln!(file, "x")).unwrap();
        assert!(!target.exists() && output.path(SCORES).exists());
        drop(output);
        assert!(!root.exists());

        let output = Output::prepare(&target, "pca", &RESULTS, false).unwrap();
        output.table(SCORES, |file| writeln!(file, "x")).unwrap();
        output.commit().unwrap();
        assert_eq!(fs::read_dir(root.join("a/b")).unwrap().count(), 1);
        fs::write(target.join("mine.txt"), "mine").unwrap();
        assert!(Output::prepare(&target, "pca", &RESULTS, false).is_err());
        let output = Output::prepare(&target, "pca", &RESULTS, true).unwrap();
        output.table(RECORD, |file| writeln!(file, "y")).unwrap();
        output.commit().unwrap();
        let mut left: Vec<_> = fs::read_dir(&target).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["mine.txt", RECORD], "stale results go, other files stay");
        fs::remove_dir_all(&root).unwrap();
    }
}
