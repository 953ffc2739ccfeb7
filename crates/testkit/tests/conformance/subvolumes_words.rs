//! What the commands of subvolumes make of several words, of words that name nothing, and of what a live mount cannot tell.

use std::path::Path;

use anyhow::{Result, ensure};
use creamery_testkit::FuseMount;
use creamery_testkit::harness::{Bench, Case};

use crate::support::{JUDGED, MOUNTED, inside, judge_mount, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("subvolumes/those-behind-a-failure", &JUDGED, behind_a_failure),
        Case::new("subvolumes/true-reasons", &MOUNTED, true_reasons),
        Case::new("subvolumes/properties-of-a-live-mount", &MOUNTED, properties),
    ]
}

/// What the program says on stderr; its status is 1.
fn refused(bench: &Bench, words: &[&str], at: &[&Path]) -> Result<String> {
    let output = bench.creamery().run(words.iter().copied()).args(at).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.code == Some(1), "{words:?}: {:?}, {said}", output.code);
    Ok(said)
}

/// As btrfs-progs: what comes behind a word that fails is done, each failure is a line, and the status is 1.
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
    for (id, why) in [("5", "the top level"), ("999", "subvolume list")] {
        let said = refused(bench, &["subvolume", "delete", "-i", id], &[&image])?;
        ensure!(said.contains(why) && !said.contains("in use") && !said.contains("check the path"), "{said}");
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
        ensure!(all == if path.is_dir() { "ro=false\n" } else { "" }, "{}: {all}", path.display());
    }
    let said = refused(bench, &["property", "get"], &[&work.join("file"), Path::new("ro")])?;
    ensure!(said.contains("not the root of a subvolume"), "{said}");
    let said = refused(bench, &["property", "get"], &[&work, Path::new("label")])?;
    ensure!(said.contains("a live mount does not tell the label"), "{said}");
    // An image that somebody keeps on a mount is an image.
    let inner = work.join("inner.img");
    mkfs_empty(bench.creamery(), &["-L", "inner"], "128M", &inner)?;
    ensure!(told(["property", "get"], &inner)?.contains("label=inner\n"), "an image in an image");
    judge_mount(bench, &image, mount)
}
