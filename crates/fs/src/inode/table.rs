//! The table of live inodes: from an [`InodeId`] to its one object.
//!
//! The table keeps an object alive for a while after its last user released it, so that the next operation on it finds it. It
//! holds about `capacity` objects. Past that, an insertion looks at a few of the oldest entries and forgets those without a user
//! that no operation asked for since the last look (the clock algorithm). Objects in use are never forgotten, so the table can outgrow
//! its capacity by the number of objects in use.
//!
//! Most new inodes are never asked for again. A thread that makes many must not evict the inodes of others, so a new inode waits
//! in a short queue first. If no operation asked for it until its turn comes, it is forgotten. Its memory is still in the
//! processor's caches, and the next inode gets it. (The short queue is that of 2Q: Johnson and Shasha, "2Q: A Low Overhead High
//! Performance Buffer Management Replacement Algorithm", 1994.)
//!
//! An inode without a name is held weakly: it must go when its last user does, because then its items are deleted.
//!
//! # Invariants
//! - TABLE-1 (INODE-1): an object leaves the table only when it has no other user and has nothing left to write (DELAYED-4, DELALLOC-5,
//!   ATIME-2) or to report (ERRSEQ-1), and under the shard's lock.
//!   Shown by `attributes_of_directories_stay_with_more_of_them_delayed_than_there_is_room_for`.
//! - TABLE-2: an item read from the tree becomes an object, or the answer instead of one, only if since before the read no object left
//!   the shard and none lost its last name (it is held weakly then, and leaves unseen). Otherwise the item may be older than the
//!   changes of that object, and the caller reads it again.
//!
//! # Locking
//! One lock per shard, short: no I/O under it, and no other locks but the list of dead inodes and those for the memory sizes of inodes.
//! Threads that look for objects share it, because neighbours lie in one shard, and the directories of many threads are mostly such
//! neighbours.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use creamery_base::lock::{RankedRwLock, rank};
use creamery_base::{CachePadded, IdHasher, InodeId, TreeId, memory};

use smallvec::SmallVec;

use super::Inode;
use crate::fault::Fault;

const SHARDS: usize = 32;
/// Old entries looked at per insertion into a full shard.
const SWEEP_STEPS: usize = 16;
/// The part of a shard's capacity for the queue of new inodes: a sixteenth.
const MADE_LATELY_SHARE: usize = 16;
/// How many successive inode numbers lie in one shard.
const STRETCH: u64 = 32;
/// Ids of removed inodes that the clock may hold.
const CLOCK_SLACK: usize = 64;

/// The table.
pub(crate) struct InodeTable {
    shards: Vec<CachePadded<RankedRwLock<Shard, { rank::TABLE }>>>,
    shard_capacity: usize,
}

#[derive(Default)]
struct Shard {
    map: HashMap<InodeId, TableSlot, BuildHasherDefault<IdHasher>>,
    /// Ids of inodes that were made lately, oldest first. They may have left the map.
    made_lately: VecDeque<InodeId>,
    /// The map's other keys in the order of the clock's hand.
    clock: VecDeque<InodeId>,
    /// How many objects have left the shard, or have been held weakly for want of a name.
    departures: u64,
    /// Objects that left the map; new objects reuse their memory.
    spare: Vec<Arc<Inode>>,
}

struct TableSlot {
    object: InodeReference,
    asked_for: AtomicBool,
}

impl TableSlot {
    /// Notes that an operation asks for the object.
    fn ask(&self) {
        // Most objects are asked for again and again: all threads can share an unchanged cache line.
        if !self.asked_for.load(Ordering::Relaxed) {
            self.asked_for.store(true, Ordering::Relaxed);
        }
    }
}

enum InodeReference {
    Strong(Arc<Inode>),
    Weak(Weak<Inode>),
}

impl InodeReference {
    fn get(&self) -> Option<Arc<Inode>> {
        match self {
            Self::Strong(inode) => Some(Arc::clone(inode)),
            Self::Weak(inode) => inode.upgrade(),
        }
    }

    /// Whether the object has no user outside the table, and has nothing left to write or to report.
    fn is_idle(&self) -> bool {
        match self {
            Self::Strong(inode) => Arc::strong_count(inode) == 1 && !inode.has_to_stay(),
            Self::Weak(inode) => inode.strong_count() == 0,
        }
    }
}

/// The shard of an inode. Neighbours lie in one shard, and the next stretch in the next shard. A thread that makes inodes meets
/// the same shard for a while, seldom with another thread in it, and many neighbours use all shards alike.
fn shard_of(id: InodeId) -> usize {
    let stretch = id.ino.get() / STRETCH;
    let mut hasher = IdHasher::default();
    hasher.write_u64(id.subvolume.get());
    hasher.write_u64(stretch / SHARDS as u64);
    ((hasher.finish() >> 40) + stretch) as usize % SHARDS
}

/// The answer of [`InodeTable::get`].
pub(crate) enum KnownInode {
    /// The object.
    Here(Arc<Inode>),
    /// No object; the stamp goes with the item read next (TABLE-2).
    Absent(Stamp),
}

