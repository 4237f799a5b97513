//! Lists of samples or variants: ids, or files as plink2's `--keep` and `--extract` read them.

mod regions;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    io::Read,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use teatime::{Budget, Cancel, Error, Result};

use self::regions::{Place, Regions, place};
use crate::{
    bed,
    contig::{ContigRuns, Karyotype},
    variant::{VariantReader, VariantSource},
};

/// The bytes of memory that an id of a list takes while it is looked for, and a place such as `1:1000` in addition.
const ID: u64 = 64;
const PLACE: u64 = 256;

/// The number of variants between checks for cancellation.
const BATCH: u64 = 4096;

/// The listed ones among some samples or variants.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The indices of the listed ones, as ranges in ascending order.
    pub rows: Vec<Range<u64>>,
    /// The number of distinct ids in the list, or of regions.
    pub entries: u64,
    /// The number of ids that repeat an earlier one of the list.
    pub repeated: u64,
    /// The number of distinct ids that none of the samples or variants has; 0 for regions.
    pub absent: u64,
}

impl Listed {
    /// Returns the indices in `among` that are listed, or with `others` those that are not; both are ranges in ascending order.
    pub fn choose(&self, among: &[Range<u64>], others: bool) -> Vec<Range<u64>> {
        let mut listed = self.rows.iter().cloned().flatten().peekable();
        runs(among.iter().cloned().flatten().filter(|row| {
            while listed.next_if(|other| other < row).is_some() {}
            (listed.peek() == Some(row)) != others
        }))
    }
}

#[derive(Clone, Debug)]
enum Entries {
    File { path: PathBuf, text: String },
    Ids(Vec<String>),
}

/// A list of samples: ids, or a file.
///
/// Each line of a file has a sample: its family and its id, divided by spaces or tabs, or its id alone, which means family `0`. Further
/// columns and empty lines are ignored. A first line may name the columns, `#FID IID` or `#IID`; lines with `#` before that are ignored
/// too. Samples of a store without families are identified by their ids alone: those in the second column, or in the only one. A line that
/// is the name of such a sample with spaces in it is that name.
///
/// ```
/// use teatime::Budget;
/// use teatime_genotype::SampleList;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("keep.txt");
/// # std::fs::write(&path, "f1 a\nf2\tc\nf3\td\n")?;
/// let list = SampleList::read(path, &Budget::default())?;
/// let ids = ["a", "b", "c"].map(String::from);
/// let listed = list.find(&ids, None)?;
/// assert_eq!((listed.rows.as_slice(), listed.entries, listed.absent), (&[0..1, 2..3][..], 3, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SampleList(Entries);

impl SampleList {
    /// Makes a list of the samples with these ids, whatever their families.
    pub fn of_ids(ids: Vec<String>) -> Self {
        Self(Entries::Ids(ids))
    }

    /// Reads the file, which is UTF-8 text with or without a byte order mark, and with line ends of Unix or Windows.
    ///
    /// # Errors
    /// [`Error::Io`] for a file that cannot be read; [`Error::Store`] for anything but a file of text; [`Error::Budget`] for a
    /// file that is larger, with 64 bytes for each word, than the host's budget.
    pub fn read(path: impl Into<PathBuf>, memory: &Budget) -> Result<Self> {
        let path = path.into();
        let text = text(&path, memory, |_| ID)?;
        Ok(Self(Entries::File { path, text }))
    }

