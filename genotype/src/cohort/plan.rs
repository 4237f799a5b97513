//! The results that genotypes are loaded for, and the plan of loading them.

use std::ops::Range;

use teatime::{
    Device, Error, Needs, Result, Run,
    linalg::SignRule,
    packed::{MAX_ENTRIES, PackedMatrix},
};

use super::{missing::MissingSums, standardized, with_less_memory};
#[cfg(doc)]
use crate::Cohort;
use crate::{
    choice::Choice,
    grm::GrmOptions,
    memory::{self, Allowance, Memory, Wishes, columns, passes, whole_basis},
    options::{Method, PcaOptions},
    pair_sums::{self, PairAccumulator},
    project::{Match, Matched, ProjectMethod, ProjectionSums, ReferenceLoadings},
    reader::Reader,
    residency::Residency,
    scaler::ScaleRule,
    source::Genotypes,
};

/// The results that genotypes are loaded for. So the method, the form and the memory are planned
/// before anything is read, and one pass makes all the sums that it can.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Wanted<'a> {
    pub(super) pca: Option<PcaOptions>,
    loadings: bool,
    grm: Option<GrmOptions>,
    projection: Option<Matched<'a>>,
    absent: &'a [Match],
    pub(super) missing_calls: bool,
    sums_of_pairs: bool,
    more_passes: u32,
}

impl<'a> Wanted<'a> {
    /// Asks for principal components: [`Cohort::pca`].
    pub fn pca(self, options: &PcaOptions) -> Self {
        Self { pca: Some(options.clone()), ..self }
    }

    /// Asks for the loadings of those components as well: [`Cohort::loadings`].
    pub fn loadings(self) -> Self {
        Self { loadings: true, ..self }
    }

    /// Asks for a relationship matrix: [`Cohort::grm`].
    pub fn grm(self, options: &GrmOptions) -> Self {
        Self { grm: Some(*options), ..self }
    }

    /// Asks for a projection onto a reference: [`Cohort::projection`]. The arguments are those of [`project`](crate::project()).
    pub fn projection(
        self,
        reference: &'a ReferenceLoadings,
        matches: &'a [Option<Match>],
        method: ProjectMethod,
    ) -> Self {
        Self { projection: Some(Matched { reference, matches, absent: &[], method }), ..self }
    }