/// A count that shows whether an object left a shard since, or may have.
#[derive(Clone, Copy)]
pub(crate) struct Stamp(u64);

impl InodeTable {
    /// A table for about `capacity` objects.
    pub(crate) fn new(capacity: usize) -> Self {
        let shards = (0..SHARDS).map(|_| CachePadded::default()).collect();
        Self { shards, shard_capacity: (capacity / SHARDS).max(4) }
    }

    /// How many objects it holds, including those in use.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().map.len()).sum()
    }

    /// The memory it takes with all objects, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.shards.iter().map(|shard| shard.read().memory()).sum()
    }

    /// The object of `id`, if there is one.
    pub(crate) fn get(&self, id: InodeId) -> KnownInode {
        let shard = self.shards[shard_of(id)].read();
        let departures = shard.departures;
        if let Some(slot) = shard.map.get(&id)
            && let Some(inode) = slot.object.get()
        {
            slot.ask();
            return KnownInode::Here(inode);
        }
        KnownInode::Absent(Stamp(departures))
    }

    /// Makes `inode`, whose item was read after `stamp` was given, the object of its id, or returns the object that another
    /// thread made meanwhile. Returns `None` when the caller has to read the item again.
    pub(crate) fn publish_read(&self, inode: Inode, stamp: Stamp) -> Option<Arc<Inode>> {
        let mut shard = self.shards[shard_of(inode.id)].write();
        if let Some(other) = shard.map.get(&inode.id).and_then(|slot| slot.object.get()) {
            return Some(other);
        }
        assert!(stamp.0 <= shard.departures, "TABLE-2: a stamp is of the shard that gave it");
        if shard.departures != stamp.0 && !inode.context().has(Fault::LossUnnoticed) {
            return None;
        }
        Some(self.put(&mut shard, inode, Shard::clock))
    }

    /// Whether an item of `id` that was read after `stamp` was given is current, as that of an object would be (TABLE-2).
    pub(crate) fn is_current(&self, id: InodeId, stamp: Stamp) -> bool {
        let shard = self.shards[shard_of(id)].read();
        let unknown = shard.map.get(&id).is_none_or(|slot| slot.object.get().is_none());
        assert!(stamp.0 <= shard.departures, "TABLE-2: a stamp is of the shard that gave it");
        unknown && shard.departures == stamp.0
    }

    /// Makes `inode`, whose item was just inserted into the tree, the object of its id.
    pub(crate) fn publish_new(&self, inode: Inode) -> Arc<Inode> {
        let mut shard = self.shards[shard_of(inode.id)].write();
        // A thread that guessed the number may have read the item as soon as it was in the tree.
        if let Some(other) = shard.map.get(&inode.id).and_then(|slot| slot.object.get()) {
            inode.set_gone();
            return other;
        }
        self.put(&mut shard, inode, Shard::made_lately)
    }

    /// Puts the object into the map. A new id goes into `queue`.
    fn put(&self, shard: &mut Shard, mut inode: Inode, queue: Queue) -> Arc<Inode> {
        let id = inode.id;
        let weak = inode.own_item().nlink == 0;
        let inode = shard.place(inode);
        let object = if weak {
            InodeReference::Weak(Arc::downgrade(&inode))
        } else {
            InodeReference::Strong(Arc::clone(&inode))
        };
        match shard.map.entry(id) {
            MapEntry::Occupied(mut dead) => {
                assert!(dead.get().object.get().is_none(), "INODE-1: {id} has an object already");
                dead.get_mut().object = object;
            }
            MapEntry::Vacant(place) => {
                place.insert(TableSlot { object, asked_for: AtomicBool::new(false) });
                queue(shard).push_back(id);
            }
        }
        shard.keep(self.shard_capacity);
        inode
    }

    /// Holds the object weakly from now on: its last name is gone. Returns whether the caller is its only user.
    pub(crate) fn doom(&self, inode: &Arc<Inode>) -> bool {
        let mut shard = self.shards[shard_of(inode.id)].write();
        let weak = InodeReference::Weak(Arc::downgrade(inode));
        let slot = shard.map.get_mut(&inode.id).expect("an object in use is in the table");
        slot.object = weak;
        shard.departures += 1;
        Arc::strong_count(inode) == 1
    }

    /// Keeps the object again: it has a name (again).
    pub(crate) fn keep(&self, inode: &Arc<Inode>) {
        let mut shard = self.shards[shard_of(inode.id)].write();
        let slot = shard.map.get_mut(&inode.id).expect("an object in use is in the table");
        slot.object = InodeReference::Strong(Arc::clone(inode));
    }

    /// Holds the objects of a deleted subvolume weakly from now on: their unwritten changes are of no use.
    pub(crate) fn doom_subvolume(&self, subvolume: TreeId) {
        for shard in &self.shards {
            let mut held = Vec::new();
            let mut shard = shard.write();
            for slot in shard.map.iter_mut().filter(|(id, _)| id.subvolume == subvolume).map(|(_, slot)| slot)
            {
                if let Some(inode) = slot.object.get() {
                    slot.object = InodeReference::Weak(Arc::downgrade(&inode));
                    held.push(inode);
                }
            }
            shard.departures += held.len() as u64;
            let spare = std::mem::take(&mut shard.spare);
            drop(shard);
            // Without the lock: an object that drops releases other things.
            drop((held, spare));
        }
    }

    /// Forgets an id whose object is gone.
    pub(crate) fn forget_dead(&self, id: InodeId) {
        let mut shard = self.shards[shard_of(id)].write();
        if shard.map.get(&id).is_some_and(|slot| slot.object.is_idle()) {
            shard.map.remove(&id);
            shard.departures += 1;
        }
    }
}

