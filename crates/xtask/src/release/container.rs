//! What a container is built from: `packaging/Containerfile` and the files that it copies, as one archive, which
//! podman and docker take from standard input.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use creamery_testkit::Scratch;

use super::files::{archive, set_modes};
use super::parts::{Parts, VERSION};
use super::tree::lay_documents;
use creamery_workspace::root;

pub(super) const FILE: &str = "Containerfile";

/// Where it lies in a release.
pub(super) fn path(out: &Path) -> PathBuf {
    out.join(format!("creamery-{VERSION}-container.tar.gz"))
}

/// Makes it.
pub(super) fn make(parts: &Parts, out: &Path) -> Result<()> {
    let scratch = Scratch::new("container")?;
    let context = scratch.dir("context")?;
    std::fs::copy(root().join("packaging").join(FILE), context.join(FILE))
        .context("copying the Containerfile")?;
    std::fs::copy(&parts.program, context.join("creamery")).context("copying the program")?;
    lay_documents(parts, &context.join("doc"), &["LICENSE-APACHE", "LICENSE-MIT", "NOTICE"])?;
    set_modes(&context)?;
    archive(parts, &context, &[FILE, "creamery", "doc"], &path(out))
}
