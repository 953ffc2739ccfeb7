//! Choosing the superblock copy of a device.
//!
//! The first copy counts, whenever it is good. Linux mounts from no other, so another copy may be from a history that
//! Linux has left behind, and a newer one proves nothing. If the first copy cannot be read at all, it may be good
//! and newer than the others, so opening for writing fails: going on from another copy would give up commits. If it is damaged (its magic
//! number is there, but other fields are invalid), readers get the newest good copy, with a note. No copy but the first leads to the log of
//! fsyncs after the last commit, so a writer would lose it: opening for writing fails unless the caller asked to go on from a copy. If
//! there is no magic number, the device may have another use by now: the error names a recognised format, and at most a
//! reader gets to see the old filesystem.

use std::fmt;

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::{BlockDevice, PartitionTable};
use creamery_format::{
    SIGNATURES_END, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, Signature, Superblock, SuperblockError,
    find_another_signature, find_signature,
};

/// The purpose of opening a filesystem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OpenPurpose {
    Reading,
    Writing,
    /// Writing, even without the data that only a damaged first superblock leads to.
    WritingByCopy,
}

/// The reason why a device is not opened. The message is the whole line except for the device's name.
#[derive(Debug)]
enum Refusal {
    Empty,
    TooSmall {
        len: u64,
    },
    /// A Btrfs whose first superblock is incomplete.
    CutShort {
        len: u64,
    },
    Foreign {
        what: &'static Signature,
    },
    Partitioned {
        what: &'static Signature,
        advice: String,
    },
    Zeros,
    Random,
    Overwritten {
        copy: u64,
        generation: u64,
    },
    Damaged {
        copies: Vec<(u64, String)>,
    },
    FirstDamaged {
        first: u64,
        reason: String,
        copy: u64,
        generation: u64,
    },
    Unreadable {
        offset: u64,
        error: Error,
    },
}

