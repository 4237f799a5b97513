//! Finding the genotypes, samples and variants of a store.

use std::{
    borrow::Cow, cmp::Ordering, collections::HashSet, io::ErrorKind::Unsupported, ops::Range, path::Path,
    sync::Arc,
};

use teatime::{
    Budget, ChunkedArray, Error, Hint, MissingChunk, Result, StoredType,
    store::{Folder, Node, Storage, StorageOptions, ZarrArray, join, local_path, open_storage, zip_archive},
};

use super::{
    columns::{NEVER, column},
    variants::{DoubtfulColumn, Layout, VariantTable},
};
use crate::{GenotypeKind, Variant, VariantSource};

/// The words of a [`Hint`] of `array`.
const NAME_IT: &str = "; name the array to use";

/// The maximum number of samples of a store; a store that claims more is taken for damaged.
const MAX_SAMPLES: u64 = 1 << 26;

/// The maximum number of variants of a store; it is more than the positions of a genome.
const MAX_VARIANTS: u64 = 1 << 34;

/// The genotypes of a Zarr store in any of the known layouts.
///
/// Recognises
/// - VCF-Zarr: `call_genotype`, `sample_id` and `variant_*` at the root;
/// - scikit-allel and `MalariaGEN`: `calldata/GT`, `variants/*` and `samples` at the root, or under one group
///   per contig. Groups are appended in natural order (`2` before `10`), and `samples` is in them or in a
///   group above. One of these groups can also be opened by itself; its `samples` may be in the parent group;
/// - a plain array of dosages `[variants, samples]` or calls `[variants, samples, ploidy]`: the
///   root itself, or the array that is named. Dosages may have a third axis of one element.
///
/// ```
/// use teatime::MissingChunk;
/// use teatime_genotype::{GenotypeStore, Genotypes, Variant, VariantSource, VcfZarrHeader, VcfZarrWriter};
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("cohort.vcz");
/// // A store of two variants of three diploid samples, in one chunk.
/// let samples = ["a", "b", "c"].map(String::from).to_vec();
/// let writer = VcfZarrWriter::create(&path, VcfZarrHeader::new(samples, vec!["1".into()], 2))?;
/// let variant = |position, id: &str| Variant {
///     contig: "1".into(),
///     position,
///     id: id.into(),
///     reference: "A".into(),
///     alternate: "C".into(),
/// };
/// let calls = [0, 0, 0, 1, 1, 1, /* the second variant */ 1, 1, 0, 1, 0, 0];
/// writer.write_chunk(0, &calls, &[variant(100, "v1"), variant(200, "v2")])?;
/// writer.finish()?;
///
/// let store = GenotypeStore::open(&path, None, MissingChunk::Error)?;
/// assert_eq!(store.sample_ids()?.as_deref(), Some(&["a", "b", "c"].map(String::from)[..]));
/// assert_eq!(store.variants(1..2)?[0].id, "v2");
/// // Functions such as `pca` take these.
/// assert_eq!(Genotypes::new(store.arrays().to_vec())?.ploidy(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct GenotypeStore {
    storage: Arc<dyn Storage>,
    arrays: Vec<Arc<dyn ChunkedArray>>,
    tables: Vec<VariantTable>,
    kind: GenotypeKind,
    variants: u64,
    samples: u64,
    memory: Budget,
}

