//! `cargo xtask bare-root`: the README's two commands and `.ci/run` where nothing is installed.
//!
//! A machine on which this project is worked on has all its judges, so it cannot show that the commands install what they
//! need. Here they run in a bare root folder of the distribution, made by debootstrap, with a clone of the last commit. What
//! "a Rust toolchain" means is all that is added: the toolchain itself, the linker that it calls, and the certificates that
//! the host trusts. Devices, kernel and network are the host's. Mounts are made in a namespace of its own and end with it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::{Judge, Judges};

use crate::install::{distribution, install_packages};
use crate::release::install_target;
use creamery_workspace::{root, run, target};

/// What a toolchain needs beside itself.
const BESIDE_TOOLCHAIN: &str = "gcc,libc6-dev";
/// The steps by name, as a reader of the README types them.
const STEPS: [(&str, &str); 3] =
    [("demo", "cargo xtask demo"), ("test", "cargo xtask test"), ("ci", "bash .ci/run")];

/// `cargo xtask bare-root [demo|test|ci..]`; all three when none is named.
pub(crate) fn bare_root(words: &[&str]) -> Result<()> {
    let wanted = chosen(words)?;
    ensure!(Judges::here().missing(Judge::Root).is_none(), "run as root: it makes a root folder and mounts");
    let place = target().join("bare-root");
    // The toolchain is the host's, and nothing inside could add to it.
    install_target()?;
    make_root(&place)?;
    clone_into(&place)?;
    for (name, line) in wanted {
        println!("\n=== {name} in a bare root: {line}");
        run(&mut inside(&place, line)?).with_context(|| format!("{name} in {}", place.display()))?;
    }
    std::fs::remove_dir_all(&place).with_context(|| format!("removing {}", place.display()))
}

fn chosen(words: &[&str]) -> Result<Vec<(&'static str, &'static str)>> {
    if words.is_empty() {
        return Ok(STEPS.to_vec());
    }
    let known = |word: &&str| STEPS.into_iter().find(|(name, _)| name == word);
    words.iter().map(|word| known(word).with_context(|| format!("unknown step {word}"))).collect()
}

/// The distribution's smallest root folder, made anew.
fn make_root(place: &Path) -> Result<()> {
    if place.exists() {
        ensure!(!mounted_below(place)?, "something is mounted below {}", place.display());
        std::fs::remove_dir_all(place).with_context(|| format!("removing {}", place.display()))?;
    }
    if Judges::here().missing(Judge::Tool("debootstrap")).is_some() {
        install_packages(&["debootstrap"])?;
    }
    let Some((codename, mirror)) = distribution()? else {
        bail!("no package source found to make a root folder from");
    };
    let mut command = Command::new("debootstrap");
    command.args(["--variant=minbase", "--include", BESIDE_TOOLCHAIN, &codename]).arg(place).arg(mirror);
    run(&mut command)?;
    // Names are resolved as on the host.
    std::fs::copy("/etc/resolv.conf", place.join("etc/resolv.conf")).context("copying resolv.conf")?;
    // What init makes of a root folder when it starts; fusermount3 looks there.
    let mounts = place.join("etc/mtab");
    if mounts.symlink_metadata().is_err() {
        std::os::unix::fs::symlink("../proc/self/mounts", &mounts).context("linking /etc/mtab")?;
    }
    Ok(())
}

fn mounted_below(place: &Path) -> Result<bool> {
    let place = place.canonicalize()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    Ok(points.map(Path::new).any(|point| point.starts_with(&place)))
}

/// The last commit, as a newcomer gets it.
fn clone_into(place: &Path) -> Result<()> {
    let mut command = Command::new("git");
    run(command.args(["clone", "--quiet", "--no-hardlinks"]).arg(root()).arg(place.join("creamery")))
}

/// `line` with `place` as the root folder, an empty environment, and the host's devices, kernel and toolchain.
///
/// It enters by pivot_root: Linux refuses a new user namespace to a process whose root folder is not its namespace's, as
/// after chroot, and tests make such namespaces.
fn inside(place: &Path, line: &str) -> Result<Command> {
    let script = "set -e; place=$1; mount --bind $place $place; \
         for dir in proc sys dev; do mount --rbind /$dir $place/$dir; done; \
         for dir in opt/rust etc/ssl/certs; do mkdir -p $place/$dir; done; \
         mount --bind $2 $place/opt/rust; mount --bind /etc/ssl/certs $place/etc/ssl/certs; \
         mkdir -p $place/host; cd $place; pivot_root . host; cd /; umount -l host; rmdir host; \
         exec /usr/bin/env -i HOME=/root CI=true LANG=C.UTF-8 \
           PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
           sh -c \"cd /creamery && $3\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, "bare-root"]);
    command.arg(place).arg(toolchain()?).arg(line);
    Ok(command)
}

/// Where the toolchain lies that is in use.
fn toolchain() -> Result<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).current_dir(root()).output()?;
    ensure!(output.status.success(), "rustc does not say where it lies");
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

#[cfg(test)]
mod tests {
    use super::chosen;

    #[test]
    fn steps_go_by_name_and_all_is_the_default() {
        assert_eq!(chosen(&[]).unwrap().len(), 3);
        assert_eq!(chosen(&["ci"]).unwrap(), [("ci", "bash .ci/run")]);
        assert!(chosen(&["cd"]).is_err());
    }
}
