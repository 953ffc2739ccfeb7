//! The open volume: its devices, its numbers, its map.

use std::ops::Add;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{DevId, Error, ErrorKind, Generation, Logical, Result, Uuid};
use creamery_codec::ChecksumType;
use creamery_device::{BlockDevice, DeviceId, DirectRequests};
use creamery_format::{Expected, Superblock};

use crate::chunk_map::ChunkMap;
use crate::counters::AtomicCounters;
use crate::mapping::{self, MirrorSet};
use crate::members::{Member, MemberPart, MemberState, Members};
use crate::untouched::HeldWrites;
use crate::{Chunk, Counters, Mode, Rescue};

/// A filesystem's devices, opened as one. See the crate's head.
///
/// ```
/// use creamery_base::ErrorKind;
/// use creamery_device::MemoryDevice;
/// use creamery_volume::{Mode, Volume};
/// use std::sync::Arc;
/// let error = Volume::open(vec![Arc::new(MemoryDevice::new(1 << 30))], Mode::ReadOnly).err().unwrap();
/// assert_eq!(error.kind(), ErrorKind::InvalidInput); // nothing but zeros
/// ```
pub struct Volume {
    /// Binds tokens to their volume.
    number: u64,
    mode: Mode,
    /// The damage that reading ignores.
    rescue: Rescue,
    members: Members,
    notes: RankedMutex<Vec<String>, { rank::LEAF }>,
    earlier_root: Option<EarlierRoot>,
    node_size: u32,
    sector_size: u32,
    checksum_type: ChecksumType,
    fsid: Uuid,
    metadata_uuid: Uuid,
    /// The superblock that was read or committed last.
    superblock: RankedMutex<Superblock, { rank::LEAF }>,
    chunks: ChunkMap,
    /// Shared with the writes that are under way.
    pub(crate) counters: Arc<AtomicCounters>,
    pub(crate) repairing: RankedMutex<(), { rank::REPAIR }>,
    /// Whether bad copies are rewritten, once that is decided.
    pub(crate) repairs: OnceLock<bool>,
    pub(crate) held: HeldWrites,
    /// Whether bad bytes may be rewritten in place (`mend`).
    is_mended: bool,
    /// Tree blocks with bad copies that were read before that.
    pub(crate) unrepaired: RankedMutex<Vec<Expected>, { rank::LEAF }>,
}

/// An earlier commit that is shown instead of the last one, whose trees cannot be used: changes between them may be missing.
///
/// ```
/// use creamery_base::Generation;
/// use creamery_volume::EarlierRoot;
/// let earlier = EarlierRoot { wanted: Generation::new(9), shown: Generation::new(8) };
/// assert!(earlier.shown < earlier.wanted);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EarlierRoot {
    /// The generation of the last commit.
    pub wanted: Generation,
    /// The generation of the commit that is shown.
    pub shown: Generation,
}

