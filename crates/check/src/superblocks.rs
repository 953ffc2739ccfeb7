//! Compares the superblock copies on every device with the superblock in use.

use std::collections::BTreeMap;

use creamery_base::DevId;
use creamery_format::{
    CompatRo, Incompat, RawDevItem, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, SuperFlags, Superblock,
    SuperblockError,
};
use creamery_volume::{MemberState, Volume};

use crate::chunks::compare_device;
use crate::problem::Problem;
use crate::report::{ProblemSite, Sink};

/// The stripe size of old mkfs.btrfs, regardless of the sector size.
const STRIPE_SIZE_OF_OLD: u32 = 4096;

/// Checks numbers of the superblock that must equal others of its numbers.
pub(crate) fn judge_numbers(volume: &Volume, sink: &Sink) {
    let superblock = volume.superblock();
    let (found, want) = (superblock.raw().stripesize.get(), superblock.sector_size());
    if ![STRIPE_SIZE_OF_OLD, want].contains(&found) {
        let message = format!("expected {want}, found {found}");
        sink.add(Problem::SuperblockStripeSize, ProblemSite::default(), message);
    }
    let flags = superblock.raw().flags.get();
    let unknown = flags & !SuperFlags::KNOWN.bits();
    if unknown != 0 {
        sink.add(Problem::SuperblockFlags, ProblemSite::default(), format!("0x{unknown:x} of 0x{flags:x}"));
    }
    let missing = [
        (!superblock.compat_ro().contains(CompatRo::FREE_SPACE_TREE), "free space tree"),
        (!superblock.incompat().contains(Incompat::NO_HOLES), "no-holes"),
    ];
    let has_group_tree = superblock.compat_ro().contains(CompatRo::BLOCK_GROUP_TREE);
    for (_, what) in missing.iter().filter(|(is_missing, _)| has_group_tree && *is_missing) {
        sink.add(Problem::GroupTreeAlone, ProblemSite::default(), *what);
    }
    let (found, most) = (superblock.raw().cache_generation.get(), superblock.generation().get());
    if found > most && found != u64::MAX {
        let message = format!("expected at most {most}, found {found}");
        sink.add(Problem::SuperblockCacheGeneration, ProblemSite::default(), message);
    }
}

/// Checks all copies on the devices that the chunk tree lists, as far as the caller gave them.
pub(crate) fn check(volume: &Volume, devices: &BTreeMap<u64, RawDevItem>, sink: &Sink) {
    let used = volume.superblock().dev_item().dev_id();
    for item in devices.values() {
        let dev = item.dev_id();
        match volume.member_state(dev) {
            MemberState::Missing => {
                sink.add(Problem::MemberMissing, ProblemSite::default(), format!("device {dev}"))
            }
            MemberState::Stale(generation) => {
                let message =
                    format!("device {dev}, expected generation {}, found {generation}", volume.generation());
                sink.add(Problem::MemberStale, ProblemSite::default(), message);
            }
            // Its superblocks belong to the filesystem that others were made from.
            MemberState::Seed => continue,
            MemberState::Present | MemberState::Failed => {}
        }
        let Some(device) = volume.device(dev) else { continue };
        for (number, at) in SUPERBLOCK_OFFSETS.into_iter().enumerate() {
            if at + SUPERBLOCK_LEN as u64 > device.len() {
                break;
            }
            let mut bytes = vec![0; SUPERBLOCK_LEN];
            let copy = match device.read_at(at, &mut bytes) {
                Ok(()) => Superblock::from_bytes(&bytes, at),
                Err(error) => {
                    say(sink, Problem::SuperblockCopyDamaged, dev, at, &error.to_string());
                    continue;
                }
            };
            // The device item of the superblock in use is compared with the chunk tree.
            if let Ok(copy) = &copy
                && number == 0
                && dev != used
                && copy.generation() == volume.generation()
            {
                compare_device(copy.dev_item(), item, sink);
            }
            judge(volume, dev, at, number == 0, copy, sink);
        }
    }
}

fn judge(
    volume: &Volume,
    dev: DevId,
    at: u64,
    first: bool,
    copy: Result<Superblock, SuperblockError>,
    sink: &Sink,
) {
    match copy {
        Err(error) if first => say(sink, Problem::SuperblockFirstDamaged, dev, at, &error.to_string()),
        Err(SuperblockError::Magic) => say(sink, Problem::SuperblockCopyMissing, dev, at, "no magic number"),
        Err(error) => say(sink, Problem::SuperblockCopyDamaged, dev, at, &error.to_string()),
        Ok(copy) if copy.fsid() != volume.fsid() => {
            let message = format!("expected {}, found {}", volume.fsid(), copy.fsid());
            say(sink, Problem::SuperblockCopyForeign, dev, at, &message);
        }
        Ok(copy) if copy.generation() != volume.generation() => {
            let message = format!("expected {}, found {}", volume.generation(), copy.generation());
            say(sink, Problem::SuperblockCopyOld, dev, at, &message);
        }
        Ok(_) => {}
    }
}

fn say(sink: &Sink, problem: Problem, dev: DevId, at: u64, message: &str) {
    sink.add(problem, ProblemSite::default(), format!("device {dev} offset {at}: {message}"));
}
