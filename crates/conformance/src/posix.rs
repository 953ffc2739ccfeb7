//! POSIX rules of a mount that no everyday tool tests, and the state after a crash.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Random, Run, Signal, btrfs_check, daemon, signal};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, OFlags, RenameFlags, XattrFlags, fallocate, linkat, lsetxattr,
    renameat_with,
};
use rustix::io::Errno;

use crate::support::{MOUNTED, inside, judge_mount, mkfs_empty};

pub(crate) type PosixBody = fn(&Path) -> Result<()>;

pub(crate) fn cases() -> Vec<Case> {
    let cases: [(&str, PosixBody); 7] = [
        ("posix/rename-flags", rename_flags),
        ("posix/temporary-file", temporary_file),
        ("posix/copy-range-and-append", copy_range_and_append),
        ("posix/statfs-and-birth-time", statfs_and_birth_time),
        ("posix/truncation-is-a-modification", truncation),
        ("posix/xattr-flags", xattr_flags),
        ("posix/errors", errors),
    ];
    let mut cases: Vec<Case> = cases
        .into_iter()
        .map(|(name, body)| Case::new(name, &MOUNTED, move |bench| on_a_mount(bench, body)))
        .collect();
    let with_cc = [&MOUNTED[..], &[Judge::Tool("cc")]].concat();
    cases.push(Case::new("posix/mmap", &with_cc, |bench| on_a_mount(bench, mmap)));
    cases.push(Case::new("posix/marked-inodes", &with_cc, marked));
    cases.push(Case::new("crash/fsync-is-durable", &MOUNTED, fsync_is_durable));
    cases.push(Case::new("crash/killed-daemon", &MOUNTED, killed_daemon));
    cases
}

/// Runs `body`, whose checks must hold, on Linux' Btrfs, and on ours.
pub(crate) fn on_a_mount(bench: &Bench, body: PosixBody) -> Result<()> {
    let linux = bench.scratch.file("linux.img");
    mkfs_empty(bench.creamery(), &[], "512M", &linux)?;
    let mounted = LoopMount::mount(&linux, &bench.scratch.file("linux"), "")?;
    body(&bench.scratch.file("linux")).context("on Linux' own Btrfs")?;
    mounted.unmount()?;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    body(mount.dir())?;
    judge_mount(bench, &image, mount)
}

fn rename_flags(dir: &Path) -> Result<()> {
    let rename = |from: &str, to: &str, flags| renameat_with(CWD, dir.join(from), CWD, dir.join(to), flags);
    std::fs::write(dir.join("a"), b"a")?;
    std::fs::write(dir.join("b"), b"b")?;
    std::fs::create_dir_all(dir.join("folder/below"))?;
    ensure!(rename("a", "b", RenameFlags::NOREPLACE) == Err(Errno::EXIST), "NOREPLACE replaced");
    rename("a", "c", RenameFlags::NOREPLACE).context("NOREPLACE to a free name")?;
    rename("b", "c", RenameFlags::EXCHANGE).context("exchanging two files")?;
    ensure!(std::fs::read(dir.join("b"))? == b"a", "EXCHANGE did not exchange");
    rename("b", "folder", RenameFlags::EXCHANGE).context("exchanging a file and a folder")?;
    ensure!(dir.join("b/below").is_dir() && dir.join("folder").is_file(), "a folder was not exchanged");
    rename("c", "d", RenameFlags::WHITEOUT).context("leaving a whiteout")?;
    let left = dir.join("c").symlink_metadata()?;
    ensure!(left.mode() & 0o170_000 == 0o020_000 && left.rdev() == 0, "no whiteout was left");
    ensure!(rename("b", "b/below/b", RenameFlags::empty()) == Err(Errno::INVAL), "a folder went into itself");
    std::fs::create_dir(dir.join("other"))?;
    ensure!(rename("other", "b", RenameFlags::empty()) == Err(Errno::NOTEMPTY), "a full folder was replaced");
    rename("b/below", "other", RenameFlags::empty()).context("replacing an empty folder")?;
    // Renaming one link of a file over another changes nothing.
    std::fs::hard_link(dir.join("d"), dir.join("d2"))?;
    rename("d", "d2", RenameFlags::empty())?;
    ensure!(dir.join("d").exists() && dir.join("d2").exists(), "renaming a link over its twin removed one");
    Ok(())
}

