//! A scrub in several parts: if devices end early, the errors that another device's scrub counted for them stay in their counts; and all
//! parts together find and count the same as one scrub.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use creamery::check::scrub::{Counts, Ended, Finding, NoProgress, Progress, Report, Scrub};
use creamery_base::{DevId, TreeId};
use creamery_maint::scrub::{DeviceScrub, Scrub as Walker, Sink, Step};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Random, seed_of, share_or_whole};
use creamery_txn::{Engine, Options};
use creamery_volume::{DeviceSet, Rescue, Volume};

use crate::case_name;
use crate::content::Content;
use crate::damage::{BadSectors, Hurt, apply};
use crate::disk::Set;
use crate::faults::{borne, worlds};
use crate::geometry::{MemberSpot, PROFILES, Profile};
use crate::trees::all_copies;
use crate::world::{DataGroupEnd, ScrubWorld, SetLayout, Use};

/// Moments of each layout that every change tests.
const SHARE: usize = 4;

pub(crate) fn cases() -> Vec<Case> {
    let not_come = "scrub-matrix/what-is-mended-on-a-device-that-did-not-come-counts";
    let waits = "scrub-matrix/a-device-that-waits-for-its-counts-ends-with-them";
    let missing_one = "scrub-matrix/what-a-missing-device-has-is-no-finding";
    let mut cases = vec![
        Case::new(missing_one, &[], |_| missing()),
        Case::new(not_come, &[], |_| not_come_yet()),
        Case::new(waits, &[], |_| waiting()),
        Case::new("scrub-matrix/in-two-parts-with-damaged-trees", &[], damaged_trees),
    ];
    cases.extend(PROFILES.map(|profile| {
        Case::new(case_name("in-two-parts", profile.name), &[], move |bench| in_two_parts(bench, profile))
    }));
    cases
}

/// Keeps the findings.
#[derive(Default)]
struct KeptFindings(Mutex<Vec<Finding>>);

impl Sink for KeptFindings {
    fn found(&self, finding: &Finding) {
        self.0.lock().expect("no thread dies").push(finding.clone());
    }

    fn goes_on(&self, _: DevId, _: &Counts) -> bool {
        true
    }
}

impl KeptFindings {
    /// The number of findings of a device.
    fn of(&self, dev: DevId) -> u64 {
        let all = self.0.lock().expect("no thread dies");
        all.iter().filter(|finding| finding.at.dev == dev).count() as u64
    }
}

/// A set of RAID5 with rot on each member, at most one sector of a row.
fn rotten() -> Result<Set> {
    let shape =
        SetLayout { profile: Profile::named("raid5"), members: 3, shift: 0, ends: DataGroupEnd::InFreeSpace };
    let world = ScrubWorld::new(Content::of_many_leaves()?, shape)?;
    let mut rows: BTreeMap<_, Vec<MemberSpot>> = BTreeMap::new();
    for (spot, used) in &world.uses {
        if let Use::Data { logical } = used
            && world.content.summed.contains(logical)
        {
            let group = world.group_of(*logical);
            rows.entry(group.row_of(*logical)).or_default().push(*spot);
        }
    }
    let set = world.set.fork();
    // Alternating between the first and the last member with data of a row.
    let ends = rows.values().enumerate();
    let ends = ends.filter_map(|(number, spots)| if number % 2 == 0 { spots.first() } else { spots.last() });
    apply(&set, &ends.map(|spot| (*spot, Hurt::Rotten)).collect());
    Ok(set)
}

fn open(set: &Set) -> Result<Arc<Engine>> {
    let volume = Volume::open_for_mending(set.devices())?;
    Ok(Engine::open(volume, Options { read_only: true, ..Options::default() })?)
}

fn begun(scrub: &Walker<'_>, sink: &dyn Sink) -> Result<Vec<DeviceScrub>> {
    (1..=3).map(|id| scrub.begin(DevId::new(id), sink).map_err(Into::into)).collect()
}

