//! Failing devices: each read of a scrub fails, once or permanently, on one member or on two; each write and each flush of a repair fails.

use anyhow::{Context, Result, bail, ensure};
use creamery::check::scrub::{Ended, FindingKind, Outcome, Report};
use creamery_testkit::harness::Case;
use creamery_testkit::{Random, seed_of, share_or_whole};

use crate::content::{Content, ContentKind};
use crate::damage::{BadSectors, Hurt, apply, extents, files, findings_of, judge, scrub};
use crate::disk::{SECTOR, Set};
use crate::geometry::{MemberSpot, PROFILES, Profile};
use crate::predict::{Prediction, Scrubs, are_blocks_borne};
use crate::world::{DataGroupEnd, ScrubWorld, SetLayout, Use};

/// Failing reads of each profile that every change tests.
const ONCE: usize = 24;
const FOR_GOOD: usize = 24;
const TWO: usize = 16;
/// Offset of the first superblock of a device.
const FIRST_SUPERBLOCK: u64 = 64 << 10;

pub(crate) fn cases() -> Vec<Case> {
    let case = |profile: Profile| {
        let reads = move |_: &_| faulty_reads(profile);
        let writes = move |_: &_| faulty_writes(profile);
        let whole = move |_: &_| whole_members(profile);
        let mut cases = vec![
            Case::new(format!("scrub-matrix/reads-fail-{}", profile.name), &[], reads),
            Case::new(format!("scrub-matrix/a-whole-member-is-bad-{}", profile.name), &[], whole),
        ];
        if profile.copies + profile.parity > 1 {
            cases.push(Case::new(format!("scrub-matrix/writes-fail-{}", profile.name), &[], writes));
        }
        cases
    };
    PROFILES.into_iter().flat_map(case).collect()
}

/// A world for each number of members, with an aligned and with a shifted layout.
pub(crate) fn worlds(profile: Profile) -> Result<Vec<ScrubWorld>> {
    let content = Content::small(16 << 10)?;
    let shapes = profile.members.into_iter().zip([0, 8192]);
    shapes
        .map(|(members, shift)| {
            ScrubWorld::new(
                content.clone(),
                SetLayout { profile, members, shift, ends: DataGroupEnd::InFreeSpace },
            )
        })
        .collect()
}

fn faulty_reads(profile: Profile) -> Result<()> {
    for world in worlds(profile)? {
        let mut random = Random::new(seed_of(&format!("reads {:?}", world.shape)));
        let set = world.set.fork();
        scrub(&set)?;
        let mut reads: Vec<(usize, u64, u64)> = set.reads().into_iter().collect();
        random.shuffle(&mut reads);
        for &(member, offset, len) in &reads[..share_or_whole(ONCE, reads.len()).min(reads.len())] {
            once(&world, member, (offset, len))
                .with_context(|| format!("{:?}: {len} bytes at {offset} of {member}, once", world.shape))?;
        }
        let sector = |random: &mut Random, (member, offset, len): (usize, u64, u64)| {
            let sectors = len.div_ceil(SECTOR);
            let number = [0, sectors - 1, random.below(sectors)][random.below(3) as usize];
            MemberSpot { member, offset: offset / SECTOR * SECTOR + number * SECTOR }
        };
        let is_judged = |spot: &MemberSpot| spot.offset != FIRST_SUPERBLOCK;
        for &read in &reads[..share_or_whole(FOR_GOOD, reads.len()).min(reads.len())] {
            let spot = sector(&mut random, read);
            if !is_judged(&spot) {
                first_superblock(&world, spot)?;
                continue;
            }
            judge(&world, &BadSectors::from([(spot, Hurt::Unreadable)]))
                .with_context(|| format!("{:?}: {spot:?} for good", world.shape))?;
        }
        for _ in 0..share_or_whole(TWO, 20 * TWO) {
            let two: Vec<_> = (0..2).map(|_| reads[random.below(reads.len() as u64) as usize]).collect();
            let damage: BadSectors = two
                .into_iter()
                .map(|read| (sector(&mut random, read), Hurt::Unreadable))
                .filter(|(spot, _)| is_judged(spot))
                .collect();
            judge(&world, &damage).with_context(|| format!("{:?}: {damage:?}", world.shape))?;
        }
    }
    Ok(())
}

