//! Subvolumes and snapshots that are in quota groups from their beginning, beside Linux: groups, numbers and refusals are equal.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, btrfs_check};
use serde_json::Value;

use crate::quotas::{CountingSide, fill, groups, judge};
use crate::support::{MOUNTED, expect_refusal, inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let mounted = [&MOUNTED[..], &[Judge::Tool("cp")]].concat();
    vec![
        Case::new("quotas/joined-as-on-linux", &mounted, |bench| joined(bench, false)),
        Case::new("quotas/simple-joined-as-on-linux", &mounted, |bench| joined(bench, true)),
        Case::new("quotas/joined-without", &mounted, without),
        Case::new("quotas/joined-in-images", &mounted, in_images),
    ]
}

/// A command, and the error of Linux that it ends with, if any.
const WORK: [(&str, &[&str], &str); 17] = [
    ("qgroup create 1/0", &[""], ""),
    ("qgroup create 1/1", &[""], ""),
    ("qgroup create 1/2", &[""], ""),
    ("qgroup create 2/0", &[""], ""),
    ("qgroup assign 1/0 2/0", &[""], ""),
    ("subvolume create -i 1/7", &["missing"], "No such file or directory"),
    ("subvolume create -i 0/5", &["of level 0"], "Invalid argument"),
    ("subvolume create -i 0/999", &["of level 0"], "Invalid argument"),
    ("subvolume create -i 1/0 -i 1/7", &["one missing"], "No such file or directory"),
    ("subvolume create -i 1/0", &["a"], ""),
    ("subvolume create -i 1/0 -i 1/0", &["twice"], ""),
    ("subvolume create -i 1/0 -i 2/0 -i 1/1", &["several"], ""),
    ("subvolume create", &["source"], ""),
    ("subvolume snapshot -i 1/7", &["a", "missing"], "No such file or directory"),
    ("subvolume snapshot -i 0/5", &["a", "of level 0"], "Invalid argument"),
    // In the groups of its source; later steps use other groups.
    ("subvolume snapshot -i 1/0", &["a", "a too"], ""),
    ("subvolume snapshot -r -i 1/2 -i 1/2", &["a", "elsewhere"], ""),
];

/// Runs a step, which must end as on Linux.
fn step(bench: &Bench, side: &CountingSide, words: &str, paths: &[&str], error: &str) -> Result<()> {
    if error.is_empty() {
        return side.call(bench, words, paths).map(drop);
    }
    let run = side.prepared(bench, words, paths);
    match side {
        CountingSide::Linux(_) => expect_refusal(run, &[error])?,
        CountingSide::Ours(_) if error.starts_with("No such") => expect_refusal(run, &["quota group 1/7"])?,
        CountingSide::Ours(_) => expect_refusal(run, &["quota group 0/", "belongs to a subvolume"])?,
    }
    ensure!(!side.dir().join(paths.last().context("a name")?).exists(), "it was made all the same");
    Ok(())
}

fn work(bench: &Bench, side: &CountingSide) -> Result<()> {
    for (words, paths, error) in WORK {
        step(bench, side, words, paths, error).with_context(|| format!("{words} {paths:?}"))?;
    }
    // With simple quotas this replaces the inheritance.
    side.call(bench, "qgroup assign 0/5 1/1", &[""])?;
    side.call(bench, "subvolume create", &["inherits"])?;
    side.call(bench, "subvolume create -i 1/2", &["does not inherit"])?;
    for name in ["a", "source", "inherits"] {
        fill(&side.dir().join(name).join("file"), 3_000_000, 1)?;
        fs::write(side.dir().join(name).join("small"), vec![7; 100])?;
    }
    side.sync(bench)?;
    side.call(bench, "qgroup create 1/3", &[""])?;
    side.call(bench, "subvolume snapshot -i 1/3", &["source", "filled"])?;
    side.call(bench, "subvolume snapshot -i 1/0", &["source", "filled too"])?;
    side.call(bench, "subvolume snapshot", &["inherits", "without"])?;
    fill(&side.dir().join("filled").join("file"), 2_000_000, 2)?;
    side.sync(bench)
}

fn enable(simple: bool) -> &'static str {
    if simple { "quota enable --simple" } else { "quota enable" }
}

