//! `cargo xtask release [--out DIR] [--try]`: makes the release, and tries it on a system with nothing else.
//!
//! A release is a folder:
//!
//! - the program, one static file (`binary`);
//! - a Debian package (`debian`) and a tarball (`tarball`), which have beside it the same files (`tree`): links by which other
//!   programs find it, manual pages, completions, licences;
//! - the files to build a container (`container`), after `packaging/Containerfile`;
//! - the checksums of these.
//!
//! One commit gives equal bytes with equal tools: times are that of the commit or `SOURCE_DATE_EPOCH`, owners are no users of this machine,
//! and no path of it is in the program. With `--try` the packages are made twice and compared, and each is installed and used in a root
//! folder that has nothing else (`trial`).

mod binary;
mod container;
mod debian;
mod files;
mod make;
mod parts;
mod publish;
mod tarball;
mod third_party;
mod tree;
mod trial;

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

pub(crate) use binary::{build as program, install_target};
pub(crate) use publish::try_publishing;

use creamery_workspace::target;
use make::make;
use parts::{Parts, VERSION};

/// `cargo xtask release`.
pub(crate) fn release(words: &[&str]) -> Result<()> {
    let (mut out, mut tried) = (usual_place(), false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--out" => out = words.next().context("--out needs a folder")?.into(),
            "--try" => tried = true,
            other => bail!("unknown word {other}; there are --out DIR and --try"),
        }
    }
    let parts = Parts::gather()?;
    make(&parts, &out)?;
    if tried { trial::try_out(&parts, &out).map(drop) } else { Ok(()) }
}

/// Makes the packages and tries all of them.
pub(crate) fn release_and_try() -> Result<()> {
    let parts = Parts::gather()?;
    make(&parts, &usual_place())?;
    let skipped = trial::try_out(&parts, &usual_place())?;
    ensure!(skipped == 0, "{skipped} trials were skipped, and here none may be");
    Ok(())
}

fn usual_place() -> PathBuf {
    target().join(format!("release-{VERSION}"))
}
