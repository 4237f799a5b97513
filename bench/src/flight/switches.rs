//! Comparison of ways to divide a pass: panels, steps and workgroups. Results stay the same to the bit.

use teatime::{Device, DeviceOptions, Error, Run, Status, linalg::Pass, packed::PackedMatrix};

use super::{
    missing::ROWS,
    rows::{COLUMNS, Kind, WORDS, operand, panel, size},
};
use crate::{
    measure::{Job, Session},
    report::Unit,
};

/// The number of rows that 132 multiprocessors finish at the same time, with two workgroups of 256 rows each.
const WAVE: u64 = 67_584;
/// The numbers of rows of a panel, in addition to the library's own.
const PANELS: [u64; 4] = [WAVE, 2 * WAVE, 4 * WAVE, 8 * WAVE];
/// The numbers of bytes of a step, from those of small GPUs to those of large ones.
const STEPS: [u64; 4] = [64 << 20, 256 << 20, 1 << 30, 2 << 30];
/// The numbers of workgroups of a launch, in eighths of the device's default.
const FILLS: [u32; 3] = [1, 2, 8];
/// The number of measurements: a pass for each panel size, and for each step and number of workgroups.
pub(super) const ENTRIES: f64 = (1 + PANELS.len() + STEPS.len() * FILLS.len()) as f64;

/// Measures the device's own choices first; the other passes use the same number of rows.
pub(super) fn switches(session: &mut Session<'_>) {
    let name = session.device.info().name.clone();
    let fill = session.device.limits().fill();
    let mut rows = &ROWS[..];
    let own = panel(session.device);
    for panel in [own].into_iter().chain(PANELS) {
        let id = format!("pass, panels of {panel} rows");
        let last =
            session.largest(&id, Unit::Milliseconds, rows, size, |device, &rows| job(device, rows, panel));
        if let Some(last) = last {
            rows = &rows[last..=last];
        }
    }
    for step in STEPS {
        for eighths in FILLS {
            let fill = (fill * eighths / 8).max(1);
            let id = format!("pass, steps of {} MiB, {fill} workgroups", step >> 20);
            session.largest(&id, Unit::Milliseconds, rows, size, |_, &rows| {
                let options = DeviceOptions::default().step(step).fill(fill);
                job(&Device::open_with(&name, &options)?, rows, own)
            });
        }
    }
}

/// Returns a job that enqueues a pass over `rows` rows, without the operand and the sums.
fn job(device: &Device, rows: u64, panel: u64) -> Result<Job, Error> {
    let matrix =
        PackedMatrix::random_in_panels(device, rows, COLUMNS, 0, panel * 4 * WORDS, &Run::default())?;
    let table = Kind::PLAIN.table(device, rows.min(panel))?;
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
