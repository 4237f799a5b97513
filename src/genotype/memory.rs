//! The memory plans of jobs.

use super::{
    intake::Form,
    options::{Method, PcaOptions},
    panel::Factors,
    residency::Residency,
    scaler::Standard,
    standardized::Standardized,
};
use crate::{
    Budget, Device, Error, Result, Run,
    linalg::{LinearMap, Stop, gram::IN_FLIGHT},
    packed::{gram::Gram, product::Product},
    run::DEVICE_BUDGET,
};

/// What the work needs at least, and what it may have, in bytes.
pub(super) struct Memory {
    host: u64,
    device: u64,
    /// Whether the caller gave these two.
    given: [bool; 2],
    /// Slots, and the chunks that one block needs.
    stream: u64,
    /// Blocks on the device.
    blocks: u64,
    /// The host's part of each method.
    exact: u64,
    randomized: u64,
    /// What the randomized method has use for beyond that.
    basis: u64,
    /// The device's part of each method.
    exact_device: u64,
    randomized_device: u64,
    /// Whether the device's memory is the host's.
    pub(super) shared: bool,
    threads: u64,
}

impl Memory {
    /// What the device may give: what the caller says, or three quarters of what it has.
    pub(super) fn device_budget(device: &Device, run: &Run) -> u64 {
        let reported = || device.info().memory.map_or(2 << 30, |bytes| bytes / 4 * 3);
        run.memory.device.unwrap_or_else(reported)
    }

    pub(super) fn new(
        map: &Standardized<'_>,
        device: &Device,
        options: &PcaOptions,
        run: &Run,
    ) -> Result<Self> {
        let [variants, n] = map.shape();
        let rows = map.plan().block_rows().min(variants);
        let panel = map.panel_rows(Residency::Store.panel_bytes()).min(variants);
        let columns = columns(n, options);
        let shared = device.shares_host_memory();
        let thin = match map.form() {
            Form::Packed(_) => Product::device_bytes(device, variants, n, columns),
            _ => (rows + 3 * n).saturating_mul(4 * columns),
        };
        // Packed rows are multiplied as they are.
        let packed = map.form().is_packed();
        let blocks = block_bytes(map, if packed { 0 } else { 1 });
        let triangles = n.saturating_mul(n).saturating_mul(4 * (1 + IN_FLIGHT as u64));
        Ok(Self {
            host: run.memory.host_bytes(),
            device: Self::device_budget(device, run),
            given: [run.memory.host.is_some(), run.memory.device.is_some()],
            stream: stream_bytes(map),
            blocks,
            // The sum, its copy, its eigenvectors, and 24 bytes of workspace for each.
            exact: n.saturating_mul(n).saturating_mul(48),
            exact_device: if packed { Gram::device_bytes(device, n, panel) } else { triangles },
            // The least that `randomized_svd` takes: basis and image of a restart, and blocks beside them.
            randomized: (2 * options.components as u64 + 5 * columns).saturating_mul(16 * n),
            // Without a restart: basis and image of every pass.
            basis: passes(options).saturating_mul(columns).min(n).saturating_mul(16 * n),
            randomized_device: thin,
            shared,
            threads: device.pool()?.current_num_threads() as u64,
        })
    }

    /// The budget, with defaults in place.
    pub(super) fn budget(&self) -> Budget {
        Budget { host: Some(self.host), device: (!self.shared).then_some(self.device) }
    }

    /// What a method needs at least of the host and of the device.
    fn need(&self, method: Method) -> (u64, u64) {
        let (host, device) = match method {
            Method::Exact => (self.exact, self.exact_device),
            _ => (self.randomized, self.randomized_device),
        };
        let (host, device) = (self.stream.saturating_add(host), self.blocks.saturating_add(device));
        if self.shared { (host.saturating_add(device), 0) } else { (host, device) }
    }

    /// Whether what a method needs at least is there.
    pub(super) fn fits(&self, method: Method) -> bool {
        let (host, device) = self.need(method);
        host <= self.host && device <= self.device
    }

    /// Whether the host's budget is as large as the genotypes that a device would hold.
    pub(super) fn holds(&self, map: &Standardized<'_>) -> bool {
        kept_bytes(map) <= self.host
    }

