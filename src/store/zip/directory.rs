//! The directory of a zip archive: which entries there are, and where each may lie.

use std::{
    borrow::Cow,
    io::{self, ErrorKind},
    mem,
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::{
    extent::to_usize,
    store::{StoredBytes, storage::key_within},
};

/// The maximum number of entries of an archive, and of bytes of its directory.
const MAX_ENTRIES: u64 = 1_000_000;
const MAX_DIRECTORY: u64 = 256 << 20;

/// The bytes of the records, without names and other parts of variable length.
const END: usize = 22;
const LOCATOR: usize = 20;
const END64: usize = 56;
const CENTRAL: usize = 46;
pub(super) const LOCAL: usize = 30;

/// The most bytes that the records at the end of an archive have.
const TAIL: u64 = (END64 + LOCATOR + END + 0xffff) as u64;

/// The numbers of 2 and 4 bytes in whose place another record has one of 8 bytes.
const MAX16: u64 = 0xffff;
const MAX32: u64 = 0xffff_ffff;

/// The bits of flags that say that data are encrypted, or follow their own lengths; and the methods that are read.
const ENCRYPTED: u64 = 1 | 1 << 6 | 1 << 13;
const SIZES_FOLLOW: u64 = 1 << 3;
const STORED: u64 = 0;
const DEFLATED: u64 = 8;

/// An entry of an archive.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Box<str>,
    /// The offset of its local header, and of the next record; at first the least that this can be.
    pub(super) header: u64,
    pub(super) limit: u64,
    /// The number of bytes in the archive, and of the value.
    pub(super) stored: u64,
    pub(super) size: u64,
    pub(super) crc: u32,
    method: u16,
    flags: u16,
    /// The offset of the data; 0 before the local header is read.
    pub(super) start: AtomicU64,
}

/// Makes an error that says what is wrong with an archive.
pub(super) fn wrong(why: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why.into())
}

/// Returns the little-endian number of `len` bytes at `at`; bytes beyond the end count as 0.
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let bytes = bytes.get(at..).unwrap_or_default();
    bytes.iter().take(len).rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The last bytes of an archive, and a function that reads others.
struct Archive<'a> {
    read: &'a dyn Fn(Range<u64>) -> io::Result<StoredBytes>,
    tail: StoredBytes,
    /// The offset of the tail.
    before: u64,
}

impl Archive<'_> {
    /// Returns bytes that are known to lie within the archive.
    fn bytes(&self, range: Range<u64>) -> io::Result<Cow<'_, [u8]>> {
        match range.start.checked_sub(self.before) {
            Some(start) => Ok(Cow::Borrowed(&self.tail[to_usize(start)..to_usize(range.end - self.before)])),
            None => Ok(Cow::Owned(match (self.read)(range)? {
                StoredBytes::Owned(bytes) => bytes,
                StoredBytes::Shared(bytes) => bytes.to_vec(),
            })),
        }
    }
}

/// The place of the directory.
struct Place {
    entries: u64,
    range: Range<u64>,
}

