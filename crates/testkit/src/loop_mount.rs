//! An image in the kernel: a loop device, and a btrfs mount on it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::{KernelLog, Run, until};

/// A loop device over an image; detached when dropped.
///
/// ```no_run
/// use creamery_testkit::LoopDevice;
/// let device = LoopDevice::attach("disk.img".as_ref(), true).unwrap();
/// println!("{}", device.path().display());
/// ```
pub struct LoopDevice {
    path: PathBuf,
    attached: bool,
    /// Whether the kernel knows partitions on it.
    has_partitions: bool,
}

impl LoopDevice {
    /// Attaches the next free device to `image`.
    ///
    /// # Errors
    /// The host refuses.
    pub fn attach(image: &Path, read_only: bool) -> Result<Self> {
        let mut run = Run::new("losetup").args(["--find", "--show"]);
        if read_only {
            run = run.arg("--read-only");
        }
        let said = run.arg(image).ok()?.stdout_text();
        Ok(Self { path: PathBuf::from(said.trim()), attached: true, has_partitions: false })
    }

    /// Attaches a disk whose partitions become devices, too. partx finds them, as not every kernel reads partition tables.
    ///
    /// # Errors
    /// The host refuses.
    pub fn attach_disk(image: &Path) -> Result<Self> {
        let mut disk = Self::attach(image, false)?;
        disk.has_partitions = true;
        // Partitions of an earlier disk may still exist, if they were open when it was detached.
        let _ = Run::new("partx").arg("--delete").arg(&disk.path).output();
        Run::new("partx").arg("--add").arg(&disk.path).ok()?;
        Ok(disk)
    }

    /// The device of a partition, once the kernel has made it.
    ///
    /// # Errors
    /// The kernel never makes it.
    pub fn partition(&self, number: u32) -> Result<PathBuf> {
        let path = PathBuf::from(format!("{}p{number}", self.path.display()));
        until(&format!("the kernel to make {}", path.display()), || Ok(path.exists()))?;
        Ok(path)
    }

    /// `/dev/loopN`.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `loopN`.
    #[must_use]
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Waits until the device has no exclusive user: a filesystem that was unmounted here may stay mounted in another namespace for a
    /// moment.
    ///
    /// # Errors
    /// A user keeps it.
    pub fn until_free(&self) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        until(&format!("others to let go of {}", self.path.display()), || {
            match rustix::fs::open(&self.path, flags, Mode::empty()) {
                Ok(_) => Ok(true),
                Err(Errno::BUSY) => Ok(false),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// Detaches the device, and returns once the kernel has released the image.
    ///
    /// # Errors
    /// A process keeps it open.
    pub fn detach(mut self) -> Result<()> {
        self.release()
    }

    /// The file attached to the device with this number; `None` if the device is free.
    fn backing_file(&self) -> Option<String> {
        let path = Path::new("/sys/block").join(self.name()).join("loop/backing_file");
        std::fs::read_to_string(path).ok()
    }

    /// The device, and the devices of its partitions.
    fn with_partitions(&self) -> Vec<PathBuf> {
        let name = self.name();
        let entries = std::fs::read_dir(Path::new("/sys/block").join(&name)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let partitions =
            names.filter(|entry| entry.starts_with(&name)).map(|entry| Path::new("/dev").join(entry));
        std::iter::once(self.path.clone()).chain(partitions).collect()
    }

    fn release(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.attached) {
            return Ok(());
        }
        // The kernel remembers filesystems by device; a later image with the same id must not meet this one.
        for path in self.with_partitions() {
            let _ = Run::new("btrfs").args(["device", "scan", "--forget"]).arg(&path).output();
        }
        if self.has_partitions {
            // The device is detached all the same, and its partitions are gone then.
            let _ = Run::new("partx").arg("--delete").arg(&self.path).output();
        }
        let ours = self.backing_file();
        Run::new("losetup").arg("--detach").arg(&self.path).ok()?;
        // Another test may attach its own image to the device at once.
        let is_gone = || Ok(ours.is_none() || self.backing_file() != ours);
        until(&format!("the kernel to let go of {}", self.path.display()), is_gone)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = self.release();
    }
}

/// An image mounted by the kernel; unmounted and detached when dropped.
///
/// ```no_run
/// use creamery_testkit::LoopMount;
/// let mount = LoopMount::mount("disk.img".as_ref(), "/mnt".as_ref(), "ro").unwrap();
/// println!("{}", mount.dir().display());
/// mount.unmount().unwrap();
/// ```
pub struct LoopMount {
    device: Option<LoopDevice>,
    dir: PathBuf,
    log: KernelLog,
    mounted: bool,
}

impl LoopMount {
    /// Mounts `image` on `dir` (which is created if it does not exist) with `options`, a list separated by commas, possibly empty.
    ///
    /// # Errors
    /// The kernel refuses; the error has its log.
    pub fn mount(image: &Path, dir: &Path, options: &str) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let read_only = options.split(',').any(|option| option == "ro");
        let device = LoopDevice::attach(image, read_only)?;
        // From here on the device is ours: earlier messages about it belong to others.
        let mut log = KernelLog::start()?;
        let options = if options.is_empty() { "rw" } else { options };
        let run = Run::new("mount").args(["-t", "btrfs", "-o", options]).arg(device.path()).arg(dir);
        if let Err(error) = run.ok() {
            let said = log.complaints(&device.name())?.join("\n  ");
            return Err(error.context(format!("the kernel does not mount the image; it logged:\n  {said}")));
        }
        Ok(Self { device: Some(device), dir: dir.to_owned(), log, mounted: true })
    }

    /// Unmounts, and mounts `image`, the mounted image, for reading only. The kernel writes trees after a commit, too, up to the unmount:
    /// only a read-only mount has figures that stay.
    ///
    /// # Errors
    /// The mount stays busy, or the kernel complained.
    pub fn again_read_only(self, image: &Path) -> Result<Self> {
        let dir = self.dir.clone();
        self.unmount()?;
        Self::mount(image, &dir, "ro")
    }

    /// The mount point.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts and detaches, and checks that the kernel logged no complaint since the mount.
    ///
    /// # Errors
    /// The mount stays busy, or the kernel complained.
    pub fn unmount(mut self) -> Result<()> {
        let complaints = self.unmount_and_tell()?;
        if !complaints.is_empty() {
            bail!("the kernel logged:\n  {}", complaints.join("\n  "));
        }
        Ok(())
    }

    /// Unmounts and detaches, and returns the kernel's log since the mount.
    ///
    /// # Errors
    /// The mount stays busy.
    pub fn unmount_and_tell(&mut self) -> Result<Vec<String>> {
        if std::mem::take(&mut self.mounted) {
            // A system call, as starting umount(8) would give the kernel's own threads time. It is repeated while the mount is busy: a
            // program that another thread is just starting has copies of all files that this process has open.
            until(&format!("nobody to use {}", self.dir.display()), || {
                match unmount(&self.dir, UnmountFlags::empty()) {
                    Err(Errno::BUSY) => Ok(false),
                    done => done.map(|()| true).with_context(|| format!("unmounting {}", self.dir.display())),
                }
            })?;
        }
        let Some(mut device) = self.device.take() else { return Ok(Vec::new()) };
        let complaints = self.log.complaints(&device.name())?;
        device.release()?;
        Ok(complaints)
    }
}

impl Drop for LoopMount {
    fn drop(&mut self) {
        if self.mounted && Run::new("umount").arg(&self.dir).ok().is_err() {
            let _ = Run::new("umount").arg("-l").arg(&self.dir).output();
        }
    }
}
