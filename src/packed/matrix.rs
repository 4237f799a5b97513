//! A matrix that stays on a device or in the host's memory, with two bits for each entry.

use std::ops::Range;

use super::{
    MAX_ENTRIES, PANEL_ROWS,
    host_panels::HostPanels,
    panel::{Entries, Panel},
    panel_bytes,
    panel_map::{PanelMap, PanelPass, PanelSink},
    row_words,
    uniform::packed_uniform,
};
use crate::{
    Device, Error, Needs, Result, Run, Status, Tensor,
    bits::{PackOptions, Width, pack},
    extent::to_usize,
    linalg::{LinearMap, Matrix, Pass, RowSink},
    run::Budget,
    tensor::checked_len,
};

/// The number of bytes of `A X` that are read at a time.
const APPLY_BYTES: usize = 4 << 20;

/// A matrix A of entries 0, 1, 2 and missing, with two bits for each entry: on one device, or in the host's memory, from where each pass
/// uploads it.
///
/// The matrix is a [`LinearMap`], which [`randomized_svd`](crate::linalg::randomized_svd) and [`left_vectors`](crate::linalg::left_vectors)
/// take. Products run on the packed bytes, and take the entries as they are: nothing is subtracted or scaled, and missing entries are 0. A
/// [`PanelMap`] over [`each`](Self::each) takes a mean and a factor for each row.
///
/// # Accuracy
/// Each column of an operand is rounded to 23 bits and a sign, relative to its largest element. Between the two products of Aᵀ (A X), A X is
/// rounded in the same way, relative to the largest value that it could have. Sums are exact. Results are the same to the bit on every
/// device, however the rows were pushed.
///
/// # Cost
/// Each row is padded to a multiple of 16 bytes, and takes `16 ⌈columns / 64⌉` bytes. During a product, the device also holds the operand,
/// about 4 bytes an element, and 8 bytes for each row of the longest panel. During [`apply_normal`](LinearMap::apply_normal), the device also
/// holds the sums, 8 bytes an element of the operand, and the limbs of as many rows of A X as fill the device. On the host, the sums take 16
/// bytes an element while they are read, and afterwards 8 in addition to the 8 of the result.
///
/// ```
/// use teatime::{Device, Run, Tensor, packed::PackedMatrix, linalg};
///
/// let device = Device::best()?;
/// let mut a = PackedMatrix::new(&device, 2)?;
/// a.push(&Tensor::from_slice(&device, &[2u8, 0, 0, 1, 0, 0], &[3, 2])?)?;
/// let svd = linalg::randomized_svd(&a, 2, &linalg::SvdOptions::default(), &Run::default())?;
/// assert!((svd.s[0] - 2.0).abs() < 1e-6 && (svd.s[1] - 1.0).abs() < 1e-6);
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Debug)]
pub struct PackedMatrix {
    device: Device,
    rows: u64,
    columns: u64,
    /// The rows by device, in order; at least one part.
    parts: Vec<Part>,
}

/// Consecutive rows whose panels are on one device, or are uploaded to it.
#[derive(Debug)]
struct Part {
    device: Device,
    /// The first row.
    first: u64,
    place: Place,
}

/// The place of the panels.
#[derive(Debug)]
enum Place {
    Device(Vec<Panel>),
    Host(HostPanels),
}

impl PackedMatrix {
    /// Creates a matrix without rows.
    ///
    /// # Errors
    /// [`Error::Argument`] for no columns; [`Error::Limit`] for more than 2^23 - 1 columns, since sums might not fit 32 bits.
    pub fn new(device: &Device, columns: u64) -> Result<Self> {
        if columns == 0 {
            return Err(Error::argument("PackedMatrix::new", "columns", "0; a row has at least one entry"));
        }
        if columns > MAX_ENTRIES {
            let what = "columns of a packed matrix";
            return Err(Error::Limit { what, requested: columns, max: MAX_ENTRIES });
        }
        Ok(Self::in_panels(device, columns, None))
    }

    /// Creates a matrix without rows for panels of any number of columns, that [`keep`](Self::keep) takes. They stay on the device, or with
    /// `host_rows` in the host's memory, from where that many rows are uploaded at a time.
    pub fn in_panels(device: &Device, columns: u64, host_rows: Option<u64>) -> Self {
        let place = host_rows
            .map_or_else(|| Place::Device(Vec::new()), |host_rows| Place::Host(HostPanels::new(host_rows)));
        let part = Part { device: device.clone(), first: 0, place };
        Self { device: device.clone(), rows: 0, columns, parts: vec![part] }
    }

