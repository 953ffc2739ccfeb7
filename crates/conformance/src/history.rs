//! Time travel: what earlier commits have, of this program and of the kernel, beside copies of the image that were taken at each.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, LoopMount, Random, Run};
use serde_json::Value;

use crate::superblock_copies::with_a_log;
use crate::support::{JUDGED, MOUNTED, expect_refusal, expect_untouched, flip_byte, inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let with_chattr = [&JUDGED[..], &[Judge::Tool("chattr")]].concat();
    let with_fstrim = [&JUDGED[..], &[Judge::Tool("fstrim")]].concat();
    vec![
        Case::new("history/commits-of-the-kernel", &JUDGED, commits_of_the_kernel),
        Case::new("history/commits-of-ours", &[Judge::Program], commits_of_ours),
        Case::new("history/roots-of-no-commit", &JUDGED, roots_of_no_commit),
        Case::new("history/undelete", &with_chattr, undelete),
        Case::new("history/a-damaged-last-commit", &JUDGED, damaged_last_commit),
        Case::new("history/overwritten-data", &JUDGED, overwritten),
        Case::new("history/a-log-that-waits", &MOUNTED, log_that_waits),
        Case::new("history/discarded", &with_fstrim, discarded),
        Case::new("history/refusals", &[Judge::Program], refusals),
        Case::new("rescue/scan", &[Judge::Program], scan),
    ]
}

/// Without what the kernel discards by itself.
const OPTIONS: &str = "nodiscard,noatime";

/// A filesystem that `mkfs.btrfs` made.
fn mkfs(bench: &Bench, size: u64) -> Result<PathBuf> {
    let image = bench.scratch.file("disk.img");
    fs::File::create_new(&image)?.set_len(size)?;
    Run::new("mkfs.btrfs").arg("-q").arg(&image).ok()?;
    Ok(image)
}

fn commit(mount: &LoopMount) -> Result<()> {
    Run::new("sync").arg("-f").arg(mount.dir()).ok().map(drop)
}

fn listed(bench: &Bench, words: &[&str], image: &Path) -> Result<Vec<Value>> {
    let said = bench.creamery().run(words).arg("--json").arg(image).ok()?.stdout_text();
    serde_json::from_str(&said).with_context(|| said)
}

fn history(bench: &Bench, image: &Path) -> Result<Vec<Value>> {
    let commits = listed(bench, &["history"], image)?;
    let generation = |commit: &Value| commit["generation"].as_u64().unwrap_or_default();
    ensure!(commits.windows(2).all(|two| generation(&two[0]) > generation(&two[1])), "an order: {commits:?}");
    ensure!(commits[0]["current"] == true && commits[0]["state"] == "whole", "the last one: {commits:?}");
    Ok(commits)
}

/// Insists that each commit that is called whole reads as the copy that was taken of it. Gives how many did.
fn whole_ones_are(bench: &Bench, image: &Path, copies: &[PathBuf]) -> Result<usize> {
    let commits = history(bench, image)?;
    let mut compared = 0;
    for copy in copies {
        let generation = &history(bench, copy)?[0]["generation"];
        let is_whole = |commit: &&Value| commit["generation"] == *generation && commit["state"] == "whole";
        if commits.iter().find(is_whole).is_none() {
            continue;
        }
        let (then, now) = (bench.scratch.file("then"), bench.scratch.file("now"));
        let cp = |words: &[&str], image: &Path, to: &Path| {
            bench.creamery().run(["cp", "-a"]).args(words).arg(inside(image, "/")).arg(to).output()
        };
        ensure!(cp(&[], copy, &then)?.code == Some(0), "a copy of the image is not read");
        let read = cp(&["--generation", &generation.to_string()], image, &now)?;
        // Data that was overwritten since is an error, and the file is left out.
        let same = Run::new("diff").args(["-r", "--no-dereference"]).args([&then, &now]).output()?;
        let is_same = same.code == Some(0);
        let lacks =
            same.stdout_text().lines().all(|line| line.starts_with("Only in") && line.contains("then"));
        ensure!(is_same || (read.code == Some(1) && lacks), "generation {generation}: {same}, {read}");
        compared += usize::from(is_same);
        Run::new("rm").arg("-r").args([&then, &now]).ok()?;
    }
    Ok(compared)
}

fn keep_copy(bench: &Bench, image: &Path, copies: &mut Vec<PathBuf>) -> Result<()> {
    let copy = bench.scratch.file(&format!("copy-{}.img", copies.len()));
    Run::new("cp").arg("--sparse=always").args([image, &copy]).ok()?;
    copies.push(copy);
    Ok(())
}

