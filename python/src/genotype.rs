//! Genotypes, and results computed from them.

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use numpy::{IntoPyArray, PyArrayDyn};
use pyo3::{
    prelude::*,
    types::{IntoPyDict, PyBytes, PyDict},
};
use teatime::{
    ChunkedArray, Error, MissingChunk, Result,
    store::{local_path, open_storage},
    stream::Selection,
};
use teatime_genotype::{
    Cohort, CohortPart, GenotypeStore, Genotypes as OfSamples, GrmMethod, GrmOptions, Method, MissingCalls,
    PartSums, Pca, PcaOptions, Scaler, SumValues, VariantCounts, VariantFilter, VariantSource, Wanted,
    bed::{BedFile, BedOptions, Sample},
};

use crate::{
    array::{matrix, pair},
    call::{self, RunOptions, aside, call_on},
    errors::{either, exception, one_of},
    linalg,
    lists::{Absent, Lists, Samples, on_contigs},
    loadings::Table,
    operand::{Array, with_array},
    stored::{Rows, range},
};

/// Returns the number of variants of which each part's start is a multiple.
#[pyfunction]
pub(crate) fn part_step(samples: u64) -> u64 {
    Cohort::part_step(samples)
}

/// Genotypes of a store, of a .bed, or of an array.
#[pyclass(module = "teatime._teatime", frozen)]
#[derive(Clone, Debug)]
pub(crate) struct Genotypes {
    pub(crate) genotypes: OfSamples,
    samples: Samples,
    /// The source of the variants' names, unless they are of an array.
    pub(crate) source: Option<Arc<dyn VariantSource>>,
}

#[pymethods]
impl Genotypes {
    /// Wraps rows of calls (variants, samples, ploidy) or dosages (variants, samples): the rows from `first` on, of `variants` in all.
    #[staticmethod]
    fn of_array(array: Array<'_>, first: u64, variants: Option<u64>, nan_is_missing: bool) -> PyResult<Self> {
        let rows = with_array!(array, array => Rows::new(array, first, variants))?;
        let arrays: Vec<Arc<dyn ChunkedArray>> = vec![Arc::new(rows)];
        let genotypes = OfSamples::new(arrays).map_err(exception)?.nan_is_missing(nan_is_missing);
        Ok(Self::new(genotypes, None, None, None))
    }

    /// Opens the genotypes of a Zarr store, or of a PLINK .bed with its .bim and .fam. The path of a store may be a URL, with options.
    #[staticmethod]
    #[pyo3(signature = (path, array, fill, storage_options=None, tables=(None, None)))]
    fn of_store(
        py: Python<'_>,
        path: PathBuf,
        array: Option<String>,
        fill: bool,
        storage_options: Option<HashMap<String, String>>,
        tables: (Option<PathBuf>, Option<PathBuf>),
    ) -> PyResult<Self> {
        let missing = if fill { MissingChunk::Fill } else { MissingChunk::Error };
        let options = call::storage_options(storage_options);
        aside(py, move || {
            if path.extension().is_some_and(|ending| ending == "bed") {
                let mut options = BedOptions::default();
                (options.bim, options.fam) = tables;
                let bed = BedFile::open_with(&path, &options)?;
                let names =
                    |name: fn(&Sample) -> &String| Some(bed.samples().iter().map(name).cloned().collect());
                let [ids, families] = [names(|sample| &sample.id), names(|sample| &sample.family)];
                return Ok(Self::new(bed.genotypes()?, ids, families, Some(Arc::new(bed))));
            }
            for (name, table) in [("bim", tables.0), ("fam", tables.1)] {
                if table.is_some() {
                    return Err(Error::argument(
                        "open_store",
                        name,
                        "it is a table of a .bed, which the path does not end with",
                    ));
                }
            }
            let store = match local_path(&path) {
                Some(path) => GenotypeStore::open(path, array.as_deref(), missing)?,
                None => GenotypeStore::open_in(open_storage(&path, &options)?, array.as_deref(), missing)?,
            };
            let genotypes = OfSamples::of_any_ploidy(store.arrays().to_vec())?;
            Ok(Self::new(genotypes, store.sample_ids()?, None, Some(Arc::new(store))))
        })
    }