/// One device scrubs all chunks before the others have reached one.
fn not_come_yet() -> Result<()> {
    for leader in 0..3 {
        let engine = open(&rotten()?)?;
        let (scrub, found) = (Walker::mending(&engine, engine.volume().mender()?), KeptFindings::default());
        let mut devices = begun(&scrub, &found)?;
        while scrub.step(&mut devices[leader], u64::MAX, &found)? != Step::Ended(Ended::Whole) {}
        for device in &mut devices {
            scrub.give_up(device);
            let (own, others) = (*device.counts(), scrub.unclaimed(device.device()));
            let all = found.of(device.device());
            ensure!(all > 0, "{:?} has rot", device.device());
            let corrected = own.corrected_errors + others.corrected_errors;
            ensure!(corrected == all, "{corrected} of {all} are counted, {own:?}, {others:?}");
            ensure!(own.csum_errors + others.csum_errors == all, "{own:?}, {others:?}");
            ensure!(others.data_bytes_scrubbed == 0, "a later scrub reads it: {others:?}");
            ensure!(others.last_physical == 0, "a later scrub begins there: {others:?}");
        }
    }
    Ok(())
}

/// All devices wait for one, in the midst of a chunk, and are cancelled in any order.
fn waiting() -> Result<()> {
    let engine = open(&rotten()?)?;
    for (leader, order) in [(0, [0, 1, 2]), (1, [0, 1, 2]), (2, [0, 1, 2]), (1, [2, 1, 0])] {
        let (scrub, found) = (Walker::reading(&engine), KeptFindings::default());
        let mut devices = begun(&scrub, &found)?;
        while found.0.lock().expect("no thread dies").is_empty() {
            ensure!(scrub.step(&mut devices[leader], 1, &found)? == Step::More, "{leader} leads");
        }
        for (_, device) in devices.iter_mut().enumerate().filter(|(other, _)| *other != leader) {
            while scrub.step(device, 1, &found)? == Step::More {}
        }
        order.into_iter().for_each(|at| scrub.give_up(&mut devices[at]));
        for device in &devices {
            let mut counts = *device.counts();
            counts += scrub.unclaimed(device.device());
            let all = found.of(device.device());
            ensure!(all > 0, "{:?} has rot", device.device());
            ensure!(counts.csum_errors == all, "{leader} leads, {order:?}: {all} were found, {counts:?}");
            ensure!(counts.unverified_errors == all && counts.last_physical > 4 << 20, "{counts:?}");
        }
    }
    Ok(())
}

/// Cancels after this number of calls.
struct CancelAfter {
    asked: AtomicU64,
    most: u64,
}

impl Progress for CancelAfter {
    fn scrubbed(&self, _: u64) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) < self.most
    }
}

fn in_two_parts(bench: &Bench, profile: Profile) -> Result<()> {
    for world in worlds(profile)? {
        let mut random = Random::new(seed_of(&format!("parts {:?}", world.shape)));
        let damage = borne(&world, &mut random, &[Hurt::Rotten, Hurt::Unreadable]);
        for scrub in [Scrub::default(), Scrub::default().read_only()] {
            let set = world.set.fork();
            apply(&set, &damage);
            let patience = CancelAfter { asked: AtomicU64::new(0), most: u64::MAX };
            let whole = scrub.run_on(set.devices(), &patience)?;
            let asked = patience.asked.into_inner();
            let mut moments: Vec<u64> = (0..asked).collect();
            random.shuffle(&mut moments);
            moments.truncate(share_or_whole(SHARE, moments.len()));
            for most in moments {
                let dir = bench.scratch.dir("status")?;
                parts(&world, &damage, (&scrub, &dir), most, &whole)
                    .with_context(|| format!("{:?}: {scrub:?} behind {most} of {asked}", world.shape))?;
                std::fs::remove_dir_all(dir)?;
            }
        }
    }
    Ok(())
}

/// A group with damaged trees counts once, wherever the first part ends.
fn damaged_trees(bench: &Bench) -> Result<()> {
    for (profile, members) in [("single", 1), ("raid1", 2)] {
        let shape = SetLayout {
            profile: Profile::named(profile),
            members,
            shift: 0,
            ends: DataGroupEnd::InFreeSpace,
        };
        let world = ScrubWorld::new(Content::of_many_leaves()?, shape)?;
        let leaves = world.content.leaves(TreeId::EXTENT);
        for leaf in [leaves[0], leaves[leaves.len() / 2], leaves[leaves.len() - 1]] {
            let damage = all_copies(&world, leaf, Hurt::Rotten);
            let (set, scrub) = (world.set.fork(), Scrub::default().read_only());
            apply(&set, &damage);
            let patience = CancelAfter { asked: AtomicU64::new(0), most: u64::MAX };
            let whole = scrub.run_on(set.devices(), &patience)?;
            ensure!(whole.counts().uncorrectable_errors > 0, "a group is not scrubbed");
            for most in 0..patience.asked.into_inner() {
                let dir = bench.scratch.dir("status")?;
                parts(&world, &damage, (&scrub, &dir), most, &whole)
                    .with_context(|| format!("{shape:?}: leaf {leaf} behind {most}"))?;
                std::fs::remove_dir_all(dir)?;
            }
        }
    }
    Ok(())
}

