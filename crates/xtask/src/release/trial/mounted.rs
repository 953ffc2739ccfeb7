//! A mount by the packaged program: threads of its own, and what it is linked with, under load.

use std::path::Path;

use anyhow::Result;
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, Program, Run, Scratch, btrfs_check};

use super::super::parts::Parts;
use creamery_workspace::root;

pub(super) fn tried(parts: &Parts, _: &Path) -> Result<()> {
    let program = Program::at(&parts.program);
    let scratch = Scratch::new("packaged-mount")?;
    let image = scratch.file("disk.img");
    program.run(["mkfs", "-q", "-b", "512M"]).arg(&image).ok()?;
    let mount = FuseMount::mount(&program, &image, &scratch.file("mount"), "compress=zstd")?;
    let source = root().join("crates");
    let copied = mount.dir().join("crates");
    Run::new("cp").args(["-a", "--"]).arg(&source).arg(&copied).ok()?;
    let before = Walk::take(&source)?;
    expect_same("the mount", &before, &Walk::take(&copied)?, &Compare::default())?;
    mount.unmount()?;
    btrfs_check(&image)
}
