//! A .bed with the tables of its samples and variants.

use std::{
    ffi::OsString,
    fs::File,
    io::Read,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use teatime::{
    ChunkedArray, Error, Result,
    store::{local_path, redacted},
};

use super::{
    array::{BedArray, HEADER, Order},
    text::{self, Bim, Sample},
};
use crate::{Genotypes, Variant, VariantSource};

/// The bytes that every PLINK 1 .bed starts with.
const MAGIC: [u8; 2] = [0x6c, 0x1b];

/// The paths of the files that belong to a .bed.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct BedOptions {
    /// The table of variants, if it is not the .bim next to the .bed.
    pub bim: Option<PathBuf>,
    /// The table of samples, if it is not the .fam next to the .bed.
    pub fam: Option<PathBuf>,
}

teatime::setters! {
    BedOptions {
        bim(impl Into<PathBuf>) = Some(bim.into()),
        fam(impl Into<PathBuf>) = Some(fam.into()),
    }
}

/// A PLINK 1 .bed, its samples (.fam) and its variants (.bim).
///
/// Variant-major files, which every PLINK since 1.07 writes, are read in chunks of about 1 MiB. Sample-major
/// files (`plink2 --export ind-major-bed`) give the same array: each chunk takes one short read of every
/// sample and is transposed, still in 2 bits, by the thread that reads it, see [`array`](Self::array).
///
/// ```
/// use teatime::{Device, Run};
/// use teatime_genotype::{DistanceOptions, VariantSource, bed::BedFile, distances};
/// # let folder = tempfile::tempdir()?;
/// # let path = |ending: &str| folder.path().join(format!("cohort.{ending}"));
/// # // Three bytes of header, and two variants of three samples in a byte each.
/// # std::fs::write(path("bed"), [0x6c, 0x1b, 0x01, 0b11_10_00, 0b11_00_01])?;
/// # std::fs::write(path("bim"), "1 v1 0 100 C A\n1 v2 0 200 T G\n")?;
/// # std::fs::write(path("fam"), "f a 0 0 0 -9\nf b 0 0 0 -9\nf c 0 0 0 -9\n")?;
/// # let path = path("bed");
/// let bed = BedFile::open(path)?;
/// assert_eq!((bed.n_variants(), bed.samples()[1].id.as_str()), (2, "b"));
/// // Copies of A1 are 2, 1, 0 at the first variant, and missing, 2, 0 at the second.
/// let distances = distances(&bed.genotypes()?, &Device::best()?, &DistanceOptions::default(), &Run::default())?;
/// // The distances are over one of two variants, and rescaled.
/// assert_eq!(distances.matrix.row(0)[1..], [f64::sqrt(2.0), f64::sqrt(8.0)]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BedFile {
    path: PathBuf,
    array: Arc<dyn ChunkedArray>,
    samples: Vec<Sample>,
    fam: PathBuf,
    bim: Bim,
}

