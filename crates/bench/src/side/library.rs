//! The library, in this process.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery::attributes::FileTimes;
use creamery::compression::Compress;
use creamery::copy::{CopyOptions, Reflink};
use creamery::env::{Env, SystemEnv, Tuning};
use creamery::progress::OnError;
use creamery::statistics::Statistics;
use creamery::{File, Filesystem, Image, OpenOptions, Permissions};

use super::{Content, How, Side};

const EVERYTHING: CopyOptions = CopyOptions {
    recursive: true,
    archive: true,
    reflink: Reflink::Never,
    on_error: OnError::Stop,
    preserve: false,
    replace_images: false,
};

/// The options for opening an image; the defaults are the usual ones.
#[derive(Clone, Copy, Default)]
pub(crate) struct OpenSetting {
    pub(crate) cache_mib: Option<usize>,
    pub(crate) dirty_mib: Option<usize>,
    pub(crate) delayed_mib: Option<usize>,
    pub(crate) early_unlock: Option<bool>,
    pub(crate) fingers: Option<bool>,
    pub(crate) read_ahead: Option<bool>,
    pub(crate) lock_times: bool,
    pub(crate) lock_contention: bool,
    pub(crate) tree_log: Option<bool>,
    pub(crate) nodatacow: bool,
    pub(crate) nocow_keeps_leaf: bool,
    pub(crate) direct_waits: bool,
    pub(crate) direct_ends_at_once: Option<bool>,
    pub(crate) seek_cursors: Option<bool>,
    pub(crate) compress: Option<Compress>,
    /// Open for reading; the only way for a set of several devices.
    pub(crate) read_only: bool,
    /// Members may be missing.
    pub(crate) degraded: bool,
    /// Past the page cache of the host.
    pub(crate) direct_io: bool,
}

impl OpenSetting {
    fn tuning(&self) -> Tuning {
        let usual = Tuning::default();
        let mebibytes = |said: Option<usize>, usual| said.map_or(usual, |said| (said as u64) << 20);
        let mut tuning = Tuning::default();
        tuning.cache_bytes = mebibytes(self.cache_mib, usual.cache_bytes);
        tuning.dirty_bytes = mebibytes(self.dirty_mib, usual.dirty_bytes);
        tuning.delayed_bytes = mebibytes(self.delayed_mib, usual.delayed_bytes);
        tuning.early_unlock = self.early_unlock.unwrap_or(usual.early_unlock);
        tuning.fingers = self.fingers.unwrap_or(usual.fingers);
        tuning.read_ahead = self.read_ahead.unwrap_or(usual.read_ahead);
        tuning.seek_cursors = self.seek_cursors.unwrap_or(usual.seek_cursors);
        tuning.nocow_keeps_leaf = self.nocow_keeps_leaf;
        tuning.direct_waits = self.direct_waits;
        tuning.direct_ends_at_once = self.direct_ends_at_once.unwrap_or(usual.direct_ends_at_once);
        tuning.lock_times = self.lock_times;
        tuning.lock_contention = self.lock_contention;
        tuning
    }
}

/// An image that the library has open.
pub(crate) struct Library {
    fs: Filesystem,
}

impl Library {
    pub(crate) fn open(image: &Path, setting: OpenSetting) -> Result<Self> {
        let mut options = Image::options().tuning(setting.tuning());
        if setting.degraded {
            options = options.degraded();
        }
        if setting.direct_io {
            options = options.direct_io();
        }
        if !setting.read_only {
            options = options.write();
        }
        options = options.compress(setting.compress);
        if setting.nodatacow {
            options = options.nodatacow();
        }
        if setting.tree_log == Some(false) {
            options = options.notreelog();
        }
        let fs = options.open(image).with_context(|| format!("opening {}", image.display()))?;
        Ok(Self { fs })
    }

