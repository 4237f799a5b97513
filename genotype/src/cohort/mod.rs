//! Genotypes loaded once, for one result or several.

pub(super) mod each;
pub(super) mod grm;
mod group;
mod missing;
mod part;
pub(super) mod pca;
pub(super) mod plan;
pub(super) mod project;
pub(super) mod standardized;

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Instant,
};

use teatime::{
    Budget, Device, Error, MemoryKind, Needs, Result, Run, Status,
    linalg::{Pass, Stats},
    packed::{PackedMatrix, PanelSink},
    stream::{Digests, StreamStats},
};

use self::{
    each::Each,
    missing::MissingSums,
    plan::{LoadPlan, NeedsBeside, Request, Wanted, check_samples},
};
use super::{
    choice::Choice,
    counts::CallCounts,
    filter::VariantCounts,
    memory::{Memory, Wishes},
    options::PcaOptions,
    pair_sums::{self, PairAccumulator, PairSums},
    project::{Matched, Projection, ProjectionSums},
    reader::{CountedSink, Read, Reader, Reading},
    residency::Residency,
    source::Genotypes,
};
use crate::to_usize;

/// The genotypes of some samples, loaded once onto a device: the counts of each variant, the sums for the
/// results that were wanted, and the genotypes themselves, if later passes need them and memory holds them.
///
/// A result that was not wanted can still be computed, by further passes: over the genotypes if they stayed in memory, otherwise over the store
/// ([`passes_over_store`](Self::passes_over_store) counts these passes). A store that changes between passes is noticed: by the counts of each
/// variant, or by a digest of all its bytes if further passes were planned. Times that a result reports are those of all passes so far.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, store::MemoryArray};
/// use teatime_genotype::{Cohort, Genotypes, GrmOptions, PcaOptions, Wanted};
///
/// let dosages = [[0i8, 0, 2, 2], [2, 2, 0, 1], [0, 1, 2, 2], [2, 2, 0, 0]];
/// let array = MemoryArray::new("dosages", dosages.as_flattened(), &[4, 4], &[2, 4])?;
/// let genotypes = Genotypes::new(vec![Arc::new(array)])?;
/// let (components, relationships) = (PcaOptions::default().components(2), GrmOptions::default());
/// let (device, run) = (Device::cpu(), Run::default());
///
/// let wanted = Wanted::default().pca(&components).grm(&relationships);
/// let cohort = Cohort::load(&genotypes, &device, &wanted, &run)?;
/// assert_eq!(cohort.pca(&components, &run)?.vectors.rows(), 4);
/// assert_eq!(cohort.grm(&relationships, &run)?.matrix.rows(), 4);
/// assert_eq!(cohort.passes_over_store(), 1);
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Debug)]
pub struct Cohort {
    pub(super) reader: Reader,
    pub(super) memory: Memory,
    pub(super) counts: CallCounts,
    place: Mutex<Arc<Place>>,
    devices: usize,
    /// The settings by which the first pass read.
    reading: Reading,
    /// The number of rows of the host's panels that are on the device at a time.
    host_rows: u64,
    /// The options of the components that were wanted, and the method chosen for them.
    choice: Option<(PcaOptions, Choice)>,
    sums: Mutex<Vec<Arc<PairSums>>>,
    /// True if the relationship matrix and the wanted components are made from the same sums.
    shares_sums: bool,
    projection: Option<Projection>,
    missing_calls: Option<Vec<u64>>,
    stats: Mutex<StreamStats>,
    passes_over_store: AtomicU32,
    /// Digests of the bytes of the first pass, if further passes over the store were planned.
    digests: Option<Digests>,
}

/// The place where genotypes stay, and why they stay there.
#[derive(Debug)]
struct Place {
    /// The genotypes in memory; `None` if they stay in the store.
    kept: Option<PackedMatrix>,
    reason: String,
}