fn temporary_file(dir: &Path) -> Result<()> {
    let open = || {
        let flags = OFlags::TMPFILE.bits().cast_signed();
        File::options().read(true).write(true).custom_flags(flags).mode(0o640).open(dir)
    };
    let kept = open().context("opening with O_TMPFILE")?;
    kept.write_all_at(b"kept", 0)?;
    ensure!(kept.metadata()?.nlink() == 0, "a temporary file has a link count");
    let way = format!("/proc/self/fd/{}", kept.as_raw_fd());
    linkat(CWD, way, CWD, dir.join("kept"), AtFlags::SYMLINK_FOLLOW).context("giving it a name")?;
    ensure!(std::fs::read(dir.join("kept"))? == b"kept", "the named file reads differently");
    let lost = open()?;
    lost.write_all_at(&[1; 100_000], 0)?;
    ensure!(std::fs::read_dir(dir)?.count() == 1, "a temporary file has a name");
    Ok(())
}

fn copy_range_and_append(dir: &Path) -> Result<()> {
    let content = Random::new(4).bytes(1_000_003);
    std::fs::write(dir.join("from"), &content)?;
    let (from, to) = (File::open(dir.join("from"))?, File::create_new(dir.join("to"))?);
    let (mut at, mut into) = (10_001, 77);
    while at < 900_000 {
        let wanted = usize::try_from(900_000 - at)?;
        let len = rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut into), wanted)?;
        ensure!(len > 0, "copy_file_range stopped at {at}");
    }
    let copied = std::fs::read(dir.join("to"))?;
    ensure!(copied[..77].iter().all(|byte| *byte == 0), "a hole before the copy is not zero");
    ensure!(copied[77..] == content[10_001..900_000], "copy_file_range copied something else");
    let append = File::options().append(true).open(dir.join("to"))?;
    let other = File::options().append(true).open(dir.join("to"))?;
    for round in 0..50u8 {
        std::io::Write::write_all(&mut &append, &[round; 100])?;
        std::io::Write::write_all(&mut &other, &[round; 100])?;
    }
    let appended = std::fs::read(dir.join("to"))?;
    ensure!(appended.len() == copied.len() + 10_000, "appending left {} bytes", appended.len());
    to.set_len(4_097)?;
    to.set_len(20_000)?;
    let cut = std::fs::read(dir.join("to"))?;
    ensure!(
        cut[4_097..].iter().all(|byte| *byte == 0) && cut.len() == 20_000,
        "old bytes came back after truncate"
    );
    fallocate(&to, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 100, 8_000)?;
    let punched = std::fs::read(dir.join("to"))?;
    ensure!(punched[100..8_100].iter().all(|byte| *byte == 0), "a punched hole is not zero");
    ensure!(punched[..100] == cut[..100] && punched.len() == 20_000, "punching changed its surroundings");
    Ok(())
}

fn statfs_and_birth_time(dir: &Path) -> Result<()> {
    let before = rustix::fs::statvfs(dir)?;
    std::fs::write(dir.join("file"), Random::new(5).bytes(50 << 20))?;
    File::open(dir.join("file"))?.sync_all()?;
    let after = rustix::fs::statvfs(dir)?;
    let total = after.f_blocks * after.f_frsize;
    ensure!((400 << 20..=512 << 20).contains(&total), "statfs says {total} bytes in all");
    let used = before.f_bavail.saturating_sub(after.f_bavail) * after.f_frsize;
    ensure!((45 << 20..70 << 20).contains(&used), "50 MiB took {used} bytes by statfs");
    ensure!(after.f_namemax == 255, "the longest name is {}", after.f_namemax);
    let stat = dir.join("file").metadata()?;
    let age = stat.modified()?.duration_since(stat.created().context("no birth time")?);
    ensure!(age.is_ok_and(|age| age.as_secs() < 100), "the birth time is not near the modification time");
    ensure!(stat.blocks() * 512 >= 50 << 20, "a file of 50 MiB has {} blocks", stat.blocks());
    Ok(())
}

