//! Reading of a cohort in parts, by several processes or with breaks between.

use std::ops::Range;

use teatime::{Device, Error, Needs, Result, Run};

use super::{
    Cohort, Sums,
    missing::MissingSums,
    plan::{LoadPlan, Part, Request, Wanted},
};
use crate::{
    options::{Method, PcaOptions},
    pair_sums::{self, PRODUCTS},
    part::CohortPart,
    reader::{CountedSink, Read, Reader, block_rows},
    source::{GenotypeKind, Genotypes},
    to_usize,
};

/// The maximum number of variants of a projection in parts.
pub(super) const MAX_PROJECTED: u64 = (1 << 31) - 1;

impl Cohort {
    /// Returns the step at whose multiples parts start, in variants, for that number of samples: 256 to 4,096.
    pub fn part_step(samples: u64) -> u64 {
        block_rows(samples)
    }

    /// Returns the variants of `genotypes` as `count` ranges of about equal length for [`part`](Self::part), or fewer if there are fewer blocks.
    ///
    /// Each range starts at a multiple of [`part_step`](Self::part_step). Chunks of the arrays need
    /// not end there: a chunk on both sides of a border is decoded for both ranges.
    pub fn part_ranges(genotypes: &Genotypes, count: u64) -> Vec<Range<u64>> {
        ranges_of(&(0..genotypes.variants()), genotypes.samples(), count)
    }

    /// Reads only the variants in `rows`, which are indices among the variants of `genotypes`.
    /// Makes the counts and sums that [`load`](Self::load) would make for the wanted results.
    ///
    /// [`part_ranges`](Self::part_ranges) makes such ranges: each starts at a multiple of a block, and ends at one or at the last variant.
    /// Parts may be made on any machine, all with the same `genotypes` and `wanted`; they are [merged](CohortPart::merge), and
    /// [`of_part`](Self::of_part) makes a cohort of the whole. For [`Method::Auto`] the part's own budget decides whether it has sums for
    /// the exact method: name a method if parts have different memory. Loadings and the randomized method make passes over the store later.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use teatime::{Device, Run, store::MemoryArray};
    /// use teatime_genotype::{Cohort, CohortPart, Genotypes, PcaOptions, Wanted, pca};
    ///
    /// let dosages: Vec<i8> = (0..6000 * 5).map(|i| (i * i % 7 % 3) as i8).collect();
    /// let array = MemoryArray::new("dosages", &dosages, &[6000, 5], &[1000, 5])?;
    /// let genotypes = Genotypes::new(vec![Arc::new(array)])?;
    /// let components = PcaOptions::default().components(2);
    /// let (device, run, wanted) = (Device::cpu(), Run::default(), Wanted::default().pca(&components));
    ///
    /// // Each part may be made by its own process.
    /// let ranges = Cohort::part_ranges(&genotypes, 2);
    /// assert_eq!(ranges, [0..4096, 4096..6000]);
    /// let mut parts = Vec::new();
    /// for rows in ranges {
    ///     parts.push(Cohort::part(&genotypes, rows, &device, &wanted, &run)?.to_bytes());
    /// }
    ///
    /// let [one, other] = [CohortPart::from_bytes(&parts[0])?, CohortPart::from_bytes(&parts[1])?];
    /// let cohort = Cohort::of_part(&genotypes, &device, &wanted, &other.merge(one)?, &run)?;
    /// let result = cohort.pca(&components, &run)?;
    /// assert_eq!(cohort.passes_over_store(), 0);
    /// assert_eq!(result.vectors, pca(&genotypes, &device, &components, &run)?.vectors);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    ///
    /// # Cost
    /// Each member of a [group](Device::group) reads some of the variants, if two bits hold a genotype and parts of the memory do; else the first
    /// device reads all.
    ///
    /// The cost of [`load`](Self::load) for that many variants. The part has 12 bytes a variant, or 32 if dosages are not 0, 1 and 2; 4 samples²
    /// bytes for each matrix of sums; and 8 (k + 1) bytes a sample for a projection onto k components, with 4 k (k + 1) more for least squares.
    ///
    /// # Errors
    /// Fails as [`load`](Self::load) does; with [`Error::Argument`] for `rows` that are no such
    /// range; with [`Error::Limit`] for a projection of 2^31 variants or more.
    pub fn part(
        genotypes: &Genotypes,
        rows: Range<u64>,
        device: &Device,
        wanted: &Wanted<'_>,
        run: &Run,
    ) -> Result<CohortPart> {
        let (variants, step) = (genotypes.variants(), block_rows(genotypes.samples()));
        let fits = |row: u64| row.is_multiple_of(step) || row == variants;
        if rows.is_empty() || rows.end > variants || !fits(rows.start) || !fits(rows.end) {
            let why = format!(
                "{rows:?} of {variants} variants: from a multiple of {step} to another, or to the end"
            );
            return Err(Error::argument("Cohort::part", "rows", why));
        }
        if wanted.missing_calls {
            let why = "missing calls of each sample, which parts do not count";
            return Err(Error::argument("Cohort::part", "wanted", why));
        }
        if wanted.matched().is_some() && variants > MAX_PROJECTED {
            let what = "variants of a projection in parts";
            return Err(Error::Limit { what, requested: variants, max: MAX_PROJECTED });
        }
        let request = Request { genotypes, device, wanted, run };
        match Self::part_by_members(request, &rows)? {
            Some(part) => Ok(part),
            None => Self::part_on(request, rows),
        }
    }

