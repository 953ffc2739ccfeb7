//! `creamery stats`: what a live mount tells about itself.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge};
use serde_json::Value;

use crate::support::{MOUNTED, expect_refusal, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("stats/numbers-rise", &MOUNTED, numbers_rise),
        Case::new("stats/for-people", &MOUNTED, for_people),
        Case::new("stats/many-trees", &MOUNTED, many_trees),
        Case::new("stats/watch", &MOUNTED, watch),
        Case::new("stats/not-a-mount", &MOUNTED, not_a_mount),
        Case::new("stats/wrong-arguments", &[Judge::Program], wrong_arguments),
    ]
}

fn mounted(bench: &Bench) -> Result<FuseMount> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")
}

fn json(bench: &Bench, place: &Path) -> Result<Value> {
    let said = bench.creamery().run(["stats", "--json"]).arg(place).ok()?.stdout_text();
    serde_json::from_str(&said).with_context(|| format!("not JSON:\n{said}"))
}

fn number(json: &Value, path: &str) -> Result<u64> {
    let found = json.pointer(path).and_then(Value::as_u64);
    found.with_context(|| format!("no number at {path} in:\n{json:#}"))
}

/// Files, and data that is made durable.
fn work(dir: &Path) -> Result<()> {
    for index in 0..200 {
        std::fs::write(dir.join(format!("file-{index}")), vec![index as u8; 5_000])?;
    }
    Ok(File::open(dir.join("file-7"))?.sync_all()?)
}

fn numbers_rise(bench: &Bench) -> Result<()> {
    let mount = mounted(bench)?;
    let before = json(bench, mount.dir())?;
    work(mount.dir())?;
    // An fsync writes its own file's data, this all.
    bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
    // By its image this time.
    let after = json(bench, &bench.scratch.file("disk.img"))?;
    for (path, least) in [
        ("/filesystem/commits/count", 1),
        ("/filesystem/commits/tree_blocks_written", 3),
        ("/filesystem/commits/duration_micros/count", 1),
        ("/filesystem/commits/duration_micros/sum", 1),
        ("/filesystem/commits/gate_closed_micros/count", 1),
        ("/filesystem/block_cache/hits", 200),
        ("/filesystem/inodes_cached", 200),
        ("/filesystem/trees/searches", 400),
        ("/filesystem/volume/write_bytes", 200 * 5_000),
        ("/filesystem/volume/flushes", 1),
        ("/filesystem/volume/publishes", 1),
    ] {
        let (before, after) = (number(&before, path)?, number(&after, path)?);
        ensure!(after >= before + least, "{path} went from {before} to {after}, wanted {least} more");
    }
    for (request, least) in [("create", 200), ("write", 200), ("fsync", 1), ("ioctl", 1)] {
        let count = number(&after, &format!("/requests/{request}/count"))?;
        ensure!(count >= least, "{count} requests {request}, wanted {least}");
    }
    ensure!(number(&after, "/requests/create/sum_micros")? > 0, "200 files took no time:\n{after:#}");
    ensure!(before.pointer("/requests/create").is_none(), "files were created before any was:\n{before:#}");
    each_tree_is_in_the_sum(&after)?;
    percentiles_are_in_order(&after)?;
    memory_is_the_sum_of_its_parts(&after)?;
    mount.unmount()
}

fn memory_is_the_sum_of_its_parts(json: &Value) -> Result<()> {
    let memory =
        json.pointer("/filesystem/memory").and_then(Value::as_object).context("nothing of memory")?;
    let total = number(json, "/filesystem/memory/total_bytes")?;
    let parts: u64 = memory.values().filter_map(Value::as_u64).sum::<u64>() - total;
    ensure!(parts == total && memory.len() > 10, "memory of {total} bytes in parts of {parts}:\n{json:#}");
    ensure!(number(json, "/filesystem/memory/inodes_bytes")? > 200 * 200, "200 inodes in less:\n{json:#}");
    Ok(())
}

fn each_tree_is_in_the_sum(json: &Value) -> Result<()> {
    let trees = json.pointer("/filesystem/by_tree").and_then(Value::as_array).context("no list of trees")?;
    let mut searches = 0;
    for tree in trees {
        searches += number(tree, "/searches")?;
    }
    let top_level = trees.iter().find(|tree| number(tree, "/tree").is_ok_and(|id| id == 5));
    ensure!(number(top_level.context("no top level tree")?, "/searches")? >= 400, "few searches:\n{json:#}");
    ensure!(searches == number(json, "/filesystem/trees/searches")?, "the sum is another:\n{json:#}");
    Ok(())
}

fn percentiles_are_in_order(json: &Value) -> Result<()> {
    for name in ["duration_micros", "gate_closed_micros"] {
        let of = |field: &str| number(json, &format!("/filesystem/commits/{name}/{field}"));
        let (p50, p99, max, sum) = (of("p50")?, of("p99")?, of("max")?, of("sum")?);
        ensure!(p50 <= p99 && p99 <= max && max <= sum, "{name}: {p50}, {p99}, {max}, {sum}");
    }
    let gate = number(json, "/filesystem/commits/gate_closed_micros/sum")?;
    let whole = number(json, "/filesystem/commits/duration_micros/sum")?;
    ensure!(gate <= whole, "the gate was closed for {gate} us of {whole}");
    Ok(())
}