/// A whole member is bad, except for its first superblock: all of it is repaired if the profile tolerates that, and otherwise reported as
/// lost.
fn whole_members(profile: Profile) -> Result<()> {
    for world in worlds(profile)? {
        for (member, hurt) in
            (0..world.shape.members).flat_map(|member| [(member, Hurt::Rotten), (member, Hurt::Unreadable)])
        {
            let of =
                world.uses.keys().filter(|spot| spot.member == member && spot.offset != FIRST_SUPERBLOCK);
            let damage: BadSectors = of.map(|spot| (*spot, hurt)).collect();
            judge(&world, &damage)
                .with_context(|| format!("{:?}: all of member {member} is {hurt:?}", world.shape))?;
        }
    }
    Ok(())
}

/// A read that fails once does no harm: no byte in use changes, and no data with another copy is lost.
fn once(world: &ScrubWorld, member: usize, read: (u64, u64)) -> Result<()> {
    let set = world.set.fork();
    set.disks[member].faults(|faults| faults.read_once = Some(read));
    let bears = world.shape.profile.copies + world.shape.profile.parity > 1;
    let is_superblock = read.0 == FIRST_SUPERBLOCK;
    match scrub(&set) {
        Err(error) => ensure!(!bears || is_superblock, "it is not opened: {error}"),
        Ok(report) => {
            for ((what, spot), outcome) in findings_of(&report) {
                let may_be = match what {
                    "Superblock" => is_superblock || outcome == Outcome::Mended,
                    "Parity" => outcome != Outcome::Lost,
                    _ => !bears,
                };
                ensure!(may_be, "{what} at {spot:?}: {outcome:?}");
            }
        }
    }
    unchanged(world, &set)
}

/// Without a readable first superblock nothing is repaired, and the message says why.
fn first_superblock(world: &ScrubWorld, spot: MemberSpot) -> Result<()> {
    let set = world.set.fork();
    set.disks[spot.member].faults(|faults| {
        faults.unreadable.insert(spot.offset);
    });
    let error = scrub(&set).map(drop).err().context("it is refused")?;
    ensure!(!error.to_string().contains('\n'), "{error}");
    ensure!(set.writes().is_empty(), "nothing is written");
    Ok(())
}

/// Expects that everything in use is unchanged.
fn unchanged(world: &ScrubWorld, set: &Set) -> Result<()> {
    for spot in world.uses.keys() {
        let (now, whole) = (&set.disks[spot.member], &world.set.disks[spot.member]);
        ensure!(now.peek(spot.offset, SECTOR) == whole.peek(spot.offset, SECTOR), "{spot:?} is changed");
    }
    files(world, &Prediction::default(), set)
}

/// Damage that the profile tolerates, of each kind and in several places: all of one member, or of one copy if all copies lie on one.
pub(crate) fn borne(world: &ScrubWorld, random: &mut Random, hurts: &[Hurt]) -> BadSectors {
    let mut damage = BadSectors::new();
    let hurt = |random: &mut Random| hurts[random.below(hurts.len() as u64) as usize];
    let mut wanted: Vec<u64> = Vec::new();
    for kind in [ContentKind::Data, ContentKind::Tree] {
        let mut all = extents(world, kind);
        random.shuffle(&mut all);
        wanted.extend(all.into_iter().take(4));
    }
    for at in wanted {
        let (kind, bytes) = &world.content.extents[&at];
        let sectors = bytes.len() as u64 / SECTOR;
        let at = at + random.below(sectors) * SECTOR;
        if *kind == ContentKind::Data && !world.content.summed.contains(&at) {
            continue;
        }
        let copies = world.group_of(at).copies(at);
        let spot = copies[random.below(copies.len() as u64) as usize];
        let mut more = damage.clone();
        more.insert(spot, hurt(random));
        if is_borne(world, &more) {
            damage = more;
        }
    }
    let parity = world.uses.iter().filter(|(_, used)| matches!(used, Use::Parity { .. }));
    let mut parity: Vec<MemberSpot> = parity.map(|(spot, _)| *spot).collect();
    random.shuffle(&mut parity);
    for spot in parity.into_iter().take(4) {
        let mut more = damage.clone();
        more.insert(spot, hurt(random));
        if is_borne(world, &more) {
            damage = more;
        }
    }
    damage.insert(MemberSpot { member: world.shape.members - 1, offset: 64 << 20 }, hurt(random));
    damage
}

/// Whether everything is repaired, and each tree block even without the repair of other sectors.
fn is_borne(world: &ScrubWorld, damage: &BadSectors) -> bool {
    Prediction::of(world, damage, Scrubs::ToMend).is_all_mended() && are_blocks_borne(world, damage)
}

