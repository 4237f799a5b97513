//! The writer of VCF-Zarr stores in Zarr version 2, with the chunks and codecs that bio2zarr uses.

use std::{
    collections::HashMap,
    ops::Range,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::{Value, json};
use teatime::{
    Error, Result, StoredType,
    store::{ArraySpec, ArrayWriter, Attributes, Compression, NewStore, Shuffle, ZarrFormat},
};

use crate::{SOURCE, Variant, to_usize};

/// The number of variants of one chunk, as in bio2zarr.
const CHUNK_VARIANTS: u64 = 1000;

/// The number of samples of one chunk of genotypes, as in bio2zarr.
const CHUNK_SAMPLES: usize = 10_000;

/// The names and sizes of the store that a [`VcfZarrWriter`] writes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VcfZarrHeader {
    /// The names of the samples.
    pub samples: Vec<String>,
    /// The names of the contigs.
    pub contigs: Vec<String>,
    /// The number of variants.
    pub variants: u64,
    /// The number of alleles of one call. Default 2.
    pub ploidy: usize,
    /// The maximum number of alleles of a variant, including the reference. Default 2.
    pub alleles: usize,
    /// The compression level of blosc, 0 to 9. Default 7, as in bio2zarr; level 1 is about four times faster.
    pub level: u8,
}

impl VcfZarrHeader {
    /// Makes a header for diploid, biallelic variants.
    pub const fn new(samples: Vec<String>, contigs: Vec<String>, variants: u64) -> Self {
        Self { samples, contigs, variants, ploidy: 2, alleles: 2, level: 7 }
    }
}

/// Writes a VCF-Zarr store chunk by chunk, from one thread or several. [`GenotypeStore`](super::GenotypeStore) has an example.
///
/// Everything is written to a hidden folder next to the store's path, which gets the store's name in
/// [`finish`](Self::finish): a store of that name is always whole. Dropping the writer before that removes the folder.
///
/// Arrays: `call_genotype`, `sample_id`, `contig_id`, `variant_contig`, `variant_position`, `variant_id` and
/// `variant_allele`, in chunks of 1000 variants and 10 000 samples, compressed by blosc with zstd.
#[derive(Debug)]
pub struct VcfZarrWriter {
    store: NewStore,
    arrays: Arrays,
    header: VcfZarrHeader,
    contigs: HashMap<String, i32>,
    written: Vec<AtomicBool>,
}

/// The arrays that have chunks along the variants.
#[derive(Debug)]
struct Arrays {
    genotype: ArrayWriter,
    contig: ArrayWriter,
    position: ArrayWriter,
    id: ArrayWriter,
    allele: ArrayWriter,
}

impl VcfZarrWriter {
    /// Starts a store at `path`, which must not exist.
    ///
    /// # Errors
    /// - [`Error::Argument`]: there are no variants, samples, contigs, ploidy or alleles, or too many of them to index; or the level is above 9.
    /// - [`Error::Store`]: `path` exists already.
    /// - [`Error::Io`]: the folder cannot be made or written.
    pub fn create(path: impl AsRef<Path>, header: VcfZarrHeader) -> Result<Self> {
        check(&header)?;
        let said = [("vcf_zarr_version", "0.5"), ("source", SOURCE)];
        let attributes: Attributes =
            said.map(|(name, value)| (name.to_owned(), value.into())).into_iter().collect();
        let store = NewStore::create(path, &attributes)?;
        let arrays = write_header(&store, &header)?;
        let contigs = header.contigs.iter().cloned().zip(0..).collect();
        let chunks = (0..header.variants.div_ceil(CHUNK_VARIANTS)).map(|_| AtomicBool::new(false));
        Ok(Self { store, arrays, header, contigs, written: chunks.collect() })
    }

    /// Returns the number of chunks to write.
    pub const fn n_chunks(&self) -> u64 {
        self.header.variants.div_ceil(CHUNK_VARIANTS)
    }

