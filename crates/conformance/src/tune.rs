//! `btrfstune`: compares the results of ours and of btrfs-progs on two copies of an image.

use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{Judge, LoopMount, Run, btrfs_check};

use crate::support::{
    JUDGED, expect_refusal, expect_untouched, inside, mkfs_empty, sparse_file, torture_source,
};

pub(crate) fn cases() -> Vec<Case> {
    let judged = [&JUDGED[..], &[Judge::Tool("btrfstune")]].concat();
    vec![
        Case::new("tune/as-btrfstune", &judged, as_btrfstune),
        Case::new("tune/used-after-it", &judged, used_after_it),
        Case::new("tune/converted", &judged, converted),
        Case::new("tune/refused", &judged, refused),
        Case::new("tune/cut-off", &judged, cut_off),
    ]
}

const UUID: &str = "5c0ac001-1111-4222-8333-123456789abc";

/// An image without these features, with some files.
fn old_image(bench: &Bench, name: &str) -> Result<std::path::PathBuf> {
    let image = bench.scratch.file(name);
    sparse_file(&image, 256 << 20)?;
    Run::new("mkfs.btrfs").args(["-q", "-O", "^extref,^skinny-metadata,^no-holes"]).arg(&image).ok()?;
    Ok(image)
}

/// The content of the superblock, without the fields that every commit changes (ours makes no commit).
fn told(image: &Path) -> Result<String> {
    let said = Run::new("btrfs").args(["inspect-internal", "dump-super"]).arg(image).ok()?.stdout_text();
    let changes =
        ["superblock:", "csum\t", "generation", "root\t", "cache_generation", "bytes_used", "uuid_tree"];
    let lines = said.lines().filter(|line| !changes.iter().any(|start| line.starts_with(start)));
    Ok(lines.map(|line| format!("{line}\n")).collect())
}

fn as_btrfstune(bench: &Bench) -> Result<()> {
    let (ours, theirs) = (old_image(bench, "ours.img")?, bench.scratch.file("theirs.img"));
    let link = bench.scratch.file("btrfstune");
    symlink(bench.creamery().path(), &link)?;
    Run::new("cp").arg("--sparse=always").arg(&ours).arg(&theirs).ok()?;
    let first = told(&ours)?;
    let of_blocks = first.lines().find_map(|line| line.strip_prefix("fsid")).unwrap_or_default().trim();
    for words in [
        &["-r"][..],
        &["-x", "-n"],
        &["-x"],
        &["-S", "1"],
        &["-S", "1"],
        &["-m"],
        &["-r"],
        &["-f", "-S", "0"],
        &["-f", "-S", "0"],
        &["-M", UUID],
        &["-S", "1"],
        &["-n"],
        &["-M", "5c0ac001-1111-4222-8333-ffffffffffff"],
        &["-M", of_blocks],
        &["-M", "no UUID"],
        &["-r", "-m"],
        &[],
    ] {
        let by_ours = Run::new(&link).args(words).arg(&ours).output()?;
        let by_theirs = Run::new("btrfstune").args(words).arg(&theirs).output()?;
        ensure!(by_ours.code == by_theirs.code, "{words:?}: {by_ours}\nbtrfs-progs: {by_theirs}");
        let (found, wanted) = (told(&ours)?, told(&theirs)?);
        ensure!(found == wanted, "{words:?}:\n{found}\nbtrfs-progs:\n{wanted}");
        btrfs_check(&ours)?;
        bench.creamery().run(["check"]).arg(&ours).ok()?;
        for copy in ["0", "1"] {
            let dump = ["inspect-internal", "dump-super", "-s", copy];
            let said = Run::new("btrfs").args(dump).arg(&ours).ok()?.stdout_text();
            ensure!(said.contains("[match]"), "copy {copy}: {said}");
        }
    }
    ensure!(told(&ours)? != first, "nothing was changed");
    Ok(())
}