    /// Takes the samples and variants that lists leave. Also returns the lists with ids that nothing has.
    fn choose(&self, py: Python<'_>, lists: Lists) -> PyResult<(Self, Vec<Absent>)> {
        let Self { genotypes, mut samples, source } = self.clone();
        aside(py, move || {
            let (genotypes, absent) = lists.choose(genotypes, &mut samples, source.as_deref())?;
            Ok((Self { genotypes, samples, source }, absent))
        })
    }

    /// Takes the variants on the contigs of a list, or with no list on the autosomes. Also returns the listed names that no variant is on.
    fn on_contigs(
        &self,
        py: Python<'_>,
        list: Option<String>,
        autosomes: Option<i64>,
    ) -> PyResult<(Self, Vec<String>)> {
        let Self { genotypes, samples, source } = self.clone();
        aside(py, move || {
            let (genotypes, absent) = on_contigs(genotypes, source.as_deref(), list.as_deref(), autosomes)?;
            Ok((Self { genotypes, samples, source }, absent))
        })
    }

    /// Takes each haplotype of the calls for a sample. The second of sample `a` is named `a_2`.
    fn haplotypes(&self) -> PyResult<Self> {
        let Self { genotypes, samples, source } = self.clone();
        let samples = samples.haplotypes(genotypes.ploidy());
        Ok(Self { genotypes: genotypes.haplotypes().map_err(exception)?, samples, source })
    }

    /// Selects some of the selected variants, by their indices among these: ranges in ascending order.
    fn select(&self, rows: Vec<(u64, u64)>) -> PyResult<Self> {
        self.changed(|genotypes| {
            let rows = rows.into_iter().map(range);
            let rows = Selection::new("Genotypes.select", "rows", rows, genotypes.variants())?;
            let among = Selection::new("Genotypes.select", "rows", genotypes.selected(), u64::MAX)?;
            let places: Vec<_> = rows.ranges().flat_map(|numbers| among.places(numbers)).collect();
            genotypes.select(places)
        })
    }

    /// The ranges of the selected variants.
    #[getter]
    fn selected(&self) -> Vec<(u64, u64)> {
        self.genotypes.selected().map(|rows| (rows.start, rows.end)).collect()
    }

    /// Takes the number of copies of one allele as dosage.
    fn count_allele(&self, allele: u8) -> PyResult<Self> {
        self.changed(|genotypes| genotypes.count_allele(allele))
    }

    /// Treats calls of any other ploidy as missing.
    fn with_ploidy(&self, ploidy: u64) -> PyResult<Self> {
        self.changed(|genotypes| genotypes.with_ploidy(ploidy))
    }

    /// Returns the ranges of variants of parts, of which there are at most `count`.
    fn part_ranges(&self, count: u64) -> Vec<(u64, u64)> {
        Cohort::part_ranges(&self.genotypes, count).into_iter().map(|rows| (rows.start, rows.end)).collect()
    }

    /// The names of the selected samples, if the store has them.
    #[getter]
    pub(crate) fn names(&self) -> Option<Vec<String>> {
        self.samples.names()
    }

    #[getter]
    fn variants(&self) -> u64 {
        self.genotypes.variants()
    }

    #[getter]
    fn samples(&self) -> u64 {
        self.genotypes.samples()
    }

    #[getter]
    fn ploidy(&self) -> u64 {
        self.genotypes.ploidy()
    }
}

impl Genotypes {
    fn new(
        genotypes: OfSamples,
        ids: Option<Vec<String>>,
        families: Option<Vec<String>>,
        source: Option<Arc<dyn VariantSource>>,
    ) -> Self {
        let samples = 0..genotypes.samples();
        Self { genotypes, samples: Samples { ids, families, left: vec![samples] }, source }
    }

    /// Returns a copy to which `change` has been applied.
    fn changed(&self, change: impl FnOnce(OfSamples) -> Result<OfSamples>) -> PyResult<Self> {
        let genotypes = change(self.genotypes.clone()).map_err(exception)?;
        Ok(Self { genotypes, samples: self.samples.clone(), source: self.source.clone() })
    }
}

/// The options of principal components, as Python passes them.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct OfPca {
    n_components: usize,
    scaler: String,
    method: String,
    min_maf: f64,
    max_missing: f64,
    svd: linalg::Options,
}