    /// Joins matrices of consecutive rows, one for each member of the group, to a matrix whose products all members compute.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is a matrix for each member, and for other numbers of columns than the first one has;
    /// [`Error::WrongDevice`] for a matrix that is not on its member.
    pub fn join(group: &Device, matrices: Vec<Self>) -> Result<Self> {
        let (op, members) = ("PackedMatrix::join", group.members());
        let columns = matrices.first().map_or(0, |first| first.columns);
        if matrices.len() != members.len() || matrices.iter().any(|matrix| matrix.parts.len() != 1) {
            let why = format_args!("{}, for a group of {}", matrices.len(), members.len());
            return Err(Error::argument(op, "matrices", why));
        }
        for (matrix, member) in matrices.iter().zip(&members) {
            member.has(op, "matrices", &matrix.device)?;
        }
        let mut joined = Self { device: group.clone(), rows: 0, columns, parts: Vec::new() };
        for Self { rows, columns, parts, .. } in matrices {
            if columns != joined.columns {
                let why = format_args!("of {} and of {columns} columns", joined.columns);
                return Err(Error::argument(op, "matrices", why));
            }
            for mut part in parts {
                part.move_by(joined.rows);
                joined.parts.push(part);
            }
            joined.rows += rows;
        }
        Ok(joined)
    }

    /// Creates a matrix (rows, columns) of independent entries on the device, with 0, 1 and 2 equally likely. Waits. Each member of a
    /// [group](Device::group) gets about as many rows, and multiplies these.
    ///
    /// An entry depends only on the seed, its place and the number of columns, and is the same on every device.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::Shape`] for 2^64 bytes; [`Error::Budget`] when the matrix exceeds the budget of `run`;
    /// [`Error::OutOfMemory`] when the matrix exceeds the device's memory, if the device reports its size (the cpu device reports what the
    /// system can give); [`Error::Limit`] when one row does not fit a binding; [`Error::Cancelled`].
    pub fn random(device: &Device, rows: u64, columns: u64, seed: u64, run: &Run) -> Result<Self> {
        let count = device.members().len() as u64;
        let row = |member: u64| u64::try_from(u128::from(rows) * u128::from(member) / u128::from(count));
        let matrices = device.each_member(run, rows, |member, device, run| {
            let [first, end] = [0, 1].map(|i| row(member as u64 + i).unwrap_or(rows));
            let bytes = panel_bytes(device, columns);
            Self::random_in_panels(device, first..end, columns, seed, bytes, run)
        })?;
        Self::join(device, matrices)
    }

    /// Some rows of [`random`](Self::random), in panels of about `panel_bytes` bytes. Results stay the same to the bit.
    /// Fails as [`random`](Self::random) does.
    pub(crate) fn random_in_panels(
        device: &Device,
        Range { start, end }: Range<u64>,
        columns: u64,
        seed: u64,
        panel_bytes: u64,
        run: &Run,
    ) -> Result<Self> {
        let (mut matrix, rows) = (Self::new(device, columns)?, end - start);
        let row_bytes = matrix.row_bytes();
        let requested = checked_len("PackedMatrix::random", &[rows, row_bytes])?;
        let (given, free) = if device.shares_host_memory() {
            (run.memory.host, Some(Budget::default().host_bytes().saturating_mul(2)))
        } else {
            (run.memory.device, device.info().memory)
        };
        if given.is_some() {
            run.memory.fit(device, Needs::device(requested))?;
        }
        if free.is_some_and(|free| requested > free) {
            return Err(Error::OutOfMemory { requested, free });
        }
        let step = (panel_bytes / row_bytes).clamp(1, PANEL_ROWS);
        let pass = Pass::new(run, Status::new(0, 1, rows));
        pass.tell(0)?;
        while matrix.rows < rows {
            let count = step.min(rows - matrix.rows);
            let panel = packed_uniform(device, seed, start + matrix.rows, count, columns)?;
            matrix.add(panel)?;
            // Without this wait, all panels would be enqueued at once, before a caller could stop.
            device.synchronize()?;
            pass.tell(matrix.rows)?;
        }
        Ok(matrix)
    }

