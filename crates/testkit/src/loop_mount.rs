//! An image in the kernel's hands: a loop device, and a btrfs mount on it.

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
    /// Whether the kernel was told of partitions on it.
    has_partitions: bool,
}

impl LoopDevice {
    /// Attaches the next free device to `image`.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn attach(image: &Path, read_only: bool) -> Result<Self> {
        let mut run = Run::new("losetup").args(["--find", "--show"]);
        if read_only {
            run = run.arg("--read-only");
        }
        let said = run.arg(image).ok()?.stdout_text();
        Ok(Self { path: PathBuf::from(said.trim()), attached: true, has_partitions: false })
    }

    /// The same for a disk whose partitions are to be devices, too: partx finds them, for not every kernel reads tables.
    ///
    /// # Errors
    /// When the host refuses.
    pub fn attach_disk(image: &Path) -> Result<Self> {
        let mut disk = Self::attach(image, false)?;
        disk.has_partitions = true;
        // Those of an earlier disk may still be there, where somebody had them open when it was detached.
        let _ = Run::new("partx").arg("--delete").arg(&disk.path).output();
        Run::new("partx").arg("--add").arg(&disk.path).ok()?;
        Ok(disk)
    }

    /// The device of a partition, when the kernel has made it.
    ///
    /// # Errors
    /// When the kernel never makes it.
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

    /// Waits until nobody has the device for himself: a filesystem that was unmounted here may be mounted in another namespace for a
    /// moment more.
    ///
    /// # Errors
    /// When somebody keeps it.
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

    /// Detaches, and returns once the kernel has let go of the image.
    ///
    /// # Errors
    /// When somebody keeps it open.
    pub fn detach(mut self) -> Result<()> {
        self.release()
    }

    /// What is attached to the device of that number; nothing when it is free.
    fn backing_file(&self) -> Option<String> {
        let path = Path::new("/sys/block").join(self.name()).join("loop/backing_file");
        std::fs::read_to_string(path).ok()
    }

    /// It, and the devices of its partitions.
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
            // The device is detached all the same, and then they are gone.
            let _ = Run::new("partx").arg("--delete").arg(&self.path).output();
        }
        let ours = self.backing_file();
        Run::new("losetup").arg("--detach").arg(&self.path).ok()?;
        // Another test may take the device at once, for its own image.
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
    /// Mounts `image` on `dir` (made when it does not exist) with `options`, a list with commas or nothing.
    ///
    /// # Errors
    /// When the kernel refuses: then with what it logged.
    pub fn mount(image: &Path, dir: &Path, options: &str) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let read_only = options.split(',').any(|option| option == "ro");
        let device = LoopDevice::attach(image, read_only)?;
        // From here on the device is ours: what somebody else had on it before is none of our business.
        let mut log = KernelLog::start()?;
        let options = if options.is_empty() { "rw" } else { options };
        let run = Run::new("mount").args(["-t", "btrfs", "-o", options]).arg(device.path()).arg(dir);
        if let Err(error) = run.ok() {
            let said = log.complaints(&device.name())?.join("\n  ");
            return Err(error.context(format!("the kernel does not mount the image; it logged:\n  {said}")));
        }
        Ok(Self { device: Some(device), dir: dir.to_owned(), log, mounted: true })
    }

    /// Unmounts, and mounts `image`, which is what was mounted, for reading only. The kernel writes trees after a commit, too, up to
    /// the unmount: only a mount that reads has figures that stay.
    ///
    /// # Errors
    /// When something keeps the mount busy, or the kernel complained.
    pub fn again_read_only(self, image: &Path) -> Result<Self> {
        let dir = self.dir.clone();
        self.unmount()?;
        Self::mount(image, &dir, "ro")
    }

    /// Where it is mounted.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts and detaches, and insists that the kernel logged no complaint since the mount.
    ///
    /// # Errors
    /// When something keeps the mount busy, or the kernel complained.
    pub fn unmount(mut self) -> Result<()> {
        let complaints = self.unmount_and_tell()?;
        if !complaints.is_empty() {
            bail!("the kernel logged:\n  {}", complaints.join("\n  "));
        }
        Ok(())
    }

    /// Unmounts and detaches, and returns what the kernel logged since the mount.
    ///
    /// # Errors
    /// When something keeps the mount busy.
    pub fn unmount_and_tell(&mut self) -> Result<Vec<String>> {
        if std::mem::take(&mut self.mounted) {
            // No program, which would give the kernel's own threads time. A test on another thread that is just starting one has copies of
            // all files that this process has open.
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
