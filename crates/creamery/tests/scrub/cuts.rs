//! Power cuts at any moment of a repair: with any part of its writes done, nothing is worse than before, and a new scrub completes the
//! repair.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use anyhow::{Context, Result, ensure};
use creamery_check::{CheckOptions, NoProgress, check};
use creamery_testkit::harness::Case;
use creamery_testkit::{Random, seed_of, share_or_whole};
use creamery_volume::{DeviceSet, Mode, Volume};

use crate::case_name;
use crate::damage::{BadSectors, Hurt, apply, files, scrub, scrub_read_only};
use crate::disk::{SECTOR, Set};
use crate::faults::{all_mended, borne, worlds};
use crate::geometry::{PROFILES, Profile};
use crate::predict::Prediction;
use crate::world::{ScrubWorld, Use};

/// Bytes that a device writes atomically.
const ATOM: usize = 512;
/// The check's finding of a superblock copy that is not valid.
const SUPERBLOCK_COPY: u16 = 101;
/// The check's finding of a bad copy of a tree block with another good one.
const BLOCK_COPY: u16 = 215;
/// The check's findings of tree blocks.
const BLOCKS: RangeInclusive<u16> = 201..=219;
/// The check's finding of parity that does not match its data.
const PARITY: u16 = 314;
/// Moments of each profile and layout that every change tests.
const SHARE: usize = 14;

/// A write: member, offset and bytes.
type Write = (usize, u64, Vec<u8>);

pub(crate) fn cases() -> Vec<Case> {
    let bears = |profile: &Profile| profile.copies + profile.parity > 1;
    let case = |profile: Profile| {
        let name = case_name("power-is-cut", profile.name);
        Case::new(name, &[], move |_| each_moment(profile))
    };
    PROFILES.into_iter().filter(bears).map(case).collect()
}

fn each_moment(profile: Profile) -> Result<()> {
    for world in worlds(profile)? {
        let mut random = Random::new(seed_of(&format!("power {:?}", world.shape)));
        for _ in 0..share_or_whole(1, 6) {
            let damage = borne(&world, &mut random, &[Hurt::Rotten]);
            let set = world.set.fork();
            apply(&set, &damage);
            let before = findings(&set)?;
            scrub(&set)?;
            let writes = set.writes();
            ensure!(writes.len() >= damage.len() / 2, "{} writes", writes.len());
            let mut moments = moments(&writes, &mut random);
            random.shuffle(&mut moments);
            moments.truncate(share_or_whole(SHARE, moments.len()));
            for moment in moments {
                one(&world, &damage, &before, &moment)
                    .with_context(|| format!("{:?}, {damage:?}, {} writes", world.shape, moment.len()))?;
            }
        }
    }
    Ok(())
}

/// Possible states after a cut: the first writes, with any part of the next one; because there is no flush between,
/// also any subset of them.
fn moments(writes: &[Write], random: &mut Random) -> Vec<Vec<Write>> {
    let mut moments = Vec::new();
    for count in 0..=writes.len() {
        moments.push(writes[..count].to_vec());
        let Some((member, offset, bytes)) = writes.get(count) else { break };
        for len in (ATOM..bytes.len()).step_by(ATOM) {
            let torn = (*member, *offset, bytes[..len].to_vec());
            moments.push(writes[..count].iter().cloned().chain([torn]).collect());
        }
    }
    for _ in 0..2 * writes.len() {
        moments.push(writes.iter().filter(|_| random.below(2) == 0).cloned().collect());
    }
    moments
}

/// The number of each finding of the check.
fn findings(set: &Set) -> Result<BTreeMap<u16, usize>> {
    let volume = Volume::open(set.devices().into_iter().collect::<DeviceSet>(), Mode::ReadOnly)?;
    let options = CheckOptions { check_data_csum: true, check_parity: true, ..CheckOptions::default() };
    let mut counts = BTreeMap::new();
    for finding in check(&volume, &options, &NoProgress)?.findings {
        *counts.entry(finding.number).or_default() += 1;
    }
    Ok(counts)
}

fn one(
    world: &ScrubWorld,
    damage: &BadSectors,
    before: &BTreeMap<u16, usize>,
    written: &[Write],
) -> Result<()> {
    let set = world.set.fork();
    apply(&set, damage);
    for (member, offset, bytes) in written {
        set.disks[*member].poke(*offset, bytes);
    }
    files(world, &Prediction::default(), &set).context("the files of that moment")?;
    let parity =
        damage.keys().filter(|spot| matches!(world.uses.get(spot), Some(Use::Parity { .. }))).count();
    // A superblock copy with its magic number but without its checksum is a finding in a place where there was none.
    for (number, count) in findings(&set)?.into_iter().filter(|(number, _)| *number != SUPERBLOCK_COPY) {
        let had = match number {
            // Parity is judged after its data is good again.
            PARITY => parity,
            // A block without a valid copy has one now; its other copies become findings.
            BLOCK_COPY => before.range(BLOCKS).map(|(_, count)| count * world.shape.profile.copies).sum(),
            _ => before.get(&number).copied().unwrap_or(0),
        };
        ensure!(count <= had, "the check has {count} findings {number}, and had {had}");
    }
    all_mended(&scrub(&set)?).context("a new scrub")?;
    let again = scrub_read_only(&set)?;
    ensure!(again.damages.is_empty() && again.counts().errors() == 0, "{:#?}", again.damages);
    for spot in world.uses.keys() {
        let (now, whole) = (&set.disks[spot.member], &world.set.disks[spot.member]);
        ensure!(now.peek(spot.offset, SECTOR) == whole.peek(spot.offset, SECTOR), "{spot:?} is changed");
    }
    Ok(())
}
