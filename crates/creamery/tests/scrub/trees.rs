//! Trees with references to used areas, damaged in all copies: those areas are not scrubbed, and the scrub reports that and goes on with
//! the next group.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use creamery::check::scrub::{Ended, FindingKind, Outcome, Report};
use creamery_base::TreeId;
use creamery_format::{BlockGroupFlags, BlockRef};
use creamery_testkit::harness::Case;

use crate::case_name;
use crate::content::{Content, ContentKind};
use crate::damage::{BadSectors, Hurt, apply, extents, scrub, scrub_read_only};
use crate::disk::SECTOR;
use crate::geometry::{MemberSpot, Profile};
use crate::world::{DataGroupEnd, ScrubWorld, SetLayout};

const PROFILES: [(&str, usize); 5] = [("single", 1), ("dup", 1), ("raid1", 2), ("raid5", 3), ("raid6", 4)];

pub(crate) fn cases() -> Vec<Case> {
    let case = |(name, members): (&'static str, usize)| {
        Case::new(case_name("damaged-trees", name), &[], move |_| each_leaf(name, members))
    };
    PROFILES.into_iter().map(case).collect()
}

fn each_leaf(profile: &str, members: usize) -> Result<()> {
    let content = Content::of_many_leaves()?;
    let shape =
        SetLayout { profile: Profile::named(profile), members, shift: 0, ends: DataGroupEnd::InFreeSpace };
    let world = ScrubWorld::new(content, shape)?;
    for tree in [TreeId::EXTENT, TreeId::CSUM] {
        let leaves = world.content.leaves(tree);
        ensure!(leaves.len() > 2, "{tree} has {} leaves", leaves.len());
        for (number, leaf) in leaves.iter().enumerate() {
            for hurt in [Hurt::Rotten, Hurt::Unreadable] {
                let is_data = |number: usize| world.groups[number].kind == BlockGroupFlags::DATA;
                let touched: BTreeSet<usize> = match tree == TreeId::EXTENT {
                    true => touched(&world, &leaves, number),
                    false => (0..world.groups.len()).filter(|number| is_data(*number)).collect(),
                };
                one(&world, *leaf, hurt, &touched)
                    .with_context(|| format!("{shape:?}, {tree}, leaf {number}: {hurt:?}"))?;
            }
        }
    }
    for tree in [TreeId::DEV, TreeId::CHUNK, TreeId::ROOT, TreeId::BLOCK_GROUP] {
        let leaf = world.content.leaves(tree)[0];
        root(&world, leaf).with_context(|| format!("{shape:?}, {tree}"))?;
    }
    Ok(())
}

/// The groups that have extents in a leaf of the extent tree.
fn touched(world: &ScrubWorld, leaves: &[u64], number: usize) -> BTreeSet<usize> {
    let block = BlockRef::new(&world.content.extents[&leaves[number]].1);
    let own = (0..block.count()).map(|slot| block.key(slot).objectid.get());
    let group = |at: u64| world.groups.iter().position(|group| group.has(at));
    own.filter_map(group).collect()
}

/// Damage of every source from which a block could be restored.
pub(crate) fn all_copies(world: &ScrubWorld, block: u64, hurt: Hurt) -> BadSectors {
    let group = world.group_of(block);
    let len = world.content.extents[&block].1.len() as u64;
    let mut damage = BadSectors::new();
    for at in (block..block + len).step_by(SECTOR as usize) {
        damage.extend(group.copies(at).into_iter().map(|spot| (spot, hurt)));
        let within = (at - group.start) % (64 << 10);
        let columns = group.columns() as usize;
        let parity =
            (columns..columns + group.profile.parity).map(|column| group.element(group.row_of(at), column));
        damage.extend(parity.map(|spot| (MemberSpot { offset: spot.offset + within, ..spot }, hurt)));
    }
    damage
}

