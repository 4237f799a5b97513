//! A driver that records each launch and runs none, so that the launches on cards that are not available are known.
//!
//! `scripts/cuda-plan` prints the launches.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use super::Card;
use crate::{
    Backend, Device, DeviceInfo, DeviceKind, DeviceOptions, Limits, Result, Run, Status, Tensor, Timeline,
    distance::{Metric, Options, pairwise},
    driver::{ArgSlice, Caller, Download, Driver, Fence, Memory, Slice, Staging, cpu::CpuDriver},
    extent::to_usize,
    filter::{GaussianOptions, gaussian},
    kernel::{Grid, KernelDef, Spec},
    kernels::{packed_adjoint, packed_apply},
    linalg::{LinearMap, Matrix, Pass, gram_lower, matmul},
    packed::{Gram, GramOptions, PackedMatrix, PackedProduct, PackedRows, RowScale, panel_bytes, row_words},
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

/// Rates of a card by its data sheet, per second: bytes of memory, bytes of copies from and to the host, byte operations, and f32 operations.
#[derive(Clone, Copy, Debug)]
struct Rates {
    memory: f64,
    link: f64,
    bytes: f64,
    floats: f64,
}

// The large cards reach two thirds of their byte operations with instructions of single warps, which this crate uses.
const CARDS: [(&str, Card, Rates); 3] = [
    ("H100", H100, Rates { memory: 3.35e12, link: 5.5e10, bytes: 1.32e15, floats: 6.7e13 }),
    ("H200", H200, Rates { memory: 4.8e12, link: 5.5e10, bytes: 1.32e15, floats: 6.7e13 }),
    ("T4", T4, Rates { memory: 3.2e11, link: 1.2e10, bytes: 1.3e14, floats: 8.1e12 }),
];

/// The launches of a kernel, or the copies to or from the host.
#[derive(Clone, Copy, Debug, Default)]
struct Launches {
    count: u64,
    blocks: u64,
    /// The number of waves, and of blocks that all waves could hold; 0 if it is not known how many a multiprocessor runs at a time.
    waves: u64,
    places: u64,
    /// The number of additions to 64-bit sums.
    atomics: u64,
    /// The bytes of all arguments, and the operations.
    bytes: u64,
    operations: u64,
    /// The most operations of a launch.
    longest: u64,
}

impl Launches {
    /// Returns the share of the places that a block fills; 0 if it is not known.
    fn filled(&self) -> f64 {
        if self.places == 0 { 0.0 } else { self.blocks as f64 / self.places as f64 }
    }

    /// Returns the minimum milliseconds by memory or the link to the host, and by arithmetic.
    fn floors(&self, name: &str, rates: Rates) -> [f64; 2] {
        let memory = if name.starts_with("copy") { rates.link } else { rates.memory };
        let arithmetic = if name.starts_with("packed_a") { rates.bytes } else { rates.floats };
        [self.bytes as f64 / memory, self.operations as f64 / arithmetic].map(|seconds| 1e3 * seconds)
    }
}

/// The launches and copies, by name.
type Plan = BTreeMap<String, Launches>;
type Noted = Arc<Mutex<Plan>>;

/// A card that runs nothing: an allocation of any size gets a few bytes, which are read as zeros.
#[derive(Debug)]
struct Planned {
    inner: CpuDriver,
    info: DeviceInfo,
    limits: Limits,
    noted: Noted,
}

impl Planned {
    fn note(&self, name: &str, add: impl FnOnce(&mut Launches)) {
        let mut noted = self.noted.lock().unwrap();
        let totals = noted.entry(name.to_owned()).or_default();
        totals.count += 1;
        add(totals);
    }
}

fn constant(spec: Spec<'_>, name: &str) -> u32 {
    spec.iter().find(|(constant, _)| *constant == name).map_or(0, |&(_, value)| value)
}

/// Returns the number of blocks that a multiprocessor runs at a time, for kernels whose registers or shared memory limit it; 0 for other kernels.
fn at_once(kernel: &str, spec: Spec<'_>, memory: u32) -> u32 {
    let missing = constant(spec, "MISSING") == 1;
    match kernel {
        "packed_apply" if constant(spec, "TILE") != packed_apply::LARGE_TILE => 0,
        // Twice the sums take twice the registers.
        "packed_apply" if missing => 1,
        "packed_apply" => packed_apply::at_once(memory),
        "packed_adjoint" => packed_adjoint::at_once(constant(spec, "TILE"), missing, memory),
        "distance" | "matmul" if memory >= 100 << 10 => 2,
        _ => 0,
    }
}

/// Returns the number of operations of a kernel for each that its grid counts.
fn operations(kernel: &str, spec: Spec<'_>) -> u64 {
    let sets = 1 + u64::from(constant(spec, "MISSING"));
    match kernel {
        // For each limb, a product and a sum.
        "packed_apply" => 2 * 3 * sets,
        "packed_adjoint" => 2 * u64::from(constant(spec, "LIMBS")) * sets,
        // A term is a subtraction and a fused multiply-add, as long as two multiply-adds, which count as two operations each.
        "distance" => 2,
        _ => 1,
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

    fn write(&self, _dst: Slice<'_>, bytes: &[u8]) -> Result<()> {
        self.note("copy to the device", |totals| totals.bytes += bytes.len() as u64);
        Ok(())
    }

    fn download(&self, src: Slice<'_>, _: Option<&Timeline>) -> Result<Download> {
        self.note("copy to the host", |totals| totals.bytes += src.bytes);
        Ok(Download::Ready(vec![0; usize::try_from(src.bytes).unwrap()]))
    }

    fn launch(
        &self,
        kernel: &'static KernelDef,
        spec: Spec<'_>,
        grid: Grid,
        args: &[ArgSlice<'_>],
        params: &[u8],
        _caller: Caller<'_>,
    ) -> Result<()> {
        let at_once = at_once(kernel.name, spec, self.limits.processor_memory);
        let resident = u64::from(self.limits.processors * at_once);
        let blocks = grid.groups.iter().map(|&groups| u64::from(groups)).product::<u64>();
        self.note(kernel.name, |totals| {
            let waves = if resident > 0 { blocks.div_ceil(resident) } else { 0 };
            totals.blocks += blocks;
            totals.waves += waves;
            totals.places += waves * resident;
            totals.bytes += args.iter().map(|arg| arg.slice.bytes).sum::<u64>();
            totals.operations += grid.work * operations(kernel.name, spec);
            totals.longest = totals.longest.max(grid.work);
            if kernel.name == "packed_adjoint" {
                let params: &packed_adjoint::Params = bytemuck::from_bytes(params);
                let splits = params.rows.div_ceil(params.depth);
                totals.atomics += u64::from(splits) * u64::from(params.entries) * u64::from(params.columns);
            }
        });
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
fn plan(card: Card, work: impl FnOnce(&Device)) -> Plan {
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

/// Returns an operand of 20 columns.
fn operand(columns: u64) -> Matrix {
    Matrix::from_vec(vec![1.0; 20 * to_usize(columns)], to_usize(columns), 20).unwrap()
}

/// Returns the launches of making a random matrix, and of its product with 20 columns, which the host reads.
fn resident(card: Card, rows: u64, columns: u64) -> Plan {
    plan(card, |device| {
        let run = Run::default();
        let matrix = PackedMatrix::random(device, rows, columns, 0, &run).unwrap();
        let pass = Pass::new(&run, Status::new(0, 1, rows));
        matrix.apply(&operand(columns), &pass, &mut |_, _| Ok(())).unwrap();
    })
}

/// Returns the launches of a pass of products over `rows` rows of `columns` codes, some of which may be missing, with 20 columns.
fn pass(card: Card, rows: u64, columns: u64, missing: bool) -> Plan {
    plan(card, |device| {
        let x = operand(columns);
        let mut product = PackedProduct::new(device, &x, true, Some([1e3, 1e5])).unwrap();
        let words = row_words(columns);
        let step = (panel_bytes(device, columns) / (4 * words)).min(crate::packed::PANEL_ROWS);
        for first in (0..rows).step_by(to_usize(step)) {
            let range = (0, step.min(rows - first));
            let packed = Tensor::empty(device, &[range.1, words]).unwrap();
            let table = Tensor::empty(device, &[range.1, 2]).unwrap();
            product.add(PackedRows { packed: &packed, range, missing }, &table).unwrap();
        }
        product.finish().unwrap();
    })
}

/// Returns the launches for one panel of the Gram matrix of `columns` columns, and the panel's number of rows.
fn pairs(card: Card, columns: u64) -> (Plan, u64) {
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

fn dense(card: Card) -> Plan {
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

/// Prints a plan, with the minimum times of each kernel.
#[allow(clippy::print_stdout, reason = "this is what the script shows")]
fn print(title: &str, (card, rates): (Card, Rates), plan: &Plan) {
    println!("{title}");
    for (name, launches) in plan {
        let Launches { count, blocks, waves, atomics, .. } = *launches;
        let waves = match waves {
            0 => "-".into(),
            waves => format!("{waves} waves, {:.1} % filled", 100.0 * launches.filled()),
        };
        let each = blocks as f64 / count as f64 / f64::from(card.multiprocessors);
        let [memory, arithmetic] = launches.floors(name, rates);
        println!(
            "  {name:18} {count:6}, {blocks:9} blocks, {each:8.1} a launch and multiprocessor, {waves:26}, {atomics:.2e} additions of 64 bits, \
             at least {memory:.3} ms by memory, {arithmetic:.3} by arithmetic"
        );
    }
}

#[test]
fn lengths_of_launches() {
    for (name, card, rates) in CARDS {
        let [rows, columns] = [10_000_000, 20_000];
        let print = |title: &str, plan: &Plan| print(&format!("{name}: {title}"), (card, rates), plan);
        print(
            "a random matrix of 1,000,000 x 20,000 codes, times 20 columns",
            &resident(card, rows / 10, columns),
        );
        let headline = pass(card, rows, columns, false);
        print("a pass of 10,000,000 x 20,000 codes times 20 columns", &headline);
        print("the same with missing codes", &pass(card, rows, columns, true));
        let (pairs, panel) = pairs(card, columns);
        print(&format!("pairs of {columns} columns, {panel} rows"), &pairs);
        let dense = dense(card);
        print("products, Gram products, distances and Gaussians of f32", &dense);
        let (apply, adjoint) = (headline["packed_apply"], headline["packed_adjoint"]);
        for launches in [apply, adjoint] {
            assert!(launches.filled() >= 0.97, "{name}: {headline:?}");
        }
        if card.multiprocessors < 132 {
            continue;
        }
        // These are a tenth of the launches and additions that the cuts for small GPUs would take.
        assert!(apply.count + adjoint.count <= 40, "{name}: {headline:?}");
        assert!(adjoint.atomics <= 200_000_000, "{name}: {headline:?}");
        let of_all = |of_panel: u64| of_panel as f64 * rows as f64 / panel as f64;
        let launched: u64 = pairs.values().map(|launches| launches.count).sum();
        assert!(of_all(launched) <= 47_000.0, "{name}: {pairs:?}");
        let atomics = pairs["packed_adjoint"].atomics;
        assert!(of_all(atomics) <= 1e10, "{name}: {pairs:?}");
        let products = dense["matmul"];
        assert!(products.waves >= 2 * products.count && products.waves > 0, "{name}: {dense:?}");
    }
}

/// A launch in f64 has as many terms fewer as f64 is slower.
#[test]
fn launches_in_f64_are_shorter() {
    let desktop = Card { capability: (8, 9), has_watchdog: true, ..H100 };
    for (card, cost) in [(H100, 2), (T4, 32), (desktop, 64)] {
        let launched = plan(card, |device| {
            let x = Tensor::<f64>::empty(device, &[16_384, 16_384]).unwrap();
            gram_lower(&x).unwrap();
            let x = Tensor::<f64>::empty(device, &[2048, 100_000]).unwrap();
            pairwise(&x, None, Metric::Euclidean, &Options::default(), &Run::default()).unwrap();
            let x = Tensor::<f64>::empty(device, &[50, 1104, 1104]).unwrap();
            gaussian::<f64, f64>(&x, 3.0, &GaussianOptions::default()).unwrap();
        });
        // A term is two operations.
        let most = 2 * card.limits().work / cost;
        for name in ["matmul_f64", "distance", "correlate"] {
            assert!(launched[name].longest <= most, "{card:?} {name}: {launched:?}");
        }
        assert!(launched["matmul_f64"].longest > most / 2, "{card:?}: {launched:?}");
    }
}