    pub(super) fn part_on(request: Request<'_>, rows: Range<u64>) -> Result<CohortPart> {
        let part = Part { rows, members: None };
        request.with_less_memory(|request| {
            let plan = LoadPlan::new(request, Some(&part), &|_| Needs::default())?;
            Ok(plan.read_part(request, &part.rows, &mut |_, _| Ok(()))?.part)
        })
    }

    /// Makes a cohort from the counts and sums in `part`, which has all variants, without a pass. Wanted results also take no pass if they take none
    /// after [`load`](Self::load). Genotypes stay in the store, which must not change: only a later pass notices a changed store of the same shape.
    ///
    /// Results equal those of [`load`](Self::load), to the bit if two bits hold a genotype. `wanted` are the results for which the part was
    /// made, or some of them. For [`Method::Auto`] components are exact if the part has the sums of the exact method.
    ///
    /// # Errors
    /// [`Error::Argument`] for a part of only some variants, or of other genotypes, and for wanted sums that the part
    /// lacks; [`Error::Shape`] for sums that do not fit; the other errors of [`load`](Self::load) except those of reading.
    pub fn of_part(
        genotypes: &Genotypes,
        device: &Device,
        wanted: &Wanted<'_>,
        part: &CohortPart,
        run: &Run,
    ) -> Result<Self> {
        let products = |options: &PcaOptions| pair_sums::name(PRODUCTS, options.scaler, options.filter);
        let settled = wanted.settled(|options| part.find(&products(options)).is_ok());
        // Dosages are bounded as they were when the part was read, whatever is wanted from the part.
        let genotypes = &genotypes.bounded_if(part.bounded);
        Request { genotypes, device, wanted: &settled, run }.with_less_memory(|request| {
            let held = Needs::host(request.run.memory.host.map_or(0, |_| part.bytes()));
            let mut plan = LoadPlan::new(request, None, &|_| held)?;
            let (variants, samples) = (genotypes.variants(), genotypes.samples());
            let words = words(genotypes, &plan.reader);
            let refuse = |why: String| Err(Error::argument("Cohort::of_part", "part", why));
            if (part.variants, part.samples, &part.genotypes) != (variants, samples, &words) {
                let why = format!(
                    "of {}; genotypes are {variants} variants of {samples} samples, {words}",
                    part.words()
                );
                return refuse(why);
            }
            if part.rows != (0..variants) || part.counts.len() as u64 != variants {
                return refuse(format!("of variants {:?} of {variants}", part.rows));
            }
            let mut sums = Sums::new(&plan, wanted.matched(), false)?;
            sums.set_part(&plan.reader, part)?;
            if let (Some(options), Some((settled, choice))) = (&wanted.pca, &mut plan.choice)
                && options.method == Method::Auto
            {
                settled.method = Method::Auto;
                let has = if choice.method == Method::Exact { "has" } else { "lacks" };
                choice.reason = format!("the part {has} the sums of the exact method");
            }
            plan.allowance.reason = "sums of parts: nothing was read".into();
            Self::finish(plan, sums, None, None)
        })
    }
}

