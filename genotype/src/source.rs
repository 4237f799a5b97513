//! Genotype arrays as one matrix of variants by samples.

mod haplotypes;
mod samples;

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use teatime::{
    ChunkedArray, Error, Result, StoredType,
    stable_text::{StableText, fields},
    stream::{Convert, Plan, Selection, digest},
};

use super::of_ploidy::OfPloidy;

const OP: &str = "Genotypes::new";

/// The meaning of the elements of a genotype array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GenotypeKind {
    /// Alleles of each call, (variants, samples, ploidy): 0 reference, above 0 alternate, -1 missing, -2 padding.
    Calls {
        /// The number of alleles of a call.
        ploidy: u64,
    },
    /// Dosages of non-reference alleles of diploids, 0 to 2: (variants, samples), or (variants, samples, 1) of floating point. Negative
    /// integers are missing; in floating point, the array's missing value is, and NaN if [`Genotypes::nan_is_missing`] says so.
    Dosages,
    /// PLINK 1's packed calls of diploids, (variants, bytes): sample 4 b + j at bits 2 j and 2 j + 1 of byte b. A code is 0 for two copies
    /// of A1, the fifth column of the .bim, 1 for a missing call, 2 for one copy of each allele, and 3 for two copies of A2, the sixth.
    Plink,
}

impl StableText for GenotypeKind {
    fn stable_text(&self) -> String {
        match self {
            Self::Calls { ploidy } => fields("Calls", &[("ploidy", ploidy)]),
            Self::Dosages => "Dosages".into(),
            Self::Plink => "Plink".into(),
        }
    }
}

/// Genotype arrays of the same samples, with their variants appended in order, or a selection of their variants and samples.
#[derive(Clone, Debug)]
pub struct Genotypes {
    /// The arrays as they were given.
    stored: Vec<Arc<dyn ChunkedArray>>,
    /// The stored arrays as calls of one ploidy.
    arrays: Vec<Arc<dyn ChunkedArray>>,
    kind: GenotypeKind,
    rows: Arc<Selection>,
    /// The selection of the samples.
    columns: Arc<Selection>,
    /// The number of all samples of the stored arrays, which packed calls do not tell.
    stored_samples: u64,
    pub(crate) nan_is_missing: bool,
    pub(crate) bounded: bool,
    /// The allele that is counted; if none, all alleles but the reference are.
    allele: Option<u8>,
    /// True once a call with an allele above 1 was read; none if such calls are not watched for.
    pub(crate) further: Option<Arc<AtomicBool>>,
}

impl Genotypes {
    /// Appends arrays along variants: calls if they have three axes, dosages if they have two axes
    /// or are of floating point with a third axis of one element. Reads nothing.
    ///
    /// # Shapes
    /// Each of `arrays`: (variants, samples, ploidy), (variants, samples) or (variants, samples, 1).
    ///
    /// # Errors
    /// [`Error::Argument`] without an array; [`Error::Shape`] for other ranks, a ploidy of 0 or above 127, or arrays
    /// that differ in samples, ploidy or rank.
    pub fn new(arrays: Vec<Arc<dyn ChunkedArray>>) -> Result<Self> {
        let ploidy = |array: &Arc<dyn ChunkedArray>| array.shape().get(2).copied();
        let differ = |(a, b): (u64, u64)| a != b;
        if let Some(first) = arrays.first()
            && let Some(array) =
                arrays.iter().find(|array| ploidy(array).zip(ploidy(first)).is_some_and(differ))
        {
            let (shape, name) = (first.shape(), first.name());
            let expected = format!("the ploidy of {shape:?} in {name}, which must be that of all calls");
            return Err(Error::shape(OP, expected, format_args!("{:?} in {}", array.shape(), array.name())));
        }
        Self::of_any_ploidy(arrays)
    }

