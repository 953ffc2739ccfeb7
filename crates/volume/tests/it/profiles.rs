//! Trees of images with several devices: reading every block of them proves the mapping, since a block carries
//! its own address.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;

use creamery_base::{DevId, ErrorKind, Generation, Logical, Result, TreeId, Wait};
use creamery_device::{BlockDevice, MemoryDevice};
use creamery_format::{BlockGroupFlags, BlockRef, Expected, KeyType, RawRootItem, Superblock};
use creamery_testkit::{LoopDevice, Run};
use creamery_volume::{Chunk, DeviceSet, MemberState, Mode, Rescue, Verdict, Volume};
use zerocopy::FromBytes;

use crate::faulty;
use crate::images::*;

/// Metadata in `profile` on `devices`, enough of it to go round them several times: Linux makes it, through loop
/// devices.
pub(crate) fn made(profile: &str, devices: usize) -> Option<Vec<Arc<MemoryDevice>>> {
    let dir = tempfile::tempdir().unwrap();
    let files = new_files(dir.path(), &vec![256 << 20; devices]);
    let loops: Vec<LoopDevice> =
        files.iter().map_while(|file| LoopDevice::attach(file, false).ok()).collect();
    if loops.len() < devices {
        skipped("root with free loop devices");
        return None;
    }
    let nodes = loops.iter().map(LoopDevice::path);
    run(Command::new("mkfs.btrfs")
        .args(["-q", "-n", "4096", "-m", profile, "-d", "single"])
        .args(nodes.clone()));
    run(Command::new("btrfs").args(["device", "scan"]).args(nodes.clone()));
    let at = dir.path().join("mounted");
    std::fs::create_dir(&at).unwrap();
    run(Command::new("mount").arg(loops[0].path()).arg(&at));
    for number in 0..1500 {
        std::fs::write(at.join(format!("{number}-{}", "x".repeat(200))), b"").unwrap();
    }
    // Programs that read all mounts have it open for a moment.
    Run::new("umount").arg(&at).again_while_busy().ok().expect("it is unmounted");
    run(Command::new("btrfs").args(["device", "scan", "--forget"]).args(nodes));
    drop(loops);
    Some(files.iter().map(|file| load(file)).collect())
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn open_set(devices: &[Arc<MemoryDevice>]) -> Volume {
    let volume = Volume::open(set(devices), Mode::ReadOnly).unwrap();
    push_all_chunks(&volume);
    volume
}

fn set(devices: &[Arc<MemoryDevice>]) -> DeviceSet {
    devices.iter().map(|device| Arc::clone(device) as Arc<dyn BlockDevice>).collect()
}

/// Opens the volume of the remaining devices of a kernel-made set, if all of its chunks can be read.
fn open_degraded(devices: &[Arc<MemoryDevice>], count: usize) -> Result<Volume> {
    let volume = Volume::open(set(devices).degraded(true), Mode::ReadOnly)?;
    push_all_chunks(&volume);
    let listed: Vec<DevId> = (1..=count as u64).map(DevId::new).collect();
    volume.judge_devices(&listed)?;
    Ok(volume)
}

/// The roots of all trees.
fn roots(volume: &Volume) -> Vec<Expected> {
    let top = root_root(volume);
    let mut roots = vec![top];
    for_each_leaf(volume, &top, &mut |leaf| {
        for slot in (0..leaf.count()).filter(|&slot| leaf.key(slot).kind == KeyType::ROOT_ITEM) {
            let (item, _) = RawRootItem::read_from_prefix(leaf.data(slot)).unwrap();
            roots.push(Expected {
                logical: Logical::new(item.bytenr.get()),
                level: Some(item.level),
                generation: Some(Generation::new(item.generation.get())),
                owner: Some(TreeId::from(leaf.key(slot).objectid)),
                ..top
            });
        }
    });
    roots
}

/// Reads every leaf of every tree; returns the addresses.
pub(crate) fn read_everything(volume: &Volume) -> BTreeSet<Logical> {
    let mut leaves = BTreeSet::new();
    for root in roots(volume) {
        for_each_leaf(volume, &root, &mut |leaf: BlockRef<'_>| {
            leaves.insert(leaf.logical());
        });
    }
    leaves
}

