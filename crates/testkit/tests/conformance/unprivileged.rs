//! The same for somebody who is not root: images from a tree one may read, and mounts through fusermount3.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{Judge, Program, Run, tree};

use crate::support::{JUDGED, judge};

const NOBODY: u32 = 65_534;

pub(crate) fn cases() -> Vec<Case> {
    let tools = [Judge::Tool("setpriv")];
    let with_fuse = [Judge::Tool("setpriv"), Judge::Fuse, Judge::Fusermount];
    vec![
        Case::new("unprivileged/mkfs-keeps-owners", &[&JUDGED[..], &tools].concat(), keeps_owners),
        Case::new("unprivileged/mount", &[&JUDGED[..], &with_fuse].concat(), mounts),
        Case::new("bad-input/unreadable-file", &[&JUDGED[..], &tools].concat(), unreadable_file),
    ]
}

/// A folder that nobody (the user) owns, with a copy of the program: the real one may lie where nobody may look.
fn place(bench: &Bench) -> Result<(PathBuf, Program)> {
    use std::os::unix::fs::{PermissionsExt, chown};
    let dir = bench.scratch.dir("place")?;
    let copy = dir.join("creamery");
    std::fs::copy(bench.creamery().path(), &copy)?;
    for path in [bench.scratch.path(), &dir] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    }
    chown(&dir, Some(NOBODY), Some(NOBODY))?;
    Ok((dir, bench.creamery().clone()))
}

fn as_nobody(dir: &Path) -> Run {
    let run = Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    run.arg(dir.join("creamery"))
}

fn keeps_owners(bench: &Bench) -> Result<()> {
    let (dir, _) = place(bench)?;
    let source = bench.scratch.dir("source")?;
    tree::torture(&source, true)?;
    // What nobody may not read is not part of this case; nor are xattrs that only root sees.
    Run::new("chmod").args(["-R", "a+rX", "--"]).arg(&source).ok()?;
    let image = dir.join("disk.img");
    as_nobody(&dir).args(["mkfs", "--rootdir"]).arg(&source).arg(&image).ok()?;
    let unseen = Compare { xattrs_not: &["trusted.", "security.", "btrfs."], ..Compare::default() };
    judge(bench, &image, &Walk::take(&source)?, &unseen)
}

fn mounts(bench: &Bench) -> Result<()> {
    let (dir, _) = place(bench)?;
    let (image, point) = (dir.join("disk.img"), dir.join("mnt"));
    let nobody = |program: &str| {
        Run::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--", program])
            .within(&dir)
    };
    nobody("mkdir").arg(&point).arg(dir.join("empty")).ok()?;
    as_nobody(&dir).args(["mkfs", "-b", "256M", "--rootdir"]).arg(dir.join("empty")).arg(&image).ok()?;
    as_nobody(&dir).arg("mount").arg(&image).arg(&point).ok()?;
    let script = "cd mnt && mkdir a && printf content > a/file && ln a/file a/link && cat a/link && stat -c %u:%g a/file";
    let said = nobody("sh").args(["-c", script]).output()?;
    let closed = as_nobody(&dir).arg("umount").arg(&point).ok();
    ensure!(said.stdout_text() == "content65534:65534\n", "working on the mount: {said}");
    closed?;
    let wanted = dir.join("want");
    let script = "mkdir want && cd want && mkdir a && printf content > a/file && ln a/file a/link";
    nobody("sh").args(["-c", script]).ok()?;
    judge(bench, &image, &Walk::take(&wanted)?, &Compare { mtime: false, ..Compare::default() })?;
    expect_same(
        "nothing is left on the mount point",
        &Walk::take(&point)?,
        &Walk::take(&point)?,
        &Compare::default(),
    )
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
    crate::support::expect_refusal(run, &["secret", "permission denied"])?;
    ensure!(!image.exists(), "a failed build left an image");
    Ok(())
}
