//! The memory plans of jobs.

use std::iter;

use teatime::{
    Budget, Device, Error, Result, Run,
    linalg::{BlockSum, Stats, Stop},
    packed::{Gram, PANEL_ROWS, PackedProduct, panel_bytes},
};

use super::{
    counts::CallCounts,
    options::PcaOptions,
    panel::Factors,
    reader::{Reader, Reading},
    residency::Residency,
    scaler::VariantScale,
};

/// Bytes that a result takes beside a pass.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Need {
    pub(super) host: u64,
    pub(super) device: u64,
    /// Blocks of f32 that are made of those that the device holds.
    pub(super) blocks: u64,
}

impl Need {
    /// Both.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            host: self.host.saturating_add(other.host),
            device: self.device.saturating_add(other.device),
            blocks: self.blocks + other.blocks,
        }
    }

    /// The eigenvectors of the Gram matrix of the samples, besides the matrix: of that a copy, the eigenvectors, and 24 bytes of
    /// workspace for each.
    pub(super) fn eigenvectors(reader: &Reader) -> Self {
        let n = reader.samples();
        Self { host: n.saturating_mul(n).saturating_mul(40), ..Self::default() }
    }

    /// Passes of products with so many columns.
    fn products(reader: &Reader, columns: u64) -> Self {
        let (variants, n) = (reader.variants(), reader.samples());
        let packed = reader.form.is_packed();
        let device = if packed {
            PackedProduct::device_bytes(&reader.device, variants.min(PANEL_ROWS), n, columns)
        } else {
            (reader.plan.block_rows().min(variants) + n).saturating_mul(4 * columns)
        };
        let factors = variants.saturating_mul(size_of::<Factors>() as u64);
        Self { host: factors, device, blocks: u64::from(!packed) }
    }

    /// The least that the randomized method takes.
    pub(super) fn randomized(reader: &Reader, options: &PcaOptions) -> Self {
        let (n, columns) = (reader.samples(), columns(reader.samples(), options));
        let device = if reader.form.is_packed() { 0 } else { BlockSum::device_bytes(columns, n) };
        Self::products(reader, columns).and(Self { host: least_basis(n, options), device, blocks: 0 })
    }

    /// Loadings: a product with the components.
    pub(super) fn loadings(reader: &Reader, components: u64) -> Self {
        let host = 8 * components.saturating_mul(2 * reader.plan.block_rows() + reader.samples());
        Self::products(reader, components).and(Self { host, ..Self::default() })
    }
}

/// What a job has use for beyond what it needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wishes {
    /// Bytes of the host for the basis of the randomized method.
    pub(super) basis: u64,
    /// Whether there will be passes after the first.
    pub(super) again: bool,
    /// Whether Gram matrices are added up, which take longer panels.
    pub(super) gram: bool,
}

/// What there is, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    host: u64,
    device: u64,
    /// Whether the caller gave these two.
    given: [bool; 2],
    /// Whether the device's memory is the host's.
    pub(super) shared: bool,
    threads: u64,
    /// The most bytes of rows that are added at once.
    longest_step: u64,
}

impl Memory {
    /// # Errors
    /// What starting threads reports.
    pub(super) fn new(device: &Device, run: &Run) -> Result<Self> {
        Ok(Self {
            host: run.memory.host_bytes(),
            device: run.memory.device_bytes(device.info()),
            given: [run.memory.host.is_some(), run.memory.device.is_some()],
            shared: device.shares_host_memory(),
            threads: device.pool()?.current_num_threads() as u64,
            longest_step: 128 << 20,
        })
    }

    /// The reader with its steps: long ones where the device has a memory of its own, as far as they take less than a hundredth of both budgets.
    pub(super) fn in_steps(&self, reader: Reader) -> Reader {
        let most = if self.shared { 0 } else { (self.device / 128).min(self.longest_step) };
        let fits = |bytes| scaling_bytes(&reader, bytes) <= self.host / 128;
        let step_bytes = longest(&reader, most, fits);
        Reader { step_bytes, ..reader }
    }

    /// Plans with long steps, and where these do not fit once more with short ones, whose error names the least that would do.
    ///
    /// # Errors
    /// `plan` says which.
    pub(super) fn plan<T>(self, mut plan: impl FnMut(Self) -> Result<T>) -> Result<T> {
        match plan(self) {
            Err(Error::Budget { .. }) => plan(Self { longest_step: 0, ..self }),
            result => result,
        }
    }

    /// The budget, with defaults in place.
    pub(super) fn budget(&self) -> Budget {
        Budget::default().host(self.host).device((!self.shared).then_some(self.device))
    }

