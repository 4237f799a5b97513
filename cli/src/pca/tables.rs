//! The tables of `teatime pca`, and the tables of samples that `teatime project` also writes.

use teatime::linalg::Matrix;
use teatime_genotype::Pca;

use crate::{failure::Failure, output::Output, stores::Stores, text};

pub(super) const EIGENVEC: &str = "pca.eigenvec";
pub(super) const EIGENVAL: &str = "pca.eigenval";
pub(super) const SCORES: &str = "scores.tsv";
pub(super) const EIGENVALUES: &str = "eigenvalues.tsv";

pub(super) fn write(output: &Output, pca: &Pca, stores: &Stores) -> Result<(), Failure> {
    eigenvec(output, EIGENVEC, stores, &pca.vectors, |_, v| v)?;
    output.put(EIGENVAL, |file| {
        pca.eigenvalues().iter().try_for_each(|value| writeln!(file, "{}", text::general(*value, 6)))
    })?;
    scores(output, SCORES, stores, &pca.scores())?;
    output.put(EIGENVALUES, |file| {
        let names = "singular_value\texplained_variance\texplained_variance_ratio\tresidual\tconverged";
        writeln!(file, "component\t{names}")?;
        let (variance, ratio) = (pca.explained_variance(), pca.explained_variance_ratio());
        for i in 0..variance.len() {
            let row = [pca.singular_values[i], variance[i], ratio[i], pca.residuals[i]];
            let row: String = row.iter().map(|value| format!("\t{}", text::exact(*value))).collect();
            writeln!(file, "{}{row}\t{}", i + 1, pca.converged[i])?;
        }
        Ok(())
    })
}

/// Writes scores (samples, components) in scikit-allel's form.
pub(crate) fn scores(output: &Output, name: &str, stores: &Stores, scores: &Matrix) -> Result<(), Failure> {
    of_samples(output, name, stores, ["sample", "family\tsample"], scores, |_, v| text::exact(v))
}

/// Writes eigenvectors (samples, components) in plink2's format. `value` converts each element, given its component.
pub(crate) fn eigenvec(
    output: &Output,
    name: &str,
    stores: &Stores,
    vectors: &Matrix,
    value: impl Fn(usize, f64) -> f64,
) -> Result<(), Failure> {
    let text = |i, v| text::general(value(i, v), 6);
    of_samples(output, name, stores, ["#IID", "#FID\tIID"], vectors, text)
}

/// Writes a row for each sample, with its names and a value for each component.
fn of_samples(
    output: &Output,
    name: &str,
    stores: &Stores,
    names: [&str; 2],
    numbers: &Matrix,
    text: impl Fn(usize, f64) -> String,
) -> Result<(), Failure> {
    let components: String = (1..=numbers.cols()).map(|i| format!("\tPC{i}")).collect();
    let header = stores.sample_header(names) + &components;
    output.numbers(name, &header, stores.sample_cells(), numbers, text)
}
