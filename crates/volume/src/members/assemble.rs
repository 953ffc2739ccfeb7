//! Checking that devices are members of one filesystem, with one history.
//!
//! Each member has a superblock of its own. Each commit writes all of them, so members that were always there together have the same
//! generation and the same roots. A member that was away while the others were written has an earlier generation, which the backup roots
//! of the others remember. Two members that were written separately have two histories: different roots at one generation, or an
//! earlier generation for which the other one's backup roots have another address. Two histories of equal steps have equal addresses, too;
//! then the copies of a root show it: both are good, and they differ (`one_history`). This also works for the commit where one of them
//! stopped, as long as its roots are not overwritten. Linux mounts such a set, and loses one history.

use std::cmp::Reverse;
use std::sync::Arc;

use creamery_base::{Error, Generation, Result};
use creamery_device::BlockDevice;
use creamery_format::{SuperFlags, Superblock};

use super::MemberPart;
use crate::copies::FoundSuperblock;

/// A device, and the superblock on it.
pub(crate) type Candidate = (Arc<dyn BlockDevice>, FoundSuperblock);

/// The relation of a member's superblock to the newest one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum History {
    Same,
    /// It is an earlier commit of the same history.
    Earlier,
    /// It was written separately from the newest.
    Other,
    /// It is so much earlier that the newest one remembers nothing of it.
    Unknown,
}

impl History {
    fn of(member: &Superblock, newest: &Superblock) -> Self {
        if member.generation() == newest.generation() {
            // A different log alone is an fsync that was cut off.
            return if leads_to_same(member, newest) { Self::Same } else { Self::Other };
        }
        match newest.backups().iter().find(|backup| backup.generation() == member.generation()) {
            Some(backup) if leads_to_same(member, backup) => Self::Earlier,
            Some(_) => Self::Other,
            None => Self::Unknown,
        }
    }
}

/// Whether both lead to the same root tree and chunk tree.
fn leads_to_same(one: &Superblock, other: &Superblock) -> bool {
    one.root() == other.root() && one.chunk_root() == other.chunk_root()
}

/// Returns the candidates as members of one filesystem, the newest first, each with its part. Devices of a seed come last: the filesystem
/// that was made from it continues it.
///
/// # Errors
/// [`InvalidInput`](creamery_base::ErrorKind::InvalidInput): several filesystems; one device twice, or two devices with one number.
/// [`Unsupported`](creamery_base::ErrorKind::Unsupported): they were written separately, or this cannot be determined.
pub(crate) fn assemble(mut candidates: Vec<Candidate>) -> Result<Vec<(Candidate, MemberPart)>> {
    candidates.sort_by_key(|(_, found)| (is_seed(found), Reverse(found.superblock.generation())));
    for (number, one) in candidates.iter().enumerate() {
        candidates[..number].iter().try_for_each(|other| expect_two_members(other, one))?;
    }
    let Some(newest) = candidates.first().cloned() else { return Ok(Vec::new()) };
    let part = |member: Candidate| part_of(&newest, &member).map(|part| (member, part));
    candidates.into_iter().map(part).collect()
}

fn is_seed(found: &FoundSuperblock) -> bool {
    found.superblock.flags().contains(SuperFlags::SEEDING)
}

/// Checks that two members of one filesystem are two devices with two numbers. A seed has a UUID of its own.
fn expect_two_members((one, of_one): &Candidate, (other, of_other): &Candidate) -> Result<()> {
    let (first, second) = (one.describe(), other.describe());
    let may_differ = is_seed(of_other);
    let (of_one, of_other) = (&of_one.superblock, &of_other.superblock);
    let ids = [of_one, of_other].map(|superblock| (superblock.fsid(), superblock.metadata_uuid()));
    if ids[0].0 != ids[1].0 && !may_differ {
        return Err(Error::invalid(format!(
            "{first} belongs to filesystem {}, {second} to {}",
            ids[0].0, ids[1].0
        )));
    }
    if ids[0].1 != ids[1].1 && !may_differ {
        let what = format!(
            "{first} and {second} are of filesystem {}, but {first} has the metadata UUID {}, {second} {}",
            ids[0].0, ids[0].1, ids[1].1
        );
        return Err(Error::unsupported(what));
    }
    if one.id() == other.id() {
        return Err(Error::invalid(format!("{first} and {second} are the same device")));
    }
    let items = [of_one, of_other].map(Superblock::dev_item);
    if items[0].dev_id() != items[1].dev_id() {
        return Ok(());
    }
    let number = items[0].dev_id();
    let why = match items[0].uuid() == items[1].uuid() {
        true => "one is a copy of the other",
        false => "they have different UUIDs, so one of them was replaced or added again",
    };
    Err(Error::invalid(format!("{first} and {second} are both device {number}: {why}"))
        .advise("name one of them"))
}

/// Returns the part of a member beside the newest one.
fn part_of((newest, of_newest): &Candidate, (member, of_member): &Candidate) -> Result<MemberPart> {
    let (of_newest, of_member) = (&of_newest.superblock, &of_member.superblock);
    if of_newest.fsid() != of_member.fsid() {
        return Ok(MemberPart::Seed);
    }
    let (first, second) = (newest.describe(), member.describe());
    let (at, of) = (of_newest.generation(), of_member.generation());
    match History::of(of_member, of_newest) {
        History::Same => Ok(MemberPart::Current),
        History::Earlier => Ok(MemberPart::Stale(of)),
        History::Other => Err(split_brain((&first, at), (&second, of))),
        History::Unknown => {
            let what = format!(
                "{first} is at generation {at}, {second} at {of}: {second} missed writes, or they were written \
                 to separately (split brain)"
            );
            Err(Error::unsupported(what).advise("name one of them alone, with --degraded"))
        }
    }
}

/// Returns the error for two devices, with these names and generations, that were written separately.
pub(crate) fn split_brain((first, at): (&str, Generation), (second, of): (&str, Generation)) -> Error {
    Error::unsupported(format!(
        "split brain: {first} and {second} were written to separately, up to generation {at} and {of}"
    ))
    .advise("choose one: name it with --degraded, and with --device those written together with it")
}