impl GenotypeStore {
    /// Opens the store in the folder `store`, or in a zip archive or at a URL as of [`open_storage`]. Its genotypes are the array `array`,
    /// or if that is `None` the arrays that are found.
    ///
    /// Reads the metadata of the genotype arrays and no data. `missing` is the rule for their missing chunks. A missing chunk
    /// of sample names or variants is an error if the fill value cannot be valid there, as for names, positions and reference
    /// alleles. Otherwise it holds the fill value, since writers leave out the contig indices of a store of one contig
    /// ([`doubtful_columns`](Self::doubtful_columns) returns the columns whose missing chunks might have held something else).
    ///
    /// # Errors
    /// - [`Error::Store`]: `store` is not a store, has no genotypes, or has a contig group without genotypes; an array has a
    ///   wrong rank, data type or codec, or attributes that change its values in unsupported ways; arrays do not fit each other.
    /// - [`Error::Io`]: metadata cannot be read.
    pub fn open(store: impl AsRef<Path>, array: Option<&str>, missing: MissingChunk) -> Result<Self> {
        let is_archive = zip_archive(store.as_ref()).is_some();
        let Some(store) = &local_path(store.as_ref()).filter(|_| !is_archive) else {
            let storage = open_storage(store, &StorageOptions::default())?;
            return Self::open_in(storage, array, missing);
        };
        match std::fs::metadata(store) {
            Ok(folder) if folder.is_dir() => {}
            Ok(_) => {
                let why = "is a file; a Zarr store is a folder or a .zip, PLINK's calls are a .bed";
                return Err(Error::store(store.display(), why));
            }
            Err(source) => return Err(Error::io(store.display(), source)),
        }
        match above(store, array)? {
            Some((parent, array)) => Self::open_in(parent, Some(&array), missing),
            None => Self::open_in(Arc::new(Folder::new(&**store)), array, missing),
        }
    }

    /// Opens a store in any storage, as [`open`](Self::open) does.
    ///
    /// # Errors
    /// Fails as [`open`](Self::open) does.
    pub fn open_in(storage: Arc<dyn Storage>, array: Option<&str>, missing: MissingChunk) -> Result<Self> {
        let refuse = |why: String| Error::store(storage.place(""), why);
        let layouts = match array {
            Some(path) => vec![named(&*storage, path.trim_matches('/'))?],
            None => detect(&*storage)?,
        };
        let mut arrays: Vec<Arc<dyn ChunkedArray>> = Vec::new();
        let mut tables = Vec::new();
        let mut kind = None;
        let (mut variants, mut samples) = (0_u64, 0);
        for (path, layout) in layouts {
            let array = ZarrArray::open_in(&storage, &path, missing)?;
            let this = genotype_kind(&array)?;
            let (rows, columns) = (array.shape()[0], array.shape()[1]);
            let (before, columns_before) = kind.unwrap_or((this, columns));
            kind = together(before, this)
                .filter(|_| columns == columns_before)
                .map(|kind| (kind, columns_before));
            if kind.is_none() {
                let why = format!("its shape {:?} does not fit the arrays before it", array.shape());
                return Err(Error::store(array.name(), why));
            }
            samples = columns;
            variants = variants.saturating_add(rows);
            tables.push(VariantTable::new(&storage, layout, rows));
            arrays.push(Arc::new(array));
        }
        let (kind, _) = kind.ok_or_else(|| refuse("has no genotypes".into()))?;
        if variants > MAX_VARIANTS || samples > MAX_SAMPLES {
            let most = format!("at most {MAX_VARIANTS} and {MAX_SAMPLES} are believed");
            return Err(refuse(format!("claims {variants} variants and {samples} samples; {most}")));
        }
        Ok(Self { storage, arrays, tables, kind, variants, samples, memory: Budget::default() })
    }

    /// Bounds the memory that names and variants take: reading any of their columns may take half of the host's budget.
    #[must_use]
    pub fn with_memory(self, budget: &Budget) -> Self {
        Self { memory: *budget, ..self }
    }

    /// Returns the genotype arrays, to be appended along their first axis.
    pub fn arrays(&self) -> &[Arc<dyn ChunkedArray>] {
        &self.arrays
    }

    /// Returns the kind of the arrays' elements; for calls of several ploidies, the highest ploidy.
    pub const fn kind(&self) -> GenotypeKind {
        self.kind
    }

    /// Returns the number of samples, the same in every array.
    pub const fn n_samples(&self) -> u64 {
        self.samples
    }