impl OfPca {
    pub(crate) fn pca_options(self) -> PyResult<PcaOptions> {
        let scalers = [Scaler::Patterson, Scaler::Binom2, Scaler::Standard, Scaler::Center, Scaler::None];
        let scaler = one_of("scaler", &self.scaler, &scalers.map(|scaler| (scaler.name(), scaler)))?;
        let methods = [("auto", Method::Auto), ("exact", Method::Exact), ("randomized", Method::Randomized)];
        let method = either("method", &self.method, &methods)?;
        let options = PcaOptions::default().components(self.n_components).scaler(scaler).method(method);
        Ok(options.filter(filter(self.min_maf, self.max_missing)).svd(self.svd.svd_options()?))
    }
}

/// Returns the filter of the variants.
pub(crate) fn filter(min_maf: f64, max_missing: f64) -> VariantFilter {
    VariantFilter::default().min_maf(min_maf).max_missing(max_missing)
}

/// The options of a relationship matrix, as Python passes them.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct OfGrm {
    method: String,
    missing: String,
    min_maf: f64,
    max_missing: f64,
}

impl OfGrm {
    fn grm_options(&self) -> PyResult<GrmOptions> {
        let methods = [GrmMethod::Gcta, GrmMethod::VanRaden1].map(|method| (method.name(), method));
        let method = either("method", &self.method, &methods)?;
        let rules = [MissingCalls::Pairwise, MissingCalls::Mean].map(|rule| (rule.name(), rule));
        let missing = either("missing", &self.missing, &rules)?;
        let options = GrmOptions::default().method(method).missing(missing);
        Ok(options.filter(filter(self.min_maf, self.max_missing)))
    }
}

/// The result that parts are computed for: components, or relationships.
#[derive(Debug, FromPyObject)]
pub(crate) enum Of {
    Pca(OfPca),
    Grm(OfGrm),
}

impl Of {
    fn options(self) -> PyResult<(Option<PcaOptions>, Option<GrmOptions>)> {
        Ok(match self {
            Self::Pca(options) => (Some(options.pca_options()?), None),
            Self::Grm(options) => (None, Some(options.grm_options()?)),
        })
    }
}

/// Refuses unknown names, before any task is submitted to a cluster.
#[pyfunction]
pub(crate) fn check(of: Of) -> PyResult<()> {
    of.options().map(drop)
}

/// Returns a dictionary of the results of a PCA.
pub(crate) fn components<'py>(py: Python<'py>, pca: Pca) -> PyResult<Bound<'py, PyDict>> {
    let result = PyDict::new(py);
    result.set_item("scores", matrix(py, pca.scores())?)?;
    result.set_item("explained_variance", pca.explained_variance().into_pyarray(py))?;
    result.set_item("explained_variance_ratio", pca.explained_variance_ratio().into_pyarray(py))?;
    result.set_item("eigenvalues", pca.eigenvalues().into_pyarray(py))?;
    result.set_item("residuals", pca.residuals.into_pyarray(py))?;
    result.set_item("converged", pca.converged)?;
    result.set_item("method", if pca.method == Method::Exact { "exact" } else { "randomized" })?;
    result.set_item("reason", pca.reason)?;
    result.set_item("passes", pca.passes)?;
    result.set_item("sum_squares", pca.sum_squares)?;
    result.set_item("counts", counts(py, &pca.counts)?)?;
    result.set_item("singular_values", pca.singular_values.into_pyarray(py))?;
    result.set_item("vectors", matrix(py, pca.vectors)?)?;
    Ok(result)
}

/// Returns a dictionary of how many variants took part, and how many were dropped by each rule.
pub(crate) fn counts<'py>(py: Python<'py>, counts: &VariantCounts) -> PyResult<Bound<'py, PyDict>> {
    let counts = [
        ("total", counts.total),
        ("used", counts.used),
        ("above_missing", counts.above_missing),
        ("all_missing", counts.all_missing),
        ("below_maf", counts.below_maf),
        ("zero_variance", counts.zero_variance),
    ];
    counts.into_py_dict(py)
}

