//! The devices of a volume, each in its state.
//!
//! ```text
//! candidates --assemble--> Present | Stale | Seed          (each superblock is held against the newest one)
//! devices that the chunk tree lists, and that nobody gave: Missing
//! Present, Stale --an answer that is an error, and no superblock to be read any more; or errors at many places in a row--> Failed
//! ```
//!
//! Reading asks the members in the order of their states: those that are present, then one that missed writes, then one that failed.
//! A member that missed writes may hold what was there before, whole and with a checksum of its own. So it is believed only where something
//! newer than it says what has to be there: the generation in the parent of a tree block, the checksum of data. A power cut between the
//! superblocks of two members leaves one of them behind by a commit that has all of its data; so chunks without redundancy are believed.
//!
//! # Invariants
//! - MEMBER-1: members of a volume tell of one history, as far as their superblocks and the copies of the roots show. Shown by
//!   `members_of_two_histories_are_refused`, and by `sets/members-of-two-histories` beside Linux.
//! - MEMBER-2: no byte is asked of a missing member. It has no device to ask: members that are missing are not in the list.
//! - MEMBER-3: data without checksums is not taken from a member that missed writes, but for chunks that nobody can write without it, where it is
//!   behind by one commit: those have missed none. One that is further behind is an old copy of the member. Shown by `a_member_that_missed_writes_is_believed_only_where_a_checksum_says_so` and
//!   `what_cannot_be_written_without_a_member_has_missed_nothing`.

pub(crate) mod assemble;
mod degraded;
mod one_history;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{DevId, Generation, Uuid};
use creamery_device::BlockDevice;

/// How a device of a filesystem stands to the others.
///
/// ```
/// use creamery_volume::MemberState;
/// assert_eq!(MemberState::Missing.to_string(), "missing");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// It has the last commit.
    Present,
    /// It belongs to a seed, which others are made from.
    Seed,
    /// It missed writes: its last commit is an earlier one, of this generation.
    Stale(Generation),
    /// It stopped answering.
    Failed,
    /// It was not given.
    Missing,
}

impl MemberState {
    /// Which is asked first.
    pub(crate) const fn rank(self) -> u8 {
        match self {
            Self::Present | Self::Seed => 0,
            Self::Stale(_) => 1,
            Self::Failed => 2,
            Self::Missing => 3,
        }
    }
}

impl std::fmt::Display for MemberState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Present => f.write_str("present"),
            Self::Seed => f.write_str("seed"),
            Self::Stale(generation) => write!(f, "missed writes since generation {generation}"),
            Self::Failed => f.write_str("failed"),
            Self::Missing => f.write_str("missing"),
        }
    }
}

/// What a superblock says of its device's part in the set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Current,
    Seed,
    Stale(Generation),
}

/// A device that was given.
#[derive(Clone)]
pub(crate) struct Member {
    pub(crate) dev: DevId,
    pub(crate) uuid: Uuid,
    pub(crate) device: Arc<dyn BlockDevice>,
    /// The bytes that the filesystem counts on it, by the device's superblock.
    pub(crate) counted: u64,
    pub(crate) part: Part,
    /// The UUID in the tree blocks that were written when its superblock was: a seed's own.
    pub(crate) metadata_uuid: Uuid,
    pub(crate) failed: Arc<AtomicBool>,
    pub(crate) errors: Arc<Errors>,
    /// Whether something was rewritten in place on it.
    pub(crate) is_rewritten: Arc<AtomicBool>,
}

/// Errors of a device in a row.
#[derive(Default)]
pub(crate) struct Errors {
    are_some: AtomicBool,
    /// Where they were, bytes on the device, each place once: one bad sector is asked for in many ways.
    places: RankedMutex<Vec<u64>, { rank::LEAF }>,
}

/// A member that answers requests at so many places in a row with an error has failed, whatever it says of its superblock, which the host may have kept.
const ERRORS_MAX: usize = 16;

impl Member {
    /// Where the device ends. One that is cut short, which is only read, ends where the filesystem counts on it to end: reads of
    /// the part that is missing fail by themselves.
    pub(crate) fn end(&self) -> u64 {
        self.device.len().max(self.counted)
    }

    /// Notes an answer that is no error.
    pub(crate) fn answered(&self) {
        if self.errors.are_some.load(Ordering::Relaxed) {
            let mut places = self.errors.places.lock();
            places.clear();
            self.errors.are_some.store(false, Ordering::Relaxed);
        }
    }

    /// Notes an error at a place. True where errors in a row say that it has failed.
    pub(crate) fn counts_as_failed(&self, at: u64) -> bool {
        let mut places = self.errors.places.lock();
        self.errors.are_some.store(true, Ordering::Relaxed);
        if places.len() < ERRORS_MAX && !places.contains(&at) {
            places.push(at);
        }
        places.len() >= ERRORS_MAX
    }

    pub(crate) fn set_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn state(&self) -> MemberState {
        match self.part {
            _ if self.has_failed() => MemberState::Failed,
            Part::Current => MemberState::Present,
            Part::Seed => MemberState::Seed,
            Part::Stale(generation) => MemberState::Stale(generation),
        }
    }
}

/// The members that were given.
#[derive(Clone)]
pub(crate) struct Members {
    all: Vec<Member>,
    /// Whether others may be missing.
    degraded: bool,
    /// Whether others are.
    some_missing: Arc<AtomicBool>,
}

impl Members {
    pub(crate) fn new(all: Vec<Member>, degraded: bool) -> Self {
        Self { all, degraded, some_missing: Arc::default() }
    }

    pub(crate) fn set_some_missing(&self) {
        self.some_missing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn are_some_missing(&self) -> bool {
        self.some_missing.load(Ordering::Relaxed)
    }

    /// Has each go through another device.
    pub(crate) fn each_device(
        &mut self,
        mut through: impl FnMut(DevId, Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice>,
    ) {
        for member in &mut self.all {
            member.device = through(member.dev, Arc::clone(&member.device));
        }
    }

    pub(crate) fn all(&self) -> &[Member] {
        &self.all
    }

    pub(crate) const fn is_degraded(&self) -> bool {
        self.degraded
    }

    pub(crate) fn get(&self, dev: DevId) -> Option<&Member> {
        self.all.iter().find(|member| member.dev == dev)
    }

    /// Whether a member missed writes, whatever became of it since.
    pub(crate) fn is_stale(&self, dev: DevId) -> bool {
        self.stopped_at(dev).is_some()
    }

    /// The last commit of a member that missed writes.
    pub(crate) fn stopped_at(&self, dev: DevId) -> Option<Generation> {
        match self.get(dev)?.part {
            Part::Stale(generation) => Some(generation),
            Part::Current | Part::Seed => None,
        }
    }

    pub(crate) fn state(&self, dev: DevId) -> MemberState {
        self.get(dev).map_or(MemberState::Missing, Member::state)
    }

    /// Whether it makes no difference which of them is asked first.
    pub(crate) fn are_alike(&self) -> bool {
        !self.some_missing.load(Ordering::Relaxed)
            && self.all.iter().all(|member| member.state() == MemberState::Present)
    }
}