    /// What a pass takes of the host and of the device, with what results need.
    fn total(&self, reader: &Reader, need: Need) -> [u64; 2] {
        let host = stream_bytes(reader).saturating_add(need.host);
        let device = block_bytes(reader, need.blocks).saturating_add(need.device);
        if self.shared { [host.saturating_add(device), 0] } else { [host, device] }
    }

    /// Whether it is there.
    pub(super) fn fits(&self, reader: &Reader, need: Need) -> bool {
        let [host, device] = self.total(reader, need);
        host <= self.host && device <= self.device
    }

    /// Whether the host's budget is as large as the genotypes that a device would hold.
    pub(super) fn holds(&self, reader: &Reader) -> bool {
        kept_bytes(reader) <= self.host
    }

    /// What genotypes take where they stay.
    pub(super) fn kept(&self, reader: &Reader, residency: Residency) -> Need {
        let kept = kept_bytes(reader);
        match residency {
            Residency::Store => Need::default(),
            Residency::Device => Need { device: kept, ..Need::default() },
            Residency::Host => Need { host: kept, ..Need::default() },
        }
    }

    /// Bytes for the basis of the randomized method beside genotypes that stay where they do.
    pub(super) fn basis(&self, reader: &Reader, residency: Residency, options: &PcaOptions) -> u64 {
        let need = Need::randomized(reader, options).and(self.kept(reader, residency));
        let left = self.host.saturating_sub(self.total(reader, need)[0]);
        least_basis(reader.samples(), options) + left.min(whole_basis(reader.samples(), options))
    }

    /// What the work may take of the budget.
    ///
    /// # Errors
    /// [`Error::Budget`] with the least that would do.
    pub(super) fn allow(&self, reader: &Reader, need: Need, wishes: Wishes) -> Result<Allowance> {
        let [host, device] = self.total(reader, need);
        for (what, budget, minimum, given) in [
            ("memory budget", self.host, host, self.given[0]),
            (Budget::DEVICE, self.device, device, self.given[1]),
        ] {
            if minimum > budget {
                return Err(Error::Budget { what, budget, minimum, given });
            }
        }
        let mut left = self.host - host;
        let mut take = |wanted: u64| {
            let taken = wanted.min(left);
            left -= taken;
            taken
        };
        take(wishes.basis);
        let ahead = take(reader.plan.ahead(self.threads));
        let free = self.device - device;
        let (residency, reason) = if wishes.again {
            self.residency(reader, left, free)
        } else {
            (Residency::Store, "one pass: nothing is kept".into())
        };
        // Later passes over the host's panels have two at a time on the device, and two slots on the host.
        let at_once = Residency::HOST_BYTES.min(free / 2);
        let kept = kept_bytes(reader);
        let left = match residency {
            Residency::Host => left.saturating_sub(kept + 2 * at_once),
            Residency::Device if self.shared => left.saturating_sub(kept),
            _ => left,
        };
        let free = match residency {
            _ if self.shared => left,
            Residency::Device => free.saturating_sub(kept),
            _ => free,
        };
        let short = reader.step_bytes;
        let fits = |bytes| scaling_bytes(reader, bytes) <= left;
        let panel_bytes = match residency {
            _ if wishes.gram => gram_panel_bytes(reader, [left, free], self.shared),
            Residency::Host if fits(at_once) => at_once,
            Residency::Host => Residency::LEAST_BYTES,
            // What fills a GPU, in few launches.
            Residency::Device => {
                let most = if self.shared { u64::MAX } else { self.device / 16 };
                longest(reader, panel_bytes(&reader.device, reader.samples()).min(most), fits)
            }
            Residency::Store => reader.step_bytes,
        };
        let scaling = if panel_bytes > short { scaling_bytes(reader, panel_bytes) } else { 0 };
        let taken = match residency {
            _ if wishes.gram && panel_bytes > short => longer_panels(reader, panel_bytes),
            Residency::Host => 2 * at_once,
            _ => 0,
        };
        let room =
            if self.shared { [0; 2] } else { [left.saturating_sub(scaling), free.saturating_sub(taken)] };
        let upload_rows = reader.upload_rows(panel_bytes, room);
        let prefetch = reader.plan.largest_need_of(upload_rows).saturating_add(ahead);
        let reading = Reading { panel_bytes, prefetch, upload_rows };
        Ok(Allowance { residency, reason, reading, host_rows: reader.panel_rows(at_once) })
    }

