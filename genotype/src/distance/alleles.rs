//! Distances at variants of more than two alleles, where different alternate alleles differ.
//!
//! Let `c(a)` be a sample's copies of allele a. The difference of two samples at a variant is half of the sum, over its alleles, of the
//! difference of their copies. By |x - y| it is the number of alleles that are not shared, by (x - y)² half of the squared distance of the
//! vectors of copies, and by x + y - x y twice the probability that alleles drawn at random differ. At two alleles these equal what dosages
//! give. The copies of all alternate alleles together differ as much as those of the reference. So sums of dosages over all variants lack,
//! at variants of more than two alleles, half of the sums of each alternate allele, less half of the sums of all alternate alleles together.

use std::iter;

use teatime::{
    Device, Result, Run,
    distance::{Distances as Found, Metric, Missing, PartialSums},
    linalg::Matrix,
};

use super::{
    DistanceOptions, OP, SampleMetric, Settings,
    adding::{Accumulator, Variants, without_equal},
};
use crate::{
    carried::carried_alleles,
    cohort::Cohort,
    source::{GenotypeKind, Genotypes},
    to_usize,
};

/// The number of variants whose rule is evaluated at a time.
const AT_ONCE: u64 = 1 << 16;

/// The variants that take part and at which samples carry two or more alternate alleles.
pub(super) struct Several {
    /// The indices of these variants, and their alleles as [`carried_alleles`] returns them.
    variants: Vec<(u64, u128)>,
    /// True if there are any, and different alternate alleles differ.
    pub(super) are_told: bool,
}

impl DistanceOptions {
    /// Returns true if different alternate alleles of samples of that ploidy differ.
    pub(super) fn tells_alleles(&self, ploidy: u64) -> bool {
        let metric = match self.metric {
            SampleMetric::Ibs | SampleMetric::IbsOfAlleles => true,
            SampleMetric::Of(Metric::Euclidean | Metric::SqEuclidean | Metric::CityBlock) => true,
            SampleMetric::Of(metric) => metric == Metric::Hamming && ploidy == 1,
        };
        metric && !self.merge_alleles
    }
}

impl Several {
    /// Finds these variants among those that `cohort` counted. Makes a pass if any call has an allele above 1, else none.
    pub(super) fn new(cohort: &Cohort, Settings { options, run, .. }: Settings<'_>) -> Result<Self> {
        let (reader, mut variants) = (&cohort.reader, Vec::new());
        if !reader.genotypes.has_further_alleles() {
            return Ok(Self { variants, are_told: false });
        }
        let carried = carried_alleles(&reader.genotypes, &reader.device, run)?;
        let mut rule = Variants::new(std::slice::from_ref(reader), options);
        for (first, carried) in (0..).step_by(to_usize(AT_ONCE)).zip(carried.chunks(to_usize(AT_ONCE))) {
            let kept = rule.kept(reader, &cohort.stats_of(&(first..first + carried.len() as u64)))?;
            let several = (first..)
                .zip(carried)
                .zip(kept)
                .filter(|((_, carried), kept)| kept.is_some() && alternates(**carried) > 1);
            variants.extend(several.map(|((variant, carried), _)| (variant, *carried)));
        }
        let are_told = !variants.is_empty() && options.tells_alleles(reader.genotypes.ploidy());
        Ok(Self { variants, are_told })
    }

    pub(super) fn len(&self) -> u64 {
        self.variants.len() as u64
    }

    /// Waits for the sums over the cohort's genotypes, and adds what they lack.
    pub(super) fn export(
        &self,
        adding: Accumulator,
        cohort: &Cohort,
        settings: Settings<'_>,
    ) -> Result<PartialSums> {
        let mut sums = adding.export()?;
        if self.are_told {
            let lack = self.lack(cohort, settings)?;
            let lower = (0..lack.rows()).flat_map(|row| &lack.row(row)[..=row]);
            sums.sums[0].iter_mut().zip(lower).for_each(|(sum, lack)| *sum += lack);
        }
        Ok(sums)
    }