fn commits_of_the_kernel(bench: &Bench) -> Result<()> {
    let image = mkfs(bench, 256 << 20)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), OPTIONS)?;
    let mut copies = Vec::new();
    for number in 0..8 {
        let dir = mount.dir();
        fs::write(dir.join(format!("large-{number}")), vec![b'a' + number; 300_000])?;
        fs::write(dir.join(format!("small-{number}")), format!("{number}"))?;
        if number > 1 {
            fs::rename(dir.join(format!("small-{}", number - 1)), dir.join(format!("moved-{number}")))?;
            fs::remove_file(dir.join(format!("large-{}", number - 2)))?;
        }
        if number == 4 {
            Run::new("btrfs")
                .args(["-q", "subvolume", "snapshot"])
                .arg(dir)
                .arg(dir.join("snapshot"))
                .ok()?;
        }
        commit(&mount)?;
        keep_copy(bench, &image, &mut copies)?;
    }
    mount.unmount()?;
    expect_untouched(&image, || {
        let compared = whole_ones_are(bench, &image, &copies)?;
        ensure!(compared > 2, "{compared} commits of {} are left", copies.len());
        Ok(())
    })
}

/// All names, as `find` shows them.
fn names(text: &str) -> BTreeSet<String> {
    text.lines().map(|line| line.trim_start_matches("./").to_owned()).collect()
}

/// Where small blocks fill a mixed filesystem, Linux writes root trees in the midst of transactions. None of those is shown as a commit.
fn roots_of_no_commit(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    fs::File::create_new(&image)?.set_len(120 << 20)?;
    Run::new("mkfs.btrfs").args(["-q", "-M", "-n", "4096"]).arg(&image).ok()?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), OPTIONS)?;
    let (mut random, mut states) = (Random::new(3), Vec::new());
    for round in 0..150 {
        for number in 0..=random.below(12) {
            let dir = mount.dir().join(format!("d{}", random.below(12)));
            fs::create_dir_all(&dir)?;
            let file = dir.join(format!("f{}", random.below(60)));
            let len = [10, 3_000, 40_000, 300_000, 2_000_000][usize::try_from(random.below(5))?];
            let done = match random.below(5) {
                0 => fs::remove_file(&file),
                1 => fs::write(&file, format!("{round} {number}")),
                _ => fs::write(&file, vec![b'x'; len]),
            };
            if done.is_err_and(|error| error.kind() == ErrorKind::StorageFull) {
                (0..12)
                    .step_by(2)
                    .for_each(|dir| drop(fs::remove_dir_all(mount.dir().join(format!("d{dir}")))));
            }
        }
        if round % 4 == 1 {
            let name = mount.dir().join(format!("sub-{round}"));
            Run::new("btrfs").args(["-q", "subvolume", "create"]).arg(name).ok()?;
        }
        commit(&mount)?;
        let found = Run::new("find").arg(".").within(mount.dir()).ok()?.stdout_text();
        let said = Run::new("btrfs").args(["inspect-internal", "dump-super"]).arg(&image).ok()?.stdout_text();
        let generation =
            said.lines().find_map(|line| line.strip_prefix("generation\t")?.trim().parse::<u64>().ok());
        states.push((generation.with_context(|| said)?, names(&found)));
    }
    mount.unmount()?;
    let mut compared = 0;
    for commit in history(bench, &image)?.iter().filter(|commit| commit["state"] == "whole") {
        let generation = commit["generation"].as_u64().context("a number")?;
        let Some((_, state)) = states.iter().find(|(of, _)| *of == generation) else { continue };
        let words = ["find", "--generation", &generation.to_string()];
        let found = bench.creamery().run(words).arg(inside(&image, "/")).ok()?.stdout_text();
        let shown: BTreeSet<String> = found
            .lines()
            .map(|line| {
                line.split_once(":/").map_or(line, |(_, path)| path).trim_start_matches('/').to_owned()
            })
            .filter(|name| !name.is_empty())
            .collect();
        let state: BTreeSet<String> = state.iter().filter(|name| *name != ".").cloned().collect();
        ensure!(
            shown == state,
            "generation {generation}: {:?}",
            shown.symmetric_difference(&state).collect::<Vec<_>>()
        );
        compared += 1;
    }
    // Linux commits by itself, too, the more the longer the work takes: how many of these are left is up to it.
    ensure!(compared > 0, "none of the commits is left");
    Ok(())
}

