//! Judges that are not ours: `btrfs check`, and the kernel, which mounts a state and shows what it sees.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use creamery_fs::FileType;
use creamery_testkit::{LoopMount, Run, Scratch, btrfs_check};
use parking_lot::Mutex;

use crate::crash::Survivor;
use crate::image::Image;
use crate::operation::time_set;
use crate::power_cut::Class;
use crate::snapshot::{Entry, Snapshot, hash_of, join};

/// Lets `btrfs check` judge an image.
///
/// # Errors
/// With everything it said.
pub fn check_image(image: &Image, scratch: &Scratch) -> Result<()> {
    let path = scratch.file("checked.img");
    image.save(&path)?;
    btrfs_check(&path)
}

/// Lets `btrfs check` judge a state as the power cut left it, and after work went on. A torn superblock is judged
/// only afterwards: Linux does not open it before.
///
/// # Errors
/// With everything it said.
pub fn check_survivor(survivor: &Survivor<'_>, scratch: &Scratch) -> Result<()> {
    if survivor.state.class != Class::TornSuperblock {
        check_but_dropped(&survivor.state.image, scratch).context("as the power cut left it")?;
    }
    check_but_dropped(&survivor.after, scratch).context("after work went on")
}

/// As [`check_image`]. Of a subvolume that is half dropped btrfs-progs 6.14 counts for quotas what it has given up already, too, and may
/// find something else there by now. So of such an image it may say that only the numbers of quotas are different, or end in the midst of
/// counting, which is what it does last.
fn check_but_dropped(image: &Image, scratch: &Scratch) -> Result<()> {
    let Err(error) = check_image(image, scratch) else { return Ok(()) };
    let said = format!("{error:#}");
    let counting = said.contains("Counts for qgroup id") || said.contains("qgroup-verify.c");
    let only_numbers = counting && !said.contains("ERROR");
    if only_numbers && is_half_dropped(&scratch.file("checked.img"))? { Ok(()) } else { Err(error) }
}

fn is_half_dropped(image: &Path) -> Result<bool> {
    let dump = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "root"]).arg(image).ok()?;
    let levels = dump.stdout_text();
    let mut levels = levels.lines().filter_map(|line| line.trim().rsplit_once(" drop_level "));
    Ok(levels.any(|(_, level)| level != "0"))
}

/// Lets the kernel mount a state for writing, compares what it shows, lets it commit, and has `btrfs check` judge what
/// it leaves.
///
/// # Errors
/// When it refuses, complains, or shows something else.
pub fn mount_survivor(survivor: &Survivor<'_>, scratch: &Scratch) -> Result<()> {
    if survivor.state.class == Class::TornSuperblock {
        return Ok(()); // Linux refuses those, as the sheet says
    }
    // All states of an image have one UUID, and the kernel mounts only one such at a time.
    static MOUNTING: Mutex<()> = Mutex::new(());
    let _alone = MOUNTING.lock();
    let path = scratch.file("mounted.img");
    survivor.state.image.save(&path)?;
    let mount = LoopMount::mount(&path, &scratch.dir("mount")?, "")?;
    let shown = host_snapshot(mount.dir())?;
    if let Some(difference) = survivor.snapshot.difference(&shown) {
        bail!("the kernel shows something else: {difference}");
    }
    std::fs::write(mount.dir().join("written by the kernel"), vec![7; 100_000])?;
    // What is dropped halfway `btrfs check` cannot count (see `check_but_dropped`): the kernel is to have done it all.
    for words in ["filesystem", "subvolume"] {
        Run::new("btrfs").args([words, "sync"]).arg(mount.dir()).ok()?;
    }
    mount.unmount()?;
    btrfs_check(&path).context("after the kernel wrote to it")
}

