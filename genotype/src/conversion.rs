//! Conversion of stored genotypes to the form that a device takes.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use teatime::{
    ChunkedArray, Hint, Result, StoredType,
    stream::{Convert, Misfit, Narrow, Narrowed},
    to_usize,
};

use super::calls::Calls;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Codes of two bits, four a byte.
    Codes(Calls),
    /// Dosages of calls of `ploidy` alleles, as `i8`; -1 is missing.
    Counts { ploidy: usize },
    /// Dosages as they are stored.
    Dosages,
}

#[derive(Debug)]
pub(crate) struct Conversion {
    target: Target,
    /// The allele that is counted; if none, all alleles but the reference are.
    allele: Option<u8>,
    narrow: Narrow,
    /// A flag that becomes true once an element above 1 is read.
    pub(crate) further: Option<Arc<AtomicBool>>,
}

impl Conversion {
    /// Converts calls of one ploidy to the number of copies of an allele, or of all alleles but the reference.
    pub(crate) fn of_calls(ploidy: u64, allele: Option<u8>) -> Self {
        let target = match ploidy {
            1 => Target::Codes(Calls::Haploid),
            2 => Target::Codes(Calls::Diploid),
            _ => Target::Counts { ploidy: to_usize(ploidy) },
        };
        let narrow = Narrow {
            to: Narrowed::I8,
            // Values below -2 are not alleles, whatever the stored type.
            range: [-128.0, 127.0],
            negative_is_missing: false,
            nan_is_missing: false,
        };
        Self { target, allele, narrow, further: None }
    }

    /// Converts whole dosages of at most 2 to codes of two bits.
    pub(crate) fn of_codes() -> Self {
        Self { target: Target::Codes(Calls::Dosages), ..Self::of_dosages(Narrowed::I8, 2.0, false) }
    }

    pub(crate) fn of_dosages(to: Narrowed, most: f64, nan_is_missing: bool) -> Self {
        let narrow = Narrow { to, range: [0.0, most], negative_is_missing: true, nan_is_missing };
        Self { target: Target::Dosages, allele: None, narrow, further: None }
    }

    /// Returns the number of stored elements of a sample.
    fn alleles(&self) -> usize {
        match self.target {
            Target::Codes(calls) => calls.bytes(),
            Target::Counts { ploidy } => ploidy,
            Target::Dosages => 1,
        }
    }

    /// Returns the elements as `i8`, for targets made from `i8`; if one allele is counted, 1 for that allele and 0 for others.
    fn bytes_of<'a>(
        &self,
        array: &dyn ChunkedArray,
        from: &'a [u8],
        room: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], Misfit> {
        // Nearly every store holds `i8` calls that need no conversion.
        if array.dtype() == StoredType::I8 && self.narrow.missing(array).is_none() && self.allele.is_none() {
            self.watch(from);
            return Ok(from);
        }
        room.resize(from.len() / array.dtype().size(), 0);
        self.narrow.convert(array, from, room)?;
        self.watch(room);
        if let Some(counted) = self.allele {
            let known = room.iter_mut().filter(|byte| byte.cast_signed() >= 0);
            known.for_each(|byte| *byte = u8::from(*byte == counted));
        }
        Ok(room)
    }

    fn watch(&self, elements: &[u8]) {
        if let Some(further) = &self.further
            && !further.load(Relaxed)
            // The fold looks at all elements, so that it compiles to wide vectors.
            && elements.iter().fold(i8::MIN, |most, byte| most.max(byte.cast_signed())) > 1
        {
            further.store(true, Relaxed);
        }
    }
}

impl Convert for Conversion {
    fn accepts(&self, array: &dyn ChunkedArray) -> Result<()> {
        self.narrow.accepts(array)
    }

    fn unit(&self) -> u64 {
        match self.target {
            Target::Codes(_) => 4 * self.alleles() as u64,
            Target::Counts { .. } | Target::Dosages => self.alleles() as u64,
        }
    }

    fn bytes(&self, elements: u64) -> u64 {
        match self.target {
            Target::Codes(_) => elements.div_ceil(self.unit()),
            Target::Counts { .. } => elements / self.unit(),
            Target::Dosages => self.narrow.bytes(elements),
        }
    }

    fn convert(&self, array: &dyn ChunkedArray, from: &[u8], to: &mut [u8]) -> Result<(), Misfit> {
        let mut room = Vec::new();
        match self.target {
            Target::Dosages => self.narrow.convert(array, from, to),
            Target::Codes(calls) => {
                let from = self.bytes_of(array, from, &mut room)?;
                let Some(at) = calls.pack(from, to) else { return Ok(()) };
                let value = from[at].cast_signed();
                let why = match calls {
                    Calls::Dosages => format!("value {value} is above 2"),
                    Calls::Haploid | Calls::Diploid => format!("{value} is no allele"),
                };
                Err(Misfit::new(at, why))
            }
            Target::Counts { ploidy } => {
                let from = bytemuck::cast_slice(self.bytes_of(array, from, &mut room)?);
                count(ploidy, from, to).map_err(|(at, lowest)| {
                    if lowest != -2 {
                        return Misfit::new(at, format_args!("{lowest} is no allele"));
                    }
                    let why = format!(
                        "allele -2 pads a call of lower ploidy than {ploidy}; a ploidy above 2 must be that of all calls"
                    );
                    Misfit { at, why, hint: Some(Hint::new("ploidy", "")) }
                })
            }
        }
    }

    fn takes_planes(&self, array: &dyn ChunkedArray) -> bool {
        let is_alternate = self.allele.is_none_or(|allele| allele == 1);
        let is_calls = matches!(self.target, Target::Codes(Calls::Haploid | Calls::Diploid));
        is_calls && is_alternate && array.dtype() == StoredType::I8 && self.narrow.missing(array).is_none()
    }

    /// Refuses alleles above 1.
    fn convert_planes(&self, planes: [&[u8]; 8], to: &mut [u8]) -> bool {
        matches!(self.target, Target::Codes(calls) if calls.pack_planes(planes, to))
    }

    fn place(&self, row: u64, element: u64) -> String {
        format!("variant {row}, sample {}", element / self.alleles() as u64)
    }
}

/// Counts the alleles above 0 of each call, or gives -1 if an allele is missing, so also for partly
/// missing calls, as sgkit's `count_call_alternate_alleles` does. Fails with the place of an allele below -1, and the call's lowest.
fn count(ploidy: usize, calls: &[i8], out: &mut [u8]) -> Result<(), (usize, i8)> {
    for (i, (call, out)) in calls.chunks_exact(ploidy).zip(out).enumerate() {
        let lowest = call.iter().fold(0, |low: i8, &allele| low.min(allele));
        if lowest < -1 {
            return Err((i * ploidy, lowest));
        }
        let count = call.iter().fold(0i8, |count, &allele| count.wrapping_add(i8::from(allele > 0)));
        *out = if lowest < 0 { lowest } else { count }.cast_unsigned();
    }
    Ok(())
}
