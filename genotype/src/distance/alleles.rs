//! Variants of more than two alleles: what distances are where their alternate alleles differ.
//!
//! With `c(a)` a sample's copies of allele a, how two samples differ at a variant is half of the sum over its alleles of how their copies of
//! it differ: by |x - y| the alleles that are not shared, by (x - y)² half of the squared distance of the copies of all, and by
//! x + y - x y twice the probability that alleles drawn at random differ. At two alleles each is what dosages give. Copies of all alternate
//! alleles differ as those of the reference do, so that sums over all variants lack, at those of more, half of the sums of each alternate
//! allele, less half of those of all together.

use teatime::{
    Device, Result, Run,
    distance::{Distances as Found, Metric, Missing, PackedPairs},
    linalg::Matrix,
};

use super::{
    DistanceOptions, SampleMetric, added_up,
    adding::{Accumulator, Variants, without_equal},
};
use crate::{
    carried::carried_alleles,
    cohort::Cohort,
    filter::VariantFilter,
    source::{GenotypeKind, Genotypes},
    to_usize,
};

/// Variants whose rule is asked for at a time.
const AT_ONCE: u64 = 1 << 16;

/// The variants that take part of which samples carry two alternate alleles or more.
pub(super) struct Several {
    /// Their numbers, and their alleles as [`carried_alleles`] has them.
    variants: Vec<(u64, u128)>,
}

