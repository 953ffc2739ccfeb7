//! An unmount ends when the image is closed, regardless of other mounts made meanwhile.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, Run, Signal, btrfs_check, daemon, signal, until};

use crate::support::{MOUNTED, inside, mkfs_empty, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    let tools = [&MOUNTED[..], &[Judge::Tool("fsfreeze"), Judge::Tool("mkfs.ext4")]].concat();
    vec![
        Case::new("mount/umount-waits-though-its-number-is-taken", &tools, number_is_taken),
        Case::new("mount/its-end-leaves-what-is-mounted-there", &MOUNTED, next_mount_stays),
    ]
}

/// A filesystem of the host that is frozen until drop.
struct Frozen(PathBuf);

impl Frozen {
    fn freeze(host: &Path) -> Result<Self> {
        Run::new("fsfreeze").arg("-f").arg(host).ok()?;
        Ok(Self(host.to_owned()))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = Run::new("fsfreeze").arg("-u").arg(&self.0).output();
    }
}

/// The number of waits of a process.
fn waits(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Ok(line.context("a count")?.trim().parse()?)
}

/// Mounts filesystems until one has the device number `device`; it does not matter if another process has taken the number.
fn take_number(folder: &Path, device: u64) -> Result<()> {
    for number in 0..256 {
        let point = folder.join(number.to_string());
        std::fs::create_dir(&point)?;
        Run::new("mount").args(["-i", "-t", "tmpfs", "none"]).arg(&point).ok()?;
        let table = std::fs::read_to_string("/proc/self/mountinfo")?;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        if table.lines().any(|line| line.split(' ').nth(2) == Some(&format!("{major}:{minor}"))) {
            return Ok(());
        }
    }
    bail!("no mount has its number")
}

fn ended(child: &mut Child) -> Result<bool> {
    Ok(child.try_wait()?.is_some())
}

/// The image lies on a frozen filesystem, so the server cannot end; the device number goes to another mount. The unmount polls, and goes on
/// waiting.
fn number_is_taken(bench: &Bench) -> Result<()> {
    let (disk, host) = (bench.scratch.file("host.img"), bench.scratch.dir("host")?);
    sparse_file(&disk, 1 << 30)?;
    Run::new("mkfs.ext4").arg("-q").arg(&disk).ok()?;
    Run::new("mount").args(["-o", "loop"]).arg(&disk).arg(&host).ok()?;
    let image = host.join("disk.img");
    mkfs_empty(bench.creamery(), &[], "300M", &image)?;
    let point = bench.scratch.file("fuse");
    let mount = FuseMount::mount(bench.creamery(), &image, &point, "commit=3600")?;
    let device = std::fs::metadata(mount.dir())?.dev();
    std::fs::write(point.join("file"), "content")?;
    let frozen = Frozen::freeze(&host)?;
    let mut unmount = Command::new(bench.creamery().path());
    let mut unmount = unmount.arg("umount").arg(&point).stderr(Stdio::piped()).spawn()?;
    until("the mount to be gone", || Ok(ended(&mut unmount)? || std::fs::metadata(&point)?.dev() != device))?;
    let looked = take_number(&bench.scratch.dir("others")?, device).and_then(|()| {
        let before = waits(unmount.id())?;
        until("the unmount to have looked again", || {
            Ok(ended(&mut unmount)? || waits(unmount.id())? >= before + 3)
        })
    });
    let is_early = ended(&mut unmount)?;
    drop(frozen);
    let said = unmount.wait_with_output()?;
    looked?;
    ensure!(!is_early, "it ended before the image was closed: {said:?}");
    ensure!(said.status.success(), "{said:?}");
    let found = bench.creamery().run(["cat"]).arg(inside(&image, "/file")).ok()?.stdout_text();
    ensure!(found == "content", "the image has {found}");
    btrfs_check(&image)
}

/// A mount is unmounted while its server sleeps, and another filesystem is mounted at its place, with all its numbers. When the server
/// ends, it leaves that mount alone.
fn next_mount_stays(bench: &Bench) -> Result<()> {
    let (image, point) = (bench.scratch.file("disk.img"), bench.scratch.file("fuse"));
    mkfs_empty(bench.creamery(), &[], "300M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &point, "")?;
    let server = daemon(&image)?;
    signal(Signal::STOP, server)?;
    // The program umount(8) would ask the server first.
    let flags = rustix::mount::UnmountFlags::empty();
    let next = rustix::mount::unmount(&point, flags).map_err(anyhow::Error::from).and_then(|()| {
        Run::new("mount").args(["-i", "-t", "tmpfs", "none"]).arg(&point).ok()?;
        Ok(std::fs::write(point.join("file"), "of the next one")?)
    });
    signal(Signal::CONT, server)?;
    next?;
    let ended = until("the server to end", || Ok(std::fs::read_link(format!("/proc/{server}/exe")).is_err()));
    let found = std::fs::read_to_string(point.join("file"));
    let unmounted = Run::new("umount").arg("-i").arg(&point).output();
    drop(mount);
    ended?;
    ensure!(found.is_ok_and(|found| found == "of the next one"), "the server took away the next mount");
    unmounted.map(drop)
}
