//! Distances of observations.

use numpy::{IntoPyArray, PyArray1, PyArrayDyn};
use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyTuple},
};
use teatime::{
    Device, Element, Error, bytemuck,
    distance::{
        Metric, Missing, Neighbors, Options as OfDistances, Partial, PartialSums, RadiusNeighbors,
        neighbors_stored, pairwise_stored, radius_neighbors_stored,
    },
};
use teatime_genotype::{
    DistanceBands as OfBands, DistanceOptions as OfSamples, Linkage, Merge, SampleMetric, Tree,
};

use crate::{
    array::{Pair, matrix, pair, reshaped},
    call::{RunOptions, call, call_on},
    context::OnDevice,
    errors::{exception, one_of},
    genotype::{Genotypes, Relationships, counts, filter},
    operand::{Array, Given, parts, with_array},
    stored::StoredArray,
};

/// The options of distances, as Python passes them.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    metric: String,
    p: f64,
    missing: String,
    negative: bool,
    columns: bool,
    /// True computes in f32; `None` means true on devices without f64.
    narrow: Option<bool>,
    expanded: bool,
}

impl Options {
    /// Returns the device of a call, and the metric and the options there.
    /// Fails with `ValueError` for unknown names; the errors of [`RunOptions::device`].
    fn on_device(&self, py: Python<'_>, run: &RunOptions) -> PyResult<(Device, Metric, OfDistances)> {
        let device = run.device(py)?;
        let (metric, missing) = (metric(&self.metric, self.p)?, missing(&self.missing)?);
        let options = OfDistances::default().missing(missing).negative(self.negative);
        let narrow = self.narrow.unwrap_or(!device.limits().f64);
        Ok((device, metric, options.columns(self.columns).narrow(narrow).expanded(self.expanded)))
    }
}

/// Returns the rule for missing elements with this name. Fails with `ValueError` for an unknown name.
pub(crate) fn missing(name: &str) -> PyResult<Missing> {
    let rules = [Missing::Propagate, Missing::Ignore, Missing::Rescale, Missing::RescaleOrZero];
    one_of("missing", name, &rules.map(|rule| (rule.name(), rule)))
}

/// Returns the metric with this name. Fails with `ValueError` for an unknown name.
pub(crate) fn metric(name: &str, p: f64) -> PyResult<Metric> {
    let metric = name.parse::<Metric>().map(|metric| metric.with_exponent(p).unwrap_or(metric));
    metric.map_err(|_| {
        let names = Metric::names().collect::<Vec<_>>().join(", ");
        PyValueError::new_err(format!("`metric` is one of {names}, not {name:?}"))
    })
}

/// Returns the name of the metric that a name and an exponent mean. Fails as [`metric`] does.
#[pyfunction]
pub(crate) fn metric_name(name: &str, p: f64) -> PyResult<&'static str> {
    Ok(metric(name, p)?.name())
}

/// The observations of a call: a stored array, or one in memory.
#[derive(FromPyObject)]
pub(crate) enum Observations<'py> {
    Stored(Bound<'py, StoredArray>),
    Here(Array<'py>),
}

/// Evaluates the first closure on tensors of x and of y, if there is a y, which has the same type; or the second one on stored arrays.
macro_rules! with_operands {
    (
        ($py:expr, $device:expr, $options:expr), [$x:ident, $y:ident] =>
        |$here_x:ident, $here_y:ident, $here_run:ident| $here:expr,
        |$stored_x:ident, $stored_y:ident, $on:ident, $run:ident| $stored:expr
    ) => {
        match $x {
            Observations::Here(x) => with_array!(x, x => {
                let y = of_type($y)?;
                let (x, y) = (parts(x)?, y.as_ref().map(parts).transpose()?);
                call_on($py, $device, $options, |device, $here_run| {
                    let (x, y) = (x.view(device)?, y.as_ref().map(|y| y.view(device)).transpose()?);
                    let ($here_x, $here_y) = (&*x, y.as_deref());
                    $here
                })
            }),
            Observations::Stored(x) => {
                let y = $y.map(|y| y.cast_into::<StoredArray>()).transpose()?;
                let ($stored_x, $stored_y) = (&x.get().array, y.as_ref().map(|y| &y.get().array));
                call_on($py, $device, $options, |$on, $run| $stored)
            }
        }
    };
}

/// Computes the distances of x from itself or from y. Of arrays in memory, shared features are counted if `counted`.
#[pyfunction]
pub(crate) fn pairwise<'py>(
    py: Python<'py>,
    x: Observations<'py>,
    y: Option<Bound<'py, PyAny>>,
    options: Options,
    counted: bool,
    run: RunOptions,
) -> PyResult<Pair<'py>> {
    let (device, metric, options) = options.on_device(py, &run)?;
    let (distances, shared) = with_operands!((py, &device, run), [x, y] =>
        |x, y, run| {
            if counted {
                let pairs = teatime::distance::pairwise_counted(x, y, metric, &options, run)?;
                return Ok((pairs.distances, pairs.shared));
            }
            Ok((teatime::distance::pairwise(x, y, metric, &options, run)?, None))
        },
        |x, y, device, run| {
            let pairs = pairwise_stored(x, y, metric, &options, device, run)?;
            Ok((pairs.distances, pairs.shared))
        }
    )?;
    pair(py, distances, shared)
}