    /// The open filesystem.
    pub(crate) const fn filesystem(&self) -> &Filesystem {
        &self.fs
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
        Ok(self.fs.symlink_metadata(path)?.ino().get())
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

    fn change_mode(&self, path: &str, mode: u32) -> Result<()> {
        Ok(self.fs.set_permissions(path, Permissions::from_mode(mode))?)
    }

    fn touch(&self, path: &str) -> Result<()> {
        let now = SystemEnv.now();
        Ok(self.fs.set_times(path, FileTimes::new().set_accessed(now).set_modified(now))?)
    }

    fn free_bytes(&self) -> Result<u64> {
        Ok(self.fs.volume().usage().available)
    }

    fn unlink(&self, path: &str) -> Result<()> {
        Ok(self.fs.remove_file(path)?)
    }

    fn open(&self, path: &str, how: How) -> Result<Box<dyn Content>> {
        let mut options = OpenOptions::new();
        let options = match how {
            How::New => options.write(true).create_new(true),
            How::Write => options.write(true),
            How::Read => options.read(true),
            How::Load { create, truncate } => {
                options.read(true).write(true).create(create).truncate(truncate)
            }
        };
        Ok(Box::new(options.open(&self.fs, path)?))
    }

    fn copy_in(&self, host: &Path, path: &str) -> Result<()> {
        Ok(self.fs.copy_in(host, path).options(EVERYTHING).run()?)
    }

    fn copy_out(&self, path: &str, host: &Path) -> Result<()> {
        Ok(self.fs.copy_out(path, host).options(EVERYTHING).run()?)
    }

    fn walk(&self, path: &str) -> Result<usize> {
        let mut files = 0;
        for entry in self.fs.walk(path)? {
            files += usize::from(entry?.metadata()?.is_file());
        }
        Ok(files)
    }

    fn remove_tree(&self, path: &str) -> Result<()> {
        Ok(self.fs.remove_dir_all(path)?)
    }

    fn clone_file(&self, from: &str, to: &str) -> Result<()> {
        let source = OpenOptions::new().read(true).open(&self.fs, from)?;
        let target = OpenOptions::new().write(true).create_new(true).open(&self.fs, to)?;
        Ok(target.clone_range(&source, 0, source.metadata()?.len(), 0)?)
    }

    fn copy_within(&self, from: &str, to: &str) -> Result<()> {
        let options = CopyOptions { reflink: Reflink::Auto, ..EVERYTHING };
        Ok(self.fs.copy_between(from, &self.fs, to).options(options).run()?)
    }

    fn make_subvolume(&self, path: &str) -> Result<()> {
        Ok(self.fs.subvolumes().create(path)?)
    }

    fn snapshot(&self, source: &str, path: &str) -> Result<()> {
        Ok(self.fs.subvolumes().snapshot(source, path).run()?)
    }

    fn delete_subvolume(&self, path: &str) -> Result<()> {
        Ok(self.fs.subvolumes().delete(path)?)
    }

    fn begin_dropping(&self) -> Result<()> {
        self.sync()
    }

    fn sync_subvolumes(&self) -> Result<()> {
        Ok(self.fs.subvolumes().sync_deleted(|_| Ok(()))?)
    }

    fn is_dropping(&self) -> Result<bool> {
        Ok(self.fs.subvolumes().list()?.iter().any(|listed| listed.info.is_deleted))
    }

    fn sync(&self) -> Result<()> {
        Ok(self.fs.sync()?)
    }

    fn servers(&self) -> &[u32] {
        &[]
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.fs.statistics())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.fs.close()?)
    }
}

impl Content for File {
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            let count = self.read_at(&mut out[done..], offset + done as u64)?;
            ensure!(count > 0, "the file ends at {}", offset + done as u64);
            done += count;
        }
        Ok(())
    }

    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < out.len() {
            match Self::read_at(self, &mut out[done..], offset + done as u64)? {
                0 => break,
                count => done += count,
            }
        }
        Ok(done)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        Ok(Self::write_all_at(self, data, offset)?)
    }

    fn seek_data(&self, offset: u64) -> Result<Option<u64>> {
        Ok(Self::seek_data(self, offset)?)
    }

    fn seek_hole(&self, offset: u64) -> Result<Option<u64>> {
        Ok(Self::seek_hole(self, offset)?)
    }

    fn is_delayed(&self) -> Result<Option<bool>> {
        Ok(None)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.sync_all()?)
    }
}
