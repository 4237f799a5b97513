//! Zip archives that hold a store: files and objects whose entries are values.

mod directory;
#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io::{self, BufRead, ErrorKind, Read},
    ops::Range,
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use flate2::{Crc, bufread::DeflateDecoder};

use self::directory::{Entry, LOCAL, wrong};
use super::{
    Storage, StoredBytes, Value,
    storage::{join, key_within},
    zarr::{DOCUMENTS, is_document},
};
use crate::{Error, Result, extent::to_usize, files::read_at, fresh};

/// The bytes that are read beyond a remote value and its local header, for the extra fields of the latter.
const SLACK: u64 = 256;

/// The bytes of a piece of an entry that is deflated.
const PIECE: u64 = 4 << 20;

/// The bytes of a file that are read at once, and then checked while they are in the processor's cache.
const AT_ONCE: usize = 256 << 10;

/// Reads a range of a file in pieces, each of which is shown.
fn read_file(file: &File, range: Range<u64>, mut show: impl FnMut(&[u8])) -> io::Result<StoredBytes> {
    let len = to_usize(range.end - range.start);
    let mut bytes = fresh::chunk(len)?;
    while bytes.len() < len {
        let start = bytes.len();
        bytes.resize(len.min(start + AT_ONCE), 0);
        read_at(file, &mut bytes[start..], range.start + start as u64)?;
        show(&bytes[start..]);
    }
    Ok(StoredBytes::Owned(bytes))
}

/// The bytes of an archive.
#[derive(Debug)]
enum Bytes {
    File(Arc<File>),
    /// The object of a storage's empty key.
    #[cfg_attr(not(feature = "remote"), allow(dead_code, reason = "only URLs are such archives"))]
    Stored(Arc<dyn Storage>),
}

impl Bytes {
    fn read(&self, Range { start, end }: Range<u64>) -> io::Result<StoredBytes> {
        let len = to_usize(end.saturating_sub(start));
        match self {
            _ if len == 0 => Ok(StoredBytes::Owned(Vec::new())),
            Self::File(file) => read_file(file, start..end, |_| ()),
            Self::Stored(storage) => match storage.get_range("", start..end)? {
                Value::Bytes(bytes) if bytes.len() == len => Ok(bytes),
                _ => Err(ErrorKind::UnexpectedEof.into()),
            },
        }
    }
}

/// Returns a part of bytes, in their memory if they are owned.
fn part(bytes: StoredBytes, range: Range<usize>) -> StoredBytes {
    match bytes {
        StoredBytes::Owned(mut bytes) => {
            bytes.truncate(range.end);
            bytes.drain(..range.start);
            StoredBytes::Owned(bytes)
        }
        StoredBytes::Shared(bytes) => StoredBytes::Shared(bytes[range].into()),
    }
}

/// The entries of a zip archive, or of a folder within it, as values. Stored entries are read in parts, deflated ones as a whole.
/// The archive is neither written nor unpacked. Its directory is in memory: about 100 bytes for each entry.
#[derive(Debug)]
pub(super) struct ZipStorage {
    bytes: Bytes,
    place: String,
    /// The folder within the archive whose values these are; empty for all.
    folder: String,
    /// All entries, in the order of their names.
    entries: Vec<Entry>,
    /// True if no entry is compressed.
    is_plain: bool,
}

impl ZipStorage {
    /// Opens the archive in a file, and in it the folder `path`, as [`within`](Self::within) does.
    pub(super) fn open(file: &Path, path: &str) -> Result<Self> {
        let place = file.display().to_string();
        let opened = File::open(file).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (len, file) = opened.map_err(|source| Error::io(&place, source))?;
        Self::read(Bytes::File(Arc::new(file)), len, place, path)
    }

    /// Opens the archive that is the object of a storage's empty key, and in it the folder `path`. An empty `path` means the root of the
    /// archive, or if that has no metadata the one folder in it that has. Other paths begin at either. Fails with [`Error::Store`] for
    /// what is no archive, is damaged or has too many entries; [`Error::Io`] if it cannot be read.
    #[cfg_attr(not(feature = "remote"), allow(dead_code, reason = "only URLs are such archives"))]
    pub(super) fn within(storage: Arc<dyn Storage>, path: &str) -> Result<Self> {
        let place = storage.place("");
        let size = storage.size("").and_then(|size| size.ok_or_else(|| ErrorKind::NotFound.into()));
        let len = size.map_err(|source| Error::io(&place, source))?;
        Self::read(Bytes::Stored(storage), len, place, path)
    }

