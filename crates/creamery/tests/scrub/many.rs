//! More findings than a report lists: the rest is counted, and repaired ones do not displace remaining ones.

use std::sync::Arc;

use anyhow::{Result, ensure};
use creamery::check::scrub::Outcome;
use creamery_mkfs::{MkfsOptions, Profile};
use creamery_testkit::harness::Case;

use crate::content::{Content, made};
use crate::damage::scrub;
use crate::disk::{SECTOR, Set};
use crate::geometry::{MemberSpot, Profile as Layout};
use crate::world::{DataGroupEnd, ScrubWorld, SetLayout, Use};

/// Findings of each kind that a report lists: remaining ones, and repaired ones.
const LISTED: usize = 10_000;
/// Sectors of the file.
const SECTORS: usize = 21_000;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("scrub-matrix/more-is-bad-than-is-listed", &[], |_| many()).long()]
}

fn many() -> Result<()> {
    let options = |options: &mut MkfsOptions| {
        options.data = Some(Profile::Single);
        options.metadata = Some(Profile::Single);
    };
    // Zeros take no memory in a memory disk, and have checksums like all data.
    let memory = made(crate::content::LEN, options, |fs| {
        let content = vec![0; SECTORS * SECTOR as usize];
        fs.write("/file", content).map_err(Into::into)
    })?;
    let content = Content::of(Arc::clone(&memory) as _)?;
    let shape =
        SetLayout { profile: Layout::named("raid1"), members: 2, shift: 0, ends: DataGroupEnd::InFreeSpace };
    let world = ScrubWorld::new(content, shape)?;
    // In the first half both copies are bad, in the rest one.
    let data: Vec<u64> = world.sectors[std::path::Path::new("/file")].clone();
    ensure!(data.len() == SECTORS, "{} sectors", data.len());
    let set = world.set.fork();
    let (lost, mended) = data.split_at(SECTORS / 2);
    for (&at, copies) in lost.iter().map(|at| (at, 2)).chain(mended.iter().map(|at| (at, 1))) {
        for spot in world.group_of(at).copies(at).into_iter().take(copies) {
            ensure!(matches!(world.uses[&spot], Use::Data { .. }), "{spot:?} is data");
            set.disks[spot.member].poke(spot.offset, &[1]);
        }
    }
    let report = scrub(&set)?;
    let listed = |outcome| report.damages.iter().filter(|damage| damage.finding.outcome == outcome).count();
    ensure!(listed(Outcome::Lost) == LISTED, "{} of what is left are listed", listed(Outcome::Lost));
    ensure!(listed(Outcome::Mended) == LISTED, "{} of what was mended", listed(Outcome::Mended));
    ensure!(report.damages.len() == 2 * LISTED, "nothing else is listed");
    ensure!(report.left_out == (2 * lost.len() - LISTED) as u64, "{} are left out", report.left_out);
    let counts = report.counts();
    ensure!(counts.uncorrectable_errors == 2 * lost.len() as u64, "{counts:?}");
    ensure!(counts.corrected_errors == mended.len() as u64, "{counts:?}");
    ensure!(
        report.damages[..LISTED].iter().all(|damage| damage.finding.outcome == Outcome::Lost),
        "what is left is first"
    );
    let named = report.damages.iter().filter(|damage| !damage.files.is_empty()).count();
    ensure!(named == LISTED, "{named} have their files named");
    whole_again(&world, &set, mended)
}

fn whole_again(world: &ScrubWorld, set: &Set, mended: &[u64]) -> Result<()> {
    for spot in mended.iter().flat_map(|at| world.group_of(*at).copies(*at)) {
        let MemberSpot { member, offset } = spot;
        ensure!(set.disks[member].peek(offset, SECTOR).iter().all(|byte| *byte == 0), "{spot:?} is mended");
    }
    Ok(())
}