    /// Finds the listed ones among samples with these ids and families.
    ///
    /// # Errors
    /// [`Error::Store`] with the number of the line for a header without a column `IID`, and for a line that lacks a column of the header.
    pub fn find(&self, ids: &[String], families: Option<&[String]>) -> Result<Listed> {
        let mut listed = HashMap::<[&str; 2], bool>::new();
        let (entries, families) = match &self.0 {
            Entries::Ids(list) => {
                listed.extend(list.iter().map(|id| (["", id.as_str()], false)));
                (list.len() as u64, None)
            }
            Entries::File { path, text } => {
                (samples(path, text, ids, families.is_some(), &mut listed)?, families)
            }
        };
        let rows = runs((0..).zip(ids).filter_map(|(row, id)| {
            let family = families.map_or(Some(""), |families| families.get(row).map(String::as_str))?;
            *listed.get_mut(&[family, id.as_str()])? = true;
            Some(row as u64)
        }));
        let absent = listed.values().filter(|found| !**found).count() as u64;
        let distinct = listed.len() as u64;
        Ok(Listed { rows, entries: distinct, repeated: entries - distinct, absent })
    }
}

/// Adds the family and the id of each line of a file to `listed`, and returns the number of these lines. Unless the samples `have_families`,
/// families are empty, and some of the `ids` may have spaces.
fn samples<'a>(
    path: &Path,
    text: &'a str,
    ids: &[String],
    have_families: bool,
    listed: &mut HashMap<[&'a str; 2], bool>,
) -> Result<u64> {
    let is_spaced = |id: &&str| !have_families && id.contains(|c: char| c.is_ascii_whitespace());
    let spaced: HashSet<&str> = ids.iter().map(String::as_str).filter(is_spaced).collect();
    let refuse = |number: u64, why| Err(Error::store(path.display(), format!("line {number} {why}")));
    // The header is true if it names families.
    let (mut header, mut entries) = (None, 0);
    for (number, line) in (1..).zip(text.lines().map(str::trim_ascii)) {
        let mut columns = line.split_ascii_whitespace();
        let (Some(first), second) = (columns.next(), columns.next()) else { continue };
        if header.is_none() && listed.is_empty() && first.starts_with('#') {
            header = match (first, second) {
                ("#FID", Some("IID")) => Some(true),
                ("#FID", _) => return refuse(number, "has `#FID` without `IID` after it"),
                ("#IID", _) => Some(false),
                _ => None,
            };
            continue;
        }
        let sample = match second.filter(|_| header != Some(false)) {
            _ if spaced.contains(line) => ["", line],
            None if header == Some(true) => {
                return refuse(number, "has one column, and the header two");
            }
            Some(id) => [if have_families { first } else { "" }, id],
            None => [if have_families { "0" } else { "" }, first],
        };
        listed.insert(sample, false);
        entries += 1;
    }
    Ok(entries)
}

/// The contents of a list of variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VariantListKind {
    /// Ids of variants, or places such as `1:1000`, divided by white space.
    Ids,
    /// A BED of regions: a contig, a start and an end in each line, 0-based and half-open: the region has the positions from start + 1 to
    /// end. Further columns are ignored, and so are empty lines and those that start with `#`, `track` or `browser`.
    Bed0,
    /// A BED with 1-based starts: the region has the positions from start to end.
    Bed1,
}

impl VariantListKind {
    /// Returns the file that an argument names, and what it lists: `bed0:FILE` and `bed1:FILE` are BEDs, a name that ends with `.bed` is
    /// that of a [`Bed0`](Self::Bed0), and any other that of [`Ids`](Self::Ids).
    pub fn of_argument(path: &Path) -> (&Path, Self) {
        for (prefix, kind) in [("bed0:", Self::Bed0), ("bed1:", Self::Bed1)] {
            if let Some(file) = path.to_str().and_then(|text| text.strip_prefix(prefix)) {
                return (Path::new(file), kind);
            }
        }
        let is_bed = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("bed"));
        (path, if is_bed { Self::Bed0 } else { Self::Ids })
    }
}

