//! A filesystem to test on, and who judges it.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use creamery_base::{ErrorKind, InodeId, Wait};
use creamery_device::{Access, FileDevice};
use creamery_fs::{Filesystem, FsOptions, NewInode};
use creamery_testkit::harness::Bench;
use creamery_testkit::{LoopMount, Run, btrfs_check};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

/// An open filesystem on an image in the case's folder.
pub(crate) struct ImageFixture {
    fs: Option<Arc<Filesystem>>,
    image: PathBuf,
    mount: PathBuf,
    pub(crate) options: FsOptions,
}

impl std::ops::Deref for ImageFixture {
    type Target = Filesystem;

    fn deref(&self) -> &Filesystem {
        self.fs.as_ref().expect("open until it is judged")
    }
}

/// Makes an image with mkfs.btrfs.
pub(crate) fn make_image(image: &Path, mkfs: &[&str]) -> Result<()> {
    std::fs::File::create(image)?.set_len(512 << 20)?;
    Run::new("mkfs.btrfs").arg("-q").args(mkfs.iter().copied()).arg(image).ok()?;
    Ok(())
}

impl ImageFixture {
    pub(crate) fn new(bench: &Bench, mkfs: &[&str]) -> Result<Self> {
        let image = bench.scratch.file("image");
        make_image(&image, mkfs)?;
        Self::open(bench, image)
    }

    pub(crate) fn open(bench: &Bench, image: PathBuf) -> Result<Self> {
        let mount = bench.scratch.dir("mounted")?;
        let mut fixture = Self { fs: None, image, mount, options: FsOptions::default() };
        fixture.open_again()?;
        Ok(fixture)
    }

    fn open_again(&mut self) -> Result<()> {
        let device = FileDevice::open(&self.image, Access::ReadWrite)?;
        let volume = Volume::open(vec![Arc::new(device)], Mode::ReadWrite)?;
        let engine = Engine::open(volume, Options::default())?;
        self.fs = Some(Filesystem::open(engine, self.options.clone())?);
        Ok(())
    }

    pub(crate) fn top(&self) -> InodeId {
        self.root(creamery_base::TreeId::FS).expect("the top level is there")
    }

    /// Commits, closes and opens again.
    pub(crate) fn reopen(&mut self) -> Result<()> {
        self.sync()?;
        self.crash()
    }

    /// Closes, for others.
    pub(crate) fn let_go(&mut self) {
        self.fs = None;
    }

    /// Opens again what the last commit left.
    pub(crate) fn crash(&mut self) -> Result<()> {
        self.fs = None;
        self.open_again()
    }

    /// Has `btrfs check` look at what the last commit left, and goes on with that.
    pub(crate) fn crash_and_check(&mut self) -> Result<()> {
        self.fs = None;
        btrfs_check(&self.image)?;
        self.open_again()
    }

    /// Commits, closes, and has `btrfs check` look.
    pub(crate) fn judge(mut self) -> Result<()> {
        self.close_and_check()
    }

    fn close_and_check(&mut self) -> Result<()> {
        self.sync()?;
        self.fs = None;
        btrfs_check(&self.image)
    }

    /// Commits, has `btrfs check` look and the kernel mount it for `work`, and goes on with what that left.
    pub(crate) fn with_kernel<T>(
        &mut self,
        options: &str,
        work: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        self.close_and_check()?;
        self.kernel_goes_on(options, work)
    }

    /// Has the kernel mount what the last commit left, for `work`, and goes on with what that left.
    pub(crate) fn kernel_goes_on<T>(
        &mut self,
        options: &str,
        work: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        self.fs = None;
        let mount = LoopMount::mount(&self.image, &self.mount, options)?;
        let result = work(mount.dir());
        mount.unmount().context("unmounting")?;
        let result = result?;
        self.open_again()?;
        Ok(result)
    }

    /// As [`ImageFixture::with_kernel`], of a filesystem of which the kernel logs something. Returns that, too.
    pub(crate) fn with_telling_kernel<T>(
        &mut self,
        work: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<(T, Vec<String>)> {
        self.close_and_check()?;
        let mut mount = LoopMount::mount(&self.image, &self.mount, "")?;
        let result = work(mount.dir());
        let log = mount.unmount_and_tell().context("unmounting")?;
        let result = result?;
        self.open_again()?;
        Ok((result, log))
    }

    /// Has the kernel mount a damaged filesystem for `work`, adds what it logged to `log`, and goes on.
    pub(crate) fn kernel_tells(
        &mut self,
        log: &mut Vec<String>,
        work: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        self.fs = None;
        let mut mount = LoopMount::mount(&self.image, &self.mount, "ro")?;
        let result = work(mount.dir());
        log.extend(mount.unmount_and_tell()?);
        result?;
        self.open_again()
    }

    pub(crate) fn file(&self, dir: InodeId, name: &str) -> Result<InodeId> {
        Ok(self.create(dir, name.as_bytes(), &NewInode::file(0o644))?.id)
    }

    pub(crate) fn dir(&self, dir: InodeId, name: &str) -> Result<InodeId> {
        Ok(self.create(dir, name.as_bytes(), &NewInode::directory(0o755))?.id)
    }

    pub(crate) fn find(&self, dir: InodeId, name: &str) -> creamery_base::Result<InodeId> {
        self.lookup(dir, name.as_bytes(), Wait::Yes)
    }

    /// The names in a directory but `.` and `..`, in order.
    pub(crate) fn names(&self, dir: InodeId) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        self.read_dir(dir, 2, Wait::Yes, &mut |entry| {
            names.push(entry.name.to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(names)
    }
}

/// The kind of the error that there should be.
pub(crate) fn kind<T>(result: creamery_base::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}
