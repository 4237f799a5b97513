//! The loadings of variants.

use numpy::IntoPyArray;
use pyo3::{prelude::*, types::PyDict};
use teatime::{Error, Result, Run, linalg::Matrix, to_usize};
use teatime_genotype::{Cohort, Pca, PcaOptions, Variant, VariantReader, VariantSource};

use crate::array::matrix;

/// The loadings of the variants that took part, and the names of these, if they have some.
pub(crate) struct Table {
    rows: Vec<u64>,
    frequency: Vec<f64>,
    mean: Vec<f64>,
    scale: Vec<f64>,
    /// (variants, components).
    loadings: Matrix,
    variants: Option<Vec<Variant>>,
}

impl Table {
    /// Computes the loadings on components of the same genotypes, and reads the names of their variants from `source`.
    /// Fails with [`Error::OutOfHostMemory`]; fails as [`Cohort::loadings`] and [`VariantReader::get`] do.
    pub(crate) fn new(
        cohort: &Cohort,
        pca: &Pca,
        options: &PcaOptions,
        source: Option<&dyn VariantSource>,
        run: &Run,
    ) -> Result<Self> {
        let (used, components) = (to_usize(pca.counts.used), pca.singular_values.len());
        let mut rows = room(used)?;
        let [mut frequency, mut mean, mut scale] = [room(used)?, room(used)?, room(used)?];
        let mut loadings = room(used.saturating_mul(components))?;
        cohort.loadings(pca, options, run, &mut |row| {
            rows.push(row.variant);
            frequency.push(row.frequency);
            mean.push(row.shift);
            scale.push(row.scale);
            loadings.extend(row.loadings);
            Ok(())
        })?;
        let named = |source| {
            let mut reader = VariantReader::new(&[source], true);
            rows.iter().map(|row| reader.get(*row).cloned()).collect::<Result<_>>()
        };
        let variants = source.map(named).transpose()?;
        let loadings = Matrix::from_vec(loadings, rows.len(), components)?;
        Ok(Self { rows, frequency, mean, scale, loadings, variants })
    }

    /// Returns a dictionary of the columns.
    pub(crate) fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("loadings", matrix(py, self.loadings)?)?;
        dict.set_item("rows", self.rows.into_pyarray(py))?;
        for (name, column) in [("frequency", self.frequency), ("mean", self.mean), ("scale", self.scale)] {
            dict.set_item(name, column.into_pyarray(py))?;
        }
        let Some(variants) = self.variants else { return Ok(dict) };
        let texts = |text: fn(&Variant) -> &str| variants.iter().map(text).collect::<Vec<_>>();
        dict.set_item("contig", texts(|variant| &variant.contig))?;
        dict.set_item("id", texts(|variant| &variant.id))?;
        dict.set_item("reference", texts(|variant| &variant.reference))?;
        dict.set_item("alternate", texts(|variant| &variant.alternate))?;
        let positions: Vec<_> = variants.iter().map(|variant| variant.position).collect();
        dict.set_item("position", positions.into_pyarray(py))?;
        Ok(dict)
    }
}

/// Returns an empty vector with room for `count` numbers. Fails with [`Error::OutOfHostMemory`].
fn room<T>(count: usize) -> Result<Vec<T>> {
    let (mut numbers, requested) = (Vec::new(), count.saturating_mul(size_of::<T>()) as u64);
    let reserved = numbers.try_reserve_exact(count);
    reserved.map_err(|_| Error::OutOfHostMemory { what: "loadings".into(), requested })?;
    Ok(numbers)
}
