//! Signals in the middle of long work: existing files are whole, unfinished ones do not exist, and the image stays valid.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, Random, Signal, btrfs_check, is_reading, signal, until};

use crate::support::{inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let check = [Judge::BtrfsProgs];
    vec![
        Case::new("interrupted/cp-out", &[], cp_out),
        Case::new("interrupted/cp-in", &check, cp_in),
        Case::new("interrupted/tar", &check, tar),
        Case::new("interrupted/mkfs", &[], mkfs),
        Case::new("interrupted/waiting-for-a-pipe", &check, waiting),
        Case::new("interrupted/progress-in-lines", &check, progress),
    ]
}

/// More names than fit in a pipe, so a command that prints them waits for a reader in the middle of its work.
const FILES: usize = 800;

fn name(number: usize) -> String {
    format!("{number:04}-{}", "long".repeat(40))
}

fn content(number: usize) -> Vec<u8> {
    name(number).repeat(20 + number % 7).into_bytes()
}

/// The folder `tree` with many files.
fn tree(bench: &Bench) -> Result<PathBuf> {
    let tree = bench.scratch.dir("tree")?;
    for number in 0..FILES {
        fs::write(tree.join(name(number)), content(number))?;
    }
    Ok(tree)
}

/// The name of an archive with a second name.
const IN_PLACE: &str = "second.tar";

/// Starts `creamery` with stdout and stderr in one pipe. Tests that run in the background ignore SIGINT, and so would their child
/// processes.
fn start(bench: &Bench, words: &[&std::ffi::OsStr]) -> Result<Child> {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", "sh", "-c", "exec \"$0\" \"$@\" 2>&1"]);
    command.arg(bench.creamery().path()).args(words);
    Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
}

/// Sends a signal to a command that has printed something and waits for a reader; checks its exit status and its message.
fn interrupt(bench: &Bench, words: &[&std::ffi::OsStr], by: Signal) -> Result<()> {
    let mut child = start(bench, words)?;
    let mut pipe = child.stdout.take().context("a pipe")?;
    // Some names, of which the first may be the folder's.
    let mut said = vec![0; 2000];
    pipe.read_exact(&mut said)?;
    signal(by, child.id())?;
    pipe.read_to_end(&mut said)?;
    let ended = child.wait()?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let last = said.lines().last().unwrap_or_default();
    ensure!(
        ended.signal().map(|number| 128 + number) == Some(128 + by.as_raw()),
        "{words:?}: {ended}, {last}"
    );
    let name = if by == Signal::INT { "SIGINT" } else { "SIGTERM" };
    let is_an_archive = words.iter().any(|word| *word == "-c");
    let is_in_place = words.iter().any(|word| Path::new(word).ends_with(IN_PLACE));
    let left = match (is_an_archive, is_in_place) {
        (true, true) => "the archive is incomplete",
        (true, false) => "no archive was made; an existing file is unchanged",
        (false, _) => "are done",
    };
    ensure!(last.contains(&format!("ended by {name}: ")) && last.contains(left), "{words:?}: {last}");
    Ok(())
}

/// Checks that some of the files are in `dir`, each whole, and nothing else.
fn expect_whole(dir: &Path) -> Result<()> {
    let names: BTreeSet<String> = (0..FILES).map(name).collect();
    let mut found = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let called = entry.file_name().to_string_lossy().into_owned();
        ensure!(names.contains(&called), "{called} is left");
        let number: usize = called[..4].parse()?;
        ensure!(fs::read(entry.path())? == content(number), "{called} is not whole");
        found += 1;
    }
    ensure!((1..FILES).contains(&found), "{found} files of {FILES}");
    Ok(())
}