/// A list of variants: ids, or a file.
///
/// An id lists all variants of that id; as in plink2, that is true of `.` too, which stands for no id. A word that no variant has as its
/// id, but that ends with a colon and a number, lists the variants on that contig at that position. Contigs are the same if their
/// [normalised names](Karyotype::normalized) are. A region lists the variants with a position within it.
///
/// ```
/// use teatime::{Budget, Cancel};
/// use teatime_genotype::{Karyotype, Variant, VariantList, VariantListKind};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("extract.txt");
/// # std::fs::write(&path, "rs1 chr2:300 rs9\n")?;
/// let list = VariantList::read(path, VariantListKind::Ids, &Budget::default())?;
/// let variant = |contig: &str, position, id: &str| Variant {
///     contig: contig.into(), position, id: id.into(), reference: "A".into(), alternate: "C".into(),
/// };
/// let source = vec![variant("1", 100, "rs1"), variant("1", 300, "rs2"), variant("2", 300, "rs3")];
/// let listed = list.find(&[&source], &[0..3], Some(Karyotype::HUMAN), &Cancel::default())?;
/// assert_eq!((listed.rows.as_slice(), listed.absent), (&[0..1, 2..3][..], 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct VariantList {
    entries: Entries,
    kind: VariantListKind,
}

impl VariantList {
    /// Makes a list of ids, or of places such as `1:1000`.
    pub fn of_ids(ids: Vec<String>) -> Self {
        Self { entries: Entries::Ids(ids), kind: VariantListKind::Ids }
    }

    /// Reads the file, as [`SampleList::read`] does.
    ///
    /// # Errors
    /// Fails as [`SampleList::read`] does; a place takes 256 bytes more.
    pub fn read(path: impl Into<PathBuf>, kind: VariantListKind, memory: &Budget) -> Result<Self> {
        let path = path.into();
        let takes_place = |word: &str| kind == VariantListKind::Ids && place(word).is_some();
        let text = text(&path, memory, |word| if takes_place(word) { ID + PLACE } else { ID })?;
        Ok(Self { entries: Entries::File { path, text }, kind })
    }

    /// Finds the listed ones among the variants of `sources`, appended in order, whose indices are in `among`: ranges in ascending order.
    /// Names of contigs are read for a `karyotype`; if `None`, for that of the sources' contigs, which are read if the list has places or
    /// regions.
    ///
    /// # Cost
    /// Reads each variant in `among` once, and no genotypes. Holds what [`read`](Self::read) counts, and 16 bytes for each run of listed rows.
    ///
    /// # Errors
    /// [`Error::Store`] with the line of a region that is none; [`Error::Cancelled`]; fails as [`VariantReader::get`] and [`ContigRuns::read`] do.
    pub fn find(
        &self,
        sources: &[&dyn VariantSource],
        among: &[Range<u64>],
        karyotype: Option<Karyotype>,
        cancel: &Cancel,
    ) -> Result<Listed> {
        let is_ids = self.kind == VariantListKind::Ids;
        let karyotype = match karyotype {
            None if !is_ids || self.words().any(|word| place(word).is_some()) => {
                ContigRuns::read(sources, cancel)?.karyotype()
            }
            karyotype => karyotype.unwrap_or_default(),
        };
        let mut regions = Regions::new(karyotype);
        let entries = if is_ids { self.places(&mut regions) } else { self.regions(&mut regions)? };
        let mut ids: HashMap<&str, bool> = self.words().filter(|_| is_ids).map(|id| (id, false)).collect();
        let mut reader = VariantReader::new(sources, !regions.is_empty());
        let (mut rows, mut placed) = (Vec::<Range<u64>>::new(), Vec::new());
        let mut last = (Arc::from(""), None);
        for row in among.iter().cloned().flatten() {
            if row.is_multiple_of(BATCH) {
                cancel.check()?;
            }
            let variant = reader.get(row)?;
            if let Some(found) = ids.get_mut(&*variant.id) {
                *found = true;
                push(&mut rows, row);
            } else if let Some(place) = regions.place(variant, &mut last) {
                if is_ids { placed.push((row, place)) } else { push(&mut rows, row) }
            }
        }
        // A word is a place only if it is no id.
        let not_found = || ids.iter().filter(|(_, found)| !**found).map(|(id, _)| regions.named(id));
        let mut places: HashMap<Place, bool> = not_found().flatten().map(|place| (place, false)).collect();
        for (row, place) in placed {
            if let Some(found) = places.get_mut(&place) {
                *found = true;
                push(&mut rows, row);
            }
        }
        let absent = not_found().filter(|place| place.is_none_or(|place| !places[&place])).count() as u64;
        rows.sort_unstable_by_key(|run| run.start);
        let rows = runs(rows.into_iter().flatten());
        let distinct = if is_ids { ids.len() as u64 } else { entries };
        Ok(Listed { rows, entries: distinct, repeated: entries - distinct, absent })
    }

