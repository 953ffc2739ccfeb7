//! Programs of others that cargo installs: kept in cargo's own folder, so that the next clone finds them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use creamery_workspace::{cargo, run};

/// The program `name` of the crate with that name, in the version that is pinned: a newer one may find more, and somebody is to look
/// when it does. Built without optimising it: each runs for seconds, and is there minutes earlier.
pub(crate) fn installed((name, version): (&str, &str)) -> Result<PathBuf> {
    let place = home()?.join("creamery-tools").join(format!("{name}-{version}"));
    let program = place.join("bin").join(name);
    if Command::new(&program).arg("--version").output().is_ok() {
        return Ok(program);
    }
    println!("xtask: installing {name} {version}");
    let mut install = cargo(&["install", name, "--version", version, "--locked", "--quiet", "--root"]);
    install.arg(&place).arg("--target-dir").arg(place.join("build"));
    let fast = [("OPT_LEVEL", "0"), ("LTO", "off"), ("CODEGEN_UNITS", "16"), ("DEBUG", "false")];
    install.envs(fast.map(|(name, value)| (format!("CARGO_PROFILE_RELEASE_{name}"), value)));
    run(&mut install).with_context(|| format!("installing {name}"))?;
    std::fs::remove_dir_all(place.join("build")).context("removing what it was built from")?;
    Ok(program)
}

fn home() -> Result<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    named.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).context("no home folder")
}
