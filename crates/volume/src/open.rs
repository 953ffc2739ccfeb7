//! Opening: reading the superblocks, judging features and states, and the first chunks of the map.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::BlockDevice;
use creamery_format::{SuperFlags, Superblock};

use crate::copies::{self, Found, Want};
use crate::members::assemble::{Candidate, assemble};
use crate::members::{Member, Members, Part};
use crate::volume::{EarlierRoot, Volume};
use crate::{Chunk, DeviceSet, Rescue};

/// What the volume is opened for.
///
/// ```
/// use creamery_volume::Mode;
/// assert_ne!(Mode::ReadOnly, Mode::ReadWrite);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Nothing is written, not even a repair. States that cannot be continued are passed over with a note.
    ReadOnly,
    /// Commits and repairs. Refused in states that cannot be continued.
    ReadWrite,
}

impl Volume {
    /// Opens the filesystem whose devices these are, in any order.
    ///
    /// # Errors
    /// One line with the device and what is wrong: [`ErrorKind::InvalidInput`] for what is no Btrfs,
    /// [`ErrorKind::Corrupt`] for a damaged one, [`ErrorKind::Unsupported`] with the name of a feature or state
    /// that does not allow `mode` (a damaged first superblock does not allow writing), [`ErrorKind::DeviceMissing`] through which the others are found. Who has
    /// read the chunk tree asks for the others with [`judge_devices`](Self::judge_devices).
    pub fn open(devices: impl Into<DeviceSet>, mode: Mode) -> Result<Self> {
        let want = match mode {
            Mode::ReadOnly => Want::Reading,
            Mode::ReadWrite => Want::Writing,
        };
        Self::open_found(find_all(&devices.into(), want)?, mode, Rescue::default())
    }

    /// Opens it for reading, and passes over what `rescue` says.
    ///
    /// # Errors
    /// As [`open`](Self::open), but for what is passed over.
    pub fn open_for_rescue(devices: impl Into<DeviceSet>, rescue: Rescue) -> Result<Self> {
        Self::open_found(find_all(&devices.into(), Want::Reading)?, Mode::ReadOnly, rescue)
    }

    /// Opens it for writing, also where the first superblock is damaged and a copy is whole: what was synced after the copy's
    /// generation is given up.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_by_copy(devices: impl Into<DeviceSet>) -> Result<Self> {
        Self::open_found(find_all(&devices.into(), Want::WritingByCopy)?, Mode::ReadWrite, Rescue::default())
    }

    /// Opens the filesystem on devices that can be written, for reading and for rewriting in place what is bad ([`mender`](Self::mender)). Nothing is
    /// committed.
    ///
    /// # Errors
    /// As [`open`](Self::open) for writing, but that there may be several devices, and parity.
    pub fn open_for_mending(devices: impl Into<DeviceSet>) -> Result<Self> {
        let found = find_all(&devices.into(), Want::Writing)?;
        for (device, found) in &found.all {
            judge(&found.superblock, Mode::ReadWrite, Rescue::default())
                .map_err(|error| error.context(device.describe()))?;
        }
        Ok(Self::open_found(found, Mode::ReadOnly, Rescue::default())?.that_mends())
    }

    pub(crate) fn open_found(candidates: Candidates, mode: Mode, rescue: Rescue) -> Result<Self> {
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
                    "{}: the device ends before the filesystem: it has {found} bytes, the filesystem on it {want}",
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
    /// Opens something on this volume, whose root tree may be damaged: if that fails by the superblock's own roots, by those of the
    /// newest of its backups by which it does not. What is shown then is an earlier commit, which the volume notes, and has as
    /// [`earlier_root`](Self::earlier_root). `open` is given the volume anew each time, for reading only.
    ///
    /// # Errors
    /// That of the superblock's own roots, when none leads anywhere.
    ///
    /// # Panics
    /// When this volume is open for writing: blocks of an earlier commit may be in use again.
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

    /// The same devices with another superblock, for reading.
    pub(crate) fn going_by(&self, superblock: Superblock, note: Option<String>) -> Result<Self> {
        let members = self.members().clone();
        let notes = self.notes().into_iter().chain(note).collect();
        let volume = Self::new(members, Mode::ReadOnly, self.rescue(), superblock, notes);
        volume.push_system_chunks()?;
        Ok(volume)
    }
}

/// The devices that are given, with their superblocks.
pub(crate) struct Candidates {
    all: Vec<Candidate>,
    degraded: bool,
    notes: Vec<String>,
    /// The superblock that leads, if that is not the newest.
    led_by: Option<Superblock>,
}

