//! Layouts from a conversion of another filesystem, and more unusual ones: tree blocks and extents continue in the next element, block
//! groups begin and end at any sector. The kernel never sees these.

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::Case;
use creamery_testkit::{Random, seed_of, share_or_whole};

use crate::case_name;
use crate::content::{Content, ContentKind};
use crate::damage::{BadSectors, Hurt, extents, judge};
use crate::disk::SECTOR;
use crate::geometry::{ELEMENT, MemberSpot, PROFILES, Profile};
use crate::world::{DataGroupEnd, ScrubWorld, SetLayout};

/// Bytes from the start of a block group to the next element.
const SHIFTS: [u64; 5] = [4096, 8192, 12288, 20480, 61440];
/// Places of each layout that every change tests.
const SHARE: usize = 3;

pub(crate) fn cases() -> Vec<Case> {
    let case = |profile: Profile| {
        let name = case_name("straddling", profile.name);
        Case::new(name, &[], move |_| straddling(profile))
    };
    PROFILES.into_iter().map(case).collect()
}

fn straddling(profile: Profile) -> Result<()> {
    let content = Content::small(16 << 10)?;
    let mut straddled = 0;
    let ends = [DataGroupEnd::WithData, DataGroupEnd::InRow].into_iter();
    let shapes = ends.flat_map(|ends| SHIFTS.map(|shift| (ends, shift)));
    for ((ends, shift), members) in shapes.flat_map(|shape| profile.members.map(|members| (shape, members))) {
        let world = ScrubWorld::new(content.clone(), SetLayout { profile, members, shift, ends })?;
        crate::sound::judge(&world).with_context(|| format!("{:?} is whole", world.shape))?;
        let mut random = Random::new(seed_of(&format!("straddling {:?}", world.shape)));
        let mut places = places(&world);
        straddled += places.len();
        random.shuffle(&mut places);
        places.truncate(share_or_whole(SHARE, places.len()));
        for spot in places {
            for hurt in [Hurt::Rotten, Hurt::Unreadable] {
                let damage = BadSectors::from([(spot, hurt)]);
                judge(&world, &damage).with_context(|| format!("{:?}: {hurt:?} at {spot:?}", world.shape))?;
            }
        }
    }
    ensure!(straddled > 0, "something straddles an element");
    Ok(())
}

/// Sectors on both sides of an element's end in the midst of a block or an extent, in each copy; and the last one of the group.
fn places(world: &ScrubWorld) -> Vec<MemberSpot> {
    let mut addresses = Vec::new();
    for kind in [ContentKind::Tree, ContentKind::Data] {
        for at in extents(world, kind) {
            let (group, end) = (world.group_of(at), at + world.content.extents[&at].1.len() as u64);
            let within = |at: u64| (at - group.start) % ELEMENT;
            let edges = (at + SECTOR..end).step_by(SECTOR as usize).filter(|at| within(*at) == 0);
            // Only the first edge of a long extent.
            addresses.extend(edges.take(2).flat_map(|edge| [edge - SECTOR, edge]));
            if end == group.start + group.len {
                addresses.push(end - SECTOR);
            }
        }
    }
    addresses.into_iter().flat_map(|at| world.group_of(at).copies(at)).collect()
}