    /// What the work may take of the budget.
    pub(super) fn allow(&self, map: &Standardized<'_>, method: Method) -> Result<Allowance> {
        let (host, device) = self.need(method);
        if host > self.host {
            let (what, given) = ("memory budget", self.given[0]);
            return Err(Error::Budget { what, budget: self.host, minimum: host, given });
        }
        if device > self.device {
            let (what, given) = (DEVICE_BUDGET, self.given[1]);
            return Err(Error::Budget { what, budget: self.device, minimum: device, given });
        }
        let mut free = self.host - host;
        let mut take = |wanted: u64| {
            let taken = wanted.min(free);
            free -= taken;
            taken
        };
        let randomized = method == Method::Randomized;
        let basis = self.randomized + if randomized { take(self.basis) } else { 0 };
        let ahead = take(map.plan().ahead(self.threads));
        let (residency, reason) = match method {
            Method::Randomized => self.residency(map, free, self.device.saturating_sub(device)),
            _ => (Residency::Store, "one pass: nothing is kept".into()),
        };
        // Two panels are on the device beside what any pass needs.
        let host_panel = Residency::Host.panel_bytes().min(self.device.saturating_sub(device) / 2);
        let left = free;
        let free = if self.shared { free } else { self.device.saturating_sub(device) };
        let panel_bytes = match (residency, method) {
            (Residency::Host, _) => host_panel,
            (_, Method::Exact) => gram_panel_bytes(map, [left, free], self.shared),
            _ => residency.panel_bytes(),
        };
        let is_long = method == Method::Exact && panel_bytes > Residency::Store.panel_bytes();
        let [scaling, longer] =
            if is_long { [scaling_bytes(map, panel_bytes), longer_panels(map)] } else { [0; 2] };
        let kept = kept_bytes(map);
        let room = match residency {
            _ if self.shared => [0; 2],
            Residency::Device => [left, free.saturating_sub(kept)],
            Residency::Host => {
                [left.saturating_sub(kept + 2 * panel_bytes), free.saturating_sub(2 * panel_bytes)]
            }
            Residency::Store => [left.saturating_sub(scaling), free.saturating_sub(longer)],
        };
        let upload_rows = map.upload_rows(panel_bytes, room);
        let prefetch = map.plan().largest_need_of(upload_rows).saturating_add(ahead);
        Ok(Allowance { prefetch, residency, panel_bytes, reason, basis, upload_rows })
    }

    /// Where genotypes stay between passes, with so much left of both budgets, and why.
    fn residency(&self, map: &Standardized<'_>, host: u64, device: u64) -> (Residency, String) {
        let form = map.form();
        let rows = map.plan().rows();
        let kept = kept_bytes(map);
        let factors = rows.saturating_mul(size_of::<Factors>() as u64);
        let packed = form.is_packed();
        let what = format!("{} of {}", mib(kept), if packed { "packed genotypes" } else { "dosages" });
        let [left, left_on_device] = [host, device].map(mib);
        if self.shared {
            return if kept <= host {
                (Residency::Device, format!("{what} fit what is left of the memory budget, {left}"))
            } else {
                (Residency::Store, format!("{what} do not fit what is left of the memory budget, {left}"))
            };
        }
        if kept <= device && factors <= host {
            let why = format!("{what} fit what is left of the device memory budget, {left_on_device}");
            return (Residency::Device, why);
        }
        // At least a block a panel; two panels are on the device, and two slots on the host.
        let block = map.panel_rows(0).min(rows).saturating_mul(map.held_row_bytes());
        let slots = 2 * Residency::Host.panel_bytes().max(block).min(kept);
        if packed && 2 * block <= device && kept.saturating_add(slots) <= host {
            let why = format!("{what} do not fit what is left of the device memory budget, {left_on_device}");
            return (Residency::Host, why);
        }
        let why =
            format!("{what} fit neither budget, of which {left} and {left_on_device} of the device are left");
        (Residency::Store, why)
    }
}

/// Bytes of the genotypes that stay between passes, with each variant's mean and scale on either side; the host's are there
/// wherever the genotypes are.
fn kept_bytes(map: &Standardized<'_>) -> u64 {
    map.plan().rows().saturating_mul(map.held_row_bytes() + 2 * size_of::<Factors>() as u64)
}

/// A size in words.
fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Bytes on the host that any pass needs: the selection, slots, the chunks of one block, and the scaling of panels.
pub(super) fn stream_bytes(map: &Standardized<'_>) -> u64 {
    let scaling = scaling_bytes(map, Residency::Store.panel_bytes());
    let plan = map.plan();
    let chunks = plan.largest_need().saturating_add(plan.selection_bytes());
    (2 * plan.block_bytes()).saturating_add(chunks).saturating_add(scaling)
}

/// Bytes of the scaling of two panels of at most so many bytes: one is filled while the other is used.
fn scaling_bytes(map: &Standardized<'_>, panel_bytes: u64) -> u64 {
    let rows = map.panel_rows(panel_bytes).min(map.plan().rows());
    rows * (2 * (size_of::<Standard>() + size_of::<Factors>()) as u64 + Gram::HOST_ROW_BYTES)
}

