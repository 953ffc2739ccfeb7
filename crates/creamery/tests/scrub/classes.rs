//! What a tree block counts as that is whole and another one, and a filesystem whose tree blocks have another UUID than it has.

use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, ensure};
use creamery::Image;
use creamery::check::scrub::{Counts, NoProgress, Outcome, Scrub};
use creamery::volume::DeviceErrors;
use creamery_format::{Incompat, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, Superblock, seal};
use creamery_testkit::harness::{Bench, Case};

use crate::content::{Content, ContentKind};
use crate::damage::{BadSectors, Hurt, extents, findings_of, judge, scrub, scrub_read_only};
use crate::disk::SECTOR;
use crate::faults::all_mended;
use crate::geometry::{MemberSpot, PROFILES, Profile};
use crate::odd::in_file;
use crate::world::{DataGroupEnd, ScrubWorld, SetLayout, Use};

/// Where a tree block has its UUID, address, generation and level.
const UUID: usize = 32;
const ADDRESS: usize = 48;
const GENERATION: usize = 80;
const LEVEL: usize = 100;
/// A byte among its items.
const ITEMS: usize = 3000;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("scrub-matrix/errors-count-as-what-they-are", &[], |_| classes()),
        Case::new("scrub-matrix/device-stats-have-what-was-found-as-what-it-is", &[], device_stats),
        Case::new("scrub-matrix/tree-blocks-of-another-uuid-than-the-filesystem", &[], |_| another_uuid()),
    ]
}

/// A change of a block.
#[derive(Clone, Copy, Debug)]
struct Change {
    at: usize,
    /// Whether it gets a valid checksum after the change.
    is_sealed: bool,
    /// Errors of checksums, of a block's own address and similar fields, and of its generation.
    counts_as: (u64, u64, u64),
}

const CHANGES: [Change; 5] = [
    Change { at: ITEMS, is_sealed: false, counts_as: (1, 0, 0) },
    Change { at: UUID, is_sealed: true, counts_as: (0, 1, 0) },
    Change { at: ADDRESS + 4, is_sealed: true, counts_as: (0, 1, 0) },
    Change { at: GENERATION, is_sealed: true, counts_as: (0, 1, 1) },
    Change { at: LEVEL, is_sealed: true, counts_as: (0, 1, 0) },
];

/// The counters are those of the first read, whether the block is repaired or not; each error counts once.
fn classes() -> Result<()> {
    for (profile, members) in
        [("dup", 1), ("raid1", 2), ("raid1c3", 3), ("raid10", 4), ("raid5", 3), ("raid6", 4)]
    {
        let shape = SetLayout {
            profile: Profile::named(profile),
            members,
            shift: 0,
            ends: DataGroupEnd::InFreeSpace,
        };
        let world = ScrubWorld::new(Content::small(16 << 10)?, shape)?;
        for block in extents(&world, ContentKind::Tree) {
            for change in CHANGES {
                changed(&world, block, change)
                    .with_context(|| format!("{profile}, the block at {block}: {change:?}"))?;
            }
        }
    }
    Ok(())
}

fn changed(world: &ScrubWorld, block: u64, change: Change) -> Result<()> {
    let Change { at, is_sealed, counts_as } = change;
    let place = *world.group_of(block).copies(block).last().context("a copy")?;
    let mut bytes = world.content.extents[&block].1.clone();
    bytes[at] ^= 1;
    if is_sealed {
        seal(&mut bytes, world.content.superblock.checksum_type());
    }
    let set = world.set.fork();
    set.disks[place.member].poke(place.offset, &bytes);
    let is_right = |counts: &Counts| {
        (counts.csum_errors, counts.verify_errors, counts.generation_errors) == counts_as
            && counts.errors() == 1
            && counts.corruption_errors() == 1 - counts_as.2
    };
    let seen = scrub_read_only(&set)?.counts();
    ensure!(is_right(&seen) && seen.unverified_errors == 1, "to read: {seen:?}");
    let report = scrub(&set)?;
    ensure!(is_right(&report.counts()) && report.counts().corrected_errors == 1, "{:?}", report.counts());
    let found = findings_of(&report);
    ensure!(found.into_iter().eq([(("Tree", place), Outcome::Mended)]), "{:?}", report.damages);
    let again = scrub_read_only(&set)?.counts();
    ensure!(again.errors() == 0, "a second scrub: {again:?}");
    let whole = &world.content.extents[&block].1;
    ensure!(set.disks[place.member].peek(place.offset, whole.len() as u64) == *whole, "it is mended");
    Ok(())
}

