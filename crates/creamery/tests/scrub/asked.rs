//! The requests of a scrub to devices and trees: it reads everything in use once, nothing else, and searches each tree once for each part
//! of a block group.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};

use anyhow::{Context, Result, ensure};
use creamery::check::scrub::{NoProgress, Report, Scrub, Searches};
use creamery::device::{BlockDevice, Completion, DeviceId, Request};
use creamery_format::BlockGroupFlags;
use creamery_testkit::harness::Case;

use crate::content::Content;
use crate::damage::{scrub, scrub_read_only};
use crate::disk::{Asked, RottenDisk, SECTOR, Set};
use crate::geometry::{ELEMENT, Group, MemberSpot, PROFILES, Profile};
use crate::world::{DataGroupEnd, ScrubWorld, SetLayout, Use};

/// Bytes of a device that one request reads at most.
const BATCH: u64 = 512 << 10;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("scrub-matrix/what-is-in-use-is-read-once-and-nothing-else-is", &[], |_| read_once()),
        Case::new("scrub-matrix/what-is-verified-is-each-extent-in-each-copy", &[], |_| verified()),
        Case::new("scrub-matrix/a-row-is-read-once-for-all-of-its-devices", &[], |_| rows()),
        Case::new("scrub-matrix/searches-do-not-follow-extents-or-stripes", &[], |_| searches()),
        Case::new("scrub-matrix/requests-do-not-follow-extents", &[], |_| merged()),
        Case::new("scrub-matrix/batches-are-in-flight-together", &[], |_| in_flight()),
        Case::new("scrub-matrix/to-read-asks-for-no-write-and-no-flush", &[], |_| asks_for_no_write()),
    ]
}

/// Worlds of each profile, with block groups aligned to elements and not.
fn each_world(content: &Content, mut judge: impl FnMut(&ScrubWorld) -> Result<()>) -> Result<()> {
    for profile in PROFILES {
        for (members, shift) in
            profile.members.into_iter().flat_map(|members| [(members, 0), (members, 12288)])
        {
            let world = ScrubWorld::new(
                content.clone(),
                SetLayout { profile, members, shift, ends: DataGroupEnd::InFreeSpace },
            )?;
            judge(&world).with_context(|| format!("{:?}", world.shape))?;
        }
    }
    Ok(())
}

/// How often each sector of a member was read.
fn sectors_read(set: &Set) -> BTreeMap<MemberSpot, u64> {
    let mut read = BTreeMap::new();
    for (member, asked) in set.journal.asked() {
        if let Asked::Read { offset, len } = asked {
            for at in (offset / SECTOR * SECTOR..offset + len).step_by(SECTOR as usize) {
                *read.entry(MemberSpot { member, offset: at }).or_default() += 1;
            }
        }
    }
    read
}

/// The group of a place of a member.
fn group_at(world: &ScrubWorld, spot: MemberSpot) -> Option<(&Group, &MemberSpot)> {
    world.groups.iter().find_map(|group| {
        let len = group.stripe_bytes();
        let has = |stripe: &&MemberSpot| {
            stripe.member == spot.member && (stripe.offset..stripe.offset + len).contains(&spot.offset)
        };
        group.stripes.iter().find(has).map(|stripe| (group, stripe))
    })
}

/// The units of 64 KiB of each stripe with something in use, by their beginnings.
fn used_units(world: &ScrubWorld) -> BTreeSet<MemberSpot> {
    let unit = |spot: &MemberSpot| {
        let (_, stripe) = group_at(world, *spot)?;
        Some(MemberSpot {
            offset: stripe.offset + (spot.offset - stripe.offset) / ELEMENT * ELEMENT,
            ..*spot
        })
    };
    world.uses.keys().filter_map(unit).collect()
}

fn is_data(group: &Group) -> bool {
    group.kind == BlockGroupFlags::DATA
}

/// How often a scrub reads a sector of a data group: once, and once more for each further copy of data without checksums, to compare them.
fn times(world: &ScrubWorld, spot: &MemberSpot) -> u64 {
    match world.uses.get(spot) {
        Some(Use::Data { logical }) if !world.content.summed.contains(logical) => {
            let copies = world.group_of(*logical).copies(*logical);
            if copies[0] == *spot { 1 } else { 2 }
        }
        _ => 1,
    }
}

/// Only the scrub reads data: each sector in use is read once. A unit of 64 KiB with nothing in use is not read, unless it is a column of a
/// row whose parity is judged.
fn read_once() -> Result<()> {
    for content in [Content::small(16 << 10)?, Content::of_every_other_unit()?, Content::sparse()?] {
        each_world(&content, is_read_once)?;
    }
    Ok(())
}