/// Returns the indices of the `k` nearest of x, or of y, for each observation of x, and their distances: (m, k) each.
#[pyfunction]
pub(crate) fn neighbors<'py>(
    py: Python<'py>,
    x: Observations<'py>,
    y: Option<Bound<'py, PyAny>>,
    k: usize,
    options: Options,
    run: RunOptions,
) -> PyResult<Bound<'py, PyTuple>> {
    let (device, metric, options) = options.on_device(py, &run)?;
    let Neighbors { indices, distances, .. } = with_operands!((py, &device, run), [x, y] =>
        |x, y, run| teatime::distance::neighbors(x, y, k, metric, &options, run),
        |x, y, device, run| Ok(neighbors_stored(x, y, k, metric, &options, device, run)?.nearest)
    )?;
    let shape = [distances.rows(), distances.cols()];
    (reshaped(indices.into_pyarray(py), &shape)?, matrix(py, distances)?).into_pyobject(py)
}

/// Returns the observations of x, or of y, within a radius of each observation of x: their offsets, indices and distances.
#[pyfunction]
pub(crate) fn radius_neighbors<'py>(
    py: Python<'py>,
    x: Observations<'py>,
    y: Option<Bound<'py, PyAny>>,
    radius: f64,
    options: Options,
    run: RunOptions,
) -> PyResult<Bound<'py, PyTuple>> {
    let (device, metric, options) = options.on_device(py, &run)?;
    let RadiusNeighbors { offsets, indices, distances, .. } = with_operands!((py, &device, run), [x, y] =>
        |x, y, run| teatime::distance::radius_neighbors(x, y, radius, metric, &options, run),
        |x, y, device, run| Ok(radius_neighbors_stored(x, y, radius, metric, &options, device, run)?.within)
    )?;
    (offsets.into_pyarray(py), indices.into_pyarray(py), distances.into_pyarray(py)).into_pyobject(py)
}

/// Extracts another operand, which has to have the first one's type.
fn of_type<'py, T: Element + numpy::Element>(
    y: Option<Bound<'py, PyAny>>,
) -> PyResult<Option<Given<'py, T>>> {
    y.map(|y| y.extract::<Given<'py, T>>()).transpose()
}

/// Computes the distance of each pair of rows of x once, in scipy's condensed order.
#[pyfunction]
pub(crate) fn condensed<'py>(
    py: Python<'py>,
    x: Array<'py>,
    options: Options,
    run: RunOptions,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (device, metric, options) = options.on_device(py, &run)?;
    let distances = with_array!(x, x => {
        let x = parts(x)?;
        call_on(py, &device, run, |device, run| {
            teatime::distance::condensed(&*x.view(device)?, metric, &options, run)
        })
    })?;
    Ok(distances.into_pyarray(py))
}

/// Sums over some of the features for each pair of observations. Sums can be merged and finished to distances.
#[pyclass(module = "teatime._teatime", frozen)]
#[derive(Debug)]
pub(crate) struct DistanceSums(PartialSums);

/// Returns the rows of scipy's linkage, four numbers each, and the tree as Newick, of samples with these names or else their numbers.
fn clusters<'py>(py: Python<'py>, tree: &Tree, names: Option<Vec<String>>) -> PyResult<Bound<'py, PyTuple>> {
    let names = names.unwrap_or_else(|| (0..=tree.merges.len()).map(|sample| sample.to_string()).collect());
    #[allow(clippy::cast_precision_loss, reason = "numbers of samples, as scipy has them")]
    let row = |&Merge { clusters: [one, other], height, samples }: &Merge| {
        [one as f64, other as f64, height, samples as f64]
    };
    let rows = tree.merges.iter().flat_map(row).collect::<Vec<_>>();
    let newick = tree.newick(&names, |length| length.to_string()).map_err(exception)?;
    (reshaped(rows.into_pyarray(py), &[tree.merges.len(), 4])?, newick).into_pyobject(py)
}

