//! Subvolumes by the kernel's own ioctls (linux/btrfs.h), without a program for each.

#![allow(unsafe_code, reason = "no crate has these ioctls; each block says why it is sound")]

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::io::{Errno, Result};
use rustix::ioctl::{NoArg, Opcode, Setter, Updater, opcode};

/// `struct btrfs_ioctl_vol_args`: a descriptor, and a name that ends with a zero.
const ARGS: usize = 4096;
const NAME: usize = 8;
const NAME_MAX: usize = 255;
const SNAP_CREATE: Opcode = opcode::write::<[u8; ARGS]>(0x94, 1);
const SUBVOL_CREATE: Opcode = opcode::write::<[u8; ARGS]>(0x94, 14);
const SNAP_DESTROY: Opcode = opcode::write::<[u8; ARGS]>(0x94, 15);
const SUBVOL_SETFLAGS: Opcode = opcode::write::<[u64; 1]>(0x94, 26);
const SYNC: Opcode = opcode::none(0x94, 8);
/// `struct btrfs_ioctl_search_args`: a key of 104 bytes, and what was found.
const TREE_SEARCH: Opcode = opcode::read_write::<[u64; ARGS / 8]>(0x94, 17);
/// Where the number of items is in it, in words.
const ITEMS: usize = 8;
/// `struct btrfs_ioctl_ino_lookup_args`: a tree, an inode, and a path.
const INO_LOOKUP: Opcode = opcode::read_write::<[u64; ARGS / 8]>(0x94, 18);
const ROOT_TREE: u64 = 1;
const ROOT_ITEM: u64 = 132;
const FIRST_FREE: u64 = 256;

fn send<const NUMBER: Opcode>(dir: &File, name: &str, source: Option<&File>) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let mut args = [0; ARGS];
    let descriptor = source.map_or(0, |source| i64::from(source.as_raw_fd()));
    args[..NAME].copy_from_slice(&descriptor.to_ne_bytes());
    args[NAME..NAME + name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: for all three the kernel reads as many bytes as the array has; the descriptor in it is open for as long as `source`
    // is borrowed.
    unsafe { rustix::ioctl::ioctl(dir, Setter::<NUMBER, [u8; ARGS]>::new(args)) }
}

/// Has the kernel make a subvolume called `name` in `dir`.
///
/// ```no_run
/// creamery_testkit::create_subvolume(&std::fs::File::open("/mnt")?, "work")?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// What the kernel answers.
pub fn create_subvolume(dir: &File, name: &str) -> Result<()> {
    send::<SUBVOL_CREATE>(dir, name, None)
}

/// Has the kernel allow changes in the subvolume whose root this is, received or not.
///
/// ```no_run
/// creamery_testkit::allow_changes(&std::fs::File::open("/mnt/received")?)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// What the kernel answers.
pub fn allow_changes(subvolume: &File) -> Result<()> {
    // SAFETY: the kernel reads one word, which is there.
    unsafe { rustix::ioctl::ioctl(subvolume, Setter::<SUBVOL_SETFLAGS, [u64; 1]>::new([0])) }
}

/// Has the kernel take a snapshot of `source`, the root of a subvolume, called `name` in `dir`. It is durable then.
///
/// ```no_run
/// let (dir, work) = (std::fs::File::open("/mnt")?, std::fs::File::open("/mnt/work")?);
/// creamery_testkit::create_snapshot(&dir, "before", &work)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// What the kernel answers.
pub fn create_snapshot(dir: &File, name: &str, source: &File) -> Result<()> {
    send::<SNAP_CREATE>(dir, name, Some(source))
}

/// Has the kernel delete the subvolume called `name` in `dir`; its tree is dropped in the background.
///
/// ```no_run
/// creamery_testkit::delete_subvolume(&std::fs::File::open("/mnt")?, "work")?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// What the kernel answers.
pub fn delete_subvolume(dir: &File, name: &str) -> Result<()> {
    send::<SNAP_DESTROY>(dir, name, None)
}

/// The number of the subvolume that `dir` is in.
///
/// ```no_run
/// assert_eq!(creamery_testkit::subvolume_id(&std::fs::File::open("/mnt")?)?, 5);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// What the kernel answers.
pub fn subvolume_id(dir: &File) -> Result<u64> {
    let mut args = [0; ARGS / 8];
    args[1] = FIRST_FREE;
    // SAFETY: the kernel reads and writes as many bytes as the array has.
    unsafe { rustix::ioctl::ioctl(dir, Updater::<INO_LOOKUP, _>::new(&mut args)) }?;
    Ok(args[0])
}

/// Whether the root tree of the filesystem of `dir` has a subvolume `id`, be it a deleted one that is not dropped yet.
///
/// ```no_run
/// assert!(creamery_testkit::has_subvolume(&std::fs::File::open("/mnt")?, 5)?);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// What the kernel answers.
pub fn has_subvolume(dir: &File, id: u64) -> Result<bool> {
    let mut args = [0; ARGS / 8];
    // The tree; first and last of ids, of offsets, of transactions; of types; how many.
    let key = [ROOT_TREE, id, id, 0, u64::MAX, 0, u64::MAX, ROOT_ITEM | ROOT_ITEM << 32, 1];
    args[..key.len()].copy_from_slice(&key);
    // SAFETY: the kernel reads and writes as many bytes as the array has.
    unsafe { rustix::ioctl::ioctl(dir, Updater::<TREE_SEARCH, _>::new(&mut args)) }?;
    Ok(args[ITEMS] & u64::from(u32::MAX) > 0)
}

/// Has the kernel commit, and begin to drop what was deleted.
///
/// ```no_run
/// creamery_testkit::commit_and_clean(&std::fs::File::open("/mnt")?)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
/// What the kernel answers.
pub fn commit_and_clean(dir: &File) -> Result<()> {
    // SAFETY: it takes no argument.
    unsafe { rustix::ioctl::ioctl(dir, NoArg::<SYNC>::new()) }
}