    /// Appends rows. Waits.
    ///
    /// Each call makes one panel, and products take one panel at a time: panels of a few hundred MiB of entries are fast.
    ///
    /// # Shapes
    /// `entries`: (rows, columns) of 0, 1 and 2.
    ///
    /// # Errors
    /// [`Error::Argument`] for any other value, with the row, since there is no code for a missing entry, and for a matrix on several devices;
    /// the matrix then stays unchanged. [`Error::Shape`], [`Error::WrongDevice`]; [`Error::Limit`] when a row does not fit a binding, or the packed
    /// rows do not fit a buffer; [`Error::OutOfMemory`].
    pub fn push(&mut self, entries: &Tensor<u8>) -> Result<()> {
        let op = "PackedMatrix::push";
        let [rows, columns] = entries.matrix(op)?;
        if columns != self.columns {
            let expected = format!("(rows, {}) entries", self.columns);
            return Err(Error::shape(op, expected, format_args!("({rows}, {columns})")));
        }
        self.device.has(op, "entries", entries.device())?;
        let options =
            PackOptions { row_bytes: Some(self.row_bytes()), table: Some(&[0, 1, 2]), missing: None };
        let packed = match pack(entries, Width::Two, &options) {
            Err(Error::Argument { name: "x", .. }) => return Err(refused(op, entries)?),
            packed => packed?.into_elements(&[rows, row_words(columns)]),
        };
        self.add(packed)
    }

    fn add(&mut self, packed: Tensor<u32>) -> Result<()> {
        let rows = self.rows..self.rows + packed.shape()[0];
        self.keep(Panel { rows, entries: Entries::Packed(packed), missing: false })
    }

    /// Appends a panel. In the host's memory, this starts the panel's download, and waits for that of the panel before.
    ///
    /// # Errors
    /// [`Error::Argument`] for rows that do not follow those of the matrix, and for rows that are not packed, unless they stay on the device;
    /// [`Error::Shape`] for another number of rows or of columns; any error that the device reports, after which the matrix is of no use.
    pub fn keep(&mut self, panel: Panel) -> Result<()> {
        let (op, rows) = ("PackedMatrix::keep", panel.rows.clone());
        if rows.start != self.rows {
            let why = format_args!("rows {rows:?} of a matrix of {} rows", self.rows);
            return Err(Error::argument(op, "panel", why));
        }
        let (held, width) = match &panel.entries {
            Entries::Packed(packed) => (packed.matrix(op)?, row_words(self.columns)),
            Entries::I8(entries) => (entries.matrix(op)?, self.columns),
            Entries::F32(entries) => (entries.matrix(op)?, self.columns),
        };
        if rows.end.checked_sub(rows.start) != Some(held[0]) || held[1] != width {
            let expected = format_args!("{width} elements in each of the rows {rows:?}");
            return Err(Error::shape(op, expected, format_args!("{held:?}")));
        }
        match &mut self.parts[..] {
            [Part { place: Place::Device(panels), .. }] => panels.push(panel),
            [Part { place: Place::Host(panels), .. }] => panels.push(&panel)?,
            parts => {
                let why = format_args!("on {} devices, and rows are added on one", parts.len());
                return Err(Error::argument(op, "self", why));
            }
        }
        self.rows = rows.end;
        Ok(())
    }

    /// Waits for the last panel. Must be called after the last panel of a matrix in the host's memory, before a pass.
    ///
    /// # Errors
    /// Any error that the device reports.
    pub fn complete(&mut self) -> Result<()> {
        self.parts.iter_mut().try_for_each(|part| match &mut part.place {
            Place::Host(panels) => panels.complete(),
            Place::Device(_) => Ok(()),
        })
    }

    /// Moves packed panels to the host's memory, from where `host_rows` rows are uploaded at a time. Waits.
    ///
    /// # Errors
    /// As [`keep`](Self::keep).
    pub fn to_host(self, host_rows: u64) -> Result<Self> {
        let to_host = |part: Part| {
            let Place::Device(panels) = part.place else { return Ok(part) };
            let mut moved = HostPanels::new(host_rows);
            panels.iter().try_for_each(|panel| moved.push(panel))?;
            moved.complete()?;
            Ok(Part { place: Place::Host(moved), ..part })
        };
        let parts = self.parts.into_iter().map(to_host).collect::<Result<_>>()?;
        Ok(Self { parts, ..self })
    }

    /// Returns true if panels are in the host's memory.
    pub fn is_on_host(&self) -> bool {
        self.parts.iter().any(|part| matches!(part.place, Place::Host(_)))
    }

    /// Makes a pass: calls `sink` with each panel on the device, in order. Panels on other members of a group are copied to the first.
    ///
    /// # Errors
    /// [`Error::Argument`] for a matrix that is not [complete](Self::complete); any error of the device or of `sink`; [`Error::Cancelled`].
    pub fn each(&self, pass: &Pass<'_>, sink: &mut PanelSink<'_>) -> Result<()> {
        self.parts.iter().enumerate().try_for_each(|(i, part)| {
            part.each(&mut |panel| {
                if i == 0 { sink(panel) } else { sink(&panel.to_device(&self.device)?) }?;
                pass.tell(panel.rows.end)
            })
        })
    }

