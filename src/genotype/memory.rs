//! The memory plan of a PCA, and the choice of method that follows from it.

use super::{
    pca::{Method, PcaOptions},
    standardized::Standardized,
};
use crate::{
    Backend, Device, Error, Result, Run,
    linalg::{LinearMap, Stop, gram::IN_FLIGHT},
};

/// What the work needs at least, and what it may have, in bytes.
pub(super) struct Memory {
    host: u64,
    device: u64,
    /// Slots, and the chunks that one block needs.
    stream: u64,
    /// Blocks on the device.
    blocks: u64,
    /// The host's part of each method.
    exact: u64,
    randomized: u64,
    /// The device's part of each method.
    exact_device: u64,
    randomized_device: u64,
    /// Whether the device's memory is the host's.
    shared: bool,
    threads: u64,
}

impl Memory {
    pub(super) fn new(
        map: &Standardized<'_>,
        device: &Device,
        options: &PcaOptions,
        run: &Run,
    ) -> Result<Self> {
        let [variants, n] = map.shape();
        let rows = map.plan().block_rows().min(variants);
        let columns = (options.components + options.svd.oversamples) as u64;
        let shared = device.info().backend == Backend::Cpu;
        let reported = device.info().memory.map_or(2 << 30, |bytes| bytes / 4 * 3);
        let raw = map.plan().block_bytes();
        let dosages = rows.saturating_mul(n).saturating_mul(map.plan().staged().size());
        Ok(Self {
            host: run.memory.host_bytes(),
            device: run.memory.device.unwrap_or(reported),
            stream: (2 * raw).saturating_add(map.plan().largest_need()),
            // Raw and dosages of two blocks, one standardised block.
            blocks: 2 * (raw + dosages) + 4 * rows * n,
            // The sum, its eigenvectors and their workspace; triangles of blocks on their way.
            exact: n.saturating_mul(n).saturating_mul(36),
            exact_device: n.saturating_mul(n).saturating_mul(4 * (1 + IN_FLIGHT as u64)),
            // Four blocks of basis and image are the least a restart needs.
            randomized: n * columns * 64,
            randomized_device: (rows + 3 * n) * columns * 4,
            shared,
            threads: device.pool()?.current_num_threads() as u64,
        })
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

    pub(super) fn choose(&self, map: &Standardized<'_>, options: &PcaOptions) -> (Method, String) {
        if options.method != Method::Auto {
            return (options.method, "asked for".into());
        }
        let [m, n] = map.shape();
        let l = (options.components + options.svd.oversamples) as u64;
        let passes = match options.svd.stop {
            Stop::PowerIterations(q) => u64::from(q) + 2,
            // What flat spectra, such as those of genotypes, take.
            Stop::Tolerance(_) => 16.min(options.svd.max_passes.into()),
        };
        // Operations per genotype: half of 2 n by symmetry and 10 n³ / (m n) for the eigenvectors, which one thread
        // computes in f64; against 4 l per pass and about 100 to read the genotype again.
        let exact = n.saturating_add(n.saturating_mul(n).saturating_mul(10) / m);
        let randomized = passes * (4 * l + 100);
        let (host, device) = self.need(Method::Exact);
        if host > self.host || device > self.device {
            let why = format!("the {n} x {n} Gram matrix of the samples does not fit the memory budget");
            return (Method::Randomized, why);
        }
        if exact <= randomized {
            let why =
                format!("one pass with the {n} x {n} Gram matrix costs less than about {passes} passes");
            return (Method::Exact, why);
        }
        (
            Method::Randomized,
            format!("about {passes} passes cost less than the {n} x {n} Gram matrix of the samples"),
        )
    }

    /// Bytes of chunks to hold at most, and whether dosages stay on the device.
    pub(super) fn allow(&self, map: &Standardized<'_>, method: Method) -> Result<(u64, bool)> {
        let (host, device) = self.need(method);
        if host > self.host {
            return Err(Error::Budget { what: "memory budget", budget: self.host, minimum: host });
        }
        if device > self.device {
            return Err(Error::Budget { what: "device memory budget", budget: self.device, minimum: device });
        }
        let bands = map.plan().bands();
        let band = bands.iter().map(|band| band.bytes).max().unwrap_or(0);
        // Enough that no thread waits for a chunk, twice over.
        let ahead = (band.saturating_mul(2 * self.threads + 2)).min(self.host - host);
        let table = map.plan().rows().saturating_mul(12);
        let kept = map.dosage_bytes().saturating_add(table);
        let free = if self.shared { self.host - host - ahead } else { self.device - device };
        Ok((map.plan().largest_need().saturating_add(ahead), method == Method::Randomized && kept <= free))
    }
}
