//! The controls of `linux/btrfs.h` themselves, and of `linux/fiemap.h`: which servers answer them, and the size of their messages.
//!
//! # Invariants
//! - ANSWERS-1: controls go to an open regular file or directory on FUSE or on Linux' own Btrfs, and it stays there. So no
//!   device driver gets the number, and the kernel copies exactly the bytes that the number announces.

#![allow(unsafe_code, reason = "no crate has these ioctls; each block says why it is sound")]

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use creamery_base::{Error, Result};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{Direction, Opcode, Updater, opcode};

use crate::control::with_way_out;
use crate::messages;

/// File system types of statfs(2).
const BTRFS_SUPER_MAGIC: u64 = 0x9123_683e;
const FUSE_SUPER_MAGIC: u64 = 0x6573_5546;
const GROUP: u8 = 0x94;

/// Words in `struct btrfs_ioctl_search_args`, `..._ino_lookup_args` and `..._dev_info_args`.
pub(super) const PAGE_WORDS: usize = 512;
/// Words of `struct btrfs_ioctl_search_key`.
pub(super) const KEY_WORDS: usize = messages::SEARCH_KEY / 8;
const TREE_SEARCH: Opcode = opcode::read_write::<[u64; PAGE_WORDS]>(GROUP, 17);
/// `struct btrfs_ioctl_search_args_v2`: the key, and how many bytes of items there is room for. They are behind that.
const TREE_SEARCH_V2: Opcode = opcode::read_write::<[u64; KEY_WORDS + 1]>(GROUP, 17);
/// More than the largest item has, which lies in a tree block of 64 KiB at most, with its header.
const ITEMS_WORDS: usize = (128 << 10) / 8;
pub(super) const INO_LOOKUP: Opcode = opcode::read_write::<[u64; PAGE_WORDS]>(GROUP, 18);
pub(super) const SUBVOL_GETFLAGS: Opcode = opcode::read::<[u64; 1]>(GROUP, 25);
pub(super) const SUBVOL_SETFLAGS: Opcode = opcode::write::<[u64; 1]>(GROUP, 26);
/// Words of `struct btrfs_ioctl_get_subvol_info_args`.
pub(super) const SUBVOL_INFO_WORDS: usize = messages::SUBVOL_INFO / 8;
pub(super) const GET_SUBVOL_INFO: Opcode = opcode::read::<[u64; SUBVOL_INFO_WORDS]>(GROUP, 60);
/// Words of `struct btrfs_ioctl_received_subvol_args`.
pub(super) const RECEIVED_WORDS: usize = messages::RECEIVED / 8;
pub(super) const SET_RECEIVED_SUBVOL: Opcode = opcode::read_write::<[u64; RECEIVED_WORDS]>(GROUP, 37);
/// Words of a label, `char[BTRFS_LABEL_SIZE]`.
pub(super) const LABEL_WORDS: usize = 32;
pub(super) const GET_FSLABEL: Opcode = opcode::read::<[u64; LABEL_WORDS]>(GROUP, 49);
pub(super) const SET_FSLABEL: Opcode = opcode::write::<[u64; LABEL_WORDS]>(GROUP, 50);

pub(super) const DEV_INFO: Opcode = opcode::read_write::<[u64; PAGE_WORDS]>(GROUP, 30);
/// Words of `struct btrfs_ioctl_fs_info_args`.
pub(super) const FS_INFO_WORDS: usize = messages::FS_INFO / 8;
pub(super) const FS_INFO: Opcode = opcode::read::<[u64; FS_INFO_WORDS]>(GROUP, 31);

/// Words of `struct btrfs_ioctl_get_dev_stats`.
pub(super) const DEV_STATS_WORDS: usize = messages::DEV_STATS / 8;
pub(super) const GET_DEV_STATS: Opcode = opcode::read_write::<[u64; DEV_STATS_WORDS]>(GROUP, 52);

/// `struct btrfs_ioctl_space_args`: the number of entries that fit, and the number that exist. Three words for each entry follow.
const SPACE_INFO: Opcode = opcode::read_write::<[u64; 2]>(GROUP, 20);
/// More than there are combinations of kind and profile.
const SPACES_MAX: usize = 64;
/// `struct btrfs_ioctl_logical_ino_args`: the address, the size of the answer in bytes, reserved words, flags, and a pointer to the answer.
const LOGICAL_WORDS: usize = 7;
const LOGICAL_INO_V2: Opcode = opcode::read_write::<[u64; LOGICAL_WORDS]>(GROUP, 59);
/// `BTRFS_LOGICAL_INO_ARGS_IGNORE_OFFSET`.
const IGNORE_OFFSET: u64 = 1;
/// Words of `struct btrfs_data_container` before its content, and the words of content that fit: as many bytes as
/// Linux accepts.
const CONTAINER_WORDS: usize = 2;
const CONTAINER_MAX: usize = (16 << 20) / 8;

