//! Counts the data below a path of a live mount, and how much of it is shared, from the extents that the mount reports for files.
//! [`creamery_fs::UsageSet`] says how an extent counts. Data that is not written back yet has no address, and does not count.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use creamery_base::{Error, ErrorKind, Result};
use creamery_fs::{AddressRanges, FiemapExtent, FiemapFlags, FiemapRequest, FileUsage};

use super::LiveBtrfs;
use super::controls::Answering;
use crate::live_file::LiveFile;
use crate::table::points_below;

/// Extents without an address, or in a tree.
const NOWHERE: FiemapFlags = FiemapFlags::UNKNOWN.union(FiemapFlags::DATA_INLINE);

/// State of the count.
#[derive(Default)]
struct Set {
    /// Files with several names that were counted.
    counted: HashSet<(u64, u64)>,
    shared: AddressRanges,
}

/// A directory during the count.
struct Level {
    path: PathBuf,
    left: std::vec::IntoIter<PathBuf>,
    usage: FileUsage,
}

/// The kind of a directory entry, for the count.
enum EntryKind {
    Directory(Level),
    File(FileUsage),
    /// Neither a directory nor a regular file, or a file that does not count: counted by another name, or on another kind of mount.
    Nothing,
}

impl LiveBtrfs {
    /// Counts the data of this file, or of all files below this directory, subvolumes included, but not other mounts there; a
    /// file with several names counts once. Calls `each` for every file and directory below, for directories after their content,
    /// and `left_out` for each that could not be counted. Returns the size of the data that they refer to, and of the part that they share, with each other or
    /// with others, each piece once.
    /// Errors: this file or directory cannot be read.
    pub fn disk_usage(
        &self,
        mut each: impl FnMut(&Path, FileUsage),
        mut left_out: impl FnMut(Error),
    ) -> Result<(FileUsage, u64)> {
        let mut set = Set::default();
        let meta = self.answering.file().metadata()?;
        if !meta.is_dir() {
            let usage = self.count(&self.answering, &self.path, &meta, &mut set)?.unwrap_or_default();
            return Ok((usage, set.shared.bytes()));
        }
        let mounted = points_below(&self.path)?;
        let mut levels = vec![level(&self.path)?];
        loop {
            let here = levels.last_mut().expect("the first one ends this");
            let Some(path) = here.left.next() else {
                let done = levels.pop().expect("it was there");
                let Some(above) = levels.last_mut() else { return Ok((done.usage, set.shared.bytes())) };
                above.usage += done.usage;
                each(&done.path, done.usage);
                continue;
            };
            match self.look(&path, &mounted, &mut set) {
                Ok(EntryKind::Directory(level)) => levels.push(level),
                Ok(EntryKind::File(usage)) => {
                    here.usage += usage;
                    each(&path, usage);
                }
                Ok(EntryKind::Nothing) => {}
                // The file was removed after the listing.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => left_out(error),
            }
        }
    }

    /// Examines the file at `path`.
    fn look(&self, path: &Path, mounted: &HashSet<(u64, u64)>, set: &mut Set) -> Result<EntryKind> {
        let meta = std::fs::symlink_metadata(path).map_err(|error| at(path, error))?;
        if meta.is_dir() && !mounted.contains(&meta.dev_ino()) {
            return level(path).map(EntryKind::Directory);
        }
        let usage = if meta.is_file() { self.count_at(path, set)? } else { None };
        Ok(usage.map_or(EntryKind::Nothing, EntryKind::File))
    }

    /// The usage of the file at `path`; `None` if it was counted by another name, or is not on a mount of the same kind.
    fn count_at(&self, path: &Path, set: &mut Set) -> Result<Option<FileUsage>> {
        let Some(answering) = Answering::open(path)?.filter(|there| there.is_linux() == self.is_linux())
        else {
            return Ok(None);
        };
        let meta = answering.file().metadata().map_err(|error| at(path, error))?;
        self.count(&answering, path, &meta, set)
    }

    fn count(
        &self,
        file: &Answering,
        path: &Path,
        meta: &Metadata,
        set: &mut Set,
    ) -> Result<Option<FileUsage>> {
        if meta.nlink() > 1 && !set.counted.insert(meta.dev_ino()) {
            return Ok(None);
        }
        let mut usage = FileUsage::default();
        let mut add = |FiemapExtent { physical, length, flags, .. }: FiemapExtent| {
            if flags.intersects(NOWHERE) {
                return;
            }
            let is_shared = flags.contains(FiemapFlags::SHARED);
            usage += FileUsage { total: length, exclusive: if is_shared { 0 } else { length } };
            if is_shared {
                set.shared.insert(physical, physical.saturating_add(length));
            }
        };
        if !self.is_linux() {
            let file = LiveFile::of(file.file().try_clone()?, path)?;
            file.fiemap(&FiemapRequest::default())?.try_for_each(|extent| extent.map(&mut add))?;
            return Ok(Some(usage));
        }
        let mut start = 0;
        loop {
            let extents = file.fiemap(start).map_err(|errno| at(path, errno.into()))?;
            let mut is_last = true;
            for [logical, physical, length, _, _, flags, _] in extents {
                let bits = *flags.to_ne_bytes().first_chunk().expect("eight bytes");
                let extent = FiemapExtent::new(
                    logical,
                    physical,
                    length,
                    FiemapFlags::from_bits_retain(u32::from_ne_bytes(bits)),
                );
                // Addresses rise, so the loop ends.
                let end = logical.saturating_add(length);
                is_last = extent.flags.contains(FiemapFlags::LAST) || end <= start;
                start = end;
                add(extent);
            }
            if is_last {
                return Ok(Some(usage));
            }
        }
    }
}

/// The identity of a file.
trait DevIno {
    fn dev_ino(&self) -> (u64, u64);
}

impl DevIno for Metadata {
    fn dev_ino(&self) -> (u64, u64) {
        (self.dev(), self.ino())
    }
}

fn level(path: &Path) -> Result<Level> {
    let entries = std::fs::read_dir(path).map_err(|error| at(path, error))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<std::io::Result<Vec<_>>>();
    let left = paths.map_err(|error| at(path, error))?.into_iter();
    Ok(Level { path: path.to_owned(), left, usage: FileUsage::default() })
}

fn at(path: &Path, error: std::io::Error) -> Error {
    Error::from(error).context(path.display())
}
