//! Use without root: images from a readable tree, and mounts through fusermount3.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk};
use creamery_testkit::{FuseMount, Judge, LoopMount, Program, Run, btrfs_check, tree};

use crate::support::{JUDGED, expect_refusal, judge, mkfs_empty};

pub(crate) const NOBODY: u32 = 65_534;

pub(crate) fn cases() -> Vec<Case> {
    let tools = [Judge::Tool("setpriv")];
    let with_fuse = [Judge::Tool("setpriv"), Judge::Fuse, Judge::Fusermount];
    vec![
        Case::new("unprivileged/mkfs-keeps-owners", &[&JUDGED[..], &tools].concat(), keeps_owners),
        Case::new("unprivileged/mount", &[&JUDGED[..], &with_fuse].concat(), mounts),
        Case::new("unprivileged/fakeroot", &[&JUDGED[..], &with_fuse].concat(), fakeroot),
        Case::new("unprivileged/unmounts-what-is-his", &[&JUDGED[..], &with_fuse].concat(), unmounts),
        Case::new("unprivileged/unmounts-that-cannot-be-asked", &[&JUDGED[..], &with_fuse].concat(), unasked),
        Case::new("bad-input/unreadable-file", &[&JUDGED[..], &tools].concat(), unreadable_file),
    ]
}

/// A folder of the user `nobody`, with a copy of the program: the real one may lie where that user has no access.
pub(crate) fn place(bench: &Bench) -> Result<(PathBuf, Program)> {
    use std::os::unix::fs::{PermissionsExt, chown};
    let dir = bench.scratch.dir("place")?;
    let copy = dir.join("creamery");
    bench.creamery().copy_to(&copy)?;
    for path in [bench.scratch.path(), &dir] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    }
    chown(&dir, Some(NOBODY), Some(NOBODY))?;
    Ok((dir, bench.creamery().clone()))
}

pub(crate) fn as_nobody(dir: &Path) -> Run {
    let run = Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    run.arg(dir.join("creamery"))
}

fn keeps_owners(bench: &Bench) -> Result<()> {
    let (dir, _) = place(bench)?;
    let source = bench.scratch.dir("source")?;
    tree::torture(&source, true)?;
    // Files that this user cannot read are not part of this case; nor are xattrs that only root sees.
    Run::new("chmod").args(["-R", "a+rX", "--"]).arg(&source).ok()?;
    let image = dir.join("disk.img");
    as_nobody(&dir).args(["mkfs", "--rootdir"]).arg(&source).arg(&image).ok()?;
    let unseen = Compare { xattrs_not: &["trusted.", "security.", "btrfs."], ..Compare::default() };
    judge(bench, &image, &Walk::take(&source)?, &unseen)
}

/// A mount namespace in which everybody can open `/dev/fuse`, as on an ordinary system; not every host is set up so. The mount exists only
/// there.
const MOUNTS: &str = r#"
set -e
mkdir dev && mount -t tmpfs -o mode=755 tmpfs dev
mknod dev/fuse c 10 229 && chmod 666 dev/fuse && mount --bind dev/fuse /dev/fuse
nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
nobody mkdir mnt want empty
nobody ./creamery mkfs -b 256M --rootdir empty disk.img
nobody ./creamery mount disk.img mnt
grep -q " $PWD/mnt fuse.creamery rw" /proc/self/mounts
for place in mnt want; do
    nobody sh -c "mkdir $place/a && printf content > $place/a/file && ln $place/a/file $place/a/link"
done
nobody cat mnt/a/link
nobody stat -c :%u:%g mnt/a/file
nobody ./creamery umount mnt
test -z "$(ls mnt)"
"#;

fn mounts(bench: &Bench) -> Result<()> {
    let (dir, _) = place(bench)?;
    let run =
        Run::new("unshare").args(["--mount", "--propagation", "private", "sh", "-c", MOUNTS]).within(&dir);
    let said = run.ok()?;
    ensure!(said.stdout_text().ends_with("content:65534:65534\n"), "working on the mount: {said}");
    let want = Walk::take(&dir.join("want"))?;
    judge(bench, &dir.join("disk.img"), &want, &Compare { mtime: false, ..Compare::default() })
}

/// An ordinary user edits root's files in an image: they stay root's, and new ones are root's, too.
const FAKEROOT: &str = r#"
set -e
mkdir dev && mount -t tmpfs -o mode=755 tmpfs dev
mknod dev/fuse c 10 229 && chmod 666 dev/fuse && mount --bind dev/fuse /dev/fuse
nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
nobody mkdir mnt
nobody ./creamery mount -o fakeroot disk.img mnt
nobody sh -c "echo more >> mnt/etc/shadow && cat mnt/etc/shadow"
nobody sh -c "umask 022; mkdir mnt/root/made && echo new > mnt/root/made/file"
nobody chown 7:8 mnt/root/made/file
nobody chmod 600 mnt/root/made/file
nobody mv mnt/etc/motd mnt/root
nobody rm mnt/etc/gone
nobody ./creamery subvolume create mnt/etc/sub
nobody stat -c %u:%g:%a mnt/root/made mnt/root/made/file mnt/root/motd mnt/etc/shadow mnt/etc/sub
nobody ./creamery umount mnt
"#;

