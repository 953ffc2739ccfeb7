//! The judges that this host has: the kernel, btrfs-progs, FUSE, and everyday tools.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use crate::{KernelLog, LoopDevice, Program, Run, Scratch};

const CAP_SYS_ADMIN: u32 = 21;
const BTRFS_PROGS_WANTED: (u32, u32) = (6, 14);

/// A resource of the host that a test needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Judge {
    /// The built program.
    Program,
    /// Superuser rights.
    Root,
    /// btrfs in the running kernel.
    KernelBtrfs,
    /// Loop devices.
    LoopDevices,
    /// btrfs-progs, new enough.
    BtrfsProgs,
    /// `/dev/fuse`, and the permission or the helper to mount with it.
    Fuse,
    /// `fusermount3` for mounts by ordinary users.
    Fusermount,
    /// Any other program, by name.
    Tool(&'static str),
}

impl fmt::Display for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Program => "creamery",
            Self::Root => "root",
            Self::KernelBtrfs => "kernel btrfs",
            Self::LoopDevices => "loop devices",
            Self::BtrfsProgs => "btrfs-progs 6.14",
            Self::Fuse => "fuse",
            Self::Fusermount => "fusermount3",
            Self::Tool(name) => name,
        })
    }
}

/// The judges of this host. The first question about a judge looks for it. A judge that is there is remembered; a missing one is looked for
/// again the next time, as it may be installed in between.
///
/// ```
/// use creamery_testkit::{Judge, Judges};
/// if let Some(reason) = Judges::here().missing(Judge::KernelBtrfs) {
///     println!("skipped: {} missing ({reason})", Judge::KernelBtrfs);
/// }
/// ```
pub struct Judges {
    found: Mutex<BTreeSet<Judge>>,
}

impl Judges {
    /// The host's judges, as far as this process has looked for them.
    #[must_use]
    pub fn here() -> &'static Self {
        static HERE: Judges = Judges { found: Mutex::new(BTreeSet::new()) };
        &HERE
    }

    /// The reason why `judge` is missing; `None` if it is there.
    #[must_use]
    pub fn missing(&self, judge: Judge) -> Option<String> {
        self.missing_as_found_by(judge, probe)
    }

    /// Answers like [`Judges::missing`], with `probe` as the way of looking.
    fn missing_as_found_by(&self, judge: Judge, probe: impl Fn(Judge) -> Result<()>) -> Option<String> {
        let found = || self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found().contains(&judge) {
            return None;
        }
        match probe(judge) {
            Ok(()) => {
                found().insert(judge);
                None
            }
            Err(error) => Some(format!("{error:#}")),
        }
    }

    /// Whether all of `judges` are there.
    #[must_use]
    pub fn have(&self, judges: &[Judge]) -> bool {
        judges.iter().all(|judge| self.missing(*judge).is_none())
    }

    /// Whether a missing judge is a failure (`CREAMERY_REQUIRE_JUDGES=1`).
    #[must_use]
    pub fn required() -> bool {
        std::env::var_os("CREAMERY_REQUIRE_JUDGES").is_some_and(|value| value == "1")
    }
}

/// Runs `btrfs check --check-data-csum`. It passes only if the exit status is 0 and the last words are "no error found".
///
/// # Errors
/// The check failed; the error has its output.
pub fn btrfs_check(image: &Path) -> Result<()> {
    let finished = Run::new("btrfs")
        .args(["check", "--check-data-csum"])
        .arg(image)
        .output()
        .context("judging an image")?;
    let said = format!("{}{}", finished.stdout_text(), finished.stderr_text());
    let complaint = said.lines().find(|line| {
        let line = line.to_ascii_lowercase();
        ["error:", "warning:", "mismatch", "verify failed"].iter().any(|word| line.contains(word))
    });
    if finished.code != Some(0) || !said.contains("no error found") || complaint.is_some() {
        bail!("btrfs check does not accept {}: {finished}", image.display());
    }
    Ok(())
}

/// The version that `btrfs --version` prints, as (major, minor).
///
/// # Errors
/// The program is missing or prints something else.
pub fn btrfs_progs_version() -> Result<(u32, u32)> {
    let said = Run::new("btrfs").arg("--version").ok()?.stdout_text();
    let version = said.lines().next().and_then(parse_version);
    version.with_context(|| format!("no version in {said:?}"))
}

