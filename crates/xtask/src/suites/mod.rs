//! Other people's suites: `cargo xtask pjdfstest`, `fsx` and `fstests` on the mount, `collection` on `check`. The first two are
//! programs that cargo installs, the others are checkouts that the user names; none of their code is here. What each is
//! expected to say stands in `docs/coverage/suite-*.toml`.

mod collection;
mod expected;
mod fstests;
mod fsx;
mod mount_helpers;
mod pjdfstest;

pub(crate) use collection::collection;
pub(crate) use fstests::fstests;
pub(crate) use fsx::fsx;
pub(crate) use pjdfstest::pjdfstest;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use creamery_testkit::{FuseMount, Program, Run, Scratch};

use crate::workspace::{self, build_program};

/// What the suites' own words of mount options are: users other than the mounter, and what root's mounts may have.
const OPTIONS: &str = "allow_other,suid,dev";

/// Building a suite takes a minute; a machine that does other things besides gets more.
const INSTALL_MAX: Duration = Duration::from_secs(1200);

/// Installs a suite with cargo into the target folder, once.
fn install((name, version): (&str, &str)) -> Result<PathBuf> {
    let root = workspace::target().join("suites");
    let program = root.join("bin").join(name);
    if !program.is_file() {
        println!("installing {name} {version}");
        let args = ["install", "--quiet", "--locked", name, "--version", version, "--root"];
        let install = Run::new("cargo").args(args).arg(&root).limit(INSTALL_MAX);
        install.ok().with_context(|| format!("installing {name}"))?;
    }
    Ok(program)
}

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
