//! Writing VCF-Zarr stores, version 2 of Zarr, with the chunks and codecs that bio2zarr uses.

use std::{
    collections::HashMap,
    ops::Range,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::{Value, json};
use zarrs::array::codec::{BloscCompressionLevel, BloscShuffleMode};

use crate::{
    Error, Result,
    genotype::Variant,
    store::zarr::{BITS, BYTES, Layout, SOURCE, StoreFolder},
};

/// Variants of one chunk, as bio2zarr chooses.
const CHUNK_VARIANTS: u64 = 1000;

/// Samples of one chunk of genotypes, as bio2zarr chooses.
const CHUNK_SAMPLES: usize = 10_000;

/// What a [`VcfZarrWriter`] is going to be given.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VcfZarrHeader {
    /// Names of the samples.
    pub samples: Vec<String>,
    /// Names of the contigs.
    pub contigs: Vec<String>,
    /// Number of variants.
    pub variants: u64,
    /// Alleles of one call. Default 2.
    pub ploidy: usize,
    /// Most alleles of a variant, the reference among them. Default 2.
    pub alleles: usize,
    /// Compression level of blosc, 0 to 9. Default 7, as bio2zarr's; 1 is about four times faster.
    pub level: u8,
}

impl VcfZarrHeader {
    /// A header for diploid, biallelic variants.
    pub const fn new(samples: Vec<String>, contigs: Vec<String>, variants: u64) -> Self {
        Self { samples, contigs, variants, ploidy: 2, alleles: 2, level: 7 }
    }
}

/// Writes a VCF-Zarr store chunk by chunk, from one thread or several.
///
/// Everything goes to a hidden folder beside the store's path, which takes its name in
/// [`finish`](Self::finish): what has the name is whole. Dropping the writer before that removes the folder.
///
/// Arrays: `call_genotype`, `sample_id`, `contig_id`, `variant_contig`, `variant_position`, `variant_id` and
/// `variant_allele`, in chunks of 1000 variants and 10 000 samples, compressed by blosc with zstd.
#[derive(Debug)]
pub struct VcfZarrWriter {
    folder: StoreFolder,
    header: VcfZarrHeader,
    contigs: HashMap<String, i32>,
    written: Vec<AtomicBool>,
}

impl VcfZarrWriter {
    /// Starts a store at `path`, which must not exist.
    ///
    /// # Errors
    /// - [`Error::Argument`]: no variants, samples, contigs, ploidy or alleles; too many to number; a level above 9.
    /// - [`Error::Store`]: `path` exists already.
    /// - [`Error::Io`]: the folder cannot be made or written.
    pub fn create(path: impl AsRef<Path>, header: VcfZarrHeader) -> Result<Self> {
        let path = path.as_ref();
        let level = check(&header)?;
        let folder = StoreFolder::create(path, level)?;
        let contigs = header.contigs.iter().cloned().zip(0..).collect();
        let chunks = (0..header.variants.div_ceil(CHUNK_VARIANTS)).map(|_| AtomicBool::new(false));
        let written = chunks.collect();
        let writer = Self { folder, header, contigs, written };
        writer.write_header()?;
        Ok(writer)
    }

    /// Number of chunks to write.
    pub const fn n_chunks(&self) -> u64 {
        self.header.variants.div_ceil(CHUNK_VARIANTS)
    }

    /// The variants of one chunk.
    pub fn chunk_range(&self, chunk: u64) -> Range<u64> {
        let end = |chunk: u64| chunk.saturating_mul(CHUNK_VARIANTS).min(self.header.variants);
        end(chunk)..end(chunk.saturating_add(1))
    }

    /// Writes one chunk: its calls `[variants, samples, ploidy]` in C order, and what its variants are.
    ///
    /// Several threads may write different chunks at once. Takes memory for one chunk of genotypes at full size,
    /// at most 20 MB for diploids, and its compressed copy.
    ///
    /// # Errors
    /// - [`Error::Argument`]: a chunk that does not exist or was written before, slices of wrong lengths, a contig
    ///   that the header does not name, a position above 2^31 - 1, or too many alleles.
    /// - [`Error::Io`]: the chunk cannot be written.
    pub fn write_chunk(&self, chunk: u64, genotypes: &[i8], variants: &[Variant]) -> Result<()> {
        let refuse = |name, why: String| Err(Error::argument("write_chunk", name, why));
        let range = self.chunk_range(chunk);
        let rows = usize_from(range.end - range.start)?;
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
        self.write_genotypes(chunk, genotypes, rows)?;
        if written.swap(true, Ordering::Relaxed) {
            return refuse("chunk", format!("{chunk} is written twice"));
        }
        Ok(())
    }

    /// Gives the store its name, once every chunk is written.
    ///
    /// # Errors
    /// - [`Error::Argument`]: chunks were left out.
    /// - [`Error::Io`]: the name was taken meanwhile.
    pub fn finish(self) -> Result<()> {
        if let Some(chunk) = self.written.iter().position(|written| !written.load(Ordering::Relaxed)) {
            return Err(Error::argument("finish", "chunk", format!("{chunk} was not written")));
        }
        self.folder.finish()
    }

    fn chunk_rows(&self) -> u64 {
        self.header.variants.min(CHUNK_VARIANTS)
    }

    fn chunk_samples(&self) -> usize {
        self.header.samples.len().min(CHUNK_SAMPLES)
    }