fn commits_of_ours(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mut copies = Vec::new();
    for number in 0..6 {
        let run = bench.creamery().run(["cp", "-"]).arg(inside(&image, &format!("/file-{number}")));
        run.input(vec![b'a' + number; 100_000]).ok()?;
        keep_copy(bench, &image, &mut copies)?;
    }
    let compared = whole_ones_are(bench, &image, &copies)?;
    ensure!(compared > 1, "{compared} commits are left");
    Ok(())
}

/// The paths of what is gone, each with what it is.
fn gone(bench: &Bench, image: &Path) -> Result<Vec<(String, String)>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let files = listed(bench, &["undelete"], image)?;
    Ok(files.iter().map(|file| (text(&file["path"]), text(&file["type"]))).collect())
}

fn undelete(bench: &Bench) -> Result<()> {
    let image = mkfs(bench, 256 << 20)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), OPTIONS)?;
    let dir = mount.dir().to_owned();
    fs::create_dir(dir.join("dir"))?;
    for name in ["file", "renamed", "dir/a", "dir/b"] {
        fs::write(dir.join(name), vec![b'1'; 200_000])?;
    }
    std::os::unix::fs::symlink("a", dir.join("dir/link"))?;
    fs::write(dir.join("nocow"), "")?;
    Run::new("chattr").arg("+C").arg(dir.join("nocow")).ok()?;
    fs::write(dir.join("nocow"), vec![b'n'; 100_000])?;
    Run::new("btrfs").args(["-q", "subvolume", "create"]).arg(dir.join("sub")).ok()?;
    fs::write(dir.join("sub/inner"), "inner")?;
    commit(&mount)?;
    fs::remove_file(dir.join("file"))?;
    fs::write(dir.join("file"), vec![b'2'; 200_000])?;
    commit(&mount)?;
    fs::remove_file(dir.join("file"))?;
    fs::remove_file(dir.join("nocow"))?;
    fs::remove_dir_all(dir.join("dir"))?;
    fs::rename(dir.join("renamed"), dir.join("new-name"))?;
    Run::new("btrfs").args(["-q", "subvolume", "delete"]).arg(dir.join("sub")).ok()?;
    commit(&mount)?;
    mount.unmount()?;
    expect_untouched(&image, || {
        let found = gone(bench, &image)?;
        // Two files had the first path, one after the other.
        let want = [
            ("/dir", "directory"),
            ("/dir/a", "regular file"),
            ("/dir/b", "regular file"),
            ("/dir/link", "symbolic link"),
            ("/file", "regular file"),
            ("/nocow", "regular file"),
            ("/sub", "directory"),
            ("/sub/inner", "regular file"),
            ("/file", "regular file"),
        ];
        ensure!(found == want.map(|(path, kind)| (path.to_owned(), kind.to_owned())), "{found:?}");
        undeleted_files(bench, &image)?;
        refused_files(bench, &image)
    })
}

/// Where the last commit has lost its root tree or a leaf, undelete takes it for what it can show, says so, and copies out of the others.
fn damaged_last_commit(bench: &Bench) -> Result<()> {
    let image = mkfs(bench, 256 << 20)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), OPTIONS)?;
    let dir = mount.dir().join("dir");
    fs::create_dir(&dir)?;
    for number in 0..400 {
        fs::write(dir.join(format!("file-{number}")), format!("{number}"))?;
    }
    commit(&mount)?;
    fs::write(mount.dir().join("other"), "other")?;
    fs::remove_file(dir.join("file-7"))?;
    commit(&mount)?;
    fs::write(mount.dir().join("last"), "last")?;
    commit(&mount)?;
    mount.unmount()?;
    let super_dump =
        Run::new("btrfs").args(["inspect-internal", "dump-super"]).arg(&image).ok()?.stdout_text();
    let root = super_dump.lines().find_map(|line| line.strip_prefix("root\t")?.trim().parse::<u64>().ok());
    let root = root.context("the root tree")?;
    let tree =
        Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "5"]).arg(&image).ok()?.stdout_text();
    let top =
        tree.lines().find_map(|line| line.strip_prefix("node ")?.split(' ').next()?.parse::<u64>().ok());
    let generation = history(bench, &image)?[1]["generation"].to_string();
    for (number, block) in [root, top.context("a node")?].into_iter().enumerate() {
        let damaged = bench.scratch.file("damaged.img");
        Run::new("cp").arg("--sparse=always").arg(&image).arg(&damaged).ok()?;
        let map =
            Run::new("btrfs-map-logical").args(["-l", &block.to_string()]).arg(&image).ok()?.stdout_text();
        for at in
            map.lines().filter_map(|line| line.split(" physical ").nth(1)?.split(' ').next()?.parse().ok())
        {
            flip_byte(&damaged, at)?;
        }
        expect_untouched(&damaged, || {
            let said = bench.creamery().run(["undelete"]).arg(&damaged).ok()?;
            let has = |name: &str| said.stdout_text().lines().any(|line| line.ends_with(name));
            ensure!(has("/dir/file-7") && has("/dir/file-8"), "{said}");
            ensure!(said.stderr_text().contains("the last commit is damaged"), "{said}");
            let out = bench.scratch.dir(&format!("out-{number}"))?;
            bench.creamery().run(["undelete"]).arg(inside(&damaged, "/dir/file-7")).arg(&out).ok()?;
            let words = ["undelete", "--generation", &generation];
            bench.creamery().run(words).arg(inside(&damaged, "/dir/file-8")).arg(&out).ok()?;
            ensure!(fs::read(out.join("file-7"))? == b"7" && fs::read(out.join("file-8"))? == b"8", "{said}");
            Ok(())
        })?;
        fs::remove_file(&damaged)?;
    }
    Ok(())
}