impl Cohort {
    /// Reads `genotypes` in one pass, in memory bounded by `run.memory`. The bound holds for all results together.
    ///
    /// Later passes run over the genotypes where they stay: on the device; otherwise in the host's memory, if
    /// packed in two bits; otherwise in the store. Genotypes stay in memory only if further passes are wanted.
    ///
    /// # Cost
    /// Each member of a [group](Device::group) loads some of the variants, if two bits hold a genotype and parts of the memory do.
    ///
    /// One pass, with the sums of the wanted results, whose cost [`pca`](crate::pca()), [`grm`](crate::grm()) and
    /// [`project`](crate::project()) state. The counts take 12 bytes a variant on the host, or 32 if dosages are not 0, 1 and 2.
    ///
    /// # Errors
    /// The errors of wanted results; [`Error::Budget`] with the smallest budget that would do; [`Error::OutOfMemory`] if the device has
    /// less, though the budget allows it; [`Error::Chunk`] for a damaged or missing chunk or values out of range; [`Error::Cancelled`].
    pub fn load(genotypes: &Genotypes, device: &Device, wanted: &Wanted<'_>, run: &Run) -> Result<Self> {
        Self::load_beside(Request { genotypes, device, wanted, run }, &|_| Needs::default())
    }

    /// Loads as [`load`](Self::load) does, with room for work that needs `needs`.
    fn load_beside(request: Request<'_>, needs: &NeedsBeside<'_>) -> Result<Self> {
        let each = Each { needs, start: &|_| Ok(()), add: &|(), _, _, _| Ok(()), join: &|(), ()| Ok(()) };
        Ok(Self::load_with(request, &each)?.1)
    }

    /// Loads as [`load`](Self::load) does, and also returns what `each` made from the panels of the pass.
    pub(crate) fn load_with<T: Send>(request: Request<'_>, each: &Each<'_, T>) -> Result<(T, Self)> {
        let mut alone = None;
        if request.device.members().len() > 1 {
            match Self::load_onto_members(request, each)? {
                Ok(shared) => return Ok(shared),
                Err(why) => alone = Some(why),
            }
        }
        let (made, cohort) = Self::load_alone(request, each)?;
        if let (Some(why), Some(place)) = (alone, Arc::get_mut(&mut lock(&cohort.place))) {
            place.reason = format!("{}; on one device of the group: {why}", place.reason);
        }
        Ok((made, cohort))
    }

    /// Loads as [`load_with`](Self::load_with) does, onto one device.
    fn load_alone<T>(request: Request<'_>, each: &Each<'_, T>) -> Result<(T, Self)> {
        request.with_less_memory(|request @ Request { wanted, run, .. }| {
            let plan = LoadPlan::new(request, None, each.needs)?;
            let mut sums = Sums::new(&plan, wanted.matched(), wanted.missing_calls)?;
            let (read, made, kept) = each.of_pass(&plan, |sink| sums.read(&plan, run, sink))?;
            Ok((made, Self::finish(plan, sums, kept, Some(read))?))
        })
    }

    /// Waits for the sums and makes the cohort; `read` has the results of the pass, if there was one.
    fn finish(
        plan: LoadPlan,
        sums: Sums<'_>,
        kept: Option<PackedMatrix>,
        read: Option<Read>,
    ) -> Result<Self> {
        let LoadPlan { reader, memory, shares_sums, choice, allowance, .. } = plan;
        let Sums { counts, adding, projecting, missing } = sums;
        let missing_calls = missing.map(MissingSums::finish).transpose()?;
        let sums = adding.into_iter().map(|adding| Ok(Arc::new(adding.finish()?)));
        let sums = sums.collect::<Result<Vec<_>>>()?;
        let passes = u32::from(read.is_some());
        let (stats, digests) = read.map_or_else(Default::default, |read| (read.stats, read.digests));
        let mut cohort = Self {
            memory,
            counts,
            place: Mutex::new(Arc::new(Place { kept, reason: allowance.reason })),
            devices: 1,
            reading: allowance.reading,
            host_rows: allowance.host_rows,
            choice,
            shares_sums,
            sums: Mutex::new(sums),
            projection: None,
            missing_calls,
            stats: Mutex::new(stats),
            passes_over_store: AtomicU32::new(passes),
            digests,
            reader,
        };
        if let Some(projecting) = projecting {
            cohort.projection = Some(cohort.finish_projection(projecting)?);
        }
        Ok(cohort)
    }

    /// Returns the device that the cohort was loaded onto.
    pub fn device(&self) -> &Device {
        &self.reader.device
    }