    fn read(bytes: Bytes, len: u64, place: String, path: &str) -> Result<Self> {
        let entries =
            directory::read(len, &|range| bytes.read(range)).map_err(|error| match error.kind() {
                ErrorKind::InvalidData => Error::store(&place, error),
                _ => Error::io(&place, error),
            })?;
        let path = key_within(path)
            .ok_or_else(|| Error::store(&place, format!("`{path}` is not a path within the archive")))?;
        let is_plain = !entries.iter().any(Entry::is_deflated);
        let mut zip = Self { bytes, place, folder: String::new(), entries, is_plain };
        let has = |folder: &str| DOCUMENTS.iter().any(|name| zip.find(&join(folder, name)).is_some());
        let mut folders = if has("") { Vec::new() } else { zip.names("") };
        folders.retain(|folder| has(folder));
        let root = if let [only] = &*folders { only } else { "" };
        zip.folder = match &*path {
            "" => root.to_owned(),
            path if zip.below(path).is_empty() && !root.is_empty() => join(root, path),
            path => path.to_owned(),
        };
        Ok(zip)
    }

    fn find(&self, name: &str) -> Option<&Entry> {
        let at = self.entries.binary_search_by(|entry| (*entry.name).cmp(name)).ok()?;
        Some(&self.entries[at])
    }

    /// Returns the entries in a folder of the archive and in those below it.
    fn below(&self, folder: &str) -> &[Entry] {
        let prefix = if folder.is_empty() { String::new() } else { join(folder, "") };
        let start = self.entries.partition_point(|entry| *entry.name < *prefix);
        let len = self.entries[start..].partition_point(|entry| entry.name.starts_with(&prefix));
        &self.entries[start..start + len]
    }

    /// Returns the names of the folders in a folder of the archive.
    fn names(&self, folder: &str) -> Vec<String> {
        let skip = if folder.is_empty() { 0 } else { folder.len() + 1 };
        let names = self.below(folder).iter().filter_map(|entry| entry.name[skip..].split_once('/'));
        let mut names: Vec<String> = names.map(|(name, _)| name.to_owned()).collect();
        names.dedup();
        names
    }

    /// Returns the name of a key's entry within the archive.
    fn name(&self, key: &str) -> io::Result<String> {
        let outside = || io::Error::new(ErrorKind::InvalidInput, "is not a path within the archive");
        let key = key_within(key).ok_or_else(outside)?;
        Ok(match (&*self.folder, &*key) {
            ("", _) => key,
            (folder, "") => folder.to_owned(),
            (folder, key) => join(folder, key),
        })
    }

    fn entry(&self, key: &str) -> io::Result<Option<&Entry>> {
        Ok(self.find(&self.name(key)?))
    }

    /// Returns the offset of an entry's data.
    fn start(&self, entry: &Entry) -> io::Result<u64> {
        match entry.start.load(Relaxed) {
            0 => entry
                .start_by(&self.bytes.read(entry.header..entry.header + (LOCAL + entry.name.len()) as u64)?),
            start => Ok(start),
        }
    }

    /// Reads a range of an entry's data.
    fn data(&self, entry: &Entry, range: Range<u64>) -> io::Result<StoredBytes> {
        entry.check()?;
        let is_remote = matches!(self.bytes, Bytes::Stored(_));
        if is_remote && range.start == 0 && entry.start.load(Relaxed) == 0 {
            // One request reads the local header with the data.
            let end = entry.header + (LOCAL + entry.name.len()) as u64 + SLACK + range.end;
            let bytes = self.bytes.read(entry.header..end.min(entry.limit))?;
            let start = to_usize(entry.start_by(&bytes)? - entry.header);
            let data = start..start + to_usize(range.end);
            if data.end <= bytes.len() {
                return Ok(part(bytes, data));
            }
        }
        let start = self.start(entry)?;
        self.bytes.read(start + range.start..start + range.end)
    }

