//! The report of `teatime pca` and of the demo.

use std::time::Duration;

use serde_json::json;
use teatime_genotype::{Method, Pca, PcaOptions, Scaler};

use crate::{
    iteration,
    report::{Report, used, variants},
    stores::Stores,
    text,
};

/// Describes the components, and the `time` that they took.
pub(super) fn describe(
    report: &mut Report,
    stores: &Stores,
    options: &PcaOptions,
    pca: &Pca,
    time: Duration,
) {
    report.components(pca.singular_values.len());
    report.warn(warnings(pca, options, &stores.samples));
    let method = if pca.method == Method::Exact { "exact" } else { "randomized" };
    let convention = match pca.scaler {
        Scaler::Patterson => "s^2 / (2 M), which is s^2 / M of the binom2 scaling",
        _ => "s^2 / M",
    };
    let (eigenvalues, variance) = (pca.eigenvalues(), pca.explained_variance());
    let ratio = pca.explained_variance_ratio();
    let component = |i: usize| {
        json!({
            "singular_value": pca.singular_values[i],
            "eigenvalue": eigenvalues[i],
            "explained_variance": variance[i],
            "explained_variance_ratio": ratio[i],
            "residual": pca.residuals[i],
            "converged": pca.converged[i],
        })
    };
    report.put(json!({
        "variants": variants(&pca.counts),
        "method": method,
        "method_reason": pca.reason,
        // The expected costs of both methods.
        "method_core_seconds": { "exact": pca.costs.exact, "randomized": pca.costs.randomized },
        "residency": pca.residency.name(),
        "residency_reason": pca.residency_reason,
        "scaler": pca.scaler.name(),
        "min_maf": options.filter.min_maf,
        "max_missing": options.filter.max_missing,
        "seed": options.svd.seed,
        "oversamples": options.svd.block(options.components) - options.components,
        "passes": pca.passes,
        // The passes that --resume did not make again.
        "passes_found": pca.found,
        "converged": pca.converged.iter().all(|converged| *converged),
        "eigenvalue_convention": format!("{convention}; M counts the variants after --maf and --geno"),
        "components": (0..pca.singular_values.len()).map(component).collect::<Vec<_>>(),
    }));
    report.line("variants", used(&pca.counts));
    report.lines(stores.changes());
    report.line("method", format!("{method}: {}", pca.reason));
    if pca.passes > 1 {
        let place = match pca.residency.name() {
            "device" => "kept on the device",
            "host" => "kept in the host's memory",
            _ => "read again in each pass",
        };
        report.line("genotypes", format!("{place}: {}", pca.residency_reason));
    }
    let passes = text::plural(pca.passes.into(), "pass");
    let resumed = if pca.found > 0 { format!(" ({} before a stop)", pca.found) } else { String::new() };
    report.line("", format!("{passes}{resumed}, scaler {}{}", pca.scaler.name(), report.peaks(", ")));
    report.solved("pca", time, &pca.stats);
    report.page += "\ncomponent   eigenvalue  singular value  explained variance  residual\n";
    for (i, eigenvalue) in eigenvalues.iter().enumerate() {
        let numbers = [(*eigenvalue, 6), (pca.singular_values[i], 6), (pca.residuals[i], 2)];
        let [value, s, residual] = numbers.map(|(v, n)| text::general(v, n));
        let share = 100.0 * ratio[i];
        let mark = if pca.converged[i] { "" } else { "  not converged" };
        report.page += &format!("{:>9} {value:>12} {s:>15} {share:>17.3} % {residual:>9}{mark}\n", i + 1);
    }
    report.page.push('\n');
}

fn warnings(result: &Pca, options: &PcaOptions, samples: &[String]) -> Vec<String> {
    let mut warnings = Vec::new();
    if !matches!(result.scaler, Scaler::Patterson | Scaler::Binom2) {
        let name = result.scaler.name();
        warnings.push(format!("pca.eigenval holds s²/M of the `{name}` scaling, which plink2 does not have"));
    }
    warnings.extend(unconverged(result, options));
    let central = central(result, samples);
    if !central.is_empty() {
        let (n, few) = (text::plural(central.len() as u64, "sample"), text::few(&central));
        warnings.push(format!("{n} at 0 in every component, as those without calls are: {few}"));
    }
    warnings
}

/// Returns the names of the samples without calls, which are at 0 in every component except for rounding. With few components, other samples may
/// be there by chance.
fn central<'a>(result: &Pca, samples: &'a [String]) -> Vec<&'a str> {
    const FEW: usize = 3;
    let most = 1e-3 / (samples.len() as f64).sqrt();
    let components = result.singular_values.len();
    let rows = result.vectors.data().chunks(components.max(1)).zip(samples);
    let central = rows.filter(|(row, _)| components >= FEW && row.iter().all(|v| v.abs() < most));
    central.map(|(_, name)| name.as_str()).collect()
}

pub(super) fn unconverged(result: &Pca, options: &PcaOptions) -> Option<String> {
    iteration::unconverged(&result.converged, &result.residuals, result.passes, &options.svd)
}
