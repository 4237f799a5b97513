//! Moving files into place, and flushing them to the disk.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use crate::failure::Failure;

/// Renamed files and folders, which can be renamed back.
#[derive(Debug, Default)]
pub(crate) struct Moves(Vec<(PathBuf, PathBuf)>);

impl Moves {
    /// Renames `from` to `to`. It is an error if `to` exists.
    pub(crate) fn make(&mut self, from: PathBuf, to: PathBuf) -> Result<(), Failure> {
        #[cfg(test)]
        super::tests::may_die(self.0.len());
        let free = match to.symlink_metadata() {
            Ok(_) => Err(ErrorKind::AlreadyExists.into()),
            Err(_) => Ok(()),
        };
        free.and_then(|()| fs::rename(&from, &to)).map_err(Failure::io(&to))?;
        self.0.push((from, to));
        Ok(())
    }

    /// Undoes all renames, the last one first.
    pub(crate) fn undo(self) -> io::Result<()> {
        self.0.iter().rev().try_for_each(|(from, to)| fs::rename(to, from))
    }
}

/// Flushes the contents of a folder to the disk, but not the names of its entries, which will be moved.
pub(crate) fn sync(folder: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(folder).map_err(Failure::io(folder))? {
        let path = entry.map_err(Failure::io(folder))?.path();
        if path.is_dir() {
            sync(&path)?;
            sync_folder(&path)?;
        } else {
            let file = OpenOptions::new().write(true).open(&path);
            file.and_then(|file| file.sync_all()).map_err(Failure::io(&path))?;
        }
    }
    Ok(())
}

/// Flushes the names in a folder to the disk, if the system supports that.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), Failure> {
    if !cfg!(unix) {
        return Ok(());
    }
    match File::open(folder).and_then(|file| file.sync_all()) {
        Err(error) if !matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
            Err(Failure::io(folder)(error))
        }
        _ => Ok(()),
    }
}