#[test]
fn every_tree_block_is_found_in_every_profile() {
    let table = [
        ("single", 1),
        ("dup", 1),
        ("raid0", 3),
        ("raid1", 2),
        ("raid1c3", 3),
        ("raid1c4", 4),
        ("raid10", 4),
        ("raid5", 3),
        ("raid6", 4),
    ];
    for (profile, count) in table {
        let Some(devices) = made(profile, count) else { return };
        let volume = open_set(&devices);
        let leaves = read_everything(&volume);
        assert!(leaves.len() > 100, "{profile}: {} leaves", leaves.len());
        assert_eq!(volume.counters().mirror_fallbacks, 0, "{profile}");
        // They lie on as many devices as they should.
        let used: BTreeSet<u64> = leaves
            .iter()
            .flat_map(|&leaf| volume.map(leaf, 4096).unwrap().mirrors().to_vec())
            .flatten()
            .map(|piece| piece.at.dev.get())
            .collect();
        assert_eq!(used.len(), count, "{profile}");
    }
}

#[test]
fn a_device_full_of_damage_is_made_up_for_by_its_mirror() {
    for (profile, count) in [("raid1", 2), ("raid10", 4)] {
        let Some(devices) = made(profile, count) else { return };
        let whole = read_everything(&open_set(&devices));
        // Everything but the superblocks of the first device.
        devices[0].zero((64 << 10) + 4096, (64 << 20) - (64 << 10) - 4096).unwrap();
        devices[0].zero((64 << 20) + 4096, (192 << 20) - 4096).unwrap();
        let volume = open_set(&devices);
        assert_eq!(read_everything(&volume), whole, "{profile}");
        assert!(volume.counters().mirror_fallbacks > 0, "{profile}");
    }
}

#[test]
fn a_member_that_fails_in_the_middle_is_made_up_for() {
    for (profile, count) in [("raid1", 2), ("raid1c3", 3), ("raid10", 4), ("raid5", 3), ("raid6", 4)] {
        let Some(devices) = made(profile, count) else { return };
        let whole = read_everything(&open_set(&devices));
        for failing in 0..count {
            let set: Vec<_> = devices.iter().map(faulty::on).collect();
            // Everything but the superblocks.
            set[failing].fail_reads(1 << 20..64 << 20);
            set[failing].fail_reads((64 << 20) + 4096..u64::MAX);
            let all = set.iter().map(|device| Arc::clone(device) as Arc<dyn BlockDevice>);
            let volume = Volume::open(all.collect::<DeviceSet>(), Mode::ReadOnly).unwrap();
            push_all_chunks(&volume);
            assert_eq!(read_everything(&volume), whole, "{profile}, and member {failing} fails");
            let counters = volume.counters();
            let has_parity = profile == "raid5" || profile == "raid6";
            assert_eq!(counters.parity_read_bytes > 0, has_parity, "{profile}, and member {failing} fails");
            assert_eq!(counters.unreadable, 0);
            let written = set.iter().flat_map(|device| device.take_events());
            assert_eq!(written.count(), 0, "who reads writes nothing");
            // The first copies are its own: it is not read for ever, although its superblock can be read.
            let state = volume.member_state(DevId::new(failing as u64 + 1));
            assert!(failing > 0 || state == MemberState::Failed, "{profile}: {state}");
        }
    }
}

/// Returns the rest of `devices` for every way to remove `count` of them.
fn without(devices: &[Arc<MemoryDevice>], count: usize) -> Vec<Vec<Arc<MemoryDevice>>> {
    let masks = (0..1_u32 << devices.len()).filter(|mask| mask.count_ones() as usize == count);
    let left = |mask: u32| {
        let there = devices.iter().enumerate().filter(|(number, _)| mask & (1 << number) == 0);
        there.map(|(_, device)| Arc::clone(device)).collect()
    };
    masks.map(left).collect()
}

