//! Which filesystems open, which do not, and the messages.

use std::sync::Arc;

use creamery_base::{DevId, ErrorKind};
use creamery_codec::ChecksumType;
use creamery_device::{BlockDevice, MemoryDevice};
use creamery_format::{SuperFlags, Superblock};
use creamery_volume::{DeviceSet, MemberState, Mode, Volume};

use crate::faulty::{self, Faulty};
use crate::images::*;

const BOTH: [Mode; 2] = [Mode::ReadOnly, Mode::ReadWrite];

#[test]
fn every_checksum_and_node_size_opens_and_its_roots_are_read() {
    let table = [
        ("crc32c", ChecksumType::Crc32c, 4096),
        ("xxhash", ChecksumType::Xxhash64, 16384),
        ("sha256", ChecksumType::Sha256, 65536),
        ("blake2", ChecksumType::Blake2b, 16384),
    ];
    for (name, checksum, node_size) in table {
        for profile in ["single", "dup"] {
            let node_size_text = node_size.to_string();
            let options = ["--csum", name, "-n", &node_size_text, "-m", profile, "-L", "ice"];
            let Some(device) = btrfs(&options) else { return };
            let volume = mapped(&device, Mode::ReadWrite);
            assert_eq!((volume.checksum_type(), volume.node_size()), (checksum, node_size));
            assert_eq!(volume.superblock().label(), b"ice");
            assert_eq!(volume.fsid(), volume.metadata_uuid());
            assert_eq!(volume.notes(), [""; 0]);
            assert_eq!(read(&volume, &root_root(&volume)).unwrap().len(), node_size as usize);
            let copies = volume.map(root_root(&volume).logical, 4096).unwrap().copies();
            assert_eq!(copies, if profile == "dup" { 2 } else { 1 });
        }
    }
}

#[test]
fn mixed_block_groups_open() {
    let Some(device) = btrfs(&["--mixed", "-O", "block-group-tree"]) else { return };
    let volume = mapped(&device, Mode::ReadWrite);
    assert_eq!(volume.node_size(), volume.sector_size());
    read(&volume, &root_root(&volume)).unwrap();
}