    /// Reads the value of an entry. Of one that is deflated, a piece of the data is in memory besides.
    fn value(&self, entry: &Entry) -> io::Result<StoredBytes> {
        entry.check()?;
        let mut crc = Crc::new();
        let bytes = if entry.is_deflated() {
            let mut value = fresh::chunk(to_usize(entry.size))?;
            let data = Data { zip: self, entry, piece: StoredBytes::Owned(Vec::new()), used: 0, next: 0 };
            DeflateDecoder::new(data).take(entry.size + 1).read_to_end(&mut value)?;
            crc.update(&value);
            StoredBytes::Owned(value)
        } else if let Bytes::File(file) = &self.bytes {
            let start = self.start(entry)?;
            read_file(file, start..start + entry.stored, |piece| crc.update(piece))?
        } else {
            let bytes = self.data(entry, 0..entry.stored)?;
            crc.update(&bytes);
            bytes
        };
        if bytes.len() as u64 != entry.size {
            return Err(wrong(format!(
                "does not inflate to the {} bytes that its archive states",
                entry.size
            )));
        }
        if crc.sum() != entry.crc {
            return Err(wrong("is damaged: it does not have the checksum that its archive states"));
        }
        Ok(bytes)
    }
}

/// The data of an entry, read in pieces.
struct Data<'a> {
    zip: &'a ZipStorage,
    entry: &'a Entry,
    piece: StoredBytes,
    /// The bytes of the piece that are used, and the number of bytes before the next piece.
    used: usize,
    next: u64,
}

impl BufRead for Data<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.piece.len() {
            let end = self.entry.stored.min(self.next + PIECE);
            self.piece = self.zip.data(self.entry, self.next..end)?;
            (self.used, self.next) = (0, end);
        }
        Ok(&self.piece[self.used..])
    }

    fn consume(&mut self, bytes: usize) {
        self.used += bytes;
    }
}

impl Read for Data<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

impl Storage for ZipStorage {
    fn place(&self, key: &str) -> String {
        match self.name(key).unwrap_or_default().as_str() {
            "" => self.place.clone(),
            name => join(&self.place, name),
        }
    }

    fn fetches(&self) -> usize {
        match &self.bytes {
            Bytes::File(_) => 0,
            Bytes::Stored(storage) => storage.fetches(),
        }
    }

    fn opens_values(&self) -> bool {
        self.is_plain && matches!(self.bytes, Bytes::File(_))
    }

    fn open_value(&self, key: &str) -> Option<(Arc<File>, Range<u64>)> {
        let (Bytes::File(file), Some(entry)) = (&self.bytes, self.entry(key).ok()?) else { return None };
        entry.check().ok().filter(|()| !entry.is_deflated())?;
        let start = self.start(entry).ok()?;
        Some((Arc::clone(file), start..start + entry.size))
    }

    fn get(&self, key: &str, most: u64) -> io::Result<Value> {
        Ok(match self.entry(key)? {
            None => Value::Absent,
            Some(entry) if entry.size > most => Value::Large(entry.size),
            Some(entry) => Value::Bytes(self.value(entry)?),
        })
    }

    fn get_range(&self, key: &str, range: Range<u64>) -> io::Result<Value> {
        let Some(entry) = self.entry(key)? else { return Ok(Value::Absent) };
        if range.start > range.end || range.end > entry.size {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if !entry.is_deflated() {
            return self.data(entry, range).map(Value::Bytes);
        }
        Ok(Value::Bytes(part(self.value(entry)?, to_usize(range.start)..to_usize(range.end))))
    }

    /// True if no entry beside or below that of the key is deflated, but for documents.
    fn reads_ranges(&self, key: &str) -> io::Result<bool> {
        let name = self.name(key)?;
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let is_in_the_way = |entry: &Entry| entry.is_deflated() && !is_document(&entry.name);
        Ok(self.is_plain || !self.below(folder).iter().any(is_in_the_way))
    }

    fn size(&self, key: &str) -> io::Result<Option<u64>> {
        Ok(self.entry(key)?.map(|entry| entry.size))
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        Ok(self.names(&self.name(prefix)?))
    }
}