    /// Returns the genotypes that were loaded.
    pub fn genotypes(&self) -> &Genotypes {
        &self.reader.genotypes
    }

    /// Returns the place where the genotypes stay for later passes.
    pub fn residency(&self) -> Residency {
        match &self.place().kept {
            Some(kept) if kept.is_on_host() => Residency::Host,
            Some(_) => Residency::Device,
            None => Residency::Store,
        }
    }

    /// Returns the reason why the genotypes stay [there](Self::residency), as text: what fits which budget.
    pub fn residency_reason(&self) -> String {
        self.place().reason.clone()
    }

    /// Returns how many members of a [group](Device::group) loaded: 1 if the first alone did, for a [reason](Self::residency_reason).
    pub fn devices(&self) -> usize {
        self.devices
    }

    /// Returns the memory budgets of the plan, with defaults filled in. A device that shares the host's memory has no budget of its own.
    pub fn memory(&self) -> Budget {
        self.memory.budget()
    }

    /// Returns the 64-bit FNV-1a digest of every variant's sum of dosages (f64) and number of called samples (u64), little-endian.
    pub fn digest(&self) -> u64 {
        self.counts.digest
    }

    /// Returns the time that each step took, over all passes so far.
    pub fn stats(&self) -> StreamStats {
        *lock(&self.stats)
    }

    /// Returns the number of passes over the store: one for [`load`](Self::load), none for
    /// [`of_part`](Self::of_part), and later ones if genotypes stay in the store.
    pub fn passes_over_store(&self) -> u32 {
        self.passes_over_store.load(Relaxed)
    }

    /// Returns the number of missing calls of each sample over all variants, if it was [wanted](Wanted::missing_calls).
    pub fn missing_calls(&self) -> Option<&[u64]> {
        self.missing_calls.as_deref()
    }

    /// Returns the projection, if it was [wanted](Wanted::projection).
    pub fn projection(&self) -> Option<&Projection> {
        self.projection.as_ref()
    }

    /// Returns the settings by which panels are read: the settings of the first pass if genotypes stayed in memory, else `reading`.
    pub(super) fn panels(&self, reading: Reading) -> Reading {
        if self.residency() == Residency::Store { reading } else { self.reading }
    }

    /// Returns the method for components: the planned one if these components were wanted, else a new choice.
    pub(super) fn choice(&self, options: &PcaOptions) -> Choice {
        match &self.choice {
            Some((wanted, choice)) if wanted == options => choice.clone(),
            _ => Choice::new(&self.memory, &self.reader, options, self.held()),
        }
    }

    /// Refuses a `bounded` result if dosages above the ploidy were not an error for any result that the genotypes were loaded for.
    pub(super) fn check_bounded(&self, op: &'static str, bounded: bool) -> Result<()> {
        if bounded && !self.reader.bounded {
            let why =
                "loaded for results that allow dosages above the ploidy: name this one among the wanted, too";
            return Err(Error::argument(op, "genotypes", why));
        }
        Ok(())
    }

    /// Returns the memory that the held genotypes and sums take.
    pub(super) fn held(&self) -> Needs {
        let sums = lock(&self.sums).iter().map(|sums| sums.bytes()).sum();
        self.kept() + Needs::host(sums)
    }

    /// Returns the memory that the genotypes take where they stay.
    pub(super) fn kept(&self) -> Needs {
        Memory::kept(&self.reader, self.residency(), self.devices as u64)
    }

    /// Returns the settings of a pass over the store that takes `needs` in addition to what is held.
    pub(super) fn reading(&self, needs: Needs) -> Result<Reading> {
        Ok(self.memory.allow(&self.reader, needs + self.held(), Wishes::default())?.reading)
    }