#[test]
fn a_damaged_first_superblock_is_passed_over_by_readers_and_who_asks_for_that() {
    let Some(device) = btrfs(&[]) else { return };
    damage(&*device, FIRST + 2000);
    let parts = ["65536", "checksum mismatch", "67108864", "generation"];
    let reader = open(&device, Mode::ReadOnly).unwrap();
    let writer = open_by_copy(&device).unwrap();
    assert!(reader.notes()[0].contains("is not shown"), "{:?}", reader.notes());
    assert!(writer.notes()[0].contains("is lost"), "{:?}", writer.notes());
    for volume in [reader, writer] {
        let note = &volume.notes()[0];
        parts.iter().for_each(|part| assert!(note.contains(part), "{note}"));
        read(&volume, &chunk_root(&volume)).unwrap();
    }
    let (kind, text) = refusal(&device, Mode::ReadWrite);
    assert_eq!(kind, ErrorKind::Unsupported);
    for part in parts.iter().chain(&["later changes", "read-only", "usesupercopy"]) {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn who_writes_by_a_copy_still_takes_a_whole_first_superblock() {
    let Some(device) = btrfs(&[]) else { return };
    let generation = open(&device, Mode::ReadOnly).unwrap().generation();
    edit_superblock(&device, &[SECOND], |raw| raw.generation = (generation.get() + 1).into());
    assert_eq!(open_by_copy(&device).unwrap().generation(), generation);
    device.zero(FIRST, 4096).unwrap();
    let error = open_by_copy(&device).err().expect("it may be somebody else's by now");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}

#[test]
fn no_whole_superblock_is_one_clear_line() {
    let Some(device) = btrfs(&[]) else { return };
    damage(&*device, FIRST + 2000);
    damage(&*device, SECOND + 2000);
    for mode in BOTH {
        let (kind, text) = refusal(&device, mode);
        assert_eq!(kind, ErrorKind::Corrupt);
        for part in ["no superblock copy is whole", "at 65536: ", "at 67108864: ", "checksum mismatch"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn a_damaged_second_superblock_is_only_noted() {
    let Some(device) = btrfs(&[]) else { return };
    damage(&*device, SECOND + 2000);
    let volume = open(&device, Mode::ReadWrite).unwrap();
    assert!(volume.notes()[0].contains("67108864 is damaged"), "{:?}", volume.notes());
}

#[test]
fn a_whole_first_superblock_counts_also_beside_a_newer_one() {
    let Some(device) = btrfs(&[]) else { return };
    let generation = open(&device, Mode::ReadOnly).unwrap().generation();
    edit_superblock(&device, &[SECOND], |raw| raw.generation = (generation.get() + 1).into());
    let volume = open(&device, Mode::ReadWrite).unwrap();
    assert_eq!(volume.generation(), generation);
    assert!(volume.notes()[0].contains("newer than the first"), "{:?}", volume.notes());
}

#[test]
fn of_damaged_and_older_copies_the_newest_whole_one_counts() {
    let Some(device) = btrfs(&[]) else { return };
    grow(&device, 257 << 30);
    let third = 256 << 30;
    let generation = open(&device, Mode::ReadOnly).unwrap().generation().get();
    edit_superblock(&device, &[third], |raw| raw.generation = (generation + 1).into());
    damage(&*device, FIRST + 2000);
    assert_eq!(open(&device, Mode::ReadOnly).unwrap().generation().get(), generation + 1);
    damage(&*device, third + 2000);
    assert_eq!(open(&device, Mode::ReadOnly).unwrap().generation().get(), generation);
}

#[test]
fn an_overwritten_first_superblock_is_shown_to_readers_only() {
    let Some(device) = btrfs(&[]) else { return };
    device.zero(FIRST, 4096).unwrap();
    let volume = open(&device, Mode::ReadOnly).unwrap();
    assert!(volume.notes()[0].contains("overwritten"), "{:?}", volume.notes());
    let (kind, text) = refusal(&device, Mode::ReadWrite);
    assert_eq!(kind, ErrorKind::Corrupt);
    assert!(text.contains("67108864 is whole") && text.contains("super-recover"), "{text}");
}

#[test]
fn an_unreadable_first_superblock_is_passed_over_by_readers_only() {
    let Some(device) = btrfs(&[]) else { return };
    let faulty = faulty::on(&device);
    faulty.fail_reads(FIRST..FIRST + 4096);
    let try_open = |mode| {
        let device: Arc<dyn BlockDevice> = Arc::<Faulty>::clone(&faulty);
        Volume::open(vec![device], mode)
    };
    let volume = try_open(Mode::ReadOnly).unwrap();
    assert!(volume.notes()[0].contains("65536 cannot be read"), "{:?}", volume.notes());
    let error = try_open(Mode::ReadWrite).err().expect("the other copy may be older");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("may be older"), "{error}");
    faulty.fail_reads(SECOND..SECOND + 4096);
    assert_eq!(try_open(Mode::ReadOnly).err().map(|error| error.kind()), Some(ErrorKind::Io));
}

#[test]
fn another_filesystem_over_an_old_btrfs_is_never_taken_for_it() {
    let Some(device) = btrfs(&[]) else { return };
    device.zero(0, 1 << 20).unwrap();
    device.write_at(0, b"XFSB").unwrap();
    for mode in BOTH {
        let (kind, text) = refusal(&device, mode);
        assert_eq!(kind, ErrorKind::InvalidInput);
        assert!(text.contains("XFS"), "{text}");
    }
}

#[test]
fn what_is_no_btrfs_is_named() {
    let ext4 = made_by("mkfs.ext4", &["-q"], &[64 << 20]).and_then(|mut made| made.pop());
    let random = MemoryDevice::new(1 << 20);
    let noise: Vec<u8> = (0..1_u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8 | 1).collect();
    random.write_at(0, &noise).unwrap();
    let short = |bytes: &[u8], len| {
        let device = MemoryDevice::new(len);
        device.write_at(0, bytes).unwrap();
        Some(Arc::new(device))
    };
    let table = [
        (ext4, "an ext2, ext3 or ext4 filesystem"),
        (Some(Arc::new(random)), "no superblock magic, and no other known format"),
        (short(b"", 1 << 30), "zeros where the superblock would be"),
        (short(b"", 0), "it is empty"),
        (short(b"", 4096), "it has 4096 bytes, expected at least 69632"),
        (short(b"\x1f\x8b\x08", 3), "gzip compressed data"),
        (short(b"QFI\xfb", 1 << 20), "qcow2"),
        (short(b"btrfs-stream\0", 100), "a Btrfs send stream"),
    ];
    for (device, words) in table {
        let Some(device) = device else { continue };
        for mode in BOTH {
            let (kind, text) = refusal(&device, mode);
            assert_eq!(kind, ErrorKind::InvalidInput, "{text}");
            assert!(text.contains("no Btrfs filesystem") && text.contains(words), "{text}");
        }
    }
}

#[test]
fn a_truncated_image_is_read_with_a_note_and_refuses_writing_with_both_sizes() {
    let Some(device) = btrfs(&[]) else { return };
    device.resize(200 << 20).unwrap();
    let names_sizes = |text: &str| text.contains("209715200") && text.contains("268435456");
    let (kind, text) = refusal(&device, Mode::ReadWrite);
    assert_eq!(kind, ErrorKind::Corrupt);
    assert!(names_sizes(&text) && text.contains("creamery restore"), "{text}");
    let volume = Volume::open(vec![device], Mode::ReadOnly).expect("its beginning is there");
    assert!(volume.notes().iter().any(|note| names_sizes(note)), "{:?}", volume.notes());
}

#[test]
fn an_unknown_incompat_feature_is_refused_by_name() {
    let Some(device) = btrfs(&[]) else { return };
    for (bit, name) in [(1 << 13, "EXTENT_TREE_V2"), (1 << 12, "ZONED"), (1 << 50, "0x4000000000000")] {
        edit_superblock(&device, &[FIRST], |raw| raw.incompat_flags = (0x361 | bit).into());
        for mode in BOTH {
            let (kind, text) = refusal(&device, mode);
            assert_eq!(kind, ErrorKind::Unsupported);
            assert!(text.contains("incompat") && text.contains(name), "{text}");
        }
    }
}

#[test]
fn block_groups_on_the_move_between_trees_are_refused_to_readers_too() {
    let Some(device) = btrfs(&[]) else { return };
    let flags = 1 | SuperFlags::CHANGING_BG_TREE.bits();
    edit_superblock(&device, &[FIRST], |raw| raw.flags = flags.into());
    for mode in BOTH {
        let (kind, text) = refusal(&device, mode);
        assert_eq!(kind, ErrorKind::Unsupported);
        assert!(text.contains("CHANGING_BG_TREE") && text.contains("btrfstune"), "{text}");
    }
}

#[test]
fn what_forbids_only_writing_is_noted_for_readers() {
    let Some(device) = btrfs(&[]) else { return };
    let pristine = MemoryDevice::copy_of(&*device).unwrap();
    type Edit = fn(&mut creamery_format::RawSuperblock);
    let table: [(Edit, &str); 4] = [
        (|raw| raw.compat_ro_flags = (3 | 1 << 60).into(), "0x1000000000000000"),
        (|raw| raw.log_root = (1 << 20).into(), "a log to replay"),
        (|raw| raw.flags = (1 | SuperFlags::SEEDING.bits()).into(), "SEEDING"),
        (|raw| raw.flags = (1 | SuperFlags::CHANGING_FSID_V2.bits()).into(), "CHANGING_FSID_V2"),
    ];
    for (edit, name) in table {
        device.write_at(FIRST, &bytes_at(&pristine, FIRST, 4096)).unwrap();
        edit_superblock(&device, &[FIRST], edit);
        // A writer replays a log.
        if name != "a log to replay" {
            let (kind, text) = refusal(&device, Mode::ReadWrite);
            assert_eq!(kind, ErrorKind::Unsupported);
            assert!(text.contains(name), "{text}");
        }
        let volume = open(&device, Mode::ReadOnly).unwrap();
        assert!(volume.notes()[0].contains(name), "{:?}", volume.notes());
    }
}

#[test]
fn a_missing_device_is_named_and_wrong_sets_are_refused() {
    let options = ["-q", "-m", "raid1", "-d", "raid1"];
    let Some(pair) = made_by("mkfs.btrfs", &options, &[256 << 20, 256 << 20]) else { return };
    let Some(other) = btrfs(&[]) else { return };
    let copy = Arc::new(MemoryDevice::copy_of(&*other).unwrap());
    let set = |devices: &[&Arc<MemoryDevice>], mode| {
        let devices = devices.iter().map(|&device| Arc::clone(device) as Arc<dyn BlockDevice>);
        Volume::open(devices.collect::<DeviceSet>(), mode)
            .map(|_| ())
            .map_err(|error| (error.kind(), error.to_string()))
    };
    let table: [(&[&Arc<MemoryDevice>], Mode, ErrorKind, &str); 6] = [
        (&[&pair[0]], Mode::ReadOnly, ErrorKind::DeviceMissing, "device missing"),
        (&[], Mode::ReadOnly, ErrorKind::InvalidInput, "no device given"),
        (&[&pair[0], &pair[0]], Mode::ReadOnly, ErrorKind::InvalidInput, "are the same device"),
        (&[&pair[0], &other], Mode::ReadOnly, ErrorKind::InvalidInput, "belongs to filesystem"),
        (&[&other, &copy], Mode::ReadOnly, ErrorKind::InvalidInput, "one is a copy of the other"),
        (&[&pair[0], &pair[1]], Mode::ReadWrite, ErrorKind::Unsupported, "filesystem of 2 devices"),
    ];
    for (devices, mode, kind, words) in table {
        let (found, text) = set(devices, mode).unwrap_err();
        assert_eq!(found, kind, "{text}");
        assert!(text.contains(words), "{text}");
    }
    set(&[&pair[1], &pair[0]], Mode::ReadOnly).unwrap();
}

/// Opens two members: one is unchanged or edited, the other one is unchanged or a commit further.
#[test]
fn members_of_two_histories_are_refused() {
    let options = ["-q", "-m", "raid1", "-d", "raid1"];
    let Some(pair) = made_by("mkfs.btrfs", &options, &[256 << 20, 256 << 20]) else { return };
    /// The offsets of the superblock copies on a device of this size.
    const SUPERBLOCKS: [u64; 2] = [FIRST, 64 << 20];
    let superblock = Superblock::from_bytes(&bytes_at(&*pair[1], FIRST, 4096), FIRST).unwrap();
    let told = |first: &Arc<MemoryDevice>, second: &Arc<MemoryDevice>| -> String {
        let devices = vec![Arc::clone(first) as Arc<dyn BlockDevice>, Arc::clone(second) as _];
        Volume::open(devices, Mode::ReadOnly).map_or_else(
            |error| error.to_string(),
            |volume| {
                let states = [1, 2].map(|dev| volume.member_state(DevId::new(dev)));
                match states.iter().any(|state| matches!(state, MemberState::Stale(_))) {
                    true => "missed writes".to_owned(),
                    false => "one history".to_owned(),
                }
            },
        )
    };
    type Edit = fn(&mut creamery_format::RawSuperblock);
    let the_first_commit: Edit = |raw| {
        raw.generation = 1.into();
        raw.chunk_root_generation = raw.generation;
    };
    // The edit of the second device, and the messages: beside a first one at the same commit, and beside one that went on.
    let table: [(Edit, &str, &str); 6] = [
        (|_| (), "one history", "missed writes"),
        (|raw| raw.log_root = (1 << 20).into(), "one history", "missed writes"),
        (|raw| raw.root = (raw.root.get() + 65536).into(), "split brain", "split brain"),
        (|raw| raw.root_level ^= 1, "split brain", "split brain"),
        (|raw| raw.chunk_root = (raw.chunk_root.get() + 65536).into(), "split brain", "split brain"),
        (the_first_commit, "missed writes, or", "missed writes, or"),
    ];
    for (number, (edit, beside_same, beside_newer)) in table.into_iter().enumerate() {
        let [first, second] = [0, 1].map(|at: usize| Arc::new(MemoryDevice::copy_of(&*pair[at]).unwrap()));
        edit_superblock(&second, &SUPERBLOCKS, edit);
        let expect = |wanted: &str| {
            for said in [told(&first, &second), told(&second, &first)] {
                assert!(said.contains(wanted), "row {number}: {said}");
            }
        };
        expect(beside_same);
        go_on(&first, &superblock);
        expect(beside_newer);
    }
}

/// Opens superblocks with any content and a right checksum: no panic, no endless loop.
#[test]
fn hostile_superblocks_are_opened_or_refused() {
    let Some(device) = btrfs(&[]) else { return };
    let pristine = bytes_at(&*device, FIRST, 4096);
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..3000 {
        let mut bytes = pristine.clone();
        for _ in 0..1 + random() % 4 {
            // The header's fields and the used part of the system chunk array; magic and checksum type stay.
            let places = [72..196, 198..299, 811..940];
            let place = places[(random() % 3) as usize].clone();
            let at = place.start + (random() as usize) % place.len();
            bytes[at] = match random() % 3 {
                0 => 0,
                1 => 0xff,
                _ => random() as u8,
            };
        }
        creamery_format::seal(&mut bytes, ChecksumType::Crc32c);
        device.write_at(FIRST, &bytes).unwrap();
        device.zero(SECOND, 4096).unwrap();
        match open(&device, Mode::ReadOnly) {
            Ok(volume) => {
                opened += 1;
                let _ = read(&volume, &chunk_root(&volume));
                let _ = read(&volume, &root_root(&volume));
                for chunk in volume.chunks() {
                    let _ = volume.map(chunk.start, chunk.len);
                }
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().contains('\n'), "{error}");
            }
        }
    }
    assert!(opened > 100 && refused > 100, "{opened} opened, {refused} refused");
}