    /// Returns the names of the samples, all different; `None` if the store has none, so that the
    /// samples cannot be identified. Names that are stored as integers become their digits.
    ///
    /// # Errors
    /// - [`Error::Budget`]: there are more names than memory allows, at about 256 bytes each.
    /// - [`Error::Store`]: names occur twice, are more or fewer than the samples, differ between contigs, or some contigs lack them.
    /// - [`Error::Chunk`] and [`Error::Io`]: names cannot be read.
    pub fn sample_ids(&self) -> Result<Option<Vec<String>>> {
        self.memory.fit_host(self.samples.saturating_mul(256))?;
        let mut ids: Option<(String, Vec<String>)> = None;
        let (mut read, mut nameless) = (HashSet::new(), None);
        for (table, array) in self.tables.iter().zip(&self.arrays) {
            let named = |path: String| {
                let column = column(&self.storage, &path, NEVER, &self.memory, self.samples)?;
                Ok::<_, Error>(column.map(|column| (path, column)))
            };
            let paths = table.layout.sample_paths().into_iter();
            let Some((path, column)) = paths.map(named).find_map(Result::transpose).transpose()? else {
                nameless = nameless.or(Some(array));
                continue;
            };
            if !read.insert(path.clone()) {
                continue;
            }
            let names: Vec<_> = column.strings().map(Cow::into_owned).collect();
            match &ids {
                None => ids = Some((path, names)),
                Some((first, ids)) => {
                    if let Some((a, b)) = ids.iter().zip(&names).find(|(a, b)| a != b) {
                        let why = format!("`{first}` has the sample `{a}` where `{path}` has `{b}`");
                        return Err(Error::store(self.storage.place(""), why));
                    }
                }
            }
        }
        let Some((path, ids)) = ids else { return Ok(None) };
        if let Some(array) = nameless {
            let why = format!("has no names of its samples, as other contigs have in `{path}`");
            return Err(Error::store(array.name(), why));
        }
        let mut seen = HashSet::new();
        match ids.iter().find(|id| !seen.insert(id.as_str())) {
            Some(twice) => {
                let why = format!("the sample `{twice}` occurs more than once");
                Err(Error::store(self.storage.place(&path), why))
            }
            None => Ok(Some(ids)),
        }
    }

    /// Returns the columns of contigs, names and alleles that were read so far and had missing
    /// chunks, which were taken to hold the fill value though they might have held something else.
    pub fn doubtful_columns(&self) -> Vec<DoubtfulColumn> {
        self.tables.iter().flat_map(VariantTable::doubtful).collect()
    }

    /// Frees the columns that are kept for the next range of [`variants`](VariantSource::variants).
    pub fn forget_variants(&self) {
        self.tables.iter().for_each(VariantTable::forget);
    }
}

impl VariantSource for GenotypeStore {
    fn n_variants(&self) -> u64 {
        self.variants
    }

    /// Gives `f` the contigs of the variants, `.` if the store has none. Reads their column, and if chunks are missing that of positions.
    fn contigs(&self, f: &mut dyn FnMut(&str, u64) -> Result<()>) -> Result<()> {
        self.tables.iter().try_for_each(|table| table.contigs(&self.memory, f))
    }

    /// Returns the contigs that a VCF-Zarr store names, with or without variants, and their lengths in bases if the store has them
    /// (`contig_length`) and they can be read. Other layouts name only the contigs of their variants.
    fn named_contigs(&self) -> Result<Vec<(String, Option<u64>)>> {
        let tables = self.tables.iter().map(|table| table.named_contigs(&self.memory));
        Ok(tables.collect::<Result<Vec<_>>>()?.concat())
    }

    /// Returns the position of a variant, counted over all arrays, or an [`Error::Store`] without positions. Reads their column alone.
    fn position(&self, variant: u64) -> Result<u64> {
        let mut row = variant;
        for (array, table) in self.arrays.iter().zip(&self.tables) {
            match row.checked_sub(array.shape()[0]) {
                Some(beyond) => row = beyond,
                None => return table.position(row, &self.memory),
            }
        }
        let why = format!("{variant} is not one of the {} variants", self.variants);
        Err(Error::argument("position", "variant", why))
    }

    /// Returns the variants in `range`, counted over all arrays together.
    ///
    /// Reads the columns of an array whole, and keeps them until its last variant is read or they are
    /// [forgotten](Self::forget_variants), so that ranges in order read them once. The returned variants take additional memory.
    ///
    /// # Errors
    /// - [`Error::Argument`]: the range ends beyond the last variant.
    /// - [`Error::Budget`]: a column takes more memory than it may.
    /// - [`Error::Store`]: columns are absent, of an unsupported type, or do not fit the genotypes.
    /// - [`Error::Chunk`] and [`Error::Io`]: columns cannot be read.
    fn variants(&self, range: Range<u64>) -> Result<Vec<Variant>> {
        if range.start > range.end || range.end > self.variants {
            let why = format!("{range:?} is not within the {} variants", self.variants);
            return Err(Error::argument("variants", "range", why));
        }
        let mut out = Vec::new();
        let mut start = 0;
        for (array, table) in self.arrays.iter().zip(&self.tables) {
            let end = start + array.shape()[0];
            let (from, to) = (range.start.max(start), range.end.min(end));
            if from < to {
                out.extend(table.read(from - start..to - start, &self.memory)?);
            }
            start = end;
        }
        Ok(out)
    }
}