/// Truncating an open file sets the modification time even if the size stays, and so does opening with O_TRUNC.
fn truncation(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    std::fs::write(&path, b"seven..")?;
    let long_ago = UNIX_EPOCH + Duration::from_secs(1_000);
    let old = || -> Result<()> { Ok(File::options().write(true).open(&path)?.set_modified(long_ago)?) };
    let is_old = || -> Result<bool> { Ok(path.metadata()?.modified()? == long_ago) };
    old()?;
    ensure!(is_old()?, "the time that was set is not there");
    Run::new("truncate").args(["-s", "7"]).arg(&path).ok()?;
    ensure!(!is_old()?, "truncate(1), which cuts an open file, left the time");
    old()?;
    File::options().write(true).open(&path)?.set_len(3)?;
    ensure!(!is_old()?, "a new size left the time");
    std::fs::write(&path, b"")?;
    old()?;
    drop(File::options().write(true).truncate(true).open(&path)?);
    ensure!(!is_old()?, "opening an empty file to cut it left the time");
    Ok(())
}

fn xattr_flags(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    std::fs::write(&path, b"")?;
    let set = |value: &[u8], flags| lsetxattr(&path, "user.name", value, flags);
    ensure!(set(b"1", XattrFlags::REPLACE) == Err(Errno::NODATA), "REPLACE made an attribute");
    set(b"1", XattrFlags::CREATE)?;
    ensure!(set(b"2", XattrFlags::CREATE) == Err(Errno::EXIST), "CREATE replaced an attribute");
    set(&[7; 3_000], XattrFlags::REPLACE)?;
    set(b"", XattrFlags::empty())?;
    ensure!(set(&[7; 65_537], XattrFlags::empty()).is_err(), "an attribute of 64 KiB and a byte was taken");
    rustix::fs::lremovexattr(&path, "user.name")?;
    ensure!(
        rustix::fs::lremovexattr(&path, "user.name") == Err(Errno::NODATA),
        "an attribute was removed twice"
    );
    let list_len = rustix::fs::llistxattr_query(&path)?;
    ensure!(list_len == 0, "a removed attribute is listed");
    let both = XattrFlags::CREATE | XattrFlags::REPLACE;
    ensure!(set(b"1", both) == Err(Errno::NODATA), "an attribute was made and replaced at once");
    set(b"1", XattrFlags::empty())?;
    ensure!(set(b"2", both) == Err(Errno::EXIST), "an attribute was made and replaced at once");
    let name_of = |name: &str| lsetxattr(&path, name, b"", XattrFlags::empty());
    let get = |name: &str| rustix::fs::lgetxattr(&path, name, &mut [0_u8; 16]).map(drop);
    for (name, set, got) in [
        ("user.", Errno::INVAL, Errno::INVAL),
        ("trusted.", Errno::INVAL, Errno::INVAL),
        ("nobodys.name", Errno::OPNOTSUPP, Errno::OPNOTSUPP),
        ("system.nfs4_acl", Errno::OPNOTSUPP, Errno::OPNOTSUPP),
        ("btrfs.unknown", Errno::INVAL, Errno::NODATA),
    ] {
        ensure!(name_of(name) == Err(set), "setting {name}: {:?}", name_of(name));
        ensure!(get(name) == Err(got), "getting {name}: {:?}", get(name));
    }
    Ok(())
}

