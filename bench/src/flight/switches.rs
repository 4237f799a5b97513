//! Ways to cut a pass, side by side: panels, steps and workgroups. None changes a bit.

use teatime::{Device, DeviceOptions, Error, Run, packed::PackedMatrix};

use super::{
    missing::ROWS,
    rows::{COLUMNS, Kind, PANEL, WORDS, operand, size},
};
use crate::{
    measure::{Job, Session},
    report::Unit,
};

/// Rows of a panel; the first is what the library takes, the second what 132 multiprocessors finish at the same time, with
/// two workgroups of 256 rows each.
const PANELS: [u64; 4] = [PANEL, 67_584, 2 * 67_584, 8 * 67_584];
/// Bytes of a step: below what is kept near the processors of large GPUs, the default of GPUs, and above.
const STEPS: [u64; 4] = [16 << 20, 32 << 20, 64 << 20, 256 << 20];
/// Workgroups that a launch should have, as shares of the device's own number, in eighths.
const FILLS: [u32; 4] = [1, 2, 8, 16];
/// A pass for each panel, and for each step and number of workgroups.
pub(super) const ENTRIES: f64 = (PANELS.len() + STEPS.len() * FILLS.len()) as f64;

/// The device's own choices first, whose size the others take.
pub(super) fn switches(session: &mut Session<'_>) {
    let name = session.device.info().name.clone();
    let fill = session.device.limits().fill();
    let mut rows = &ROWS[..];
    for panel in PANELS {
        let id = format!("pass, panels of {panel} rows");
        let found =
            session.largest(&id, Unit::Milliseconds, rows, size, |device, &rows| job(device, rows, panel));
        if let Some(found) = found {
            rows = &rows[found..=found];
        }
    }
    for step in STEPS {
        for eighths in FILLS {
            let fill = (fill * eighths / 8).max(1);
            let id = format!("pass, steps of {} MiB, {fill} workgroups", step >> 20);
            session.largest(&id, Unit::Milliseconds, rows, size, |_, &rows| {
                let options = DeviceOptions::default().step(step).fill(fill);
                job(&Device::open_with(&name, &options)?, rows, PANEL)
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
