//! Writing of images.

use std::{io::ErrorKind, path::Path, sync::Arc};

use teatime::{
    Device, Error, MissingChunk, Needs, Result, Run, Status,
    store::{ArrayWriter, Folder, Node, Storage, WritableStorage, ZarrArray, is_free, join, write_group},
};

use crate::{
    pyramid::{self, reduce},
    spec::{ImageSpec, LevelSpec},
};

/// The name of level 0's array.
const BASE: &str = "0";

/// Writes an OME-Zarr image: the caller writes level 0 through [`base`](Self::base), and [`finish`](Self::finish) writes everything else.
///
/// The metadata that make the folder an image are written last, so that an incomplete image is not recognised as an image. A tile is written
/// completely or not at all. If the [`ImageSpec`]'s array has a job, another process can [`resume`](Self::resume) a stopped write; the resulting
/// bytes are the same. Only one process may write an image at a time.
#[derive(Debug)]
pub struct MultiscaleWriter {
    storage: Arc<dyn WritableStorage>,
    path: String,
    spec: ImageSpec,
    levels: Vec<LevelSpec>,
}

impl MultiscaleWriter {
    /// Starts an image whose folder is `path`, which must not exist or be empty. Files are flushed to disk before they get their names.
    ///
    /// # Errors
    /// - [`Error::Argument`]: a `spec` that is inconsistent, or that OME-Zarr does not allow.
    /// - [`Error::Store`]: a non-empty folder exists at `path`.
    /// - [`Error::Io`]: nothing can be written.
    pub fn create(path: impl AsRef<Path>, spec: ImageSpec) -> Result<Self> {
        let path = path.as_ref();
        // The description is checked before the folder is.
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

    /// Starts an image at `path` within any store, as [`create`](Self::create) does; an empty path means the store itself.
    ///
    /// # Errors
    /// The errors of [`create`](Self::create).
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

    /// Resumes an image that [`create`](Self::create) started with the same `spec`, or starts it.
    ///
    /// # Errors
    /// The errors of [`create`](Self::create), and
    /// - [`Error::Argument`]: the array of `spec` names no job.
    /// - [`Error::Store`]: `path` holds data that this writer did not write, or an image of another job or `spec`.
    pub fn resume(path: impl AsRef<Path>, spec: ImageSpec) -> Result<Self> {
        let path = path.as_ref();
        spec.check()?;
        is_free(path, BASE)?;
        Self::resume_in(Arc::new(Folder::new(path).durable()), "", spec)
    }

    /// Resumes an image at `path` within any store, as [`resume`](Self::resume) does; an empty path means the store itself.
    ///
    /// # Errors
    /// The errors of [`resume`](Self::resume).
    pub fn resume_in(storage: Arc<dyn WritableStorage>, path: &str, spec: ImageSpec) -> Result<Self> {
        if spec.array.job.is_none() {
            return Err(Error::argument("resume", "spec", "its array names no job"));
        }
        let writer = Self::new(storage, path, spec)?;
        // The group is written last, so a group without level 0 was not written by this code.
        if Node::at(&*writer.storage, path)? != Node::Absent
            && Node::at(&*writer.storage, &join(path, BASE))? == Node::Absent
        {
            let why = format_args!("is there, and has no array `{BASE}`");
            return Err(Error::store(writer.storage.place(path), why));
        }
        writer.base()?;
        // The image is of this job. A process may have been killed while it wrote the group's metadata.
        let swept = writer.storage.sweep(path);
        swept.map_err(|source| Error::io(writer.storage.place(path), source))?;
        Ok(writer)
    }

    fn new(storage: Arc<dyn WritableStorage>, path: &str, spec: ImageSpec) -> Result<Self> {
        spec.check()?;
        Ok(Self { storage, path: path.to_owned(), levels: spec.levels(), spec })
    }

    /// Returns the shapes of all levels, starting with the largest.
    pub fn shapes(&self) -> impl Iterator<Item = &[u64]> {
        self.levels.iter().map(|level| &*level.array.shape)
    }

    /// Returns the writer of level 0, which the caller may finish or drop when its tiles are written. Each call checks which tiles exist. Plans of
    /// its boxes leave room for the memory that [`finish`](Self::finish) needs at least.
    ///
    /// # Errors
    /// The errors of [`ArrayWriter::resume`].
    pub fn base(&self) -> Result<ArrayWriter> {
        let (base, mut after) = (self.array(0)?, Needs::default());
        for LevelSpec { array, factors, .. } in &self.levels[1..] {
            // Level 0 has the largest chunks, so no level needs more than if it were computed from that.
            after = after.max(pyramid::needs(self.before(1)?, array, factors)?);
        }
        Ok(base.followed_by(after))
    }

    /// Opens the level before another.
    fn before(&self, level: usize) -> Result<Arc<ZarrArray>> {
        let storage: Arc<dyn Storage> = self.storage.clone();
        let before = join(&self.path, &self.levels[level - 1].level.path);
        Ok(Arc::new(ZarrArray::open_in(&storage, &before, MissingChunk::Error)?))
    }

    /// Writes the smaller levels and then the metadata of the image, and waits for both. Level 0 has to have all its tiles.
    ///
    /// Means are computed on the host, by the threads of `device`. Integers are rounded at each level, to the nearest and ties to even;
    /// floating-point values are summed in f64. Progress has one pass for each level, in rows of its planes.
    ///
    /// # Errors
    /// - [`Error::Chunk`]: a tile of level 0 was not written, or cannot be read.
    /// - [`Error::Budget`]: `run` allows less memory than one tile takes.
    /// - [`Error::Io`]: something cannot be written. [`Error::Cancelled`].
    ///
    /// Everything that was written before the error stays.
    ///
    /// # Cost
    /// Each level is read once, or if the next level is partly written, only the chunks that its missing tiles need. A tile is a shard or a
    /// chunk. Each tile takes host memory for three times the decoded chunks that it is computed from (4, or 8 if stacks are halved), and for up
    /// to three tiles. Several tiles are computed at once if `run` has memory for them.
    pub fn finish(self, device: &Device, run: &Run) -> Result<()> {
        self.array(0)?.finish()?;
        let passes = u32::try_from(self.levels.len() - 1).unwrap_or(u32::MAX);
        for level in 1..self.levels.len() {
            run.cancel.check()?;
            let from = self.before(level)?;
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