/// Returns the storage of the parent group of `store`, and the path of the genotypes within it, if
/// `store` is a group of scikit-allel's layout without names of samples, and the parent has them.
fn above(store: &Path, array: Option<&str>) -> Result<Option<(Arc<dyn Storage>, String)>> {
    let array = array.map_or("calldata/GT", |path| path.trim_matches('/'));
    // A path such as `.` has no name of its own.
    let whole = if store.file_name().is_some() { Ok(store.to_path_buf()) } else { store.canonicalize() };
    let (Ok(whole), Some("calldata")) = (whole, array.rsplit_once('/').map(|(group, _)| group)) else {
        return Ok(None);
    };
    let (Some(parent), Some(name)) = (whole.parent(), whole.file_name().and_then(|name| name.to_str()))
    else {
        return Ok(None);
    };
    let (own, parent) = (Folder::new(store), Folder::new(parent));
    let is = |storage: &Folder, path: &str, node| Ok::<_, Error>(Node::at(storage, path)? == node);
    if is(&own, "samples", Node::Array)? || !is(&own, array, Node::Array)? || !is(&own, "", Node::Group)? {
        return Ok(None);
    }
    // Anything else in the parent folder does not concern this store.
    let has_names = is(&parent, "", Node::Group).unwrap_or(false) && is(&parent, "samples", Node::Array)?;
    Ok(has_names.then(|| (Arc::new(parent) as Arc<dyn Storage>, join(name, array))))
}

/// Returns the common kind of two arrays; none if they cannot be combined.
fn together(one: GenotypeKind, other: GenotypeKind) -> Option<GenotypeKind> {
    match (one, other) {
        (GenotypeKind::Calls { ploidy: a }, GenotypeKind::Calls { ploidy: b }) => {
            Some(GenotypeKind::Calls { ploidy: a.max(b) })
        }
        _ => (one == other).then_some(one),
    }
}

/// Determines the kind of an array from its rank, data type and axis names.
fn genotype_kind(array: &ZarrArray) -> Result<GenotypeKind> {
    let refuse = |why: String| Err(Error::store(array.name(), why));
    if array.dimension_names().first().is_some_and(|axis| axis == "samples") {
        return refuse(format!("its axes are {:?}; variants have to come first", array.dimension_names()));
    }
    let floats = matches!(array.dtype(), StoredType::F16 | StoredType::F32 | StoredType::F64);
    match *array.shape() {
        // An example is a VCF field with a number for each alternate allele, if there is one such allele.
        [_, _, 1] if floats => Ok(GenotypeKind::Dosages),
        // Calls mark missing alleles by values of their own.
        [_, _, _] if array.missing_value().is_some_and(|value| value.is_nan() || value >= 0.0) => {
            refuse("its attribute `_FillValue` is an allele; calls that are missing are -1".into())
        }
        [_, _] if array.dtype() == StoredType::Bool => refuse("holds booleans, not dosages".into()),
        [_, _] => Ok(GenotypeKind::Dosages),
        [_, _, 0] => refuse("its calls have no alleles".into()),
        [_, _, _] if floats || array.dtype() == StoredType::Bool => {
            let (dtype, shape) = (array.dtype(), array.shape());
            refuse(format!(
                "holds {dtype:?} of the shape {shape:?}; calls are integers, and dosages have one number a sample"
            ))
        }
        [_, _, ploidy] => Ok(GenotypeKind::Calls { ploidy }),
        _ => refuse(format!("has {} axes; dosages have 2 and calls 3", array.shape().len())),
    }
}

