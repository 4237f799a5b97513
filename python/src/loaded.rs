//! Genotypes that stay on a device.

use numpy::{PyArrayDyn, PyReadonlyArrayDyn};
use pyo3::{prelude::*, types::PyDict};
use teatime_genotype::{Cohort, Method, PcaOptions, Wanted};

use crate::{
    array::matrix,
    call::{RunOptions, call},
    context::OnDevice,
    genotype::{Genotypes, OfPca, counts},
    linalg,
};

/// Genotypes that stay on a device between products.
#[pyclass(module = "teatime._teatime", frozen)]
#[derive(Debug)]
pub(crate) struct Loaded {
    cohort: OnDevice<Cohort>,
    options: PcaOptions,
}

#[pymethods]
impl Loaded {
    #[new]
    fn new(py: Python<'_>, genotypes: &Genotypes, options: OfPca, run: RunOptions) -> PyResult<Self> {
        let (options, device) = (options.pca_options()?.method(Method::Randomized), run.device(py)?);
        let cohort = call(py, run, |run| {
            Cohort::load(&genotypes.genotypes, &device, &Wanted::default().pca(&options), run)
        })?;
        Ok(Self { cohort: OnDevice::new(cohort), options })
    }

    /// Returns `Aᵀ (A X)` of the standardised genotypes, for X (samples, columns).
    fn normal_product<'py>(
        &self,
        py: Python<'py>,
        x: PyReadonlyArrayDyn<'py, f64>,
        run: RunOptions,
    ) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
        let x = linalg::as_matrix(&x)?;
        let product = call(py, run, |run| self.cohort.normal_product(&self.options, &x, run))?;
        matrix(py, product)
    }

    /// Returns the sum of squares of the standardised genotypes, and the counts of the variants.
    fn totals<'py>(&self, py: Python<'py>) -> PyResult<(f64, Bound<'py, PyDict>)> {
        let (squares, counted) = self.cohort.totals(&self.options);
        Ok((squares, counts(py, &counted)?))
    }

    /// The digest of the counts of each variant.
    #[getter]
    fn digest(&self) -> u64 {
        self.cohort.digest()
    }
}