fn undeleted_files(bench: &Bench, image: &Path) -> Result<()> {
    let out = bench.scratch.dir("out")?;
    let run = |words: &[&str], path: &str, to: &Path| {
        bench.creamery().run(["undelete"]).args(words).arg(inside(image, path)).arg(to).ok()
    };
    run(&[], "/file", &out)?;
    ensure!(fs::read(out.join("file"))? == vec![b'2'; 200_000], "not the newest");
    let files = listed(bench, &["undelete"], image)?;
    let oldest = files.last().context("something is gone")?["generation"].to_string();
    run(&["--force", "--generation", &oldest], "/file", &out)?;
    ensure!(fs::read(out.join("file"))? == vec![b'1'; 200_000], "not the older one");
    run(&[], "/dir", &out.join("tree"))?;
    ensure!(fs::read(out.join("tree/a"))? == vec![b'1'; 200_000], "not what was in the directory");
    ensure!(fs::read_link(out.join("tree/link"))? == Path::new("a"), "not the link");
    run(&[], "/sub/inner", &out)?;
    ensure!(fs::read(out.join("inner"))? == b"inner", "not what was in the subvolume");
    run(&["--unverified"], "/nocow", &out)?;
    ensure!(fs::read(out.join("nocow"))? == vec![b'n'; 100_000], "not what had no checksums");
    let lines = bench.creamery().run(["undelete"]).arg(image).ok()?.stdout_text();
    ensure!(lines.lines().any(|line| line.contains(" unverified ") && line.ends_with("/nocow")), "{lines}");
    ensure!(lines.lines().any(|line| line.contains(" directory ") && line.ends_with("/dir")), "{lines}");
    Ok(())
}

fn refused_files(bench: &Bench, image: &Path) -> Result<()> {
    let out = bench.scratch.dir("refused")?;
    fs::write(out.join("file"), "mine")?;
    let refused = |path: &str, words: &[&str]| {
        let run = bench.creamery().run(["undelete"]).arg(inside(image, path)).arg(&out);
        expect_refusal(run, words)
    };
    refused("/file", &["already exists", "--force"])?;
    ensure!(fs::read(out.join("file"))? == b"mine", "it was replaced");
    refused("/nocow", &["no checksums", "--unverified"])?;
    refused("/renamed", &["the last commit still has it", "--generation"])?;
    refused("/nothing", &["no remaining commit has it", "creamery undelete"])?;
    ensure!(fs::read_dir(&out)?.count() == 1, "something was made");
    Ok(())
}

fn overwritten(bench: &Bench) -> Result<()> {
    let image = mkfs(bench, 200 << 20)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), OPTIONS)?;
    let (old, new) = (mount.dir().join("old"), mount.dir().join("new"));
    // Both do not fit beside each other.
    fs::write(&old, vec![b'o'; 70 << 20])?;
    commit(&mount)?;
    fs::remove_file(&old)?;
    commit(&mount)?;
    commit(&mount)?;
    fs::write(&new, vec![b'n'; 80 << 20])?;
    commit(&mount)?;
    mount.unmount()?;
    let had = listed(bench, &["undelete"], &image)?;
    let Some(had) = had.iter().find(|file| file["path"] == "/old") else { return Ok(()) };
    let out = bench.scratch.file("out");
    expect_refusal(
        bench.creamery().run(["undelete"]).arg(inside(&image, "/old")).arg(&out),
        &["/old", "checksum"],
    )?;
    ensure!(!out.exists(), "something was made of what is another file's");
    let generation = had["generation"].to_string();
    let words = ["cat", "--generation", &generation];
    let read = bench.creamery().run(words).arg(inside(&image, "/old")).output()?;
    ensure!(read.code == Some(1) && !read.stdout.contains(&b'n'), "other content was shown");
    Ok(())
}

