//! Random work on a filesystem with subvolumes, from a seed: the same on a mount of Linux and on one of ours. Cloning (an ioctl of Linux)
//! and subvolumes (a program) have a version for each side.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::{
    Program, Random, Run, TreeItem, ficlonerange, fideduperange, sync_filesystem, tree_items,
};
use rustix::fs::{
    FallocateFlags, IFlags, XattrFlags, fallocate, ioctl_getflags, ioctl_setflags, removexattr, setxattr,
};
use rustix::io::Errno;

use crate::item_types::{EXTENT_DATA, ROOT_REF};

const SECTOR: u64 = 4096;
/// The number of subvolumes above which some are deleted.
const SUBVOLUMES_MAX: usize = 7;
/// The bytes in use above which some files are deleted.
const USED_MAX: u64 = 70 << 20;
const EMPTY_SUBVOLUME_DIR: u64 = 2;
pub(crate) const TOP_LEVEL: u64 = 5;
const ROOT_TREE: u64 = 1;

/// The state that passes from one worker to the next.
pub(crate) struct State {
    pub(crate) random: Random,
    /// Paths of all subvolumes below the top level, which is "", and whether each is read-only.
    pub(crate) subvolumes: BTreeMap<String, bool>,
    /// Whether a deletion waits until the subvolume is dropped.
    pub(crate) waits_for_drops: bool,
    made: u64,
}

impl State {
    pub(crate) fn new(seed: u64) -> Self {
        let subvolumes = [(String::new(), false)].into();
        Self { random: Random::new(seed), subvolumes, waits_for_drops: false, made: 0 }
    }

    pub(crate) fn new_name(&mut self, what: &str) -> String {
        self.made += 1;
        format!("{what}-{}", self.made)
    }

    /// Picks one of all subvolumes, or of the writable ones.
    pub(crate) fn pick_subvolume(&mut self, is_written: bool) -> String {
        let fit: Vec<&String> =
            self.subvolumes.iter().filter(|(_, ro)| !(is_written && **ro)).map(|(path, _)| path).collect();
        fit[self.random.below(fit.len() as u64) as usize].clone()
    }

    /// Picks a subvolume that can be deleted: no other one is in it, and it is not in a read-only one.
    pub(crate) fn pick_to_delete(&mut self) -> Option<String> {
        let has_one = |path: &String| {
            let below = format!("{path}/");
            path.is_empty() || self.subvolumes.keys().any(|other| other.starts_with(&below))
        };
        let fit: Vec<String> = self.subvolumes.keys().filter(|path| !has_one(path)).cloned().collect();
        (!fit.is_empty()).then(|| fit[self.random.below(fit.len() as u64) as usize].clone())
    }
}

/// The side that works.
#[derive(Clone, Copy)]
pub(crate) enum WorkingSide<'w> {
    Linux,
    Us(&'w Program),
}

pub(crate) struct RandomWork<'w> {
    /// The mount point of the top level.
    pub(crate) top: &'w Path,
    pub(crate) by: WorkingSide<'w>,
    pub(crate) state: &'w mut State,
}

/// Whether the directory stands for a subvolume in a snapshot. Our mounts have the subvolume in the inode number's upper bits.
pub(crate) fn is_stub(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|meta| meta.is_dir() && meta.ino() & 0xffff_ffff_ffff == EMPTY_SUBVOLUME_DIR)
}

/// The numbers of all subvolumes but the top level, by the last component of their paths.
pub(crate) fn subvolume_ids(top: &Path) -> Result<BTreeMap<String, u64>> {
    // The name comes behind the inode of the directory, a number, and the length of the name.
    const NAME_AT: usize = 18;
    let refs = tree_items(top, ROOT_TREE)?.into_iter().filter(|item| item.kind == ROOT_REF);
    Ok(refs.map(|item| (String::from_utf8_lossy(&item.data[NAME_AT..]).into_owned(), item.offset)).collect())
}