/// Returns `path`, and the layout that describes the variants of the array there.
fn named(storage: &dyn Storage, path: &str) -> Result<(String, Layout)> {
    let group = path.rsplit_once('/').map_or("", |(group, _)| group);
    if let Some(parent) = group.strip_suffix("calldata") {
        return Ok((path.to_owned(), Layout::Allel(parent.trim_end_matches('/').to_owned())));
    }
    for name in ["sample_id", "variant_position"] {
        if !path.is_empty() && Node::at(storage, &join(group, name))? == Node::Array {
            return Ok((path.to_owned(), Layout::Vcf(group.to_owned())));
        }
    }
    Ok((path.to_owned(), Layout::Plain))
}

/// Finds the genotype arrays of a store in one of the known layouts.
fn detect(storage: &dyn Storage) -> Result<Vec<(String, Layout)>> {
    let root = Node::at(storage, "")?;
    if root == Node::Array {
        return Ok(vec![(String::new(), Layout::Plain)]);
    }
    let is_array = |path: &str| Ok::<_, Error>(Node::at(storage, path)? == Node::Array);
    if is_array("call_genotype")? {
        return Ok(vec![("call_genotype".to_owned(), Layout::Vcf(String::new()))]);
    }
    if is_array("calldata/GT")? {
        return Ok(vec![("calldata/GT".to_owned(), Layout::Allel(String::new()))]);
    }
    let folders = match folders(storage) {
        // Nothing is there that could be named.
        Err(Error::Io { source, .. }) if source.kind() == Unsupported && root == Node::Absent => Vec::new(),
        folders => folders?,
    };
    if root == Node::Absent {
        let nested = folders.iter().find(|name| matches!(Node::at(storage, name), Ok(Node::Group)));
        if let Some(name) = nested {
            let why = format!("is a folder of stores, not a store; one of them is `{name}`");
            return Err(Error::store(storage.place(""), why));
        }
    }
    let mut contigs = Vec::new();
    let mut lost = None;
    for group in &folders {
        let path = join(group, "calldata/GT");
        if is_array(&path)? {
            contigs.push((path, Layout::Allel(group.clone())));
        } else if is_contig(storage, group) {
            lost.get_or_insert(path);
        }
    }
    match lost {
        Some(path) if !contigs.is_empty() => {
            let hint = Hint::new("array", NAME_IT).followed_by(" one of them alone");
            let why = "is not an array, as it is in other contigs";
            return Err(Error::store(storage.place(&path), why).hinting(hint));
        }
        _ if !contigs.is_empty() => return Ok(contigs),
        _ => {}
    }
    let names = Node::arrays(storage, "");
    if root == Node::Absent && names.is_empty() {
        let why = "is not a Zarr store: it has no zarr.json, .zgroup or .zarray";
        return Err(Error::store(storage.place(""), why));
    }
    let there = format!(" (arrays at its root: {})", names.join(", "));
    let hint = Hint::new("array", NAME_IT).followed_by(there);
    Err(Error::store(storage.place(""), "has neither `call_genotype` nor `calldata/GT`").hinting(hint))
}

/// Returns true if a group looks like a contig, or is a broken link that might be one.
fn is_contig(storage: &dyn Storage, group: &str) -> bool {
    let holds = |names: Vec<String>| names.iter().any(|name| name == "calldata" || name == "variants");
    storage.list(group).map_or(true, holds)
}

/// Returns the names of the entries of a store, in natural order.
fn folders(storage: &dyn Storage) -> Result<Vec<String>> {
    let fail = |source| Error::io(storage.place(""), source);
    let mut names = storage.list("").map_err(fail)?;
    names.sort_by(|a, b| natural(a, b));
    Ok(names)
}

/// Compares names in natural order, in which runs of digits compare as numbers.
fn natural(a: &str, b: &str) -> Ordering {
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).count();
    let (mut left, mut right) = (a, b);
    while let (Some(x), Some(y)) = (left.chars().next(), right.chars().next()) {
        let (m, n) = (digits(left), digits(right));
        let order = if m > 0 && n > 0 {
            let (p, q) = (left[..m].trim_start_matches('0'), right[..n].trim_start_matches('0'));
            (left, right) = (&left[m..], &right[n..]);
            p.len().cmp(&q.len()).then_with(|| p.cmp(q))
        } else {
            (left, right) = (&left[x.len_utf8()..], &right[y.len_utf8()..]);
            x.cmp(&y)
        };
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}