/// Computes the distances of the samples. Also returns the numbers of variants called in both, how many variants took part, how many of these
/// have more than two alleles, whether the alternate alleles of these count as one, and the tree if one is asked for.
#[pyfunction]
pub(crate) fn distances<'py>(
    py: Python<'py>,
    genotypes: &Genotypes,
    options: SamplesOptions,
    run: RunOptions,
) -> PyResult<(Relationships<'py>, u64, bool, Option<Bound<'py, PyTuple>>)> {
    let (options, device) = (options.distance_options()?, run.device(py)?);
    let distances = call_on(py, &device, run, |device, run| {
        teatime_genotype::distances(&genotypes.genotypes, device, &options, run)
    })?;
    let facts = distances.facts;
    let (matrix, shared) = pair(py, distances.matrix, distances.shared)?;
    let tree = distances.tree.map(|tree| clusters(py, &tree, genotypes.names())).transpose()?;
    Ok(((matrix, shared, counts(py, &facts.counts)?), facts.multiallelic, facts.merged, tree))
}

/// The options of distances of samples, as Python passes them.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SamplesOptions {
    metric: String,
    p: f64,
    missing: Option<String>,
    merge_alleles: bool,
    tree: Option<String>,
    min_maf: f64,
    max_missing: f64,
}

impl SamplesOptions {
    /// Fails with `ValueError` for unknown names.
    pub(crate) fn distance_options(&self) -> PyResult<OfSamples> {
        let linkages = Linkage::ALL.iter().map(|linkage| (linkage.name(), *linkage)).collect::<Vec<_>>();
        let tree = self.tree.as_deref().map(|name| one_of("tree", name, &linkages)).transpose()?;
        let metric = match &*self.metric {
            "ibs" => SampleMetric::Ibs,
            "ibs-of-alleles" => SampleMetric::IbsOfAlleles,
            name => SampleMetric::Of(metric(name, self.p)?),
        };
        let missing = self.missing.as_deref().map(missing).transpose()?;
        let options = OfSamples::default().metric(metric).missing(missing).tree(tree);
        Ok(options.merge_alleles(self.merge_alleles).filter(filter(self.min_maf, self.max_missing)))
    }
}

/// The pickled fields of [`DistanceSums`]: metric, exponent, rule for missing elements, whether negative ones are missing; undefined x and y;
/// frames of x and of y if any; features, f64, sums. Numbers are bytes: received arrays may be misaligned, and an error in unpickling hangs
/// dask.
type Fields<'py> = (
    (String, f64, String, bool),
    (Vec<bool>, Option<Vec<bool>>),
    Vec<Bound<'py, PyBytes>>,
    (u64, bool, Vec<Bound<'py, PyBytes>>),
);