impl RandomWork<'_> {
    /// Runs `operations` operations on files, with work on subvolumes between them.
    pub(crate) fn round(&mut self, operations: u64) -> Result<()> {
        for number in 0..operations {
            let operation = self.below(24);
            self.operation(operation).with_context(|| format!("operation {number}, of kind {operation}"))?;
            if number % 25 == 24 {
                self.subvolume_work().with_context(|| format!("subvolumes after operation {number}"))?;
            }
        }
        self.make_room()
    }

    /// Runs up to `operations` operations on files, in up to `syncs` groups. A sync of a file or directory follows each group; returns
    /// the last path synced.
    pub(crate) fn some(&mut self, operations: u64, syncs: u64) -> Result<PathBuf> {
        let mut synced = PathBuf::new();
        for _ in 0..=self.below(syncs) {
            for _ in 0..self.below(operations / syncs) {
                let operation = self.below(24);
                self.operation(operation)?;
            }
            let subvolume = self.state.pick_subvolume(true);
            let file = if self.below(3) > 0 { self.pick_file(&subvolume)? } else { None };
            let path = match file {
                Some(path) => path,
                None => self.pick_dir(&subvolume)?,
            };
            File::open(&path)?.sync_all()?;
            synced = path;
        }
        Ok(synced)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.state.random.below(bound)
    }

    fn content(&mut self) -> Vec<u8> {
        let len = match self.below(20) {
            0..8 => self.below(2_100),
            8..15 => self.below(60_000),
            15..19 => self.below(300_000),
            _ => self.below(1_500_000),
        };
        let len = len as usize;
        if self.below(2) == 0 {
            return self.state.random.bytes(len);
        }
        let word = self.state.random.bytes(50);
        word.iter().copied().cycle().take(len).collect()
    }

    /// The content of a directory, in an order that follows from the names.
    fn listed(dir: &Path) -> Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            paths.push(entry?.path());
        }
        paths.sort();
        Ok(paths)
    }

    fn is_subvolume(&self, path: &Path) -> bool {
        let below = path.strip_prefix(self.top).ok().and_then(Path::to_str);
        below.is_some_and(|below| self.state.subvolumes.contains_key(below))
    }

    /// Picks a directory of the subvolume, possibly its root.
    fn pick_dir(&mut self, subvolume: &str) -> Result<PathBuf> {
        let mut dir = self.top.join(subvolume);
        for _ in 0..4 {
            let mut below = Self::listed(&dir)?;
            below.retain(|path| {
                path.is_dir() && !path.is_symlink() && !self.is_subvolume(path) && !is_stub(path)
            });
            if below.is_empty() || self.below(3) == 0 {
                break;
            }
            dir = below.swap_remove(self.below(below.len() as u64) as usize);
        }
        Ok(dir)
    }

    fn pick_file(&mut self, subvolume: &str) -> Result<Option<PathBuf>> {
        for _ in 0..3 {
            let mut files = Self::listed(&self.pick_dir(subvolume)?)?;
            files.retain(|path| path.symlink_metadata().is_ok_and(|meta| meta.is_file()));
            if !files.is_empty() {
                return Ok(Some(files.swap_remove(self.below(files.len() as u64) as usize)));
            }
        }
        Ok(None)
    }

    fn new_path(&mut self, subvolume: &str, what: &str) -> Result<PathBuf> {
        let dir = self.pick_dir(subvolume)?;
        Ok(dir.join(self.state.new_name(what)))
    }

    fn operation(&mut self, which: u64) -> Result<()> {
        let subvolume = self.state.pick_subvolume(true);
        match which {
            0..5 => {
                let path = self.new_path(&subvolume, "file")?;
                Ok(std::fs::write(path, self.content())?)
            }
            5 => self.marked(&subvolume, IFlags::COMPRESSED),
            6 => self.marked(&subvolume, IFlags::NOCOW),
            7 => {
                let path = self.new_path(&subvolume, "dir")?;
                Ok(std::fs::create_dir(path)?)
            }
            8 => {
                let path = self.new_path(&subvolume, "symlink")?;
                let len = 1 + self.below(200) as usize;
                Ok(symlink("t".repeat(len), path)?)
            }
            9 => self.sparse(&subvolume),
            10..14 => self.clone_some(&subvolume),
            14 => self.dedupe(&subvolume),
            _ => match self.pick_file(&subvolume)? {
                Some(path) => self.change(which, &subvolume, &path),
                None => Ok(()),
            },
        }
    }

    /// Makes a file that is compressed, or one that is written in place.
    fn marked(&mut self, subvolume: &str, mark: IFlags) -> Result<()> {
        let path = self.new_path(subvolume, if mark == IFlags::NOCOW { "nocow" } else { "packed" })?;
        let file = File::create_new(&path)?;
        ioctl_setflags(&file, ioctl_getflags(&file)? | mark).context("setting a mark")?;
        let content = self.content();
        file.write_all_at(&content, 0)?;
        if self.below(2) == 0 {
            file.sync_all()?;
            let at = self.below(content.len() as u64 + 1);
            let more = self.content();
            file.write_all_at(&more, at)?;
        }
        Ok(())
    }

    fn sparse(&mut self, subvolume: &str) -> Result<()> {
        let file = File::create_new(self.new_path(subvolume, "sparse")?)?;
        for _ in 0..=self.below(4) {
            let at = self.below(3_000_000);
            let len = 1 + self.below(30_000) as usize;
            let bytes = self.state.random.bytes(len);
            file.write_all_at(&bytes, at)?;
        }
        Ok(file.set_len(self.below(4_000_000))?)
    }

    /// Changes an existing file.
    fn change(&mut self, which: u64, subvolume: &str, path: &Path) -> Result<()> {
        let open = || File::options().read(true).write(true).open(path);
        let len = path.metadata()?.len();
        match which {
            15 => {
                let content = self.content();
                let at = self.below(len + 10_000);
                open()?.write_all_at(&content, at)?;
            }
            16 => open()?.set_len(self.below(len * 3 / 2 + 1))?,
            17 => {
                let (at, punched) = (self.below(len + 1), 1 + self.below(100_000));
                fallocate(open()?, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, punched)?;
            }
            18 => {
                let flags =
                    if self.below(2) == 0 { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
                let (at, set_aside) = (self.below(len + 50_000), 1 + self.below(500_000));
                let file = open()?;
                fallocate(&file, flags, at, set_aside)?;
                let bytes = self.state.random.bytes(9_000);
                file.write_all_at(&bytes, at + set_aside / 2)?;
            }
            19 => {
                let value = self.below(2_500) as usize;
                let value = self.state.random.bytes(value);
                let name = format!("user.{}", self.below(4));
                if let WorkingSide::Linux = self.by {
                    // Linux may have no space for the new value if the old and the new one do not fit into one leaf of 4 KiB.
                    let _ = removexattr(path, name.as_str());
                }
                setxattr(path, name.as_str(), &value, XattrFlags::empty())?;
            }
            20 => {
                let link = self.new_path(subvolume, "link")?;
                std::fs::hard_link(path, link)?;
            }
            21 => {
                let to = self.new_path(subvolume, "renamed")?;
                std::fs::rename(path, to)?;
            }
            22 => {
                let file = open()?;
                let bytes = self.state.random.bytes(5_000);
                file.write_all_at(&bytes, len)?;
                file.sync_all()?;
            }
            _ => std::fs::remove_file(path)?,
        }
        Ok(())
    }

    /// Clones a part of any file, aligned or up to its end, to a file of this subvolume.
    fn clone_some(&mut self, subvolume: &str) -> Result<()> {
        let from = self.state.pick_subvolume(false);
        let Some(source) = self.pick_file(&from)? else { return Ok(()) };
        let target = match self.pick_file(subvolume)? {
            Some(path) if self.below(2) == 0 => path,
            _ => self.new_path(subvolume, "clone")?,
        };
        let (input, output) =
            (File::open(&source)?, File::options().write(true).create(true).truncate(false).open(&target)?);
        let len = input.metadata()?.len();
        let start = self.below(len.div_ceil(SECTOR).max(1)) * SECTOR;
        let part = if self.below(2) == 0 { 0 } else { (1 + self.below(20)) * SECTOR };
        let part = if start + part > len { 0 } else { part };
        let to = self.below(40) * SECTOR;
        match self.by {
            // An unaligned end may not lie in the middle of the target, and files with and without checksums cannot share.
            WorkingSide::Linux => match ficlonerange(&output, to, &input, start, part) {
                Err(Errno::INVAL) => Ok(()),
                other => other.with_context(|| format!("cloning {start} {part} of {}", source.display())),
            },
            WorkingSide::Us(_) => {
                let end = if part == 0 { len } else { start + part };
                let (mut start, mut to) = (start, to);
                // The names may be different.
                let same = input.metadata()?.ino() == output.metadata()?.ino()
                    && to < end
                    && start < to + (end - start);
                while start < end && !same {
                    let room = usize::try_from(end - start)?;
                    let count =
                        rustix::fs::copy_file_range(&input, Some(&mut start), &output, Some(&mut to), room)
                            .with_context(|| format!("{} to {}", source.display(), target.display()))?;
                    ensure!(count > 0, "{}: copied nothing", source.display());
                }
                Ok(())
            }
        }
    }

    /// Makes a second file with the content of another one, and deduplicates both.
    fn dedupe(&mut self, subvolume: &str) -> Result<()> {
        let from = self.state.pick_subvolume(false);
        let Some(source) = self.pick_file(&from)? else { return Ok(()) };
        let target = self.new_path(subvolume, "equal")?;
        std::fs::write(&target, std::fs::read(&source)?)?;
        let input = File::open(&source)?;
        let len = input.metadata()?.len() / SECTOR * SECTOR;
        if len == 0 || matches!(self.by, WorkingSide::Us(_)) {
            return Ok(());
        }
        match fideduperange(&File::options().write(true).open(&target)?, 0, &input, 0, len.min(16 << 20)) {
            // One has checksums and the other one has none.
            Ok(_) | Err(Errno::INVAL) => Ok(()),
            Err(error) => Err(error).context("deduplicating"),
        }
    }

    /// A command of `btrfs subvolume`, or of ours.
    fn command(&self, words: &[&str]) -> Run {
        match self.by {
            WorkingSide::Linux => Run::new("btrfs").args(["-q", "subvolume"]).args(words),
            WorkingSide::Us(program) => program.run(["subvolume"]).args(words),
        }
    }

    fn subvolume_work(&mut self) -> Result<()> {
        let dir = self.state.pick_subvolume(true);
        let dir = self.pick_dir(&dir)?;
        let what = self.below(5);
        if what == 0 {
            let path = dir.join(self.state.new_name("subvolume"));
            self.command(&["create"]).arg(&path).ok()?;
            self.know(&path, false)
        } else {
            let source = self.state.pick_subvolume(false);
            let path = dir.join(self.state.new_name("snapshot"));
            let options: &[&str] = if what < 3 { &["snapshot", "-r"] } else { &["snapshot"] };
            self.command(options).args([&self.top.join(&source), &path]).ok()?;
            self.know(&path, what < 3)?;
            self.expect_shared(&source, &path)
        }?;
        while self.state.subvolumes.len() > SUBVOLUMES_MAX {
            if !self.delete_one()? {
                break;
            }
        }
        self.remove_a_stub()
    }

    fn know(&mut self, path: &Path, read_only: bool) -> Result<()> {
        let path = path.strip_prefix(self.top)?.to_str().context("a name of ours")?;
        self.state.subvolumes.insert(path.to_owned(), read_only);
        Ok(())
    }

    /// Checks that a snapshot refers to the data of its source.
    fn expect_shared(&self, source: &str, snapshot: &Path) -> Result<()> {
        let ids = subvolume_ids(self.top)?;
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let id = |path: &Path| name(path).and_then(|name| ids.get(&name).copied());
        let of = id(Path::new(source)).unwrap_or(TOP_LEVEL);
        let id = id(snapshot).context("it is in no list")?;
        let data = |id| -> Result<Vec<TreeItem>> {
            let items = tree_items(self.top, id)?;
            Ok(items.into_iter().filter(|item| item.kind == EXTENT_DATA).collect())
        };
        ensure!(data(of)? == data(id)?, "{}: other data than {source:?} has", snapshot.display());
        Ok(())
    }

    fn delete_one(&mut self) -> Result<bool> {
        let Some(gone) = self.state.pick_to_delete() else { return Ok(false) };
        self.command(&["delete"]).arg(self.top.join(&gone)).ok()?;
        if self.state.waits_for_drops && matches!(self.by, WorkingSide::Linux) {
            self.command(&["sync"]).arg(self.top).ok()?;
        }
        self.state.subvolumes.remove(&gone);
        Ok(true)
    }

    /// Removes a directory that stands for a subvolume in a snapshot.
    fn remove_a_stub(&mut self) -> Result<()> {
        let subvolume = self.state.pick_subvolume(true);
        let dir = self.pick_dir(&subvolume)?;
        match Self::listed(&dir)?.into_iter().find(|path| is_stub(path)) {
            Some(stub) => std::fs::remove_dir(&stub).with_context(|| format!("removing the stub {stub:?}")),
            None => Ok(()),
        }
    }

    /// Deletes subvolumes and files while more is in use than can be compared in a few seconds.
    fn make_room(&mut self) -> Result<()> {
        for _ in 0..2 * SUBVOLUMES_MAX {
            self.command(&["sync"]).arg(self.top).ok()?;
            sync_filesystem(self.top)?;
            let room = rustix::fs::statvfs(self.top)?;
            if (room.f_blocks - room.f_bfree) * room.f_frsize < USED_MAX {
                break;
            }
            if !self.delete_one()? {
                self.remove_half()?;
            }
        }
        Ok(())
    }

    /// Removes half of the top level's entries, except those with subvolumes in them.
    fn remove_half(&mut self) -> Result<()> {
        for path in Self::listed(self.top)?.into_iter().step_by(2) {
            let has_one = self.state.subvolumes.keys().any(|other| self.top.join(other).starts_with(&path));
            if has_one {
                continue;
            }
            let is_dir = path.symlink_metadata()?.is_dir();
            if is_dir { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) }
                .with_context(|| format!("removing {}", path.display()))?;
        }
        Ok(())
    }
}
