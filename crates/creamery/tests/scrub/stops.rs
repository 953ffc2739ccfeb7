//! A cancelled scrub: it reports that, nothing is worse than before, and a scrub that resumes it repairs the rest.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use creamery::check::scrub::{Ended, NoProgress, Progress, Scrub};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Random, seed_of, share_or_whole};

use crate::content::Content;
use crate::damage::{BadSectors, Hurt, apply, files};
use crate::disk::SECTOR;
use crate::faults::{all_mended, borne, worlds};
use crate::geometry::{PROFILES, Profile};
use crate::predict::Prediction;
use crate::world::{DataGroupEnd, ScrubWorld, SetLayout};

/// Moments of each layout that every change tests.
const SHARE: usize = 6;

pub(crate) fn cases() -> Vec<Case> {
    let bears = |profile: &Profile| profile.copies + profile.parity > 1;
    let case = |profile: Profile| {
        let name = format!("scrub-matrix/stops-when-it-is-told-{}", profile.name);
        Case::new(name, &[], move |bench| each_moment(bench, profile))
    };
    let mut cases: Vec<Case> = PROFILES.into_iter().filter(bears).map(case).collect();
    let keeps = "scrub-matrix/a-device-that-stops-with-a-chunk-in-hands-keeps-no-other";
    cases.push(Case::new(keeps, &[], |_| in_a_pause()));
    cases
}

/// Bytes per second: a step is one batch, and rows of a chunk take several.
const LIMIT: u64 = 4 << 20;

/// Cancels while a limit makes a scrub pause, after this many bytes are scrubbed.
struct UntilAPause {
    last: AtomicU64,
    bytes: u64,
}

impl Progress for UntilAPause {
    fn scrubbed(&self, bytes: u64) -> bool {
        self.last.swap(bytes, Ordering::Relaxed) != bytes || bytes < self.bytes
    }
}

/// Between two steps of a device that leads a chunk with parity the others wait for it: they end with it.
fn in_a_pause() -> Result<()> {
    let shape =
        SetLayout { profile: Profile::named("raid5"), members: 3, shift: 0, ends: DataGroupEnd::InFreeSpace };
    let world = ScrubWorld::new(Content::of_many_leaves()?, shape)?;
    let all = Scrub::default().run_on(world.set.fork().devices(), &NoProgress)?.counts();
    let all = all.data_bytes_scrubbed + all.tree_bytes_scrubbed;
    let mut cancelled = 0;
    for part in 0..8 {
        let until = UntilAPause { last: AtomicU64::new(0), bytes: all * part / 8 };
        let report = Scrub::default().limit(LIMIT).run_on(world.set.fork().devices(), &until)?;
        cancelled += u32::from(report.ended() == Ended::Cancelled);
        ensure!(report.ended() != Ended::Failed, "part {part}: {report:?}");
    }
    ensure!(cancelled > 4, "{cancelled} of 8 were told in a pause");
    Ok(())
}

/// Cancels after this number of calls.
struct StopAfter {
    asked: AtomicU64,
    most: u64,
}

impl Progress for StopAfter {
    fn scrubbed(&self, _: u64) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) < self.most
    }
}

fn each_moment(bench: &Bench, profile: Profile) -> Result<()> {
    for world in worlds(profile)? {
        let mut random = Random::new(seed_of(&format!("stops {:?}", world.shape)));
        let damage = borne(&world, &mut random, &[Hurt::Rotten, Hurt::Unreadable]);
        let whole = StopAfter { asked: AtomicU64::new(0), most: u64::MAX };
        let set = world.set.fork();
        Scrub::default().run_on(set.devices(), &whole)?;
        let asked = whole.asked.into_inner();
        ensure!(asked > 1, "it asks {asked} times");
        let mut moments: Vec<u64> = (0..asked).collect();
        random.shuffle(&mut moments);
        moments.truncate(share_or_whole(SHARE, moments.len()));
        for most in moments {
            one(bench, &world, &damage, most)
                .with_context(|| format!("{:?}: behind {most} of {asked}", world.shape))?;
        }
    }
    Ok(())
}

fn one(bench: &Bench, world: &ScrubWorld, damage: &BadSectors, most: u64) -> Result<()> {
    let set = world.set.fork();
    let dir = bench.scratch.dir("status")?;
    apply(&set, damage);
    let patience = StopAfter { asked: AtomicU64::new(0), most };
    let report = Scrub::default().kept_in(&dir).run_on(set.devices(), &patience)?;
    ensure!(report.ended() == Ended::Cancelled, "it ends {:?}", report.ended());
    all_mended(&report)?;
    for (spot, used) in &world.uses {
        let (now, whole) = (&set.disks[spot.member], &world.set.disks[spot.member]);
        let is_same = now.peek(spot.offset, SECTOR) == whole.peek(spot.offset, SECTOR);
        ensure!(is_same || damage.contains_key(spot), "{spot:?} ({used:?}) was good");
    }
    files(world, &Prediction::default(), &set)?;
    // It resumes where the first one stopped, and leaves nothing out.
    let report = Scrub::default().resuming(&dir).run_on(set.devices(), &NoProgress)?;
    ensure!(report.ended() == Ended::Whole, "it ends {:?}", report.ended());
    all_mended(&report)?;
    std::fs::remove_dir_all(dir)?;
    for spot in world.uses.keys() {
        let (now, whole) = (&set.disks[spot.member], &world.set.disks[spot.member]);
        ensure!(now.peek(spot.offset, SECTOR) == whole.peek(spot.offset, SECTOR), "{spot:?} is not mended");
    }
    Ok(())
}
