//! Subvolumes that are renamed within their subvolume and out of it, step by step beside Linux.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, LoopMount, Run, btrfs_check};

use crate::support::{MOUNTED, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("subvolumes/moved-as-on-linux", &MOUNTED, moved)]
}

const SUBVOLUMES: [&str; 5] = ["a", "b", "a/in", "a/in/deep", "c"];

/// From where, to where; what a rename of the last four steps finds there is in its way.
const STEPS: [(&str, &str); 21] = [
    ("a/file", "b/file"),
    ("a/dir", "b/dir"),
    ("a/dir/inner", "inner"),
    ("c", "c2"),
    ("c2", "dir/c2"),
    ("dir/c2", "a/dir/c2"),
    ("a/dir/c2", "c2"),
    ("a/in", "b/moved"),
    ("b", "b/moved/deep/b"),
    ("b", "b/b"),
    ("b/moved/deep", "deep"),
    ("c2", "deep/c2"),
    ("b/none", "a/none"),
    ("read-only", "dir/read-only"),
    ("read-only", "b/read-only"),
    ("read-only", "read-only2"),
    ("a", "read-only2/a"),
    ("deep/c2", "b/full"),
    ("deep/c2", "b/moved"),
    ("deep/c2", "b/g"),
    ("b/g", "b/moved"),
];

/// What came of each step, and what is there in the end.
fn live(top: &Path, subvolume: &dyn Fn(&[&str]) -> Run) -> Result<Vec<(String, Option<i32>)>> {
    for name in SUBVOLUMES {
        subvolume(&["create"]).arg(top.join(name)).ok()?;
    }
    for name in ["dir", "a/dir", "a/dir/inner", "b/full", "b/full/more"] {
        std::fs::create_dir(top.join(name))?;
    }
    for name in ["a/file", "b/g", "c/what-c-has", "a/in/what-in-has"] {
        std::fs::write(top.join(name), name)?;
    }
    subvolume(&["snapshot", "-r"]).arg(top.join("a")).arg(top.join("read-only")).ok()?;
    let step = |(from, to): &(&str, &str)| {
        let renamed = std::fs::rename(top.join(from), top.join(to));
        (format!("{from} to {to}"), renamed.err().and_then(|error| error.raw_os_error()))
    };
    let said = STEPS.iter().map(step).collect();
    for (path, wanted) in
        [("deep/c2/what-c-has", "c/what-c-has"), ("b/moved/what-in-has", "a/in/what-in-has")]
    {
        let found = std::fs::read_to_string(top.join(path)).with_context(|| path.to_owned())?;
        ensure!(found == wanted, "{path} has {found:?}");
    }
    Ok(said)
}

fn list(top: &Path) -> Result<String> {
    Ok(Run::new("btrfs").args(["subvolume", "list", "-p"]).arg(top).ok()?.stdout_text())
}

fn moved(bench: &Bench) -> Result<()> {
    let images = [bench.scratch.file("linux.img"), bench.scratch.file("ours.img")];
    images.iter().try_for_each(|image| mkfs_empty(bench.creamery(), &[], "300M", image))?;
    let kernel = bench.scratch.file("kernel");
    let mount = LoopMount::mount(&images[0], &kernel, "")?;
    let theirs = live(mount.dir(), &|words| Run::new("btrfs").arg("subvolume").args(words))?;
    mount.unmount()?;
    let mount = FuseMount::mount(bench.creamery(), &images[1], &bench.scratch.file("ours"), "")?;
    let ours = live(mount.dir(), &|words| bench.creamery().run(["subvolume"]).args(words))?;
    mount.unmount()?;
    for (theirs, ours) in theirs.iter().zip(&ours) {
        ensure!(theirs == ours, "{}: Linux answers {:?}, we {:?}", ours.0, theirs.1, ours.1);
    }
    let mut lists = Vec::new();
    for image in &images {
        btrfs_check(image)?;
        let mount = LoopMount::mount(image, &kernel, "ro")?;
        let without_generations = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.iter().enumerate().filter(|(at, _)| *at != 3).map(|(_, word)| format!("{word} ")).collect()
        };
        lists.push(list(mount.dir())?.lines().map(without_generations).collect::<Vec<String>>());
        mount.unmount()?;
    }
    ensure!(lists[0] == lists[1], "Linux has the subvolumes {:#?}, we {:#?}", lists[0], lists[1]);
    Ok(())
}
