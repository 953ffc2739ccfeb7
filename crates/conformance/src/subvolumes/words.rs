//! Commands of subvolumes with several operands, with operands that do not exist, and with questions that a live mount cannot answer.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Run};

use crate::support::{JUDGED, MOUNTED, expect_refusal, inside, judge_mount, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("subvolumes/those-behind-a-failure", &JUDGED, behind_a_failure),
        Case::new("subvolumes/true-reasons", &MOUNTED, true_reasons),
        Case::new("subvolumes/what-stays-keeps-all-in-it", &MOUNTED, what_stays),
        Case::new("subvolumes/properties-of-a-live-mount", &MOUNTED, properties),
    ]
}

/// The message on stderr; the status must be 1.
fn refused(bench: &Bench, words: &[&str], at: &[&Path]) -> Result<String> {
    let output = bench.creamery().run(words.iter().copied()).args(at).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.code == Some(1), "{words:?}: {:?}, {said}", output.code);
    Ok(said)
}

/// As in btrfs-progs, operands behind a failing one are carried out, each failure is a line, and the status is 1.
fn behind_a_failure(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("ours.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let at = |path: &str| inside(&image, path);
    let create = |paths: &[&str]| {
        bench.creamery().run(["subvolume", "create"]).args(paths.iter().map(|path| at(path))).output()
    };
    ensure!(create(&["/a", "/c", "/d"])?.code == Some(0), "all are made");
    let said = create(&["/e", "/a", "/c", "/f"])?;
    let lines = String::from_utf8_lossy(&said.stderr).lines().count();
    ensure!(said.code == Some(1) && lines == 2, "{}", String::from_utf8_lossy(&said.stderr));
    let paths = ["/a", "/nope", "/c", "/e"].map(at);
    let said = bench.creamery().run(["subvolume", "delete"]).args(paths).output()?;
    ensure!(said.code == Some(1), "one is not there");
    let listed = bench.creamery().run(["ls"]).arg(at("/")).ok()?.stdout_text();
    ensure!(listed.split_whitespace().eq(["d", "f"]), "{listed}");
    creamery_testkit::btrfs_check(&image)
}

fn true_reasons(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("ours.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    bench.creamery().run(["subvolume", "create"]).arg(inside(&image, "/a")).ok()?;
    for (id, why) in [("5", "the top-level"), ("999", "subvolume list")] {
        let said = refused(bench, &["subvolume", "delete", "-i", id], &[&image])?;
        ensure!(said.contains(why) && !said.contains("in use") && !said.contains("check the path"), "{said}");
    }
    let numbers: [&[&str]; 7] = [
        &["subvolume", "show", "-r", "999"],
        &["subvolume", "set-default", "999"],
        &["inspect-internal", "logical-resolve", "5"],
        &["inspect-internal", "inode-resolve", "999"],
        &["inspect-internal", "subvolid-resolve", "999"],
        &["inspect-internal", "dump-tree", "-t", "999"],
        &["ls", "--subvolid", "999"],
    ];
    for words in numbers {
        let said = refused(bench, words, &[&image])?;
        ensure!(said.contains("check the number") && !said.contains("check the path"), "{words:?}: {said}");
    }
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "")?;
    for command in ["create", "delete"] {
        for end in ["", ".", "a/.."] {
            let said = refused(bench, &["subvolume", command], &[&mount.dir().join(end)])?;
            ensure!(said.contains("the root of the mount"), "{command} {end}: {said}");
        }
    }
    judge_mount(bench, &image, mount)
}

fn properties(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("ours.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "")?;
    let work = mount.dir().join("work");
    bench.creamery().run(["subvolume", "create"]).arg(&work).ok()?;
    std::fs::write(work.join("file"), "content")?;
    let told = |words: [&str; 2], path: &Path| -> Result<String> {
        Ok(bench.creamery().run(words).arg(path).ok()?.stdout_text())
    };
    ensure!(told(["property", "get"], &work)? == "ro=false\n", "all of a subvolume");
    ensure!(told(["property", "list"], &work)?.starts_with("ro "), "which there are");
    for path in [work.join("file"), mount.dir().to_owned()] {
        let all = told(["property", "get"], &path)?;
        ensure!(all == if path.is_dir() { "ro=false\nlabel=\n" } else { "" }, "{}: {all}", path.display());
    }
    let said = refused(bench, &["property", "get"], &[&work.join("file"), Path::new("ro")])?;
    ensure!(said.contains("has no property ro"), "{said}");
    let said = refused(bench, &["property", "get"], &[&work, Path::new("label")])?;
    ensure!(said.contains("has no property label"), "{said}");
    on_a_mount(bench, &work)?;
    // An image on a mount is still an image.
    let inner = work.join("inner.img");
    mkfs_empty(bench.creamery(), &["-L", "inner"], "128M", &inner)?;
    ensure!(told(["property", "get"], &inner)?.contains("label=inner\n"), "an image in an image");
    judge_mount(bench, &image, mount)
}

/// Deleting a plain directory, the default subvolume or the top level recursively fails and deletes nothing.
fn what_stays(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("ours.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let at = |path: &str| inside(&image, path);
    bench.creamery().run(["subvolume", "create"]).args(["/a", "/a/b", "/a/b/c"].map(at)).ok()?;
    bench.creamery().run(["mkdir"]).arg(at("/a/dir")).ok()?;
    let all = |image: &Path| -> Result<usize> {
        Ok(bench.creamery().run(["subvolume", "list"]).arg(image).ok()?.stdout_text().lines().count())
    };
    let delete = |words: &[&str], place: &OsStr, why: &str| -> Result<()> {
        let words = [&["subvolume", "delete", "-R"], words].concat();
        expect_refusal(bench.creamery().run(words).arg(place), &[why])
    };
    let number = |of: &str| -> Result<String> {
        let said = bench.creamery().run(["subvolume", "show", "--json"]).arg(at(of)).ok()?.stdout_text();
        Ok(serde_json::from_str::<serde_json::Value>(&said)?["id"].to_string())
    };
    let (a, b) = (number("/a")?, number("/a/b")?);
    delete(&[], &at("/a/dir"), "not the root of a subvolume")?;
    delete(&["-i", "5"], image.as_os_str(), "cannot delete the top-level")?;
    bench.creamery().run(["subvolume", "set-default", &b]).arg(&image).ok()?;
    for view in ["5", &a, &b] {
        delete(&["--subvolid", view, "-i", &a], image.as_os_str(), "")?;
        delete(&["--subvolid", view, "-i", &b], image.as_os_str(), "set another default first")?;
        delete(&["--subvolid", view, "-i", "5"], image.as_os_str(), "cannot delete the top-level")?;
    }
    ensure!(all(&image)? == 3, "in the image");
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "subvolid=5")?;
    let dir = mount.dir();
    std::fs::write(dir.join("a/precious"), "")?;
    delete(&[], dir.join("a/dir").as_os_str(), "not a subvolume")?;
    delete(&[], dir.join("a").as_os_str(), "set another default first")?;
    delete(&["-i", &a], dir.as_os_str(), "set another default first")?;
    delete(&["-i", "5"], dir.as_os_str(), "is mounted")?;
    ensure!(all(dir)? == 3 && dir.join("a/precious").is_file(), "on the mount");
    bench.creamery().run(["subvolume", "set-default", "5"]).arg(dir).ok()?;
    bench.creamery().run(["subvolume", "delete", "-R"]).arg(dir.join("a")).ok()?;
    ensure!(all(dir)? == 0, "all of it");
    judge_mount(bench, &image, mount)
}

/// A path on a live mount is not taken for an image.
fn on_a_mount(bench: &Bench, work: &Path) -> Result<()> {
    let rows: [(&[&str], &str, &[&str], &str); 15] = [
        (&["property", "get"], "/proc", &[], "not on a Btrfs mount"),
        (&["property", "get"], "file", &["ro"], "has no property ro"),
        (&["property", "set"], "file", &["ro", "true"], "has no property ro"),
        (&["property", "set"], "file", &["compression", "gzip"], "invalid compression"),
        (&["property", "set"], "", &["label", "new"], "has no property label"),
        (&["subvolume", "show"], "file", &[], "not the root of a subvolume"),
        (&["subvolume", "find-new"], "file", &["0"], "not the root of a subvolume"),
        (&["subvolume", "set-default"], "file", &[], "not the root of a subvolume"),
        (&["subvolume", "snapshot"], "file", &["/new"], "not the root of a subvolume"),
        (&["subvolume", "delete"], "file", &[], "not a directory"),
        (&["ls"], "", &[], "on a live mount, expected an image"),
        (&["cat"], "file", &[], "on a live mount, expected an image"),
        (&["mkdir"], "new", &[], "on a live mount, expected an image"),
        (&["df"], "file", &[], "on a live mount, expected an image"),
        (&["dedupe"], "", &[], "on a live mount, expected an image"),
    ];
    for (words, name, last, why) in rows {
        let run = bench.creamery().run(words).arg(work.join(name)).args(last);
        expect_refusal(run, &[why]).with_context(|| format!("{words:?} {name} {last:?}"))?;
    }
    // These commands work on a mount as well.
    for words in [&["subvolume", "list"][..], &["subvolume", "get-default"], &["subvolume", "sync"]] {
        bench.creamery().run(words).arg(work.join("file")).ok()?;
    }
    Run::new("mkfifo").arg(work.join("pipe")).ok()?;
    let run = bench.creamery().run(["property", "get"]).arg(work.join("pipe"));
    expect_refusal(run, &["neither a file nor a directory"])
}