    /// Returns a pass for each device, as a [`PanelMap`] takes them. Each tells the number of its rows.
    pub fn passes(&self) -> Vec<Box<PanelPass<'_>>> {
        self.parts.iter().map(Part::pass).collect()
    }

    /// Returns the device that holds the matrix.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns [rows, columns].
    pub fn shape(&self) -> [u64; 2] {
        [self.rows, self.columns]
    }

    /// Returns the number of bytes of the packed entries.
    pub fn bytes(&self) -> u64 {
        self.rows * self.row_bytes()
    }

    fn row_bytes(&self) -> u64 {
        4 * row_words(self.columns)
    }

    /// Returns the packed rows, panel after panel.
    #[cfg(test)]
    pub(crate) fn words(&self) -> Vec<u32> {
        let read = |panel: &Panel| match &panel.entries {
            Entries::Packed(packed) => packed.read().unwrap(),
            _ => Vec::new(),
        };
        let of_part = |part: &Part| match &part.place {
            Place::Device(panels) => panels.iter().flat_map(read).collect(),
            Place::Host(_) => Vec::new(),
        };
        self.parts.iter().flat_map(of_part).collect()
    }

    /// Calls `work` with the matrix as a map, if X has a row for each column. `at_once` rows of A X are read at a time.
    fn as_map<T>(
        &self,
        op: &'static str,
        x: &Matrix,
        at_once: u64,
        work: impl FnOnce(&PanelMap<'_>) -> Result<T>,
    ) -> Result<T> {
        if x.rows() as u64 != self.columns {
            let expected = format!("{} rows", self.columns);
            return Err(Error::shape(op, expected, format_args!("({}, {})", x.rows(), x.cols())));
        }
        // The largest Euclidean norm and the largest sum of a row: those of a row of 2s.
        let columns = self.columns as f64;
        work(&PanelMap {
            device: &self.device,
            shape: self.shape(),
            packed: true,
            table: None,
            centred: false,
            bounds: [2.0 * columns.sqrt(), 2.0 * columns],
            at_once,
            each: &self.passes(),
        })
    }
}

impl Part {
    /// Adds to the numbers of all rows.
    fn move_by(&mut self, rows: u64) {
        self.first += rows;
        match &mut self.place {
            Place::Device(panels) => panels.iter_mut().for_each(|panel| {
                panel.rows = panel.rows.start + rows..panel.rows.end + rows;
            }),
            Place::Host(panels) => panels.move_by(rows),
        }
    }

    fn pass(&self) -> Box<PanelPass<'_>> {
        Box::new(|pass, sink| {
            self.each(&mut |panel| {
                sink(panel)?;
                pass.tell(panel.rows.end - self.first)
            })
        })
    }

    fn each(&self, sink: &mut PanelSink<'_>) -> Result<()> {
        match &self.place {
            Place::Device(panels) => panels.iter().try_for_each(sink),
            Place::Host(panels) => panels.each(&self.device, sink),
        }
    }
}

/// Returns the error for the first row that holds a value other than 0, 1 and 2.
fn refused(op: &'static str, entries: &Tensor<u8>) -> Result<Error> {
    let columns = entries.shape()[1];
    let values = entries.read()?;
    let counts = values.chunks(to_usize(columns));
    let mut counts = counts.map(|row| row.iter().filter(|&&value| value > 2).count());
    let (row, refused) = counts.by_ref().enumerate().find(|&(_, count)| count > 0).unwrap_or_default();
    let why = format!("{refused} of the {columns} values of row {row} are not 0, 1 or 2");
    Ok(Error::argument(op, "entries", why))
}

impl LinearMap for PackedMatrix {
    fn shape(&self) -> [u64; 2] {
        Self::shape(self)
    }

    fn device(&self) -> Option<&Device> {
        Some(&self.device)
    }

    fn apply_normal(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        self.as_map("PackedMatrix::apply_normal", x, 0, |map| map.apply_normal(x, pass))
    }

    fn apply(&self, x: &Matrix, pass: &Pass<'_>, sink: &mut RowSink<'_>) -> Result<()> {
        let at_once = (APPLY_BYTES / (4 * x.cols()).max(1)) as u64;
        self.as_map("PackedMatrix::apply", x, at_once, |map| map.apply(x, pass, sink))
    }
}
