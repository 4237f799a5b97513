//! The planning of memory for jobs.

use std::iter;

use teatime::{
    Budget, Device, Error, Needs, Result, Run,
    linalg::{BlockSum, Stats, Stop},
    packed::{Gram, PANEL_ROWS, PackedProduct, RowFactors, panel_bytes},
};

use super::{
    counts::CallCounts,
    options::PcaOptions,
    reader::{Reader, Reading},
    residency::Residency,
    scaler::VariantScale,
};

/// Returns the memory for eigenvectors of the samples' Gram matrix, besides it: a copy, the vectors, and 24 bytes an element of workspace.
pub(super) fn eigenvectors(reader: &Reader) -> Needs {
    Needs::host(40) * reader.samples() * reader.samples()
}

/// Returns the memory for passes of products with that many columns.
pub(super) fn products(reader: &Reader, columns: u64) -> Needs {
    let (variants, n) = (reader.variants(), reader.samples());
    let factors = Needs::host(size_of::<RowFactors>() as u64) * variants;
    let products = if reader.form.is_packed() {
        PackedProduct::needs(&reader.device, variants.min(PANEL_ROWS), n, columns)
    } else {
        let block = reader.plan.block_rows().min(variants);
        Needs::device(4 * columns) * (block + n) + f32_blocks(reader, 1)
    };
    factors + products
}

/// Returns the least memory that the randomized method takes.
pub(super) fn randomized(reader: &Reader, options: &PcaOptions) -> Needs {
    let (n, columns) = (reader.samples(), columns(reader.samples(), options));
    let sums = if reader.form.is_packed() { Needs::default() } else { BlockSum::needs(columns, n) };
    products(reader, columns) + sums + Needs::host(least_basis(n, options))
}

/// Returns the memory for loadings, which are a product with the components.
pub(super) fn loadings(reader: &Reader, components: u64) -> Needs {
    let rows = (2 * reader.plan.block_rows()).saturating_add(reader.samples());
    products(reader, components) + Needs::host(8 * components) * rows
}

/// Returns the memory of `count` f32 copies of a block on the device, with the freed buffers that they add to those of [`blocks`].
pub(super) fn f32_blocks(reader: &Reader, count: u64) -> Needs {
    let rows = reader.plan.block_rows().min(reader.variants());
    let f32 = Needs::device(4 * count) * rows * reader.samples();
    let freed = [block_bytes(reader), block_bytes(reader).saturating_add(f32.device)]
        .map(|bytes| Needs::of_freed(&reader.device, bytes).device);
    f32 + Needs::device(freed[1] - freed[0])
}

/// Returns the bytes of two blocks of variants, one in use and one in transfer. Each counts as uploaded and as the device holds it.
fn block_bytes(reader: &Reader) -> u64 {
    let held = reader.panel_rows(reader.step_bytes).min(reader.variants());
    let held = held.saturating_mul(reader.held_row_bytes());
    reader.plan.block_bytes().saturating_add(held).saturating_mul(2)
}

/// The uses that a job has for memory beyond what it needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wishes {
    /// Bytes on the host for the basis of the randomized method.
    pub(super) basis: u64,
    /// True if there will be passes after the first.
    pub(super) again: bool,
    /// True if Gram matrices are added up, for which longer panels are used.
    pub(super) gram: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// The budget with its defaults filled in.
    budget: Budget,
    /// True if the device shares the host's memory.
    pub(super) shared: bool,
    threads: u64,
    /// The maximum number of bytes of rows that are added at once.
    longest_step: u64,
}

impl Memory {
    pub(super) fn new(device: &Device, run: &Run) -> Result<Self> {
        Ok(Self {
            budget: run.memory.fit(device, Needs::default())?,
            shared: device.shares_host_memory(),
            threads: device.pool()?.current_num_threads() as u64,
            longest_step: Gram::panel_bytes(device),
        })
    }

    /// Sets the reader's steps. If the device has its own memory, steps are long, up to a hundredth of each budget.
    pub(super) fn in_steps(&self, reader: Reader) -> Reader {
        let (host, device) = (self.budget.host_bytes(), self.budget.device_bytes(reader.device.info()));
        let most = if self.shared { 0 } else { (device / 128).min(self.longest_step) };
        let fits = |bytes| scaling_bytes(&reader, bytes) <= host / 128;
        let step_bytes = longest(&reader, most, fits);
        Reader { step_bytes, ..reader }
    }

    /// Plans with long steps; if they do not fit, plans again with short ones, whose error names the smallest budget that would do.
    pub(super) fn plan<T>(self, mut plan: impl FnMut(Self) -> Result<T>) -> Result<T> {
        match plan(self) {
            Err(Error::Budget { .. }) => plan(Self { longest_step: 0, ..self }),
            result => result,
        }
    }

