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

/// Links that are there while this is; what they take the place of comes back.
pub(super) struct MountHelpers {
    links: Vec<(PathBuf, Option<PathBuf>)>,
}

impl MountHelpers {
    /// Makes the links. A link of somebody else, such as an installed Creamery, is put aside; a file is not touched.
    pub(super) fn link() -> Result<Self> {
        let program = Program::find()?.path().canonicalize()?;
        let mut helpers = Self { links: Vec::new() };
        for action in ["mount", "umount"] {
            let link = Path::new(FOLDER).join(format!("{action}.{KIND}"));
            let before = std::fs::read_link(&link).ok();
            ensure!(
                before.is_some() || !link.exists(),
                "{} is a file: move it away for this run",
                link.display()
            );
            if before.is_some() {
                std::fs::remove_file(&link)?;
            }
            symlink(&program, &link).with_context(|| format!("linking {}", link.display()))?;
            helpers.links.push((link, before));
        }
        Ok(helpers)
    }
}

impl Drop for MountHelpers {
    fn drop(&mut self) {
        for (link, before) in &self.links {
            // A link left behind leads to the program and does no harm.
            let _ = std::fs::remove_file(link);
            if let Some(before) = before {
                let _ = symlink(before, link);
            }
        }
    }
}
