//! Files that list samples or variants, as plink2's `--keep` and `--extract` read them.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::Read,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use teatime::{Budget, Cancel, Error, Result};

use crate::{
    bed,
    contig::Karyotype,
    variant::{Variant, VariantReader, VariantSource},
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
    /// Returns the indices in `among` that are not listed; `among` and the result are ranges in ascending order.
    pub fn others(&self, among: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut listed = self.rows.iter().cloned().flatten().peekable();
        runs(among.iter().cloned().flatten().filter(|row| {
            while listed.next_if(|other| other < row).is_some() {}
            listed.peek() != Some(row)
        }))
    }
}

/// A file that lists samples.
///
/// Each line has a sample: its family and its id, divided by spaces or tabs, or its id alone, which means family `0`. Further columns and
/// empty lines are ignored. A first line may name the columns, `#FID IID` or `#IID`; lines with `#` before that are ignored too. Samples of
/// a store without families are identified by their ids alone: those in the second column, or in the only one. A line that is the name of
/// such a sample with spaces in it is that name.
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
pub struct SampleList {
    path: PathBuf,
    text: String,
}

impl SampleList {
    /// Reads the file, which is UTF-8 text with or without a byte order mark, and with line ends of Unix or Windows.
    ///
    /// # Errors
    /// [`Error::Io`] for a file that cannot be read; [`Error::Store`] for anything but a file of text; [`Error::Budget`] for a
    /// file that is larger, with 64 bytes for each word, than the host's budget.
    pub fn read(path: impl Into<PathBuf>, memory: &Budget) -> Result<Self> {
        let path = path.into();
        let text = text(&path, memory, |_| ID)?;
        Ok(Self { path, text })
    }

    /// Finds the listed ones among samples with these ids and families.
    ///
    /// # Errors
    /// [`Error::Store`] with the number of the line for a header without a column `IID`, and for a line that lacks a column that
    /// the header names.
    pub fn find(&self, ids: &[String], families: Option<&[String]>) -> Result<Listed> {
        let is_spaced = |id: &&str| families.is_none() && id.contains(|c: char| c.is_ascii_whitespace());
        let spaced: HashSet<&str> = ids.iter().map(String::as_str).filter(is_spaced).collect();
        let refuse =
            |number: u64, why| Err(Error::store(self.path.display(), format!("line {number} {why}")));
        // The header is true if it names families.
        let (mut header, mut repeated) = (None, 0);
        let mut listed = HashMap::<[&str; 2], bool>::new();
        for (number, line) in (1..).zip(self.text.lines().map(str::trim_ascii)) {
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
            let sample = match (second.filter(|_| header != Some(false)), families) {
                _ if spaced.contains(line) => ["", line],
                (None, _) if header == Some(true) => {
                    return refuse(number, "has one column, and the header two");
                }
                (Some(id), Some(_)) => [first, id],
                (Some(id), None) => ["", id],
                (None, Some(_)) => ["0", first],
                (None, None) => ["", first],
            };
            repeated += u64::from(listed.insert(sample, false).is_some());
        }
        let rows = runs((0..).zip(ids).filter_map(|(row, id)| {
            let family = families.map_or(Some(""), |families| families.get(row).map(String::as_str))?;
            *listed.get_mut(&[family, id.as_str()])? = true;
            Some(row as u64)
        }));
        let absent = listed.values().filter(|found| !**found).count() as u64;
        Ok(Listed { rows, entries: listed.len() as u64, repeated, absent })
    }
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

/// A file that lists variants.
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
/// let listed = list.find(&[&source], &[0..3], Karyotype::HUMAN, &Cancel::default())?;
/// assert_eq!((listed.rows.as_slice(), listed.absent), (&[0..1, 2..3][..], 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct VariantList {
    path: PathBuf,
    text: String,
    kind: VariantListKind,
}

impl VariantList {
    /// Reads the file, as [`SampleList::read`] does.
    ///
    /// # Errors
    /// Fails as [`SampleList::read`] does; a place takes 256 bytes more.
    pub fn read(path: impl Into<PathBuf>, kind: VariantListKind, memory: &Budget) -> Result<Self> {
        let path = path.into();
        let takes_place = |word: &str| kind == VariantListKind::Ids && place(word).is_some();
        let text = text(&path, memory, |word| if takes_place(word) { ID + PLACE } else { ID })?;
        Ok(Self { path, text, kind })
    }

