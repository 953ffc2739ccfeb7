//! Unusual devices: with sectors of 4 KiB, of any length, longer or shorter than the filesystem, and read-only files.

use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use creamery::check::scrub::{NoProgress, Outcome, Report, Scrub};
use creamery::device::{Access, BlockDevice, Completion, DeviceId, FileDevice, Request};
use creamery::{ErrorKind, Image};
use creamery_mkfs::{MkfsOptions, Profile};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Random, seed_of};

use crate::content::{Content, LEN, files_of, fill, made};
use crate::damage::{BadSectors, Hurt, apply, findings_of, judge, scrub};
use crate::disk::{RottenDisk, SECTOR, Set};
use crate::faults::borne;
use crate::geometry::{MemberSpot, PROFILES};
use crate::world::{DataGroupEnd, ScrubWorld, SetLayout, Use};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("scrub-matrix/devices-of-large-sectors", &[], |_| large_sectors()),
        Case::new("scrub-matrix/devices-that-get-slower", &[], |_| slower()),
        Case::new("scrub-matrix/devices-of-any-length", &[], |_| any_length()),
        Case::new("scrub-matrix/devices-longer-and-shorter", &[], |_| longer_and_shorter()),
        Case::new("scrub-matrix/files-that-are-only-read", &[], only_read),
    ]
}

/// A device that only takes whole sectors of 4 KiB gets no other requests, and is repaired.
fn large_sectors() -> Result<()> {
    let content = Content::small(16 << 10)?;
    for profile in PROFILES {
        let shape =
            SetLayout { profile, members: profile.members[0], shift: 0, ends: DataGroupEnd::InFreeSpace };
        let mut world = ScrubWorld::new(content.clone(), shape)?;
        let disks = world.set.disks.iter().map(|disk| {
            let own = disk.fork(&world.set.journal).with_unit(SECTOR);
            Arc::new(own)
        });
        world.set = Set { disks: disks.collect(), journal: Arc::clone(&world.set.journal) };
        let places = [Use::Superblock].into_iter().map(|_| MemberSpot { member: 0, offset: 64 << 20 });
        let data = world.uses.iter().find(
            |(_, used)| matches!(used, Use::Data { logical } if world.content.summed.contains(logical)),
        );
        let tree = world.uses.iter().find(|(_, used)| matches!(used, Use::Tree { .. }));
        let bears = profile.copies + profile.parity > 1;
        let more = [data, tree].into_iter().flatten().map(|(spot, _)| *spot).filter(|_| bears);
        for spot in places.chain(more) {
            for hurt in [Hurt::Rotten, Hurt::Unreadable] {
                judge(&world, &BadSectors::from([(spot, hurt)]))
                    .with_context(|| format!("{shape:?}: {hurt:?} at {spot:?}"))?;
            }
        }
    }
    Ok(())
}

/// A disk that answers on its own threads, each time later than before.
struct SlowDisk {
    below: Arc<RottenDisk>,
    asked: AtomicU64,
}

