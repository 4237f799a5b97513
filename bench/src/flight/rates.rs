//! The rates of a card that limit its kernels. It needs CUDA and its compiler.

#![allow(unsafe_code, reason = "CUDA checks no index: the author of a kernel does")]

use teatime::{
    Backend, Device, Error, Tensor,
    bytemuck::{Pod, Zeroable},
    kernel::{Binding, Grid, Kernel},
    random::random_words,
};

use crate::{
    measure::{Job, Session, Size},
    report::Unit,
};

#[derive(Clone, Copy, Pod, Zeroable)]
#[bytemuck(crate = "teatime::bytemuck")]
#[repr(C)]
struct Params {
    rounds: u32,
    len: u32,
}

/// A kernel that measures rates. `len` is the number of 16-byte groups of its data, or of sums in the same space.
static RATES: Kernel<Params> = {
    let kernel =
        Kernel::new("rates", &[Binding::read_write::<u32>()], |p: &Params| vec![4 * u64::from(p.len)])
            .constants(&["MODE", "THREADS"]);
    // SAFETY: the kernel has a pointer to u32 and accesses only its first `len` groups of four or pairs, or its first word, for any grid; it
    // accesses nothing if there is less data than one block needs.
    unsafe { kernel.cuda(include_str!("rates.cu")) }
};

const PRODUCTS: u32 = 0;
const ADDITIONS: u32 = 1;
const READS: u32 = 2;
/// The number of threads of a block: a warp for each scheduler of a multiprocessor.
const THREADS: u32 = 128;
/// The numbers of blocks on each multiprocessor that compute products at once.
const WARPS: [u32; 4] = [1, 2, 3, 4];
/// The numbers of sums that are added to: in a small part of the L2 cache, as in a pass of products, filling that cache, and beyond it.
const SUMS: [u32; 4] = [1 << 14, 400_000 / THREADS * THREADS, 1 << 21, 1 << 26];
/// The numbers of bytes that are read repeatedly, within the L2 cache and beyond it.
const BYTES: [u32; 4] = [8 << 20, 20 << 20, 40 << 20, 2 << 30];
/// The numbers of rounds; the smallest only shows that the kernel works, such as on an emulator.
const ROUNDS: [u32; 3] = [1, 50, 2000];
/// The number of launches that are timed together.
const LAUNCHES: u32 = 1000;
pub(super) const ENTRIES: f64 = (WARPS.len() + SUMS.len() + BYTES.len() + 2) as f64;

pub(super) fn rates(session: &mut Session<'_>) {
    if session.device.info().backend != Backend::Cuda {
        session.skipped("rates", "they are of CUDA alone");
        return;
    }
    // The library's `fill` is 8 blocks for each multiprocessor.
    let multiprocessors = session.device.limits().fill() / 8;
    for warps in WARPS {
        let id = format!("products of bytes, {warps} warps a scheduler");
        let blocks = multiprocessors * warps;
        let terms = 2 * 16 * 4096 * u64::from(THREADS / 32 * blocks);
        measure(session, &id, Unit::Flops, (PRODUCTS, blocks), terms, THREADS);
    }
    for sums in SUMS {
        let id = format!("additions to {sums} sums of 64 bits, 8 bytes each");
        let blocks = 8 * multiprocessors;
        measure(session, &id, Unit::Bandwidth, (ADDITIONS, blocks), 8 * u64::from(THREADS * blocks), sums);
    }
    for bytes in BYTES {
        let id = format!("reads of {} MiB again and again", bytes >> 20);
        measure(session, &id, Unit::Bandwidth, (READS, 16 * multiprocessors), bytes.into(), bytes / 16);
    }
    let once = |_: &()| Size { text: LAUNCHES.to_string(), work: 1.0, memory: 1 };
    session.largest("launches", Unit::Milliseconds, &[()], once, |device, ()| {
        let mut data = Tensor::zeros(device, &[16])?;
        Ok(Box::new(move || {
            (0..LAUNCHES).try_for_each(|_| launch(&mut data, (PRODUCTS, 1), Params { rounds: 0, len: 0 }))
        }))
    });
    let id = "launches, each with memory of its own";
    session.largest(id, Unit::Milliseconds, &[()], once, |device, ()| {
        let device = device.clone();
        Ok(Box::new(move || (0..LAUNCHES).try_for_each(|_| random_words(&device, 1, 0, 1 << 10).map(drop))))
    });
}

/// Measures the rate of a launch, which does `work` in each round.
fn measure(session: &mut Session<'_>, id: &str, unit: Unit, grid: (u32, u32), work: u64, len: u32) {
    let size = |&rounds: &u32| Size {
        text: format!("{rounds} rounds"),
        work: (work * u64::from(rounds)) as f64,
        memory: 16 * u64::from(len),
    };
    session.largest(id, unit, &ROUNDS, size, |device: &Device, &rounds| -> Result<Job, Error> {
        let mut data = Tensor::zeros(device, &[4 * u64::from(len)])?;
        Ok(Box::new(move || launch(&mut data, grid, Params { rounds, len })))
    });
}

fn launch(data: &mut Tensor<u32>, (mode, blocks): (u32, u32), params: Params) -> Result<(), Error> {
    let grid = Grid::linear(blocks.into(), data.device().limits().groups_per_axis, u64::from(params.rounds))?;
    RATES.launch(&[("MODE", mode), ("THREADS", THREADS)], grid, &[data.as_read_write()], &params)
}