impl Refusal {
    const fn kind(&self) -> ErrorKind {
        match self {
            Self::Overwritten { .. } | Self::Damaged { .. } | Self::CutShort { .. } => ErrorKind::Corrupt,
            Self::FirstDamaged { .. } => ErrorKind::Unsupported,
            Self::Unreadable { error, .. } => error.kind(),
            _ => ErrorKind::InvalidInput,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("no Btrfs filesystem: it is empty"),
            Self::TooSmall { len } => {
                let end = SUPERBLOCK_OFFSETS[0] + SUPERBLOCK_LEN as u64;
                write!(f, "no Btrfs filesystem: it has {len} bytes, expected at least {end}")
            }
            Self::CutShort { len } => {
                let end = SUPERBLOCK_OFFSETS[0] + SUPERBLOCK_LEN as u64;
                write!(
                    f,
                    "truncated Btrfs filesystem: it has {len} bytes, expected at least {end}; \
                     nothing of it can be read: copy it again"
                )
            }
            Self::Foreign { what: Signature { name, advice, .. } } => {
                write!(f, "no Btrfs filesystem: it holds {name}")?;
                advice.iter().try_for_each(|advice| write!(f, ", {advice}"))
            }
            Self::Partitioned { what: Signature { name, .. }, advice } => {
                write!(f, "no Btrfs filesystem: it holds {name}; {advice}")
            }
            Self::Zeros => f.write_str("no Btrfs filesystem: zeros where the superblock would be"),
            Self::Random => {
                f.write_str("no Btrfs filesystem: no superblock magic, and no other known format")
            }
            Self::Overwritten { copy, generation } => write!(
                f,
                "the first superblock was overwritten, while the copy at {copy} is whole (generation {generation}): \
                 open it read-only, or restore the first one with `creamery rescue super-recover`"
            ),
            Self::Unreadable { offset, error } => write!(
                f,
                "the superblock at {offset} cannot be read, and the copies of it may be older: {error}; open it read-only"
            ),
            Self::FirstDamaged { first, reason, copy, generation } => write!(
                f,
                "the superblock at {first} is damaged ({reason}); the copy at {copy} of generation {generation} is whole, but \
                 only the first one leads to later changes: open it read-only, or give those up: \
                 write from the copy with usesupercopy, or restore the first one with `creamery rescue super-recover`"
            ),
            Self::Damaged { copies } => {
                f.write_str("no superblock copy is whole")?;
                let mut between = ": ";
                for (offset, reason) in copies {
                    write!(f, "{between}at {offset}: {reason}")?;
                    between = "; ";
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// The superblock that counts, and notes about the others.
#[derive(Clone)]
pub(crate) struct FoundSuperblock {
    pub(crate) superblock: Superblock,
    pub(crate) notes: Vec<String>,
}

/// The content of one copy's place.
pub(crate) enum Copy {
    Whole(Box<Superblock>),
    NoMagic { zeros: bool },
    Damaged(String),
    Unreadable(Error),
}

impl Copy {
    pub(crate) fn read(device: &dyn BlockDevice, offset: u64) -> Self {
        let mut bytes = vec![0; SUPERBLOCK_LEN];
        if let Err(error) = device.read_at(offset, &mut bytes) {
            return Self::Unreadable(error);
        }
        match Superblock::from_bytes(&bytes, offset) {
            Ok(superblock) => Self::Whole(Box::new(superblock)),
            Err(SuperblockError::Magic) => Self::NoMagic { zeros: bytes.iter().all(|&byte| byte == 0) },
            Err(error) => Self::Damaged(error.to_string()),
        }
    }
}

/// Reads all copies of `device` and chooses one.
pub(crate) fn find(device: &dyn BlockDevice, want: OpenPurpose) -> Result<FoundSuperblock> {
    decide(device, want).map_err(|refusal| Error::with_source(refusal.kind(), device.describe(), refusal))
}

fn decide(device: &dyn BlockDevice, want: OpenPurpose) -> Result<FoundSuperblock, Refusal> {
    let fits = |&offset: &u64| offset + SUPERBLOCK_LEN as u64 <= device.len();
    let offsets = SUPERBLOCK_OFFSETS.into_iter().filter(fits);
    let mut copies: Vec<(u64, Copy)> = offsets.map(|offset| (offset, Copy::read(device, offset))).collect();
    if copies.is_empty() {
        return Err(match (device.len(), recognise(device)) {
            (0, _) => Refusal::Empty,
            (len, Some(what)) if what.is_btrfs() => Refusal::CutShort { len },
            (_, Some(what)) => foreign(device, what),
            (len, None) => Refusal::TooSmall { len },
        });
    }
    let others = copies.split_off(1);
    match copies.remove(0) {
        (_, Copy::Whole(superblock)) => {
            let notes = notes_on_others(&superblock, &others);
            Ok(FoundSuperblock { superblock: *superblock, notes })
        }
        (offset, Copy::Unreadable(error)) => match newest(&others) {
            Some((copy, superblock)) if want == OpenPurpose::Reading => {
                let note = format!(
                    "the superblock at {offset} cannot be read ({error}); the copy at {copy} of generation {} was \
                     used, which may be older",
                    superblock.generation()
                );
                Ok(FoundSuperblock { superblock: superblock.clone(), notes: vec![note] })
            }
            _ => Err(Refusal::Unreadable { offset, error }),
        },
        (first, Copy::Damaged(reason)) => match newest(&others) {
            Some((copy, superblock)) => {
                let generation = superblock.generation().get();
                let what = match want {
                    OpenPurpose::Writing => {
                        return Err(Refusal::FirstDamaged { first, reason, copy, generation });
                    }
                    OpenPurpose::Reading => "is not shown: only the first one leads to it",
                    OpenPurpose::WritingByCopy => "is lost: the next commit restores the first one",
                };
                let note = format!(
                    "the superblock at {first} is damaged ({reason}); the copy at {copy} of generation {generation} was used, \
                     and anything synced after that {what}"
                );
                Ok(FoundSuperblock { superblock: superblock.clone(), notes: vec![note] })
            }
            None => Err(Refusal::Damaged { copies: reasons(first, reason, &others) }),
        },
        (_, Copy::NoMagic { zeros }) => without_magic(device, want, zeros, &others),
    }
}

/// Returns the format on the device, if it is recognised. Only for messages.
fn recognise(device: &dyn BlockDevice) -> Option<&'static Signature> {
    find_signature(&head_of(device)?)
}

/// Fails if a device also has the signature of another format. For writers of devices that may have no Btrfs any more.
pub(crate) fn refuse_another(device: &dyn BlockDevice) -> Result<()> {
    let Some(what) = head_of(device).and_then(|head| find_another_signature(&head)) else { return Ok(()) };
    let (name, device) = (what.name, device.describe());
    let what = format!("{device} holds {name}; wipefs(8) removes that signature if it is not in use");
    Err(Error::new(ErrorKind::AlreadyExists, what))
}

fn head_of(device: &dyn BlockDevice) -> Option<Vec<u8>> {
    let len = device.len().min(SIGNATURES_END as u64);
    let mut head = vec![0; usize::try_from(len).expect("it is not above a number of ours")];
    device.read_at(0, &mut head).ok()?;
    Some(head)
}

/// Returns the error for a device with another format; if it has partitions, the error shows how to name them.
fn foreign(device: &dyn BlockDevice, what: &'static Signature) -> Refusal {
    if !what.has_partitions {
        return Refusal::Foreign { what };
    }
    let advice = match PartitionTable::read(device) {
        Ok(Some(table)) => table.advice(device),
        Ok(None) => Ok("its partitions cannot be read".to_owned()),
        Err(error) => Err(error),
    };
    let advice = advice.unwrap_or_else(|error| error.without_kind());
    Refusal::Partitioned { what, advice }
}

fn without_magic(
    device: &dyn BlockDevice,
    want: OpenPurpose,
    zeros: bool,
    others: &[(u64, Copy)],
) -> Result<FoundSuperblock, Refusal> {
    if let Some(what) = recognise(device) {
        return Err(foreign(device, what));
    }
    match newest(others) {
        Some((copy, superblock)) if want == OpenPurpose::Reading => {
            let note = format!(
                "the first superblock was overwritten; the copy at {copy} of generation {} was used, and anything synced \
                 after that is not shown",
                superblock.generation()
            );
            Ok(FoundSuperblock { superblock: superblock.clone(), notes: vec![note] })
        }
        Some((copy, superblock)) => {
            Err(Refusal::Overwritten { copy, generation: superblock.generation().get() })
        }
        None if zeros => Err(Refusal::Zeros),
        None => Err(Refusal::Random),
    }
}

/// Returns the good copy of the highest generation; of equal ones the first. The first good copy decides which filesystem it is: mkfs
/// writes all copies that fit, so an older filesystem, however often it was written, has only later copies left.
pub(crate) fn newest(copies: &[(u64, Copy)]) -> Option<(u64, &Superblock)> {
    let mut whole = copies.iter().filter_map(|(offset, copy)| match copy {
        Copy::Whole(superblock) => Some((*offset, &**superblock)),
        _ => None,
    });
    let first = whole.next()?;
    let own = whole.filter(|(offset, other)| other.fsid() == first.1.fsid() && is_inside(*offset, first.1));
    Some(own.fold(first, |best, next| if next.1.generation() > best.1.generation() { next } else { best }))
}

/// Whether a copy at `offset` belongs to the filesystem at all: copies behind its end do not.
pub(crate) fn is_inside(offset: u64, of: &Superblock) -> bool {
    offset + SUPERBLOCK_LEN as u64 <= of.dev_item().total_bytes.get()
}

fn reasons(first: u64, reason: String, others: &[(u64, Copy)]) -> Vec<(u64, String)> {
    let others = others.iter().map(|(offset, copy)| match copy {
        Copy::Damaged(reason) => (*offset, reason.clone()),
        Copy::Unreadable(error) => (*offset, error.to_string()),
        _ => (*offset, "no superblock".to_owned()),
    });
    std::iter::once((first, reason)).chain(others).collect()
}

fn notes_on_others(superblock: &Superblock, others: &[(u64, Copy)]) -> Vec<String> {
    let note = |(offset, copy): &(u64, Copy)| match copy {
        _ if !is_inside(*offset, superblock) => None,
        Copy::Damaged(reason) => Some(format!("the superblock copy at {offset} is damaged: {reason}")),
        Copy::Unreadable(error) => Some(format!("the superblock copy at {offset} cannot be read: {error}")),
        Copy::NoMagic { .. } => Some(format!("the superblock copy at {offset} is missing")),
        Copy::Whole(other) if other.fsid() != superblock.fsid() => {
            Some(format!("the superblock copy at {offset} is of another filesystem, {}", other.fsid()))
        }
        Copy::Whole(other) if other.generation() > superblock.generation() => Some(format!(
            "the superblock copy at {offset} is of generation {}, newer than the first with {}, which was used",
            other.generation(),
            superblock.generation()
        )),
        Copy::Whole(_) => None,
    };
    others.iter().filter_map(note).collect()
}