/// The findings, by words that can be ordered.
fn lines(report: &Report) -> Vec<String> {
    let mut lines: Vec<String> = report.damages.iter().map(|damage| damage.finding.to_string()).collect();
    lines.sort_unstable();
    lines
}

fn parts(
    world: &ScrubWorld,
    damage: &BadSectors,
    (scrub, dir): (&Scrub, &Path),
    most: u64,
    whole: &Report,
) -> Result<()> {
    let set = world.set.fork();
    apply(&set, damage);
    let patience = CancelAfter { asked: AtomicU64::new(0), most };
    let first = scrub.clone().kept_in(dir).run_on(set.devices(), &patience)?;
    ensure!(first.ended() == Ended::Cancelled, "it ends {:?}", first.ended());
    let report = scrub.clone().resuming(dir).run_on(set.devices(), &NoProgress)?;
    ensure!(report.ended() == Ended::Whole, "it ends {:?}", report.ended());
    ensure!(lines(&report) == lines(whole), "{:#?}\nexpected {:#?}", lines(&report), lines(whole));
    let (counts, expected) = (report.counts(), whole.counts());
    // The second part reads a sector again that was unreadable, and was repaired ahead of its device.
    let bytes = |counts: &Counts| {
        (counts.data_bytes_scrubbed, counts.tree_bytes_scrubbed, counts.parity_bytes_scrubbed)
    };
    let (data_bytes_scrubbed, tree_bytes_scrubbed, parity_bytes_scrubbed) = bytes(&expected);
    let as_many = Counts { data_bytes_scrubbed, tree_bytes_scrubbed, parity_bytes_scrubbed, ..counts };
    ensure!(as_many == expected, "{counts:?}\nexpected {expected:?}");
    ensure!(bytes(&counts) >= bytes(&expected), "{counts:?}\nexpected {expected:?}");
    Ok(())
}

/// Present devices are scrubbed read-only: the content of the missing one is judged to know the parity, and is not a finding.
fn missing() -> Result<()> {
    for (profile, members) in [("raid5", 3), ("raid6", 4)] {
        let shape = SetLayout {
            profile: Profile::named(profile),
            members,
            shift: 0,
            ends: DataGroupEnd::InFreeSpace,
        };
        let world = ScrubWorld::new(Content::of_many_leaves()?, shape)?;
        let set = world.set.fork();
        let is_summed = |(spot, used): &(&MemberSpot, &Use)| {
            spot.member == 0
                && matches!(used, Use::Data { logical } if world.content.summed.contains(logical))
        };
        let (rotten, _) = world.uses.iter().find(is_summed).context("a sector with a checksum")?;
        apply(&set, &[(*rotten, Hurt::Rotten)].into());
        let mut devices = set.devices();
        devices.pop();
        let devices = DeviceSet::from(devices).degraded(true);
        let volume = Volume::open_for_rescue(devices, Rescue::default())?;
        let engine = Engine::open(volume, Options { read_only: true, ..Options::default() })?;
        let (scrub, found) = (Walker::reading(&engine), KeptFindings::default());
        let mut errors = 0;
        for id in 1..members as u64 {
            let (counts, ended) = scrub.device(DevId::new(id), &found)?;
            ensure!(ended == Ended::Whole, "{profile}: device {id} ends {ended:?}");
            errors += counts.errors();
        }
        let findings = found.0.into_inner().expect("no thread dies");
        ensure!(errors == 1 && findings.len() == 1, "{profile}: {errors} errors, {findings:#?}");
        ensure!(findings[0].at.offset == rotten.offset, "{profile}: {findings:#?}");
    }
    Ok(())
}