fn errors(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir.join("full/below"))?;
    std::fs::write(dir.join("file"), b"")?;
    let code = |result: std::io::Result<()>| result.err().and_then(|error| error.raw_os_error());
    let errno = |errno: Errno| Some(errno.raw_os_error());
    ensure!(code(std::fs::remove_dir(dir.join("full"))) == errno(Errno::NOTEMPTY), "rmdir of a full folder");
    ensure!(code(std::fs::remove_file(dir.join("full"))) == errno(Errno::ISDIR), "unlink of a folder");
    ensure!(code(std::fs::remove_dir(dir.join("file"))) == errno(Errno::NOTDIR), "rmdir of a file");
    ensure!(code(std::fs::create_dir(dir.join("file"))) == errno(Errno::EXIST), "mkdir over a file");
    ensure!(code(std::fs::write(dir.join("none/x"), b"")) == errno(Errno::NOENT), "a file in no folder");
    ensure!(code(std::fs::write(dir.join("file/x"), b"")) == errno(Errno::NOTDIR), "a file in a file");
    let linked = std::fs::hard_link(dir.join("full"), dir.join("full2"));
    ensure!(code(linked) == errno(Errno::PERM), "a hard link to a folder");
    Ok(())
}

const MMAP_C: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define CHECK(c) do { if (!(c)) { perror(#c); return __LINE__ % 200 + 1; } } while (0)
int main(int argc, char **argv) {
    char back[16];
    int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
    CHECK(fd >= 0 && ftruncate(fd, 1000000) == 0);
    char *map = mmap(0, 1000000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    for (int at = 0; at < 1000000; at += 5000) memcpy(map + at, "mapped bytes", 12);
    CHECK(pread(fd, back, 12, 500000) == 12 && memcmp(back, "mapped bytes", 12) == 0);
    CHECK(pwrite(fd, "by write", 8, 700001) == 8);
    CHECK(memcmp(map + 700001, "by write", 8) == 0);
    CHECK(msync(map, 500000, MS_SYNC) == 0);
    CHECK(munmap(map, 1000000) == 0 && close(fd) == 0);
    return argc != 2;
}
"#;

/// Shared mappings; changes without msync must be there after unmounting, which the walk checks.
fn mmap(dir: &Path) -> Result<()> {
    std::fs::write(dir.join("mmap.c"), MMAP_C)?;
    Run::new("cc").args(["-O1", "-o", "mmap", "mmap.c"]).within(dir).ok()?;
    Run::new(dir.join("mmap")).arg(dir.join("mapped")).ok()?;
    let content = std::fs::read(dir.join("mapped"))?;
    ensure!(content.len() == 1_000_000, "the mapped file has {} bytes", content.len());
    ensure!(content[995_000..].starts_with(b"mapped bytes"), "the end of the mapped file is lost");
    Ok(())
}

const MARKED_C: &str = include_str!("programs/marked.c");

/// The effects of `chattr +a` and `+i` on the mount, compared with Linux' own Btrfs. FUSE does not tell the kernel about these flags, so
/// three results differ, none of them in favour of a writer: a mapping is refused with another error; clearing O_APPEND is allowed, but
/// writing after that is not; and a file that was open when it got the flag is as safe as one that is opened later.
fn marked(bench: &Bench) -> Result<()> {
    let build = bench.scratch.dir("build")?;
    std::fs::write(build.join("marked.c"), MARKED_C)?;
    Run::new("cc").args(["-O1", "-o", "marked", "marked.c"]).within(&build).ok()?;
    let told = |dir: &Path| -> Result<String> {
        let folder = dir.join("marks");
        std::fs::create_dir(&folder)?;
        Ok(Run::new(build.join("marked")).arg(&folder).ok()?.stdout_text())
    };
    let (image, kernels) = (bench.scratch.file("disk.img"), bench.scratch.file("kernels.img"));
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    mkfs_empty(bench.creamery(), &[], "512M", &kernels)?;
    let mount = LoopMount::mount(&kernels, &bench.scratch.file("kernel"), "")?;
    let wanted = told(mount.dir())?;
    mount.unmount()?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    let found = told(mount.dir())?;
    let lines = wanted.lines().zip(found.lines());
    let differing: Vec<String> = lines
        .filter(|(wanted, found)| wanted != found)
        .map(|(wanted, found)| format!("{found} ({})", wanted.rsplit(": ").next().unwrap_or_default()))
        .collect();
    ensure!(wanted.lines().count() == found.lines().count(), "it ended early:\n{found}");
    let known = [
        "line map shared to write: ENODEV (EACCES)",
        "line map shared to read: ENODEV (EACCES)",
        "line cease to append: ok (EPERM)",
        "line write after that: EPERM (ok)",
        "line holds 12 0123456789wp (line holds 13 0123456789wpq)",
        "old log write: EPERM (ok)",
        "old log write at the end: EPERM (ok)",
        "old log sync: EPERM (ok)",
        "old log holds 10 0123456789 (old log holds 11 0AWM456789E)",
        "old stone write: EPERM (ok)",
        "old stone write at the end: EPERM (ok)",
        "old stone sync: EPERM (ok)",
        "old stone cut: EPERM (ok)",
        "old stone holds 10 0123456789 (old stone holds 5 0AWM4)",
    ];
    ensure!(differing == known, "on the mount (on Linux' own):\n{}", differing.join("\n"));
    judge_mount(bench, &image, mount)
}

/// Data acknowledged by fsync is in the image at once: a copy of the image is the state after a power cut.
fn fsync_is_durable(bench: &Bench) -> Result<()> {
    let (image, copy) = (bench.scratch.file("disk.img"), bench.scratch.file("copy.img"));
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "commit=300")?;
    let content = Random::new(6).bytes(300_000);
    for round in 0..5 {
        let folder = mount.dir().join(format!("folder-{round}"));
        std::fs::create_dir(&folder)?;
        let file = File::create_new(folder.join("synced"))?;
        file.write_all_at(&content, 0)?;
        file.sync_all()?;
        std::fs::write(folder.join("not-synced"), &content)?;
        Run::new("cp").arg("--sparse=always").arg(&image).arg(&copy).ok()?;
        btrfs_check(&copy).with_context(|| format!("after fsync number {round}"))?;
        bring_back(bench, &copy)?;
        let said =
            bench.creamery().run(["cat"]).arg(inside(&copy, &format!("/folder-{round}/synced"))).ok()?;
        ensure!(said.stdout == content, "round {round}: what fsync promised is not in the image");
    }
    mount.unmount()
}

/// Synced data that is not part of a commit: the next writer restores it.
fn bring_back(bench: &Bench, image: &Path) -> Result<()> {
    bench.creamery().run(["mkdir"]).arg(inside(image, "/brought-back")).ok().map(drop)
}

/// A daemon that is killed leaves the last commit, whole, and later synced data.
fn killed_daemon(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    let mut random = Random::new(8);
    for index in 0..500 {
        std::fs::write(mount.dir().join(format!("file-{index}")), random.bytes(20_000))?;
    }
    let synced = File::create_new(mount.dir().join("synced"))?;
    synced.write_all_at(b"synced", 0)?;
    synced.sync_all()?;
    for index in 0..250 {
        std::fs::remove_file(mount.dir().join(format!("file-{index}")))?;
    }
    signal(Signal::KILL, daemon(&image)?)?;
    drop(synced);
    drop(mount);
    btrfs_check(&image)?;
    bring_back(bench, &image)?;
    let said = bench.creamery().run(["cat"]).arg(inside(&image, "/synced")).ok()?;
    ensure!(said.stdout == b"synced", "what fsync promised is lost");
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    std::fs::write(kernel.dir().join("later"), b"later")?;
    kernel.unmount()?;
    btrfs_check(&image)
}
