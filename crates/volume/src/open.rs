//! Opening: reading the superblocks, judging features and states, and the first chunks of the map.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::BlockDevice;
use creamery_format::{SuperFlags, Superblock};

use crate::copies::{self, FoundSuperblock, OpenPurpose};
use crate::members::assemble::{Candidate, assemble};
use crate::members::{Member, MemberPart, Members};
use crate::volume::{EarlierRoot, Volume};
use crate::{Chunk, DeviceSet, Rescue};

/// The purpose of opening a volume.
///
/// ```
/// use creamery_volume::Mode;
/// assert_ne!(Mode::ReadOnly, Mode::ReadWrite);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Nothing is written, not even a repair. States that cannot be continued are ignored with a note.
    ReadOnly,
    /// Commits and repairs. Fails in states that cannot be continued.
    ReadWrite,
}

impl Volume {
    /// Opens the filesystem on these devices, given in any order.
    ///
    /// # Errors
    /// One line with the device and the reason: [`ErrorKind::InvalidInput`] for a device without a Btrfs,
    /// [`ErrorKind::Corrupt`] for a damaged one, [`ErrorKind::Unsupported`] with the name of a feature or state
    /// that does not allow `mode` (a damaged first superblock does not allow writing), [`ErrorKind::DeviceMissing`] for a missing device
    /// that holds the chunk tree. After reading the chunk tree, call [`judge_devices`](Self::judge_devices) to check for the others.
    pub fn open(devices: impl Into<DeviceSet>, mode: Mode) -> Result<Self> {
        let want = match mode {
            Mode::ReadOnly => OpenPurpose::Reading,
            Mode::ReadWrite => OpenPurpose::Writing,
        };
        Self::open_found(find_all(&devices.into(), want)?, mode, Rescue::default())
    }

    /// Opens the filesystem for reading, and ignores the damage that `rescue` allows.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), except the ignored ones.
    pub fn open_for_rescue(devices: impl Into<DeviceSet>, rescue: Rescue) -> Result<Self> {
        Self::open_found(find_all(&devices.into(), OpenPurpose::Reading)?, Mode::ReadOnly, rescue)
    }

    /// Opens the filesystem for writing, even if the first superblock is damaged and a copy is good: fsyncs after the copy's
    /// generation are lost.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_by_copy(devices: impl Into<DeviceSet>) -> Result<Self> {
        Self::open_found(
            find_all(&devices.into(), OpenPurpose::WritingByCopy)?,
            Mode::ReadWrite,
            Rescue::default(),
        )
    }

    /// Opens the filesystem on writable devices, for reading and for rewriting bad bytes in place ([`mender`](Self::mender)). Nothing is
    /// committed.
    ///
    /// # Errors
    /// Those of [`open`](Self::open) for writing, but several devices and parity are allowed.
    pub fn open_for_mending(devices: impl Into<DeviceSet>) -> Result<Self> {
        let found = find_all(&devices.into(), OpenPurpose::Writing)?;
        for (device, found) in &found.all {
            judge(&found.superblock, Mode::ReadWrite, Rescue::default())
                .map_err(|error| error.context(device.describe()))?;
        }
        Ok(Self::open_found(found, Mode::ReadOnly, Rescue::default())?.that_mends())
    }

    pub(crate) fn open_found(candidates: OpenCandidates, mode: Mode, rescue: Rescue) -> Result<Self> {
        let found = assemble(candidates.all)?;
        let Some(((first, newest), _)) = found.first() else { return Err(Error::invalid("no device given")) };
        let name = first.describe();
        let superblock = candidates.led_by.unwrap_or_else(|| newest.superblock.clone());
        let mut notes = candidates.notes;
        notes.extend(judge(&superblock, mode, rescue).map_err(|error| error.context(&name))?);
        let mut members: Vec<Member> = Vec::new();
        for ((device, found), part) in found {
            let member = member(device, &found.superblock, part);
            if let Some((found, want)) = cut_short(&member) {
                let what = format!(
                    "{}: the device ends before the filesystem: expected {want} bytes, found {found}",
                    member.device.describe()
                );
                match mode {
                    Mode::ReadOnly => notes.push(format!("{what}; the part behind its end cannot be read")),
                    Mode::ReadWrite => {
                        let advice = format!(
                            "the filesystem can be read: copy files out with `creamery cp` or `creamery restore`, or mount it with -o ro; \
                             to write to it have its device be {want} bytes long again"
                        );
                        return Err(Error::new(ErrorKind::Corrupt, what).advise(advice));
                    }
                }
            }
            notes.extend(found.notes.into_iter().map(|note| format!("{}: {note}", member.device.describe())));
            notes.extend(member.device.notes());
            members.push(member);
        }
        if members.len() > 1 && mode == Mode::ReadWrite {
            let counted = usize::try_from(superblock.device_count()).unwrap_or(members.len());
            return Err(only_read(members.len().max(counted)).context(name));
        }
        let members = Members::new(members, candidates.degraded);
        let volume = Self::new(members, mode, rescue, superblock, notes);
        volume.push_system_chunks().map_err(|error| error.context(&name))?;
        Ok(volume)
    }
}

