//! The results that genotypes are loaded for, and the plan of loading them.

use std::ops::Range;

use teatime::{Device, Error, Needs, Result, Run, linalg::SignRule, packed::MAX_ENTRIES};

use super::{missing::MissingSums, standardized};
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
    scaler::ScaleRule,
    source::Genotypes,
};

/// The results that genotypes are loaded for, so that the method, the form and the memory are planned before anything is read,
/// and what can be added up in the one pass is.
#[derive(Clone, Debug, Default)]
pub struct Wanted<'a> {
    pca: Option<PcaOptions>,
    loadings: bool,
    grm: Option<GrmOptions>,
    pub(super) projection: Option<Matched<'a>>,
    pub(super) missing_calls: bool,
    /// True where the caller adds up sums for pairs of samples, panel by panel.
    sums_of_pairs: bool,
    /// The maximum number of passes that the caller makes after this one.
    more_passes: u32,
}

impl<'a> Wanted<'a> {
    /// Principal components: [`Cohort::pca`].
    #[must_use]
    pub fn pca(self, options: &PcaOptions) -> Self {
        Self { pca: Some(options.clone()), ..self }
    }

    /// The loadings of those components too: [`Cohort::loadings`].
    #[must_use]
    pub fn loadings(self) -> Self {
        Self { loadings: true, ..self }
    }

    /// A relationship matrix: [`Cohort::grm`].
    #[must_use]
    pub fn grm(self, options: &GrmOptions) -> Self {
        Self { grm: Some(*options), ..self }
    }

    /// A projection onto a reference: [`Cohort::projection`]. The arguments are those of [`project`](crate::project()).
    #[must_use]
    pub fn projection(
        self,
        reference: &'a ReferenceLoadings,
        matches: &'a [Option<Match>],
        method: ProjectMethod,
    ) -> Self {
        Self { projection: Some(Matched { reference, matches, method }), ..self }
    }

    /// The number of calls that each sample lacks: [`Cohort::missing_calls`]. [Parts](Cohort::part) refuse it.
    ///
    /// # Cost
    /// For each call of a panel of variants in which one is missing, eight products of bytes of packed genotypes, else one of f32.
    #[must_use]
    pub fn missing_calls(self) -> Self {
        Self { missing_calls: true, ..self }
    }

    /// Nothing of what a cohort has, but sums for pairs of samples, which the caller adds up.
    #[must_use]
    pub(crate) fn sums_of_pairs(self) -> Self {
        Self { sums_of_pairs: true, ..self }
    }

    /// Says how many more passes the caller makes at most over the genotypes, which stay where memory holds them.
    #[must_use]
    pub(crate) fn more_passes(self, passes: u64) -> Self {
        Self { more_passes: u32::try_from(passes).unwrap_or(u32::MAX - 1), ..self }
    }

    /// # Errors
    /// [`Error::Argument`] and [`Error::Shape`] as the results have them.
    fn check(&self, genotypes: &Genotypes) -> Result<()> {
        if let Some(options) = &self.pca {
            options.check(genotypes)?;
        }
        if let Some(options) = &self.grm {
            options.check(genotypes)?;
        }
        self.projection.map_or(Ok(()), |matched| matched.check(genotypes))
    }

    /// The memory that the results take whatever the method of components is.
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
        let Some(matched) = self.projection else { return Needs::default() };
        // The default is a share of what is free now, beside what is held already.
        let held = Needs::host(run.memory.host.map_or(0, |_| matched.bytes()));
        ProjectionSums::needs(reader, matched) + held
    }

    /// A copy with a method of components: where it is left to the plan, exact if `exact` holds for them, else randomized.
    pub(super) fn settled(&self, exact: impl Fn(&PcaOptions) -> bool) -> Self {
        let mut settled = self.clone();
        if let Some(options) = settled.pca.as_mut().filter(|options| options.method == Method::Auto) {
            options.method = if exact(options) { Method::Exact } else { Method::Randomized };
        }
        settled
    }

    /// The components.
    pub(super) fn components(&self) -> Option<&PcaOptions> {
        self.pca.as_ref()
    }

    /// True where dosages above the ploidy are an error for one of the results.
    fn bounded(&self) -> bool {
        self.pca.as_ref().is_some_and(|options| options.scaler.needs_frequency())
            || self.grm.is_some()
            || self.projection.is_some_and(|matched| matched.bounded())
    }
}

