//! Words of `creamery restore` beside those of `btrfs restore`: patterns, lists of roots, attributes, snapshots with subvolumes in them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, LoopMount, Run};

use crate::support::{MOUNTED, expect_refusal, flip_byte, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let with_xattrs = [&MOUNTED[..], &[Judge::Tool("setfattr"), Judge::Tool("getfattr")]].concat();
    vec![
        Case::new("restore/patterns", &MOUNTED, patterns),
        Case::new("restore/some-roots-are-lost", &MOUNTED, some_roots_are_lost),
        Case::new("restore/attributes-of-all-namespaces", &with_xattrs, attributes),
        Case::new("restore/subvolumes-within-snapshots", &MOUNTED, within_snapshots),
    ]
}

fn made(bench: &Bench, options: &[&str], fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), options, "256M", &image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "nodiscard,commit=300")?;
    fill(mount.dir())?;
    mount.unmount()?;
    Ok(image)
}

fn subvolumes(within: &Path, words: &[&str]) -> Result<()> {
    Run::new("btrfs").arg("subvolume").args(words).within(within).ok().map(drop)
}

/// What a program restores with these words, and how it ends.
fn restored(run: Run, bench: &Bench, image: &Path, words: &[&str]) -> Result<(Option<i32>, Vec<String>)> {
    let out = bench.scratch.file("out");
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir(&out)?;
    let code = run.args(words).args([image, &out]).output()?.code;
    let found = Run::new("find").args([".", "-mindepth", "1"]).within(&out).ok()?.stdout_text();
    let mut found: Vec<String> = found.lines().map(str::to_owned).collect();
    found.sort();
    Ok((code, found))
}

fn patterns(bench: &Bench) -> Result<()> {
    let image = made(bench, &[], |dir| {
        for path in ["home/user/deep", "home/other", "var/home"] {
            fs::create_dir_all(dir.join(path))?;
            fs::write(dir.join(path).join("file.txt"), "text")?;
        }
        Ok(fs::write(dir.join("top"), "text")?)
    })?;
    // From the start or anywhere, to the end or not; what is no pattern.
    for (pattern, more) in [
        ("^/(|home(|/user(|/.*)))$", &[][..]),
        ("^/(|HOME(|/User(|/.*)))$", &[]),
        ("^/(|HOME(|/User(|/.*)))$", &["-c"]),
        ("/home", &[]),
        ("home", &[]),
        ("^/home", &[]),
        ("^home", &[]),
        ("home$", &[]),
        ("/|/home.*", &[]),
        ("^/(|h[a-n]+e(|/.*))$", &[]),
        ("^/(|[[:lower:]]+(|/.*))$", &[]),
        ("^/(|ho?me(|/o{1}ther(|/file\\.txt)))$", &[]),
        ("^/(|top)$", &[]),
        ("", &[]),
        (".", &[]),
        ("^$", &[]),
        ("(", &[]),
        ("*", &[]),
        ("[", &[]),
        ("a{2", &[]),
    ] {
        let words = [more, &["--path-regex", pattern]].concat();
        let theirs = restored(Run::new("btrfs").arg("restore"), bench, &image, &words)?;
        let ours = restored(bench.creamery().run(["restore"]), bench, &image, &words)?;
        ensure!(ours == theirs, "{words:?}: {ours:?}\nbtrfs restore: {theirs:?}");
    }
    Ok(())
}