    fn words(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match &self.entries {
            Entries::File { text, .. } => Box::new(text.split_ascii_whitespace()),
            Entries::Ids(ids) => Box::new(ids.iter().map(String::as_str)),
        }
    }

    /// Adds the places among the words, and returns the number of words.
    fn places(&self, regions: &mut Regions) -> u64 {
        let mut words = 0;
        for word in self.words() {
            words += 1;
            if let Some((contig, position)) = place(word) {
                regions.contig(contig).insert(position, position);
            }
        }
        words
    }

    /// Adds the regions of a BED, and returns their number.
    fn regions(&self, regions: &mut Regions) -> Result<u64> {
        let Entries::File { path, text } = &self.entries else { return Ok(0) };
        let mut entries = 0;
        for (number, line) in (1..).zip(text.lines()) {
            let mut columns = line.split_ascii_whitespace();
            let contig = columns.next().unwrap_or("#");
            if contig.starts_with('#') || ["track", "browser"].contains(&contig) {
                continue;
            }
            let mut bound = || columns.next().and_then(|text| text.parse::<u64>().ok());
            let before = u64::from(self.kind == VariantListKind::Bed0);
            let bounds = bound().and_then(|first| first.checked_add(before)).zip(bound());
            let Some((first, last)) = bounds.filter(|(first, last)| first <= last) else {
                let end = if before == 1 { "after it" } else { "that is not before it" };
                let why =
                    format_args!("line {number} is no region: it needs a contig, a start, and an end {end}");
                return Err(Error::store(path.display(), why));
            };
            let end = regions.contig(contig).entry(first).or_default();
            *end = last.max(*end);
            entries += 1;
        }
        regions.settle();
        Ok(entries)
    }
}

/// Returns ascending numbers as ranges.
fn runs(rows: impl IntoIterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs = Vec::<Range<u64>>::new();
    rows.into_iter().for_each(|row| push(&mut runs, row));
    runs
}

/// Adds a number to ascending ones, which are held as ranges.
pub(crate) fn push(runs: &mut Vec<Range<u64>>, row: u64) {
    match runs.last_mut() {
        Some(last) if last.end == row => last.end += 1,
        _ => runs.push(row..row + 1),
    }
}

/// Returns the text of a file without its byte order mark. `bytes` is what a word takes in addition.
fn text(path: &Path, memory: &Budget, bytes: impl Fn(&str) -> u64) -> Result<String> {
    let fail = |source| Error::io(path.display(), source);
    let mut file = bed::open(path)?;
    let memory = memory.fit_host(file.metadata().map_err(fail)?.len())?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(fail)?;
    let other = match *text {
        [0x6c, 0x1b, ..] => Some("is a .bed of PLINK's genotypes, neither a list nor a BED of regions"),
        [0x1f, 0x8b, ..] => Some("is compressed: unpack it"),
        _ => None,
    };
    if let Some(why) = other {
        return Err(Error::store(path.display(), why));
    }
    let mut text = String::from_utf8(text).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|byte| *byte == b'\n').count();
        Error::store(path.display(), format_args!("line {line} is not UTF-8"))
    })?;
    if text.starts_with('\u{feff}') {
        text.remove(0);
    }
    memory.fit_host(text.split_ascii_whitespace().map(bytes).fold(0, u64::saturating_add))?;
    Ok(text)
}