/// `struct fiemap`: start and length of the range, flags and the number of extents, and the number of extents that fit. Seven words for
/// each extent follow.
const FIEMAP: Opcode = opcode::read_write::<[u64; 4]>(b'f', 11);
const FIEMAP_WORDS: usize = 7;
const EXTENTS_MAX: usize = 128;

/// The controls whose whole message is in the bytes that the number announces.
const WHOLE: [Opcode; 11] = [
    TREE_SEARCH,
    INO_LOOKUP,
    SUBVOL_GETFLAGS,
    SUBVOL_SETFLAGS,
    GET_SUBVOL_INFO,
    SET_RECEIVED_SUBVOL,
    GET_FSLABEL,
    SET_FSLABEL,
    DEV_INFO,
    FS_INFO,
    GET_DEV_STATS,
];

/// An open file or directory that answers (ANSWERS-1).
#[derive(Debug)]
pub(super) struct Answering {
    file: File,
    /// Whether the kernel's Btrfs answers, and not a FUSE server.
    is_linux: bool,
}

impl Answering {
    /// Opens `path` for reading; `None` if it is neither on Btrfs nor on FUSE. Errors: those of opening it; it is neither a file nor a directory.
    pub(super) fn open(path: &Path) -> Result<Option<Self>> {
        let failed = |error: std::io::Error| with_way_out(Error::from(error).context(path.display()), path);
        let no_object = || Error::invalid(format!("{}: neither a file nor a directory", path.display()));
        let kind = std::fs::metadata(path).map_err(failed)?.file_type();
        if !kind.is_file() && !kind.is_dir() {
            return Err(no_object());
        }
        // The open does not wait for the other end of a pipe that has taken the place.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(path).map_err(failed)?;
        let failed = |errno: Errno| failed(errno.into());
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&file).map_err(failed)?.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::Directory) {
            return Err(no_object());
        }
        Ok(match u64::try_from(rustix::fs::fstatfs(&file).map_err(failed)?.f_type) {
            Ok(BTRFS_SUPER_MAGIC) => Some(Self { file, is_linux: true }),
            Ok(FUSE_SUPER_MAGIC) => Some(Self { file, is_linux: false }),
            _ => None,
        })
    }

    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    pub(super) const fn is_linux(&self) -> bool {
        self.is_linux
    }

    /// Sends the control `NUMBER` with `message`, which the answer replaces.
    pub(super) fn send<const NUMBER: Opcode, const WORDS: usize>(
        &self,
        message: &mut [u64; WORDS],
    ) -> std::result::Result<(), Errno> {
        const {
            let (mut at, mut is_whole) = (0, false);
            while at < WHOLE.len() {
                is_whole |= WHOLE[at] == NUMBER;
                at += 1;
            }
            assert!(is_whole, "the message is not all in the bytes that the number tells");
            let [number, ..] = NUMBER.to_le_bytes();
            assert!(
                opcode::from_components(Direction::Read, GROUP, number, WORDS * 8) == NUMBER
                    || opcode::from_components(Direction::Write, GROUP, number, WORDS * 8) == NUMBER
                    || opcode::from_components(Direction::ReadWrite, GROUP, number, WORDS * 8) == NUMBER,
                "the number tells another size"
            );
        }
        // SAFETY: the file is on Btrfs or on FUSE (ANSWERS-1). For the numbers in `WHOLE` Btrfs reads and writes no more than the number
        // announces, nor does FUSE for any; those are the bytes of `message`, which is borrowed across the call. The assertions above
        // check while compiling that `NUMBER` is one of them and has this size.
        unsafe { rustix::ioctl::ioctl(&self.file, Updater::<NUMBER, [u64; WORDS]>::new(message)) }
    }
}

impl Answering {
    /// Searches a tree by `key`. Returns the key, in which the number of items is filled in, and behind it the items of one answer. In an
    /// answer of Linux' Btrfs every item fits; a FUSE server only sees the message of the first version, which fits a page.
    pub(super) fn search(&self, key: [u64; KEY_WORDS]) -> std::result::Result<Vec<u64>, Errno> {
        const WORDS: usize = KEY_WORDS + 1 + ITEMS_WORDS;
        if !self.is_linux {
            let mut page = [0; PAGE_WORDS];
            page[..KEY_WORDS].copy_from_slice(&key);
            self.send::<TREE_SEARCH, PAGE_WORDS>(&mut page)?;
            return Ok(page.to_vec());
        }
        let message = vec![0; WORDS].into_boxed_slice();
        let mut message: Box<[u64; WORDS]> = message.try_into().expect("as many words");
        message[..KEY_WORDS].copy_from_slice(&key);
        message[KEY_WORDS] = ITEMS_WORDS as u64 * 8;
        // SAFETY: the file is on Btrfs (`is_linux`), which reads and writes the key and the word behind it, and writes no more bytes
        // behind those than that word says; the array has as many, and is borrowed across the call.
        unsafe {
            rustix::ioctl::ioctl(&self.file, Updater::<TREE_SEARCH_V2, [u64; WORDS]>::new(&mut message))
        }?;
        Ok([&message[..KEY_WORDS], &message[KEY_WORDS + 1..]].concat())
    }
}