/// A walk with the host's own calls.
///
/// # Errors
/// When something cannot be read.
pub fn host_snapshot(root: &Path) -> Result<Snapshot> {
    let mut snapshot = Snapshot::default();
    let mut inodes: BTreeMap<Vec<u8>, (u64, u64)> = BTreeMap::new();
    let mut left = vec![(root.to_owned(), Vec::new())];
    while let Some((path, shown)) = left.pop() {
        let stat = std::fs::symlink_metadata(&path).with_context(|| path.display().to_string())?;
        if stat.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                let entry = entry?;
                left.push((entry.path(), join(&shown, entry.file_name().as_bytes())));
            }
        }
        inodes.insert(shown.clone(), (stat.dev(), stat.ino()));
        let entry = host_entry(&path, &stat).with_context(|| path.display().to_string())?;
        snapshot.entries.insert(shown, entry);
    }
    let mut firsts: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
    for (path, inode) in inodes {
        let first = firsts.entry(inode).or_insert_with(|| path.clone());
        snapshot.entries.get_mut(&path).expect("put there above").first.clone_from(first);
    }
    Ok(snapshot)
}

fn host_entry(path: &Path, stat: &std::fs::Metadata) -> Result<Entry> {
    let kind = match stat.file_type() {
        kind if kind.is_dir() => FileType::Directory,
        kind if kind.is_file() => FileType::File,
        kind if kind.is_symlink() => FileType::Symlink,
        kind if kind.is_fifo() => FileType::Fifo,
        kind if kind.is_socket() => FileType::Socket,
        kind if kind.is_char_device() => FileType::CharDevice,
        _ => FileType::BlockDevice,
    };
    let content = match kind {
        FileType::File => hash_of(&[&std::fs::read(path)?]),
        FileType::Symlink => hash_of(&[std::fs::read_link(path)?.as_os_str().as_bytes()]),
        _ => 0,
    };
    Ok(Entry {
        kind,
        mode: stat.mode() & 0o7777,
        uid: stat.uid(),
        gid: stat.gid(),
        nlink: u32::try_from(stat.nlink())?,
        size: stat.size(),
        mtime: time_set(stat.mtime()),
        content,
        xattrs: host_xattrs(path)?,
        first: Vec::new(),
    })
}

fn host_xattrs(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    const MOST: usize = 64 << 10;
    let mut names = vec![0; MOST];
    let len = rustix::fs::llistxattr(path, names.as_mut_slice())?;
    names.truncate(len);
    let mut found = BTreeMap::new();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; MOST];
        let len = rustix::fs::lgetxattr(path, name, value.as_mut_slice())?;
        value.truncate(len);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}

/// An image on which the kernel made files, a subvolume and snapshots that share their blocks.
///
/// # Errors
/// When the host cannot do that.
pub fn kernel_image(scratch: &Scratch) -> Result<Image> {
    const LEN: u64 = 256 << 20;
    let path = scratch.file("kernel.img");
    std::fs::File::create(&path)?.set_len(LEN)?;
    Run::new("mkfs.btrfs").args(["-q", "-n", "4096"]).arg(&path).ok()?;
    let mount = LoopMount::mount(&path, &scratch.dir("kernel")?, "")?;
    let root = mount.dir();
    Run::new("btrfs").args(["-q", "subvolume", "create"]).arg(root.join("name1")).ok()?;
    for number in 0..150_usize {
        let dir = if number % 2 == 0 { root.to_owned() } else { root.join("name1") };
        let content: Vec<u8> = (0..number * 150).map(|byte| (byte * 31 + number) as u8).collect();
        std::fs::write(dir.join(format!("name{}", number + 2)), content)?;
    }
    for snapshot in ["name500", "name501"] {
        Run::new("sync").arg("-f").arg(root).ok()?;
        let run = Run::new("btrfs").args(["-q", "subvolume", "snapshot"]).arg(root.join("name1"));
        run.arg(root.join(snapshot)).ok()?;
        std::fs::write(root.join("name1").join("name3"), snapshot)?;
    }
    std::fs::hard_link(root.join("name2"), root.join("name600"))?;
    mount.unmount()?;
    let image = Image::load(&path)?;
    Ok(image)
}