fn words<'a>(words: &'a [&'a str], more: &'a [&'a std::ffi::OsStr]) -> Vec<&'a std::ffi::OsStr> {
    words.iter().map(std::ffi::OsStr::new).chain(more.iter().copied()).collect()
}

/// An image with the tree.
fn filled(bench: &Bench) -> Result<PathBuf> {
    let image = bench.scratch.file("filled.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    bench.creamery().run(["cp", "-a"]).args([tree(bench)?.as_os_str(), &inside(&image, "/")]).ok()?;
    Ok(image)
}

fn cp_out(bench: &Bench) -> Result<()> {
    let image = filled(bench)?;
    for by in [Signal::INT, Signal::TERM] {
        let out = bench.scratch.file(&format!("{by:?}"));
        let places = [&*inside(&image, "/tree"), out.as_os_str()];
        interrupt(bench, &words(&["cp", "-a", "-v"], &places), by)?;
        expect_whole(&out)?;
        let out = bench.scratch.dir(&format!("restored-{by:?}"))?;
        let places = [image.as_os_str(), out.as_os_str()];
        interrupt(bench, &words(&["restore", "-v"], &places), by)?;
        expect_whole(&out.join("tree"))?;
    }
    Ok(())
}

fn cp_in(bench: &Bench) -> Result<()> {
    let (tree, image) = (tree(bench)?, bench.scratch.file("disk.img"));
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let root = inside(&image, "/");
    interrupt(bench, &words(&["cp", "-a", "-v"], &[tree.as_os_str(), &root]), Signal::TERM)?;
    expect_whole_in(bench, &image, "/tree")
}

/// Checks a folder of an image in the way of [`expect_whole`]. `btrfs check` must accept the image, and no process may hold it.
fn expect_whole_in(bench: &Bench, image: &Path, dir: &str) -> Result<()> {
    btrfs_check(image)?;
    let out = bench.scratch.file(&format!("out{}", dir.replace('/', "-")));
    bench.creamery().run(["cp", "-a"]).args([&*inside(image, dir), out.as_os_str()]).ok()?;
    expect_whole(&out)?;
    bench.creamery().run(["mkdir"]).arg(inside(image, &format!("{dir}-next"))).ok().map(drop)
}

fn tar(bench: &Bench) -> Result<()> {
    let image = filled(bench)?;
    let folder = bench.scratch.dir("archives")?;
    let (archive, place) = (folder.join("tree.tar"), inside(&image, "/tree"));
    let create = ["tar", "-c", "-v", "-f"];
    interrupt(bench, &words(&create, &[archive.as_os_str(), &place]), Signal::TERM)?;
    ensure!(fs::read_dir(&folder)?.next().is_none(), "half an archive is left");
    fs::write(&archive, "an older one")?;
    interrupt(bench, &words(&create, &[archive.as_os_str(), &place]), Signal::INT)?;
    ensure!(fs::read(&archive)? == b"an older one", "the older archive is gone");
    // An archive with a second name is written in place.
    fs::hard_link(&archive, folder.join(IN_PLACE))?;
    let second = folder.join(IN_PLACE);
    interrupt(bench, &words(&create, &[second.as_os_str(), &place]), Signal::INT)?;
    ensure!(!fs::read(&archive)?.starts_with(b"an older one"), "the older archive is there");
    fs::remove_file(second)?;
    bench.creamery().run(["tar", "-c", "-f"]).args([archive.as_os_str(), &place]).ok()?;
    let target = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &target)?;
    let extract = ["tar", "-x", "-v", "-f"];
    interrupt(bench, &words(&extract, &[archive.as_os_str(), &inside(&target, "/")]), Signal::TERM)?;
    expect_whole_in(bench, &target, "/tree")
}

/// Waits until a process handles the signal with this number. Returns whether it does.
fn takes(child: &mut Child, number: u32) -> Result<bool> {
    let mut does = false;
    until("it to take the signal", || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
        does = u64::from_str_radix(mask, 16)? & (1 << (number - 1)) != 0;
        Ok(does || child.try_wait()?.is_some())
    })?;
    Ok(does)
}

fn mkfs(bench: &Bench) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    let half = Random::new(11).bytes(24 << 20);
    for number in 0..2 {
        fs::write(source.join(number.to_string()), &half)?;
    }
    let folder = bench.scratch.dir("images")?;
    let image = folder.join("disk.img");
    let options = ["mkfs", "--progress", "--compress", "zstd:15", "--rootdir"];
    let mut child = start(bench, &words(&options, &[source.as_os_str(), image.as_os_str()]))?;
    ensure!(takes(&mut child, 15)?, "it ends before it can be told to");
    signal(Signal::TERM, child.id())?;
    let mut said = String::new();
    child.stdout.take().context("a pipe")?.read_to_string(&mut said)?;
    let ended = child.wait()?;
    ensure!(ended.signal() == Some(15), "{ended}: {said}");
    ensure!(said.contains("mkfs: reading the source\n"), "no line of progress: {said}");
    ensure!(said.contains("ended by SIGTERM: no filesystem was made"), "{said}");
    ensure!(fs::read_dir(&folder)?.next().is_none(), "half an image is left");
    Ok(())
}