/// One of a shard's queues.
type Queue = fn(&mut Shard) -> &mut VecDeque<InodeId>;

impl Shard {
    fn made_lately(&mut self) -> &mut VecDeque<InodeId> {
        &mut self.made_lately
    }

    fn clock(&mut self) -> &mut VecDeque<InodeId> {
        &mut self.clock
    }

    fn memory(&self) -> u64 {
        // An object that is held weakly keeps its memory, but the memory of its parts is its users' matter.
        let held = |slot: &TableSlot| match &slot.object {
            InodeReference::Strong(inode) => inode.memory(),
            InodeReference::Weak(_) => memory::shared::<Inode>(),
        };
        memory::hash_map::<InodeId, TableSlot>(self.map.capacity())
            + memory::vec::<InodeId>(self.made_lately.capacity() + self.clock.capacity())
            + memory::vec::<Arc<Inode>>(self.spare.capacity())
            + self.map.values().map(held).sum::<u64>()
            + self.spare.iter().map(|inode| inode.memory()).sum::<u64>()
    }

    /// Forgets some of the objects above `capacity`.
    fn keep(&mut self, capacity: usize) {
        if self.made_lately.len() > capacity / MADE_LATELY_SHARE + SWEEP_STEPS {
            self.sweep(Self::made_lately);
        }
        if self.map.len() > capacity {
            self.sweep(Self::clock);
        }
        if self.clock.len() > 2 * self.map.len() + CLOCK_SLACK {
            self.rewind();
        }
    }

    /// Takes ids out of the queues that are no longer in the map.
    fn rewind(&mut self) {
        self.made_lately.clear();
        self.clock.clear();
        self.clock.extend(self.map.keys());
        self.clock.shrink_to(2 * self.clock.len() + CLOCK_SLACK);
    }

    /// Shares `inode`, in the memory of an object without users if there is one.
    fn place(&mut self, inode: Inode) -> Arc<Inode> {
        if let Some(mut spare) = self.spare.pop()
            && let Some(place) = Arc::get_mut(&mut spare)
        {
            *place = inode;
            return spare;
        }
        Arc::new(inode)
    }

    /// Looks at the first few objects of a queue, forgets those without users that no operation asked for, and moves the others
    /// behind the clock's hand. Old objects have left the processor's caches, so it touches all of them before it forgets the
    /// first: their memory comes at the same time instead of one after the other.
    fn sweep(&mut self, queue: Queue) {
        let mut looked_at: SmallVec<[(InodeId, bool); SWEEP_STEPS]> = SmallVec::new();
        while looked_at.len() < SWEEP_STEPS
            && let Some(id) = queue(self).pop_front()
        {
            let Some(slot) = self.map.get_mut(&id) else { continue };
            let asked_for = std::mem::take(slot.asked_for.get_mut());
            looked_at.push((id, slot.object.is_idle() & !asked_for));
        }
        for (id, forget) in looked_at {
            if forget {
                let slot = self.map.remove(&id);
                self.departures += 1;
                if let Some(TableSlot { object: InodeReference::Strong(inode), .. }) = slot {
                    assert!(
                        !inode.has_to_stay(),
                        "DELAYED-4, DELALLOC-5, ATIME-2, ERRSEQ-1, TABLE-1: {id} is forgotten too early"
                    );
                    if self.spare.len() < SWEEP_STEPS {
                        self.spare.push(inode);
                    }
                }
            } else {
                self.clock.push_back(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::Wait;

    use super::*;
    use crate::data::tests::support::{assert_noticed, new_file};
    use crate::inode::InodeFlags;

    #[test]
    fn a_second_object_of_an_inode_is_a_bug() {
        assert_noticed("INODE-1", |engine| {
            let table = InodeTable::new(64);
            let first = table.publish_new(new_file(&engine, 300, InodeFlags::default()));
            table.keep(&first);
            let second =
                Inode::new(first.id, first.subvolume().clone(), first.item(Wait::Yes).expect("it lives"));
            table.put(&mut table.shards[shard_of(first.id)].write(), second, Shard::clock);
        });
    }

    #[test]
    fn a_stamp_that_the_shard_did_not_give_is_a_bug() {
        assert_noticed("TABLE-2", |engine| {
            let table = InodeTable::new(64);
            let _ = table.publish_read(new_file(&engine, 300, InodeFlags::default()), Stamp(1));
        });
    }
}
