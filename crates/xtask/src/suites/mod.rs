//! Other people's suites: `cargo xtask pjdfstest`, `fsx`, `fsstress` and `fstests` on the mount, `collection` on `check`. The first two are
//! programs that cargo installs, the others are checkouts that the user names; none of their code is here. What each is
//! expected to say stands in `docs/coverage/suite-*.toml`. `databases` is a suite of ours with a program of others: PostgreSQL.

mod collection;
mod databases;
mod fsstress;
mod fstests;
mod fsx;
mod mount_helpers;
mod pjdfstest;

pub(crate) use collection::collection;
pub(crate) use databases::databases;
pub(crate) use fsstress::fsstress;
pub(crate) use fstests::fstests;
pub(crate) use fsx::fsx;
pub(crate) use pjdfstest::pjdfstest;

use std::path::PathBuf;

use anyhow::Result;
use creamery_testkit::{FuseMount, Program, Scratch};

use creamery_workspace::build_program;

/// What the suites' own words of mount options are: users other than the mounter, and what root's mounts may have.
const OPTIONS: &str = "allow_other,suid,dev";

/// A mounted, empty filesystem and what it lies in.
struct Stage {
    scratch: Scratch,
    image: PathBuf,
    mount: FuseMount,
}

fn stage(name: &str) -> Result<Stage> {
    build_program()?;
    let program = Program::find()?;
    let scratch = Scratch::new(name)?;
    let image = scratch.file("disk.img");
    program.run(["mkfs", "-q", "-b", "2G"]).arg(&image).ok()?;
    let mount = FuseMount::mount(&program, &image, &scratch.file("mount"), OPTIONS)?;
    Ok(Stage { scratch, image, mount })
}
