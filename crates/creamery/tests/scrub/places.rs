//! The place of a scrub: it moves on with each batch and never back, a scrub that fails at once keeps it, and a cancelled scrub of parity
//! rows ends there.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use creamery::check::scrub::{Counts, Ended, Finding, Progress, Scrub, StatusFile};
use creamery::device::BlockDevice;
use creamery_base::{DevId, TreeId};
use creamery_format::{BlockGroupFlags, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, Superblock};
use creamery_maint::scrub::{self, Recorder, Scrub as Walker, Sink, host_paths};
use creamery_testkit::harness::{Bench, Case};
use creamery_txn::{Engine, Options};
use creamery_volume::{DeviceSet, Mode, Volume};

use crate::content::Content;
use crate::damage::{Hurt, apply};
use crate::disk::{Asked, Set};
use crate::geometry::{ELEMENT, PROFILES, Profile};
use crate::trees::all_copies;
use crate::world::{DataGroupEnd, ScrubWorld, SetLayout};

/// Bytes of a device in one batch at most.
const BATCH: u64 = 512 << 10;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("scrub-matrix/the-place-moves-on-with-each-batch", &[], |_| each_batch()),
        Case::new("scrub-matrix/what-is-told-late-takes-no-place-back", &[], |_| told_late()),
        Case::new("scrub-matrix/a-scrub-that-fails-at-once-keeps-its-place", &[], fails_at_once),
        Case::new("scrub-matrix/rows-of-parity-end-where-they-are-told-to", &[], |_| ends_in_rows()),
    ]
}

fn shape(profile: &str) -> SetLayout {
    let profile = Profile::named(profile);
    SetLayout { profile, members: profile.members[0], shift: 0, ends: DataGroupEnd::InFreeSpace }
}

/// The reports of each call about a device.
#[derive(Default)]
struct DeviceReports(Mutex<Vec<Counts>>);

impl Sink for DeviceReports {
    fn found(&self, _: &Finding) {}

    fn goes_on(&self, _: DevId, counts: &Counts) -> bool {
        self.0.lock().expect("not poisoned").push(*counts);
        true
    }
}

fn open(set: &Set) -> Result<std::sync::Arc<Engine>> {
    let volume = Volume::open(set.devices().into_iter().collect::<DeviceSet>(), Mode::ReadOnly)?;
    Ok(Engine::open(volume, Options { read_only: true, ..Options::default() })?)
}

fn scrubbed(counts: &Counts) -> u64 {
    counts.data_bytes_scrubbed + counts.tree_bytes_scrubbed
}

/// On one thread each call reports one more batch. Of two threads, the one that has done less may report later.
fn each_batch() -> Result<()> {
    let content = Content::large()?;
    for profile in PROFILES {
        let world = ScrubWorld::new(content.clone(), shape(profile.name))?;
        let engine = open(&world.set.fork())?;
        for dev in (1..=world.shape.members as u64).map(DevId::new) {
            for is_alone in [true, false] {
                // Each separately, so that it leads if there is parity.
                let (scrub, told) = (Walker::reading(&engine), DeviceReports::default());
                let scrub = if is_alone { scrub.on_threads(NonZero::<usize>::MIN) } else { scrub };
                let (last, ended) = scrub.device(dev, &told)?;
                ensure!(ended == Ended::Whole, "it ends {ended:?}");
                let mut told = told.0.into_inner()?;
                if !is_alone {
                    told.sort_by_key(|counts| (scrubbed(counts), counts.last_physical));
                }
                moves_on(&told, &last, is_alone)
                    .with_context(|| format!("{profile:?}, device {dev}, alone: {is_alone}"))?;
            }
        }
    }
    Ok(())
}

fn moves_on(told: &[Counts], last: &Counts, is_alone: bool) -> Result<()> {
    let (mut before, mut moved) = (Counts::default(), 0);
    for now in told.iter().chain([last]) {
        ensure!(now.last_physical >= before.last_physical, "it goes back: {before:?}, then {now:?}");
        let more = scrubbed(now) - scrubbed(&before);
        // Batches behind one in flight count after that has ended.
        ensure!(more <= BATCH || !is_alone, "{more} bytes at once");
        ensure!(more == 0 || now.last_physical > before.last_physical, "it stays behind: {now:?}");
        moved += u64::from(now.last_physical > before.last_physical);
        before = *now;
    }
    ensure!(scrubbed(last) <= BATCH || moved > 2, "it moved {moved} times");
    Ok(())
}

/// A late report of an earlier batch does not move the place back.
fn told_late() -> Result<()> {
    let engine = open(&ScrubWorld::new(Content::small(16 << 10)?, shape("raid1"))?.set)?;
    let recorder = Recorder::begin(None, &engine, &host_paths(&engine), scrub::Mode::ReadsOnly)?;
    let [first, second] = [1, 2].map(|batches| Counts {
        data_bytes_scrubbed: batches * BATCH,
        last_physical: batches * BATCH,
        ..Counts::default()
    });
    let dev = DevId::new(1);
    for counts in [second, first] {
        recorder.note(&engine, (dev, &counts));
        let status = recorder.status();
        let device = status.devices.iter().find(|device| device.id == dev).context("the device")?;
        ensure!(device.counts == second, "{:?}", device.counts);
    }
    Ok(())
}

