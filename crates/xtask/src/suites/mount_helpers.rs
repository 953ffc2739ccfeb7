//! The links through which mount(8) and umount(8) find us, as a package would install them. Suites that call these
//! programs, or that remount, need them.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::Program;

/// The type, as mount(8), mkfs(8) and fsck(8) look for helpers of it.
pub(super) const KIND: &str = "fuse.creamery";
/// The one folder in which mount(8) and umount(8) look.
const FOLDER: &str = "/sbin";

/// Links that are there while this is.
pub(super) struct MountHelpers {
    made: Vec<PathBuf>,
}

impl MountHelpers {
    /// Makes the links. One that leads to the same program already is left alone, now and at the end.
    pub(super) fn link() -> Result<Self> {
        let program = Program::find()?.path().canonicalize()?;
        let mut helpers = Self { made: Vec::new() };
        for action in ["mount", "umount"] {
            let link = Path::new(FOLDER).join(format!("{action}.{KIND}"));
            if std::fs::read_link(&link).is_ok_and(|target| target == program) {
                continue;
            }
            ensure!(!link.exists(), "{} exists: move it away for this run", link.display());
            symlink(&program, &link).with_context(|| format!("linking {}", link.display()))?;
            helpers.made.push(link);
        }
        Ok(helpers)
    }
}

impl Drop for MountHelpers {
    fn drop(&mut self) {
        for link in &self.made {
            // A link left behind leads to the program and does no harm.
            let _ = std::fs::remove_file(link);
        }
    }
}