impl Volume {
    pub(crate) fn new(
        mut members: Members,
        mode: Mode,
        rescue: Rescue,
        superblock: Superblock,
        notes: Vec<String>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut held = HeldWrites::default();
        if mode == Mode::ReadWrite {
            members.each_device(|dev, device| held.hold(dev, device));
        }
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            mode,
            rescue,
            members,
            notes: RankedMutex::new(notes),
            earlier_root: None,
            node_size: superblock.node_size(),
            sector_size: superblock.sector_size(),
            checksum_type: superblock.checksum_type(),
            fsid: superblock.fsid(),
            metadata_uuid: superblock.metadata_uuid(),
            superblock: RankedMutex::new(superblock),
            chunks: ChunkMap::default(),
            counters: Arc::default(),
            repairing: RankedMutex::new(()),
            repairs: OnceLock::new(),
            held,
            is_mended: false,
            unrepaired: RankedMutex::new(Vec::new()),
        }
    }

    /// Allows bad bytes to be rewritten in place (`mend`).
    pub(crate) fn that_mends(self) -> Self {
        Self { is_mended: true, ..self }
    }

    pub(crate) const fn is_mended(&self) -> bool {
        self.is_mended
    }

    /// Bytes of a tree block.
    #[must_use]
    pub const fn node_size(&self) -> u32 {
        self.node_size
    }

    /// Bytes of a sector, the unit of data and checksums.
    #[must_use]
    pub const fn sector_size(&self) -> u32 {
        self.sector_size
    }

    /// The checksum of blocks and data.
    #[must_use]
    pub const fn checksum_type(&self) -> ChecksumType {
        self.checksum_type
    }

    /// The id that a user sees.
    #[must_use]
    pub const fn fsid(&self) -> Uuid {
        self.fsid
    }

    /// The id in the header of every tree block; mostly the same as [`fsid`](Self::fsid).
    #[must_use]
    pub const fn metadata_uuid(&self) -> Uuid {
        self.metadata_uuid
    }

    /// How it was opened.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the damage that reading ignores.
    #[must_use]
    pub const fn rescue(&self) -> Rescue {
        self.rescue
    }

    /// Returns the problems that opening ignored: damaged superblock copies, a wrong number of devices, and states that only reading may
    /// ignore. One sentence each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().clone()
    }

    /// Marks the volume as showing an earlier commit.
    pub(crate) fn shown_for(self, is: EarlierRoot) -> Self {
        Self { earlier_root: Some(is), ..self }
    }

    /// Returns the earlier commit that is shown, if it is not the last one ([`by_newest_usable_root`](Self::by_newest_usable_root)).
    #[must_use]
    pub const fn earlier_root(&self) -> Option<EarlierRoot> {
        self.earlier_root
    }

    /// Adds a note, for code that opens something on the volume.
    pub fn note(&self, note: String) {
        self.notes.lock().push(note);
    }

    /// Adds a note that may be there already.
    pub(crate) fn note_once(&self, note: String) {
        let mut notes = self.notes.lock();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    /// Whether other filesystems are made from it, so that it must not be written.
    #[must_use]
    pub fn is_seed(&self) -> bool {
        self.superblock().flags().contains(creamery_format::SuperFlags::SEEDING)
    }

    /// A copy of the superblock of the last commit.
    #[must_use]
    pub fn superblock(&self) -> Superblock {
        self.superblock.lock().clone()
    }

    /// The generation of the last commit, and the features that it needs.
    pub(crate) fn last_commit(&self) -> (Generation, creamery_format::Incompat) {
        let superblock = self.superblock.lock();
        (superblock.generation(), superblock.incompat())
    }

    /// The generation of the last commit.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.superblock.lock().generation()
    }

    /// Returns the counts since the volume was opened.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let direct = self.members().all().iter().map(|member| member.device.direct_requests());
        self.counters.snapshot(direct.fold(DirectRequests::default(), Add::add))
    }

    /// The devices, for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        let names: Vec<String> = self.members.all().iter().map(|member| member.device.describe()).collect();
        names.join(", ")
    }

    /// Returns the state of the device with this id.
    #[must_use]
    pub fn member_state(&self, dev: DevId) -> MemberState {
        self.members.state(dev)
    }

    /// The device with this id, unless it is missing.
    #[must_use]
    pub fn device(&self, dev: DevId) -> Option<Arc<dyn BlockDevice>> {
        self.member(dev).ok().map(|member| Arc::clone(&member.device))
    }

    /// Returns the end of the device with this id, in bytes; `None` if it is missing. A device that is cut short ends where its superblock
    /// says.
    #[must_use]
    pub fn device_end(&self, dev: DevId) -> Option<u64> {
        self.member(dev).ok().map(Member::end)
    }

    /// Returns the identities of its devices.
    #[must_use]
    pub fn device_ids(&self) -> Vec<DeviceId> {
        self.members.all().iter().map(|member| member.device.id()).collect()
    }

    /// Returns the size of all devices, bytes.
    #[must_use]
    pub fn devices_len(&self) -> u64 {
        self.members.all().iter().fold(0, |sum, member| member.device.len().saturating_add(sum))
    }

    /// Returns the memory of the map of chunks, bytes.
    #[must_use]
    pub fn chunk_map_memory(&self) -> u64 {
        self.chunks.memory()
    }

    /// Returns the memory of writes that wait for the first change, bytes.
    #[must_use]
    pub fn held_memory(&self) -> u64 {
        self.held.memory()
    }

    /// Adds a chunk to the map. An equal chunk that is there already is no error.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if it overlaps another one or a stripe leaves its device; [`ErrorKind::Unsupported`] for RAID5 and RAID6 in a
    /// volume that is open for writing. The map is unchanged.
    pub fn push_chunk(&self, chunk: Chunk) -> Result<()> {
        self.push_chunks([chunk])
    }

    /// Adds many chunks: all of them or none.
    ///
    /// # Errors
    /// Those of [`push_chunk`](Self::push_chunk).
    pub fn push_chunks(&self, chunks: impl IntoIterator<Item = Chunk>) -> Result<()> {
        let chunks: Vec<Chunk> = chunks.into_iter().collect();
        if let Some(chunk) = chunks.iter().find(|chunk| self.mode == Mode::ReadWrite && chunk.has_parity()) {
            let what =
                format!("writing to a filesystem with parity: chunk {} is {}", chunk.start, chunk.flags);
            return Err(Error::unsupported(what).advise("mount it with -o ro, or use Linux to write to it"));
        }
        chunks.iter().try_for_each(|chunk| self.check_stripes(chunk))?;
        self.chunks.push(chunks)
    }

    /// Removes the chunk that begins at `start` from the map, and returns it.
    pub fn remove_chunk(&self, start: Logical) -> Option<Arc<Chunk>> {
        self.chunks.remove(start)
    }

    /// Returns the chunk that covers `at`.
    #[must_use]
    pub fn chunk_at(&self, at: Logical) -> Option<Arc<Chunk>> {
        self.chunks.at(at)
    }

    /// All chunks, by address.
    #[must_use]
    pub fn chunks(&self) -> Vec<Arc<Chunk>> {
        self.chunks.all()
    }

    /// The chunk at the highest address.
    #[must_use]
    pub fn last_chunk(&self) -> Option<Arc<Chunk>> {
        self.chunks.last()
    }

    /// Returns the places of the copies of `[at, at + len)`. Data with parity has one copy; [`ways`](Self::ways) also has the ways to
    /// rebuild it.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if no chunk covers the range (addresses come from the disk).
    pub fn map(&self, at: Logical, len: u64) -> Result<MirrorSet> {
        match self.chunks.at(at) {
            Some(chunk) => mapping::map(&chunk, at, len),
            None => Err(Error::new(ErrorKind::Corrupt, format!("no chunk covers logical {at}"))),
        }
    }

    /// VOL-4, the second half. A stripe on a device that is missing cannot be checked.
    fn check_stripes(&self, chunk: &Chunk) -> Result<()> {
        // Parity cannot bring two stripes of one lost device back; and there are as many ways to rebuild as readable stripes.
        let mut devices: Vec<DevId> = chunk.stripes.iter().map(|stripe| stripe.dev).collect();
        devices.sort_unstable();
        if let Some(twice) = devices.windows(2).find(|pair| chunk.has_parity() && pair[0] == pair[1]) {
            let (start, dev) = (chunk.start, twice[0]);
            let what = format!("corrupt chunk: logical={start}, two stripes of parity on device {dev}");
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        for (number, stripe) in chunk.stripes.iter().enumerate() {
            let Ok(member) = self.member(stripe.dev) else { continue };
            let wrong = |what: String| {
                let place = format!("corrupt chunk: logical={} stripe={number}, {what}", chunk.start);
                Err(Error::new(ErrorKind::Corrupt, place))
            };
            if stripe.dev_uuid != member.uuid && member.part == MemberPart::Seed {
                let name = member.device.describe();
                return Err(Error::invalid(format!(
                    "{name} is a seed that filesystem {} was not made from",
                    self.fsid
                )));
            }
            if stripe.dev_uuid != member.uuid {
                return wrong(format!(
                    "wrong device uuid, expected {}, found {}",
                    member.uuid, stripe.dev_uuid
                ));
            }
            let end = stripe.offset + chunk.stripe_bytes();
            let max = member.end();
            if end > max {
                return wrong(format!(
                    "ends beyond device {}, expected [0, {max}], found end {end}",
                    stripe.dev
                ));
            }
        }
        Ok(())
    }

    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    pub(crate) const fn members(&self) -> &Members {
        &self.members
    }

    pub(crate) fn member(&self, dev: DevId) -> Result<&Member> {
        self.members.get(dev).ok_or_else(|| {
            Error::new(ErrorKind::DeviceMissing, format!("device {dev} of filesystem {}", self.fsid))
        })
    }

    pub(crate) fn set_superblock(&self, superblock: Superblock) {
        *self.superblock.lock() = superblock;
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.mode {
            Mode::ReadWrite => Ok(()),
            Mode::ReadOnly => {
                Err(Error::new(ErrorKind::ReadOnly, format!("{} is open read-only", self.fsid)))
            }
        }
    }
}
