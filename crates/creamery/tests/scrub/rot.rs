//! Rot in every place of every profile: in data, in tree blocks, in P, in Q, in a copy of a superblock; in one, two and three copies or
//! columns at once.

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::Case;
use creamery_testkit::{Random, seed_of, share_or_whole};

use crate::case_name;
use crate::content::{Content, ContentKind};
use crate::damage::{BadSectors, Hurt, extents, judge};
use crate::disk::SECTOR;
use crate::geometry::{MemberSpot, PROFILES, Profile};
use crate::predict::{Prediction, Scrubs};
use crate::world::{DataGroupEnd, ScrubWorld, SetLayout};

/// Copies or columns of one place whose loss each profile tolerates.
const BORNE: [(&str, usize); 9] = [
    ("single", 0),
    ("dup", 1),
    ("raid0", 0),
    ("raid1", 1),
    ("raid1c3", 2),
    ("raid1c4", 3),
    ("raid10", 1),
    ("raid5", 1),
    ("raid6", 2),
];
/// Bad copies or columns at once.
const MOST: usize = 3;
/// Trials of each profile and number of members that every change makes.
const SHARE: usize = 40;
/// Trials of each layout that the proof makes.
const WHOLE: usize = 150;
/// Trials with many bad sectors at once.
const EVERYWHERE: usize = 12;
const NODES: [u32; 3] = [16 << 10, 4 << 10, 64 << 10];
const SHIFTS: [u64; 4] = [0, 4096, 8192, 20480];

pub(crate) fn cases() -> Vec<Case> {
    let case =
        |profile: Profile| Case::new(case_name("rot", profile.name), &[], move |_| each_place(profile));
    let many = |profile: Profile| {
        Case::new(format!("scrub-matrix/rot-everywhere-{}", profile.name), &[], move |_| everywhere(profile))
    };
    PROFILES.into_iter().map(case).chain(PROFILES.into_iter().map(many)).collect()
}

/// One place: the sectors of all copies of an address, or of all columns of its row.
fn columns(world: &ScrubWorld, logical: u64) -> Vec<MemberSpot> {
    let group = world.group_of(logical);
    if group.profile.parity == 0 {
        return group.copies(logical);
    }
    group.place(group.row_of(logical), group.within(logical))
}

/// All subsets of `size` of `count`.
fn subsets(count: usize, size: usize) -> Vec<Vec<usize>> {
    (0..1_usize << count)
        .filter(|bits| bits.count_ones() as usize == size)
        .map(|bits| (0..count).filter(|one| bits >> one & 1 == 1).collect())
        .collect()
}

fn each_place(profile: Profile) -> Result<()> {
    let borne = BORNE.iter().find(|(name, _)| *name == profile.name).context("a row of the table")?.1;
    let nodes = share_or_whole(&NODES[..1], &NODES[..]);
    for &node in nodes {
        let content = Content::small(node)?;
        for (members, shift) in
            profile.members.into_iter().flat_map(|members| SHIFTS.map(|shift| (members, shift)))
        {
            let world = ScrubWorld::new(
                content.clone(),
                SetLayout { profile, members, shift, ends: DataGroupEnd::InFreeSpace },
            )?;
            let mut trials = trials(&world);
            let mut random = Random::new(seed_of(&format!("rot {:?} {node}", world.shape)));
            random.shuffle(&mut trials);
            trials.truncate(share_or_whole(SHARE / SHIFTS.len(), WHOLE));
            for (logical, rotten) in trials {
                let hurt = [Hurt::Rotten, Hurt::Unreadable][random.below(2) as usize];
                one(&world, borne, logical, &rotten, hurt)
                    .with_context(|| format!("{:?}, {hurt:?} at {logical} in {rotten:?}", world.shape))?;
            }
            superblock(&world)?;
        }
    }
    Ok(())
}

/// Many sectors at once, of each kind and unused ones: as many as the profile tolerates, and more.
fn everywhere(profile: Profile) -> Result<()> {
    let content = Content::small(16 << 10)?;
    let mut lost = 0;
    for (members, shift) in profile.members.into_iter().zip([12288, 0]) {
        let shape = SetLayout { profile, members, shift, ends: DataGroupEnd::InFreeSpace };
        let world = ScrubWorld::new(content.clone(), shape)?;
        let mut random = Random::new(seed_of(&format!("everywhere {shape:?}")));
        let used: Vec<MemberSpot> =
            world.uses.keys().copied().filter(|spot| spot.offset != 64 << 10).collect();
        for _ in 0..share_or_whole(EVERYWHERE, 40 * EVERYWHERE) {
            let mut damage = BadSectors::new();
            for _ in 0..=random.below(40) {
                let mut spot = used[random.below(used.len() as u64) as usize];
                if random.below(8) == 0 {
                    spot.offset += random.below(16) * SECTOR;
                }
                damage.insert(spot, if random.below(3) == 0 { Hurt::Unreadable } else { Hurt::Rotten });
            }
            damage.retain(|spot, _| spot.offset != 64 << 10);
            judge(&world, &damage).with_context(|| format!("{shape:?}: {damage:?}"))?;
            lost += Prediction::of(&world, &damage, Scrubs::ToMend).lost.len();
        }
    }
    ensure!(lost > 0 || profile.copies + profile.parity > 2, "{lost} sectors are lost");
    Ok(())
}

/// Addresses of data and of tree blocks, each with each set of bad columns.
fn trials(world: &ScrubWorld) -> Vec<(u64, Vec<usize>)> {
    let mut addresses = Vec::new();
    for at in extents(world, ContentKind::Data) {
        let len = world.content.extents[&at].1.len() as u64;
        // The first sector, the last one, and one between.
        addresses.extend([at, at + (len / 2) / SECTOR * SECTOR, at + len - SECTOR]);
    }
    for at in extents(world, ContentKind::Tree) {
        addresses.extend([at, at + world.content.extents[&at].1.len() as u64 - SECTOR]);
    }
    addresses.dedup();
    let sizes = |at: u64| {
        let count = columns(world, at).len();
        (1..=MOST.min(count)).flat_map(move |size| subsets(count, size))
    };
    addresses.into_iter().flat_map(|at| sizes(at).map(move |rotten| (at, rotten))).collect()
}

fn one(world: &ScrubWorld, borne: usize, logical: u64, rotten: &[usize], hurt: Hurt) -> Result<()> {
    let spots = columns(world, logical);
    let damage: BadSectors = rotten.iter().map(|column| (spots[*column], hurt)).collect();
    let prediction = Prediction::of(world, &damage, Scrubs::ToMend);
    let is_data = world.content.summed.contains(&logical);
    let own = rotten.iter().any(|column| world.group_of(logical).copies(logical).contains(&spots[*column]));
    // The table.
    if is_data && own {
        ensure!(
            prediction.lost.contains(&logical) == (rotten.len() > borne),
            "the prediction is the table's"
        );
    }
    judge(world, &damage).map(drop)
}

/// The copy of a superblock.
fn superblock(world: &ScrubWorld) -> Result<()> {
    for (member, hurt) in [(0, Hurt::Rotten), (world.shape.members - 1, Hurt::Unreadable)] {
        let damage = BadSectors::from([(MemberSpot { member, offset: 64 << 20 }, hurt)]);
        let counts =
            judge(world, &damage).with_context(|| format!("a superblock of member {member}: {hurt:?}"))?;
        ensure!((counts.super_errors, counts.corrected_errors) == (1, 1), "{counts:?}");
    }
    Ok(())
}