    /// Appends arrays as [`new`](Self::new) does, but also takes calls of different ploidies: calls of fewer alleles are padded with -2, as calls of
    /// a lower ploidy are within one array. [`with_ploidy`](Self::with_ploidy) chooses one ploidy. Reads nothing; arrays are padded as they are read.
    /// # Errors
    /// Fails as [`new`](Self::new) does, but not for the ploidy; with [`Error::Store`] for calls that need padding and are not signed integers.
    pub fn of_any_ploidy(arrays: Vec<Arc<dyn ChunkedArray>>) -> Result<Self> {
        let first = arrays.first().ok_or_else(|| Error::argument(OP, "arrays", "none given"))?;
        let refuse = |expected: String, array: &dyn ChunkedArray| {
            Err(Error::shape(OP, expected, format_args!("{:?} in {}", array.shape(), array.name())))
        };
        let (axes, samples) = (first.shape().len(), first.shape().get(1).copied().unwrap_or_default());
        for array in &arrays {
            if !matches!(*array.shape(), [_, _] | [_, _, 1..=127]) {
                let expected = "(variants, samples) or (variants, samples, ploidy of 1 to 127)";
                return refuse(expected.into(), &**array);
            }
            if array.shape().len() != axes || array.shape()[1] != samples {
                let expected = format!("the samples and axes of {:?} in {}", first.shape(), first.name());
                return refuse(expected, &**array);
            }
        }
        let floats = |array: &dyn ChunkedArray| {
            matches!(array.dtype(), StoredType::F16 | StoredType::F32 | StoredType::F64)
        };
        let are_dosages = axes == 3 && arrays.iter().all(|array| array.shape()[2] == 1 && floats(&**array));
        let widest = arrays.iter().filter_map(|array| array.shape().get(2).copied()).max();
        let Some(ploidy) = widest.filter(|_| !are_dosages) else {
            return Ok(Self::from_arrays(arrays, GenotypeKind::Dosages, samples));
        };
        let filled = arrays.iter().map(|array| OfPloidy::filled(array, ploidy)).collect::<Result<_>>()?;
        Ok(Self { arrays: filled, ..Self::from_arrays(arrays, GenotypeKind::Calls { ploidy }, samples) })
    }

    /// Appends arrays of PLINK 1's packed calls, as [`BedFile::array`](crate::bed::BedFile::array) returns them, along variants. Reads nothing.
    ///
    /// Each array is of `u8`, (variants, a fourth of `samples`, rounded up). The bits of a row's last byte beyond `samples`
    /// may have any value. Dosages are copies of A1, or copies of A2 after [`count_allele`](Self::count_allele) of 0.
    ///
    /// # Errors
    /// [`Error::Argument`] without an array or a sample; [`Error::Shape`] for an array of another shape or type.
    pub fn plink(arrays: Vec<Arc<dyn ChunkedArray>>, samples: u64) -> Result<Self> {
        let op = "Genotypes::plink";
        if arrays.is_empty() {
            return Err(Error::argument(op, "arrays", "none given"));
        }
        if samples == 0 {
            return Err(Error::argument(op, "samples", "0; at least one is needed"));
        }
        for array in &arrays {
            let (shape, dtype) = (array.shape(), array.dtype());
            if dtype != StoredType::U8 || shape.len() != 2 || shape[1] != samples.div_ceil(4) {
                let bytes = samples.div_ceil(4);
                let expected = format!("U8 [variants, {bytes}] for {samples} samples, four a byte");
                let got = format_args!("{dtype:?} {shape:?} in {}", array.name());
                return Err(Error::shape(op, expected, got));
            }
        }
        Ok(Self::from_arrays(arrays, GenotypeKind::Plink, samples))
    }

    fn from_arrays(arrays: Vec<Arc<dyn ChunkedArray>>, kind: GenotypeKind, samples: u64) -> Self {
        let rows = Arc::new(Selection::all(total(&arrays)));
        let columns = Arc::new(Selection::all(samples));
        let stored = arrays.clone();
        Self {
            stored,
            arrays,
            kind,
            rows,
            columns,
            stored_samples: samples,
            nan_is_missing: false,
            bounded: false,
            allele: None,
            further: None,
        }
    }

