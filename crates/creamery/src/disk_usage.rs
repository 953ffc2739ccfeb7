//! Counts the data below a path, and how much of it is shared.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, InodeId, Result, Wait};

use crate::extents::Extents;
use crate::filesystem::Filesystem;
use crate::fs::{FileUsage, UsageSet};
use crate::metadata::file_type;
use crate::path::{Last, at};
use crate::{FileType, ReadDir};

/// Data that the files at and below a path refer to, bytes.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// fs.subvolumes().create("/project")?;
/// fs.write("/project/kept", vec![1; 65536])?;
/// fs.subvolumes().snapshot("/project", "/before").read_only().run()?;
/// fs.write("/project/new", vec![1; 8192])?;
/// let usage = fs.extents().disk_usage("/project", |_, _| ())?;
/// assert_eq!((usage.total, usage.exclusive, usage.set_shared), (65536 + 8192, 8192, 65536));
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DiskUsage {
    /// Data of all files, bytes; data that several files share counts for each of them.
    pub total: u64,
    /// Data that only one file refers to, bytes.
    pub exclusive: u64,
    /// Data that the files share, with each other or with others, bytes; each piece counts once.
    pub set_shared: u64,
}

/// A directory during the count.
struct CountedDirectory {
    path: PathBuf,
    entries: ReadDir,
    usage: FileUsage,
}

impl Extents<'_> {
    /// Counts the data of the file at `path`, or of all files below the directory there, as `btrfs filesystem du` does: subvolumes
    /// included; a file with several names counts once. Calls `each` for every file and directory below, for directories after their
    /// content. In a writable filesystem earlier changes are committed first.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", vec![1; 65536])?;
    /// let usage = fs.extents().disk_usage("/", |path, usage| println!("{} {}", usage.total, path.display()))?;
    /// assert_eq!(usage.exclusive, 65536);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of a commit; damage.
    pub fn disk_usage(
        self,
        path: impl AsRef<Path>,
        mut each: impl FnMut(&Path, FileUsage),
    ) -> Result<DiskUsage> {
        let mut each = |path: &Path, usage| {
            each(path, usage);
            Ok(())
        };
        self.0.disk_usage_past_damage(path.as_ref(), &mut each, &mut Err)
    }
}

impl Filesystem {
    /// Counts like [`Extents::disk_usage`], and goes on after damage: calls `trouble` with the error of each file or directory that is not
    /// counted. An error that `each` or `trouble` returns ends the count.
    pub(crate) fn disk_usage_past_damage(
        &self,
        path: &Path,
        each: &mut dyn FnMut(&Path, FileUsage) -> Result<()>,
        trouble: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<DiskUsage> {
        let id = self.resolve(path, Last::Follow)?;
        let mut set = self.fs.usage_set().map_err(at(path))?;
        let usage = match file_type(self.fs.stat(id, Wait::Yes).map_err(at(path))?.kind) {
            FileType::File => set.add(id).map_err(at(path))?.unwrap_or_default(),
            FileType::Directory => self.usage_below(&mut set, id, path, each, trouble)?,
            _ => FileUsage::default(),
        };
        Ok(DiskUsage { total: usage.total, exclusive: usage.exclusive, set_shared: set.shared() })
    }

    fn usage_below(
        &self,
        set: &mut UsageSet<'_>,
        id: InodeId,
        path: &Path,
        each: &mut dyn FnMut(&Path, FileUsage) -> Result<()>,
        trouble: &mut dyn FnMut(Error) -> Result<()>,
    ) -> Result<FileUsage> {
        let level = |path: &Path, entries| CountedDirectory {
            path: path.to_owned(),
            entries,
            usage: FileUsage::default(),
        };
        let mut levels = vec![level(path, ReadDir::new(Arc::clone(&self.fs), id, path.to_owned())?)];
        loop {
            let here = levels.last_mut().expect("the first one ends this");
            let Some(entry) = here.entries.next() else {
                let done = levels.pop().expect("it was there");
                let Some(above) = levels.last_mut() else { return Ok(done.usage) };
                above.usage += done.usage;
                each(&done.path, done.usage)?;
                continue;
            };
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    trouble(error)?;
                    continue;
                }
            };
            let path = entry.path();
            let counted = match entry.file_type() {
                FileType::File => match set.add(entry.id()).map_err(at(&path)) {
                    Ok(Some(usage)) => {
                        here.usage += usage;
                        each(&path, usage)?;
                        Ok(())
                    }
                    other => other.map(drop),
                },
                FileType::Directory => entry.read_dir().map(|entries| levels.push(level(&path, entries))),
                _ => Ok(()),
            };
            match counted {
                // The file was removed after the listing.
                Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound) => {}
                Err(error) => trouble(error)?,
                Ok(()) => {}
            }
        }
    }
}
