//! Images that are written.

use std::{io::ErrorKind, path::Path, sync::Arc};

use teatime::{
    Device, Error, MissingChunk, Result, Run, Status,
    store::{ArrayWriter, Folder, Node, Storage, WritableStorage, ZarrArray, is_free, join, write_group},
};

use crate::{
    pyramid::reduce,
    spec::{ImageSpec, LevelSpec},
};

/// The array of level 0.
const BASE: &str = "0";

/// Writes an OME-Zarr image: level 0 by [`base`](Self::base), all else by [`finish`](Self::finish).
///
/// The metadata that make the folder an image are written last, so that an image that is not complete looks like none. A tile
/// appears whole or not at all; where the [`ImageSpec`]'s array has a job, another process goes on with
/// [`resume`](Self::resume), to the same bytes. Only one process may write an image at a time.
#[derive(Debug)]
pub struct MultiscaleWriter {
    storage: Arc<dyn WritableStorage>,
    path: String,
    spec: ImageSpec,
    levels: Vec<LevelSpec>,
}

impl MultiscaleWriter {
    /// Starts an image whose folder is `path`, which must not exist or be empty. Its files are on disk before they have their names.
    ///
    /// # Errors
    /// - [`Error::Argument`]: a `spec` that does not fit itself, or that OME-Zarr does not allow.
    /// - [`Error::Store`]: something is there already.
    /// - [`Error::Io`]: nothing can be written.
    pub fn create(path: impl AsRef<Path>, spec: ImageSpec) -> Result<Self> {
        let path = path.as_ref();
        // The description of the image is checked before what is there.
        spec.check()?;
        match std::fs::read_dir(path).map(|mut entries| entries.next().is_some()) {
            Ok(true) => return Err(Error::store(path.display(), "exists already")),
            Err(source) if source.kind() != ErrorKind::NotFound => {
                return Err(Error::io(path.display(), source));
            }
            _ => {}
        }
        Self::create_in(Arc::new(Folder::new(path).durable()), "", spec)
    }

    /// Starts an image at `path` within a store that is anywhere, as [`create`](Self::create) does; an empty path means the store itself.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_in(storage: Arc<dyn WritableStorage>, path: &str, spec: ImageSpec) -> Result<Self> {
        let writer = Self::new(storage, path, spec)?;
        for part in [path.to_owned(), join(path, BASE)] {
            if Node::at(&*writer.storage, &part)? != Node::Absent {
                return Err(Error::store(writer.storage.place(&part), "exists already"));
            }
        }
        writer.base()?;
        Ok(writer)
    }

    /// Goes on with an image that [`create`](Self::create) started with the same `spec`, or starts it.
    ///
    /// # Errors
    /// As [`create`](Self::create), and
    /// - [`Error::Argument`]: the array of `spec` names no job.
    /// - [`Error::Store`]: what is there is no image of ours, or of another job or `spec`.
    pub fn resume(path: impl AsRef<Path>, spec: ImageSpec) -> Result<Self> {
        let path = path.as_ref();
        spec.check()?;
        is_free(path, BASE)?;
        Self::resume_in(Arc::new(Folder::new(path).durable()), "", spec)
    }

    /// Goes on with an image at `path` within a store that is anywhere, as [`resume`](Self::resume) does; an empty path means the store
    /// itself.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    pub fn resume_in(storage: Arc<dyn WritableStorage>, path: &str, spec: ImageSpec) -> Result<Self> {
        if spec.array.job.is_none() {
            return Err(Error::argument("resume", "spec", "its array names no job"));
        }
        let writer = Self::new(storage, path, spec)?;
        // A group comes last: with one, but without level 0, it is not ours.
        if Node::at(&*writer.storage, path)? != Node::Absent
            && Node::at(&*writer.storage, &join(path, BASE))? == Node::Absent
        {
            return Err(Error::store(
                writer.storage.place(path),
                format_args!("is there, and has no array `{BASE}`"),
            ));
        }
        writer.base()?;
        // It is ours, and a process may have been killed while it wrote the group's metadata.
        let swept = writer.storage.sweep(path);
        swept.map_err(|source| Error::io(writer.storage.place(path), source))?;
        Ok(writer)
    }

    fn new(storage: Arc<dyn WritableStorage>, path: &str, spec: ImageSpec) -> Result<Self> {
        spec.check()?;
        Ok(Self { storage, path: path.to_owned(), levels: spec.levels(), spec })
    }

    /// The shapes of all levels, the largest first.
    pub fn shapes(&self) -> impl Iterator<Item = &[u64]> {
        self.levels.iter().map(|level| &*level.array.shape)
    }

    /// The writer of level 0. Whoever has written the tiles may finish it, or drop it. Each call looks for the tiles that are
    /// written.
    ///
    /// # Errors
    /// As [`ArrayWriter::resume`].
    pub fn base(&self) -> Result<ArrayWriter> {
        self.array(0)
    }

    /// Writes the smaller levels, and then the metadata of the image. Waits. Level 0 has to have all its tiles.
    ///
    /// Means are made on the host, by the threads of `device`. Integers are rounded once a level, to the nearest and the even one of two; those of
    /// floating types are added up in f64. Progress is a pass a level, in rows of its planes.
    ///
    /// # Errors
    /// - [`Error::Chunk`]: a tile of level 0 was not written, or cannot be read.
    /// - [`Error::Budget`]: `run` allows less memory than one tile takes.
    /// - [`Error::Io`]: something cannot be written. [`Error::Cancelled`].
    ///
    /// Everything that was written stays.
    ///
    /// # Cost
    /// Each level is read once; if the next one is partly there, only what its missing tiles are made of. A tile is a shard, or a chunk. On
    /// the host for each tile that is made: three times the decoded chunks that it is made of (4, or 8 where stacks are halved), and up to
    /// three tiles. Several are made at once where `run` has memory for it.
    pub fn finish(self, device: &Device, run: &Run) -> Result<()> {
        self.base()?.finish()?;
        let passes = u32::try_from(self.levels.len() - 1).unwrap_or(u32::MAX);
        for level in 1..self.levels.len() {
            run.cancel.check()?;
            let storage: Arc<dyn Storage> = self.storage.clone();
            let before = join(&self.path, &self.levels[level - 1].level.path);
            let from = Arc::new(ZarrArray::open_in(&storage, &before, MissingChunk::Error)?);
            let (to, factors) = (self.array(level)?, &self.levels[level].factors);
            let rows = to.spec().shape[to.spec().shape.len() - 2];
            let pass = u32::try_from(level - 1).unwrap_or(u32::MAX);
            reduce(from, &to, factors, device, run, Status::new(pass, passes, rows))?;
            to.finish()?;
        }
        write_group(&*self.storage, &self.path, self.spec.array.format, &self.spec.attributes())
    }

    fn array(&self, level: usize) -> Result<ArrayWriter> {
        let LevelSpec { level, array, .. } = &self.levels[level];
        ArrayWriter::resume(self.storage.clone(), &join(&self.path, &level.path), array.clone())
    }
}