/// The filesystem keeps the counters of its only device, each error in its class, once.
fn device_stats(bench: &Bench) -> Result<()> {
    let shape =
        SetLayout { profile: Profile::named("dup"), members: 1, shift: 0, ends: DataGroupEnd::InFreeSpace };
    let world = ScrubWorld::new(Content::small(16 << 10)?, shape)?;
    let block = *extents(&world, ContentKind::Tree).last().context("a tree block")?;
    let place = world.group_of(block).copies(block)[1];
    let path = bench.scratch.file("disk.img");
    let file = in_file(&*world.set.disks[0], &path)?;
    let mut kept = DeviceErrors::default();
    for Change { at, is_sealed, counts_as } in CHANGES {
        let mut bytes = vec![0; 16 << 10];
        file.read_exact_at(&mut bytes, place.offset)?;
        bytes[at] ^= 1;
        if is_sealed {
            seal(&mut bytes, world.content.superblock.checksum_type());
        }
        file.write_all_at(&bytes, place.offset)?;
        let report = Scrub::default().run(&path, &NoProgress)?;
        all_mended(&report)?;
        ensure!(report.not_kept.is_none() && report.counts().errors() == 1, "{report:?}");
        kept.corruption += 1 - counts_as.2;
        kept.generation += counts_as.2;
        let fs = Image::open(&path)?;
        let found = fs.volume().device_errors(fs.volume().devices()[0].id)?;
        ensure!(found == kept, "{found:?}, not {kept:?}");
        fs.close()?;
    }
    Ok(())
}

/// Gives the filesystem another UUID, and leaves the old one in the tree blocks.
fn rename(world: &ScrubWorld) -> Result<()> {
    for disk in &world.set.disks {
        for offset in SUPERBLOCK_OFFSETS.into_iter().filter(|at| at + SECTOR <= crate::content::LEN) {
            let bytes = disk.peek(offset, SUPERBLOCK_LEN as u64);
            let mut superblock = Superblock::from_bytes(&bytes, offset)?;
            let raw = superblock.raw_mut();
            (raw.metadata_uuid, raw.fsid) = (raw.fsid, [0xa7; 16]);
            raw.incompat_flags = (raw.incompat_flags.get() | Incompat::METADATA_UUID.bits()).into();
            disk.poke(offset, &superblock.to_bytes(offset));
        }
    }
    Ok(())
}

/// Valid blocks have no findings; a block with the filesystem's new UUID does not belong to it.
fn another_uuid() -> Result<()> {
    let content = Content::small(16 << 10)?;
    for profile in PROFILES {
        let members = profile.members[0];
        let world = ScrubWorld::new(
            content.clone(),
            SetLayout { profile, members, shift: 0, ends: DataGroupEnd::InFreeSpace },
        )?;
        rename(&world)?;
        crate::sound::judge(&world).with_context(|| format!("{profile:?} is whole"))?;
        let is_wanted = |used: &Use| !matches!(used, Use::Superblock);
        let spots: Vec<MemberSpot> = world
            .uses
            .iter()
            .filter(|(_, used)| is_wanted(used))
            .map(|(spot, _)| *spot)
            .step_by(41)
            .collect();
        for spot in spots {
            judge(&world, &BadSectors::from([(spot, Hurt::Rotten)]))
                .with_context(|| format!("{profile:?}, {spot:?}"))?;
        }
        if profile.copies < 2 {
            continue;
        }
        let block = extents(&world, ContentKind::Tree)[0];
        let place = world.group_of(block).copies(block)[1];
        let mut bytes = world.content.extents[&block].1.clone();
        bytes[UUID..UUID + 16].fill(0xa7);
        seal(&mut bytes, world.content.superblock.checksum_type());
        let set = world.set.fork();
        set.disks[place.member].poke(place.offset, &bytes);
        let report = scrub(&set)?;
        ensure!(report.counts().verify_errors == 1, "{profile:?}: {:?}", report.counts());
        all_mended(&report)?;
    }
    Ok(())
}
