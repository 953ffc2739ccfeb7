//! The storage below the filesystems: a file that was written before, in memory or on a disk, or a loop device over one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use creamery_testkit::{LoopDevice, Run, Scratch};

use creamery_workspace::target;

const LIMIT: Duration = Duration::from_secs(600);

/// Kinds of backing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A file in memory, through the page cache, where it lives.
    Memory,
    /// A file in the build folder, past the page cache.
    Disk,
    /// A loop device over a file in memory, past the page cache of the device.
    Device,
}

pub(super) const KINDS: [Kind; 3] = [Kind::Memory, Kind::Disk, Kind::Device];

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "tmpfs",
            Self::Disk => "disk, O_DIRECT",
            Self::Device => "loop device, O_DIRECT",
        }
    }
}

/// A file with room for a filesystem, and the device over it.
pub(super) struct Backing {
    kind: Kind,
    image: PathBuf,
    /// Removed on drop.
    _scratch: Option<Scratch>,
    device: Option<LoopDevice>,
}

impl Backing {
    /// Makes a backing with three times `bytes`: data that is not written in place exists twice.
    pub(super) fn new(kind: Kind, bytes: u64) -> Result<Self> {
        let (scratch, folder) = match kind {
            Kind::Disk => (None, target().join("bench")),
            Kind::Memory | Kind::Device => {
                let scratch = Scratch::new("bench-direct")?;
                let folder = scratch.path().to_owned();
                (Some(scratch), folder)
            }
        };
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let image = folder.join("direct.img");
        let mebibytes = (3 * bytes + (512 << 20)) >> 20;
        let dd = Run::new("dd").args(["if=/dev/zero", "bs=1M", "conv=fsync", "status=none"]);
        let (to, count) = (format!("of={}", image.display()), format!("count={mebibytes}"));
        let mut backing = Self { kind, image, _scratch: scratch, device: None };
        dd.arg(to).arg(count).limit(LIMIT).ok()?;
        if kind == Kind::Device {
            backing.device = Some(LoopDevice::attach(&backing.image, false)?);
        }
        Ok(backing)
    }

    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    /// The path for the library, and for work without a filesystem.
    pub(super) fn path(&self) -> &Path {
        self.device.as_ref().map_or(&self.image, LoopDevice::path)
    }

    /// The file itself.
    pub(super) fn image(&self) -> &Path {
        &self.image
    }

    /// Whether the library opens it past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.kind != Kind::Memory
    }

    /// Calls `run` with a device, which the kernel's filesystem needs.
    pub(super) fn on_device<T>(&self, run: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        if let Some(device) = &self.device {
            return run(device.path());
        }
        let device = LoopDevice::attach(&self.image, false)?;
        if self.kind == Kind::Disk {
            Run::new("losetup").arg("--direct-io=on").arg(device.path()).ok()?;
        }
        let done = run(device.path())?;
        device.detach()?;
        Ok(done)
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // A scratch folder is removed with its file; this file is not in one.
        let _ = std::fs::remove_file(&self.image);
    }
}