impl Volume {
    /// Calls `open` with this volume, whose root tree may be damaged. If that fails with the superblock's own roots, tries the roots of its
    /// backups, the newest first. The volume then shows an earlier commit, with a note, and returns it as
    /// [`earlier_root`](Self::earlier_root). `open` gets a new volume for each try, for reading only.
    ///
    /// # Errors
    /// That of the superblock's own roots, if no backup works.
    ///
    /// # Panics
    /// If this volume is open for writing: blocks of an earlier commit may be in use again.
    pub fn by_newest_usable_root<T>(&self, mut open: impl FnMut(Self) -> Result<T>) -> Result<T> {
        assert!(self.mode() == Mode::ReadOnly, "who goes by an earlier root only reads");
        let last = self.superblock();
        let failure = match self.going_by(last.clone(), None).and_then(&mut open) {
            // No earlier root brings a device back, or makes one history of two.
            Err(error) if matches!(error.kind(), ErrorKind::DeviceMissing | ErrorKind::Unsupported) => {
                return Err(error);
            }
            Err(error) => error,
            opened => return opened,
        };
        for earlier in last.backups() {
            let (generation, of) = (last.generation(), earlier.generation());
            let note = format!(
                "the trees of generation {generation} cannot be used ({failure}); generation {of} is shown, which a backup of the \
                 superblock's leads to"
            );
            let is = EarlierRoot { wanted: generation, shown: of };
            let going_by = self.going_by(earlier, Some(note)).map(|volume| volume.shown_for(is));
            if let Ok(opened) = going_by.and_then(&mut open) {
                return Ok(opened);
            }
        }
        Err(failure.context("no backup of the root tree can be used either"))
    }

    /// Returns a volume on the same devices with another superblock, for reading.
    pub(crate) fn going_by(&self, superblock: Superblock, note: Option<String>) -> Result<Self> {
        let members = self.members().clone();
        let notes = self.notes().into_iter().chain(note).collect();
        let volume = Self::new(members, Mode::ReadOnly, self.rescue(), superblock, notes);
        volume.push_system_chunks()?;
        Ok(volume)
    }
}

/// The given devices, with their superblocks.
pub(crate) struct OpenCandidates {
    all: Vec<Candidate>,
    degraded: bool,
    notes: Vec<String>,
    /// The superblock that leads, if it is not the newest.
    led_by: Option<Superblock>,
}

impl OpenCandidates {
    /// Returns the devices of a set; `superblock` of the first one leads. If that device has no other superblock, it also
    /// decides the device's state.
    pub(crate) fn led_by(set: &DeviceSet, superblock: Superblock) -> Result<Self> {
        let Some((first, others)) = set.devices().split_first() else {
            return Err(Error::invalid("no device given"));
        };
        let own = copies::find(&**first, OpenPurpose::Reading);
        let found =
            own.unwrap_or_else(|_| FoundSuperblock { superblock: superblock.clone(), notes: Vec::new() });
        let found = FoundSuperblock { notes: Vec::new(), ..found };
        let mut all = find_all(&others.iter().cloned().collect(), OpenPurpose::Reading)?;
        all.all.insert(0, (Arc::clone(first), found));
        Ok(Self { degraded: set.is_degraded(), notes: set.notes().to_vec(), led_by: Some(superblock), ..all })
    }
}

impl From<Candidate> for OpenCandidates {
    fn from(one: Candidate) -> Self {
        Self { all: vec![one], degraded: false, notes: Vec::new(), led_by: None }
    }
}

pub(crate) fn find_all(set: &DeviceSet, want: OpenPurpose) -> Result<OpenCandidates> {
    let find = |device: &Arc<dyn BlockDevice>| {
        copies::find(&**device, want).map(|found| (Arc::clone(device), found))
    };
    let all = set.devices().iter().map(find).collect::<Result<_>>()?;
    Ok(OpenCandidates { all, degraded: set.is_degraded(), notes: set.notes().to_vec(), led_by: None })
}