    /// Says that all samples are homozygous at variants of the reference that the genotypes lack: with no copy of the counted alleles of a
    /// [`Match::Same`], and only copies of those of a [`Match::Swapped`]. Such variants take part in the [projection](Self::projection), as if
    /// the genotypes had them. [`VariantMatches`](crate::VariantMatches) has those that a store lacks.
    ///
    /// A variant that the reference does not have, or that has a match, is an [`Error::Argument`] of [`Cohort::load`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use teatime::{Device, Run, store::MemoryArray};
    /// use teatime_genotype::{Cohort, Genotypes, Match, ProjectMethod, ReferenceLoadings, Scaler, Wanted};
    ///
    /// let mut reference = ReferenceLoadings::new(Scaler::Center, 2, 1)?;
    /// reference.push(0.5, 1.0, 1.0, &[0.5])?;
    /// reference.push(0.25, 0.5, 1.0, &[0.25])?;
    /// // Two samples with a dosage of 2 and 1 at the first variant; the file does not have the second one, at which no sample varies.
    /// let array = MemoryArray::new("dosages", &[2i8, 1], &[1, 2], &[1, 2])?;
    /// let new = Genotypes::new(vec![Arc::new(array)])?;
    /// let (matches, absent) = ([Some(Match::Same(0))], [Match::Same(1)]);
    /// let wanted = Wanted::default().projection(&reference, &matches, ProjectMethod::Mean).absent(&absent);
    /// let cohort = Cohort::load(&new, &Device::cpu(), &wanted, &Run::default())?;
    /// let scores = &cohort.projection().unwrap().scores;
    /// assert_eq!(scores.data(), [0.5 * (2.0 - 1.0) - 0.25 * 0.5, -0.25 * 0.5]);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn absent(self, absent: &'a [Match]) -> Self {
        Self { absent, ..self }
    }

    /// Returns the projection that is asked for.
    pub(super) fn matched(&self) -> Option<Matched<'a>> {
        self.projection.map(|matched| Matched { absent: self.absent, ..matched })
    }

    /// Asks for the number of missing calls of each sample: [`Cohort::missing_calls`]. [Parts](Cohort::part) refuse it.
    ///
    /// # Cost
    /// For each call of a panel with missing calls, eight byte products if genotypes are packed, otherwise one product in f32.
    pub fn missing_calls(self) -> Self {
        Self { missing_calls: true, ..self }
    }

    /// Says that the caller adds up sums for pairs of samples; asks for none of the cohort's own results.
    pub(crate) fn sums_of_pairs(self) -> Self {
        Self { sums_of_pairs: true, ..self }
    }

    /// Says how many further passes the caller makes at most over the genotypes, which stay if memory holds them.
    pub(crate) fn more_passes(self, passes: u64) -> Self {
        Self { more_passes: u32::try_from(passes).unwrap_or(u32::MAX - 1), ..self }
    }

    fn check(&self, genotypes: &Genotypes) -> Result<()> {
        if let Some(options) = &self.pca {
            options.check(genotypes)?;
        }
        if let Some(options) = &self.grm {
            options.check(genotypes)?;
        }
        self.matched().map_or(Ok(()), |matched| matched.check(genotypes))
    }

    /// Returns the memory that the results take whatever the method for components is.
    fn needs(&self, reader: &Reader, of_grm: Option<pair_sums::PairTerms>, run: &Run) -> Needs {
        let sums = of_grm.map(|sums| PairAccumulator::needs(reader, sums.shared, sums.variance));
        let missing = self.missing_calls.then(|| MissingSums::needs(reader));
        let needs =
            sums.unwrap_or_default() + missing.unwrap_or_default() + self.projection_needs(reader, run);
        match &self.pca {
            Some(options) if self.loadings => needs + memory::loadings(reader, options.components as u64),
            _ => needs,
        }
    }

    fn projection_needs(&self, reader: &Reader, run: &Run) -> Needs {
        let Some(matched) = self.matched() else { return Needs::default() };
        // The default budget is a share of the memory that is free now, in addition to memory already held.
        let held = Needs::host(run.memory.host.map_or(0, |_| matched.bytes()));
        ProjectionSums::needs(reader, matched) + held
    }

    /// Returns a copy with a settled method for components: if the plan was to choose, exact if `exact` returns true, else randomized.
    pub(super) fn settled(&self, exact: impl Fn(&PcaOptions) -> bool) -> Self {
        let mut settled = self.clone();
        if let Some(options) = settled.pca.as_mut().filter(|options| options.method == Method::Auto) {
            options.method = if exact(options) { Method::Exact } else { Method::Randomized };
        }
        settled
    }

    /// Returns true if dosages above the ploidy are an error for one of the results.
    fn bounded(&self) -> bool {
        self.pca.as_ref().is_some_and(|options| options.scaler.needs_frequency())
            || self.grm.is_some()
            || self.matched().is_some_and(|matched| matched.bounded())
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) genotypes: &'a Genotypes,
    pub(crate) device: &'a Device,
    pub(crate) wanted: &'a Wanted<'a>,
    pub(crate) run: &'a Run,
}

impl Request<'_> {
    /// Calls `f` with this request, [with less and less memory](with_less_memory) if the device is full.
    pub(super) fn with_less_memory<T>(self, mut f: impl FnMut(Request<'_>) -> Result<T>) -> Result<T> {
        with_less_memory(self.device, self.run, |run| f(Request { run, ..self }))
    }
}

/// Some of the variants, which are read apart from the others.
pub(super) struct Part {
    pub(super) rows: Range<u64>,
    /// The number of members of a group, each of which reads such a part and makes all passes over it; `None` if only sums are wanted.
    pub(super) members: Option<u64>,
}

pub(super) type NeedsBeside<'a> = dyn Fn(&Reader) -> Needs + Sync + 'a;

pub(super) struct LoadPlan {
    pub(super) reader: Reader,
    pub(super) memory: Memory,
    pub(super) pairs: Vec<pair_sums::PairTerms>,
    pub(super) shares_sums: bool,
    pub(super) choice: Option<(PcaOptions, Choice)>,
    pub(super) allowance: Allowance,
    /// The maximum number of passes after this one, and true if there will be any.
    pub(super) later_passes: u32,
    pub(super) again: bool,
}

impl LoadPlan {
    /// Makes the plan, if other work needs `beside` as well. With `part`, plans only what is made of those variants.
    pub(super) fn new(request: Request<'_>, part: Option<&Part>, beside: &NeedsBeside<'_>) -> Result<Self> {
        request.wanted.check(request.genotypes)?;
        let memory = Memory::new(request.device, request.run)?;
        memory.plan(|memory| Self::within(memory, request, part, beside))
    }

