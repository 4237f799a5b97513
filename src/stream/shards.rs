//! Shards that a pass reads as a whole, within a bound on their bytes.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{Arc, Weak},
};

use super::{Plan, chunks::ShardOf};
use crate::WholeShard;

/// The shards that a pass holds, each as a whole.
#[derive(Debug)]
pub(super) struct HeldShards {
    whole: Whole,
    /// The shards of which chunks are wanted, with the number still to be started; `None` for those that are not read as a whole.
    wanted: HashMap<ShardOf, (Option<Arc<WholeShard>>, u64)>,
    /// Shards of arrays that are always read as a whole; the one that was used last is at the end.
    recent: VecDeque<(ShardOf, Arc<WholeShard>)>,
}

/// Shards that some chunk may still be fetched from, with their bytes, and the bytes that there is room for.
#[derive(Debug)]
struct Whole {
    held: Vec<(Weak<WholeShard>, u64)>,
    room: u64,
}

impl Whole {
    fn has_room(&mut self, bytes: u64) -> bool {
        self.held.retain(|(shard, _)| shard.strong_count() > 0);
        self.held.iter().fold(bytes, |sum, (_, bytes)| sum.saturating_add(*bytes)) <= self.room
    }

    fn hold(&mut self, bytes: u64) -> Arc<WholeShard> {
        let shard = Arc::default();
        self.held.push((Arc::downgrade(&shard), bytes));
        shard
    }
}

impl HeldShards {
    pub(super) fn new(room: u64) -> Self {
        let whole = Whole { held: Vec::new(), room };
        Self { whole, wanted: HashMap::new(), recent: VecDeque::new() }
    }

    /// True if the shard of a chunk is held, or there is room for it, or it need not be held.
    pub(super) fn has_room(&mut self, plan: &Plan, chunk: usize) -> bool {
        let (array, index) = plan.chunk(chunk);
        let Some(shards) = plan.shards(array).filter(|shards| shards.are_whole) else { return true };
        let shard = plan.shard_of(array, &index);
        self.recent.iter().any(|(held, _)| Some(held) == shard.as_ref()) || self.whole.has_room(shards.bytes)
    }

    /// Returns the shard of a chunk that is started, if the shard is read as a whole. `again` is true if the chunk was started before.
    pub(super) fn whole_shard(&mut self, plan: &Plan, chunk: usize, again: bool) -> Option<Arc<WholeShard>> {
        let (array, index) = plan.chunk(chunk);
        let (shards, shard) = (plan.shards(array)?, plan.shard_of(array, &index)?);
        if plan.kept.has(chunk) {
            return None;
        }
        if shards.are_whole {
            let at = self.recent.iter().position(|(held, _)| *held == shard);
            let held = at.and_then(|at| self.recent.remove(at)).unwrap_or_else(|| {
                while !self.whole.has_room(shards.bytes) && self.recent.pop_front().is_some() {}
                (shard, self.whole.hold(shards.bytes))
            });
            let whole = Arc::clone(&held.1);
            self.recent.push_back(held);
            return Some(whole);
        }
        if again || plan.holds_whole() || self.whole.room < shards.bytes {
            return None;
        }
        let mut entry = match self.wanted.entry(shard) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(entry) => {
                let [wanted, there] = plan.wanted_of(entry.key());
                let is_whole = 2 * wanted >= there && self.whole.has_room(shards.bytes);
                let whole = is_whole.then(|| self.whole.hold(shards.bytes));
                entry.insert_entry((whole, wanted))
            }
        };
        let (whole, left) = entry.get_mut();
        let whole = whole.clone();
        *left = left.saturating_sub(1);
        if *left == 0 {
            entry.remove();
        }
        whole
    }
}