impl Volume {
    /// Maps the system chunks, which hold the chunk tree. The chunk tree lists the other devices, so it has to be readable.
    fn push_system_chunks(&self) -> Result<()> {
        let chunks = system_chunks(&self.superblock())?;
        let stripes = chunks.iter().flat_map(|chunk| &chunk.stripes);
        let mut devices: Vec<_> = stripes.map(|stripe| stripe.dev).collect();
        devices.sort_unstable();
        devices.dedup();
        self.push_chunks(chunks)?;
        // The chunk tree has to be readable, because it lists all devices. The note is dropped: the chunk tree knows the missing ones.
        self.expect_devices(&devices).map(drop)
    }
}

fn member(device: Arc<dyn BlockDevice>, superblock: &Superblock, part: MemberPart) -> Member {
    let item = superblock.dev_item();
    Member {
        dev: item.dev_id(),
        uuid: item.uuid(),
        device,
        counted: item.total_bytes.get(),
        part,
        metadata_uuid: superblock.metadata_uuid(),
        failed: Arc::default(),
        errors: Arc::default(),
        is_rewritten: Arc::default(),
    }
}

/// Returns the error for writing to a filesystem of several devices.
pub(crate) fn only_read(devices: usize) -> Error {
    Error::unsupported(format!("writing to a filesystem of {devices} devices"))
        .advise("mount it with -o ro, or use Linux to write to it")
}

/// Returns the bytes of a device and those that its superblock counts, if the device has fewer.
pub(crate) fn cut_short(member: &Member) -> Option<(u64, u64)> {
    let (found, want) = (member.device.len(), member.counted);
    (found < want).then_some((found, want))
}

/// Fails for features and states that `mode` must not touch, by name. Returns notes on the ones that it ignores.
pub(crate) fn judge(superblock: &Superblock, mode: Mode, rescue: Rescue) -> Result<Vec<String>> {
    let unknown = superblock.incompat().unsupported();
    if !unknown.is_empty() {
        return Err(Error::unsupported(format!("incompat feature {unknown}")));
    }
    if superblock.flags().contains(SuperFlags::CHANGING_FSID) {
        let what = "an unfinished change of the UUID (CHANGING_FSID), so its tree blocks have the old one or the new; \
                    `creamery tune -u` finishes it";
        return Err(Error::unsupported(what));
    }
    let unreadable = superblock.flags() & SuperFlags::CHANGING_BG_TREE;
    if !unreadable.is_empty() && !rescue.ignore_super_flags {
        // Linux does not even read it: no tree has all block groups.
        let what =
            "an unfinished move of block groups between trees (CHANGING_BG_TREE); btrfstune can finish it";
        return Err(Error::unsupported(what));
    }
    let mut states = Vec::new();
    let compat_ro = superblock.compat_ro().unsupported();
    if !compat_ro.is_empty() {
        states.push(format!("compat_ro feature {compat_ro}"));
    }
    // A writer replays it.
    if superblock.log_root().is_some() && mode == Mode::ReadOnly {
        states.push("a log to replay".to_owned());
    }
    let unfinished = superblock.flags() & (unfinished_states() | unreadable);
    if !unfinished.is_empty() {
        let why = if unfinished.contains(SuperFlags::SEEDING) { SEED } else { "" };
        states.push(format!("the state {unfinished}{why}"));
    }
    match (mode, states.is_empty()) {
        (Mode::ReadWrite, false) => {
            Err(Error::unsupported(format!("writing to a filesystem that has {}", states.join(", and "))))
        }
        _ => Ok(states.into_iter().map(|state| format!("passed over for reading: {state}")).collect()),
    }
}

/// The explanation of the seed state for users.
const SEED: &str = " (a seed is read-only; `creamery tune -f -S 0` makes it writable)";

/// Flags of filesystems that only the tool that set them may write.
fn unfinished_states() -> SuperFlags {
    SuperFlags::SEEDING
        | SuperFlags::METADUMP
        | SuperFlags::METADUMP_V2
        | SuperFlags::CHANGING_FSID_V2
        | SuperFlags::CHANGING_DATA_CSUM
        | SuperFlags::CHANGING_META_CSUM
}

/// Parses the system chunks, which hold the chunk tree, from the superblock.
fn system_chunks(superblock: &Superblock) -> Result<Vec<Chunk>> {
    let array = superblock.sys_chunks().map(|entry| match entry {
        Ok((key, view)) => Chunk::from_view(key.offset.into(), &view, superblock.sector_size()),
        Err(kind) => Err(Error::with_source(ErrorKind::Corrupt, "corrupt system chunk array", kind)),
    });
    array.collect()
}