    /// Where genotypes stay between passes, with so much left of both budgets, and why.
    fn residency(&self, reader: &Reader, host: u64, device: u64) -> (Residency, String) {
        let rows = reader.variants();
        let kept = kept_bytes(reader);
        let packed = reader.form.is_packed();
        let what = format!("{} of {}", mib(kept), if packed { "packed genotypes" } else { "dosages" });
        let [left, left_on_device] = [host, device].map(mib);
        if self.shared {
            return if kept <= host {
                (Residency::Device, format!("{what} fit what is left of the memory budget, {left}"))
            } else {
                (Residency::Store, format!("{what} do not fit what is left of the memory budget, {left}"))
            };
        }
        if kept <= device {
            let why = format!("{what} fit what is left of the device memory budget, {left_on_device}");
            return (Residency::Device, why);
        }
        // At least a block a panel; two panels are on the device, and two slots on the host.
        let block = reader.panel_rows(0).min(rows).saturating_mul(reader.held_row_bytes());
        let slots = 2 * Residency::HOST_BYTES.max(block).min(kept);
        if packed && 2 * block <= device && kept.saturating_add(slots) <= host {
            let why = format!("{what} do not fit what is left of the device memory budget, {left_on_device}");
            return (Residency::Host, why);
        }
        let why =
            format!("{what} fit neither budget, of which {left} and {left_on_device} of the device are left");
        (Residency::Store, why)
    }
}

/// Bytes of the genotypes that stay between passes, with each variant's mean and scale.
fn kept_bytes(reader: &Reader) -> u64 {
    reader.variants().saturating_mul(reader.held_row_bytes() + size_of::<Factors>() as u64)
}

/// A size in words.
fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Bytes on the host that any pass needs: the selection, slots, the chunks of one block, the counts of all variants and the
/// scales of panels.
pub(super) fn stream_bytes(reader: &Reader) -> u64 {
    let plan = &reader.plan;
    let counts = reader.variants().saturating_mul(CallCounts::bytes_of(reader.form.is_packed()));
    let chunks = plan.largest_need().saturating_add(plan.selection_bytes());
    let scaling = scaling_bytes(reader, reader.step_bytes);
    (2 * plan.block_bytes()).saturating_add(chunks).saturating_add(counts).saturating_add(scaling)
}

/// Bytes of the sums and scales of panels of at most so many bytes: one is filled while the other is used.
fn scaling_bytes(reader: &Reader, panel_bytes: u64) -> u64 {
    let rows = reader.panel_rows(panel_bytes).min(reader.variants());
    let used = (size_of::<VariantScale>() + size_of::<Factors>()) as u64 + Gram::HOST_ROW_BYTES;
    rows * (2 * size_of::<Stats>() as u64 + used)
}

/// Bytes of the device that panels of so many bytes, whose Gram matrices are added up, take beyond short ones.
fn longer_panels(reader: &Reader, bytes: u64) -> u64 {
    let (device, variants) = (&reader.device, reader.variants());
    let beside = |bytes| Gram::device_bytes(device, reader.samples(), reader.panel_rows(bytes).min(variants));
    (2 * bytes).saturating_add(beside(bytes).saturating_sub(beside(reader.step_bytes)))
}

/// The bytes of a panel: so many, or half as many until that fits, and those of a step at least.
fn longest(reader: &Reader, bytes: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let halves = iter::successors(Some(bytes), |bytes| Some(bytes / 2));
    halves
        .take_while(|&bytes| bytes > reader.step_bytes)
        .find(|&bytes| fits(bytes))
        .unwrap_or(reader.step_bytes)
}

/// Bytes of panels whose Gram matrices are added up, where so much is left of the host and of the device: longer ones than
/// any pass needs where they fit.
fn gram_panel_bytes(reader: &Reader, [host, device]: [u64; 2], shared: bool) -> u64 {
    longest(reader, Gram::panel_bytes(&reader.device), |bytes| {
        let (scaling, more) = (scaling_bytes(reader, bytes), longer_panels(reader, bytes));
        if shared { scaling.saturating_add(more) <= host } else { scaling <= host && more <= device }
    })
}

/// Bytes on the device that any pass needs: two blocks as they are uploaded and as they are held, so many blocks of
/// f32, and as much again of freed buffers, up to what the device keeps of them in the host's memory.
pub(super) fn block_bytes(reader: &Reader, of_f32: u64) -> u64 {
    let (variants, n, plan) = (reader.variants(), reader.samples(), &reader.plan);
    let rows = plan.block_rows().min(variants);
    let held = reader.panel_rows(reader.step_bytes).min(variants);
    let held = held.saturating_mul(reader.held_row_bytes());
    let blocks = 2 * (plan.block_bytes() + held) + 4 * of_f32 * rows * n;
    blocks + blocks.min(reader.device.kept_host_bytes())
}

/// Shares of the budget.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    /// Where genotypes stay between passes, and why.
    pub(super) residency: Residency,
    pub(super) reason: String,
    /// How the pass reads.
    pub(super) reading: Reading,
    /// Rows of the host's panels that are on the device at a time.
    pub(super) host_rows: u64,
}