#[test]
fn as_many_members_may_be_missing_as_the_profile_bears() {
    // Metadata is on devices as the profile says; the groups of single data are empty, and one of them goes with each device.
    let table = [
        ("raid1", 2, 1),
        ("raid1c3", 3, 2),
        ("raid1c4", 4, 3),
        ("raid5", 2, 1),
        ("raid5", 3, 1),
        ("raid6", 3, 2),
        ("raid6", 4, 2),
        ("raid6", 5, 2),
    ];
    for (profile, count, borne) in table {
        let Some(devices) = made(profile, count) else { return };
        let whole = read_everything(&open_set(&devices));
        let mut opened = 0;
        for missing in 1..count {
            for left in without(&devices, missing) {
                match open_degraded(&left, count) {
                    Ok(volume) => {
                        assert!(missing <= borne, "{profile} without {missing}");
                        assert_eq!(read_everything(&volume), whole, "{profile} without {missing}");
                        let counters = volume.counters();
                        assert_eq!(counters.mirror_fallbacks, 0, "a missing member is not asked first");
                        let has_parity = profile.starts_with("raid5") || profile.starts_with("raid6");
                        assert_eq!(counters.parity_read_bytes > 0, has_parity, "{profile} without {missing}");
                        opened += 1;
                    }
                    // The group of single data is lost with its device.
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::DeviceMissing);
                        let text = error.to_string();
                        assert!(
                            missing > borne || text.contains("(DATA|single)"),
                            "{profile} {missing}: {text}"
                        );
                    }
                }
            }
        }
        assert!(opened > 0, "{profile} on {count}");
    }
}

#[test]
fn what_is_lost_is_named_and_passed_over_for_rescue() {
    let Some(devices) = made("raid0", 3) else { return };
    for left in without(&devices, 1) {
        let error = open_degraded(&left, 3).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceMissing);
        let text = error.to_string();
        assert!(
            text.contains("is missing, 2 given, too many for these chunks:") && text.contains("RAID0"),
            "{text}"
        );
        let volume = Volume::open_for_rescue(set(&left), Rescue::ALL).unwrap();
        volume.judge_devices(&[1, 2, 3].map(DevId::new)).unwrap();
        assert!(
            volume.notes().iter().any(|note| note.contains("too many for these chunks:")),
            "{:?}",
            volume.notes()
        );
    }
}

#[test]
fn each_pair_of_raid10_bears_one() {
    let Some(devices) = made("raid10", 4) else { return };
    let whole = read_everything(&open_set(&devices));
    let read = without(&devices, 2).into_iter().filter_map(|left| {
        let volume = Volume::open(set(&left).degraded(true), Mode::ReadOnly).ok()?;
        push_all_chunks(&volume);
        assert_eq!(read_everything(&volume), whole);
        Some(volume)
    });
    assert_eq!(read.count(), 4, "of six ways to take two away, two take a pair");
}

/// A member that failed after it missed writes still counts as one that missed writes.
#[test]
fn a_member_that_answers_again_is_believed_no_more_than_before() {
    let options = ["-q", "-m", "raid1", "-d", "raid1"];
    let Some(pair) = made_by("mkfs.btrfs", &options, &[256 << 20, 256 << 20]) else { return };
    let earlier = Superblock::from_bytes(&bytes_at(&*pair[1], FIRST, 4096), FIRST).unwrap();
    go_on(&pair[0], &earlier);
    let [first, second] = [0, 1].map(|number: usize| faulty::on(&pair[number]));
    let devices: Vec<Arc<dyn BlockDevice>> = vec![Arc::clone(&first) as _, Arc::clone(&second) as _];
    let volume = Volume::open(devices, Mode::ReadOnly).unwrap();
    push_all_chunks(&volume);
    let at = volume.chunks().iter().find(|chunk| chunk.flags.contains(BlockGroupFlags::DATA)).unwrap().start;
    let read = |verdict| volume.read_data(at, &mut [0; 4096], &|_, _| verdict, Wait::Yes);
    first.fail_reads(1 << 20..u64::MAX);
    second.fail_reads(0..u64::MAX);
    assert!(read(Verdict::Good).is_err());
    assert_eq!(volume.member_state(DevId::new(2)), MemberState::Failed);
    second.mend_reads();
    assert!(read(Verdict::Unknown).is_err(), "it missed writes");
    assert!(read(Verdict::Good).is_ok(), "a checksum says that it is right");
}

