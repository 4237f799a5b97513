//! The loadings of a reference, in the form that a projection needs.

use std::ops::Range;

use teatime::{Element, Error, Result, stream::digest};

use super::{OP, ProjectMethod};
use crate::{scaler::Scaler, source::Genotypes, to_usize};

/// The scaling and the loadings of the variants of a reference, numbered in the order in which they were pushed.
///
/// Takes 24 + 4 k bytes a variant for k components: the scaling in f64, so that dosages are standardised to the same bits as in
/// the reference's own PCA, and the loadings in f32, as devices compute them. 10 million variants of 10 components take 640 MB.
#[derive(Clone, Debug)]
pub struct ReferenceLoadings {
    scaler: Scaler,
    ploidy: u64,
    components: usize,
    /// The mean, shift and scale of each variant.
    standards: Vec<[f64; 3]>,
    /// The loadings, row by row.
    pub(super) loadings: Vec<f32>,
    pub(super) largest: Vec<Largest>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Largest {
    pub(super) loading: f64,
    /// The largest product of a loading over its scale and the larger distance of the mean or the
    /// shift from 0 or the ploidy, which counts as at least 1.
    pub(super) weight: f64,
}

impl ReferenceLoadings {
    /// Creates empty loadings, with `components` for each variant of a reference of that ploidy, centred and scaled by `scaler`.
    ///
    /// # Errors
    /// [`Error::Argument`] for no components, or a ploidy of 0 or above 127.
    pub fn new(scaler: Scaler, ploidy: u64, components: usize) -> Result<Self> {
        let refuse = |name, why: &str| Err(Error::argument("ReferenceLoadings::new", name, why));
        if components == 0 {
            return refuse("components", "none");
        }
        if !(1..=127).contains(&ploidy) {
            return refuse("ploidy", &format!("{ploidy} is not between 1 and 127"));
        }
        let largest = vec![Largest::default(); components];
        Ok(Self { scaler, ploidy, components, standards: Vec::new(), loadings: Vec::new(), largest })
    }

    /// Reserves memory for that many more variants, so that pushing them takes exactly the memory that is kept.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the system does not have that much memory.
    pub fn reserve(&mut self, variants: u64) -> Result<()> {
        let requested = variants.saturating_mul(24 + 4 * self.components as u64);
        let full = |_| Error::OutOfMemory { requested, free: None };
        let rows = to_usize(variants);
        self.standards.try_reserve_exact(rows).map_err(full)?;
        self.loadings.try_reserve_exact(rows.saturating_mul(self.components)).map_err(full)
    }

    /// Adds the next variant, with the values that [`loadings`](crate::loadings) gives for it.
    ///
    /// `frequency` is the frequency of the counted alleles: a missing call becomes `frequency` times the ploidy.
    /// `shift` is subtracted from dosages, which are then divided by `scale`. `loadings` are rounded to f32.
    ///
    /// # Errors
    /// [`Error::Argument`] if the number of loadings is not the number of components, for values that are not
    /// finite (as f32), for a scale of at most 0, and for more than 2^32 variants. Nothing is added in these cases.
    pub fn push(&mut self, frequency: f64, shift: f64, scale: f64, loadings: &[f64]) -> Result<()> {
        let refuse = |name, why: String| Err(Error::argument("ReferenceLoadings::push", name, why));
        if loadings.len() != self.components {
            return refuse("loadings", format!("{} for {} components", loadings.len(), self.components));
        }
        for (name, value) in [("frequency", frequency), ("shift", shift)] {
            if !value.is_finite() {
                return refuse(name, format!("{value} is not a finite number"));
            }
        }
        // The reciprocal has to be finite too; the reciprocal of the smallest f64 is not.
        if !(scale > 0.0 && scale.is_finite() && scale.recip().is_finite()) {
            return refuse("scale", format!("{scale} is not a finite number above 0"));
        }
        if let Some(i) = loadings.iter().position(|value| !value.to_f32().is_finite()) {
            return refuse(
                "loadings",
                format!("that of PC{} is {}, not a finite number", i + 1, loadings[i]),
            );
        }
        if self.len() > u64::from(u32::MAX) {
            return refuse("loadings", "more than 2^32 variants".into());
        }
        let (ploidy, mean) = (self.ploidy as f64, self.ploidy as f64 * frequency);
        let farthest =
            [mean, shift, ploidy - mean, ploidy - shift].map(f64::abs).into_iter().fold(1.0, f64::max);
        let weight = |loading: &f64| (f64::from(loading.to_f32()) * scale.recip() * farthest).abs();
        if let Some(i) = loadings.iter().position(|loading| !weight(loading).is_finite()) {
            let what = format!("that of PC{} is {}, over the scale {scale}", i + 1, loadings[i]);
            return refuse("loadings", what + ": scores would not be finite");
        }
        for (largest, value) in self.largest.iter_mut().zip(loadings) {
            largest.weight = largest.weight.max(weight(value));
            largest.loading = largest.loading.max(f64::from(value.to_f32()).abs());
        }
        self.standards.push([mean, shift, scale]);
        self.loadings.extend(loadings.iter().copied().map(Element::to_f32));
        Ok(())
    }

