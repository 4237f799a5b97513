//! Results of two cohorts, by the variants that both have.

use std::sync::Arc;

use numpy::IntoPyArray;
use pyo3::{
    prelude::*,
    types::{IntoPyDict, PyDict, PyTuple},
};
use teatime::{Device, Error, Result, Run};
use teatime_genotype::{
    Cohort, Match, MatchBy, MatchCounts, ProjectMethod, ReferenceLoadings, SamplePairs, VariantIndex,
    VariantMatches, VariantSource, Wanted,
};

use crate::{
    array::{matrix, pair},
    call::{RunOptions, call_on},
    distance::SamplesOptions,
    errors::{either, exception},
    genotype::{Genotypes, OfPca, Relationships, components, counts},
};

/// Returns the property to match variants by that has this name.
fn by(name: &str) -> PyResult<MatchBy> {
    either("match", name, &[MatchBy::Position, MatchBy::Id].map(|by| (by.name(), by)))
}

/// Returns the source of the variants of `genotypes`, the argument `name`.
/// Fails with [`Error::Argument`] for an array, whose variants have no names.
fn source(genotypes: &Genotypes, name: &'static str) -> Result<Arc<dyn VariantSource>> {
    let why = "an array does not say which variants it has; the path of a store or of a .bed does";
    genotypes.source.clone().ok_or_else(|| Error::argument("matching", name, why))
}

/// Matches the variants of `genotypes` with those of `index`.
/// Fails as [`VariantIndex::matches`] does; with [`Error::Argument`] if variants without alleles repeat a position.
fn matches(
    index: &VariantIndex,
    genotypes: &Genotypes,
    device: &Device,
    run: &Run,
) -> Result<VariantMatches> {
    let source = source(genotypes, "genotypes")?;
    let matched = index.matches(&genotypes.genotypes, &[&*source], None, device, run)?;
    match matched.counts.unknown_repeated {
        0 => Ok(matched),
        n => {
            let why = format!(
                "{n} variants repeat the position of another, and without alleles nothing tells them apart"
            );
            Err(Error::argument("matching", "genotypes", why))
        }
    }
}

/// Returns a dictionary with the counts of each side: of matched variants, and of others by reason.
fn matched<'py>(py: Python<'py>, counts: &MatchCounts) -> PyResult<Bound<'py, PyDict>> {
    let (reference, own) = (counts.reference.named(), counts.genotypes.named());
    [("reference", reference.into_py_dict(py)?), ("genotypes", own.into_py_dict(py)?)].into_py_dict(py)
}

/// Computes the distances of the samples of `genotypes` from those of `others`. Also returns the numbers of variants called in both, how many
/// variants took part, how many of these have more than two alleles, and how variants were matched.
#[pyfunction]
pub(crate) fn distances_between<'py>(
    py: Python<'py>,
    genotypes: &Genotypes,
    others: &Genotypes,
    match_by: &str,
    options: SamplesOptions,
    run: RunOptions,
) -> PyResult<(Relationships<'py>, u64, Bound<'py, PyDict>)> {
    let (by, options, device) = (by(match_by)?, options.distance_options()?, run.device(py)?);
    let (found, distances) = call_on(py, &device, run, |device, run| {
        let index = VariantIndex::of_genotypes(by, &others.genotypes, &[&*source(others, "others")?], run)?;
        let matched = matches(&index, genotypes, device, run)?;
        drop(index);
        let pairs = SamplePairs::between(&genotypes.genotypes, &others.genotypes, &matched.matches);
        let distances = teatime_genotype::distances(pairs, device, &options, run)?;
        Ok((matched, distances))
    })?;
    let (matrix, shared) = pair(py, distances.matrix, distances.shared)?;
    let relationships = (matrix, shared, counts(py, &distances.facts.counts)?);
    Ok((relationships, distances.facts.multiallelic, matched(py, &found.counts)?))
}

/// Computes the principal components of `reference`, and the coordinates of the samples of `genotypes` on these. Returns these, the number of
/// variants called in each sample, the components, how variants were matched, and how many absent ones became homozygous reference.
#[pyfunction]
pub(crate) fn project<'py>(
    py: Python<'py>,
    genotypes: &Genotypes,
    reference: &Genotypes,
    match_by: &str,
    options: OfPca,
    rules: (String, String),
    run: RunOptions,
) -> PyResult<Bound<'py, PyTuple>> {
    let (missing, absent) = rules;
    let as_reference = either("absent", &absent, &[("missing", false), ("reference", true)])?;
    let methods = [ProjectMethod::Mean, ProjectMethod::LeastSquares].map(|method| (method.name(), method));
    let (by, method, options) =
        (by(match_by)?, either("missing", &missing, &methods)?, options.pca_options()?);
    let has_all = |source: &Arc<dyn VariantSource>| source.n_variants() == genotypes.genotypes.variants();
    let why = match by {
        MatchBy::Id => Some("reference is about places, and `match` of id knows none"),
        _ if genotypes.source.as_ref().is_none_or(has_all) => None,
        _ => Some("reference needs all variants of the `genotypes`, of which some were left out"),
    };
    if let Some(why) = why.filter(|_| as_reference) {
        return Err(exception(Error::argument("project", "absent", why)));
    }
    let device = run.device(py)?;
    let (pca, found, projection) = call_on(py, &device, run, |device, run| {
        let (own, source) = (&reference.genotypes, source(reference, "reference")?);
        let cohort = Cohort::load(own, device, &Wanted::default().pca(&options).loadings(), run)?;
        let pca = cohort.pca(&options, run)?;
        let mut loadings = ReferenceLoadings::new(pca.scaler, own.ploidy(), pca.singular_values.len())?;
        let mut rows = Vec::new();
        cohort.loadings(&pca, &options, run, &mut |row| {
            rows.push(row.variant..row.variant + 1);
            loadings.push(row.frequency, row.shift, row.scale, row.loadings)
        })?;
        drop(cohort);
        let index = VariantIndex::of_genotypes(by, &own.clone().select(rows)?, &[&*source], run)?;
        let matched = matches(&index, genotypes, device, run)?;
        drop(index);
        let is_turned = own.counted_allele() == Some(0);
        let found = |&row| if is_turned { Match::Swapped(row) } else { Match::Same(row) };
        let absent: Vec<_> = matched.absent.iter().filter(|_| as_reference).map(found).collect();
        let wanted = Wanted::default().projection(&loadings, &matched.matches, method).absent(&absent);
        let cohort = Cohort::load(&genotypes.genotypes, device, &wanted, run)?;
        let Some(projection) = cohort.projection().cloned() else {
            unreachable!("a projection that is wanted was made");
        };
        Ok((pca, matched, projection))
    })?;
    let taken = projection.used - found.counts.reference.used;
    let (scores, called) = (matrix(py, projection.scores)?, projection.called.into_pyarray(py));
    (scores, called, components(py, pca)?, matched(py, &found.counts)?, taken).into_pyobject(py)
}