fn rescan(bench: &Bench, side: &CountingSide, simple: bool) -> Result<()> {
    if simple { Ok(()) } else { side.call(bench, "quota rescan -w", &[""]).map(drop) }
}

fn joined(bench: &Bench, simple: bool) -> Result<()> {
    let images = ["ours", "linux"].map(|name| bench.scratch.file(name));
    let mut listed = Vec::new();
    for image in &images {
        mkfs_empty(bench.creamery(), &[], "512M", image)?;
        let side = if listed.is_empty() {
            CountingSide::ours(bench, image, "")?
        } else {
            CountingSide::linux(bench, image)?
        };
        side.call(bench, enable(simple), &[""])?;
        rescan(bench, &side, simple)?;
        work(bench, &side)?;
        // This repairs groups that became inconsistent on the way.
        rescan(bench, &side, simple)?;
        side.end(bench)?;
        judge(bench, image, simple)?;
        listed.push(groups(bench, image)?);
    }
    ensure!(listed[0] == listed[1], "ours: {:#?}, of Linux: {:#?}", listed[0], listed[1]);
    Ok(())
}

/// Without quotas, options with groups have no effect.
fn without(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let linux = CountingSide::linux(bench, &image)?;
    linux.call(bench, "subvolume create -i 1/7", &["a"])?;
    linux.call(bench, "subvolume snapshot -i 0/5", &["a", "b"])?;
    linux.end(bench)?;
    let ours = CountingSide::ours(bench, &image, "")?;
    ours.call(bench, "subvolume create -i 1/7", &["c"])?;
    ours.call(bench, "subvolume snapshot -i 0/5", &["c", "d"])?;
    ours.call(bench, "quota enable", &[""])?;
    ours.end(bench)?;
    judge(bench, &image, false)?;
    let found = groups(bench, &image)?;
    ensure!(found.iter().all(|group| group["parents"] == Value::Array(Vec::new())), "{found:#?}");
    ensure!(found.len() == 5, "{found:#?}");
    Ok(())
}

/// Whether the quotas are marked as consistent.
fn is_consistent(bench: &Bench, image: &Path) -> Result<bool> {
    let said = bench.creamery().run(["quota", "status"]).arg(image).ok()?.stdout_text();
    match (said.contains("Inconsistent:  no"), said.contains("Inconsistent:  yes")) {
        (true, false) => Ok(true),
        (false, true) => Ok(false),
        _ => bail!("{said}"),
    }
}

/// The work in images that are not mounted, and the cases in which numbers stay right.
fn in_images(bench: &Bench) -> Result<()> {
    let (image, source) = (bench.scratch.file("disk.img"), bench.scratch.file("source"));
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    fill(&source, 3_000_000, 1)?;
    let call = |words: &str| bench.creamery().run(words.split_whitespace());
    call("quota enable").arg(&image).ok()?;
    for group in ["1/0", "1/1", "2/0"] {
        call("qgroup create").arg(group).arg(&image).ok()?;
    }
    call("qgroup assign 1/1 2/0").arg(&image).ok()?;
    call("subvolume create -i 1/0").arg(inside(&image, "/a")).ok()?;
    call("cp").arg(&source).arg(inside(&image, "/a/file")).ok()?;
    let snapshot = |groups: &str, name: &str| {
        call("subvolume snapshot").args(groups.split_whitespace()).arg(inside(&image, "/a")).arg(name)
    };
    // A group that has the source does not change, and an empty group gets the numbers of the source.
    for (groups, name) in [("-i 1/0", "/b"), ("-i 1/1 -i 1/0", "/c")] {
        snapshot(groups, name).ok()?;
        ensure!(is_consistent(bench, &image)?, "after {groups}");
        judge(bench, &image, false).with_context(|| name.to_owned())?;
    }
    // For a group with other members no sum gives the new numbers.
    snapshot("-i 1/1", "/d").ok()?;
    ensure!(!is_consistent(bench, &image)?, "nobody can know");
    btrfs_check(&image)?;
    call("quota rescan").arg(&image).ok()?;
    judge(bench, &image, false)?;
    expect_refusal(snapshot("-i 1/9", "/e"), &["/e", "quota group 1/9", "not found"])?;
    expect_refusal(snapshot("-i 0/256", "/e"), &["/e", "quota group 0/256"])?;
    judge(bench, &image, false)
}