fn is_read_once(world: &ScrubWorld) -> Result<()> {
    let set = world.set.fork();
    let report = scrub(&set)?;
    ensure!(report.counts().errors() == 0, "{:?}", report.counts());
    let (read, units) = (sectors_read(&set), used_units(world));
    for (spot, used) in &world.uses {
        let is_one = matches!(used, Use::Data { .. })
            || matches!(used, Use::Parity { group, .. } if is_data(&world.groups[*group]));
        let count = read.get(spot).copied().unwrap_or(0);
        let is_right = if is_one { count == times(world, spot) } else { count >= 1 };
        ensure!(is_right, "{spot:?} ({used:?}): {count} times");
    }
    for (spot, count) in &read {
        // The area before the first block group, and the copies of the superblock.
        let Some((group, stripe)) = group_at(world, *spot) else { continue };
        let from = (spot.offset - stripe.offset) / ELEMENT;
        let unit = MemberSpot { offset: stripe.offset + from * ELEMENT, ..*spot };
        let is_copy = matches!(world.uses.get(spot), Some(Use::Superblock));
        let is_of_row = group.profile.parity > 0
            && (0..group.stripes.len()).any(|column| units.contains(&group.element(from, column)));
        ensure!(is_copy || is_of_row || units.contains(&unit), "{spot:?} is read, and {unit:?} is free");
        let is_right = !is_data(group) || *count <= times(world, spot);
        ensure!(is_right, "{spot:?} is read {count} times");
    }
    Ok(())
}

/// The bytes that count as scrubbed are those of each extent, once for each copy, on the device where it lies.
fn verified() -> Result<()> {
    each_world(&Content::small(16 << 10)?, |world| {
        for report in [scrub_read_only(&world.set.fork())?, scrub(&world.set.fork())?] {
            let counts = report.counts();
            let copies = world.shape.profile.copies as u64;
            let extents = world.content.extents.values().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
            let verified = counts.data_bytes_scrubbed + counts.tree_bytes_scrubbed;
            ensure!(verified == extents * copies, "{verified} of {extents} bytes in {copies} copies");
            for device in &report.devices {
                let is_its = |spot: &&MemberSpot| spot.member as u64 + 1 == device.id.get();
                let of = |wanted: fn(&Use) -> bool| {
                    let own = world.uses.iter().filter(|(spot, _)| is_its(spot));
                    own.filter(|(_, used)| wanted(used)).count() as u64 * SECTOR
                };
                let want = (
                    of(|used| matches!(used, Use::Data { .. })),
                    of(|used| matches!(used, Use::Tree { .. })),
                );
                let have = (device.counts.data_bytes_scrubbed, device.counts.tree_bytes_scrubbed);
                ensure!(have == want, "device {}: {have:?}, and {want:?} lie there", device.id);
            }
        }
        Ok(())
    })
}

/// One request for each device reads all columns of a row of data, whichever device comes first; parity is compared in each row.
fn rows() -> Result<()> {
    let content = Content::small(16 << 10)?;
    for profile in PROFILES.into_iter().filter(|profile| profile.parity > 0) {
        for members in profile.members {
            let world = ScrubWorld::new(
                content.clone(),
                SetLayout { profile, members, shift: 0, ends: DataGroupEnd::InFreeSpace },
            )?;
            let set = world.set.fork();
            let report = scrub(&set)?;
            let read = sectors_read(&set);
            let mut parity = 0;
            for group in &world.groups {
                let has = |row: u64| {
                    let columns = (0..group.columns() as usize).map(|column| group.element(row, column));
                    let mut sectors = columns.flat_map(|element| {
                        let within = (0..ELEMENT).step_by(SECTOR as usize);
                        within.map(move |within| MemberSpot { offset: element.offset + within, ..element })
                    });
                    sectors.any(|spot| world.uses.contains_key(&spot))
                };
                for row in (0..group.stripe_bytes().div_ceil(ELEMENT)).filter(|row| has(*row)) {
                    parity += group.profile.parity as u64 * ELEMENT;
                    for column in (0..group.stripes.len()).filter(|_| is_data(group)) {
                        let count = read.get(&group.element(row, column)).copied().unwrap_or(0);
                        ensure!(count == 1, "{:?}: column {column} of row {row}: {count} times", world.shape);
                    }
                }
            }
            let compared = report.counts().parity_bytes_scrubbed;
            ensure!(compared == parity, "{:?}: {compared} of {parity} bytes of parity", world.shape);
        }
    }
    Ok(())
}

/// Parts of block groups that are walked separately: one on each device, and one for all devices if there is parity.
fn parts(world: &ScrubWorld, wanted: impl Fn(&Group) -> bool) -> u64 {
    let part = |group: &Group| if group.profile.parity > 0 { 1 } else { group.stripes.len() as u64 };
    world.groups.iter().filter(|group| wanted(group)).map(part).sum()
}