/// Bytes of the device that longer panels, whose Gram matrices are added up, take beyond short ones.
fn longer_panels(map: &Standardized<'_>) -> u64 {
    let (short, long) = (Residency::Store.panel_bytes(), Gram::panel_bytes(map.device()));
    let [variants, n] = map.shape();
    let beside = |bytes| Gram::device_bytes(map.device(), n, map.panel_rows(bytes).min(variants));
    (2 * long).saturating_add(beside(long).saturating_sub(beside(short)))
}

/// Bytes of panels whose Gram matrices are added up, where so much is left of the host and of the device: longer ones than
/// any pass needs where they fit.
fn gram_panel_bytes(map: &Standardized<'_>, [host, device]: [u64; 2], shared: bool) -> u64 {
    let (short, long) = (Residency::Store.panel_bytes(), Gram::panel_bytes(map.device()));
    let (scaling, more) = (scaling_bytes(map, long), longer_panels(map));
    let fits = if shared { scaling.saturating_add(more) <= host } else { scaling <= host && more <= device };
    if fits { long } else { short }
}

/// Bytes on the device that any pass needs: two blocks as they are uploaded and as they are held, `standardized` blocks of
/// f32, and as much again of freed buffers, up to what the device keeps of them in the host's memory.
pub(super) fn block_bytes(map: &Standardized<'_>, standardized: u64) -> u64 {
    let [variants, n] = map.shape();
    let rows = map.plan().block_rows().min(variants);
    let held =
        map.panel_rows(Residency::Store.panel_bytes()).min(variants).saturating_mul(map.held_row_bytes());
    let blocks = 2 * (map.plan().block_bytes() + held) + 4 * standardized * rows * n;
    blocks + blocks.min(map.device().kept_host_bytes())
}

/// Shares of the budget of a job of one pass.
pub(super) struct OnePass {
    /// The budget, with defaults in place.
    pub(super) budget: Budget,
    /// Bytes of decoded chunks to hold at most.
    pub(super) prefetch: u64,
    /// Bytes of a panel at most.
    pub(super) panel_bytes: u64,
    /// Rows that are uploaded at once.
    pub(super) upload_rows: u64,
}

impl OnePass {
    /// Of a job that needs so many bytes of the host and of the device.
    ///
    /// # Errors
    /// [`Error::Budget`] with the least that would do.
    pub(super) fn new(map: &Standardized<'_>, run: &Run, host: u64, on_device: u64) -> Result<Self> {
        let device = map.device();
        let (shared, device_budget) = (device.shares_host_memory(), Memory::device_budget(device, run));
        let host = if shared { host.saturating_add(on_device) } else { host };
        if !shared && on_device > device_budget {
            let (what, given) = (DEVICE_BUDGET, run.memory.device.is_some());
            return Err(Error::Budget { what, budget: device_budget, minimum: on_device, given });
        }
        let budget = run.memory.host_bytes();
        let planned = Budget { host: Some(budget), device: (!shared).then_some(device_budget) };
        if host > budget {
            let (what, given) = ("memory budget", run.memory.host.is_some());
            return Err(Error::Budget { what, budget, minimum: host, given });
        }
        let left = budget - host;
        let ahead = map.plan().ahead(device.pool()?.current_num_threads() as u64).min(left);
        let left = left - ahead;
        let [left, free] = [left, if shared { left } else { device_budget - on_device }];
        let panel_bytes = gram_panel_bytes(map, [left, free], shared);
        let is_long = panel_bytes > Residency::Store.panel_bytes();
        let [scaling, longer] =
            if is_long { [scaling_bytes(map, panel_bytes), longer_panels(map)] } else { [0; 2] };
        let room = if shared { [0; 2] } else { [left.saturating_sub(scaling), free.saturating_sub(longer)] };
        let upload_rows = map.upload_rows(panel_bytes, room);
        let prefetch = map.plan().largest_need_of(upload_rows).saturating_add(ahead);
        Ok(Self { budget: planned, prefetch, panel_bytes, upload_rows })
    }
}

/// Shares of the budget.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    /// Bytes of decoded chunks to hold at most.
    pub(super) prefetch: u64,
    /// Where genotypes stay between passes, and why.
    pub(super) residency: Residency,
    pub(super) reason: String,
    /// Bytes of a panel at most.
    pub(super) panel_bytes: u64,
    /// Bytes for the basis of the randomized method.
    pub(super) basis: u64,
    /// Rows that are uploaded at once.
    pub(super) upload_rows: u64,
}

