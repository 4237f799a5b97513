//! A driver that records each launch and runs none, so that the launches on cards that are not available are known.
//!
//! `scripts/cuda-plan` prints the launches.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use super::Card;
use crate::{
    Backend, Device, DeviceInfo, DeviceKind, DeviceOptions, Limits, Result, Run, Tensor, Timeline,
    distance::{Metric, Options, pairwise},
    driver::{ArgSlice, Caller, Download, Driver, Fence, Memory, Slice, Staging, cpu::CpuDriver},
    extent::to_usize,
    filter::{GaussianOptions, gaussian},
    kernel::{Grid, KernelDef, Spec},
    kernels::{packed_adjoint, packed_apply},
    linalg::{Matrix, gram_lower, matmul},
    packed::{Gram, GramOptions, PackedProduct, PackedRows, RowScale, panel_bytes, row_words},
};

const H100: Card = Card {
    memory: 79 << 30,
    capability: (9, 0),
    multiprocessors: 132,
    kilohertz: 1_980_000,
    has_watchdog: false,
};
const H200: Card = Card { memory: 139 << 30, ..H100 };
const T4: Card = Card {
    memory: 15 << 30,
    capability: (7, 5),
    multiprocessors: 40,
    kilohertz: 1_590_000,
    has_watchdog: false,
};

/// Rates of a card by its data sheet, per second: bytes of memory, byte operations, and f32 operations.
#[derive(Clone, Copy, Debug)]
struct Rates {
    memory: f64,
    bytes: f64,
    floats: f64,
}

// The large cards reach two thirds of their byte operations with instructions of single warps, which this crate uses.
const CARDS: [(&str, Card, Rates); 3] = [
    ("H100", H100, Rates { memory: 3.35e12, bytes: 1.32e15, floats: 6.7e13 }),
    ("H200", H200, Rates { memory: 4.8e12, bytes: 1.32e15, floats: 6.7e13 }),
    ("T4", T4, Rates { memory: 3.2e11, bytes: 1.3e14, floats: 8.1e12 }),
];

/// The launches of a kernel with certain constants.
#[derive(Clone, Copy, Debug, Default)]
struct Launches {
    count: u64,
    blocks: u64,
    /// The number of blocks that all waves could hold; 0 if it is not known.
    places: u64,
    /// The number of additions to 64-bit sums.
    atomics: u64,
}

impl Launches {
    /// Returns the share of the places that a block fills.
    fn filled(&self) -> f64 {
        self.blocks as f64 / self.places as f64
    }
}

type Noted = Arc<Mutex<BTreeMap<String, Launches>>>;

/// A card that runs nothing: an allocation of any size gets a few bytes, which are read as zeros.
#[derive(Debug)]
struct Planned {
    inner: CpuDriver,
    info: DeviceInfo,
    limits: Limits,
    noted: Noted,
}

/// Returns the number of blocks that a multiprocessor runs at a time, for kernels whose registers or shared memory limit it; 0 for other kernels.
fn at_once(kernel: &str, spec: Spec<'_>, memory: u32) -> u32 {
    let constant =
        |name: &str| spec.iter().find(|(constant, _)| *constant == name).map_or(0, |&(_, value)| value);
    match kernel {
        "packed_apply" if constant("TILE") == packed_apply::LARGE_TILE => packed_apply::at_once(memory),
        "packed_adjoint" => packed_adjoint::at_once(constant("TILE"), constant("MISSING") == 1, memory),
        "distance" | "matmul" if memory >= 100 << 10 => 2,
        _ => 0,
    }
}

impl Driver for Planned {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn alloc(&self, _bytes: u64) -> Result<Memory> {
        self.inner.alloc(16)
    }

    fn clear(&self, _dst: Slice<'_>) -> Result<()> {
        Ok(())
    }

    fn copy(&self, _src: Slice<'_>, _dst: Slice<'_>) -> Result<()> {
        Ok(())
    }