    /// Returns the number of variants.
    pub fn len(&self) -> u64 {
        self.standards.len() as u64
    }

    /// Returns true if there is no variant.
    pub fn is_empty(&self) -> bool {
        self.standards.is_empty()
    }

    /// Returns the number of loadings of each variant.
    pub fn components(&self) -> usize {
        self.components
    }

    /// Returns the number of alleles of a call of the reference.
    pub fn ploidy(&self) -> u64 {
        self.ploidy
    }

    /// Returns the scaler by which the reference was centred and scaled.
    pub fn scaler(&self) -> Scaler {
        self.scaler
    }

    /// Returns the number of bytes that the reference holds.
    pub fn bytes(&self) -> u64 {
        (self.standards.capacity() * size_of::<[f64; 3]>() + self.loadings.capacity() * size_of::<f32>())
            as u64
    }

    pub(super) fn row(&self, row: u32) -> &[f32] {
        &self.loadings[to_usize(row.into()) * self.components..][..self.components]
    }

    pub(super) fn standard(&self, row: u32) -> [f64; 3] {
        self.standards[to_usize(row.into())]
    }
}

/// A match of a variant to a variant of the reference, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Match {
    /// The variant is the reference's variant of that index.
    Same(u32),
    /// The variant is the reference's variant of that index, but the other allele is counted here:
    /// its dosage there is the ploidy less the dosage here.
    Swapped(u32),
}

impl Match {
    /// Returns the index of the reference's variant.
    pub const fn row(self) -> u32 {
        match self {
            Self::Same(row) | Self::Swapped(row) => row,
        }
    }
}

/// The matches of genotypes' variants to those of a reference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matched<'a> {
    pub(crate) reference: &'a ReferenceLoadings,
    /// One match, or none, for each variant of the genotypes.
    pub(crate) matches: &'a [Option<Match>],
    /// The reference's variants that the genotypes lack, as matches of variants of which every sample has a dosage of 0.
    pub(crate) absent: &'a [Match],
    pub(crate) method: ProjectMethod,
}

impl<'a> Matched<'a> {
    pub(crate) fn check(&self, genotypes: &Genotypes) -> Result<()> {
        let Self { reference, matches, absent, .. } = self;
        let (samples, variants) = (genotypes.samples(), genotypes.variants());
        if samples == 0 {
            return Err(Error::argument(OP, "genotypes", format_args!("{variants} variants of 0 samples")));
        }
        if genotypes.ploidy() != reference.ploidy() {
            let why = format!("of ploidy {}, the genotypes of {}", reference.ploidy(), genotypes.ploidy());
            return Err(Error::argument(OP, "reference", why));
        }
        if matches.len() as u64 != variants {
            let got = format!("{} matches", matches.len());
            return Err(Error::shape(OP, format_args!("one match for each of {variants} variants"), got));
        }
        let refuse = |name, why: String| Err(Error::argument(OP, name, why));
        let len = reference.len();
        let mut taken = vec![false; to_usize(len)];
        for (variant, hit) in matches.iter().enumerate() {
            let Some(row) = hit.map(Match::row) else { continue };
            let number = format_args!("variant {variant} is number {row} of");
            match taken.get_mut(to_usize(row.into())) {
                None => return refuse("matches", format!("{number} a reference of {len}")),
                Some(true) => {
                    return refuse("matches", format!("{number} the reference, as one before it is"));
                }
                Some(taken) => *taken = true,
            }
        }
        if !taken.contains(&true) {
            let why = format!("none of the {variants} variants is one of the reference's {len}");
            return refuse("matches", why);
        }
        for row in absent.iter().map(|hit| hit.row()) {
            match taken.get_mut(to_usize(row.into())) {
                Some(taken) if !*taken => *taken = true,
                _ => {
                    let why =
                        format!("number {row} of a reference of {len} is no variant of it, or has a match");
                    return refuse("absent", why);
                }
            }
        }
        Ok(())
    }