impl Place {
    /// Finds the directory by the records at the end of an archive.
    fn find(archive: &Archive<'_>) -> io::Result<Self> {
        let tail = &*archive.tail;
        // A comment follows the record, and may hold anything.
        let is_end = |at: &usize| {
            tail[*at..].starts_with(b"PK\x05\x06")
                && (at + END) as u64 + number(tail, at + 20, 2) == tail.len() as u64
        };
        let mut ends = (0..(tail.len() + 1).saturating_sub(END)).filter(is_end);
        let at = ends.next().ok_or_else(|| wrong("is no zip archive, or has lost its end"))?;
        if ends.next().is_some() {
            return Err(wrong("has two ends: its comment looks like one"));
        }
        let end = &tail[at..at + END];
        let [disk, of_disk, here, entries] = [4, 6, 8, 10].map(|at| number(end, at, 2));
        let [bytes, start] = [12, 16].map(|at| number(end, at, 4));
        let mut fields = [disk, of_disk, here, entries, bytes, start];
        let mut limit = archive.before + at as u64;
        let locator = at.checked_sub(LOCATOR).map(|before| &tail[before..at]);
        if let Some(locator) = locator.filter(|locator| locator.starts_with(b"PK\x06\x07")) {
            let (start, behind) = (number(locator, 8, 8), limit - LOCATOR as u64);
            if start.checked_add(END64 as u64).is_none_or(|end| end > behind) {
                return Err(wrong("its zip64 record is not before its end"));
            }
            let record = archive.bytes(start..start + END64 as u64)?;
            let [disk, of_disk] = [16, 20].map(|at| number(&record, at, 4));
            let large = [24, 32, 40, 48].map(|at| number(&record, at, 8));
            let large = [disk, of_disk, large[0], large[1], large[2], large[3]];
            let most = [MAX16, MAX16, MAX16, MAX16, MAX32, MAX32];
            let agree = fields.iter().zip(most).zip(large).all(|((&n, most), large)| n == most || n == large);
            if !record.starts_with(b"PK\x06\x06") || !agree {
                return Err(wrong("its zip64 record is not that of its end"));
            }
            (fields, limit) = (large, start);
        }
        let [disk, of_disk, here, entries, bytes, start] = fields;
        if disk != 0 || of_disk != 0 || here != entries {
            return Err(wrong("is a part of an archive that was split"));
        }
        if entries > MAX_ENTRIES || bytes > MAX_DIRECTORY {
            let why = format!(
                "has {entries} entries in a directory of {bytes} bytes; at most {MAX_ENTRIES} and {MAX_DIRECTORY} are read"
            );
            return Err(wrong(why));
        }
        let end = start.checked_add(bytes).filter(|end| *end <= limit && entries * CENTRAL as u64 <= bytes);
        let end = end.ok_or_else(|| wrong(format!("has no room for {entries} entries at byte {start}")))?;
        Ok(Self { entries, range: start..end })
    }
}