impl BlockDevice for SlowDisk {
    fn submit(&self, request: Request, done: Completion) {
        let (below, turns) = (Arc::clone(&self.below), self.asked.fetch_add(1, Ordering::Relaxed));
        std::thread::spawn(move || {
            (0..turns % 64).for_each(|_| std::thread::yield_now());
            below.submit(request, done);
        });
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

/// Findings, counters and repairs are those of disks that answer at once.
fn slower() -> Result<()> {
    let content = Content::small(16 << 10)?;
    for profile in PROFILES {
        let shape =
            SetLayout { profile, members: profile.members[1], shift: 4096, ends: DataGroupEnd::InFreeSpace };
        let world = ScrubWorld::new(content.clone(), shape)?;
        let mut random = Random::new(seed_of(&format!("slower {shape:?}")));
        let damage = borne(&world, &mut random, &[Hurt::Rotten]);
        let (fast, slow) = (world.set.fork(), world.set.fork());
        apply(&fast, &damage);
        apply(&slow, &damage);
        let wanted = scrub(&fast)?;
        let disks = slow.disks.iter().map(|disk| {
            Arc::new(SlowDisk { below: Arc::clone(disk), asked: AtomicU64::new(0) }) as Arc<dyn BlockDevice>
        });
        let found = Scrub::default().run_on(disks, &NoProgress)?;
        ensure!(findings_of(&found) == findings_of(&wanted), "{shape:?}: {:#?}", found.damages);
        let numbers = |report: &Report| {
            report.devices.iter().map(|device| (device.id, device.counts, device.ended)).collect::<Vec<_>>()
        };
        ensure!(
            numbers(&found) == numbers(&wanted),
            "{shape:?}: {:?}, not {:?}",
            numbers(&found),
            numbers(&wanted)
        );
        ensure!(slow.pages() == fast.pages(), "{shape:?}: the same is mended");
    }
    Ok(())
}

fn dup(options: &mut MkfsOptions) {
    options.data = Some(Profile::Dup);
    options.metadata = Some(Profile::Dup);
}

/// Filesystems on devices that end at an odd sector, or in the midst of one.
fn any_length() -> Result<()> {
    for more in [0, 512, 4096, 5 * 4096, 65536 - 4096, 65536 + 512] {
        let memory = made(LEN + more, dup, fill)?;
        let report = Scrub::default().run_on([Arc::clone(&memory) as Arc<dyn BlockDevice>], &NoProgress)?;
        ensure!(report.damages.is_empty(), "{more}: {:#?}", report.damages);
        let copy = Image::options().open_device(memory)?;
        ensure!(!files_of(&copy)?.is_empty(), "there are files");
    }
    Ok(())
}

/// The area behind the end of the filesystem is not touched; a device that ends before it is not repaired, and read as far as it goes.
fn longer_and_shorter() -> Result<()> {
    let content = Content::small(16 << 10)?;
    for profile in PROFILES.into_iter().filter(|profile| profile.copies + profile.parity > 1) {
        let shape =
            SetLayout { profile, members: profile.members[0], shift: 0, ends: DataGroupEnd::InFreeSpace };
        let world = ScrubWorld::new(content.clone(), shape)?;
        for len in [LEN + SECTOR, LEN + (1 << 30), 300 << 30] {
            let set = of_length(&world, len);
            let behind = LEN + SECTOR / 2;
            set.disks[0].poke(behind, b"somebody else's");
            ensure!(scrub(&set)?.damages.is_empty() && set.writes().is_empty(), "{shape:?}: {len} bytes");
        }
        // The device ends in the midst of its last stripe.
        let end = world.uses.keys().filter(|spot| spot.member == 0 && spot.offset != 64 << 20);
        let end = end.map(|spot| spot.offset).max().context("it is in use")?;
        for len in [LEN - SECTOR, end, end - 65536 - 512] {
            let set = of_length(&world, len);
            let error = scrub(&set).map(drop).err().context("it is not mended")?;
            ensure!(error.to_string().contains("ends before the filesystem"), "{error}");
            let report = Scrub::default().read_only().run_on(set.devices(), &NoProgress);
            let report = report.with_context(|| format!("{shape:?}: {len} bytes, to read"))?;
            let is_whole = len > end;
            ensure!(report.damages.is_empty() == is_whole, "{shape:?}: {len} bytes: {:#?}", report.damages);
            ensure!(set.writes().is_empty(), "nothing is written");
        }
    }
    Ok(())
}

/// The set with disks of another length.
fn of_length(world: &ScrubWorld, len: u64) -> Set {
    let set = Set::new(world.shape.members, len);
    for (to, from) in set.disks.iter().zip(&world.set.disks) {
        for (offset, page) in from.pages().into_iter().filter(|(offset, _)| offset + SECTOR <= len) {
            to.poke(offset, &page);
        }
    }
    set
}

/// The content of a device, as a file.
pub(crate) fn in_file(device: &dyn BlockDevice, path: &Path) -> Result<File> {
    let file = File::create_new(path)?;
    file.set_len(device.len())?;
    let mut bytes = vec![0; 1 << 20];
    for at in (0..device.len()).step_by(bytes.len()) {
        device.read_at(at, &mut bytes)?;
        if bytes.iter().any(|byte| *byte != 0) {
            file.write_all_at(&bytes, at)?;
        }
    }
    Ok(file)
}

/// A read-only image is read; a repair of it is refused, and the message says why.
fn only_read(bench: &Bench) -> Result<()> {
    let path = bench.scratch.file("disk.img");
    let file = in_file(&*made(LEN, dup, fill)?, &path)?;
    let report = Scrub::default().run(&path, &NoProgress)?;
    ensure!(report.damages.is_empty(), "{:#?}", report.damages);
    file.write_all_at(b"rotten", (64 << 20) + 200)?;
    drop(file);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444))?;
    let report = Scrub::default().read_only().run(&path, &NoProgress)?;
    ensure!(report.damages.len() == 1, "{:#?}", report.damages);
    ensure!(report.damages[0].finding.outcome == Outcome::Mendable, "{:#?}", report.damages);
    // A device of the caller that is open for reading only.
    let device =
        || -> Result<Arc<dyn BlockDevice>> { Ok(Arc::new(FileDevice::open(&path, Access::ReadOnly)?)) };
    let report = Scrub::default().read_only().run_on([device()?], &NoProgress)?;
    ensure!(report.damages.len() == 1, "{:#?}", report.damages);
    match Scrub::default().run_on([device()?], &NoProgress) {
        Err(error) => ensure!(error.kind() == ErrorKind::ReadOnly, "{error}"),
        Ok(report) => {
            let finding = &report.damages[0].finding;
            ensure!(finding.outcome != Outcome::Mended, "it is not mended: {finding:?}");
        }
    }

    Ok(())
}
