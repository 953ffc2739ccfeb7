//! What fstests works on: two loop devices, and the programs through which it makes, mounts and checks a filesystem of a
//! type that it does not know.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use creamery_testkit::{LoopDevice, Program, Run, unmount_below};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::granted::{Granted, link_granted};
use crate::suites::mount_helpers::{KIND, MountHelpers};

/// Bytes of each of the two images, sparse.
const DEVICE_LEN: u64 = 10 << 30;
/// How long a server has to write what it holds before it is cut off.
const UNMOUNT_MAX: Duration = Duration::from_secs(60);

/// Whose filesystem is tested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    Creamery,
    /// Linux' own Btrfs, for the figures beside ours.
    Kernel,
}

/// Everything that a run of fstests needs, taken away again when it is dropped.
pub(crate) struct FstestsStage {
    /// The fstests to be run.
    pub(crate) checkout: PathBuf,
    /// The file that HOST_OPTIONS names.
    pub(crate) settings: PathBuf,
    /// The folder of helpers that goes to the front of PATH.
    pub(crate) helpers: PathBuf,
    /// Where fstests leaves what it saw.
    pub(crate) results: PathBuf,
    /// The folder of all that.
    root: PathBuf,
    /// Set by a signal that would end this program and leave the stage behind.
    interrupted: Arc<AtomicBool>,
    _mount_helpers: Option<MountHelpers>,
    devices: [LoopDevice; 2],
}

impl FstestsStage {
    /// Builds the stage below `root`, which is emptied first.
    pub(crate) fn new(root: &Path, checkout: &Path, subject: Subject, granted: &Granted) -> Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
        }
        if root.exists() {
            std::fs::remove_dir_all(root).with_context(|| format!("emptying {}", root.display()))?;
        }
        for name in ["bin", "test", "scratch", "results"] {
            std::fs::create_dir_all(root.join(name))?;
        }
        let root = root.canonicalize()?;
        let helpers = root.join("bin");
        let (checkout, mount_helpers) = match subject {
            Subject::Creamery => {
                write_helpers(&helpers)?;
                link_granted(checkout, &root.join("fstests"), granted)?;
                (root.join("fstests"), Some(MountHelpers::link()?))
            }
            Subject::Kernel => (checkout.to_owned(), None),
        };
        let devices = [device(&root.join("test.img"))?, device(&root.join("scratch.img"))?];
        let make = match subject {
            Subject::Creamery => Run::new(helpers.join(format!("mkfs.{KIND}"))),
            Subject::Kernel => Run::new("mkfs.btrfs").arg("-q"),
        };
        make.arg("-f").arg(devices[0].path()).ok()?;
        let settings = root.join("settings");
        std::fs::write(&settings, settings_text(&root, subject, &devices))?;
        Ok(Self {
            checkout,
            settings,
            helpers,
            results: root.join("results"),
            root,
            interrupted,
            _mount_helpers: mount_helpers,
            devices,
        })
    }

    /// Whether somebody wants the run to end.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Takes away what a test that was stopped left mounted and attached.
    pub(crate) fn clear(&self) {
        // First what lies inside: the path of an image on a mount that is gone says no more where it was. A device that is
        // in use goes with its last user.
        for device in loop_devices_below(&self.root) {
            if self.devices.iter().all(|ours| ours.path() != device) {
                let _ = Run::new("losetup").arg("--detach").arg(device).output();
            }
        }
        for dir in ["test", "scratch"] {
            // With a server that answers, and nobody inside, this returns when the image is closed.
            let _ = Run::new("umount").arg("-q").arg(self.root.join(dir)).limit(UNMOUNT_MAX).output();
        }
        unmount_below(&self.root);
    }
}

impl Drop for FstestsStage {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The file that HOST_OPTIONS names, a piece of shell.
fn settings_text(root: &Path, subject: Subject, devices: &[LoopDevice; 2]) -> String {
    let (kind, options) = match subject {
        Subject::Creamery => (KIND, "-o allow_other"),
        Subject::Kernel => ("btrfs", ""),
    };
    let mut text = format!(
        "export FSTYP={kind}\nexport TEST_DEV={test}\nexport SCRATCH_DEV={scratch}\n\
         export TEST_DIR={root}/test\nexport SCRATCH_MNT={root}/scratch\nexport RESULT_BASE={root}/results\n\
         export MKFS_OPTIONS=-f\nexport MOUNT_OPTIONS=\"{options}\"\nexport TEST_FS_MOUNT_OPTS=\"{options}\"\n",
        test = devices[0].path().display(),
        scratch = devices[1].path().display(),
        root = root.display(),
    );
    if subject == Subject::Creamery {
        // What makes a filesystem where the type is taken for Btrfs.
        text += &format!("export MKFS_BTRFS_PROG={}/bin/mkfs.{KIND}\n", root.display());
    }
    text
}

/// Loop devices whose images lie below `root`.
fn loop_devices_below(root: &Path) -> Vec<PathBuf> {
    let Ok(devices) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    let lies_below = |device: &Path| {
        let image = std::fs::read_to_string(device.join("loop/backing_file"));
        image.is_ok_and(|image| Path::new(image.trim_end()).starts_with(root))
    };
    let devices = devices.flatten().filter(|device| lies_below(&device.path()));
    devices.map(|device| Path::new("/dev").join(device.file_name())).collect()
}

fn device(image: &Path) -> Result<LoopDevice> {
    std::fs::File::create(image)?.set_len(DEVICE_LEN)?;
    LoopDevice::attach(image, false)
}

/// mkfs and fsck helpers in `dir`.
fn write_helpers(dir: &Path) -> Result<()> {
    let program = Program::find()?.path().canonicalize()?;
    let shown = program.display();
    script(&dir.join(format!("mkfs.{KIND}")), &format!("exec {shown} mkfs -q \"$@\""))?;
    // fsck(8) believes the device more than the type it is given, and would call the helper of Btrfs, which does nothing: so
    // this stands in its place. Both judges look, none of them writes.
    let check = format!(
        "device=${{@: -1}}\n{shown} check --check-data-csum \"$device\" || exit 4\n\
         btrfs check --force --check-data-csum \"$device\" || exit 4"
    );
    script(&dir.join("fsck"), &check)?;
    Ok(())
}

fn script(path: &Path, body: &str) -> Result<()> {
    std::fs::write(path, format!("#!/bin/bash\n{body}\n"))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}
