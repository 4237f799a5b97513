//! Packing of bytes into values of few bits.

use super::{
    Width,
    part::{Strip, StripPart, grid},
    row_stride, rows_of, with_last,
};
use crate::{
    DType, Element, Error, Result, Tensor,
    extent::index_at,
    kernel::small,
    kernels::pack::{PACK, Params, REFUSE, spec},
    tensor::Pending,
};

/// A type that can be packed: `u8` or `i8`.
pub trait Packable: Element {}
impl Packable for u8 {}
impl Packable for i8 {}

/// Options of [`pack`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackOptions<'a> {
    /// The number of bytes of a packed row; bytes after its values are zero. Default: the minimum.
    pub row_bytes: Option<u64>,
    /// The codes of the values: value `v` is packed as `table[v]`, and values beyond the table are refused. Default: each value of the width is
    /// its own code.
    pub table: Option<&'a [u8]>,
    /// The code for negative values of `i8`. Default: negative values are refused.
    pub missing: Option<u8>,
}

crate::setters! {
    ['a] PackOptions<'a> {
        row_bytes(impl Into<Option<u64>>) = row_bytes.into(),
        table(&'a [u8]) = Some(table),
        missing(impl Into<Option<u8>>) = missing.into(),
    }
}

/// A checked table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Code {
    entries: u32,
    negative: u32,
    /// The code for each of the 16 possible values.
    table: [u8; 16],
}

impl Code {
    fn new(width: Width, options: &PackOptions<'_>) -> Result<Self> {
        let codes = width.codes();
        let identity: [u8; 16] =
            std::array::from_fn(|i| u8::try_from(i).expect("16 codes should fit a byte"));
        let given = options.table.unwrap_or(&identity[..codes]);
        let refuse = |name, why: std::fmt::Arguments<'_>| Err(Error::argument("pack", name, why));
        if !(1..=codes).contains(&given.len()) {
            return refuse("table", format_args!("{} entries; it has 1 to {codes}", given.len()));
        }
        if let Some(i) = given.iter().position(|&code| usize::from(code) >= codes) {
            return refuse("table", format_args!("entry {i} is {}, above {}", given[i], codes - 1));
        }
        let entries = given.len();
        // Negative values take the first free entry of the table, or in a full table an entry with the same code.
        let negative = match options.missing {
            None => None,
            Some(code) if usize::from(code) >= codes => {
                return refuse("missing", format_args!("{code}, above {}", codes - 1));
            }
            Some(_) if entries < codes => Some(entries),
            Some(code) => match given.iter().position(|&entry| entry == code) {
                None => {
                    let why = format_args!("{code}, which a table of all {codes} values lacks");
                    return refuse("missing", why);
                }
                place => place,
            },
        };
        // Unused entries keep the identity, so that a table without effect is recognized.
        let mut table = identity;
        table[..entries].copy_from_slice(given);
        if let (Some(place), Some(code)) = (negative, options.missing) {
            table[place] = code;
        }
        let entries = small(entries as u64);
        let negative = negative.map_or(REFUSE, |place| small(place as u64));
        Ok(Self { entries, negative, table })
    }

    /// True if the table changes any value.
    fn recodes(&self) -> bool {
        self.table.iter().zip(0..).any(|(&code, i)| code != i)
    }

    /// Returns entries 0 to 7 and 8 to 15, four bits each, the first in the lowest bits.
    fn words(&self) -> [u32; 2] {
        let (halves, _) = self.table.as_chunks::<8>();
        [halves[0], halves[1]]
            .map(|half| half.iter().rev().fold(0, |word, &code| word << 4 | u32::from(code)))
    }

    /// Describes the values that can be packed, for error messages.
    fn accepted(&self) -> String {
        let negative = if self.negative == REFUSE { "" } else { " or negative" };
        format!("0 to {}{negative}", self.entries - 1)
    }
}

/// Packs the last axis, each row by itself, the first value in the lowest bits of a byte. Waits.
///
/// # Shapes
/// `x`: (.., n) -> (.., bytes of a row). The bits after a row's values are zero.
///
/// # Cost
/// One pass over `x`, for any number and length of rows. Rows that fill their bytes are processed as one long row.
///
/// # Errors
/// [`Error::Argument`] when `x` has values outside of the table (with their number and the index of the first), for a table that the width
/// cannot hold, for `missing` with `u8`, or for too few `row_bytes`; [`Error::Shape`] when `x` has no axis; [`Error::Limit`] and
/// [`Error::OutOfMemory`] when the device has no room.
pub fn pack<T: Packable>(x: &Tensor<T>, width: Width, options: &PackOptions<'_>) -> Result<Tensor<u8>> {
    let [_, len] = rows_of("pack", x.shape())?;
    let stride = row_stride("pack", width, len, options.row_bytes)?;
    let mut out = Tensor::empty(x.device(), &with_last(x.shape(), stride))?;
    pack_into(x, width, options, &mut out)?.wait()?;
    Ok(out)
}

/// Packs like [`pack`], into an existing tensor. Enqueues; [`PendingPack::wait`] reports refused values.
///
/// # Shapes
/// `x`: (.., n), `out`: (.., bytes of a row), which replaces [`PackOptions::row_bytes`].
///
/// # Errors
/// As [`pack`]; [`Error::Shape`] unless the leading axes are those of `x`.
pub fn pack_into<T: Packable>(
    x: &Tensor<T>,
    width: Width,
    options: &PackOptions<'_>,
    out: &mut Tensor<u8>,
) -> Result<PendingPack> {
    // Kernels treat bytes from 128 on as negative values.
    if options.missing.is_some() && T::DTYPE != DType::I8 {
        return Err(Error::argument("pack", "missing", "values of u8 are never negative; it is for i8"));
    }
    let code = Code::new(width, options)?;
    let ([mut rows, mut cols], [_, mut stride]) =
        (rows_of("pack", x.shape())?, rows_of("pack", out.shape())?);
    row_stride("pack", width, cols, Some(stride))?;
    if *out.shape() != *with_last(x.shape(), stride) {
        let (x, out) = (x.shape(), out.shape());
        return Err(Error::shape("pack", format_args!("rows of {x:?}"), format_args!("{out:?}")));
    }
    let mut refused = PendingPack { slots: None, firsts: Vec::new(), shape: x.shape().into(), code };
    if out.is_empty() {
        return Ok(refused);
    }
    let per = width.values_per_byte();
    if cols == stride * per {
        (rows, cols, stride) = (1, rows * cols, rows * stride);
    }
    let device = x.device();
    let limits = device.limits();
    let parts = Strip { rows, bytes: stride, widest: cols.max(stride), factor: per }.parts(limits);
    let mut slots = Tensor::<u32>::zeros(device, &[parts.len() as u64, 2])?;
    let [table_low, table_high] = code.words();
    for (slot, StripPart { rows, bytes }) in (0..).zip(&parts) {
        let values = cols.min(bytes.start * per)..cols.min(bytes.end * per);
        let last = rows.end - 1;
        let (first, count) = (rows.start * cols + values.start, values.end - values.start);
        // A part may have only bytes after the values; then `x` may end before the part.
        let from = x.window(if count == 0 { 0..0 } else { first..last * cols + values.end });
        let to = out.window_update(rows.start * stride + bytes.start..last * stride + bytes.end);
        let told = slots.window_update(2 * slot..2 * slot + 2);
        let [n, cols, stride] = [rows.end - rows.start, count, bytes.end - bytes.start].map(small);
        let params = Params {
            rows: n,
            cols,
            stride,
            x0: from.start,
            out0: to.start,
            refused0: told.start,
            entries: code.entries,
            negative: code.negative,
            table_low,
            table_high,
        };
        let written = u64::from(n) * u64::from(stride);
        let grid = grid(limits, u64::from(to.start) + written, written * per)?;
        let spec = spec(width.bits(), code.recodes());
        device.launch(&PACK, &spec, grid, &[from.arg, to.arg, told.arg], &params)?;
        refused.firsts.push(first);
    }
    refused.slots = Some(slots.download()?);
    Ok(refused)
}

/// The refused values of a pack, in transfer to the host.
#[derive(Debug)]
#[must_use = "nothing waits for what was enqueued, and no error is seen"]
pub struct PendingPack {
    /// For each part, the number of refused values, and the complement of the position of the first.
    slots: Option<Pending<u32>>,
    /// For each part, the position of its first value in `x`.
    firsts: Vec<u64>,
    shape: Box<[u64]>,
    code: Code,
}

impl PendingPack {
    /// Waits for the end of the pack.
    ///
    /// # Errors
    /// [`Error::Argument`] with the number of refused values and the index of the first.
    pub fn wait(self) -> Result<()> {
        let Some(slots) = self.slots else { return Ok(()) };
        let slots = slots.wait()?;
        let (slots, _) = slots.as_chunks::<2>();
        let count: u64 = slots.iter().map(|&[count, _]| u64::from(count)).sum();
        let refused = slots.iter().zip(&self.firsts).filter(|([count, _], _)| *count > 0);
        let Some(place) = refused.map(|([_, place], first)| first + u64::from(!place)).min() else {
            return Ok(());
        };
        let index = index_at(place, &self.shape);
        let (values, accepted) = (self.shape.iter().product::<u64>(), self.code.accepted());
        let why = format!("{count} of {values} values are not {accepted}; the first is at {index:?}");
        Err(Error::argument("pack", "x", why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    fn code(width: Width, table: Option<&[u8]>, missing: Option<u8>) -> Result<Code> {
        Code::new(width, &PackOptions { table, missing, ..PackOptions::default() })
    }

    #[test]
    fn codes_of_options() {
        let plain = code(Width::Two, None, None).unwrap();
        assert_eq!((plain.entries, plain.negative, plain.recodes()), (4, REFUSE, false));
        assert_eq!(plain.words(), [0x7654_3210, 0xfedc_ba98]);
        // Dosages, 3 missing.
        let codes = code(Width::Two, Some(&[0, 1, 2]), Some(3)).unwrap();
        assert_eq!((codes.entries, codes.negative, codes.recodes()), (3, 3, false));
        let plink = code(Width::Two, Some(&[3, 2, 0]), Some(1)).unwrap();
        assert_eq!((plink.entries, plink.negative, plink.recodes()), (3, 3, true));
        assert_eq!(plink.words()[0], 0x7654_1023);
        // A full table has no free place.
        let full = code(Width::Two, Some(&[3, 2, 0, 1]), Some(1)).unwrap();
        assert_eq!((full.entries, full.negative), (4, 3));
        assert_eq!(full.accepted(), "0 to 3 or negative");
    }

    #[test]
    fn bytes_without_a_sign_are_never_missing() {
        let x = Tensor::from_slice(&Device::cpu(), &[200u8], &[1]).unwrap();
        let options = PackOptions { table: Some(&[0, 1, 2]), missing: Some(3), ..PackOptions::default() };
        crate::assert_err!(pack(&x, Width::Two, &options), Error::Argument { name: "missing", .. });
    }

    #[test]
    fn bad_tables() {
        type Case = (Width, Option<&'static [u8]>, Option<u8>, &'static str);
        let bad: [Case; 6] = [
            (Width::Two, Some(&[]), None, "`table`: 0 entries; it has 1 to 4"),
            (Width::One, Some(&[0, 1, 0]), None, "`table`: 3 entries; it has 1 to 2"),
            (Width::Two, Some(&[0, 4]), None, "`table`: entry 1 is 4, above 3"),
            (Width::Four, None, Some(16), "`missing`: 16, above 15"),
            (Width::One, Some(&[1]), Some(2), "`missing`: 2, above 1"),
            (Width::One, Some(&[1, 1]), Some(0), "`missing`: 0, which a table of all 2 values lacks"),
        ];
        for (width, table, missing, why) in bad {
            assert_eq!(code(width, table, missing).unwrap_err().to_string(), format!("pack: {why}"));
        }
    }
}