impl DistanceOptions {
    /// True where different alternate alleles differ, of samples of that ploidy.
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
    /// Finds them among the variants that `cohort` counted. A pass over them where one has an allele above 1, else nothing.
    ///
    /// # Errors
    /// As [`carried_alleles`].
    pub(super) fn new(cohort: &Cohort, options: &DistanceOptions, run: &Run) -> Result<Self> {
        let (reader, mut variants) = (&cohort.reader, Vec::new());
        if !reader.genotypes.has_further_alleles() {
            return Ok(Self { variants });
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
        Ok(Self { variants })
    }

    pub(super) fn len(&self) -> u64 {
        self.variants.len() as u64
    }

    /// The rest that the sums of each pair of samples lack, (samples, samples); none where that is nothing, or where alleles are not told apart.
    /// `beside` is what else is held on the host.
    ///
    /// # Cost
    /// A pass over these variants, and one for each alternate allele over those that have it. 24 samples² bytes on the host.
    ///
    /// # Errors
    /// As [`distances`](super::distances()).
    pub(super) fn lack(
        &self,
        genotypes: &Genotypes,
        device: &Device,
        options: &DistanceOptions,
        beside: u64,
        run: &Run,
    ) -> Result<Option<Matrix>> {
        if self.variants.is_empty() || !options.tells_alleles(genotypes.ploidy()) {
            return Ok(None);
        }
        let metric = match options.metric {
            SampleMetric::IbsOfAlleles => SampleMetric::IbsOfAlleles,
            SampleMetric::Of(Metric::Euclidean | Metric::SqEuclidean) => {
                SampleMetric::Of(Metric::SqEuclidean)
            }
            // Haplotypes differ by hamming as well.
            _ => SampleMetric::Of(Metric::CityBlock),
        };
        let options = DistanceOptions {
            metric,
            missing: Some(Missing::Ignore),
            filter: VariantFilter::default(),
            tree: None,
            merge_alleles: true,
        };
        let beside = beside.saturating_add(8 * genotypes.samples().saturating_pow(2));
        let sums = |alleles: u128, allele: Option<u8>| {
            let with = self.variants.iter().filter(|(_, carried)| carried & alleles != 0);
            let part = genotypes.part(&with.map(|(variant, _)| *variant..variant + 1).collect::<Vec<_>>())?;
            let part = allele.map_or(Ok(part.clone()), |allele| part.count_allele(allele))?;
            let (adding, _) = added_up(&part, device, &options, beside, run)?;
            Ok::<_, teatime::Error>(adding.finish(PackedPairs::finish)?.distances)
        };
        let mut lack = sums(u128::MAX, None)?;
        lack.data_mut().iter_mut().for_each(|lack| *lack /= -2.0);
        let all = self.variants.iter().fold(0, |all, (_, carried)| all | carried);
        for allele in (1..=127).filter(|allele| all >> allele & 1 == 1) {
            let sums = sums(1 << allele, Some(allele))?;
            lack.data_mut().iter_mut().zip(sums.data()).for_each(|(lack, sum)| *lack += sum / 2.0);
        }
        Ok(Some(lack))
    }
}

/// The number of alternate alleles.
fn alternates(carried: u128) -> u32 {
    (carried >> 1).count_ones()
}

/// Waits for the distances of what was added up of `genotypes`, in which different alleles differ if the options say so, and counts the
/// variants of more than two. `beside` is what else is held on the host.
///
/// # Errors
/// As [`distances`](super::distances()).
pub(super) fn finish(
    adding: Accumulator,
    cohort: &Cohort,
    genotypes: &Genotypes,
    options: &DistanceOptions,
    beside: u64,
    run: &Run,
) -> Result<(Found, u64)> {
    let (device, n) = (&cohort.reader.device, genotypes.samples());
    let several = Several::new(cohort, options, run)?;
    if several.variants.is_empty() || !options.tells_alleles(genotypes.ploidy()) {
        return Ok((adding.finish(PackedPairs::finish)?, several.len()));
    }
    let loaded = adding.variants.counts().loaded();
    // Sums, counts, and the distances that they become.
    let beside = beside.saturating_add(32 * n.saturating_pow(2));
    if options.metric == SampleMetric::IbsOfAlleles {
        // Sums that no metric of `PartialSums` is made of: they are their own distances.
        let mut found = adding.finish(PackedPairs::finish)?;
        if let Some(lack) = several.lack(genotypes, device, options, beside, run)? {
            found.distances.data_mut().iter_mut().zip(lack.data()).for_each(|(sum, lack)| *sum += lack);
        }
        return Ok((found, several.len()));
    }
    let mut sums = adding.export()?;
    if let Some(lack) = several.lack(genotypes, device, options, beside, run)? {
        add_lower(&mut sums.sums[0], &lack);
    }
    Ok((without_equal(sums.finish()?, loaded), several.len()))
}

/// Adds the lower triangle of a matrix, row by row with the diagonal.
pub(super) fn add_lower(sums: &mut [f64], lack: &Matrix) {
    let lower = (0..lack.rows()).flat_map(|row| &lack.row(row)[..=row]);
    sums.iter_mut().zip(lower).for_each(|(sum, lack)| *sum += lack);
}

/// The number of variants that both sides have and of which one has more than two alleles: those of each side, in the same order.
///
/// # Errors
/// As [`carried_alleles`].
pub(super) fn several_of_both(sides: [(&Genotypes, Vec<u64>); 2], device: &Device, run: &Run) -> Result<u64> {
    let mut several = std::collections::BTreeSet::new();
    for (genotypes, variants) in sides {
        let is_told =
            matches!(genotypes.kind(), GenotypeKind::Calls { .. }) && genotypes.counted_allele().is_none();
        if !is_told {
            continue;
        }
        // The variants are sorted by index; each keeps its place in the list of matches.
        let mut places: Vec<(u64, usize)> = variants.into_iter().zip(0..).collect();
        places.sort_unstable();
        let ranges: Vec<_> = places.iter().map(|(variant, _)| *variant..variant + 1).collect();
        let carried = carried_alleles(&genotypes.part(&ranges)?, device, run)?;
        several.extend(
            places
                .iter()
                .zip(carried)
                .filter(|(_, carried)| alternates(*carried) > 1)
                .map(|((_, at), _)| *at),
        );
    }
    Ok(several.len() as u64)
}
