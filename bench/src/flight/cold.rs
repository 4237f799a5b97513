//! Start-up in new processes, with an empty and with a filled cache of compiled kernels.

use std::{path::Path, process::Command, time::Instant};

use super::{
    bed::{self, scratch},
    headline,
    rows::size,
};
use crate::{
    measure::Session,
    report::Unit::Milliseconds,
    startup::{again, numbers, output},
    table,
};

/// The variable that names the folder of compiled kernels.
const CACHE: &str = "TEATIME_CACHE";

/// The number of processes with a filled cache.
const WARM: usize = 3;
/// The numbers of variants of the files that the command line decomposes; `SAMPLES` is their number of samples.
const VARIANTS: [u64; 3] = [1650, 16_500, 165_000];
const SAMPLES: u64 = 1000;

/// Measures processes that open the device, launch a kernel, and decompose the rows of the headline that fit; and the command line.
pub(super) fn startup(session: &mut Session<'_>) {
    let started = Instant::now();
    let Ok(folder) = scratch().inspect_err(|why| session.failed("start-up", &why.to_string())) else {
        return;
    };
    let name = session.device.info().name.clone();
    let sizes = headline::SHARES.map(|(share, rows)| (format!("headline {share} in a new process"), rows));
    session.grow(
        session.budget / 2.0,
        sizes,
        |rows| size(&rows).memory,
        |session, id, rows| {
            let runs = processes(folder.path(), |cache| {
                let mut command = again(&["--startup", &name, "--rows", &rows.to_string()])?;
                command.env(CACHE, cache);
                numbers::<3>(command)
            })?;
            for (i, name) in ["open", "open and launch", "whole"].into_iter().enumerate() {
                keep(session, &format!("{id}, {name}"), &runs, i);
            }
            Ok::<_, String>(())
        },
    );
    command_line(session, folder.path(), &name, started);
}

/// Measures `teatime pca` on each .bed that time allows, if the program is in the same folder as this one.
fn command_line(session: &mut Session<'_>, folder: &Path, name: &str, started: Instant) {
    let program = std::env::current_exe().map(|path| path.with_file_name("teatime"));
    let Some(program) = program.ok().filter(|path| path.is_file()) else {
        return session.skipped("teatime pca", "no teatime beside this program");
    };
    let (prefix, out) = (folder.join("pca"), folder.join("out"));
    let [mut earlier, mut last] = [0.0_f64; 2];
    for variants in VARIANTS {
        let id = format!("teatime pca of {variants}x{SAMPLES}");
        // The time that depends on variants grows tenfold; the time of starting a process does not.
        let expected = (1 + WARM) as f64 * (last + 10.0 * (last - earlier).max(0.0));
        if last > 0.0 && expected > session.budget - started.elapsed().as_secs_f64() {
            return session.skipped(&id, &format!("it would take about {} s", table::number(expected)));
        }
        if let Err(error) = bed::write(&prefix, variants, SAMPLES) {
            return session.failed(&id, &error.to_string());
        }
        let runs = processes(folder, |cache| {
            let mut command = Command::new(&program);
            command.arg("pca").arg(&prefix).args(["--device", name, "--overwrite", "--out"]).arg(&out);
            let started = Instant::now();
            output(command.env(CACHE, cache))?;
            Ok([started.elapsed().as_secs_f64()])
        });
        let Ok(runs) = runs.inspect_err(|why| session.failed(&id, why)) else { return };
        keep(session, &id, &runs, 0);
        (earlier, last) = (last, runs[WARM][0]);
    }
}

/// Runs one process with an empty cache, then others with the cache that it filled.
fn processes<const N: usize>(
    folder: &Path,
    run: impl Fn(&Path) -> Result<[f64; N], String>,
) -> Result<Vec<[f64; N]>, String> {
    let cache = folder.join("cache");
    // There may be no cache yet.
    drop(std::fs::remove_dir_all(&cache));
    (0..=WARM).map(|_| run(&cache)).collect()
}

/// Records the `i`-th measurement: the first process alone, and the other processes together.
fn keep<const N: usize>(session: &mut Session<'_>, id: &str, runs: &[[f64; N]], i: usize) {
    let measured: Vec<f64> = runs.iter().map(|numbers| numbers[i]).collect();
    let (cold, warm) = measured.split_at(1);
    session.record(&format!("{id}, cold"), "", Milliseconds, 1.0, cold);
    session.record(&format!("{id}, warm"), "", Milliseconds, 1.0, warm);
}