impl Candidates {
    /// The devices of a set, of which the first one has a superblock that leads, whatever others say. Where that device has no other, it is also
    /// the one that its state goes by.
    pub(crate) fn led_by(set: &DeviceSet, superblock: Superblock) -> Result<Self> {
        let Some((first, others)) = set.devices().split_first() else {
            return Err(Error::invalid("no device given"));
        };
        let own = copies::find(&**first, Want::Reading);
        let found = own.unwrap_or_else(|_| Found { superblock: superblock.clone(), notes: Vec::new() });
        let found = Found { notes: Vec::new(), ..found };
        let mut all = find_all(&others.iter().cloned().collect(), Want::Reading)?;
        all.all.insert(0, (Arc::clone(first), found));
        Ok(Self { degraded: set.is_degraded(), notes: set.notes().to_vec(), led_by: Some(superblock), ..all })
    }
}

impl From<Candidate> for Candidates {
    fn from(one: Candidate) -> Self {
        Self { all: vec![one], degraded: false, notes: Vec::new(), led_by: None }
    }
}

pub(crate) fn find_all(set: &DeviceSet, want: Want) -> Result<Candidates> {
    let find = |device: &Arc<dyn BlockDevice>| {
        copies::find(&**device, want).map(|found| (Arc::clone(device), found))
    };
    let all = set.devices().iter().map(find).collect::<Result<_>>()?;
    Ok(Candidates { all, degraded: set.is_degraded(), notes: set.notes().to_vec(), led_by: None })
}

impl Volume {
    /// Maps the chunks through which the chunk tree is found. It knows the other devices, so it has to be readable.
    fn push_system_chunks(&self) -> Result<()> {
        let chunks = system_chunks(&self.superblock())?;
        let stripes = chunks.iter().flat_map(|chunk| &chunk.stripes);
        let mut devices: Vec<_> = stripes.map(|stripe| stripe.dev).collect();
        devices.sort_unstable();
        devices.dedup();
        self.push_chunks(chunks)?;
        // The chunk tree, which knows all of them, has to be readable; what is to be said of those that are missing, it knows.
        self.expect_devices(&devices).map(drop)
    }
}

fn member(device: Arc<dyn BlockDevice>, superblock: &Superblock, part: Part) -> Member {
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

/// Why a filesystem of so many devices is not opened for writing.
pub(crate) fn only_read(devices: usize) -> Error {
    Error::unsupported(format!("writing to a filesystem of {devices} devices"))
        .advise("it can be read: mount it with -o ro; use Linux to write to it")
}

/// The bytes that a device has and those that its superblock counts, when it has fewer.
pub(crate) fn cut_short(member: &Member) -> Option<(u64, u64)> {
    let (found, want) = (member.device.len(), member.counted);
    (found < want).then_some((found, want))
}

/// Refuses what `mode` must not touch, by name, and lists what it passes over.
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
        // Linux does not even read it: no tree knows all block groups.
        let what =
            "an unfinished move of block groups between trees (CHANGING_BG_TREE); btrfstune can finish it";
        return Err(Error::unsupported(what));
    }
    let mut states = Vec::new();
    let compat_ro = superblock.compat_ro().unsupported();
    if !compat_ro.is_empty() {
        states.push(format!("compat_ro feature {compat_ro}"));
    }
    // Who may write replays it.
    if superblock.log_root().is_some() && mode == Mode::ReadOnly {
        states.push("a log to replay, with what was synced after the last commit".to_owned());
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

/// What one of the states means to people.
const SEED: &str = " (it is a seed, which others are made from, and is only read; `creamery tune -f -S 0` makes it writable again)";

/// Flags of filesystems that are not to be written to by anybody but the tool that set them.
fn unfinished_states() -> SuperFlags {
    SuperFlags::SEEDING
        | SuperFlags::METADUMP
        | SuperFlags::METADUMP_V2
        | SuperFlags::CHANGING_FSID_V2
        | SuperFlags::CHANGING_DATA_CSUM
        | SuperFlags::CHANGING_META_CSUM
}

/// The chunks through which the chunk tree is found.
fn system_chunks(superblock: &Superblock) -> Result<Vec<Chunk>> {
    let array = superblock.sys_chunks().map(|entry| match entry {
        Ok((key, view)) => Chunk::from_view(key.offset.into(), &view, superblock.sector_size()),
        Err(kind) => Err(Error::with_source(ErrorKind::Corrupt, "corrupt system chunk array", kind)),
    });
    array.collect()
}