/// Old files are there; Linux and we write more, with the new features and with the new UUID.
fn used_after_it(bench: &Bench) -> Result<()> {
    let image = old_image(bench, "disk.img")?;
    let (source, want) = torture_source(bench)?;
    let before = bench.scratch.dir("before")?;
    std::fs::write(before.join("small"), "small")?;
    std::fs::write(before.join("large"), vec![7; 3 << 20])?;
    std::fs::File::create(before.join("hole"))?.set_len(1 << 20)?;
    bench.creamery().run(["cp", "-a"]).arg(&before).arg(inside(&image, "/before")).ok()?;
    // More names of one file than an item holds.
    let too_many =
        bench.creamery().run(["cp", "-a"]).arg(&source).arg(inside(&image, "/refused")).output()?;
    ensure!(too_many.code == Some(1), "without extref: {too_many}");
    bench.creamery().run(["rm", "-r"]).arg(inside(&image, "/refused")).ok()?;
    bench.creamery().run(["tune", "-r", "-x", "-n"]).arg(&image).ok()?;
    bench.creamery().run(["tune", "-m"]).arg(&image).ok()?;
    bench.creamery().run(["cp", "-a"]).arg(&source).arg(inside(&image, "/ours")).ok()?;
    btrfs_check(&image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    Run::new("cp").arg("-a").arg(&source).arg(mount.dir().join("theirs")).ok()?;
    for (name, want) in [("before", &Walk::take(&before)?), ("ours", &want), ("theirs", &want)] {
        // cp may write the holes.
        let compare = Compare { holes: name != "theirs", ..Compare::default() };
        expect_same(name, want, &Walk::take(&mount.dir().join(name))?, &compare)?;
    }
    mount.unmount()?;
    bench.creamery().run(["tune", "-S", "1"]).arg(&image).output().and_then(|run| {
        ensure!(run.code == Some(1), "a seed whose UUID was changed: {run}");
        Ok(())
    })?;
    bench.creamery().run(["check", "--check-data-csum"]).arg(&image).ok()?;
    btrfs_check(&image)
}

/// A filesystem without these trees gets them, as by btrfstune, and gives one of them up; Linux and we go on with it. One of its block
/// groups has bitmaps of free space, and Linux left space caches of the old kind (v1).
fn converted(bench: &Bench) -> Result<()> {
    let (ours, theirs) = (bench.scratch.file("ours.img"), bench.scratch.file("theirs.img"));
    sparse_file(&ours, 512 << 20)?;
    let old = ["-q", "-d", "single", "-O", "^free-space-tree,^block-group-tree,^no-holes"];
    Run::new("mkfs.btrfs").args(old).arg(&ours).ok()?;
    let at = bench.scratch.file("kernel");
    let mount = LoopMount::mount(&ours, &at, "space_cache=v1,max_inline=0")?;
    for number in 0..6000 {
        std::fs::write(mount.dir().join(format!("{number:04}")), vec![number as u8; 4096])?;
    }
    Run::new("sync").arg("-f").arg(mount.dir()).ok()?;
    for number in (0..6000).step_by(2) {
        std::fs::remove_file(mount.dir().join(format!("{number:04}")))?;
    }
    Run::new("sync").arg("-f").arg(mount.dir()).ok()?;
    let want = Walk::take(mount.dir())?;
    mount.unmount()?;
    Run::new("cp").arg("--sparse=always").arg(&ours).arg(&theirs).ok()?;
    let (to_free_space, to_groups, from_groups) =
        ("--convert-to-free-space-tree", "--convert-to-block-group-tree", "--convert-from-block-group-tree");
    let mut bitmaps = 0;
    for words in [
        &[from_groups][..],
        &[to_groups],
        &[to_free_space],
        &[to_free_space],
        &["-n"],
        &[to_groups],
        &[to_groups],
        &[from_groups],
        &[to_groups],
    ] {
        let by_ours = bench.creamery().run(["tune"]).args(words).arg(&ours).output()?;
        let by_theirs = Run::new("btrfstune").args(words).arg(&theirs).output()?;
        ensure!(by_ours.code == by_theirs.code, "{words:?}: {by_ours}\nbtrfs-progs: {by_theirs}");
        ensure!(by_ours.stdout_text() == by_theirs.stdout_text(), "{words:?}: {by_ours}\n{by_theirs}");
        let (found, wanted) = (told(&ours)?, told(&theirs)?);
        ensure!(found == wanted, "{words:?}:\n{found}\nbtrfs-progs:\n{wanted}");
        btrfs_check(&ours)?;
        bench.creamery().run(["check", "--check-data-csum"]).arg(&ours).ok()?;
        let dump = ["inspect-internal", "dump-tree", "-t", "free-space"];
        let free = Run::new("btrfs").args(dump).arg(&ours).output()?.stdout_text();
        bitmaps = bitmaps.max(free.matches("FREE_SPACE_BITMAP").count());
        let mount = LoopMount::mount(&ours, &at, "ro")?;
        expect_same("converted", &want, &Walk::take(mount.dir())?, &Compare::default())?;
        mount.unmount()?;
    }
    ensure!(bitmaps > 0, "nothing was so scattered that bitmaps tell it");
    let (source, torture) = torture_source(bench)?;
    bench.creamery().run(["cp", "-a"]).arg(&source).arg(inside(&ours, "/ours")).ok()?;
    btrfs_check(&ours)?;
    let mount = LoopMount::mount(&ours, &at, "")?;
    Run::new("cp").arg("-a").arg(&source).arg(mount.dir().join("theirs")).ok()?;
    expect_same("ours", &torture, &Walk::take(&mount.dir().join("ours"))?, &Compare::default())?;
    mount.unmount()?;
    btrfs_check(&ours)
}

/// Linux mounts a seed for reading, and our commands do not write it. An option for a missing feature names it and changes nothing.
fn refused(bench: &Bench) -> Result<()> {
    let image = old_image(bench, "disk.img")?;
    let run = |words: &[&str]| bench.creamery().run(["tune"]).args(words).arg(&image);
    run(&["-S", "1"]).ok()?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    mount.unmount()?;
    expect_untouched(&image, || {
        expect_refusal(bench.creamery().run(["mkdir"]).arg(inside(&image, "/made")), &["SEEDING"])?;
        for (words, said) in [
            (&["-S", "0"][..], &["disk.img", "-f"][..]),
            (&["-m"], &["disk.img", "seed"]),
            (&["-M", "00000000-0000-0000-0000-000000000000"], &["zero"]),
            (&["--csum", "sha256"], &["--csum", "btrfs-progs"]),
            (&["--enable-simple-quota"], &["quota enable --simple"]),
        ] {
            expect_refusal(run(words), said)?;
        }
        Ok(())
    })?;
    run(&["-f", "-S", "0"]).ok()?;
    bench.creamery().run(["mkdir"]).arg(inside(&image, "/made")).ok()?;
    btrfs_check(&image)
}

/// A cut behind the first superblock, whose UUID counts: the other copy is taken for the filesystem's own, and is written anew. The UUID of
/// a mounted filesystem is refused.
fn cut_off(bench: &Bench) -> Result<()> {
    let (image, before) = (bench.scratch.file("disk.img"), bench.scratch.file("before.img"));
    mkfs_empty(bench.creamery(), &[], "128M", &image)?;
    std::fs::copy(&image, &before)?;
    bench.creamery().run(["tune", "-m"]).arg(&image).ok()?;
    let copy = "dd bs=4096 count=1 skip=16384 seek=16384 conv=notrunc status=none if=\"$0\" of=\"$1\"";
    Run::new("sh").args(["-c", copy]).arg(&before).arg(&image).ok()?;
    bench.creamery().run(["rescue", "super-recover", "-y"]).arg(&image).output()?;
    let found = bench.creamery().run(["rescue", "super-recover"]).arg(&image).ok()?.stdout_text();
    ensure!(found.contains("All supers are valid"), "{found}");
    btrfs_check(&image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    let uuid = Run::new("findmnt").args(["-no", "UUID"]).arg(mount.dir()).ok()?.stdout_text();
    for option in ["-M", "-U"] {
        let again = bench.creamery().run(["tune", "-f", option, uuid.trim()]).arg(&before);
        expect_refusal(again, &[uuid.trim(), "is mounted"])?;
    }
    mount.unmount()
}