impl Answering {
    /// Asks the kernel for the references to the data at the logical address `at`, or to any part of its extent: inode, offset, subvolume.
    pub(super) fn logical_ino(&self, at: u64, whole: bool) -> std::result::Result<Vec<[u64; 3]>, Errno> {
        if !self.is_linux {
            return Err(Errno::OPNOTSUPP);
        }
        let mut found = vec![0_u64; CONTAINER_MAX];
        let flags = if whole { IGNORE_OFFSET } else { 0 };
        let mut message =
            [at, CONTAINER_MAX as u64 * 8, 0, 0, 0, flags, found.as_mut_ptr().expose_provenance() as u64];
        // SAFETY: the file is on Btrfs (`is_linux`), which reads and writes the words of `message`, and writes no more bytes behind
        // the pointer than the message says; those are the words of `found`, which has no other borrow until the call has ended.
        unsafe {
            rustix::ioctl::ioctl(
                &self.file,
                Updater::<LOGICAL_INO_V2, [u64; LOGICAL_WORDS]>::new(&mut message),
            )
        }?;
        // Halves of the words: bytes left, bytes missing, words present, words missing.
        let halves = found[1].to_ne_bytes();
        let words = u32::from_ne_bytes(*halves.first_chunk().expect("eight bytes"));
        // If not all references fit, some would be ignored.
        if u32::from_ne_bytes(*halves.last_chunk().expect("eight bytes")) > 0 {
            return Err(Errno::OVERFLOW);
        }
        let words = usize::try_from(words).unwrap_or(0).min(CONTAINER_MAX - CONTAINER_WORDS);
        let (found, _) = found[CONTAINER_WORDS..][..words].as_chunks::<3>();
        Ok(found.to_vec())
    }
}

impl Answering {
    /// The kernel's sums of block groups by kind and profile: flags, bytes, used bytes.
    pub(super) fn space_info(&self) -> std::result::Result<Vec<[u64; 3]>, Errno> {
        const WORDS: usize = 2 + 3 * SPACES_MAX;
        if !self.is_linux {
            return Err(Errno::OPNOTSUPP);
        }
        let mut message = [0; WORDS];
        message[0] = SPACES_MAX as u64;
        // SAFETY: the file is on Btrfs (`is_linux`), which writes two words and three for each of `SPACES_MAX` at most; the array has
        // as many, and is borrowed across the call.
        unsafe { rustix::ioctl::ioctl(&self.file, Updater::<SPACE_INFO, [u64; WORDS]>::new(&mut message)) }?;
        let count = usize::try_from(message[1]).unwrap_or(0).min(SPACES_MAX);
        let (spaces, _) = message[2..].as_chunks::<3>();
        Ok(spaces[..count].to_vec())
    }
}

impl Answering {
    /// The next extents of the file from `start` on: each with its offset in the file, its address, its length, and its flags in the sixth word.
    pub(super) fn fiemap(&self, start: u64) -> std::result::Result<Vec<[u64; FIEMAP_WORDS]>, Errno> {
        const WORDS: usize = 4 + FIEMAP_WORDS * EXTENTS_MAX;
        if !self.is_linux {
            return Err(Errno::OPNOTSUPP);
        }
        let mut message = [0; WORDS];
        (message[0], message[1]) = (start, u64::MAX - start);
        message[3] = u64::from_ne_bytes(halves(EXTENTS_MAX as u32, 0));
        // SAFETY: the kernel writes four words and seven for each of `EXTENTS_MAX` extents at most; the array has as many, and is
        // borrowed across the call.
        unsafe { rustix::ioctl::ioctl(&self.file, Updater::<FIEMAP, [u64; WORDS]>::new(&mut message)) }?;
        let [.., a, b, c, d] = message[2].to_ne_bytes();
        let count = usize::try_from(u32::from_ne_bytes([a, b, c, d])).unwrap_or(0).min(EXTENTS_MAX);
        let (extents, _) = message[4..].as_chunks::<FIEMAP_WORDS>();
        Ok(extents[..count].to_vec())
    }
}

/// A word of two halves, in memory order.
pub(super) fn halves(first: u32, second: u32) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    [a, b, c, d, e, f, g, h]
}

/// The bytes of words, in memory order.
pub(super) fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