    /// Returns the pass for a result that was not wanted.
    pub(super) fn pass<'r>(&self, run: &'r Run) -> Pass<'r> {
        Pass::new(run, Status::new(0, 1, self.reader.variants()))
    }

    /// Returns the sums for each pair of samples, if they were computed and are still held here.
    pub(super) fn held_sums(&self, wanted: pair_sums::PairTerms) -> Option<Arc<PairSums>> {
        lock(&self.sums).iter().find(|sums| sums.wanted.holds(&wanted)).cloned()
    }

    /// Returns the sums for each pair of samples: the [held](Self::held_sums) ones, or else sums made by one more pass.
    pub(super) fn pair_sums(&self, wanted: pair_sums::PairTerms, run: &Run) -> Result<Arc<PairSums>> {
        if let Some(sums) = self.held_sums(wanted) {
            return Ok(sums);
        }
        check_samples(&self.reader)?;
        let reader = &self.reader;
        self.with_room(PairAccumulator::needs(reader, wanted.shared, wanted.variance), &mut |reading| {
            let mut adding = PairAccumulator::new(reader, wanted)?;
            self.each_panel(&self.pass(run), reading, &mut |panel| {
                let mut steps = reader.steps(&panel.rows);
                steps.try_for_each(|rows| adding.add(reader, panel, &rows, &self.stats_of(&rows)))
            })?;
            Ok(Arc::new(adding.finish()?))
        })
    }

    /// Hands over [`pair_sums`](Self::pair_sums): the cohort then holds them no longer, unless the wanted components are made from them too.
    pub(super) fn take_pair_sums(&self, wanted: pair_sums::PairTerms, run: &Run) -> Result<PairSums> {
        let sums = self.pair_sums(wanted, run)?;
        if !self.shares_sums {
            lock(&self.sums).retain(|held| !Arc::ptr_eq(held, &sums));
        }
        Ok(Arc::unwrap_or_clone(sums))
    }

    pub(super) fn stats_of(&self, rows: &Range<u64>) -> Vec<Stats> {
        self.counts.stats(to_usize(rows.start)..to_usize(rows.end))
    }

    /// Gives the panels to `f`, in order: one pass over the genotypes in memory, or over the store by the settings `reading`.
    pub(super) fn each_panel(&self, pass: &Pass<'_>, reading: Reading, f: &mut PanelSink<'_>) -> Result<()> {
        // The lock is not held here, since `f` may lock again.
        let place = self.place();
        let Some(kept) = &place.kept else { return self.read_again(pass, reading, f) };
        pass.tell(0)?;
        let started = Instant::now();
        kept.each(pass, f)?;
        lock(&self.stats).compute += started.elapsed();
        Ok(())
    }

    fn read_again(&self, pass: &Pass<'_>, reading: Reading, f: &mut PanelSink<'_>) -> Result<()> {
        let changed = |array: &str| {
            let why = "changed while it was read: a later pass found other genotypes than the first";
            Error::store(array, why)
        };
        let plan = &self.reader.plan;
        let read = self.reader.read(pass, reading, self.digests.is_some(), &mut |panel, stats| {
            let first = self.stats_of(&panel.rows);
            if let Some(row) = stats.iter().zip(first).position(|(now, first)| *now != first) {
                return Err(changed(plan.array_of(panel.rows.start + row as u64).name()));
            }
            f(&panel)
        })?;
        if let (Some(now), Some(first)) = (&read.digests, &self.digests)
            && let Some(array) = now.differ(first)
        {
            return Err(changed(plan.array(array).name()));
        }
        self.passes_over_store.fetch_add(1, Relaxed);
        lock(&self.stats).add(&read.stats);
        Ok(())
    }

    /// Runs `work`, which makes further passes and takes `needs`. If other programs hold the device
    /// memory that the plan counted on, genotypes leave the device, and `work` starts again.
    pub(super) fn with_room<T>(&self, needs: Needs, work: &mut dyn FnMut(Reading) -> Result<T>) -> Result<T> {
        loop {
            match work(self.reading(needs)?) {
                Err(Error::OutOfMemory { .. }) if self.leave_device(needs)? => {}
                result => return result,
            }
        }
    }

    /// Moves genotypes off a device that has no more memory. Packed genotypes go to the host if its budget holds them in addition to `needs`;
    /// others are dropped. Genotypes on the host, part of which is on the device at a time, are dropped too. Returns true if there were any.
    pub(super) fn leave_device(&self, needs: Needs) -> Result<bool> {
        if self.memory.shared || self.residency() == Residency::Store {
            return Ok(false);
        }
        let reason = || "the device had less memory left than it said".to_owned();
        let nothing = Arc::new(Place { kept: None, reason: reason() });
        let place = std::mem::replace(&mut *lock(&self.place), nothing);
        // Panels that another thread's pass still uses are freed when that pass ends.
        let Ok(Place { kept: Some(kept), .. }) = Arc::try_unwrap(place) else { return Ok(true) };
        let slots = Needs::host(2 * Residency::HOST_BYTES);
        let on_host = needs + Memory::kept(&self.reader, Residency::Host, 1) + slots;
        if self.reader.form.is_packed() && !kept.is_on_host() && self.memory.fits(&self.reader, on_host) {
            match kept.to_host(self.host_rows) {
                Ok(kept) => *lock(&self.place) = Arc::new(Place { kept: Some(kept), reason: reason() }),
                Err(Error::OutOfMemory { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn place(&self) -> Arc<Place> {
        Arc::clone(&lock(&self.place))
    }
}

/// Locks a mutex, even if a thread panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The counts and sums that a pass makes.
struct Sums<'a> {
    counts: CallCounts,
    adding: Vec<PairAccumulator>,
    projecting: Option<ProjectionSums<'a>>,
    missing: Option<MissingSums>,
}

impl<'a> Sums<'a> {
    /// Creates empty sums, also of the missing calls of each sample if these are `counted`.
    fn new(plan: &LoadPlan, projection: Option<Matched<'a>>, counted: bool) -> Result<Self> {
        let LoadPlan { reader, pairs, .. } = plan;
        let adding = pairs.iter().map(|pairs| PairAccumulator::new(reader, *pairs)).collect::<Result<_>>()?;
        let projecting = projection.map(|matched| ProjectionSums::new(reader, matched)).transpose()?;
        let counts = CallCounts::new(reader.variants(), reader.samples(), reader.form.is_packed())?;
        let missing = counted.then(|| MissingSums::new(reader)).transpose()?;
        Ok(Self { counts, adding, projecting, missing })
    }

    /// Makes the pass, and gives each panel to `f` as well.
    fn read(&mut self, plan: &LoadPlan, run: &Run, f: &mut CountedSink<'_>) -> Result<Read> {
        let LoadPlan { reader, allowance, later_passes, again, .. } = plan;
        let digested = *again && allowance.residency == Residency::Store;
        let pass = Pass::new(run, Status::new(0, 1 + later_passes, reader.variants()));
        reader.read(&pass, allowance.reading, digested, &mut |panel, stats| {
            self.counts.push(stats);
            let rows = &panel.rows;
            self.adding.iter_mut().try_for_each(|adding| adding.add(reader, &panel, rows, stats))?;
            if let Some(projecting) = &mut self.projecting {
                projecting.add(reader, &panel)?;
            }
            if let Some(missing) = &mut self.missing {
                missing.add(reader, &panel)?;
            }
            f(panel, stats)
        })
    }
}

/// Calls `f` with less and less of the device's memory, since other programs may hold memory that the plan counted
/// on: fewer panels stay there, or another method is chosen. The last try has the smallest budget that would do.
pub(crate) fn with_less_memory<T>(
    device: &Device,
    run: &Run,
    mut f: impl FnMut(&Run) -> Result<T>,
) -> Result<T> {
    let mut budget = run.memory.device_bytes(device.info());
    let (mut full, mut least) = (false, false);
    loop {
        let smaller = run.memory.device(if full { Some(budget) } else { run.memory.device });
        match f(&run.clone().memory(smaller)) {
            Err(Error::OutOfMemory { .. }) if !device.shares_host_memory() && !least => {
                (budget, full) = (budget / 2, true);
            }
            Err(Error::Budget { memory: MemoryKind::Device, minimum, .. }) if full && !least => {
                (budget, least) = (minimum, true);
            }
            result => return result,
        }
    }
}

pub(crate) fn no_variant(counts: &VariantCounts) -> String {
    let VariantCounts { total, all_missing, above_missing, below_maf, zero_variance, .. } = counts;
    format!(
        "none of the {total} variants is left: {all_missing} have no call, {above_missing} have too many missing \
         calls, {below_maf} have too low a minor allele frequency, {zero_variance} do not vary"
    )
}