/// One sector, while its member stops answering: the other member has it.
#[test]
fn the_read_in_which_a_member_fails_is_answered_by_another() {
    for (profile, count) in [("raid1", 2), ("raid5", 3), ("raid6", 4)] {
        let Some(devices) = made(profile, count) else { return };
        let whole = open_set(&devices);
        let leaf = *read_everything(&whole).first().unwrap();
        let own = whole.map(leaf, 4096).unwrap().mirrors()[0][0].at.dev;
        let mut good = vec![0; 4096];
        whole.read_data(leaf, &mut good, &|_, _| Verdict::Good, Wait::Yes).unwrap();
        let set: Vec<_> = devices.iter().map(faulty::on).collect();
        let devices = set.iter().map(|device| Arc::clone(device) as Arc<dyn BlockDevice>);
        let volume = Volume::open(devices.collect::<DeviceSet>(), Mode::ReadOnly).unwrap();
        push_all_chunks(&volume);
        set[usize::try_from(own.get() - 1).unwrap()].fail_reads(0..u64::MAX);
        let mut out = vec![0; 4096];
        volume.read_data(leaf, &mut out, &|_, _| Verdict::Unknown, Wait::Yes).unwrap();
        assert_eq!(out, good, "{profile}");
        assert_eq!(volume.member_state(own), MemberState::Failed, "{profile}");
    }
}

/// A power cut between the superblocks of two members leaves one behind that has all of its data.
#[test]
fn what_cannot_be_written_without_a_member_has_missed_nothing() {
    for profile in ["raid0", "single"] {
        let options = ["-q", "-m", "raid1", "-d", profile];
        let Some(pair) = made_by("mkfs.btrfs", &options, &[256 << 20, 256 << 20]) else { return };
        let earlier = Superblock::from_bytes(&bytes_at(&*pair[1], FIRST, 4096), FIRST).unwrap();
        go_on(&pair[0], &earlier);
        let volume = open_set(&pair);
        let is_on_second = |chunk: &&Arc<Chunk>| {
            let is_data = chunk.flags.contains(BlockGroupFlags::DATA);
            is_data && chunk.stripes.iter().any(|stripe| stripe.dev == DevId::new(2))
        };
        let chunks = volume.chunks();
        let Some(chunk) = chunks.iter().find(is_on_second) else { continue };
        let mut out = vec![0; 128 << 10];
        volume.read_data(chunk.start, &mut out, &|_, _| Verdict::Unknown, Wait::Yes).unwrap();
        // A member that is further behind is an old copy: it lacks data that was overwritten in place.
        edit_superblock(&pair[0], &[FIRST, SECOND], |raw| raw.generation = (raw.generation.get() + 1).into());
        let volume = open_set(&pair);
        let mut read = |verdict| volume.read_data(chunk.start, &mut out, &|_, _| verdict, Wait::Yes);
        assert!(read(Verdict::Unknown).is_err(), "{profile}");
        assert!(read(Verdict::Good).is_ok(), "{profile}");
    }
}

/// The first one of a pair, which went on by a commit, and the second one in its earlier state.
#[test]
fn a_member_that_missed_writes_is_believed_only_where_a_checksum_says_so() {
    let options = ["-q", "-m", "raid1", "-d", "raid1"];
    let Some(pair) = made_by("mkfs.btrfs", &options, &[256 << 20, 256 << 20]) else { return };
    let earlier = Superblock::from_bytes(&bytes_at(&*pair[1], FIRST, 4096), FIRST).unwrap();
    go_on(&pair[0], &earlier);
    let data = |broken: bool| {
        let first = faulty::on(&pair[0]);
        let devices: Vec<Arc<dyn BlockDevice>> = vec![Arc::clone(&first) as _, Arc::clone(&pair[1]) as _];
        let volume = Volume::open(devices, Mode::ReadOnly).unwrap();
        push_all_chunks(&volume);
        let at =
            volume.chunks().iter().find(|chunk| chunk.flags.contains(BlockGroupFlags::DATA)).unwrap().start;
        assert_eq!(volume.member_state(DevId::new(2)), MemberState::Stale(earlier.generation()));
        if broken {
            first.fail_reads(1 << 20..u64::MAX);
        }
        (volume, at)
    };
    for verdict in [Verdict::Good, Verdict::Unknown] {
        for broken in [false, true] {
            let (volume, at) = data(broken);
            let read = volume.read_data(at, &mut [0; 8192], &|_, _| verdict, Wait::Yes);
            assert_eq!(read.is_ok(), !broken || verdict == Verdict::Good, "{verdict:?} {broken}: {read:?}");
            if let Err(error) = read {
                assert!(error.to_string().contains("missed writes"), "{error}");
            }
        }
    }
}