    /// Returns the range of the variants of one chunk.
    pub fn chunk_range(&self, chunk: u64) -> Range<u64> {
        let end = |chunk: u64| chunk.saturating_mul(CHUNK_VARIANTS).min(self.header.variants);
        end(chunk)..end(chunk.saturating_add(1))
    }

    /// Writes one chunk: its calls `[variants, samples, ploidy]` in C order, and its variants.
    ///
    /// Several threads may write different chunks at once. Takes memory for one chunk of genotypes at full size,
    /// at most 20 MB for diploids, and its compressed copy.
    ///
    /// # Errors
    /// - [`Error::Argument`]: the chunk does not exist or was written before, slices have wrong lengths,
    ///   a contig is not in the header, a position is above 2^31 - 1, or there are too many alleles.
    /// - [`Error::Io`]: the chunk cannot be written.
    pub fn write_chunk(&self, chunk: u64, genotypes: &[i8], variants: &[Variant]) -> Result<()> {
        let refuse = |name, why: String| Err(Error::argument("write_chunk", name, why));
        let range = self.chunk_range(chunk);
        let rows = to_usize(range.end - range.start);
        let samples = self.header.samples.len();
        let Some(written) = usize::try_from(chunk).ok().and_then(|chunk| self.written.get(chunk)) else {
            return refuse("chunk", format!("{chunk} of {}", self.n_chunks()));
        };
        if variants.len() != rows {
            return refuse("variants", format!("{} of {rows} variants", variants.len()));
        }
        if Some(genotypes.len()) != samples.checked_mul(self.header.ploidy).and_then(|n| n.checked_mul(rows))
        {
            let want = format!("{rows} variants x {samples} samples x {}", self.header.ploidy);
            return refuse("genotypes", format!("{} alleles for {want}", genotypes.len()));
        }
        self.write_variants(chunk, variants)?;
        self.write_genotypes(chunk, genotypes)?;
        if written.swap(true, Ordering::Relaxed) {
            return refuse("chunk", format!("{chunk} is written twice"));
        }
        Ok(())
    }

    /// Gives the store its final name, once every chunk is written.
    ///
    /// # Errors
    /// - [`Error::Argument`]: a chunk was not written.
    /// - [`Error::Io`]: something else took the name in the meantime.
    pub fn finish(self) -> Result<()> {
        if let Some(chunk) = self.written.iter().position(|written| !written.load(Ordering::Relaxed)) {
            return Err(Error::argument("finish", "chunk", format!("{chunk} was not written")));
        }
        self.store.finish()
    }

    fn write_variants(&self, chunk: u64, variants: &[Variant]) -> Result<()> {
        let refuse = |why: String| Error::argument("write_chunk", "variants", why);
        let (mut contigs, mut positions) = (Vec::new(), Vec::new());
        let mut alleles = Vec::with_capacity(variants.len() * self.header.alleles);
        for variant in variants {
            let no_contig = || refuse(format!("no contig `{}` in the header", variant.contig));
            contigs.push(*self.contigs.get(&*variant.contig).ok_or_else(no_contig)?);
            let position = i32::try_from(variant.position)
                .map_err(|_| refuse(format!("position {} is above 2^31 - 1", variant.position)))?;
            positions.push(position);
            let row = alleles.len() + self.header.alleles;
            alleles.push(variant.reference.as_str());
            alleles.extend(variant.alternate.split(','));
            if alleles.len() > row {
                return Err(refuse(format!("more than {} alleles at {position}", self.header.alleles)));
            }
            alleles.resize(row, "");
        }
        self.arrays.contig.write(&[chunk], &contigs)?;
        self.arrays.position.write(&[chunk], &positions)?;
        self.arrays.id.write_text(&[chunk], variants.iter().map(|v| v.id.as_str()))?;
        self.arrays.allele.write_text(&[chunk, 0], alleles)
    }