/// The plan by which genotypes are loaded.
pub(super) struct LoadPlan {
    pub(super) reader: Reader,
    pub(super) memory: Memory,
    /// The sums for pairs of samples that are added up.
    pub(super) pairs: Vec<pair_sums::PairTerms>,
    /// True where the sums of the relationship matrix are those of the components too.
    pub(super) shares_sums: bool,
    /// The components, and their method.
    pub(super) choice: Option<(PcaOptions, Choice)>,
    pub(super) allowance: Allowance,
    /// The maximum number of passes after this one, and whether there will be any pass.
    pub(super) later_passes: u32,
    pub(super) again: bool,
}

impl LoadPlan {
    /// With what is needed `beside`; or of the variants in `part` alone, for their sums.
    ///
    /// # Errors
    /// As [`Cohort::load`].
    pub(super) fn new(
        genotypes: &Genotypes,
        part: Option<&Range<u64>>,
        device: &Device,
        wanted: &Wanted<'_>,
        beside: &dyn Fn(&Reader) -> Needs,
        run: &Run,
    ) -> Result<Self> {
        wanted.check(genotypes)?;
        Memory::new(device, run)?
            .plan(|memory| Self::within(memory, genotypes, part, device, wanted, beside, run))
    }

    /// [`new`](Self::new) within such a budget.
    fn within(
        memory: Memory,
        genotypes: &Genotypes,
        part: Option<&Range<u64>>,
        device: &Device,
        wanted: &Wanted<'_>,
        beside: &dyn Fn(&Reader) -> Needs,
        run: &Run,
    ) -> Result<Self> {
        let mut reader = memory.in_steps(Reader::new(genotypes, device, wanted.bounded())?);
        let of_grm = wanted.grm.map(|options| options.sums(&reader));
        let mut needs = beside(&reader) + wanted.needs(&reader, of_grm, run);
        let mut pairs: Vec<_> = of_grm.into_iter().collect();
        let (mut choice, mut later_passes, mut basis, mut shares_sums) = (None, wanted.more_passes, 0, false);
        if let Some(options) = &wanted.pca {
            let chosen = Choice::new(&memory, &reader, options, needs);
            if chosen.method == Method::Exact {
                later_passes = u32::from(options.svd.sign == SignRule::MaxAbsU);
                needs = needs + Choice::exact(&reader);
                let rule = ScaleRule::new(&reader, options.scaler, options.filter);
                let sums = pair_sums::PairTerms { rule, shared: false, variance: false };
                // Then the matrix that is handed over is a copy, which takes about as much.
                shares_sums = pairs.iter().any(|pairs| pairs.holds(&sums));
                if !shares_sums {
                    pairs.push(sums);
                }
            } else {
                needs = needs + memory::randomized(&reader, options);
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
        if let Some(rows) = part {
            reader = reader.of_part(rows)?;
            let sums =
                pairs.iter().map(|pairs| PairAccumulator::needs(&reader, pairs.shared, pairs.variance));
            needs = sums.sum::<Needs>() + wanted.projection_needs(&reader, run);
            (basis, later_passes, again) = (0, 0, false);
        }
        let allowance = memory.allow(&reader, needs, Wishes { basis, again, gram })?;
        if let (Some(options), true) = (&wanted.pca, basis > 0) {
            // While there is nothing else to wait for.
            standardized::prepare(&reader, columns(genotypes.samples(), options), allowance.reading)?;
        }
        Ok(Self { reader, memory, pairs, shares_sums, choice, allowance, later_passes, again })
    }
}

/// Checks the number of samples, for results that add up over them; a projection multiplies packed rows by weights alone.
///
/// # Errors
/// [`Error::Limit`] for more samples than products of packed rows are exact for.
pub(super) fn check_samples(reader: &Reader) -> Result<()> {
    let (what, requested) = ("samples of packed genotypes", reader.samples());
    if reader.form.is_packed() && requested > MAX_ENTRIES {
        return Err(Error::Limit { what, requested, max: MAX_ENTRIES });
    }
    Ok(())
}