fn log_that_waits(bench: &Bench) -> Result<()> {
    let image = with_a_log(bench)?;
    let commits = history(bench, &image)?;
    let said = bench.creamery().run(["history"]).arg(&image).ok()?.stderr_text();
    ensure!(said.contains("a log to replay"), "{said}");
    let generation = commits[0]["generation"].to_string();
    let words = ["cat", "--generation", &generation];
    let file = bench.creamery().run(words).arg(inside(&image, "/file")).ok()?.stdout_text();
    ensure!(file == "committed", "{file}");
    Ok(())
}

fn discarded(bench: &Bench) -> Result<()> {
    let image = mkfs(bench, 256 << 20)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), OPTIONS)?;
    for number in 0..4 {
        fs::write(mount.dir().join("file"), format!("{number}"))?;
        commit(&mount)?;
    }
    Run::new("fstrim").arg(mount.dir()).ok()?;
    mount.unmount()?;
    let commits = history(bench, &image)?;
    let is_discarded = |commit: &Value| commit["state"] == "discarded" && commit["blocks_gone"] != 0;
    ensure!(commits.iter().any(is_discarded), "{commits:?}");
    let text = bench.creamery().run(["history"]).arg(&image).ok()?.stdout_text();
    ensure!(text.lines().any(|line| line.ends_with(" discarded")), "{text}");
    Ok(())
}

fn refusals(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let refused = |words: &[&str], path: &str, said: &[&str]| {
        expect_refusal(bench.creamery().run(words).arg(inside(&image, path)), said)
    };
    let read_only = ["an earlier commit can only be read"];
    refused(&["mkdir", "--generation", "1"], "/dir", &read_only)?;
    refused(&["rm", "--generation", "1"], "/file", &read_only)?;
    let both = ["usebackuproot", "leave one out"];
    refused(&["ls", "--generation", "1", "--rescue", "usebackuproot"], "/", &both)?;
    refused(&["ls", "--generation", "1", "--usebackuproot"], "/", &["cannot be used with"])?;
    refused(&["ls", "--generation", "0"], "/", &["no root of the commit", "creamery history"])?;
    refused(
        &["ls", "--generation", "1000"],
        "/",
        &["there is no commit of generation 1000", "creamery history"],
    )?;
    refused(&["undelete"], "/file", &["expected a target for", "list deleted files"])
}

fn scan(bench: &Bench) -> Result<()> {
    let (image, disk) = (bench.scratch.file("disk.img"), bench.scratch.file("disk.raw"));
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    bench.creamery().run(["cp", "-"]).arg(inside(&image, "/file")).input("text").ok()?;
    // Behind a partition table that is gone.
    let mut bytes = vec![0; 1 << 20];
    bytes.extend(fs::read(&image)?);
    fs::write(&disk, &bytes)?;
    let lines = bench.creamery().run(["rescue", "scan"]).arg(&disk).ok()?.stdout_text();
    let command = lines.lines().find_map(|line| line.trim().strip_prefix("creamery ls "));
    let place = command.with_context(|| lines.clone())?;
    let names = bench.creamery().run(["ls", place]).ok()?.stdout_text();
    ensure!(names == "file\n", "{lines}: {names}");
    let first = (1 << 20) + (64 << 10);
    bytes[first..first + 4096].fill(0);
    fs::write(&disk, &bytes)?;
    let lines = bench.creamery().run(["rescue", "scan"]).arg(&disk).ok()?.stdout_text();
    ensure!(lines.contains("creamery restore -u 1 ") && lines.contains("@@1048576"), "{lines}");
    let second = (1 << 20) + (64 << 20);
    bytes[second..second + 4096].fill(0);
    fs::write(&disk, &bytes)?;
    let lines = bench.creamery().run(["rescue", "scan"]).arg(&disk).ok()?.stdout_text();
    ensure!(
        lines.contains("no superblock is left") && lines.contains(" tree blocks of 16384 bytes"),
        "{lines}"
    );
    Ok(())
}