/// Computes the principal components of the samples, from `part` if it is given, which has to cover all variants. Also returns the loadings of
/// the variants, if they are wanted.
#[pyfunction]
#[pyo3(signature = (genotypes, options, run, part = None, loadings = false))]
pub(crate) fn pca<'py>(
    py: Python<'py>,
    genotypes: &Genotypes,
    options: OfPca,
    run: RunOptions,
    part: Option<&Part>,
    loadings: bool,
) -> PyResult<(Bound<'py, PyDict>, Option<Bound<'py, PyDict>>)> {
    let (options, device) = (options.pca_options()?, run.device(py)?);
    let (pca, table) = call_on(py, &device, run, |device, run| {
        let mut wanted = Wanted::default().pca(&options);
        if loadings {
            wanted = wanted.loadings();
        }
        let cohort = match part {
            Some(Part(part)) => Cohort::of_part(&genotypes.genotypes, device, &wanted, part, run)?,
            None => Cohort::load(&genotypes.genotypes, device, &wanted, run)?,
        };
        let pca = cohort.pca(&options, run)?;
        let table = loadings.then(|| Table::new(&cohort, &pca, &options, genotypes.source.as_deref(), run));
        Ok((pca, table.transpose()?))
    })?;
    Ok((components(py, pca)?, table.map(|table| table.into_dict(py)).transpose()?))
}

/// Relationships, the numbers of variants called in both samples, and the counts of variants.
pub(crate) type Relationships<'py> =
    (Bound<'py, PyArrayDyn<f64>>, Option<Bound<'py, PyArrayDyn<f64>>>, Bound<'py, PyDict>);

/// Computes the relationship matrix of the samples, from `part` if it is given, which has to cover all variants.
#[pyfunction]
#[pyo3(signature = (genotypes, options, run, part = None))]
pub(crate) fn grm<'py>(
    py: Python<'py>,
    genotypes: &Genotypes,
    options: OfGrm,
    run: RunOptions,
    part: Option<&Part>,
) -> PyResult<Relationships<'py>> {
    let (genotypes, options, device) = (&genotypes.genotypes, options.grm_options()?, run.device(py)?);
    let grm = call_on(py, &device, run, |device, run| match part {
        Some(Part(part)) => {
            let wanted = Wanted::default().grm(&options);
            Cohort::of_part(genotypes, device, &wanted, part, run)?.grm(&options, run)
        }
        None => teatime_genotype::grm(genotypes, device, &options, run),
    })?;
    let (matrix, shared) = pair(py, grm.matrix, grm.shared)?;
    Ok((matrix, shared, counts(py, &grm.counts)?))
}

/// Counts and sums over some of the variants. Parts of adjacent variants merge.
#[pyclass(module = "teatime._teatime", frozen)]
#[derive(Debug)]
pub(crate) struct Part(CohortPart);

#[pymethods]
impl Part {
    /// Computes the part of the variants in `rows` of `genotypes`, for the result that `of` names.
    #[new]
    fn new(
        py: Python<'_>,
        genotypes: &Genotypes,
        rows: (u64, u64),
        of: Of,
        run: RunOptions,
    ) -> PyResult<Self> {
        let device = run.device(py)?;
        let (pca, grm) = of.options()?;
        let part = call_on(py, &device, run, |device, run| {
            let mut wanted = Wanted::default();
            if let Some(options) = &pca {
                wanted = wanted.pca(options);
            }
            if let Some(options) = &grm {
                wanted = wanted.grm(options);
            }
            Cohort::part(&genotypes.genotypes, range(rows), device, &wanted, run)
        })?;
        Ok(Self(part))
    }

    /// Merges two parts, whose variants have to be adjacent.
    fn merge(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        py.detach(|| self.0.clone().merge(other.0.clone())).map(Self).map_err(exception)
    }

    /// Returns the number of bytes that the part takes, by which dask decides where tasks run.
    fn __sizeof__(&self) -> usize {
        let bytes = |sums: &PartSums| match &sums.values {
            SumValues::Whole { values, .. } => size_of_val(&values[..]),
            SumValues::Real(values) => size_of_val(&values[..]),
        };
        self.0.sums.iter().map(bytes).sum()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let bytes = py.detach(|| self.0.to_bytes());
        Ok((py.get_type::<Self>().getattr("_of")?, (PyBytes::new(py, &bytes),)))
    }

    /// Restores a part from the bytes of `__reduce__`.
    #[staticmethod]
    fn _of(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        py.detach(|| CohortPart::from_bytes(bytes)).map(Self).map_err(exception)
    }
}
