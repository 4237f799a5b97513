//! Treating haplotypes as samples, and counting the copies of one allele.

use std::sync::Arc;

use teatime::{ArrayFacts, ChunkedArray, DecodedChunk, Error, FetchedChunk, Result, stream::Selection};

use super::{GenotypeKind, Genotypes};

impl Genotypes {
    /// Treats every haplotype as a sample: calls (variants, samples, k) become haploid calls, (variants, samples x k,
    /// 1). The haplotypes of sample i are the samples k i to k i + k - 1; if samples have names, theirs are the sample's
    /// name followed by `_1` to `_k`. A haplotype is missing if its own allele is. Selected samples stay selected.
    ///
    /// The order of alleles in a call is taken as that of haplotypes, which means nothing for calls that are not phased. In a call of fewer
    /// alleles than the array has room for, the remaining haplotypes are missing; to avoid this, call [`with_ploidy`](Self::with_ploidy) first.
    ///
    /// # Errors
    /// [`Error::Argument`] for dosages and PLINK's calls, which have none; [`Error::Store`] for the alleles of a call in several chunks.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use teatime::store::MemoryArray;
    /// use teatime_genotype::Genotypes;
    ///
    /// let array = MemoryArray::new("calls", &[0i8, 1, 2, -1, 1, 1, 0, 0], &[2, 2, 2], &[1, 2, 2])?;
    /// let haplotypes = Genotypes::new(vec![Arc::new(array)])?.haplotypes()?;
    /// assert_eq!((haplotypes.samples(), haplotypes.arrays()[0].shape()), (4, &[2, 4, 1][..]));
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn haplotypes(self) -> Result<Self> {
        let op = "Genotypes::haplotypes";
        let ploidy = self.calls_of(op, "haplotypes")?;
        let arrays = self.arrays.iter().map(|array| Haplotypes::wrap(array, ploidy));
        let arrays = arrays.collect::<Result<Vec<_>>>()?;
        let stored_haplotypes = arrays[0].shape()[1];
        let place = |sample: u64| sample.saturating_mul(ploidy);
        let ranges = self.columns.ranges().map(|range| place(range.start)..place(range.end));
        let columns = Arc::new(Selection::new(op, "samples", ranges, stored_haplotypes)?);
        let stored = if self.is_fitted() { self.stored } else { arrays.clone() };
        Ok(Self { stored, arrays, kind: GenotypeKind::Calls { ploidy: 1 }, columns, ..self })
    }

    /// Makes the copies of one allele the dosage of a call, instead of the copies of all alleles but the reference,
    /// which is allele 0. For PLINK's packed calls, A1 is allele 1, which is the default, and A2 is allele 0. A2 is
    /// the reference if plink2 wrote the files, so that both dosages equal those of the VCF that plink2 exports.
    ///
    /// # Errors
    /// [`Error::Argument`] for an allele above 127, or above 1 for PLINK's packed calls, and for dosages, which do not record alleles.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use teatime::{Device, Run, store::MemoryArray};
    /// use teatime_genotype::{DistanceOptions, Genotypes, distances};
    ///
    /// // One variant of three samples, with 0, 1 and 2 copies of allele 2.
    /// let array = MemoryArray::new("calls", &[0i8, 1, 0, 2, 2, 2], &[1, 3, 2], &[1, 3, 2])?;
    /// let genotypes = Genotypes::new(vec![Arc::new(array)])?.count_allele(2)?;
    /// let distances = distances(&genotypes, &Device::cpu(), &DistanceOptions::default(), &Run::default())?;
    /// assert_eq!(distances.matrix.row(0), [0.0, 1.0, 2.0]);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn count_allele(self, allele: u8) -> Result<Self> {
        let op = "Genotypes::count_allele";
        if self.kind == GenotypeKind::Plink && allele > 1 {
            let why =
                format_args!("{allele} of a .bed, whose alleles are 1, which is A1, and 0, which is A2");
            return Err(Error::argument(op, "allele", why));
        }
        if self.kind != GenotypeKind::Plink {
            self.calls_of(op, "alleles that are told apart")?;
        }
        if allele > 127 {
            return Err(Error::argument(op, "allele", format_args!("{allele} is above 127")));
        }
        Ok(Self { allele: Some(allele), ..self })
    }

    /// Returns the ploidy of the calls.
    fn calls_of(&self, op: &'static str, what: &str) -> Result<u64> {
        let kind = match self.kind {
            GenotypeKind::Calls { ploidy } => return Ok(ploidy),
            GenotypeKind::Dosages => "dosages",
            GenotypeKind::Plink => "the calls of a .bed",
        };
        let name = self.arrays.first().map_or("", |array| array.name());
        Err(Error::argument(op, "genotypes", format_args!("{name}: {kind} have no {what}")))
    }
}

/// The calls of an array as (variants, samples x ploidy, 1): the alleles of a call are those of consecutive samples. Chunks have the same bytes.
#[derive(Debug)]
struct Haplotypes {
    array: Arc<dyn ChunkedArray>,
    shape: [u64; 3],
    chunk_shape: [u64; 3],
}

impl Haplotypes {
    fn wrap(array: &Arc<dyn ChunkedArray>, ploidy: u64) -> Result<Arc<dyn ChunkedArray>> {
        let (shape, chunk) = (array.shape(), array.chunk_shape());
        if chunk[2] != ploidy {
            let why = format!(
                "calls of {ploidy} alleles in chunks of {} along the alleles; haplotypes need all alleles of a call, and no more, in \
                 one chunk",
                chunk[2]
            );
            return Err(Error::store(array.name(), why));
        }
        let folded = |extents: &[u64]| [extents[0], extents[1].saturating_mul(ploidy), 1];
        let (shape, chunk_shape) = (folded(shape), folded(chunk));
        Ok(Arc::new(Self { array: Arc::clone(array), shape, chunk_shape }))
    }
}

impl ChunkedArray for Haplotypes {
    fn facts(&self) -> ArrayFacts<'_> {
        ArrayFacts { shape: &self.shape, chunk_shape: &self.chunk_shape, ..self.array.facts() }
    }

    fn inner(&self) -> Option<&dyn ChunkedArray> {
        Some(&*self.array)
    }

    fn decode(&self, index: &[u64], fetched: FetchedChunk) -> Result<DecodedChunk> {
        self.array.decode(index, fetched)
    }
}