fn fakeroot(bench: &Bench) -> Result<()> {
    let (dir, program) = place(bench)?;
    let image = dir.join("disk.img");
    let source = bench.scratch.dir("rootfs")?;
    for name in ["etc", "root"] {
        std::fs::create_dir(source.join(name))?;
    }
    for (name, mode) in
        [("etc/shadow", 0o000), ("etc/motd", 0o644), ("etc/gone", 0o600), ("root/kept", 0o600)]
    {
        std::fs::write(source.join(name), "text\n")?;
        std::fs::set_permissions(source.join(name), std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    }
    std::fs::set_permissions(source.join("root"), std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    program.run(["mkfs", "-q", "-b", "256M", "--rootdir"]).arg(&source).arg(&image).ok()?;
    std::os::unix::fs::chown(&image, Some(65534), Some(65534))?;
    let refused = as_nobody(&dir).args(["mount", "-o", "fakeroot,allow_other"]).arg(&image).arg(&dir);
    expect_refusal(refused, &["fakeroot", "allow_other"])?;
    let run =
        Run::new("unshare").args(["--mount", "--propagation", "private", "sh", "-c", FAKEROOT]).within(&dir);
    let said = run.ok()?.stdout_text();
    let wanted = "text\nmore\nCreate subvolume 'mnt/etc/sub'\n0:0:755\n7:8:600\n0:0:644\n0:0:0\n0:0:755\n";
    ensure!(said == wanted, "{said}");
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    let owner = |name: &str| std::fs::metadata(mount.dir().join(name)).map(|meta| (meta.uid(), meta.gid()));
    for (name, wanted) in
        [("etc/shadow", (0, 0)), ("root/made", (0, 0)), ("root/made/file", (7, 8)), ("etc/sub", (0, 0))]
    {
        ensure!(owner(name)? == wanted, "{name}: {:?}", owner(name)?);
    }
    ensure!(std::fs::read(mount.dir().join("etc/shadow"))? == b"text\nmore\n", "what was written");
    mount.unmount()?;
    btrfs_check(&image)
}

/// Unmounting another user's mount is refused for lack of permission, not as "in use".
fn unmounts(bench: &Bench) -> Result<()> {
    let (dir, program) = place(bench)?;
    let (image, point) = (bench.scratch.file("disk.img"), dir.join("mnt"));
    mkfs_empty(&program, &[], "256M", &image)?;
    let mount = FuseMount::mount(&program, &image, &point, "allow_other")?;
    expect_refusal(as_nobody(&dir).arg("umount").arg(&point), &["not permitted"])?;
    ensure!(mount.dir().join(".").exists(), "it is unmounted");
    mount.unmount()
}

/// The server of a user answers no request of root, and without the root directory of its mount no control reaches it. The last command
/// unmounts the mounts that can be reached.
const UNASKED: &str = r#"
set -e
mkdir dev && mount -t tmpfs -o mode=755 tmpfs dev
mknod dev/fuse c 10 229 && chmod 666 dev/fuse && mount --bind dev/fuse /dev/fuse
nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"; }
nobody mkdir mnt empty
nobody ./creamery mkfs -q -b 256M --rootdir empty disk.img
nobody ./creamery mount disk.img mnt
nobody touch mnt/file
status=0; ./creamery umount mnt || status=$?
echo "root: $status, mounted: $(grep -c " $PWD/mnt " /proc/self/mounts)"
nobody ./creamery mount disk.img mnt
mount -i -c -o remount,ro "$PWD/mnt"
status=0; ./creamery umount mnt || status=$?
echo "root, read-only by now: $status, mounted: $(grep -c " $PWD/mnt " /proc/self/mounts)"
nobody ./creamery mount -o ro disk.img mnt
status=0; ./creamery umount mnt || status=$?
echo "root, read-only: $status, mounted: $(grep -c " $PWD/mnt " /proc/self/mounts)"
nobody ./creamery mount disk.img mnt
nobody chmod 300 mnt
status=0; nobody ./creamery umount mnt || status=$?
echo "nobody: $status, mounted: $(grep -c " $PWD/mnt " /proc/self/mounts)"
nobody ./creamery chmod 755 disk.img:/
nobody ./creamery mount disk.img mnt
nobody ./creamery umount mnt
"#;

fn unasked(bench: &Bench) -> Result<()> {
    let (dir, _) = place(bench)?;
    let run =
        Run::new("unshare").args(["--mount", "--propagation", "private", "sh", "-c", UNASKED]).within(&dir);
    let said = run.ok()?;
    let (out, why) = (said.stdout_text(), said.stderr_text());
    let want = "root: 1, mounted: 0\nroot, read-only by now: 1, mounted: 0\nroot, read-only: 0, mounted: 0\nnobody: 1, mounted: 0\n";
    ensure!(out == want, "{said}");
    let lines: Vec<&str> = why.lines().collect();
    let says = |line: &&str| line.contains("is unmounted, but") && line.contains("may not be durable");
    ensure!(lines.len() == 3 && lines.iter().all(says), "{said}");
    btrfs_check(&dir.join("disk.img"))
}

fn unreadable_file(bench: &Bench) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let (dir, _) = place(bench)?;
    let source = bench.scratch.dir("source")?;
    std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o755))?;
    std::fs::write(source.join("open"), b"open")?;
    std::fs::write(source.join("secret"), b"secret")?;
    std::fs::set_permissions(source.join("secret"), std::fs::Permissions::from_mode(0o600))?;
    let image = dir.join("disk.img");
    let run = as_nobody(&dir).args(["mkfs", "--rootdir"]).arg(&source).arg(&image);
    expect_refusal(run, &["secret", "permission denied"])?;
    ensure!(!image.exists(), "a failed build left an image");
    Ok(())
}
