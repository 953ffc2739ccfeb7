//! Steps that many cases share.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::harness::Bench;
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{Finished, FuseMount, Judge, LoopMount, Program, Run, btrfs_check, tree};

/// The judges of an image: the program, the kernel and btrfs-progs.
pub(crate) const JUDGED: [Judge; 5] =
    [Judge::Program, Judge::Root, Judge::BtrfsProgs, Judge::KernelBtrfs, Judge::LoopDevices];

/// The judges of an image, and a FUSE mount.
pub(crate) const MOUNTED: [Judge; 6] =
    [Judge::Program, Judge::Root, Judge::BtrfsProgs, Judge::KernelBtrfs, Judge::LoopDevices, Judge::Fuse];

/// `creamery mkfs OPTIONS --rootdir SOURCE IMAGE`.
pub(crate) fn mkfs_from(
    creamery: &Program,
    options: &[&str],
    source: &Path,
    image: &Path,
) -> Result<Finished> {
    let run = creamery.run(["mkfs"]).args(options).arg("--rootdir").arg(source).arg(image);
    run.ok().context("building an image")
}

/// An empty filesystem of `size` (as the option `-b` takes it) in a new file.
pub(crate) fn mkfs_empty(creamery: &Program, options: &[&str], size: &str, image: &Path) -> Result<()> {
    creamery
        .run(["mkfs", "-b", size])
        .args(options)
        .arg(image)
        .ok()
        .context("making an empty image")
        .map(drop)
}

/// The torture tree in a new folder `source` of the case, and its walk.
pub(crate) fn torture_source(bench: &Bench) -> Result<(PathBuf, Walk)> {
    let source = bench.scratch.dir("source")?;
    let as_root = creamery_testkit::Judges::here().have(&[Judge::Root]);
    tree::torture(&source, as_root)?;
    let walk = Walk::take(&source)?;
    Ok((source, walk))
}

/// `btrfs check`, then the kernel's view of the image compared with `want`, with a clean kernel log.
pub(crate) fn judge(bench: &Bench, image: &Path, want: &Walk, compare: &Compare) -> Result<()> {
    btrfs_check(image)?;
    let mount = LoopMount::mount(image, &bench.scratch.file("judge"), "ro,noatime")?;
    expect_same("the kernel's view of the image", want, &Walk::take(mount.dir())?, compare)?;
    mount.unmount()
}

/// The output of `creamery stats --json` for a mount.
pub(crate) fn stats(bench: &Bench, dir: &Path) -> Result<serde_json::Value> {
    let said = bench.creamery().run(["stats", "--json"]).arg(dir).ok()?.stdout;
    Ok(serde_json::from_slice(&said)?)
}

/// Bytes that a process has read and written by its system calls: a measure of its progress that does not depend on the machine's load.
pub(crate) fn moved_bytes(process: u32) -> Result<u64> {
    let file = format!("/proc/{process}/io");
    let text = std::fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
    let numbers =
        text.lines().filter_map(|line| line.strip_prefix("rchar: ").or(line.strip_prefix("wchar: ")));
    Ok(numbers.map(str::parse::<u64>).sum::<Result<u64, _>>()?)
}

/// Runs `command` until it ends, or kills it once it has read and written `bytes`. Returns whether it was killed, and the bytes.
pub(crate) fn killed_after(command: &mut Command, bytes: u64) -> Result<(bool, u64)> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let mut moved = 0;
    while moved < bytes && child.try_wait()?.is_none() {
        moved = moved_bytes(child.id())?;
    }
    child.kill()?;
    Ok((!child.wait()?.success(), moved))
}

/// `IMAGE:/path`.
pub(crate) fn inside(image: &Path, path: &str) -> OsString {
    let mut word = image.as_os_str().to_owned();
    word.push(":");
    word.push(path);
    word
}

/// Checks that a run fails properly: an exit status other than 0, no panic, and one line on stderr that contains all of `words`, in upper
/// or lower case.
pub(crate) fn expect_refusal(run: Run, words: &[&str]) -> Result<()> {
    let finished = expect_failure(run, words)?;
    let lines = finished.stderr_text().lines().filter(|line| !line.trim().is_empty()).count();
    ensure!(lines == 1, "wants one line on stderr, found {lines}: {finished}");
    Ok(())
}

/// Checks a failure like [`expect_refusal`], but with any number of lines: a command that goes on after a failure prints a summary at its
/// end.
pub(crate) fn expect_failure(run: Run, words: &[&str]) -> Result<Finished> {
    let finished = run.output()?;
    let stderr = finished.stderr_text();
    match finished.code {
        None => bail!("ended by a signal: {finished}"),
        Some(0) => bail!("should have been refused: {finished}"),
        Some(101) => bail!("looks like a panic: {finished}"),
        Some(_) => {}
    }
    ensure!(!stderr.contains("panicked"), "panicked: {finished}");
    let lower = stderr.to_lowercase();
    for word in words {
        ensure!(lower.contains(&word.to_lowercase()), "the message does not say {word:?}: {finished}");
    }
    Ok(finished)
}

/// Runs `change` and checks that the file has the same bytes afterwards.
pub(crate) fn expect_untouched(file: &Path, change: impl FnOnce() -> Result<()>) -> Result<()> {
    let copy = file.with_extension("before");
    Run::new("cp").args(["--sparse=always", "--"]).arg(file).arg(&copy).ok()?;
    change()?;
    let same = Run::new("cmp").arg(file).arg(&copy).output()?;
    ensure!(same.code == Some(0), "the file was changed: {same}");
    Ok(std::fs::remove_file(copy)?)
}

/// Changes one byte of a file so that it is certainly different.
pub(crate) fn flip_byte(path: &Path, at: u64) -> Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).with_context(|| format!("reading byte {at}"))?;
    Ok(file.write_all_at(&[!byte[0]], at)?)
}

/// The checksum of tree blocks and superblocks.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |mut crc: u32, byte| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
        crc
    })
}

/// A new sparse file of `len` bytes.
pub(crate) fn sparse_file(path: &Path, len: u64) -> Result<()> {
    Ok(File::create_new(path)?.set_len(len)?)
}

/// Ends a mount after work on it, and checks that the kernel and a second mount show its content.
pub(crate) fn judge_mount(bench: &Bench, image: &Path, mount: FuseMount) -> Result<()> {
    let compare = Compare { ctime: true, btime: true, ..Compare::default() };
    let live = Walk::take(mount.dir())?;
    let dir = mount.dir().to_owned();
    mount.unmount()?;
    let mount = FuseMount::mount(bench.creamery(), image, &dir, "ro")?;
    let again = Walk::take(mount.dir())?;
    mount.unmount()?;
    expect_same("a second mount", &live, &again, &compare)?;
    judge(bench, image, &again, &compare)
}
