//! Trees of images with several devices: reading every block of them proves the mapping, since a block carries
//! its own address.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;

use creamery_base::{Generation, Logical, TreeId};
use creamery_device::{BlockDevice, MemoryDevice};
use creamery_format::{BlockRef, Expected, KeyType, RawRootItem};
use creamery_testkit::{LoopDevice, Run};
use creamery_volume::{Mode, Volume};
use zerocopy::FromBytes;

use crate::images::*;

/// Metadata in `profile` on `devices`, enough of it to go round them several times: Linux makes it, through loop
/// devices.
fn made(profile: &str, devices: usize) -> Option<Vec<Arc<MemoryDevice>>> {
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
    // Programs that look at all mounts have it open for a moment.
    Run::new("umount").arg(&at).again_while_busy().ok().expect("it is unmounted");
    run(Command::new("btrfs").args(["device", "scan", "--forget"]).args(nodes));
    drop(loops);
    Some(files.iter().map(|file| load(file)).collect())
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn open_set(devices: &[Arc<MemoryDevice>]) -> Volume {
    let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn BlockDevice>).collect();
    let volume = Volume::open(devices, Mode::ReadOnly).unwrap();
    push_all_chunks(&volume);
    volume
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

/// Reads every leaf of every tree; gives back the addresses.
fn read_everything(volume: &Volume) -> BTreeSet<Logical> {
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
        // All but the superblocks of the first device.
        devices[0].zero((64 << 10) + 4096, (64 << 20) - (64 << 10) - 4096).unwrap();
        devices[0].zero((64 << 20) + 4096, (192 << 20) - 4096).unwrap();
        let volume = open_set(&devices);
        assert_eq!(read_everything(&volume), whole, "{profile}");
        assert!(volume.counters().mirror_fallbacks > 0, "{profile}");
    }
}
