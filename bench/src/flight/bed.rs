//! The first pass over a .bed in the system's file cache, and the whole decomposition.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
    sync::{Arc, Mutex},
    time::Instant,
};

use teatime::{
    Device, Error, Progress, Run,
    linalg::{Stop, SvdOptions},
    to_usize,
};
use teatime_genotype::{Method, PcaOptions, bed::BedFile, pca};
use tempfile::TempDir;

use super::rows::COLUMNS;
use crate::{data, measure::Session, report::Unit::Milliseconds};

/// The numbers of variants; the largest is a twenty-fifth of the headline's rows.
const VARIANTS: [u64; 4] = [1000, 10_000, 100_000, 400_000];

/// Measures the largest file that the time and a sixteenth of the memory allow.
pub(super) fn bed(session: &mut Session<'_>) {
    let Ok(folder) = scratch().inspect_err(|why| session.failed("bed", &why.to_string())) else { return };
    let prefix = folder.path().join("flight");
    let sizes = VARIANTS.map(|variants| (format!("bed of {variants} variants"), variants));
    session.grow(
        session.budget,
        sizes,
        |_| 0,
        |session, id, variants| {
            write(&prefix, variants, COLUMNS).map_err(|error| error.to_string())?;
            let [first, whole] = passes(session.device, &prefix).map_err(|error| error.to_string())?;
            let size = format!("{variants}x{COLUMNS}");
            session.record(&format!("{id}: first pass"), &size, Milliseconds, 1.0, &[first]);
            session.record(&format!("{id}: pca, 2 more passes"), &size, Milliseconds, 1.0, &[whole]);
            Ok::<_, String>(())
        },
    );
}

/// Returns the seconds of the pass that packs and counts, and of all passes.
fn passes(device: &Device, prefix: &Path) -> Result<[f64; 2], Error> {
    let genotypes = BedFile::open(prefix)?.genotypes()?;
    let svd = SvdOptions::default().stop(Stop::PowerIterations(0));
    let options = PcaOptions::default().components(10).method(Method::Randomized).svd(svd);
    let first = Arc::new(Mutex::new(None));
    let started = Instant::now();
    let seen = Arc::clone(&first);
    let progress = Progress::new(move |status| {
        if status.pass > 0
            && let Ok(mut seen) = seen.lock()
        {
            seen.get_or_insert(started.elapsed().as_secs_f64());
        }
    });
    pca(&genotypes, device, &options, &Run::default().progress(progress))?;
    let whole = started.elapsed().as_secs_f64();
    let first = first.lock().map_or(None, |first| *first);
    Ok([first.unwrap_or(whole), whole])
}

/// Creates a temporary folder, which is removed when it is dropped.
pub(super) fn scratch() -> io::Result<TempDir> {
    tempfile::Builder::new().prefix("teatime-bench-").tempdir()
}

/// Writes PREFIX.bed with random calls, one in 64 missing, and its .bim and .fam.
pub(super) fn write(prefix: &Path, variants: u64, samples: u64) -> io::Result<()> {
    let create = |extension: &str| File::create(prefix.with_extension(extension)).map(BufWriter::new);
    let (mut bed, mut bim, mut fam) = (create("bed")?, create("bim")?, create("fam")?);
    for sample in 0..samples {
        writeln!(fam, "f{sample} s{sample} 0 0 0 -9")?;
    }
    bed.write_all(&[0x6c, 0x1b, 1])?;
    let bytes = samples.div_ceil(4);
    // The bits beyond the last sample are zeros.
    let last = u8::MAX >> (2 * (4 * bytes - samples));
    // Each row is a window into random calls that starts at a different place, so that variants rarely repeat.
    let drawn = data::plink_calls(1, 2 * bytes);
    for variant in 0..variants {
        writeln!(bim, "1 v{variant} 0 {} A C", variant + 1)?;
        let start = to_usize(variant * 7919 % bytes);
        let row = &drawn[start..start + to_usize(bytes)];
        bed.write_all(&row[..row.len() - 1])?;
        bed.write_all(&[row[row.len() - 1] & last])?;
    }
    for mut file in [bed, bim, fam] {
        file.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use teatime_genotype::VariantSource;

    use super::*;

    #[test]
    fn a_file_of_any_shape_opens() {
        let [folder, other] = [scratch().unwrap(), scratch().unwrap()];
        drop(other);
        for (variants, samples) in [(1, 1), (5, 63), (300, 64), (7, 130)] {
            let prefix = folder.path().join("x");
            write(&prefix, variants, samples).unwrap();
            let file = BedFile::open(&prefix).unwrap();
            assert_eq!((file.n_variants(), file.n_samples()), (variants, samples));
        }
    }
}