/// What can be read of the root tree is listed, and what cannot is no success.
fn some_roots_are_lost(bench: &Bench) -> Result<()> {
    let names: Vec<String> = (0..40).map(|number| format!("s{number}")).collect();
    let image = made(bench, &["-m", "single", "-n", "4096"], |dir| {
        subvolumes(dir, &[&["create"][..], &names.iter().map(String::as_str).collect::<Vec<_>>()].concat())
    })?;
    let list = || bench.creamery().run(["restore", "-l"]).arg(&image);
    let all = list().ok()?.stdout_text();
    let tree = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "1"]).arg(&image).ok()?;
    let tree = tree.stdout_text();
    let mut leaves =
        tree.lines().filter_map(|line| line.strip_prefix("leaf ")?.split(' ').next()?.parse().ok());
    flip_byte(&image, leaves.next_back().context("a leaf")?)?;
    let some = list().output()?;
    let (listed, said) = (some.stdout_text(), some.stderr_text());
    ensure!(some.code == Some(1), "{some}");
    ensure!(listed.contains("FS_TREE") && listed.len() < all.len() && all.starts_with(&listed), "{some}");
    ensure!(said.lines().count() == 1 && said.contains("the root tree is only partly readable"), "{some}");
    // Another copy of the superblock than that which is wanted is not taken by itself, but named.
    flip_byte(&image, 0x10000 + 300)?;
    expect_refusal(list().args(["-u", "0"]), &["superblock copy 0", "omit -u"])?;
    ensure!(list().args(["-u", "1"]).output()?.stdout_text() == listed, "another root tree");
    Ok(())
}

/// Capabilities, ACLs, and what only root sees.
fn attributes(bench: &Bench) -> Result<()> {
    let image = made(bench, &[], |dir| {
        fs::write(dir.join("file"), "text")?;
        let capability = "0x0100000200200000000000000000000000000000";
        let acl =
            "0x0200000001000600ffffffff02000400e803000004000400ffffffff10000400ffffffff20000400ffffffff";
        for (name, value) in [
            ("security.capability", capability),
            ("security.other", "0x31"),
            ("trusted.of", "0x32"),
            ("user.of", "0x33"),
            ("system.posix_acl_access", acl),
        ] {
            Run::new("setfattr").args(["-n", name, "-v", value]).arg(dir.join("file")).ok()?;
        }
        Ok(())
    })?;
    for words in [&["-x"][..], &["-x", "-m"], &[]] {
        let [theirs, ours] =
            [Run::new("btrfs").arg("restore"), bench.creamery().run(["restore"])].map(|run| {
                restored(run, bench, &image, words)?;
                let all = Run::new("getfattr").args(["-R", "-d", "-m", "-", "-e", "hex", "."]);
                Ok::<_, anyhow::Error>(all.within(bench.scratch.file("out")).ok()?.stdout_text())
            });
        let (theirs, ours) = (theirs?, ours?);
        ensure!(ours == theirs, "{words:?}: {ours}\nbtrfs restore:\n{theirs}");
        ensure!(words.is_empty() || ours.contains("security.capability"), "{words:?}: {ours}");
    }
    // Those of directories come along, too.
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    fs::create_dir(mount.dir().join("folder"))?;
    Run::new("setfattr").args(["-n", "trusted.of", "-v", "4"]).arg(mount.dir().join("folder")).ok()?;
    mount.unmount()?;
    restored(bench.creamery().run(["restore"]), bench, &image, &["-x"])?;
    let value = Run::new("getfattr").args(["-n", "trusted.of", "--only-values", "folder"]);
    ensure!(value.within(bench.scratch.file("out")).ok()?.stdout == b"4", "not that of a directory");
    Ok(())
}

/// A snapshot has an empty directory where a subvolume was. `btrfs restore` shows there what the subvolume has by now.
fn within_snapshots(bench: &Bench) -> Result<()> {
    let image = made(bench, &[], |dir| {
        subvolumes(dir, &["create", "one", "one/nested"])?;
        fs::write(dir.join("one/file"), "text")?;
        fs::write(dir.join("one/nested/file"), "text")?;
        subvolumes(dir, &["snapshot", "one", "before"])
    })?;
    let theirs = restored(Run::new("btrfs").arg("restore"), bench, &image, &["-s"])?;
    let ours = restored(bench.creamery().run(["restore"]), bench, &image, &["-s"])?;
    let mut wanted = theirs.1.clone();
    wanted.retain(|path| path != "./before/nested/file");
    ensure!(ours == (theirs.0, wanted), "{ours:?}\nbtrfs restore: {theirs:?}");
    ensure!(ours.1.iter().any(|path| path == "./one/nested/file"), "{ours:?}");
    Ok(())
}