/// Cancels after this many bytes.
struct UpTo(u64);

impl Progress for UpTo {
    fn scrubbed(&self, bytes: u64) -> bool {
        bytes < self.0
    }
}

/// The places of the last scrub's status, device by device.
fn places(file: &StatusFile) -> Result<BTreeMap<DevId, u64>> {
    let status = file.read()?.context("there is a status")?;
    Ok(status.devices.iter().map(|device| (device.id, device.counts.last_physical)).collect())
}

/// A resumed scrub that finds damaged trees at once: the place stays where the last scrub left it.
fn fails_at_once(bench: &Bench) -> Result<()> {
    for profile in ["single", "raid1", "raid10", "raid5"] {
        let world = ScrubWorld::new(Content::of_many_leaves()?, shape(profile))?;
        let whole = Scrub::default().read_only().run_on(world.set.fork().devices(), &UpTo(u64::MAX))?;
        let part = UpTo(scrubbed(&whole.counts()) / 8);
        let (set, dir) = (world.set.fork(), bench.scratch.dir("status")?);
        let mut bytes = vec![0; SUPERBLOCK_LEN];
        set.disks[0].read_at(SUPERBLOCK_OFFSETS[0], &mut bytes)?;
        let fsid = Superblock::from_bytes(&bytes, SUPERBLOCK_OFFSETS[0])?.fsid();
        let file = StatusFile::new(&dir, fsid, set.disks[0].id().numbers());
        let first = Scrub::default().read_only().kept_in(&dir).run_on(set.devices(), &part)?;
        ensure!(first.ended() == Ended::Cancelled, "{profile}: it ends {:?}", first.ended());
        let before = places(&file)?;
        ensure!(before.values().any(|at| *at > 0), "{profile}: {before:?}");
        let leaves = world.content.leaves(TreeId::EXTENT).into_iter();
        apply(&set, &leaves.flat_map(|leaf| all_copies(&world, leaf, Hurt::Unreadable)).collect());
        let again = Scrub::default().read_only().resuming(&dir).run_on(set.devices(), &UpTo(u64::MAX))?;
        ensure!(again.counts().uncorrectable_errors > 0, "{profile}: {:?}", again.counts());
        let after = places(&file)?;
        let is_kept = before.iter().all(|(dev, at)| after.get(dev).is_some_and(|now| now >= at));
        ensure!(is_kept, "{profile}: {before:?}, and then {after:?}");
        // At the walker itself, which adds nothing up.
        let engine = open(&set)?;
        for (dev, at) in &before {
            let scrub = Walker::reading(&engine).starting_at(before.clone());
            let (counts, _) = scrub.device(*dev, &DeviceReports::default())?;
            ensure!(counts.last_physical >= *at, "{profile}, device {dev}: {counts:?}, begun at {at}");
        }
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}

/// Cancels as soon as data is scrubbed.
struct NoData;

impl Sink for NoData {
    fn found(&self, _: &Finding) {}

    fn goes_on(&self, _: DevId, counts: &Counts) -> bool {
        counts.data_bytes_scrubbed == 0
    }
}

/// After a cancel no batch of rows begins, however many rows the chunk has.
fn ends_in_rows() -> Result<()> {
    for profile in ["raid5", "raid6"] {
        let world = ScrubWorld::new(Content::large()?, shape(profile))?;
        let groups = world.groups.iter().filter(|group| group.kind == BlockGroupFlags::DATA);
        let group = groups.max_by_key(|group| group.len).context("a group of data")?;
        let rows_read = |sink: &dyn Sink| -> Result<(u64, Ended)> {
            let set = world.set.fork();
            let engine = open(&set)?;
            let (_, ended) =
                Walker::reading(&engine).on_threads(NonZero::<usize>::MIN).device(DevId::new(1), sink)?;
            let stripe = group.stripes[0];
            let range = stripe.offset..stripe.offset + group.stripe_bytes();
            let asked = set.journal.asked().into_iter();
            let rows = asked.filter_map(|(member, asked)| match asked {
                Asked::Read { offset, len } if member == stripe.member && range.contains(&offset) => {
                    Some(len / ELEMENT)
                }
                _ => None,
            });
            Ok((rows.sum(), ended))
        };
        let (all, ended) = rows_read(&DeviceReports::default())?;
        ensure!(all > 60 && ended == Ended::Whole, "{profile}: {all} rows, it ends {ended:?}");
        let (read, ended) = rows_read(&NoData)?;
        ensure!(ended == Ended::Cancelled, "{profile}: it ends {ended:?}");
        ensure!(read == BATCH / ELEMENT, "{profile}: {read} of {all} rows were read");
    }
    Ok(())
}