#[pymethods]
impl DistanceSums {
    /// Computes the sums of x with itself or with y, which has the same type.
    #[new]
    fn new<'py>(
        py: Python<'py>,
        x: Array<'py>,
        y: Option<Bound<'py, PyAny>>,
        options: Options,
        run: RunOptions,
    ) -> PyResult<Self> {
        let (device, metric, options) = options.on_device(py, &run)?;
        let observations =
            |shape: &[u64]| shape.get(usize::from(options.columns)).copied().unwrap_or_default();
        let sums = with_array!(x, x => {
            let y = of_type(y)?;
            let (x, y) = (parts(x)?, y.as_ref().map(parts).transpose()?);
            call_on(py, &device, run, |device, _| {
                let n = y.as_ref().map(|y| observations(y.shape()));
                let mut sums = Partial::new(device, observations(x.shape()), n, metric, &options)?;
                let y = y.as_ref().map(|y| y.view(device)).transpose()?;
                sums.add(&*x.view(device)?, y.as_deref())?;
                sums.export()
            })
        });
        sums.map(Self)
    }

    /// Computes the sums for all pairs of samples. Negative dosages are missing.
    #[staticmethod]
    fn of_genotypes(
        py: Python<'_>,
        genotypes: &Genotypes,
        options: Options,
        run: RunOptions,
    ) -> PyResult<Self> {
        let (device, metric, options) = options.on_device(py, &run)?;
        let missing = options.missing;
        call_on(py, &device, run, |device, run| {
            let sums = teatime_genotype::distance_sums(&genotypes.genotypes, device, metric, missing, run)?;
            // The sums of arrays set it in the same way, so that both can merge.
            let negative = options.negative && missing != Missing::Propagate;
            Ok(Self(PartialSums { negative, ..sums }))
        })
    }

    /// Returns the sums over the features of both sums.
    fn merge(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        let mut sums = self.0.clone();
        py.detach(|| sums.merge(&other.0)).map_err(exception)?;
        Ok(Self(sums))
    }

    /// Returns the distances (m, n) and, unless missing elements are propagated, the number of features that both observations of a pair have.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Pair<'py>> {
        let pairs = py.detach(|| self.0.finish()).map_err(exception)?;
        pair(py, pairs.distances, pairs.shared)
    }

    /// Returns the number of bytes that the sums take, by which dask decides where tasks run.
    fn __sizeof__(&self) -> usize {
        self.0.sums.iter().map(|sums| size_of_val(&sums[..])).sum()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Fields<'py>,))> {
        let bytes = |numbers: &[u8]| PyBytes::new(py, numbers);
        let sums = &self.0;
        let p = if let Metric::Minkowski(p) = sums.metric { p } else { 2.0 };
        let rule = (sums.metric.name().to_owned(), p, sums.missing.name().to_owned(), sums.negative);
        let undefined = (sums.undefined_x.clone(), sums.undefined_y.clone());
        let frames = [Some(&sums.frames_x), sums.frames_y.as_ref()].into_iter().flatten();
        let frames = frames.map(|frames| bytes(bytemuck::cast_slice(frames))).collect();
        let sums = (
            sums.features,
            sums.wide,
            sums.sums.iter().map(|sums| bytes(bytemuck::cast_slice(sums))).collect(),
        );
        let fields = (rule, undefined, frames, sums);
        Ok((py.get_type::<Self>().getattr("_of")?, (fields,)))
    }

    /// Restores the sums from the fields of `__reduce__`.
    #[staticmethod]
    fn _of(fields: Fields<'_>) -> PyResult<Self> {
        let (rule, (undefined_x, undefined_y), frames, (features, wide, sums)) = fields;
        let (metric, p, missing, negative) = rule;
        let (metric, missing) = (self::metric(&metric, p)?, self::missing(&missing)?);
        let mut frames = frames.iter().map(|frames| numbers(frames.as_bytes()).as_chunks().0.to_vec());
        let (frames_x, frames_y) = (frames.next().unwrap_or_default(), frames.next());
        let sums = sums.iter().map(|sums| numbers(sums.as_bytes())).collect();
        Ok(Self(PartialSums {
            metric,
            missing,
            negative,
            features,
            wide,
            undefined_x,
            undefined_y,
            frames_x,
            frames_y,
            sums,
        }))
    }
}

/// Distances of the samples of one tile from themselves and from all later samples, over all variants.
#[pyclass(module = "teatime._teatime", frozen)]
#[derive(Debug)]
pub(crate) struct DistanceBands(OnDevice<OfBands>);

#[pymethods]
impl DistanceBands {
    /// Prepares bands of tiles of `side` samples. Reads all genotypes once; they stay on the device if the memory budget of `run` allows.
    #[new]
    fn new(
        py: Python<'_>,
        genotypes: &Genotypes,
        options: Options,
        side: u64,
        run: RunOptions,
    ) -> PyResult<Self> {
        let (device, metric, options) = options.on_device(py, &run)?;
        let options = OfSamples::default().metric(SampleMetric::Of(metric)).missing(options.missing);
        call(py, run, |run| OfBands::new(&genotypes.genotypes, &device, &options, side, run))
            .map(OnDevice::new)
            .map(Self)
    }

    /// Computes the distances of a tile, of shape (its samples and all later ones, its samples).
    fn band<'py>(
        &self,
        py: Python<'py>,
        tile: u64,
        run: RunOptions,
    ) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
        let distances = call(py, run, |run| {
            let mut distances = None;
            self.0.each(run, &|other| other != tile, &mut |band| {
                distances = Some(band.matrix);
                Ok(())
            })?;
            distances.ok_or_else(|| {
                Error::argument("distance bands", "tile", format_args!("there is no tile {tile}"))
            })
        })?;
        matrix(py, distances)
    }

    /// The digest of the counts of each variant.
    #[getter]
    fn digest(&self) -> u64 {
        self.0.facts().digest
    }
}

/// Converts bytes in this machine's byte order to numbers.
fn numbers(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|&bytes| f64::from_ne_bytes(bytes)).collect()
}
