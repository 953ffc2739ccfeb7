//! The devices of a volume, each in its state.
//!
//! ```text
//! candidates --assemble--> Present | Stale | Seed          (each superblock is compared with the newest one)
//! devices that the chunk tree lists, but the caller did not give: Missing
//! Present, Stale --an answer that is an error, and no superblock to be read any more; or errors at many places in a row--> Failed
//! ```
//!
//! Reads try the members in the order of their states: present ones, then one that missed writes, then one that failed.
//! A member that missed writes may hold old bytes, intact and with their own checksum. So it is trusted only if newer metadata
//! says what must be there: the generation in the parent of a tree block, the checksum of data. A power cut between the
//! superblocks of two members leaves one of them behind by a commit whose data it has; so chunks without redundancy are trusted.
//!
//! # Invariants
//! - MEMBER-1: members of a volume have one history, as far as their superblocks and the copies of the roots show. Shown by
//!   `members_of_two_histories_are_refused`, and by `two_histories` beside Linux.
//! - MEMBER-2: no request goes to a missing member. It has no device: missing members are not in the list.
//!   Shown by `as_many_members_may_be_missing_as_the_profile_bears`.
//! - MEMBER-3: data without checksums is not taken from a member that missed writes. Excepted are chunks that cannot be written without the
//!   member, if it is behind by one commit: it has missed no write of those. A member that is further behind is an old copy. Shown by
//!   `a_member_that_missed_writes_is_believed_only_where_a_checksum_says_so` and
//!   `what_cannot_be_written_without_a_member_has_missed_nothing`.

pub(crate) mod assemble;
mod degraded;
mod one_history;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{DevId, Generation, Uuid};
use creamery_device::BlockDevice;

/// The state of a device among the devices of its filesystem.
///
/// ```
/// use creamery_volume::MemberState;
/// assert_eq!(MemberState::Missing.to_string(), "missing");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// It has the last commit.
    Present,
    /// It belongs to a seed, from which other filesystems are made.
    Seed,
    /// It missed writes: its last commit is an earlier one, of this generation.
    Stale(Generation),
    /// It stopped answering.
    Failed,
    /// It was not given.
    Missing,
}

impl MemberState {
    /// Returns the order in which members are read, the lowest first.
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

/// A device's part in the set, according to its superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemberPart {
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
    /// The bytes of the device that belong to the filesystem, by the device's superblock.
    pub(crate) counted: u64,
    pub(crate) part: MemberPart,
    /// The UUID in the tree blocks of its superblock's time: a seed has its own.
    pub(crate) metadata_uuid: Uuid,
    pub(crate) failed: Arc<AtomicBool>,
    pub(crate) errors: Arc<Errors>,
    /// Whether a block or sector on it was rewritten in place.
    pub(crate) is_rewritten: Arc<AtomicBool>,
}

/// Consecutive errors of a device.
#[derive(Default)]
pub(crate) struct Errors {
    are_some: AtomicBool,
    /// The places of the errors, bytes on the device, each place once: one bad sector is requested in many ways.
    places: RankedMutex<Vec<u64>, { rank::LEAF }>,
}

/// A member that fails at this many places in a row has failed, even if its superblock can be read: the host may have cached it.
const ERRORS_MAX: usize = 16;

impl Member {
    /// Returns the end of the device. A device that is cut short, and only read, ends where the filesystem expects it to end: reads of
    /// the missing part fail by themselves.
    pub(crate) fn end(&self) -> u64 {
        self.device.len().max(self.counted)
    }

    /// Notes a successful answer.
    pub(crate) fn answered(&self) {
        if self.errors.are_some.load(Ordering::Relaxed) {
            let mut places = self.errors.places.lock();
            places.clear();
            self.errors.are_some.store(false, Ordering::Relaxed);
        }
    }

    /// Notes an error at a place. Returns true if consecutive errors show that the member has failed.
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
            MemberPart::Current => MemberState::Present,
            MemberPart::Seed => MemberState::Seed,
            MemberPart::Stale(generation) => MemberState::Stale(generation),
        }
    }
}

/// The members that were given.
#[derive(Clone)]
pub(crate) struct Members {
    all: Vec<Member>,
    /// Whether other members may be missing.
    degraded: bool,
    /// Whether other members are missing.
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

    /// Replaces each device by the result of `through`.
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

    /// Whether a member missed writes, even if it has failed since.
    pub(crate) fn is_stale(&self, dev: DevId) -> bool {
        self.stopped_at(dev).is_some()
    }

    /// Returns the last commit of a member that missed writes.
    pub(crate) fn stopped_at(&self, dev: DevId) -> Option<Generation> {
        match self.get(dev)?.part {
            MemberPart::Stale(generation) => Some(generation),
            MemberPart::Current | MemberPart::Seed => None,
        }
    }

    pub(crate) fn state(&self, dev: DevId) -> MemberState {
        self.get(dev).map_or(MemberState::Missing, Member::state)
    }

    /// Whether the order of reads among members makes no difference.
    pub(crate) fn are_alike(&self) -> bool {
        !self.some_missing.load(Ordering::Relaxed)
            && self.all.iter().all(|member| member.state() == MemberState::Present)
    }
}