    /// Finds the listed ones among the variants of `sources`, appended in order, whose indices are in `among`: ranges in ascending order.
    /// Names of contigs are read for a `karyotype`.
    ///
    /// # Cost
    /// Reads each variant in `among` once, and no genotypes. Holds what [`read`](Self::read) counts, and 16 bytes for each run of listed
    /// variants.
    ///
    /// # Errors
    /// [`Error::Store`] with the number of the line for a region that is none; [`Error::Cancelled`]; fails as [`VariantReader::get`] does.
    pub fn find(
        &self,
        sources: &[&dyn VariantSource],
        among: &[Range<u64>],
        karyotype: Karyotype,
        cancel: &Cancel,
    ) -> Result<Listed> {
        let mut regions = Regions { karyotype, contigs: HashMap::new() };
        let is_ids = self.kind == VariantListKind::Ids;
        let entries = if is_ids { self.places(&mut regions) } else { self.regions(&mut regions)? };
        let words = if is_ids { self.text.as_str() } else { "" };
        let mut ids: HashMap<&str, bool> = words.split_ascii_whitespace().map(|id| (id, false)).collect();
        let mut reader = VariantReader::new(sources, !regions.contigs.is_empty());
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

    /// Adds the places among the words, and returns the number of words.
    fn places(&self, regions: &mut Regions) -> u64 {
        let mut words = 0;
        for word in self.text.split_ascii_whitespace() {
            words += 1;
            if let Some((contig, position)) = place(word) {
                regions.of(contig).insert(position, position);
            }
        }
        words
    }

    /// Adds the regions of a BED, and returns their number.
    fn regions(&self, regions: &mut Regions) -> Result<u64> {
        let mut entries = 0;
        for (number, line) in (1..).zip(self.text.lines()) {
            let mut columns = line.split_ascii_whitespace();
            let contig = columns.next().unwrap_or("#");
            if contig.starts_with('#') || ["track", "browser"].contains(&contig) {
                continue;
            }
            let mut bound = || columns.next().and_then(|text| text.parse::<u64>().ok());
            let before = u64::from(self.kind == VariantListKind::Bed0);
            let bounds = bound().and_then(|first| first.checked_add(before)).zip(bound());
            let Some((first, last)) = bounds.filter(|(first, last)| first <= last) else {
                let why = "is no region: it needs a contig, a start, and an end that is not before it";
                return Err(Error::store(self.path.display(), format_args!("line {number} {why}")));
            };
            let end = regions.of(contig).entry(first).or_default();
            *end = last.max(*end);
            entries += 1;
        }
        for ends in regions.contigs.values_mut() {
            let mut furthest = 0;
            for end in ends.values_mut() {
                furthest = furthest.max(*end);
                *end = furthest;
            }
        }
        Ok(entries)
    }
}

/// A contig's normalised name, and a position on it.
type Place<'a> = (&'a str, u64);

/// For each first position of regions, the last position of any region that starts there or before.
type Ends = BTreeMap<u64, u64>;

/// Regions of contigs, by normalised names.
struct Regions {
    karyotype: Karyotype,
    contigs: HashMap<String, Ends>,
}

impl Regions {
    /// Returns the regions of a contig, to which more can be added.
    fn of(&mut self, contig: &str) -> &mut Ends {
        self.contigs.entry(self.karyotype.normalized(contig).0).or_default()
    }

    /// Returns the place of a variant if a region holds it. `last` has the contig of the variant before, and its regions.
    fn place<'a>(
        &'a self,
        variant: &Variant,
        last: &mut (Arc<str>, Option<(&'a String, &'a Ends)>),
    ) -> Option<Place<'a>> {
        if self.contigs.is_empty() {
            return None;
        }
        if variant.contig != last.0 {
            let normal = self.karyotype.normalized(&variant.contig).0;
            *last = (Arc::clone(&variant.contig), self.contigs.get_key_value(&normal));
        }
        let (contig, ends) = last.1?;
        let (_, end) = ends.range(..=variant.position).next_back()?;
        (*end >= variant.position).then_some((contig, variant.position))
    }

    /// Returns the place that a word names, if it is one.
    fn named(&self, word: &str) -> Option<Place<'_>> {
        let (contig, position) = place(word)?;
        let (contig, _) = self.contigs.get_key_value(&self.karyotype.normalized(contig).0)?;
        Some((contig, position))
    }
}

/// Returns the contig and the position that a word such as `1:1000` names.
fn place(word: &str) -> Option<(&str, u64)> {
    let (contig, position) = word.rsplit_once(':')?;
    let is_number = position.bytes().all(|c| c.is_ascii_digit());
    Some((contig, position.parse().ok().filter(|_| is_number && !contig.is_empty())?))
}

/// Returns ascending numbers as ranges.
fn runs(rows: impl IntoIterator<Item = u64>) -> Vec<Range<u64>> {
    let mut runs = Vec::<Range<u64>>::new();
    rows.into_iter().for_each(|row| push(&mut runs, row));
    runs
}

fn push(runs: &mut Vec<Range<u64>>, row: u64) {
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