/// Reads `btrfs-progs v6.14.1` or `6.14-1~bpo12+1`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    let digits = text.find(|c: char| c.is_ascii_digit())?;
    let mut numbers = text[digits..].split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn probe(judge: Judge) -> Result<()> {
    match judge {
        Judge::Program => probe_program(),
        Judge::Root => probe_root(),
        Judge::KernelBtrfs => probe_kernel_btrfs(),
        Judge::LoopDevices => probe_loop_devices(),
        Judge::BtrfsProgs => probe_btrfs_progs(),
        Judge::Fuse => probe_fuse(),
        Judge::Fusermount => probe_tool("fusermount3"),
        Judge::Tool(name) => probe_tool(name),
    }
}

fn probe_tool(name: &str) -> Result<()> {
    find_tool(name).map(drop).with_context(|| format!("no program {name} in PATH"))
}

fn probe_program() -> Result<()> {
    Program::find().map(drop)
}

/// Whether this process runs as root. A root without rights (in some containers) counts here, but not for [`Judge::Root`].
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn probe_root() -> Result<()> {
    if !is_root() {
        bail!("run as root");
    }
    let status = std::fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = rights.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0);
    if rights >> CAP_SYS_ADMIN & 1 == 0 {
        bail!("root without the right to mount");
    }
    Ok(())
}

fn probe_kernel_btrfs() -> Result<()> {
    let listed = || -> Result<bool> {
        let filesystems = std::fs::read_to_string("/proc/filesystems")?;
        Ok(filesystems.lines().any(|line| line.split_whitespace().last() == Some("btrfs")))
    };
    if !listed()? {
        let _ = Run::new("modprobe").arg("btrfs").output();
    }
    if !listed()? {
        bail!("btrfs is not in /proc/filesystems");
    }
    if is_root() {
        KernelLog::start().context("its log is out of reach")?;
    }
    Ok(())
}

fn probe_loop_devices() -> Result<()> {
    if !Path::new("/dev/loop-control").exists() {
        let _ = Run::new("modprobe").arg("loop").output();
    }
    std::fs::File::open("/dev/loop-control").context("opening /dev/loop-control")?;
    probe_tool("losetup")?;
    if is_root() {
        let scratch = Scratch::new("loop-probe")?;
        std::fs::write(scratch.file("disk"), vec![0; 1 << 20])?;
        LoopDevice::attach(&scratch.file("disk"), true)?.detach()?;
    }
    Ok(())
}

fn probe_btrfs_progs() -> Result<()> {
    let version = btrfs_progs_version()?;
    if version < BTRFS_PROGS_WANTED {
        bail!("btrfs-progs is {}.{}, {}.{} or later is needed", version.0, version.1, 6, 14);
    }
    Ok(())
}

fn probe_fuse() -> Result<()> {
    let device = Path::new("/dev/fuse");
    if !device.exists() {
        let _ = Run::new("modprobe").arg("fuse").output();
    }
    if rustix::process::geteuid().is_root() {
        let open = std::fs::File::options().read(true).write(true).open(device);
        return open.map(drop).context("opening /dev/fuse");
    }
    if !device.exists() {
        bail!("no /dev/fuse");
    }
    probe_tool("fusermount3")
}

fn find_tool(name: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path).chain(extra).map(|dir| dir.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_judge_that_was_missing_is_found_once_it_is_installed_and_then_remembered() {
        let judges = Judges { found: Mutex::default() };
        let absent = |_| bail!("not installed");
        assert_eq!(judges.missing_as_found_by(Judge::BtrfsProgs, absent).as_deref(), Some("not installed"));
        assert_eq!(judges.missing_as_found_by(Judge::BtrfsProgs, |_| Ok(())), None);
        assert_eq!(judges.missing_as_found_by(Judge::BtrfsProgs, absent), None);
    }

    #[test]
    fn versions_of_program_and_package_are_read() {
        assert_eq!(parse_version("btrfs-progs v6.14"), Some((6, 14)));
        assert_eq!(parse_version("6.14-1~bpo12+1"), Some((6, 14)));
        assert_eq!(parse_version("btrfs-progs v6.2.1"), Some((6, 2)));
        assert_eq!(parse_version("no digits"), None);
    }
}