    fn write_header(&self) -> Result<()> {
        let header = &self.header;
        self.folder.root(&json!({ "vcf_zarr_version": "0.5", "source": SOURCE }))?;

        let (n, rows, text) = (header.variants, self.chunk_rows(), json!(""));
        let (samples, contigs) = (header.samples.len() as u64, header.contigs.len() as u64);
        let array = |name, dtype, shape: &[u64], chunks: &[u64], axes: &[&str], fill| {
            let shuffle = if name == "call_genotype" { BITS } else { BYTES };
            self.folder.declare(&Layout { name, dtype, shape, chunks, axes, fill, shuffle })
        };
        let ploidy = header.ploidy as u64;
        let chunks = [rows, self.chunk_samples() as u64, ploidy];
        let axes = ["variants", "samples", "ploidy"];
        array("call_genotype", "|i1", &[n, samples, ploidy], &chunks, &axes, Value::Null)?;
        array("sample_id", "|O", &[samples], &[chunks[1]], &["samples"], text.clone())?;
        array("contig_id", "|O", &[contigs], &[contigs], &["contigs"], text)?;
        array("variant_contig", "<i4", &[n], &[rows], &["variants"], Value::Null)?;
        array("variant_position", "<i4", &[n], &[rows], &["variants"], Value::Null)?;
        array("variant_id", "|O", &[n], &[rows], &["variants"], Value::Null)?;
        let alleles = header.alleles as u64;
        array(
            "variant_allele",
            "|O",
            &[n, alleles],
            &[rows, alleles],
            &["variants", "alleles"],
            Value::Null,
        )?;

        for (i, names) in header.samples.chunks(self.chunk_samples()).enumerate() {
            self.folder.put_text(
                &format!("sample_id/{i}"),
                names.iter().map(String::as_str),
                self.chunk_samples(),
            )?;
        }
        self.folder.put_text("contig_id/0", header.contigs.iter().map(String::as_str), header.contigs.len())
    }

    fn write_variants(&self, chunk: u64, variants: &[Variant]) -> Result<()> {
        let refuse = |why: String| Error::argument("write_chunk", "variants", why);
        let rows = usize_from(self.chunk_rows())?;
        let mut contigs = Vec::with_capacity(rows * 4);
        let mut positions = Vec::with_capacity(rows * 4);
        let mut alleles = Vec::with_capacity(rows * self.header.alleles);
        for variant in variants {
            let contig = self.contigs.get(&*variant.contig);
            let contig =
                contig.ok_or_else(|| refuse(format!("no contig `{}` in the header", variant.contig)))?;
            let position = i32::try_from(variant.position)
                .map_err(|_| refuse(format!("position {} is above 2^31 - 1", variant.position)))?;
            contigs.extend_from_slice(&contig.to_le_bytes());
            positions.extend_from_slice(&position.to_le_bytes());
            let row = alleles.len() + self.header.alleles;
            alleles.push(variant.reference.as_str());
            alleles.extend(variant.alternate.split(','));
            if alleles.len() > row {
                return Err(refuse(format!("more than {} alleles at {position}", self.header.alleles)));
            }
            alleles.resize(row, "");
        }
        // An edge chunk is stored at full size.
        contigs.resize(rows * 4, 0);
        positions.resize(rows * 4, 0);
        self.folder.put_blosc(&format!("variant_contig/{chunk}"), &contigs, BloscShuffleMode::Shuffle, 4)?;
        self.folder.put_blosc(
            &format!("variant_position/{chunk}"),
            &positions,
            BloscShuffleMode::Shuffle,
            4,
        )?;
        self.folder.put_text(&format!("variant_id/{chunk}"), variants.iter().map(|v| v.id.as_str()), rows)?;
        self.folder.put_text(
            &format!("variant_allele/{chunk}.0"),
            alleles.into_iter(),
            rows * self.header.alleles,
        )
    }

    fn write_genotypes(&self, chunk: u64, genotypes: &[i8], rows: usize) -> Result<()> {
        let (samples, ploidy) = (self.header.samples.len(), self.header.ploidy);
        let (full_rows, width) = (usize_from(self.chunk_rows())?, self.chunk_samples());
        let put = |column: usize, bytes: &[u8]| {
            self.folder.put_blosc(
                &format!("call_genotype/{chunk}.{column}.0"),
                bytes,
                BloscShuffleMode::BitShuffle,
                1,
            )
        };
        let bytes: &[u8] = bytemuck::cast_slice(genotypes);
        if rows == full_rows && width == samples {
            return put(0, bytes);
        }
        let mut buffer = vec![0; full_rows * width * ploidy];
        for column in 0..samples.div_ceil(width) {
            let first = column * width;
            let used = width.min(samples - first) * ploidy;
            let lines = buffer.chunks_exact_mut(width * ploidy).zip(bytes.chunks_exact(samples * ploidy));
            for (line, row) in lines {
                line[..used].copy_from_slice(&row[first * ploidy..first * ploidy + used]);
                line[used..].fill(0);
            }
            put(column, &buffer)?;
        }
        Ok(())
    }
}

fn usize_from(n: u64) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::Limit { what: "variants", requested: n, max: usize::MAX as u64 })
}

/// Checks the header; gives its compression level.
fn check(header: &VcfZarrHeader) -> Result<BloscCompressionLevel> {
    let refuse = |why: &str| Err(Error::argument("create", "header", why));
    let counts = [header.samples.len(), header.contigs.len(), header.ploidy, header.alleles];
    if header.variants == 0 || counts.contains(&0) {
        return refuse("variants, samples, contigs, ploidy and alleles have to be at least 1");
    }
    // The largest chunks, of genotypes and of alleles, have to stay below the 2 GiB of blosc.
    if header.ploidy > 64 || header.alleles > 1 << 10 || i32::try_from(header.contigs.len()).is_err() {
        return refuse("at most 64 alleles a call, 1024 a variant, and 2^31 - 1 contigs");
    }
    BloscCompressionLevel::try_from(header.level).or_else(|_| refuse("`level` is above 9"))
}