    fn write(&self, _dst: Slice<'_>, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    fn download(&self, src: Slice<'_>, _: Option<&Timeline>) -> Result<Download> {
        Ok(Download::Ready(vec![0; usize::try_from(src.bytes).unwrap()]))
    }

    fn launch(
        &self,
        kernel: &'static KernelDef,
        spec: Spec<'_>,
        grid: Grid,
        _args: &[ArgSlice<'_>],
        params: &[u8],
        _caller: Caller<'_>,
    ) -> Result<()> {
        let places =
            u64::from(self.limits.processors * at_once(kernel.name, spec, self.limits.processor_memory));
        let blocks = grid.groups.iter().map(|&groups| u64::from(groups)).product::<u64>();
        let mut noted = self.noted.lock().unwrap();
        let totals = noted.entry(kernel.name.to_owned()).or_default();
        totals.count += 1;
        totals.blocks += blocks;
        totals.places += if places > 0 { blocks.next_multiple_of(places) } else { 0 };
        if kernel.name == "packed_adjoint" {
            let params: &packed_adjoint::Params = bytemuck::from_bytes(params);
            let splits = params.rows.div_ceil(params.depth);
            totals.atomics += u64::from(splits) * u64::from(params.entries) * u64::from(params.columns);
        }
        Ok(())
    }

    fn staging(&self, bytes: u64) -> Result<Staging> {
        self.inner.staging(bytes)
    }

    fn upload(&self, _slot: &mut Staging, _dst: Slice<'_>, _: Option<&Timeline>) -> Result<Fence> {
        Ok(Fence::Passed)
    }

    fn order_after(&self, _fence: &Fence) -> Result<()> {
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

/// Returns the launches of `work` on a card.
fn plan(card: Card, work: impl FnOnce(&Device)) -> BTreeMap<String, Launches> {
    let noted = Noted::default();
    let info = DeviceInfo {
        name: "cuda:0".into(),
        description: "a card that runs nothing".into(),
        backend: Backend::Cuda,
        api: String::new(),
        kind: DeviceKind::Discrete,
        vendor: String::new(),
        driver: String::new(),
        memory: Some(card.memory),
        compute_capability: None,
        identity: String::new(),
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let inner = CpuDriver::new(Arc::new(pool), CpuDriver::limits(1));
    let driver = Planned { inner, info, limits: card.limits(), noted: Arc::clone(&noted) };
    work(&Device::from_driver(Box::new(driver), &DeviceOptions::default()));
    let noted = noted.lock().unwrap();
    noted.clone()
}

/// Returns the launches of a pass of products over `rows` rows of `columns` codes, with 20 columns.
fn pass(card: Card, rows: u64, columns: u64) -> BTreeMap<String, Launches> {
    plan(card, |device| {
        let x = Matrix::from_vec(vec![1.0; 20 * to_usize(columns)], to_usize(columns), 20).unwrap();
        let mut product = PackedProduct::new(device, &x, true, Some([1e3, 1e5])).unwrap();
        let words = row_words(columns);
        let step = (panel_bytes(device, columns) / (4 * words)).min(crate::packed::PANEL_ROWS);
        for first in (0..rows).step_by(to_usize(step)) {
            let range = (0, step.min(rows - first));
            let packed = Tensor::empty(device, &[range.1, words]).unwrap();
            let table = Tensor::empty(device, &[range.1, 2]).unwrap();
            product.add(PackedRows { packed: &packed, range, missing: false }, &table).unwrap();
        }
    })
}

/// Returns the launches for one panel of the Gram matrix of `columns` columns, and the panel's number of rows.
fn pairs(card: Card, columns: u64) -> (BTreeMap<String, Launches>, u64) {
    let mut rows = 0;
    let plan = plan(card, |device| {
        let words = row_words(columns);
        rows = (Gram::panel_bytes(device) / (4 * words)).min(crate::packed::PANEL_ROWS);
        let options = GramOptions::default().unit_factors(true);
        let mut gram = Gram::new(device, columns, rows, options).unwrap();
        let packed = Tensor::empty(device, &[rows, words]).unwrap();
        let scale = RowScale { mean: 1.0, factor: 1.0, known: columns };
        gram.add(&packed, 0, 0, &vec![scale; to_usize(rows)]).unwrap();
    });
    (plan, rows)
}

fn dense(card: Card) -> BTreeMap<String, Launches> {
    plan(card, |device| {
        let x = Tensor::<f32>::empty(device, &[8192, 8192]).unwrap();
        matmul(&x, &x).unwrap();
        gram_lower(&x).unwrap();
        let x = Tensor::<f32>::empty(device, &[4096, 10_000]).unwrap();
        pairwise(&x, None, Metric::Euclidean, &Options::default(), &Run::default()).unwrap();
        let x = Tensor::<f32>::empty(device, &[50, 1104, 1104]).unwrap();
        for sigma in [1.0, 3.0] {
            gaussian::<f32, f32>(&x, sigma, &GaussianOptions::default()).unwrap();
        }
    })
}

/// Prints a plan; `floors` are the minimum seconds by memory and by arithmetic.
#[allow(clippy::print_stdout, reason = "this is what the script shows")]
fn print(title: &str, floors: [f64; 2], card: Card, plan: &BTreeMap<String, Launches>) {
    let [memory, arithmetic] = floors.map(|seconds| 1e3 * seconds);
    println!("{title}: floors {memory:.3} ms by memory, {arithmetic:.3} ms by arithmetic");
    for (name, launches) in plan {
        let Launches { count, blocks, places, atomics } = *launches;
        let filled =
            if places > 0 { format!("{:.1} % of places", 100.0 * launches.filled()) } else { "-".into() };
        let each = blocks as f64 / count as f64 / f64::from(card.multiprocessors);
        println!(
            "  {name:16} {count:6} launches, {blocks:9} blocks, {each:8.1} a launch and multiprocessor, {filled:17}, {atomics:.2e} additions of 64 bits"
        );
    }
}

#[test]
fn lengths_of_launches() {
    for (name, card, rates) in CARDS {
        let (rows, columns) = (10_000_000, 20_000);
        let headline = pass(card, rows, columns);
        // Both products read all codes, and multiply each code by 64 limbs.
        let codes = (rows * columns) as f64;
        let floors = [2.0 * codes / 4.0 / rates.memory, 2.0 * 2.0 * 64.0 * codes / rates.bytes];
        print(
            &format!("{name}: a pass of {rows} x {columns} codes times 20 columns"),
            floors,
            card,
            &headline,
        );
        let (pairs, panel) = pairs(card, columns);
        let (codes, sums) = ((panel * columns) as f64, (columns * columns) as f64 / 2.0);
        let floors = [codes / 4.0 / rates.memory, 2.0 * sums * panel as f64 / rates.bytes];
        print(&format!("{name}: pairs of {columns} columns, {panel} rows"), floors, card, &pairs);
        // A term of a distance is a subtraction and a fused multiply-add: as long as two multiply-adds, which count as two operations each.
        let (products, distances) = (3.0 * 8192f64.powi(3), 4.0 * 4096.0 * 4096.0 / 2.0 * 10_000.0);
        let images = 2.0 * 2.0 * 4.0 * 50.0 * 1104.0 * 1104.0;
        let floors = [images / rates.memory, (products + distances) / rates.floats];
        let title = format!("{name}: products, Gram products, distances and Gaussians of f32");
        print(&title, floors, card, &dense(card));
        let count: u64 = headline.values().map(|launches| launches.count).sum();
        assert!(headline.values().all(|launches| launches.filled() >= 0.97), "{name}: {headline:?}");
        if card.multiprocessors >= 132 {
            assert!(count <= 40, "{name}: {count} launches");
            let atomics = pairs.values().map(|launches| launches.atomics as f64).sum::<f64>();
            let of_all = atomics * rows as f64 / panel as f64;
            assert!(of_all <= 1e10, "{name}: {of_all:.2e} additions for pairs of all rows");
        }
    }
}