    /// Returns true if dosages above the ploidy are an error: if the scaler needs the frequency, or a swapped dosage would be negative.
    pub(crate) fn bounded(&self) -> bool {
        let swapped = |hit: &Option<Match>| matches!(hit, Some(Match::Swapped(_)));
        self.reference.scaler.needs_frequency() || self.matches.iter().any(swapped)
    }

    pub(crate) fn part(&self, rows: &Range<u64>) -> Self {
        Self { matches: self.matches_in(rows), ..*self }
    }

    /// Returns a description that is the same for the same reference, matches and method.
    pub(crate) fn words(&self) -> String {
        let Self { reference, matches, absent, method } = self;
        let number = |hit: &Option<Match>| match hit {
            None => 0,
            Some(Match::Same(row)) => 2 * u64::from(*row) + 1,
            Some(Match::Swapped(row)) => 2 * u64::from(*row) + 2,
        };
        let state = digest(reference.ploidy, bytemuck::cast_slice(&reference.standards));
        let state = digest(state, bytemuck::cast_slice(&reference.loadings));
        let state = matches.iter().fold(state, |state, hit| digest(state, &number(hit).to_le_bytes()));
        let absent = absent.iter().map(|hit| !number(&Some(*hit)));
        let state = absent.fold(state, |state, number| digest(state, &number.to_le_bytes()));
        format!("onto {} components of reference {state:016x} by {}", reference.components, method.name())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.reference.bytes() + (size_of_val(self.matches) + size_of_val(self.absent)) as u64
    }

    /// Returns [shift, scale, fill], which standardise a variant's dosages as those of the reference's variant; zeros if it has none.
    fn scale(&self, variant: u64) -> [f32; 3] {
        let Some(hit) = self.matches[to_usize(variant)] else { return [0.0; 3] };
        let [mean, shift, scale] = self.reference.standard(hit.row());
        let mean = match self.method {
            ProjectMethod::Mean => mean,
            // A missing call adds nothing.
            ProjectMethod::LeastSquares => shift,
        };
        let [mean, shift, scale] = match hit {
            Match::Same(_) => [mean, shift, 1.0 / scale],
            // ((ploidy - g) - shift) / scale = (g - (ploidy - shift)) / -scale
            Match::Swapped(_) => {
                let ploidy = self.reference.ploidy as f64;
                [ploidy - mean, ploidy - shift, 1.0 / -scale]
            }
        };
        [shift, scale, (mean - shift) * scale].map(Element::to_f32)
    }

    /// Returns the number of the reference's variants that are used.
    pub(crate) fn count(&self) -> usize {
        self.matches.iter().flatten().count() + self.absent.len()
    }

    /// Returns [shift, scale, fill] of these variants, as a kernel that standardises takes them.
    pub(super) fn scales(&self, variants: &Range<u64>) -> Vec<[f32; 3]> {
        variants.clone().map(|variant| self.scale(variant)).collect()
    }

    fn matches_in(&self, variants: &Range<u64>) -> &'a [Option<Match>] {
        &self.matches[to_usize(variants.start)..to_usize(variants.end)]
    }

    /// Returns true if the reference has any of these variants.
    pub(super) fn any(&self, variants: &Range<u64>) -> bool {
        self.matches_in(variants).iter().any(Option::is_some)
    }

    /// Returns 1 for each of these variants that the reference has, else 0.
    pub(super) fn used(&self, variants: &Range<u64>) -> Vec<f32> {
        self.matches_in(variants).iter().map(|hit| if hit.is_some() { 1.0 } else { 0.0 }).collect()
    }

    /// Returns the loadings of variants, row by row; 0 if the reference does not have the variant.
    pub(super) fn loadings(&self, variants: &Range<u64>) -> Vec<f32> {
        let matches = self.matches_in(variants);
        let k = self.reference.components;
        let mut rows = vec![0.0; matches.len() * k];
        for (row, hit) in rows.chunks_exact_mut(k).zip(matches) {
            if let Some(hit) = hit {
                row.copy_from_slice(self.reference.row(hit.row()));
            }
        }
        rows
    }
}