    /// Waits for the distances from the sums over the cohort's genotypes.
    pub(super) fn finish(
        &self,
        adding: Accumulator,
        cohort: &Cohort,
        settings: Settings<'_>,
    ) -> Result<Found> {
        if !self.are_told {
            return adding.finish(None);
        }
        // These bytes are for sums, counts, and the distances that they become.
        let beside = settings.beside.saturating_add(32 * cohort.genotypes().samples().saturating_pow(2));
        let settings = Settings { beside, ..settings };
        if settings.options.metric == SampleMetric::IbsOfAlleles {
            // `PartialSums` has no metric for these sums, which are the similarities.
            let mut ibs = adding.finish(None)?;
            let lack = self.lack(cohort, settings)?;
            ibs.distances.data_mut().iter_mut().zip(lack.data()).for_each(|(sum, lack)| *sum += lack);
            return Ok(ibs);
        }
        let loaded = adding.variants.counts(OP)?.loaded();
        Ok(without_equal(self.export(adding, cohort, settings)?.finish()?, loaded))
    }

    /// Computes the part that the sums of each pair of the cohort's samples lack, (samples, samples), in a pass over these variants, and one for
    /// each alternate allele over the variants that have it. Takes 24 samples² bytes on the host.
    fn lack(&self, cohort: &Cohort, settings: Settings<'_>) -> Result<Matrix> {
        let (genotypes, device) = (cohort.genotypes(), cohort.device());
        let metric = match settings.options.metric {
            SampleMetric::IbsOfAlleles => SampleMetric::IbsOfAlleles,
            SampleMetric::Of(Metric::Euclidean | Metric::SqEuclidean) => {
                SampleMetric::Of(Metric::SqEuclidean)
            }
            // City block gives the same sums as Hamming for haplotypes.
            _ => SampleMetric::Of(Metric::CityBlock),
        };
        let options = &DistanceOptions::default().metric(metric).missing(Missing::Ignore).merge_alleles(true);
        let beside = settings.beside.saturating_add(8 * genotypes.samples().saturating_pow(2));
        let settings = Settings { device, options, beside, ..settings };
        let n = to_usize(genotypes.samples());
        let mut lack = Matrix::zeros(n, n);
        let alleles = self.variants.iter().fold(0, |alleles, (_, carried)| alleles | carried);
        let each = (1..=127).filter(|allele| alleles >> allele & 1 == 1).map(Some);
        for allele in iter::once(None).chain(each) {
            let (with, share) = allele.map_or((u128::MAX, -0.5), |allele| (1 << allele, 0.5));
            let rows = self.variants.iter().filter(|(_, carried)| carried & with != 0);
            let part = genotypes.part(rows.map(|(variant, _)| *variant..variant + 1))?;
            let part = allele.map_or(Ok(part.clone()), |allele| part.count_allele(allele))?;
            let (adding, _) = Accumulator::load(&part, settings, None)?;
            let sums = adding.finish(None)?.distances;
            lack.data_mut().iter_mut().zip(sums.data()).for_each(|(lack, sum)| *lack += share * sum);
        }
        Ok(lack)
    }
}

fn alternates(carried: u128) -> u32 {
    (carried >> 1).count_ones()
}

/// Returns the number of variants that both sides have and that have more than two alleles in one.
/// `sides` have the variants of each, in matching order.
pub(super) fn several_of_both(sides: [(&Genotypes, Vec<u64>); 2], device: &Device, run: &Run) -> Result<u64> {
    let mut several = std::collections::BTreeSet::new();
    for (genotypes, variants) in sides {
        if !matches!(genotypes.kind(), GenotypeKind::Calls { .. }) || genotypes.counted_allele().is_some() {
            continue;
        }
        // Variants are sorted by index, each with its place among the matches.
        let mut places: Vec<(u64, usize)> = variants.into_iter().zip(0..).collect();
        places.sort_unstable();
        let part = genotypes.part(places.iter().map(|(variant, _)| *variant..variant + 1))?;
        let carried = carried_alleles(&part, device, run)?.into_iter().map(alternates);
        several.extend(places.iter().zip(carried).filter(|(_, count)| *count > 1).map(|((_, at), _)| *at));
    }
    Ok(several.len() as u64)
}