    /// Treats all calls as calls of one ploidy. Calls of another number of alleles become missing, whether they are padded with -2
    /// in a wider array or are in an array of another ploidy. Haploid calls among diploid ones stay, and count twice. Reads nothing.
    ///
    /// [`call_ploidies`](super::call_ploidies) says how many calls become missing.
    ///
    /// # Errors
    /// [`Error::Argument`] for a ploidy of 0 or above that of the arrays, and for genotypes that
    /// are not calls; [`Error::Store`] for calls that are not signed integers.
    pub fn with_ploidy(self, ploidy: u64) -> Result<Self> {
        let why = match self.kind {
            // This includes haplotypes, whose stored calls may have more alleles.
            GenotypeKind::Calls { ploidy: 1 } if ploidy == 1 => return Ok(self),
            GenotypeKind::Calls { ploidy: most } if (1..=most).contains(&ploidy) => None,
            GenotypeKind::Calls { ploidy: most } => Some(format!("{ploidy} is not between 1 and {most}")),
            _ => Some("only calls have one".to_owned()),
        };
        if let Some(why) = why {
            return Err(Error::argument("Genotypes::with_ploidy", "ploidy", why));
        }
        let arrays =
            self.stored.iter().map(|array| OfPloidy::fitting(array, ploidy)).collect::<Result<_>>()?;
        Ok(Self { arrays, kind: GenotypeKind::Calls { ploidy }, ..self })
    }

    /// Returns true if calls were padded, or become missing if they are of another ploidy.
    fn is_fitted(&self) -> bool {
        self.kind != GenotypeKind::Plink
            && self.stored.iter().zip(&self.arrays).any(|(stored, array)| !Arc::ptr_eq(stored, array))
    }

    /// Selects only the variants in `rows`, which are counted over all arrays; replaces any earlier selection. The ranges are in ascending order
    /// and do not overlap. Chunks without a selected variant are not read, and results equal those of arrays with only the selected variants.
    ///
    /// Takes 16 bytes of memory for each run of neighbouring rows.
    ///
    /// # Errors
    /// [`Error::Argument`] for ranges that are not in order, overlap, or end beyond the last row.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use teatime::store::MemoryArray;
    /// use teatime_genotype::Genotypes;
    ///
    /// let array = MemoryArray::new("dosages", &[0i8, 1, 2, 2, 1, 0], &[3, 2], &[1, 2])?;
    /// let genotypes = Genotypes::new(vec![Arc::new(array)])?.select([0..1, 2..3])?.select_samples([1..2])?;
    /// assert_eq!((genotypes.variants(), genotypes.samples()), (2, 1));
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn select(self, rows: impl IntoIterator<Item = Range<u64>>) -> Result<Self> {
        let rows = Selection::new("Genotypes::select", "rows", rows, total(&self.arrays))?;
        Ok(Self { rows: Arc::new(rows), ..self })
    }

    /// Selects some of the selected variants, by their indices among these: ranges in ascending order that do not overlap.
    pub(crate) fn part(&self, variants: impl IntoIterator<Item = Range<u64>>) -> Result<Self> {
        self.clone().select(variants.into_iter().flat_map(|numbers| self.rows.places(numbers)))
    }

    /// Returns a description that is the same for the same variants and samples of arrays of the same shapes and types, read with the same settings.
    pub(crate) fn words(&self) -> String {
        let ranges = self.rows.ranges().chain(self.columns.ranges());
        let selected = ranges.flat_map(|range| [range.start, range.end]);
        let of_array = |array: &Arc<dyn ChunkedArray>| {
            let extents: Vec<u64> = array.shape().to_vec();
            extents.into_iter().chain([array.dtype() as u64])
        };
        let arrays = self.arrays.iter().flat_map(of_array);
        let numbers =
            selected.chain(arrays).fold(self.rows.len(), |state, n| digest(state, &n.to_le_bytes()));
        let kind = match self.kind {
            GenotypeKind::Calls { ploidy } => {
                let allele = self.allele.map(|allele| format!(", copies of allele {allele}"));
                format!("calls of ploidy {ploidy}{}", allele.unwrap_or_default())
            }
            GenotypeKind::Dosages => "dosages".into(),
            GenotypeKind::Plink if self.allele == Some(0) => "calls of a .bed, A2 counted".into(),
            GenotypeKind::Plink => "calls of a .bed, A1 counted".into(),
        };
        // With `with_ploidy`, calls of other ploidies are missing.
        let ploidy = if self.is_fitted() { ", others missing" } else { "" };
        let nan = if self.nan_is_missing { ", NaN missing" } else { "" };
        format!("{kind}{ploidy}{nan}, selection and arrays {numbers:016x}")
    }

