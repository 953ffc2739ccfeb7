//! The two sides: the library on an image, and the system on a mounted directory.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use creamery::{Filesystem, Image, Statistics};

/// What a workload does to a filesystem. Paths are relative to its root.
pub(crate) trait Side: Sync {
    /// A directory.
    fn make_dir(&self, path: &str) -> Result<()>;
    /// An empty file, opened and closed.
    fn create(&self, path: &str) -> Result<()>;
    /// The inode number of what has the name.
    fn stat(&self, path: &str) -> Result<u64>;
    /// How many names a directory has.
    fn list(&self, path: &str) -> Result<usize>;
    /// Another name for the same.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// The end of a file's name.
    fn unlink(&self, path: &str) -> Result<()>;
    /// Everything durable.
    fn sync(&self) -> Result<()>;
    /// What it counted, if it counts.
    fn statistics(&self) -> Option<Statistics>;
    /// The end of the work.
    fn close(self: Box<Self>) -> Result<()>;
}

/// How the library is opened; what is usual where nothing is said.
#[derive(Clone, Copy, Default)]
pub(crate) struct Setting {
    pub(crate) cache_mib: Option<usize>,
    pub(crate) dirty_mib: Option<usize>,
    pub(crate) early_unlock: Option<bool>,
    pub(crate) fingers: Option<bool>,
    pub(crate) lock_times: bool,
}

/// The library, in this process.
pub(crate) struct Library {
    fs: Filesystem,
}

impl Library {
    pub(crate) fn open(image: &Path, setting: Setting) -> Result<Self> {
        let mut options = Image::options().write(true).lock_times(setting.lock_times);
        if let Some(cache) = setting.cache_mib {
            options = options.cache_bytes((cache as u64) << 20);
        }
        if let Some(on) = setting.early_unlock {
            options = options.early_unlock(on);
        }
        if let Some(on) = setting.fingers {
            options = options.fingers(on);
        }
        if let Some(dirty) = setting.dirty_mib {
            options = options.dirty_bytes((dirty as u64) << 20);
        }
        let fs = options.open(image).with_context(|| format!("opening {}", image.display()))?;
        Ok(Self { fs })
    }
}

impl Side for Library {
    fn make_dir(&self, path: &str) -> Result<()> {
        Ok(self.fs.create_dir(path)?)
    }

    fn create(&self, path: &str) -> Result<()> {
        Ok(self.fs.create(path).map(drop)?)
    }

    fn stat(&self, path: &str) -> Result<u64> {
        Ok(self.fs.symlink_metadata(path)?.ino())
    }

    fn list(&self, path: &str) -> Result<usize> {
        let mut names = 0;
        for entry in self.fs.read_dir(path)? {
            entry?;
            names += 1;
        }
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        Ok(self.fs.rename(from, to)?)
    }

    fn unlink(&self, path: &str) -> Result<()> {
        Ok(self.fs.remove_file(path)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.fs.sync()?)
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.fs.statistics())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.fs.close()?)
    }
}

/// A mounted filesystem, by system calls.
pub(crate) struct Directory {
    root: PathBuf,
}

impl Directory {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
}

impl Side for Directory {
    fn make_dir(&self, path: &str) -> Result<()> {
        Ok(std::fs::create_dir(self.root.join(path))?)
    }

    fn create(&self, path: &str) -> Result<()> {
        Ok(std::fs::File::create(self.root.join(path)).map(drop)?)
    }

    fn stat(&self, path: &str) -> Result<u64> {
        use std::os::unix::fs::MetadataExt;
        Ok(std::fs::symlink_metadata(self.root.join(path))?.ino())
    }

    fn list(&self, path: &str) -> Result<usize> {
        let mut names = 0;
        for entry in std::fs::read_dir(self.root.join(path))? {
            entry?;
            names += 1;
        }
        Ok(names)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        Ok(std::fs::rename(self.root.join(from), self.root.join(to))?)
    }

    fn unlink(&self, path: &str) -> Result<()> {
        Ok(std::fs::remove_file(self.root.join(path))?)
    }

    fn sync(&self) -> Result<()> {
        // syncfs(2) without unsafe code: the program that does just that.
        let status = std::process::Command::new("sync").arg("-f").arg(&self.root).status()?;
        anyhow::ensure!(status.success(), "sync -f failed");
        Ok(())
    }

    fn statistics(&self) -> Option<Statistics> {
        None
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