/// Reads the directory of an archive of `len` bytes, whose bytes `read` returns: the entries with names that are keys, in the order of
/// their names. Of entries with one name, the last is taken. Allocates memory for no more than the directory.
/// Fails with [`ErrorKind::InvalidData`] for what is no archive, is damaged, or exceeds a limit, and for entries that share bytes.
pub(super) fn read(len: u64, read: &dyn Fn(Range<u64>) -> io::Result<StoredBytes>) -> io::Result<Vec<Entry>> {
    let before = len.saturating_sub(TAIL);
    let archive = Archive { read, tail: read(before..len)?, before };
    let place = Place::find(&archive)?;
    let directory = archive.bytes(place.range.clone())?;
    let (mut rest, mut entries) = (&*directory, Vec::new());
    for order in 0..place.entries {
        let (entry, after) = Entry::parse(rest, place.range.start)?;
        entries.push((order, entry));
        rest = after;
    }
    if !rest.is_empty() {
        return Err(wrong(format!(
            "its directory has more than the {} entries that it states",
            place.entries
        )));
    }
    entries.sort_unstable_by_key(|(_, entry)| entry.header);
    if let Some([(_, one), (_, other)]) = entries.windows(2).find(|pair| pair[0].1.limit > pair[1].1.header) {
        return Err(wrong(format!("its entries `{}` and `{}` overlap", one.name, other.name)));
    }
    let mut limit = place.range.start;
    for (_, entry) in entries.iter_mut().rev() {
        entry.limit = mem::replace(&mut limit, entry.header);
    }
    // Other names are absolute, lead out of the archive, or are those of folders.
    entries.retain(|(_, entry)| key_within(&entry.name).as_deref() == Some(&*entry.name));
    entries.sort_unstable_by(|(order, a), (other, b)| a.name.cmp(&b.name).then(other.cmp(order)));
    entries.dedup_by(|(_, later), (_, kept)| later.name == kept.name);
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

impl Entry {
    /// Parses the first entry of the rest of a directory that begins at `limit`, and returns what follows it.
    fn parse(bytes: &[u8], limit: u64) -> io::Result<(Self, &[u8])> {
        let short = || wrong("its directory is damaged");
        let [name, extra, comment] = [28, 30, 32].map(|at| to_usize(number(bytes, at, 2)));
        let part = |start: usize, len: usize| bytes.get(start..start + len).ok_or_else(short);
        let (name, extra) = (part(CENTRAL, name)?, part(CENTRAL + name, extra)?);
        let len = CENTRAL + name.len() + extra.len();
        part(len, comment)?;
        if !bytes.starts_with(b"PK\x01\x02") {
            return Err(short());
        }
        let [flags, method] = [8, 10].map(|at| u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let crc = u32::from_le_bytes([16, 17, 18, 19].map(|at| bytes[at]));
        // Numbers that do not fit are in the field of zip64, in this order.
        let mut large = zip64(extra);
        let [size, stored, header] = [24, 20, 42].map(|at| match number(bytes, at, 4) {
            MAX32 => large.split_at_checked(8).map(|(first, rest)| {
                large = rest;
                number(first, 0, 8)
            }),
            small => Some(small),
        });
        let name_end = header.and_then(|header| header.checked_add((LOCAL + name.len()) as u64));
        let name = String::from_utf8_lossy(name).into_owned();
        let (Some(size), Some(stored), Some(header), Some(name_end)) = (size, stored, header, name_end)
        else {
            return Err(wrong(format!("its entry `{name}` has no sizes")));
        };
        if !matches!(number(bytes, 34, 2), 0 | MAX16) {
            return Err(wrong("is a part of an archive that was split"));
        }
        let Some(end) = name_end.checked_add(stored).filter(|end| *end <= limit) else {
            return Err(wrong(format!(
                "its entry `{name}` claims {stored} bytes at {header}, which are not there"
            )));
        };
        let (name, start) = (name.into(), AtomicU64::new(0));
        let entry = Self { name, header, limit: end, stored, size, crc, method, flags, start };
        Ok((entry, &bytes[len + comment..]))
    }

    pub(super) fn is_deflated(&self) -> bool {
        u64::from(self.method) == DEFLATED
    }

    /// Refuses what is not read, and sizes that cannot be.
    pub(super) fn check(&self) -> io::Result<()> {
        let (method, stored, size) = (u64::from(self.method), self.stored, self.size);
        if u64::from(self.flags) & ENCRYPTED != 0 {
            return Err(io::Error::new(ErrorKind::Unsupported, "is encrypted, which is not read"));
        }
        let is_possible = match method {
            STORED => stored == size,
            // A block of deflate has at most 258 bytes for each two bits; what cannot be compressed grows little.
            DEFLATED => size <= stored.saturating_mul(1032) && stored <= size.saturating_add(size / 8 + 1024),
            _ => {
                let why =
                    format!("is compressed by method {method} of zip; stored and deflated entries are read");
                return Err(io::Error::new(ErrorKind::Unsupported, why));
            }
        };
        if is_possible {
            Ok(())
        } else {
            Err(wrong(format!("claims {size} bytes, of which {stored} are stored")))
        }
    }

    /// Returns the offset of the data, by the first bytes of the local header and what follows.
    pub(super) fn start_by(&self, header: &[u8]) -> io::Result<u64> {
        let local = |at, len| number(header, at, len);
        let agree = |at, size| local(6, 2) & SIZES_FOLLOW != 0 || [MAX32, size].contains(&local(at, 4));
        let is_own = header.starts_with(b"PK\x03\x04")
            && header.get(LOCAL..).is_some_and(|rest| rest.starts_with(self.name.as_bytes()))
            && local(26, 2) == self.name.len() as u64
            && local(8, 2) == u64::from(self.method)
            && local(6, 2) & ENCRYPTED == 0
            && agree(18, self.stored)
            && agree(22, self.size);
        let start = self.header + LOCAL as u64 + local(26, 2) + local(28, 2);
        if !is_own || start + self.stored > self.limit {
            return Err(wrong("is not where, or not what, the directory of its archive says"));
        }
        self.start.store(start, Relaxed);
        Ok(start)
    }
}

/// Returns the field of zip64 among the extra fields of an entry; empty if there is none.
fn zip64(mut extra: &[u8]) -> &[u8] {
    while let Some((head, rest)) = extra.split_at_checked(4) {
        let (field, after) = rest.split_at(rest.len().min(to_usize(number(head, 2, 2))));
        if number(head, 0, 2) == 1 {
            return field;
        }
        extra = after;
    }
    &[]
}
