//! Calls of the library, compared with the model in memory.

use std::sync::{Arc, OnceLock};

use creamery::mkfs::Profile;
use creamery::volume::{Conversion, SuperblockChange};
use creamery::{ErrorKind, Uuid};
use creamery_fs::{Fallocate, FileType, RenameMode, XattrMode};
use creamery_sim::{Driver, Image, MadeBy, Operation, SimDevice, fresh_image};

use crate::input::Input;
use crate::readers::assert_clean;

const OPERATIONS_MAX: usize = 120;
const SIZE_MAX: u64 = 300_000;
const WRITE_MAX: usize = 20_000;

/// Bytes of the device beyond the filesystem at the start.
const ROOM: u64 = 4 << 20;

/// Does the operations of the input on a new filesystem and on the model; compares answers, files, and the report of `check`.
///
/// ```
/// creamery_fuzzing::operations(b"\x00\x01\x02");
/// ```
pub fn operations(data: &[u8]) {
    let mut input = Input::new(data);
    let device = Arc::new(SimDevice::new(fresh(usize::from(input.byte())).with_room(ROOM)));
    let mut driver = Driver::open_fresh(&device).expect("a new filesystem opens");
    let mut open = Vec::new();
    for _ in 0..OPERATIONS_MAX {
        if input.is_empty() {
            break;
        }
        let what = input.byte();
        if what == 255 {
            open.clear();
            let change = superblock_change(&mut input);
            let change = || match change.map(|change| change.apply(&*device)) {
                // It has that UUID already.
                Some(Err(error)) if error.kind() != ErrorKind::AlreadyExists => Err(error),
                _ => Ok(()),
            };
            driver = driver.restart_after(&device, change).expect("what was synced is found again");
            continue;
        }
        let operation = operation(what, &mut input, &driver, &mut open);
        driver.apply(&operation).expect("the engine does what the model says");
    }
    driver.compare().expect("the files are what the model says");
    let driver = driver.restart(&device).expect("what was synced is found again");
    driver.filesystem().engine().volume().close().expect("a device that never fails");
    drop(driver);
    assert_clean(&device);
}

/// A change of the superblock while the filesystem is closed; mostly none.
fn superblock_change(input: &mut Input<'_>) -> Option<SuperblockChange> {
    let change = SuperblockChange::default();
    match input.byte() {
        number @ 1..=9 => Some(change.uuid(Uuid::from_u128(number.into()))),
        10 => Some(change.extref().skinny_metadata()),
        _ => None,
    }
}

fn fresh(how: usize) -> Image {
    static IMAGES: [OnceLock<Image>; 3] = [const { OnceLock::new() }; 3];
    let how = how % IMAGES.len();
    let made_by = match how {
        0 => MadeBy { node_size: 4096, metadata: Profile::Single, ..MadeBy::default() },
        1 => MadeBy::default(),
        _ => MadeBy { mixed: true, node_size: 4096, metadata: Profile::Single, ..MadeBy::default() },
    };
    IMAGES[how].get_or_init(|| fresh_image(&made_by).expect("mkfs of a device that never fails")).clone()
}

/// One of few names, some of them long or impossible.
fn name(input: &mut Input<'_>) -> Vec<u8> {
    match input.byte() {
        number @ 0..240 => {
            let number = number % 24;
            let mut name = format!("name{number}").into_bytes();
            if number.is_multiple_of(5) {
                name.resize(name.len() + usize::from(number) * 10, b'x');
            }
            name
        }
        240 => Vec::new(),
        241 => b".".to_vec(),
        242 => b"..".to_vec(),
        243 => b"a/b".to_vec(),
        244 => b"nul\0".to_vec(),
        245 => vec![b'l'; 256],
        _ => vec![b'l'; 255],
    }
}

/// Names for subvolumes only: the model does not follow the removal of a subvolume.
fn subvolume_name(input: &mut Input<'_>) -> Vec<u8> {
    format!("subvolume{}", input.byte() % 4).into_bytes()
}

fn offset(input: &mut Input<'_>) -> u64 {
    let offset = u64::from(input.word());
    match input.byte() % 3 {
        0 => offset % SIZE_MAX / 4096 * 4096,
        1 => offset % SIZE_MAX,
        _ => offset % 10_000,
    }
}

