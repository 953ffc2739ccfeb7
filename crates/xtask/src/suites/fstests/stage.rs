//! What fstests works on: two loop devices, and the programs through which it makes, mounts and checks a filesystem of a
//! type that it does not know.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use creamery_testkit::{LoopDevice, Program, Run};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::suites::mount_helpers::{KIND, MountHelpers};

/// Bytes of each of the two images, sparse.
const DEVICE_LEN: u64 = 10 << 30;

/// Whose filesystem is tested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    Creamery,
    /// Linux' own Btrfs, for the figures beside ours.
    Kernel,
}

/// Everything that a run of fstests needs, taken away again when it is dropped.
pub(crate) struct Stage {
    /// The file that HOST_OPTIONS names.
    pub(crate) settings: PathBuf,
    /// The folder of helpers that goes to the front of PATH.
    pub(crate) helpers: PathBuf,
    /// Where fstests leaves what it saw.
    pub(crate) results: PathBuf,
    dirs: [PathBuf; 2],
    /// Set by a signal that would end this program and leave the stage behind.
    interrupted: Arc<AtomicBool>,
    _mount_helpers: Option<MountHelpers>,
    _devices: [LoopDevice; 2],
}

impl Stage {
    /// Builds the stage below `root`, which is emptied first.
    pub(crate) fn new(root: &Path, subject: Subject) -> Result<Self> {
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
        let helpers = root.join("bin");
        let mount_helpers = match subject {
            Subject::Creamery => {
                write_helpers(&helpers)?;
                Some(MountHelpers::link()?)
            }
            Subject::Kernel => None,
        };
        let devices = [device(&root.join("test.img"))?, device(&root.join("scratch.img"))?];
        let [test, scratch] = [devices[0].path(), devices[1].path()];
        let dirs = [root.join("test"), root.join("scratch")];
        let (kind, options) = match subject {
            Subject::Creamery => {
                Run::new(helpers.join(format!("mkfs.{KIND}"))).arg("-f").arg(test).ok()?;
                (KIND, "-o allow_other")
            }
            Subject::Kernel => {
                Run::new("mkfs.btrfs").args(["-q", "-f"]).arg(test).ok()?;
                ("btrfs", "")
            }
        };
        let settings = root.join("settings");
        let text = format!(
            "export FSTYP={kind}\nexport TEST_DEV={}\nexport TEST_DIR={}\nexport SCRATCH_DEV={}\n\
             export SCRATCH_MNT={}\nexport RESULT_BASE={}\nexport MKFS_OPTIONS=-f\n\
             export MOUNT_OPTIONS=\"{options}\"\n\
             export TEST_FS_MOUNT_OPTS=\"{options}\"\n",
            test.display(),
            dirs[0].display(),
            scratch.display(),
            dirs[1].display(),
            root.join("results").display(),
        );
        std::fs::write(&settings, text)?;
        Ok(Self {
            settings,
            helpers,
            results: root.join("results"),
            dirs,
            interrupted,
            _mount_helpers: mount_helpers,
            _devices: devices,
        })
    }

    /// Whether somebody wants the run to end.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Takes away what a test that was stopped left mounted.
    pub(crate) fn unmount(&self) {
        for dir in &self.dirs {
            // Nothing mounted is the usual case.
            let _ = Run::new("umount").args(["-q", "-l"]).arg(dir).output();
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.unmount();
    }
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