    /// Returns the budget with defaults filled in, without a budget for a device that shares the host's memory.
    pub(super) fn budget(&self) -> Budget {
        let Budget { host, device, .. } = self.budget;
        Budget::default().host(host).device(device.filter(|_| !self.shared))
    }

    fn total(reader: &Reader, needs: Needs) -> Needs {
        stream(reader) + blocks(reader) + needs
    }

    pub(super) fn fits(&self, reader: &Reader, needs: Needs) -> bool {
        self.budget.fit(&reader.device, Self::total(reader, needs)).is_ok()
    }

    /// Returns true if the host's budget is at least as large as the genotypes that a device would hold.
    pub(super) fn holds(&self, reader: &Reader) -> bool {
        self.budget.fit_host(kept_bytes(reader)).is_ok()
    }

    /// Returns the memory of genotypes where they stay. Each of `members` devices holds a part; one has a copy of another's panel, too.
    pub(super) fn kept(reader: &Reader, residency: Residency, members: u64) -> Needs {
        let kept = kept_bytes(reader);
        match residency {
            Residency::Store => Needs::default(),
            Residency::Device if members > 1 && !reader.device.shares_host_memory() => {
                let panel = reader.panel_rows(panel_bytes(&reader.device, reader.samples()));
                Needs::device((kept / members).saturating_add(2 * panel * reader.held_row_bytes()).min(kept))
            }
            Residency::Device => Needs::device(kept),
            Residency::Host => Needs::host(kept_bytes(reader)),
        }
    }

    /// Returns the bytes for the basis of the randomized method in addition to genotypes that take `kept`.
    pub(super) fn basis(&self, reader: &Reader, kept: Needs, options: &PcaOptions) -> u64 {
        let needs = randomized(reader, options) + kept;
        let rest = self.budget.fit(&reader.device, Self::total(reader, needs));
        let left = rest.map_or(0, |rest| rest.left(&reader.device).host);
        least_basis(reader.samples(), options) + left.min(whole_basis(reader.samples(), options))
    }