fn one(world: &ScrubWorld, leaf: u64, hurt: Hurt, touched: &BTreeSet<usize>) -> Result<()> {
    let mut damage = all_copies(world, leaf, hurt);
    // A repairable sector in each other group.
    let mut mended = Vec::new();
    for kind in [ContentKind::Tree, ContentKind::Data] {
        let bears = world.shape.profile.copies + world.shape.profile.parity > 1;
        let is_far = |at: &u64| {
            let group = world.groups.iter().position(|group| group.has(*at)).expect("a group has it");
            let row = |at: u64| world.group_of(at).row_of(at);
            !touched.contains(&group) && (!world.group_of(leaf).has(*at) || row(*at) != row(leaf))
        };
        let found = extents(world, kind).into_iter().find(is_far).filter(|_| bears);
        mended.extend(found.map(|at| world.group_of(at).copies(at)[0]));
    }
    damage.extend(mended.iter().map(|spot| (*spot, Hurt::Rotten)));
    let set = world.set.fork();
    apply(&set, &damage);
    for report in [scrub_read_only(&set)?, scrub(&set)?] {
        ensure!(report.ended() == Ended::Whole, "it ends {:?}", report.ended());
        not_scrubbed(world, &report, touched)?;
        ensure!(report.counts().uncorrectable_errors > 0, "{:?}", report.counts());
    }
    for spot in &mended {
        let (now, whole) = (&set.disks[spot.member], &world.set.disks[spot.member]);
        ensure!(now.peek(spot.offset, SECTOR) == whole.peek(spot.offset, SECTOR), "{spot:?} is not mended");
    }
    for spot in world.uses.keys().filter(|spot| !damage.contains_key(spot)) {
        let (now, whole) = (&set.disks[spot.member], &world.set.disks[spot.member]);
        ensure!(now.peek(spot.offset, SECTOR) == whole.peek(spot.offset, SECTOR), "{spot:?} was good");
    }
    Ok(())
}

/// The report says for each device which areas of the leaf were not scrubbed; the groups beside it are known only from their neighbours.
fn not_scrubbed(world: &ScrubWorld, report: &Report, touched: &BTreeSet<usize>) -> Result<()> {
    let told = report.damages.iter().filter(|damage| damage.finding.what == FindingKind::NotScrubbed);
    let mut groups = BTreeSet::new();
    for damage in told {
        let finding = &damage.finding;
        ensure!(finding.outcome == Outcome::Lost && finding.why.contains("were not scrubbed"), "{finding:?}");
        let at = finding.logical.context("it has the group's address")?.get();
        let number = world.groups.iter().position(|group| group.start == at).context("it is a group's")?;
        let stripe = world.groups[number].stripes.iter().find(|stripe| {
            let bytes = stripe.offset..stripe.offset + world.groups[number].stripe_bytes();
            stripe.member as u64 + 1 == finding.at.dev.get() && bytes.contains(&finding.at.offset)
        });
        let stripe = stripe.context("it is where the group has a stripe")?;
        groups.insert((number, finding.at.dev.get(), stripe.offset));
    }
    for &number in touched {
        for stripe in &world.groups[number].stripes {
            let place = (number, stripe.member as u64 + 1, stripe.offset);
            ensure!(
                groups.contains(&place),
                "group {number} is not scrubbed on {stripe:?}; told: {groups:?}"
            );
        }
    }
    for (number, ..) in groups {
        let is_beside = touched.contains(&number) || touched.contains(&(number + 1));
        ensure!(is_beside, "group {number} is scrubbed");
    }
    Ok(())
}

/// Without the root of such a tree, the filesystem does not open, or the report calls a device failed. Nothing is written.
fn root(world: &ScrubWorld, leaf: u64) -> Result<()> {
    let set = world.set.fork();
    apply(&set, &all_copies(world, leaf, Hurt::Unreadable));
    for outcome in [scrub_read_only(&set), scrub(&set)] {
        match outcome {
            Err(error) => ensure!(!error.to_string().contains('\n'), "{error}"),
            Ok(report) => {
                ensure!(
                    report.ended() == Ended::Failed,
                    "it ends {:?}: {:#?}",
                    report.ended(),
                    report.damages
                );
                ensure!(report.counts().uncorrectable_errors > 0, "{:?}", report.counts());
            }
        }
    }
    ensure!(set.writes().is_empty(), "nothing is written");
    Ok(())
}