impl BedFile {
    /// Opens `path`, or `path` with `.bed` appended if only that file exists: `data`, as for
    /// PLINK's `--bfile`, and `data.bed` mean the same file. Uses the default [`BedOptions`].
    ///
    /// # Errors
    /// Fails as [`open_with`](Self::open_with) does.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &BedOptions::default())
    }

    /// Opens `path` as [`open`](Self::open) does, with the tables that `options` name.
    ///
    /// Reads the whole .fam and .bim, and of the .bed only the first three bytes and the length. Keeps the names of the
    /// samples, and for the variants only the start of every 1,024th line and 16 bytes for each run of variants on one contig.
    ///
    /// # Errors
    /// [`Error::Io`] for a file that does not exist or cannot be read. [`Error::Store`] for a .bed without the header of one, or whose
    /// length does not match the variants of the .bim and the samples of the .fam, and for tables without a line. [`Error::Store`]
    /// with the number of the line for too few columns, negative positions, header or empty lines, and text that is not UTF-8.
    pub fn open_with(path: impl AsRef<Path>, options: &BedOptions) -> Result<Self> {
        let Some(path) = local_path(path.as_ref()) else {
            let why = "is remote: a .bed is read from disks alone; copy it and its tables, or convert it to VCF-Zarr";
            return Err(Error::store(redacted(&path.as_ref().to_string_lossy()), why));
        };
        let (path, stem) = names(&path);
        let beside = |extension: &str, other: &Option<PathBuf>| {
            other.clone().unwrap_or_else(|| appended(&stem, extension))
        };
        let file = text::open(&path)?;
        let order = order(&path, &file)?;
        let fam = beside(".fam", &options.fam);
        let samples = text::fam(&fam)?;
        let bim = Bim::open(&beside(".bim", &options.bim))?;
        if samples.is_empty() {
            return Err(Error::store(fam.display(), "has no samples"));
        }
        if bim.variants == 0 {
            return Err(Error::store(bim.path.display(), "has no variants"));
        }
        let shape = [bim.variants, samples.len() as u64];
        let expected = HEADER.saturating_add(match order {
            Order::Variants => shape[0].saturating_mul(shape[1].div_ceil(4)),
            Order::Samples => shape[1].saturating_mul(shape[0].div_ceil(4)),
        });
        let length = file.metadata().map_err(|source| Error::io(path.display(), source))?.len();
        if length != expected {
            let than = if length < expected { "too short" } else { "too long" };
            let (bim, fam) = (bim.path.display(), fam.display());
            let [variants, samples] = shape;
            let why = format!(
                "is {than}: it has {length} bytes, and the {variants} variants of {bim} and {samples} samples of \
                 {fam} take {expected}"
            );
            return Err(Error::store(path.display(), why));
        }
        let array = Arc::new(BedArray::new(path.display().to_string(), file, order, shape));
        Ok(Self { path, array, samples, fam, bim })
    }

    /// Returns the path of the .bed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the .bim.
    pub fn bim(&self) -> &Path {
        &self.bim.path
    }

    /// Returns the path of the .fam.
    pub fn fam(&self) -> &Path {
        &self.fam
    }

    /// Returns the packed calls as PLINK stores them: `u8`, (variants, a fourth of the samples, rounded up), in chunks of whole rows.
    /// [`GenotypeKind::Plink`](crate::GenotypeKind::Plink) says what each code means; sample 4 b + j is at bits 2 j and 2 j + 1 of byte b.
    ///
    /// Bits beyond the last sample are as the file has them. A chunk has about 1 MiB and is read with one positioned read, on the calling thread.
    ///
    /// A chunk of a sample-major file has 16,384 variants, if they take no more than 64 MiB, and takes one read of
    /// 4 KiB for each sample. Beyond 16,384 samples the reads get shorter. A pass that finds nothing in the page
    /// cache then reads the file samples / 16,384 times; plink2's `--make-bed` converts it to a variant-major file.
    pub fn array(&self) -> &Arc<dyn ChunkedArray> {
        &self.array
    }

    /// Returns the calls as [`Genotypes`] of this file alone. Dosages are copies of A1, or of A2 after
    /// [`count_allele`](Genotypes::count_allele) of 0. [`Genotypes::plink`] combines several files of the same samples.
    ///
    /// # Errors
    /// Fails as [`Genotypes::plink`] does, so not for a file that could be opened.
    pub fn genotypes(&self) -> Result<Genotypes> {
        Genotypes::plink(vec![Arc::clone(&self.array)], self.n_samples())
    }

    /// Returns the number of lines of the .fam.
    pub const fn n_samples(&self) -> u64 {
        self.samples.len() as u64
    }

    /// Returns the samples, in the order of the .fam; names may occur twice.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    fn read(&self, range: Range<u64>, positions: bool) -> Result<Vec<Variant>> {
        if range.start > range.end || range.end > self.n_variants() {
            let why = format!("{range:?} is not within the {} variants", self.n_variants());
            return Err(Error::argument("variants", "range", why));
        }
        self.bim.read(range, positions)
    }
}

/// A1 is the alternate and A2 the reference allele, whichever is counted. PLINK's unknown allele, `0`, becomes `.`, and the genetic position is
/// left out. Each call for variants opens the .bim again, and reads the range and at most 1,023 lines before it; contigs are kept.
impl VariantSource for BedFile {
    fn n_variants(&self) -> u64 {
        self.bim.variants
    }

    /// Returns the variants in `range`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a range beyond the end; [`Error::Store`] with the number of the line if any position
    /// of the .bim is not a number; [`Error::Io`] and [`Error::Store`] for a .bim that changed since it was opened.
    fn variants(&self, range: Range<u64>) -> Result<Vec<Variant>> {
        self.read(range, true)
    }

    fn variants_without_positions(&self, range: Range<u64>) -> Result<Vec<Variant>> {
        self.read(range, false)
    }

    fn contigs(&self, f: &mut dyn FnMut(&str, u64) -> Result<()>) -> Result<()> {
        self.bim.contigs().try_for_each(|(name, variants)| f(name, variants))
    }
}

/// Returns the path of the .bed that `path` means, and that path without the extension.
fn names(path: &Path) -> (PathBuf, PathBuf) {
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("bed")) {
        return (path.to_path_buf(), path.with_extension(""));
    }
    // A prefix may have dots of its own: `chr1.filtered` means `chr1.filtered.bed`.
    let bed = appended(path, ".bed");
    if path.is_file() && !bed.is_file() {
        return (path.to_path_buf(), path.with_extension(""));
    }
    (bed, path.to_path_buf())
}

pub(crate) fn appended(path: &Path, extension: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(extension);
    name.into()
}

fn order(path: &Path, file: &File) -> Result<Order> {
    let mut start = Vec::new();
    file.take(HEADER).read_to_end(&mut start).map_err(|source| Error::io(path.display(), source))?;
    let refuse = |why: String| Err(Error::store(path.display(), why));
    match *start {
        [] => refuse("is empty".into()),
        [a, b, ..] if [a, b] != MAGIC => {
            refuse(format!("starts with the bytes {a:02x} {b:02x}; a PLINK 1 .bed starts with 6c 1b"))
        }
        [_, _, 1] => Ok(Order::Variants),
        [_, _, 0] => Ok(Order::Samples),
        [_, _, mode] => refuse(format!(
            "is of mode {mode:#04x}; a .bed is of mode 1 (variant-major) or 0 (sample-major), a PLINK 2 .pgen of others"
        )),
        [..] => {
            refuse(format!("is too short: it has {} of the {HEADER} bytes that it starts with", start.len()))
        }
    }
}