fn for_people(bench: &Bench) -> Result<()> {
    let mount = mounted(bench)?;
    work(mount.dir())?;
    bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
    let few = bench.creamery().run(["stats"]).arg(mount.dir()).ok()?.stdout_text();
    let lines: Vec<&str> = few.lines().filter(|line| line.starts_with("  ")).collect();
    ensure!(lines.len() == 8, "{} lines instead of eight:\n{few}", lines.len());
    for word in
        ["commits", "fsyncs", "memory", "cache", "read from", "written to", "requests", "written data"]
    {
        ensure!(lines.iter().any(|line| line.contains(word)), "no {word:?} in:\n{few}");
    }
    let said = bench.creamery().run(["stats", "--all"]).arg(mount.dir()).ok()?.stdout_text();
    for word in [
        "Commits",
        "gate closed",
        "Logs",
        "logged                                     1",
        "Memory",
        "delayed refs",
        "5 top level",
        "leaf splits",
        "write ",
        "create",
        "MiB",
    ] {
        ensure!(said.contains(word), "no {word:?} in:\n{said}");
    }
    let widest = said.lines().map(str::len).max().unwrap_or(0);
    ensure!(widest <= 160, "a line of {widest} columns:\n{said}");
    mount.unmount()
}

/// More text than fits one page of the channel, whole and in order.
fn many_trees(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let source = bench.scratch.dir("source")?;
    let names: Vec<String> = (0..120).map(|number| format!("volume-{number}")).collect();
    for name in &names {
        std::fs::create_dir(source.join(name))?;
    }
    let options: Vec<&str> = names.iter().flat_map(|name| ["--subvol", name]).collect();
    crate::support::mkfs_from(bench.creamery(), &[&["-b", "512M"], &options[..]].concat(), &source, &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    for name in &names {
        std::fs::write(mount.dir().join(name).join("file"), b"content")?;
    }
    let told = json(bench, mount.dir())?;
    ensure!(told.to_string().len() > 2 * 8192, "{} bytes fit two pages", told.to_string().len());
    let trees = told.pointer("/filesystem/by_tree").and_then(Value::as_array).context("no list of trees")?;
    let subvolumes = trees.iter().filter(|tree| number(tree, "/tree").is_ok_and(|id| id >= 256)).count();
    ensure!(subvolumes == names.len(), "{subvolumes} subvolumes of {}", names.len());
    copies_add_up(&told, trees)?;
    mount.unmount()
}

fn copies_add_up(told: &Value, trees: &[Value]) -> Result<()> {
    let copies: u64 = trees.iter().map(|tree| number(tree, "/copies")).sum::<Result<u64>>()?;
    ensure!(
        copies > 0 && copies == number(told, "/filesystem/trees/copies")?,
        "the pages do not belong together"
    );
    Ok(())
}

/// It ends by itself when the mount goes, having printed whole lines of JSON.
fn watch(bench: &Bench) -> Result<()> {
    let mount = mounted(bench)?;
    let dir = mount.dir().to_owned();
    let said = std::thread::scope(|scope| -> Result<String> {
        let run = bench.creamery().run(["stats", "--json", "--watch"]).arg(&dir);
        let watcher = scope.spawn(move || run.ok());
        // Each look is a control, of one page, and counted after its answer; two that are not ours mean that the watcher looks
        // again and again.
        let mut ours = 0;
        loop {
            ours += 1;
            let told = json(bench, &dir)?;
            ensure!(told.to_string().len() < 8184, "an answer takes two pages");
            if told.pointer("/requests/ioctl/count").and_then(Value::as_u64).unwrap_or(0) > ours {
                break;
            }
        }
        mount.unmount()?;
        let finished = watcher.join().map_err(|_| anyhow::anyhow!("the watcher panicked"))??;
        Ok(finished.stdout_text())
    })?;
    ensure!(!said.is_empty(), "nothing was printed");
    for line in said.lines() {
        let told: Value = serde_json::from_str(line).with_context(|| format!("not JSON: {line}"))?;
        number(&told, "/filesystem/commits/count")?;
    }
    Ok(())
}

fn not_a_mount(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "300M", &image)?;
    let dir = bench.scratch.dir("folder")?;
    let stats = |place: &Path| bench.creamery().run(["stats"]).arg(place);
    expect_refusal(stats(&image), &["disk.img", "no mount", "creamery mount"])?;
    expect_refusal(stats(&dir), &["folder", "nothing is mounted", "creamery mount"])?;
    expect_refusal(stats(Path::new("/proc")), &["/proc", "found proc", "creamery mount"])?;
    expect_refusal(stats(&bench.scratch.file("none")), &["none", "check the path"])?;
    let mount = FuseMount::mount(bench.creamery(), &image, &dir, "")?;
    std::fs::create_dir(dir.join("below"))?;
    stats(&dir.join("below")).ok()?;
    mount.unmount()?;
    expect_refusal(stats(&dir), &["folder", "nothing is mounted"])
}

fn wrong_arguments(bench: &Bench) -> Result<()> {
    for (args, words) in [
        (&["stats"][..], &["DIR|IMAGE", "--help"][..]),
        (&["stats", "--jsn", "x"], &["--jsn", "stats --help"]),
        (&["stats", "--watch=0", "x"], &["--watch", "0"]),
        (&["stats", "--watch=soon", "x"], &["--watch", "soon"]),
    ] {
        let run = bench.creamery().run(args.iter().copied());
        expect_refusal(run, words).with_context(|| format!("{args:?}"))?;
    }
    Ok(())
}
