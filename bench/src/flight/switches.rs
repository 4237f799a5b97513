//! Comparison of a pass with the device's own lengths to passes with shorter and longer ones. Results stay the same to the bit.

use teatime::{Device, DeviceOptions, Error, Run, Status, linalg::Pass, packed::PackedMatrix};

use super::rows::{COLUMNS, Kind, operand, panel, size};
use crate::{
    measure::{Job, Session},
    report::Unit,
};

/// The numbers of rows, all powers of ten: a time can be scaled to the headline.
const ROWS: [u64; 6] = [100, 1000, 10_000, 100_000, 1_000_000, 10_000_000];
/// The lengths of steps, in eighths of the device's own. Panels follow them.
const EIGHTHS: [u64; 5] = [8, 1, 2, 4, 16];
/// The number of measurements: one for each length, and one without whole waves.
pub(super) const ENTRIES: f64 = (EIGHTHS.len() + 1) as f64;

/// Measures the device's own lengths first; the other passes use the same number of rows.
pub(super) fn switches(session: &mut Session<'_>) {
    let (name, limits) = (session.device.info().name.clone(), session.device.limits());
    let lengths = EIGHTHS.map(|eighths| {
        let what = if eighths == 8 { "own lengths".into() } else { format!("{eighths}/8 of them") };
        (what, DeviceOptions::default().step(limits.step() * eighths / 8))
    });
    // The device then takes the number of its multiprocessors for unknown.
    let without = ("own lengths, no whole waves".into(), DeviceOptions::default().fill(limits.fill()));
    let mut rows = &ROWS[..];
    for (what, options) in lengths.into_iter().chain([without]) {
        let device = match Device::open_with(&name, &options) {
            Ok(device) => device,
            Err(error) => return session.failed("switches", &error.to_string()),
        };
        let (step, panel) = (device.limits().step() >> 20, panel(&device));
        let id = format!("pass, {what}: steps of {step} MiB, panels of {panel} rows");
        let last = session.largest(&id, Unit::Milliseconds, rows, size, |_, &rows| job(&device, rows));
        if let Some(last) = last {
            rows = &rows[last..=last];
        }
    }
}

/// Returns a job that enqueues a pass over `rows` rows, without the operand and the sums.
fn job(device: &Device, rows: u64) -> Result<Job, Error> {
    let matrix = PackedMatrix::random(device, rows, COLUMNS, 0, &Run::default())?;
    let table = Kind::PLAIN.table(device, rows.min(panel(device)))?;
    let mut pass = Kind::PLAIN.start(device, &operand()?)?;
    let device = device.clone();
    Ok(Box::new(move || {
        let run = Run::default();
        let each = Pass::new(&run, Status::new(0, 1, rows));
        matrix.each(&each, &mut |panel| pass.add(panel.packed()?, &table))?;
        // The session waits only for its own device, which is a different one.
        device.synchronize()
    }))
}