    /// Divides the budget between what the work needs and what else it can use.
    pub(super) fn allow(&self, reader: &Reader, needs: Needs, wishes: Wishes) -> Result<Allowance> {
        let rest = self.budget.fit(&reader.device, Self::total(reader, needs))?;
        let Needs { host: mut left, device: free } = rest.left(&reader.device);
        let mut take = |wanted: u64| {
            let taken = wanted.min(left);
            left -= taken;
            taken
        };
        take(wishes.basis);
        let ahead = take(reader.plan.ahead(self.threads));
        let (residency, reason) = if wishes.again {
            self.residency(reader, left, free)
        } else {
            (Residency::Store, "one pass: nothing is kept".into())
        };
        // Later passes over the host's panels have two panels at a time on the device, and two slots on the host.
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
            // Panels of this size fill a GPU with few launches.
            Residency::Device => {
                let most =
                    if self.shared { u64::MAX } else { self.budget.device_bytes(reader.device.info()) / 16 };
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

    /// Returns the place where genotypes stay between passes, if `host` and `device` bytes of the budgets are left, and the reason.
    fn residency(&self, reader: &Reader, host: u64, device: u64) -> (Residency, String) {
        let rows = reader.variants();
        let kept = kept_bytes(reader);
        let packed = reader.form.is_packed();
        let what = format!("{} of {}", mib(kept), if packed { "packed genotypes" } else { "dosages" });
        let (memory, free) = if self.shared { ("memory", host) } else { ("device memory", device) };
        let why = |fits| format!("{what} {fits} what is left of the {memory} budget, {}", mib(free));
        if kept <= free {
            return (Residency::Device, why("fit"));
        }
        if self.shared {
            return (Residency::Store, why("do not fit"));
        }
        // A panel has at least one block; two panels are on the device, and two slots on the host.
        let block = reader.panel_rows(0).min(rows).saturating_mul(reader.held_row_bytes());
        let slots = 2 * Residency::HOST_BYTES.max(block).min(kept);
        if packed && 2 * block <= device && kept.saturating_add(slots) <= host {
            return (Residency::Host, why("do not fit"));
        }
        let [left, left_on_device] = [host, device].map(mib);
        let why =
            format!("{what} fit neither budget, of which {left} and {left_on_device} of the device are left");
        (Residency::Store, why)
    }
}

/// Returns the bytes of the genotypes that stay between passes, with each variant's mean and scale.
fn kept_bytes(reader: &Reader) -> u64 {
    reader.variants().saturating_mul(reader.held_row_bytes() + size_of::<RowFactors>() as u64)
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Returns the host memory of any pass: the selection, slots, the chunks of one block, the counts of all variants and the scales of panels.
pub(super) fn stream(reader: &Reader) -> Needs {
    let plan = &reader.plan;
    let counts = Needs::host(CallCounts::bytes_of(reader.form.is_packed())) * reader.variants();
    let chunks = Needs::host(plan.largest_need()) + Needs::host(plan.selection_bytes());
    let scaling = Needs::host(scaling_bytes(reader, reader.step_bytes));
    Needs::host(plan.block_bytes()) * 2 + chunks + counts + scaling
}

/// Returns the bytes of the sums and scales of panels of at most `panel_bytes`: one panel is filled while another is used.
fn scaling_bytes(reader: &Reader, panel_bytes: u64) -> u64 {
    let rows = reader.panel_rows(panel_bytes).min(reader.variants());
    let used = (size_of::<VariantScale>() + size_of::<RowFactors>()) as u64 + Gram::row_needs().host;
    rows * (2 * size_of::<Stats>() as u64 + used)
}

/// Returns the additional device bytes of panels of `bytes` bytes compared with short panels, if Gram matrices are added up.
fn longer_panels(reader: &Reader, bytes: u64) -> u64 {
    let (device, variants) = (&reader.device, reader.variants());
    let rows = |bytes| reader.panel_rows(bytes).min(variants);
    let beside = |bytes| Gram::needs(device, reader.samples(), rows(bytes)).device;
    (2 * bytes).saturating_add(beside(bytes).saturating_sub(beside(reader.step_bytes)))
}

/// Returns the bytes of a panel: `bytes`, halved until it fits, but at least those of a step.
fn longest(reader: &Reader, bytes: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let halves = iter::successors(Some(bytes), |bytes| Some(bytes / 2));
    halves
        .take_while(|&bytes| bytes > reader.step_bytes)
        .find(|&bytes| fits(bytes))
        .unwrap_or(reader.step_bytes)
}

/// Returns the bytes of panels whose Gram matrices are added up: longer than others, if `host` and `device` bytes are left for them.
fn gram_panel_bytes(reader: &Reader, [host, device]: [u64; 2], shared: bool) -> u64 {
    longest(reader, Gram::panel_bytes(&reader.device), |bytes| {
        let (scaling, more) = (scaling_bytes(reader, bytes), longer_panels(reader, bytes));
        if shared { scaling.saturating_add(more) <= host } else { scaling <= host && more <= device }
    })
}

/// Returns the memory of blocks on the device in any pass, and of freed buffers: as much again, up to what the device keeps of them.
pub(super) fn blocks(reader: &Reader) -> Needs {
    let bytes = block_bytes(reader);
    Needs::device(bytes) + Needs::of_freed(&reader.device, bytes)
}

/// The shares of the budget, and what they allow.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    /// The place where genotypes stay between passes, and why.
    pub(super) residency: Residency,
    pub(super) reason: String,
    pub(super) reading: Reading,
    /// The number of rows of the host's panels that are on the device at a time.
    pub(super) host_rows: u64,
}

/// Returns the number of columns of the randomized method's block.
pub(super) fn columns(samples: u64, options: &PcaOptions) -> u64 {
    (options.svd.block(options.components) as u64).min(samples)
}

/// Returns the maximum number of passes of the randomized method.
pub(super) fn passes(options: &PcaOptions) -> u64 {
    match options.svd.stop {
        Stop::PowerIterations(q) => u64::from(q) + 2,
        _ => options.svd.max_passes.into(),
    }
}

/// Returns the bytes of the smallest basis of the randomized method: basis and image of a restart, and the blocks in addition.
pub(super) fn least_basis(samples: u64, options: &PcaOptions) -> u64 {
    (2 * options.components as u64 + 5 * columns(samples, options)).saturating_mul(16 * samples)
}

/// Returns the bytes of the randomized method's basis without a restart: basis and image of every pass.
pub(super) fn whole_basis(samples: u64, options: &PcaOptions) -> u64 {
    passes(options).saturating_mul(columns(samples, options)).min(samples).saturating_mul(16 * samples)
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use teatime::{ArrayFacts, ChunkedArray, DecodedChunk, FetchedChunk, Shards, openings::Hooked};

    use super::*;
    use crate::Genotypes;

    /// Returns an array of many variants that is never read.
    pub(crate) fn long(shape: [u64; 2]) -> Hooked {
        Hooked::claiming::<i8>(&shape, &[100_000, 50])
    }

    /// An array in storage that answers late, in shards of 2 GiB or in none.
    #[derive(Debug)]
    struct Late(Hooked, bool);

    impl ChunkedArray for Late {
        fn facts(&self) -> ArrayFacts<'_> {
            self.0.facts()
        }
        fn fetches(&self) -> usize {
            4
        }
        fn shards(&self) -> Option<Shards> {
            let of = Shards { chunks: vec![10, 1], bytes: 2 << 30, index_bytes: 0, are_whole: false };
            self.1.then_some(of)
        }
        fn decode(&self, index: &[u64], fetched: FetchedChunk) -> Result<DecodedChunk> {
            self.0.decode(index, fetched)
        }
    }

    #[test]
    fn shards_change_no_residency() {
        let readers = [false, true].map(|in_shards| reader(Late(long([10_000_000, 50]), in_shards)));
        let mut memory = Memory::new(&readers[0].device, &Run::default()).unwrap();
        let Needs { host, device } = Memory::total(&readers[0], Needs::default());
        let least = host + device + readers[0].plan.ahead(memory.threads);
        let wishes = Wishes { again: true, ..Wishes::default() };
        for (more, residency) in [(2 * kept_bytes(&readers[0]), Residency::Device), (0, Residency::Store)] {
            memory.budget = Budget::default().host(least + more);
            let found = readers.each_ref().map(|reader| {
                let allowed = memory.allow(reader, Needs::default(), wishes).unwrap();
                (allowed.residency, allowed.reading.prefetch)
            });
            assert_eq!((found[0].0, found[1]), (residency, found[0]));
        }
    }

    pub(crate) fn reader(array: impl ChunkedArray + 'static) -> Reader {
        static DEVICE: std::sync::OnceLock<Device> = std::sync::OnceLock::new();
        let genotypes = Genotypes::new(vec![Arc::new(array)]).unwrap();
        Reader::new(&genotypes, DEVICE.get_or_init(Device::cpu), true).unwrap()
    }

    #[test]
    fn many_variants_of_few_samples() {
        let reader = reader(long([10_000_000, 50]));
        let rows = reader.panel_rows(panel_bytes(&reader.device, 50));
        assert!(rows <= 1 << 20 && rows.is_multiple_of(reader.plan.block_rows()), "{rows}");
        let of_panels = |bytes| (2 * 32 + 40 + 8 + 112) * reader.panel_rows(bytes);
        assert_eq!(scaling_bytes(&reader, u64::MAX), of_panels(u64::MAX));
        // The counts of a variant take 12 bytes, in addition to those of panels.
        let least = 120_000_000 + of_panels(reader.step_bytes);
        let stream = stream(&reader).host;
        assert!((least..least + 30_000_000).contains(&stream), "{stream}");
        // The genotypes take 16 bytes a variant, and their means and scales 8.
        let mut memory = Memory::new(&reader.device, &Run::default()).unwrap();
        memory.shared = false;
        let residency = |host, device| memory.residency(&reader, host, device).0;
        assert_eq!(residency(0, 240_000_000), Residency::Device);
        assert_eq!(residency(1 << 40, 239_999_999), Residency::Host);
        assert_eq!(residency(239_999_999, 239_999_999), Residency::Store);
        // Panels are shorter if the host has no room for the scaling of large ones.
        let (short, long) = (reader.step_bytes, Gram::panel_bytes(&reader.device));
        let most = scaling_bytes(&reader, long);
        let panels = |host, device, shared| gram_panel_bytes(&reader, [host, device], shared);
        assert_eq!(panels(most - 1, u64::MAX, false), long / 2);
        assert_eq!(panels(most, u64::MAX, false), long);
        assert_eq!(panels(most, most, true), long / 2);
        assert_eq!(panels(0, u64::MAX, false), short);
        // Panels are also shorter if the device has no room for them, and for their limbs and ordered rows.
        let beside = |bytes| Gram::needs(&reader.device, 50, reader.panel_rows(bytes)).device;
        let least = 2 * long + beside(long) - beside(short);
        assert!(beside(long) > beside(short));
        assert_eq!([least - 1, least].map(|device| panels(most, device, false)), [long / 2, long]);
        assert_eq!([least - 1, least].map(|device| panels(most + device, 0, true)), [long / 2, long]);
        // Steps are less than a hundredth of a card's memory.
        let [least, step] = [Residency::LEAST_BYTES, long];
        for (host, device, bytes) in
            [(1 << 40, 80 << 30, step), (1 << 40, 1 << 30, 8 << 20), (1 << 20, 80 << 30, least)]
        {
            memory.budget = Budget::default().host(host).device(device);
            let step = memory.in_steps(self::reader(self::long([10_000_000, 50]))).step_bytes;
            assert!((bytes / 2..=bytes).contains(&step), "{host} {device}: {step}");
        }
    }
}
