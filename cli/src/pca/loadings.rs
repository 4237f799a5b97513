//! The table of loadings.

use std::{fs, io::Write};

use flate2::{Compression, write::GzEncoder};
use teatime::{Element, Error, Result, Run};
use teatime_genotype::{Cohort, Pca, PcaOptions, Variant, VariantLoadings, VariantReader};

use crate::{output::Output, stores::Stores, text};

pub(super) const LOADINGS: &str = "loadings.tsv.gz";

/// The text at the start of the table.
pub(crate) const MAGIC: &str = "#teatime-loadings\t";

/// Writes the loadings, in one pass over the genotypes, which stay where the PCA left them.
pub(crate) fn write(
    output: &Output,
    stores: &Stores,
    cohort: &Cohort,
    pca: &Pca,
    options: &PcaOptions,
    run: &Run,
) -> Result<()> {
    let path = output.path(LOADINGS);
    let fail = |source| Error::io(path.display(), source);
    // This level keeps both the size of the file and the time small.
    let mut file = GzEncoder::new(fs::File::create(&path).map_err(fail)?, Compression::new(3));
    let columns: String = (1..=pca.singular_values.len()).map(|i| format!("\tPC{i}")).collect();
    let names = "contig\tposition\tid\tref\talt\tcounted\tfrequency\tmean\tscale";
    writeln!(file, "{}\n{names}{columns}", header(stores, pca)).map_err(fail)?;
    let mut variants = VariantReader::new(&stores.sources(), true);
    let mut line = Vec::new();
    cohort.loadings(pca, options, run, &mut |row| {
        let VariantLoadings { variant, frequency, shift, scale, loadings, .. } = row;
        let variant = variants.get(variant)?;
        let Variant { contig, position, id, reference, alternate, .. } = variant;
        let counted = stores.counted(variant);
        line.clear();
        let place = write!(line, "{contig}\t{position}\t{id}\t{reference}\t{alternate}\t{counted}");
        let standard = write!(line, "\t{frequency}\t{shift}\t{scale}");
        // The value is an f32: this is the shortest text that parses to it.
        let numbers = loadings.iter().try_for_each(|value| write!(line, "\t{:e}", value.to_f32()));
        place.and(standard).and(numbers).and_then(|()| writeln!(line)).map_err(fail)?;
        file.write_all(&line).map_err(fail)
    })?;
    file.finish().and_then(|mut file| file.flush()).map_err(fail)
}

/// Returns the first line, which holds what a projection needs in addition to the rows.
fn header(stores: &Stores, pca: &Pca) -> String {
    let ploidy = stores.genotypes.ploidy();
    let (scaler, samples) = (pca.scaler.name(), pca.vectors.rows());
    let (variants, rows) = (pca.counts.loaded(), pca.counts.used);
    let values: Vec<_> = pca.singular_values.iter().map(|s| text::exact(*s)).collect();
    let values = values.join(",");
    format!(
        "{MAGIC}version=1\tscaler={scaler}\tploidy={ploidy}\tsamples={samples}\tvariants={variants}\trows={rows}\tsingular_values={values}"
    )
}