/// Few extents and many, adjacent and with gaps of many stripes: one search of each tree for each part.
fn searches() -> Result<()> {
    for content in [Content::small(16 << 10)?, Content::of_many_leaves()?, Content::sparse()?] {
        each_world(&content, |world| {
            let report = scrub(&world.set.fork())?;
            let want =
                Searches { extent_searches: parts(world, |_| true), csum_searches: parts(world, is_data) };
            ensure!(report.searches == want, "{:?}, not {want:?}", report.searches);
            Ok(())
        })?;
    }
    Ok(())
}

/// One request of 512 KiB reads extents that lie close together: the number of requests does not depend on the number of extents.
fn merged() -> Result<()> {
    let world = ScrubWorld::new(
        Content::of_many_leaves()?,
        SetLayout {
            profile: Profile::named("single"),
            members: 1,
            shift: 0,
            ends: DataGroupEnd::InFreeSpace,
        },
    )?;
    let set = world.set.fork();
    let report: Report = scrub(&set)?;
    let is_of_data = |at: u64| {
        group_at(&world, MemberSpot { member: 0, offset: at }).is_some_and(|(group, _)| is_data(group))
    };
    let reads = set.journal.asked().into_iter().filter_map(|(_, asked)| match asked {
        Asked::Read { offset, len } if is_of_data(offset) => Some(len),
        _ => None,
    });
    let reads: Vec<u64> = reads.collect();
    let (count, bytes) = (reads.len() as u64, reads.iter().sum::<u64>());
    ensure!(reads.iter().all(|len| *len <= BATCH), "one request has {:?} bytes", reads.iter().max());
    ensure!(count <= 2 * bytes.div_ceil(BATCH), "{count} requests of {bytes} bytes");
    let extents = report.counts().data_extents_scrubbed;
    ensure!(extents > 20 * count, "{extents} extents, {count} requests");
    Ok(())
}

/// A disk that answers its first read of data only after another one was requested.
struct Paired {
    below: Arc<RottenDisk>,
    data: Range<u64>,
    asked: Mutex<usize>,
    another: Condvar,
}

impl BlockDevice for Paired {
    fn submit(&self, request: Request, done: Completion) {
        let is_data = matches!(&request, Request::Read { offset, .. } if self.data.contains(offset));
        if is_data {
            let mut asked = self.asked.lock().expect("not poisoned");
            *asked += 1;
            self.another.notify_all();
            drop(self.another.wait_while(asked, |asked| *asked < 2).expect("not poisoned"));
        }
        self.below.submit(request, done);
    }

    fn len(&self) -> u64 {
        self.below.len()
    }

    fn id(&self) -> DeviceId {
        self.below.id()
    }

    fn describe(&self) -> String {
        self.below.describe()
    }
}

/// The next batch is requested before the previous one is read: otherwise the first read would never be answered.
fn in_flight() -> Result<()> {
    let shape = SetLayout {
        profile: Profile::named("single"),
        members: 1,
        shift: 0,
        ends: DataGroupEnd::InFreeSpace,
    };
    let world = ScrubWorld::new(Content::large()?, shape)?;
    let group = world.groups.iter().filter(|group| is_data(group)).max_by_key(|group| group.len);
    let stripe = group.context("a group of data")?.stripes[0];
    let data = stripe.offset..stripe.offset + group.context("a group of data")?.stripe_bytes();
    let below = Arc::clone(&world.set.fork().disks[0]);
    let disk = Arc::new(Paired { below, data, asked: Mutex::default(), another: Condvar::new() });
    let report =
        Scrub::default().read_only().run_on([Arc::clone(&disk) as Arc<dyn BlockDevice>], &NoProgress)?;
    ensure!(report.counts().errors() == 0, "{:?}", report.counts());
    let asked = *disk.asked.lock().expect("not poisoned");
    ensure!(asked > 2, "{asked} reads of data");
    Ok(())
}

/// A read-only scrub sends only reads, also for bad sectors.
fn asks_for_no_write() -> Result<()> {
    let content = Content::small(16 << 10)?;
    for profile in PROFILES {
        let members = profile.members[0];
        let world = ScrubWorld::new(
            content.clone(),
            SetLayout { profile, members, shift: 0, ends: DataGroupEnd::InFreeSpace },
        )?;
        let set = world.set.fork();
        let bad: Vec<&MemberSpot> =
            world.uses.keys().filter(|spot| spot.offset != 64 << 10).step_by(97).collect();
        bad.iter().filter(|spot| matches!(world.uses[spot], Use::Data { .. })).for_each(|spot| {
            set.disks[spot.member].rot(spot.offset);
        });
        let before = set.pages();
        let report = scrub_read_only(&set)?;
        ensure!(report.counts().csum_errors > 0, "{profile:?}: {:?}", report.counts());
        let others = set.journal.asked().into_iter().find(|(_, asked)| !matches!(asked, Asked::Read { .. }));
        ensure!(others.is_none(), "{profile:?}: {others:?}");
        ensure!(set.pages() == before, "{profile:?}: bytes are what they were");
    }
    Ok(())
}