/// A command that waits for input that never comes ends at once: nothing else would wake it.
fn waiting(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "128M", &image)?;
    let place = inside(&image, "/");
    for words in [&["tar", "-x", "-f", "-"][..], &["cp", "-"]] {
        let mut command = Command::new(bench.creamery().path());
        command.args(words).arg(if words[0] == "cp" { inside(&image, "/copy") } else { place.clone() });
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let silent = child.stdin.take().context("a pipe")?;
        until("it to wait for its input", || {
            ensure!(child.try_wait()?.is_none(), "{words:?}: it does not wait");
            is_reading(child.id(), 0)
        })?;
        signal(Signal::TERM, child.id())?;
        until("it to end", || Ok(child.try_wait()?.is_some())).with_context(|| format!("{words:?}"))?;
        ensure!(child.wait()?.signal() == Some(15), "{words:?}: it ended otherwise");
        drop(silent);
    }
    btrfs_check(&image)
}

/// With `--progress` all long work prints a summary at its end, and prints nothing without the option.
fn progress(bench: &Bench) -> Result<()> {
    let (image, dir) = (filled(bench)?, bench.scratch.dir("out")?);
    let place = |path: &str| inside(&image, path).into_string().map_err(|_| anyhow::anyhow!("a name"));
    let (root, tree, out) = (place("/")?, place("/tree")?, dir.display().to_string());
    let (image_name, archive) = (image.display().to_string(), dir.join("tree.tar").display().to_string());
    bench.creamery().run(["subvolume", "create", &place("/sub")?]).ok()?;
    let of_files = format!(": {} files and directories, ", FILES + 1);
    let rows: [(&[&str], &str); 10] = [
        (&["cp", "-a", &tree, &out], &of_files),
        (&["tar", "-c", "-f", &archive, &tree], &of_files),
        (&["tar", "-x", "-f", &archive, &place("/sub")?], &of_files),
        (&["restore", &image_name, &out], "files and directories, "),
        (&["diff", &root, &root], "files and directories, "),
        (&["dedupe", &root], "files and directories, "),
        (&["filesystem", "defragment", "-r", &root], "files and directories, "),
        (&["quota", "enable", &image_name], "all is counted in "),
        (&["quota", "rescan", &image_name], "all is counted in "),
        (&["subvolume", "delete", &place("/sub")?], "nothing is left of what was deleted in "),
    ];
    for (words, wanted) in rows {
        let said = bench.creamery().run(words).arg("--progress").ok()?.stderr_text();
        let last = said.lines().last().unwrap_or_default();
        ensure!(last.contains(wanted), "{words:?}: {said}");
    }
    let said = bench
        .creamery()
        .run(["cp", "-a", &tree, &dir.join("again").display().to_string()])
        .ok()?
        .stderr_text();
    ensure!(said.is_empty(), "{said}");
    btrfs_check(&image)
}