    /// Makes the plan as [`new`](Self::new) does, within the budget of `memory`.
    fn within(
        memory: Memory,
        Request { genotypes, device, wanted, run }: Request<'_>,
        part: Option<&Part>,
        beside: &NeedsBeside<'_>,
    ) -> Result<Self> {
        let mut reader = memory.in_steps(Reader::new(genotypes, device, wanted.bounded())?);
        let is_member = part.is_some_and(|part| part.members.is_some());
        if let Some(Part { rows, members: Some(_) }) = part {
            reader = reader.of_part(rows)?;
        }
        let of_grm = wanted.grm.map(|options| options.sums(&reader));
        let mut needs = beside(&reader) + wanted.needs(&reader, of_grm, run);
        let mut pairs: Vec<_> = of_grm.into_iter().collect();
        let (mut choice, mut later_passes, mut basis, mut shares_sums) = (None, wanted.more_passes, 0, false);
        if let Some(options) = &wanted.pca {
            let chosen = Choice::new(&memory, &reader, options, needs);
            if chosen.method == Method::Exact {
                later_passes = u32::from(options.svd.sign == SignRule::MaxAbsU);
                needs = needs
                    + match is_member {
                        true => PairAccumulator::needs(&reader, false, false),
                        false => Choice::exact(&reader),
                    };
                let rule = ScaleRule::new(&reader, options.scaler, options.filter);
                let sums = pair_sums::PairTerms { rule, shared: false, variance: false };
                // In this case the matrix that is handed over is a copy, which takes about as much memory as separate sums.
                shares_sums = pairs.iter().any(|pairs| pairs.holds(&sums));
                if !shares_sums {
                    pairs.push(sums);
                }
            } else {
                // Members make products, and the basis is made once.
                needs = needs
                    + match is_member {
                        true => memory::products(&reader, columns(genotypes.samples(), options)),
                        false => memory::randomized(&reader, options),
                    };
                basis = whole_basis(genotypes.samples(), options);
                later_passes = u32::try_from(passes(options)).unwrap_or(u32::MAX - 1);
            }
            choice = Some((options.clone(), chosen));
        }
        let gram = !pairs.is_empty() || wanted.sums_of_pairs;
        if choice.is_some() || gram {
            check_samples(&reader)?;
        }
        let mut again = wanted.loadings || later_passes > 0;
        if let Some(Part { members: Some(members), .. }) = part {
            // The host gets the sums of all parts, before they are merged. The basis is one for all members.
            let matrices = pairs.iter().map(|pairs| 1 + u64::from(pairs.shared) + u64::from(pairs.variance));
            let values = reader.samples().saturating_mul(reader.samples()).saturating_mul(4);
            needs = needs + Needs::host(values) * matrices.sum();
            basis /= members;
        } else if let Some(Part { rows, .. }) = part {
            reader = reader.of_part(rows)?;
            let sums =
                pairs.iter().map(|pairs| PairAccumulator::needs(&reader, pairs.shared, pairs.variance));
            needs = sums.sum::<Needs>() + wanted.projection_needs(&reader, run);
            (basis, later_passes, again) = (0, 0, false);
        }
        let allowance = memory.allow(&reader, needs, Wishes { basis, again, gram })?;
        if let (Some(options), true) = (&wanted.pca, basis > 0) {
            // Programs are compiled here, while there is nothing else to wait for.
            standardized::prepare(&reader, columns(genotypes.samples(), options), allowance.reading)?;
        }
        Ok(Self { reader, memory, pairs, shares_sums, choice, allowance, later_passes, again })
    }

    /// Returns the empty place for the panels, if genotypes stay in memory.
    pub(super) fn place(&self) -> Option<PackedMatrix> {
        let Self { reader, allowance, .. } = self;
        let host_rows = match allowance.residency {
            Residency::Device => None,
            Residency::Host => Some(allowance.host_rows),
            Residency::Store => return None,
        };
        Some(PackedMatrix::in_panels(&reader.device, reader.samples(), host_rows))
    }
}

/// Checks the number of samples for results that sum over samples; a projection does not, since it multiplies packed rows only by weights.
pub(super) fn check_samples(reader: &Reader) -> Result<()> {
    let (what, requested) = ("samples of packed genotypes", reader.samples());
    if reader.form.is_packed() && requested > MAX_ENTRIES {
        return Err(Error::Limit { what, requested, max: MAX_ENTRIES });
    }
    Ok(())
}
