//! Packing and unpacking on the CPU, with all threads and with one: `cargo bench -p teatime-bench --bench bits`.
//!
//! Throughput counts bytes read plus bytes written, for 256 MiB of unpacked u8. Results go to allocated memory, except in the cases named `new`,
//! where page faults limit everything, including copies.

mod support;

use std::thread;

use support::Bench;
use teatime::{
    Device, DeviceOptions, Error, Tensor,
    bits::{PackOptions, Width, pack, pack_into, unpack, unpack_into},
    random::random_words,
};

/// The number of unpacked values.
const LEN: u64 = 256 << 20;

/// Returns random codes of this width, in rows of `cols` columns, with about `LEN` codes in all.
fn codes(device: &Device, width: Width, cols: u64) -> Result<Tensor<u8>, Error> {
    let words = random_words(device, 1, 0, LEN / 4)?.read()?;
    let mask = u8::MAX >> (8 - width.bits());
    let values = words.into_iter().flat_map(u32::to_le_bytes).map(|byte| byte & mask);
    let len = usize::try_from(LEN / cols * cols).expect("256 Mi should fit the address space");
    let values: Vec<u8> = values.take(len).collect();
    Tensor::from_slice(device, &values, &[LEN / cols, cols])
}

/// Runs all cases at one width and row length.
fn cases(bench: &mut Bench, width: Width, cols: u64) -> Result<(), Error> {
    let device = &bench.device.clone();
    let x = &codes(device, width, cols)?;
    let packed = &pack(x, width, &PackOptions::default())?;
    let (len, small, bits, shape) = (x.bytes(), packed.bytes(), width.bits(), x.shape());
    let (out, bytes) = (&mut packed.try_clone()?, &mut x.try_clone()?);
    let floats = &mut Tensor::<f32>::zeros(device, shape)?;
    let mut values = [0.0; 16];
    values[0] = 2.0;
    let (values, zeros) = (&values[..width.codes()], &vec![0; width.codes()]);
    let (plain, coded) = (&PackOptions::default(), &PackOptions::default().table(zeros));
    let mut case = |op: &str, bytes, run: &mut dyn FnMut() -> Result<(), Error>| {
        bench.case(op, shape, bytes, None, move || Ok(run));
    };
    let packing = len + small;
    case(&format!("pack {bits}"), packing, &mut || pack_into(x, width, plain, out).map(drop));
    case(&format!("pack {bits} by a table"), packing, &mut || pack_into(x, width, coded, out).map(drop));
    case(&format!("unpack {bits} U8"), packing, &mut || unpack_into(packed, width, None, bytes));
    case(&format!("unpack {bits} U8 by a table"), packing, &mut || {
        unpack_into(packed, width, Some(values), bytes)
    });
    case(&format!("unpack {bits} F32"), 4 * len + small, &mut || {
        unpack_into(packed, width, Some(values), floats)
    });
    case("new: copy", 2 * len, &mut || x.try_clone().map(drop));
    case(&format!("new: pack {bits}"), packing, &mut || pack(x, width, plain).map(drop));
    case(&format!("new: unpack {bits} U8"), packing, &mut || {
        unpack::<u8>(packed, cols, width, None).map(drop)
    });
    Ok(())
}

fn main() -> Result<(), Error> {
    let threads = thread::available_parallelism().map_or(1, Into::into);
    for threads in [threads, 1] {
        let device = Device::open_with("cpu", &DeviceOptions::default().threads(threads))?;
        let mut bench = Bench::on(device, format!("cpu threads {threads}"))?;
        for width in Width::ALL {
            cases(&mut bench, width, LEN)?;
        }
        cases(&mut bench, Width::Two, 1001)?;
    }
    Ok(())
}
