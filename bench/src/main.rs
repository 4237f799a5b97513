//! Benchmarks of teatime on every device of a machine, with result files that can be compared.

mod args;
mod bandwidth;
mod compare;
mod data;
mod exact;
mod flight;
mod html;
mod jobs;
mod markdown;
mod measure;
mod products;
mod report;
mod score;
mod startup;
mod system;
mod table;

use std::{collections::BTreeSet, io::Write, process::ExitCode};

use clap::Parser;
use teatime::{Backend, Device, DeviceKind, DeviceOptions};

use crate::{
    args::Args,
    measure::Session,
    report::{DeviceReport, Note, OWN, Report, TF32},
};

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            // Errors of printing are ignored.
            drop(writeln!(std::io::stderr(), "{why}"));
            ExitCode::FAILURE
        }
    }
}

/// Runs the program, and returns true if everything was measured and all results agree.
fn run(args: &Args) -> Result<bool, String> {
    if let Some(files) = &args.compare {
        return compare::compare(files, args.markdown);
    }
    let times = match (&args.startup, args.startup_context) {
        (Some(name), _) => Some(startup::open(name, args.rows)?),
        (_, Some(number)) => Some(startup::context(number)?),
        _ => None,
    };
    if let Some(times) = times {
        table::print(&times.iter().map(f64::to_string).collect::<Vec<_>>().join(" "));
        return Ok(true);
    }
    if args.names {
        names().iter().for_each(|name| table::print(name));
        return Ok(true);
    }
    let report = measure_all(args)?;
    let measured = |device: &DeviceReport| !device.is_empty();
    if !args.only.is_empty() && !report.devices.is_empty() && !report.devices.iter().any(measured) {
        let names: BTreeSet<_> =
            report.devices.iter().flat_map(|device| &device.names).map(|name| &**name).collect();
        let (only, names) = (&args.only, names.into_iter().collect::<Vec<_>>().join("\n  "));
        return Err(format!("--only {only}: no measurement has this in its name. There are:\n  {names}"));
    }
    for device in &report.devices {
        score::line(device).iter().for_each(|line| table::print(&format!("\n{}: {line}", device.name)));
        score::headline(device).iter().for_each(|line| table::print(line));
    }
    if args.markdown {
        table::print(&format!("\n{}", markdown::tables(&report)));
    }
    let named = report.devices.iter().map(|device| (device.name.clone(), device));
    let differences = Report::differences(named);
    for line in &differences {
        table::print(&format!("RESULTS DIFFER: {line}"));
    }
    if differences.is_empty() && report.devices.len() > 1 {
        table::print(&format!("\nexact results agree on {} devices", report.devices.len()));
    }
    if let Some(path) = &args.json {
        report.write(path)?;
    }
    if let Some(path) = &args.html {
        std::fs::write(path, html::page(&report, &differences))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(differences.is_empty() && report.devices.iter().all(|device| device.failed.is_empty()))
}

/// Returns the names of the devices: discrete GPUs first, and CUDA before other interfaces. No interface lists a card twice.
fn names() -> Vec<String> {
    let family = |name: &str| name.split(':').next().map(str::to_owned);
    let mut devices: Vec<_> = Device::all()
        .into_iter()
        .filter(|listed| {
            let twice = |other: &String| family(other) == family(&listed.name);
            !listed.same_card_as.as_ref().is_some_and(twice)
        })
        .filter_map(|listed| listed.info.ok())
        .collect();
    devices.sort_by_key(|info| match (info.backend, info.kind) {
        (Backend::Cuda, _) => 0,
        (_, DeviceKind::Cpu) => 2,
        (_, DeviceKind::Software) => 3,
        _ => 1,
    });
    devices.into_iter().map(|info| info.name).collect()
}

fn session<'a>(args: &'a Args, device: &'a Device, report: &'a mut DeviceReport) -> Session<'a> {
    Session::new(device, report, &args.only, args.time())
}

/// Measures everything on a device with default options.
fn whole(session: &mut Session<'_>) {
    bandwidth::copies(session);
    bandwidth::kernels(session);
    products::products(session, "");
    jobs::jobs(session);
    startup::startup(session);
    exact::results(session, "");
}

/// Returns the other options for products if the vendor's library is the default, each with the suffix of its measurements' names.
fn variants() -> [(&'static str, DeviceOptions); 2] {
    let own = DeviceOptions::default().own_kernels(true);
    [(OWN, own), (TF32, DeviceOptions::default().tf32(true))]
}

fn measure_all(args: &Args) -> Result<Report, String> {
    let mut report = Report::new(args.time());
    let mut names = args.device.clone();
    if names.is_empty() {
        let listed = Device::all();
        report.absent = report::absent(&listed);
        names = listed.into_iter().filter(|device| device.info.is_ok()).map(|device| device.name).collect();
    }
    for Note { name, why } in &report.absent {
        table::print(&format!("{name}: not here: {why}"));
    }
    for name in names {
        let device = Device::open(&name).map_err(|error| error.to_string())?;
        let mut measured = DeviceReport::new(&device);
        let memory = measured.memory.map(|bytes| format!(", {} MiB", bytes >> 20)).unwrap_or_default();
        let DeviceReport { description, api, driver, .. } = &measured;
        table::print(&format!("\n{name}: {description} ({api}{memory}, {driver})"));
        if let Some(piece) = args.flight {
            let session = session(args, &device, &mut measured);
            flight::fly(piece, &mut session.sharing(args.time(), flight::entries(piece)));
            report.devices.push(measured);
            continue;
        }
        whole(&mut session(args, &device, &mut measured));
        if measured.backend == "cuda" {
            for (end, options) in variants() {
                let device = Device::open_with(&name, &options).map_err(|error| error.to_string())?;
                products::products(&mut session(args, &device, &mut measured), end);
                if options.own_kernels {
                    exact::results(&mut session(args, &device, &mut measured), end);
                }
            }
        }
        report.devices.push(measured);
    }
    Ok(report)
}