    fn write_genotypes(&self, chunk: u64, genotypes: &[i8]) -> Result<()> {
        let (samples, ploidy) = (self.header.samples.len(), self.header.ploidy);
        if samples <= CHUNK_SAMPLES {
            return self.arrays.genotype.write(&[chunk, 0, 0], genotypes);
        }
        for (column, first) in (0..).zip((0..samples).step_by(CHUNK_SAMPLES)) {
            let range = first * ploidy..samples.min(first + CHUNK_SAMPLES) * ploidy;
            let rows = genotypes.chunks_exact(samples * ploidy);
            let calls: Vec<i8> = rows.flat_map(|row| &row[range.clone()]).copied().collect();
            self.arrays.genotype.write(&[chunk, column, 0], &calls)?;
        }
        Ok(())
    }
}

/// Declares the arrays, and writes the names of samples and contigs.
fn write_header(store: &NewStore, header: &VcfZarrHeader) -> Result<Arrays> {
    let array = |name: &str, dtype: Option<StoredType>, axes: &[(&str, u64, u64)], fill: Value| {
        let extents = |extent: fn(&(&str, u64, u64)) -> u64| axes.iter().map(extent).collect::<Vec<u64>>();
        let mut spec = ArraySpec::new(dtype, &extents(|axis| axis.1), &extents(|axis| axis.2));
        let shuffle = if name == "call_genotype" { Shuffle::Bits } else { Shuffle::Bytes };
        spec.format = ZarrFormat::V2;
        spec.compression = Compression::Blosc { level: header.level, shuffle };
        spec.axes = axes.iter().map(|axis| axis.0.to_owned()).collect();
        spec.fill = fill;
        store.array(name, spec)
    };
    let (samples, contigs) = (header.samples.len() as u64, header.contigs.len() as u64);
    let variants = ("variants", header.variants, header.variants.min(CHUNK_VARIANTS));
    let in_chunks = ("samples", samples, samples.min(CHUNK_SAMPLES as u64));
    let whole = |name, n| (name, n, n);
    let ids = array("sample_id", None, &[in_chunks], json!(""))?;
    for (i, names) in (0..).zip(header.samples.chunks(CHUNK_SAMPLES)) {
        ids.write_text(&[i], names.iter().map(String::as_str))?;
    }
    let names = array("contig_id", None, &[whole("contigs", contigs)], json!(""))?;
    names.write_text(&[0], header.contigs.iter().map(String::as_str))?;
    let calls = [variants, in_chunks, whole("ploidy", header.ploidy as u64)];
    let alleles = [variants, whole("alleles", header.alleles as u64)];
    Ok(Arrays {
        genotype: array("call_genotype", Some(StoredType::I8), &calls, Value::Null)?,
        contig: array("variant_contig", Some(StoredType::I32), &[variants], Value::Null)?,
        position: array("variant_position", Some(StoredType::I32), &[variants], Value::Null)?,
        id: array("variant_id", None, &[variants], Value::Null)?,
        allele: array("variant_allele", None, &alleles, Value::Null)?,
    })
}

fn check(header: &VcfZarrHeader) -> Result<()> {
    let refuse = |why: &str| Err(Error::argument("create", "header", why));
    let counts = [header.samples.len(), header.contigs.len(), header.ploidy, header.alleles];
    if header.variants == 0 || counts.contains(&0) {
        return refuse("variants, samples, contigs, ploidy and alleles have to be at least 1");
    }
    // The largest chunks, of genotypes and of alleles, must stay below blosc's limit of 2 GiB.
    if header.ploidy > 64 || header.alleles > 1 << 10 || i32::try_from(header.contigs.len()).is_err() {
        return refuse("at most 64 alleles a call, 1024 a variant, and 2^31 - 1 contigs");
    }
    if header.level > 9 { refuse("`level` is above 9") } else { Ok(()) }
}