/// Columns of the randomized method's block.
pub(super) fn columns(samples: u64, options: &PcaOptions) -> u64 {
    (options.svd.block(options.components) as u64).min(samples)
}

/// Most passes of the randomized method.
pub(super) fn passes(options: &PcaOptions) -> u64 {
    match options.svd.stop {
        Stop::PowerIterations(q) => u64::from(q) + 2,
        _ => options.svd.max_passes.into(),
    }
}

/// Bytes of the smallest basis of the randomized method: basis and image of a restart, and blocks beside them.
pub(super) fn least_basis(samples: u64, options: &PcaOptions) -> u64 {
    (2 * options.components as u64 + 5 * columns(samples, options)).saturating_mul(16 * samples)
}

/// Bytes of the randomized method's basis without a restart: basis and image of every pass.
pub(super) fn whole_basis(samples: u64, options: &PcaOptions) -> u64 {
    passes(options).saturating_mul(columns(samples, options)).min(samples).saturating_mul(16 * samples)
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use teatime::{ChunkedArray, DecodedChunk, FetchedChunk, StoredType};

    use super::*;
    use crate::Genotypes;

    /// An array of many variants that nobody reads.
    #[derive(Debug)]
    pub(crate) struct Long(pub(crate) [u64; 2]);

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

    pub(crate) fn reader(array: impl ChunkedArray + 'static) -> Reader {
        static DEVICE: std::sync::OnceLock<Device> = std::sync::OnceLock::new();
        let genotypes = Genotypes::new(vec![Arc::new(array)]).unwrap();
        Reader::new(&genotypes, DEVICE.get_or_init(Device::cpu), true).unwrap()
    }

    #[test]
    fn many_variants_of_few_samples() {
        let reader = reader(Long([10_000_000, 50]));
        let rows = reader.panel_rows(panel_bytes(&reader.device, 50));
        assert!(rows <= 1 << 20 && rows.is_multiple_of(reader.plan.block_rows()), "{rows}");
        let of_panels = |bytes| (2 * 32 + 40 + 8 + 112) * reader.panel_rows(bytes);
        assert_eq!(scaling_bytes(&reader, u64::MAX), of_panels(u64::MAX));
        // What was counted of each variant, beside those.
        let least = 120_000_000 + of_panels(reader.step_bytes);
        assert!((least..least + 30_000_000).contains(&stream_bytes(&reader)), "{}", stream_bytes(&reader));
        // The genotypes and their means and scales: 16 and 8 bytes a variant.
        let mut memory = Memory::new(&reader.device, &Run::default()).unwrap();
        memory.shared = false;
        let residency = |host, device| memory.residency(&reader, host, device).0;
        assert_eq!(residency(0, 240_000_000), Residency::Device);
        assert_eq!(residency(1 << 40, 239_999_999), Residency::Host);
        assert_eq!(residency(239_999_999, 239_999_999), Residency::Store);
        // Panels are shorter where the host has no room for the scaling of large ones.
        let (short, long) = (reader.step_bytes, Gram::panel_bytes(&reader.device));
        let most = scaling_bytes(&reader, long);
        let panels = |host, device, shared| gram_panel_bytes(&reader, [host, device], shared);
        assert_eq!(panels(most - 1, u64::MAX, false), long / 2);
        assert_eq!(panels(most, u64::MAX, false), long);
        assert_eq!(panels(most, most, true), long / 2);
        assert_eq!(panels(0, u64::MAX, false), short);
        // Or the device no room for them, and for their limbs and rows in order.
        let beside = |bytes| Gram::device_bytes(&reader.device, 50, reader.panel_rows(bytes));
        let least = 2 * long + beside(long) - beside(short);
        assert!(beside(long) > beside(short));
        assert_eq!([least - 1, least].map(|device| panels(most, device, false)), [long / 2, long]);
        assert_eq!([least - 1, least].map(|device| panels(most + device, 0, true)), [long / 2, long]);
        // Steps are less than a hundredth of a card's memory.
        let [least, step] = [Residency::LEAST_BYTES, 128 << 20];
        for (host, device, bytes) in
            [(1 << 40, 80 << 30, step), (1 << 40, 1 << 30, 8 << 20), (1 << 20, 80 << 30, least)]
        {
            (memory.host, memory.device) = (host, device);
            let reader = memory.in_steps(self::reader(Long([10_000_000, 50])));
            assert!(
                (bytes / 2..=bytes).contains(&reader.step_bytes),
                "{host} {device}: {}",
                reader.step_bytes
            );
        }
    }
}
