//! Ways to cut a pass, side by side: panels, steps and workgroups. None changes a bit.

use teatime::{Device, DeviceOptions, Error, Run, packed::PackedMatrix};

use super::{
    missing::ROWS,
    rows::{COLUMNS, Kind, WORDS, operand, panel, size},
};
use crate::{
    measure::{Job, Session},
    report::Unit,
};

/// Rows that 132 multiprocessors finish at the same time, with two workgroups of 256 rows each.
const WAVE: u64 = 67_584;
/// Rows of a panel beside what the library takes.
const PANELS: [u64; 4] = [WAVE, 2 * WAVE, 4 * WAVE, 8 * WAVE];
/// Bytes of a step: of small GPUs, and up to what large ones take.
const STEPS: [u64; 4] = [64 << 20, 256 << 20, 1 << 30, 2 << 30];
/// Workgroups that a launch should have, as shares of the device's own number, in eighths.
const FILLS: [u32; 3] = [1, 2, 8];
/// A pass for each panel, and for each step and number of workgroups.
pub(super) const ENTRIES: f64 = (1 + PANELS.len() + STEPS.len() * FILLS.len()) as f64;

/// The device's own choices first, whose size the others take.
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

/// Enqueues a pass over so many rows, without the operand and the sums.
fn job(device: &Device, rows: u64, panel: u64) -> Result<Job, Error> {
    let matrix =
        PackedMatrix::random_in_panels(device, rows, COLUMNS, 0, panel * 4 * WORDS, &Run::default())?;
    let table = Kind::PLAIN.table(device, rows.min(panel))?;
    let mut pass = Kind::PLAIN.start(device, &operand()?)?;
    let device = device.clone();
    Ok(Box::new(move || {
        Kind::PLAIN.rows(matrix.panels(), &table).try_for_each(|rows| pass.add(rows))?;
        // The session waits for its own device, which is another.
        device.synchronize()
    }))
}