    /// Treats NaN in dosages as missing; otherwise NaN is an error, since it is more often a fault.
    #[must_use]
    pub fn nan_is_missing(self, yes: bool) -> Self {
        Self { nan_is_missing: yes, ..self }
    }

    /// Says that no dosage is above 2: a dosage that is becomes an error, whatever the scaler.
    ///
    /// [`Scaler::Patterson`](super::Scaler::Patterson) and [`Scaler::Binom2`](super::Scaler::Binom2) imply
    /// this. With other scalers, whole dosages then take two bits instead of eight, and products are exact.
    #[must_use]
    pub fn dosages_are_bounded(self, yes: bool) -> Self {
        Self { bounded: yes, ..self }
    }

    /// Returns the arrays, in order.
    pub fn arrays(&self) -> &[Arc<dyn ChunkedArray>] {
        &self.arrays
    }

    /// Returns the meaning of the elements.
    pub fn kind(&self) -> GenotypeKind {
        self.kind
    }

    /// Returns the number of samples: of all samples, or of the selected ones.
    pub fn samples(&self) -> u64 {
        self.columns.len()
    }

    /// Returns the number of variants: of all arrays, or of the selected ones.
    pub fn variants(&self) -> u64 {
        self.rows.len()
    }

    /// Returns the selected rows, counted over all arrays: ranges in ascending order.
    pub fn selected(&self) -> impl Iterator<Item = Range<u64>> {
        self.rows.ranges()
    }

    /// Plans passes over the selected rows and samples, in blocks of `rows` rows.
    pub(crate) fn plan(&self, convert: Arc<dyn Convert>, rows: u64) -> Result<Plan> {
        // A column of packed calls is not a sample.
        let columns = (self.kind != GenotypeKind::Plink).then(|| Arc::clone(&self.columns));
        Plan::of_rows(self.arrays.clone(), Arc::clone(&self.rows), columns, convert, rows)
    }

    /// Returns a copy in which dosages are said to be at most 2, if they are already or if `yes` is true.
    pub(crate) fn bounded_if(&self, yes: bool) -> Self {
        Self { bounded: self.bounded || yes, ..self.clone() }
    }

    /// Returns the allele whose copies are the dosage. For a .bed, it is 1 for A1 and 0 for A2; for calls it is the allele
    /// of [`count_allele`](Self::count_allele), or none if all but the reference are counted. For dosages there is none.
    pub fn counted_allele(&self) -> Option<u8> {
        match self.kind {
            GenotypeKind::Plink => Some(self.allele.unwrap_or(1)),
            _ => self.allele,
        }
    }

    /// Returns a copy that notes if calls with an allele above 1 are read, provided that all alleles but the reference are counted.
    pub(crate) fn watched(self) -> Self {
        let calls = matches!(self.kind, GenotypeKind::Calls { .. }) && self.allele.is_none();
        Self { further: calls.then(Arc::default), ..self }
    }

    /// Returns true once a call with an allele above 1 was read since [`watched`](Self::watched) was called.
    pub(crate) fn has_further_alleles(&self) -> bool {
        self.further.as_ref().is_some_and(|further| further.load(Relaxed))
    }

    /// Returns the number of alleles of a call.
    pub fn ploidy(&self) -> u64 {
        match self.kind {
            GenotypeKind::Calls { ploidy } => ploidy,
            GenotypeKind::Dosages | GenotypeKind::Plink => 2,
        }
    }
}

fn total(arrays: &[Arc<dyn ChunkedArray>]) -> u64 {
    arrays.iter().map(|array| array.shape()[0]).sum()
}

pub(crate) fn check_extents(op: &'static str, genotypes: &Genotypes) -> Result<()> {
    let (samples, variants) = (genotypes.samples(), genotypes.variants());
    if samples == 0 || variants == 0 {
        let why = format!("{variants} variants of {samples} samples");
        return Err(Error::argument(op, "genotypes", why));
    }
    Ok(())
}

/// The path of an array of names in a store, its axis, and the names.
pub(crate) type Names<'a, S> = (&'a str, &'a str, &'a [S]);

pub(crate) fn check_names(op: &'static str, samples: &[impl AsRef<str>], n: usize) -> Result<()> {
    if samples.len() != n {
        return Err(Error::argument(op, "samples", format_args!("{} names for {n}", samples.len())));
    }
    Ok(())
}
