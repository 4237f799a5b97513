//! A store that is being written: a hidden folder that is renamed to its final name when it is complete.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    spec::{ArraySpec, Attributes, ZarrFormat},
    writer::{ArrayWriter, write_group},
};
use crate::{
    Error, Result,
    extent::to_usize,
    store::{
        Folder, Storable,
        storage::{create_beside, is_partial},
    },
};

/// The maximum number of elements of a chunk that spans whole rows, and the side length of other chunks.
const CHUNK: usize = 1 << 20;
const CHUNK_SIDE: usize = 1000;

/// A new Zarr v2 store of one or more arrays, in a hidden folder that is renamed to the store's name when everything is written. Dropping
/// it earlier removes what was written.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Budget, store::{ArraySpec, Attributes, Column, Folder, NewStore, Storage}};
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("distances.zarr");
/// let store = NewStore::create(&path, &Attributes::new())?;
/// let distances = [0.0f64, 5.0, 5.0, 0.0];
/// store.put_matrix("distance", ["samples_0", "samples_1"], &distances, [2, 2], |x| x as f32)?;
/// // Names: strings, in one chunk.
/// let names = store.array("name", ArraySpec::new(None, &[2], &[2]).of_results(&["samples_0"]))?;
/// names.write_text(&[0], ["a", "b"])?;
/// names.finish()?;
/// store.finish()?;
///
/// let storage: Arc<dyn Storage> = Arc::new(Folder::new(&path));
/// let names = Column::read_in(&storage, "name", &|_, _| false, &Budget::default())?;
/// assert!(names.is_some_and(|names| names.strings().eq(["a", "b"])));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct NewStore {
    path: PathBuf,
    scratch: PathBuf,
    folder: Arc<Folder>,
}

impl NewStore {
    /// Starts a Zarr v2 store at `path`, which must not exist, and writes its root group.
    ///
    /// # Errors
    /// [`Error::Store`] if `path` exists; [`Error::Io`] if no folder can be created next to it.
    pub fn create(path: impl AsRef<Path>, attributes: &Attributes) -> Result<Self> {
        let path = path.as_ref();
        if path.symlink_metadata().is_ok() {
            return Err(Error::store(path.display(), "exists already"));
        }
        if path.file_name().is_none() {
            return Err(Error::store(path.display(), "is not the name of a store"));
        }
        let created = create_beside(path, |scratch| std::fs::create_dir(scratch));
        let ((), scratch) = created.map_err(|source| Error::io(path.display(), source))?;
        let folder = Arc::new(Folder::new(&scratch));
        let store = Self { path: path.to_path_buf(), scratch, folder };
        write_group(&*store.folder, "", ZarrFormat::V2, attributes)?;
        Ok(store)
    }

    /// Starts the array `name`.
    ///
    /// # Errors
    /// See [`ArrayWriter::create`].
    pub fn array(&self, name: &str, spec: ArraySpec) -> Result<ArrayWriter> {
        ArrayWriter::create(self.folder.clone(), name, spec)
    }

    /// Writes the array `name`, a matrix (rows, columns), with the names of its axes and with each element converted by `convert`. Chunks
    /// have 1000 x 1000 elements, or whole rows of shorter matrices, up to 2^20 elements.
    ///
    /// # Cost
    /// Memory for one chunk and its compressed copy.
    ///
    /// # Errors
    /// [`Error::Shape`] if the number of elements does not match; [`Error::Io`].
    pub fn put_matrix<S: Copy, T: Storable>(
        &self,
        name: &str,
        axes: [&str; 2],
        elements: &[S],
        [rows, columns]: [usize; 2],
        convert: impl Fn(S) -> T,
    ) -> Result<()> {
        if rows.checked_mul(columns) != Some(elements.len()) {
            let expected = format!("{rows} rows of {columns} columns");
            let got = format_args!("{} elements", elements.len());
            return Err(Error::shape("NewStore::put_matrix", expected, got));
        }
        let width = columns.clamp(1, CHUNK_SIDE);
        let height = if columns > CHUNK_SIDE { CHUNK_SIDE } else { CHUNK / width };
        let height = height.min(rows.max(1));
        let [shape, chunk] = [[rows, columns], [height, width]].map(|extents| extents.map(|n| n as u64));
        let array = self.array(name, ArraySpec::new(T::STORED, &shape, &chunk).of_results(&axes))?;
        for tile in array.tiles() {
            let extent = array.extent(&tile);
            let range = |axis: usize| {
                let start = to_usize(tile[axis] * chunk[axis]);
                start..start + to_usize(extent[axis])
            };
            let columns_of = |row: usize| &elements[row * columns..][range(1)];
            let converted = range(0).flat_map(columns_of).map(|&element| convert(element));
            array.write(&tile, &converted.collect::<Vec<T>>())?;
        }
        Ok(())
    }

    /// Writes the array `name` with one axis, in chunks of up to 2^20 elements.
    ///
    /// # Cost
    /// Memory for one compressed chunk.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn put_vector<T: Storable>(&self, name: &str, axis: &str, elements: &[T]) -> Result<()> {
        let chunk = elements.len().clamp(1, CHUNK);
        let [shape, extent] = [elements.len(), chunk].map(|n| [n as u64]);
        let array = self.array(name, ArraySpec::new(T::STORED, &shape, &extent).of_results(&[axis]))?;
        (0..).zip(elements.chunks(chunk)).try_for_each(|(tile, elements)| array.write(&[tile], elements))
    }

    /// Renames the folder to the store's name.
    ///
    /// # Errors
    /// [`Error::Io`] when another file or folder has taken the name meanwhile.
    pub fn finish(self) -> Result<()> {
        std::fs::rename(&self.scratch, &self.path).map_err(|source| Error::io(self.path.display(), source))
    }
}

impl Drop for NewStore {
    fn drop(&mut self) {
        // After `finish` the folder has another name. An error of removing the folder has no caller to go to.
        std::fs::remove_dir_all(&self.scratch).ok();
    }
}

/// True if nothing exists at `path` yet; false if it holds the array `name`, or nothing but leftovers. Call this before
/// [`ArrayWriter::resume`] starts or continues the array in a store at `path`; an empty name means the store itself.
///
/// # Errors
/// [`Error::Store`] if `path` exists and has no such array; [`Error::Io`].
pub fn is_free(path: impl AsRef<Path>, name: &str) -> Result<bool> {
    let path = path.as_ref();
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        entries => entries.map_err(|source| Error::io(path.display(), source))?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>();
    let mut names = names.map_err(|source| Error::io(path.display(), source))?;
    names.retain(|name| !is_partial(&name.to_string_lossy()));
    let metadata = [".zattrs", ".zarray", "zarr.json"];
    let wanted = if name.is_empty() { &metadata[..] } else { &[name] };
    if names.is_empty() || names.iter().any(|entry| wanted.iter().any(|name| entry == name)) {
        return Ok(false);
    }
    let why = if name.is_empty() { "is no Zarr array".into() } else { format!("has no array `{name}`") };
    Err(Error::store(path.display(), format_args!("is there, and {why}")))
}