fn faulty_writes(profile: Profile) -> Result<()> {
    for world in worlds(profile)? {
        let mut random = Random::new(seed_of(&format!("writes {:?}", world.shape)));
        for _ in 0..share_or_whole(1, 10) {
            let damage = borne(&world, &mut random, &[Hurt::Rotten, Hurt::Unreadable]);
            let set = world.set.fork();
            apply(&set, &damage);
            scrub(&set)?;
            let writes = set.writes();
            ensure!(!writes.is_empty(), "something is mended");
            for (member, offset, bytes) in writes {
                let cut = [0, 512, bytes.len() / 2][random.below(3) as usize];
                for fault in [Fault::Fails(cut), Fault::IsLost] {
                    a_write(&world, &damage, (member, offset, bytes.len()), fault).with_context(|| {
                        format!("{:?}, {damage:?}: writing at {offset} of {member}: {fault:?}", world.shape)
                    })?;
                }
            }
            for member in 0..world.shape.members {
                a_flush(&world, &damage, member)
                    .with_context(|| format!("{:?}: member {member} does not flush", world.shape))?;
            }
        }
    }
    Ok(())
}

/// The failure of a write.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// The write fails behind this many bytes.
    Fails(usize),
    /// The write reports success, and nothing is written.
    IsLost,
}

/// A sector whose write fails is not repaired, and all others are.
fn a_write(
    world: &ScrubWorld,
    damage: &BadSectors,
    (member, offset, len): (usize, u64, usize),
    fault: Fault,
) -> Result<()> {
    let set = world.set.fork();
    apply(&set, damage);
    set.disks[member].faults(|faults| match fault {
        Fault::Fails(cut) => faults.write = Some((offset, cut)),
        Fault::IsLost => faults.write_lost = Some(offset),
    });
    let report = scrub(&set)?;
    let range = offset..offset + len as u64;
    let mut is_told = false;
    for ((what, spot), outcome) in findings_of(&report) {
        let is_its = spot.member == member && range.contains(&spot.offset);
        // One finding names the parity of a whole element.
        let is_near = what == "Parity"
            && spot.member == member
            && (spot.offset..spot.offset + (64 << 10)).contains(&offset);
        match is_its || is_near {
            true => {
                ensure!(outcome == Outcome::Unwritten, "{what} at {spot:?}: {outcome:?}");
                is_told = true;
            }
            false => ensure!(outcome == Outcome::Mended, "{what} at {spot:?}: {outcome:?}"),
        }
    }
    ensure!(is_told, "a finding names what was not written");
    ensure!(report.counts().uncorrectable_errors > 0, "{:?}", report.counts());
    for (spot, used) in &world.uses {
        let (now, whole) = (&set.disks[spot.member], &world.set.disks[spot.member]);
        let is_its = spot.member == member && range.contains(&spot.offset);
        ensure!(
            is_its || now.peek(spot.offset, SECTOR) == whole.peek(spot.offset, SECTOR),
            "{spot:?} ({used:?}) is not what it was"
        );
    }
    set.disks[member].faults(|faults| (faults.write, faults.write_lost) = (None, None));
    files(world, &Prediction::default(), &set).context("afterwards")?;
    all_mended(&scrub(&set)?)?;
    unchanged(world, &set)
}

pub(crate) fn all_mended(report: &Report) -> Result<()> {
    match report.damages.iter().find(|damage| damage.finding.outcome != Outcome::Mended) {
        None => Ok(()),
        Some(damage) => bail!("{damage:?}"),
    }
}

/// One finding names the device that did not make its repairs durable. A device without repairs is not flushed.
fn a_flush(world: &ScrubWorld, damage: &BadSectors, member: usize) -> Result<()> {
    let set = world.set.fork();
    apply(&set, damage);
    set.disks[member].faults(|faults| faults.flush = true);
    let report = scrub(&set)?;
    let told = report.damages.iter().filter(|damage| damage.finding.outcome == Outcome::Lost);
    let told: Vec<_> = told.map(|damage| &damage.finding).collect();
    let is_mended = damage.keys().any(|spot| spot.member == member);
    match &told[..] {
        [] => ensure!(!is_mended, "a finding names the device"),
        [told] => {
            ensure!(is_mended && told.at.dev.get() == member as u64 + 1, "{told:?}");
            ensure!(told.what == FindingKind::NotScrubbed && told.why.contains("not durable"), "{told:?}");
        }
        _ => bail!("{told:?}"),
    }
    ensure!(report.counts().uncorrectable_errors == told.len() as u64, "{:?}", report.counts());
    let failed = report.devices.iter().filter(|device| device.ended == Ended::Failed);
    let failed: Vec<u64> = failed.map(|device| device.id.get()).collect();
    let wanted: Vec<u64> = told.iter().map(|finding| finding.at.dev.get()).collect();
    ensure!(failed == wanted, "devices {failed:?} have failed");
    unchanged(world, &set)
}