fn operation(what: u8, input: &mut Input<'_>, driver: &Driver, open: &mut Vec<u64>) -> Operation {
    let inode = u64::from(input.byte() % 48);
    if what >= 242 {
        let keep_size = what & 1 == 0;
        let mode = match what % 3 {
            0 => Fallocate::PunchHole,
            1 => Fallocate::ZeroRange { keep_size },
            _ => Fallocate::Allocate { keep_size },
        };
        return Operation::Fallocate { inode, mode, offset: offset(input), len: 1 + offset(input) };
    }
    match what % 22 {
        0 | 1 => Operation::Create { dir: inode, name: name(input), kind: FileType::File, mode: 0o644 },
        2 | 3 => Operation::Create { dir: inode, name: name(input), kind: FileType::Directory, mode: 0o755 },
        4 => {
            let kind = if input.byte() & 1 == 0 { FileType::Fifo } else { FileType::Socket };
            Operation::Create { dir: inode, name: name(input), kind, mode: 0o600 }
        }
        5 => {
            let target = vec![b't'; 1 + usize::from(input.byte() % 100)];
            Operation::Symlink { dir: inode, name: name(input), target }
        }
        6 => Operation::CreateSubvolume { dir: inode, name: subvolume_name(input) },
        7 => Operation::Unlink { dir: inode, name: name(input) },
        8 => Operation::Rmdir { dir: inode, name: name(input) },
        9 => Operation::Link { target: inode, dir: u64::from(input.byte() % 48), name: name(input) },
        10 | 11 => {
            let mode = match input.byte() % 6 {
                0 => RenameMode::NoReplace,
                1 => RenameMode::Exchange,
                2 => RenameMode::Whiteout,
                _ => RenameMode::Replace,
            };
            let to = u64::from(input.byte() % 48);
            Operation::Rename { from: inode, name: name(input), to, new_name: name(input), mode }
        }
        12..=14 => {
            let len = usize::from(input.half()) % WRITE_MAX;
            Operation::Write { inode, offset: offset(input), len, seed: u64::from(input.byte()) }
        }
        15 => Operation::Read { inode, offset: offset(input), len: usize::from(input.half()) },
        16 => Operation::Truncate { inode, size: offset(input) },
        17 => {
            let mode = match input.byte() % 3 {
                0 => XattrMode::Create,
                1 => XattrMode::Replace,
                _ => XattrMode::Any,
            };
            let value = vec![input.byte(); usize::from(input.half() % 1500)];
            Operation::SetXattr { inode, name: attribute(input), value, mode }
        }
        18 => Operation::RemoveXattr { inode, name: attribute(input) },
        19 => Operation::Chown { inode, uid: input.word(), gid: input.word() },
        20 => opening(inode, input, driver, open),
        _ if what < 22 => Operation::Convert(match input.byte() % 3 {
            0 => Conversion::ToFreeSpaceTree,
            1 => Conversion::ToBlockGroupTree,
            _ => Conversion::FromBlockGroupTree,
        }),
        _ if what < 64 => Operation::Grow { more: u64::from(input.half()) << 8 },
        _ => Operation::Sync,
    }
}

fn attribute(input: &mut Input<'_>) -> Vec<u8> {
    match input.byte() {
        255 => b"odd.name".to_vec(),
        number => format!("trusted.a{}", number % 6).into_bytes(),
    }
}

/// Opens or closes a file: only an open file can be closed.
fn opening(inode: u64, input: &mut Input<'_>, driver: &Driver, open: &mut Vec<u64>) -> Operation {
    match input.byte() % 3 {
        0 if !open.is_empty() => {
            Operation::Close { inode: open.swap_remove(usize::from(input.byte()) % open.len()) }
        }
        1 => {
            let tmpfile = Operation::Tmpfile { dir: inode };
            if let Ok(creamery_sim::Outcome::Made(number)) = driver.model().clone().apply(&tmpfile) {
                open.push(number);
            }
            tmpfile
        }
        _ => {
            let opening = Operation::Open { inode };
            if driver.model().clone().apply(&opening).is_ok() {
                open.push(inode);
            }
            opening
        }
    }
}