/// Returns `rows`, which start at a block, as `count` ranges of whole blocks, or fewer if there are fewer blocks.
pub(super) fn ranges_of(rows: &Range<u64>, samples: u64, count: u64) -> Vec<Range<u64>> {
    let step = block_rows(samples);
    let blocks = (rows.end - rows.start).div_ceil(step);
    let count = count.clamp(1, blocks.max(1)).min(blocks);
    let first = |i: u64| rows.end.min(rows.start + step * (i * (blocks / count) + i.min(blocks % count)));
    (0..count).map(|i| first(i)..first(i + 1)).collect()
}

pub(super) struct PartRead {
    pub(super) part: CohortPart,
    /// The number of missing calls of each sample, if it was wanted.
    pub(super) missing_calls: Option<Vec<u64>>,
    pub(super) read: Read,
}

impl LoadPlan {
    /// Makes the pass over the variants in `rows`, for which this is the plan, and gives each panel to `f` as well.
    pub(super) fn read_part(
        &self,
        Request { genotypes, wanted, run, .. }: Request<'_>,
        rows: &Range<u64>,
        f: &mut CountedSink<'_>,
    ) -> Result<PartRead> {
        let matched = wanted.matched().map(|matched| matched.part(rows));
        let mut sums = Sums::new(self, matched, wanted.missing_calls)?;
        let read = sums.read(self, run, f)?;
        let Sums { counts, adding, projecting, missing } = sums;
        let mut sums = Vec::new();
        for adding in adding {
            sums.extend(adding.into_part()?);
        }
        if let (Some(projecting), Some(matched)) = (projecting, wanted.matched()) {
            sums.extend(projecting.into_part(&matched.words())?);
        }
        let (variants, samples) = (genotypes.variants(), genotypes.samples());
        let (bounded, counts) = (self.reader.bounded, counts.by_variant);
        let genotypes = words(genotypes, &self.reader);
        let part = CohortPart { rows: rows.clone(), variants, samples, bounded, genotypes, counts, sums };
        Ok(PartRead { part, missing_calls: missing.map(MissingSums::finish).transpose()?, read })
    }
}

impl Sums<'_> {
    pub(super) fn set_part(&mut self, reader: &Reader, part: &CohortPart) -> Result<()> {
        if !self.counts.append(&part.counts) {
            let why = "its counts are of genotypes that are held otherwise, or of more samples";
            return Err(Error::argument("Cohort::of_part", "part", why));
        }
        for adding in &mut self.adding {
            adding.set_part(part)?;
            for rows in reader.steps(&(0..reader.variants())) {
                let stats = self.counts.stats(to_usize(rows.start)..to_usize(rows.end));
                adding.count_elsewhere(reader, &rows, &stats)?;
            }
        }
        self.projecting.as_mut().map_or(Ok(()), |projecting| projecting.set_part(part))
    }
}

/// Describes the genotypes and the form in which they are held.
fn words(genotypes: &Genotypes, reader: &Reader) -> String {
    let dosages = genotypes.kind() == GenotypeKind::Dosages;
    let bounded = if reader.bounded && dosages { ", at most the ploidy" } else { "" };
    format!("{} in {}{bounded}", genotypes.words(), reader.form.name())
}