/// Columns of the randomized method's block.
pub(super) fn columns(samples: u64, options: &PcaOptions) -> u64 {
    (options.components as u64).saturating_add(options.svd.oversamples as u64).min(samples)
}

/// Most passes of the randomized method.
pub(super) fn passes(options: &PcaOptions) -> u64 {
    match options.svd.stop {
        Stop::PowerIterations(q) => u64::from(q) + 2,
        Stop::Tolerance(_) => options.svd.max_passes.into(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        ChunkedArray, DecodedChunk, FetchedChunk, Status, StoredType,
        genotype::{
            Genotypes, VariantFilter,
            scaler::{Rule, Scaler},
        },
        linalg::Pass,
        store::MemoryArray,
    };

    /// An array of many variants that nobody reads.
    #[derive(Debug)]
    pub(in crate::genotype) struct Long(pub(in crate::genotype) [u64; 2]);

    impl ChunkedArray for Long {
        fn name(&self) -> &str {
            "long"
        }
        fn shape(&self) -> &[u64] {
            &self.0
        }
        fn chunk_shape(&self) -> &[u64] {
            &[100_000, 50]
        }
        fn dtype(&self) -> StoredType {
            StoredType::I8
        }
        fn decode(&self, index: &[u64], _: FetchedChunk) -> Result<DecodedChunk> {
            Err(Error::chunk("long", index, "a plan reads nothing"))
        }
    }

    pub(in crate::genotype) fn map(array: impl ChunkedArray + 'static) -> Standardized<'static> {
        static DEVICE: std::sync::OnceLock<Device> = std::sync::OnceLock::new();
        let genotypes = Genotypes::new(vec![Arc::new(array)]).unwrap();
        let (samples, filter) = (genotypes.samples(), VariantFilter::default());
        let rule = Rule { samples, ploidy: 2, exact: true, scaler: Scaler::Patterson, filter };
        Standardized::new(&genotypes, DEVICE.get_or_init(Device::cpu), rule).unwrap()
    }

    #[test]
    fn many_variants_of_few_samples() {
        let map = map(Long([10_000_000, 50]));
        let rows = map.panel_rows(Residency::Device.panel_bytes());
        assert!(rows <= 1 << 20 && rows.is_multiple_of(map.plan().block_rows()), "{rows}");
        let of_panels = |bytes| (2 * 48 + 112) * map.panel_rows(bytes);
        assert_eq!(scaling_bytes(&map, u64::MAX), of_panels(u64::MAX));
        assert!(stream_bytes(&map) >= of_panels(Residency::Store.panel_bytes()));
        // The genotypes fit the device; their means and scales have to fit the host.
        let run = Run::default();
        let mut memory = Memory::new(&map, map.device(), &PcaOptions::default(), &run).unwrap();
        memory.shared = false;
        let residency = |host| memory.residency(&map, host, 1 << 40).0;
        assert_eq!(residency(80_000_000), Residency::Device);
        assert_eq!(residency(79_999_999), Residency::Store);
        // Panels are small where the host has no room for the scaling of large ones.
        let (short, long) = (Residency::Store.panel_bytes(), Gram::panel_bytes(map.device()));
        let most = scaling_bytes(&map, long);
        let panels = |host, device, shared| gram_panel_bytes(&map, [host, device], shared);
        assert_eq!(panels(most - 1, u64::MAX, false), short);
        assert_eq!(panels(most, u64::MAX, false), long);
        assert_eq!(panels(most, most, true), short);
        // Or the device no room for them, and for their digits and rows in order.
        let beside = |bytes| Gram::device_bytes(map.device(), 50, map.panel_rows(bytes));
        let least = 2 * long + beside(long) - beside(short);
        assert!(beside(long) > beside(short));
        assert_eq!([least - 1, least].map(|device| panels(most, device, false)), [short, long]);
        assert_eq!([least - 1, least].map(|device| panels(most + device, 0, true)), [short, long]);
    }

    #[test]
    fn scalings_are_there_where_asked_for() {
        let map = map(MemoryArray::new("memory", &[0i8, 1, 2, 2, 1, 0], &[3, 2], &[3, 2]).unwrap());
        let run = Run::default();
        for scaled in [false, true] {
            map.each_panel(&Pass::new(&run, Status::new(0, 1, 3)), scaled, &mut |panel| {
                assert_eq!((panel.factors.len(), panel.factors.capacity()), (3, 3));
                assert_eq!(panel.standards.len(), if scaled { 3 } else { 0 });
                Ok(())
            })
            .unwrap();
        }
    }
}
