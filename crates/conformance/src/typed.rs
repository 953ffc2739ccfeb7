//! Commands as users type them: an image or its mount point, lists of mounts, words of btrfs-progs, images in use.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopDevice, LoopMount, Run};
use serde_json::Value;

use crate::support::{MOUNTED, expect_failure, expect_refusal, mkfs_empty, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("typed/mounts-are-listed", &MOUNTED, mounts_are_listed),
        Case::new("typed/image-or-mount-point", &MOUNTED, image_or_mount_point),
        Case::new("typed/busy-umount-names-users", &MOUNTED, busy_umount_names_users),
        Case::new("typed/handed-over-to-btrfs-progs", &MOUNTED, handed_over),
        Case::new(
            "typed/kept-beside-linux",
            &[&MOUNTED[..], &[Judge::Tool("sfdisk")]].concat(),
            kept_beside_linux,
        ),
        Case::new("typed/wait-for-an-image", &[Judge::Program], wait_for_an_image),
        Case::new("typed/missing-commands-are-named", &[Judge::Program], missing_commands),
    ]
}

fn mounted(bench: &Bench, options: &str) -> Result<(PathBuf, FuseMount)> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-L", "milk"], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), options)?;
    Ok((image, mount))
}

/// The output for `words` and `place`.
fn said(bench: &Bench, words: &str, place: &Path) -> Result<String> {
    Ok(bench.creamery().run(words.split(' ')).arg(place).ok()?.stdout_text())
}

/// The row of `mounts --json` for the mount at `point`.
fn row_of(bench: &Bench, point: &Path) -> Result<Option<Value>> {
    let told = bench.creamery().run(["mounts", "--json"]).ok()?.stdout_text();
    let rows: Vec<Value> = serde_json::from_str(&told).with_context(|| told.clone())?;
    Ok(rows.into_iter().find(|row| row["mount_point"] == point.to_string_lossy().as_ref()))
}

/// The list has image, place, subvolume, mode and process. `filesystem show` prints the same as for the unmounted image.
fn mounts_are_listed(bench: &Bench) -> Result<()> {
    let (image, mount) = mounted(bench, "")?;
    let dir = mount.dir().to_owned();
    bench.creamery().run(["subvolume", "create"]).arg(dir.join("sub")).ok()?;
    let row = row_of(bench, &dir)?.context("the mount is not listed")?;
    ensure!(row["image"] == image.to_string_lossy().as_ref() && row["read_only"] == false, "{row}");
    ensure!(row["subvolume"] == "/" && row["subvolume_id"] == 5 && row["server"] == "answers", "{row}");
    let process = row["process"].as_u64().context("no process")?;
    let name = std::fs::read_to_string(format!("/proc/{process}/comm"))?;
    ensure!(name.trim() == "creamery", "process {process} is {name}");
    let table = bench.creamery().run(["mounts"]).ok()?.stdout_text();
    let line = table.lines().find(|line| line.contains(&*dir.to_string_lossy())).context("no line")?;
    ensure!(
        line.contains("disk.img") && line.contains(" rw ") && line.ends_with(&process.to_string()),
        "{line}"
    );
    // By mount point, by image, and without an operand.
    let by_point = said(bench, "filesystem show", &dir)?;
    ensure!(by_point.contains("'milk'") && by_point.contains("path /"), "{by_point}");
    ensure!(by_point == said(bench, "filesystem show", &image)?, "the image and its mount differ");
    let all = bench.creamery().run(["filesystem", "show"]).output()?.stdout_text();
    let uuid = row["uuid"].as_str().context("no UUID")?;
    ensure!(all.contains(uuid), "no {uuid} in:\n{all}");
    let live: Value = serde_json::from_str(&said(bench, "filesystem show --json", &dir)?)?;
    mount.unmount()?;
    ensure!(row_of(bench, &dir)?.is_none(), "what is unmounted is listed");
    let closed: Value = serde_json::from_str(&said(bench, "filesystem show --json", &image)?)?;
    for field in ["uuid", "metadata_uuid", "label", "node_size", "sector_size", "checksum", "features"] {
        ensure!(live[0][field] == closed[0][field], "{field}: {} and {}", live[0][field], closed[0][field]);
    }
    let mount = FuseMount::mount(bench.creamery(), &image, &dir, "ro,subvol=sub")?;
    let row = row_of(bench, &dir)?.context("the mount is not listed")?;
    ensure!(row["subvolume"] == "/sub" && row["read_only"] == true, "{row}");
    mount.unmount()
}

/// Either is accepted, also under another name; where only one works, the error names the other.
fn image_or_mount_point(bench: &Bench) -> Result<()> {
    let (image, mount) = mounted(bench, "")?;
    let dir = mount.dir().to_owned();
    bench.creamery().run(["subvolume", "create"]).arg(dir.join("sub")).ok()?;
    bench.creamery().run(["sync"]).arg(&image).ok()?;
    for words in ["filesystem usage -b", "filesystem df -b", "subvolume list", "subvolume get-default"] {
        let (one, other) = (said(bench, words, &image)?, said(bench, words, &dir)?);
        ensure!(one == other, "{words}: of the image\n{one}of the mount\n{other}");
    }
    let figures = |text: &str| -> Result<Vec<String>> {
        let line = text.lines().nth(1).context("no second line")?;
        Ok(line.split_whitespace().take(4).map(str::to_owned).collect())
    };
    let (one, other) = (said(bench, "df --raw", &image)?, said(bench, "df --raw", &dir)?);
    ensure!(figures(&one)? == figures(&other)?, "df: {one}{other}");
    // The mount answers, so there is no wait.
    let waiting = said(bench, "df --raw --wait 1000000", &image)?;
    ensure!(waiting == one, "df --wait: {waiting}{one}");
    said(bench, "stats", &image)?;
    said(bench, "stats", &dir.join("sub"))?;
    let deleted = bench.creamery().run(["subvolume", "delete", "--subvol", "x"]).arg(dir.join("sub"));
    expect_refusal(deleted, &["is on a live mount", "--subvol"])?;
    // A mount shows the view that it was mounted with.
    for words in [
        "df --generation 7",
        "filesystem usage --rescue all",
        "subvolume list --usebackuproot",
        "filesystem show --generation 7",
        "subvolume snapshot --subvol sub",
        "filesystem defragment -r --usesupercopy",
        "filesystem trim --usesupercopy",
        "filesystem fiemap --generation 7",
    ] {
        let mut refused = bench.creamery().run(words.split(' ')).arg(&dir);
        if words.starts_with("subvolume snapshot") {
            refused = refused.arg(dir.join("copy"));
        }
        expect_refusal(refused, &["is on a live mount", "requires an image", "unmount it first"])
            .with_context(|| words.to_owned())?;
    }
    // Places on no mount have their own errors.
    let (plain, none) = (bench.scratch.dir("plain")?, bench.scratch.file("none"));
    for (words, place, told) in [
        ("filesystem fiemap --subvol x", &none, "no such file"),
        ("filesystem fiemap --subvol x", &image, "not on a mount of an image"),
        ("filesystem defragment -r --subvol x", &plain.join("none"), "no such file"),
        ("filesystem trim --usesupercopy", &plain, "nothing is mounted there"),
    ] {
        let refused = bench.creamery().run(words.split(' ')).arg(place).output()?;
        let said = refused.stderr_text();
        ensure!(refused.code != Some(0) && !said.contains("is on a live mount"), "{words}: {refused}");
        ensure!(said.to_lowercase().contains(told), "{words}: {refused}");
    }
    let point = dir.display().to_string();
    for words in [&["ls"][..], &["check"], &["tune", "-n"]] {
        let refused = bench.creamery().run(words).arg(&image);
        expect_failure(refused, &["mounted at", &point, "in use"]).with_context(|| format!("{words:?}"))?;
    }
    expect_refusal(bench.creamery().run(["ls"]).arg(&image), &["use `ls` of the host", "creamery umount"])?;
    expect_refusal(bench.creamery().run(["ls"]).arg(&dir), &["on a live mount", "use `ls` of the host"])?;
    // A link to the image counts as the image.
    let link = bench.scratch.file("link.img");
    symlink(&image, &link)?;
    bench.creamery().run(["umount"]).arg(&link).ok()?;
    ensure!(row_of(bench, &dir)?.is_none(), "it is still mounted");
    expect_refusal(bench.creamery().run(["umount"]).arg(&image), &["no mount", "creamery mounts"])?;
    expect_refusal(bench.creamery().run(["sync"]).arg(&image), &["no mount", "creamery mounts"])
}

/// A process in the directory `dir` that waits for the end of its standard input.
fn waiting_in(dir: &Path) -> Result<Child> {
    Ok(Command::new("cat").current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?)
}

fn busy_umount_names_users(bench: &Bench) -> Result<()> {
    let (_, mount) = mounted(bench, "")?;
    let mut child = waiting_in(mount.dir())?;
    let umount = || bench.creamery().run(["umount"]).arg(mount.dir());
    let (pid, own) = (child.id().to_string(), std::process::id().to_string());
    let who = format!("process {pid} (cat)");
    let refused = expect_failure(umount(), &[&who, "working directory", "-l", "in use"]);
    drop(child.stdin.take());
    child.wait()?;
    refused?;
    let file = std::fs::File::create(mount.dir().join("file"))?;
    let who = format!("process {own} (");
    expect_failure(umount(), &[&who, "has files open there"])?;
    drop(file);
    mount.unmount()
}

/// A place on a mount of Linux' own Btrfs goes to the `btrfs` behind ours in PATH, and to no copy of ours again.
fn handed_over(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-L", "of-linux"], "256M", &image)?;
    let (ours, wrappers) = (bench.scratch.dir("ours")?, bench.scratch.dir("wrappers")?);
    symlink(bench.creamery().path(), ours.join("btrfs"))?;
    let script = wrappers.join("btrfs");
    std::fs::write(&script, format!("#!/bin/sh\nexec '{}' \"$@\"\n", ours.join("btrfs").display()))?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    let linux = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    let path = std::env::var("PATH").unwrap_or_default();
    let call = |before: &str, words: &str, place: &Path| {
        let run = Run::new(ours.join("btrfs")).args(words.split(' ')).arg(place);
        run.env("PATH", before.replace("OURS", &ours.display().to_string()).replace("PATH", &path))
    };
    call("OURS:PATH", "sub cr", &linux.dir().join("made")).ok()?;
    ensure!(linux.dir().join("made").is_dir(), "btrfs-progs made no subvolume");
    for words in ["subvolume list", "scrub status", "filesystem show", "balance status"] {
        let theirs = Run::new("btrfs").args(words.split(' ')).arg(linux.dir()).output()?;
        let handed = call("OURS:PATH", words, linux.dir()).output()?;
        ensure!(
            (handed.code, handed.stdout_text()) == (theirs.code, theirs.stdout_text()),
            "{words}: {handed}\nbtrfs-progs: {theirs}"
        );
    }
    // Without another `btrfs`, and with one that leads back.
    let none = call("OURS", "subvolume list", linux.dir());
    expect_failure(none, &["Linux' own Btrfs", "PATH has no `btrfs` but this one", "install btrfs-progs"])?;
    call("OURS", "filesystem df", linux.dir()).ok()?;
    // Neither a wrapper nor a copy of ours counts as the other one.
    let copies = bench.scratch.dir("copies")?;
    bench.creamery().copy_to(&copies.join("btrfs"))?;
    let before = format!("OURS:{}:{}", wrappers.display(), copies.display());
    let came_back = expect_failure(call(&before, "subvolume list", linux.dir()), &["called this"])?;
    ensure!(came_back.stderr_text().contains("copies/btrfs"), "{came_back}");
    call(&format!("{before}:PATH"), "subvolume list", linux.dir()).ok()?;
    // All filesystems: those of Linux, and then ours, each once, also through a wrapper. Other cases have some mounted, too.
    let of_ours = bench.scratch.file("ours.img");
    mkfs_empty(bench.creamery(), &["-L", "our-own"], "200M", &of_ours)?;
    let mount = FuseMount::mount(bench.creamery(), &of_ours, &bench.scratch.file("mount"), "")?;
    for (words, before) in [
        (&["filesystem", "show"][..], String::new()),
        (&["filesystem", "show", "--raw"], String::new()),
        (&["filesystem", "show"], format!("{}:", wrappers.display())),
    ] {
        let all = Run::new(ours.join("btrfs")).args(words);
        let all = all.env("PATH", format!("{}:{before}{path}", ours.display())).output()?;
        let count = |word: &str| all.stdout_text().matches(word).count();
        ensure!(count("'of-linux'") == 1 && count("'our-own'") == 1, "{words:?} {before}: {all}");
    }
    mount.unmount()?;
    // btrfs-progs gets every file there, also images, and names that lead nowhere.
    let inner = linux.dir().join("in.img");
    mkfs_empty(bench.creamery(), &[], "200M", &inner)?;
    let before = std::fs::read(&inner)?;
    call("OURS:PATH", "property set", &inner).args(["compression", "zstd"]).ok()?;
    ensure!(std::fs::read(&inner)? == before, "the image in the file has changed");
    let theirs = Run::new("btrfs").args(["property", "get"]).arg(&inner).ok()?.stdout_text();
    ensure!(theirs.contains("zstd"), "the file has no property: {theirs}");
    call("OURS:PATH", "subvolume create -p", &linux.dir().join("p/q/r")).ok()?;
    call("OURS:PATH", "subvolume create", Path::new("relative")).within(linux.dir()).ok()?;
    ensure!(linux.dir().join("relative").is_dir(), "btrfs-progs made no subvolume by a relative name");
    let missing = call("OURS:PATH", "subvolume delete", &linux.dir().join("none")).output()?;
    let theirs = Run::new("btrfs").args(["subvolume", "delete"]).arg(linux.dir().join("none")).output()?;
    ensure!(missing.stderr_text() == theirs.stderr_text(), "{missing}\nbtrfs-progs: {theirs}");
    linux.unmount()?;
    // A call about an image is not handed over.
    call("OURS:PATH", "subvolume list", &image).ok()?;
    expect_failure(call("OURS:PATH", "balance start", &image), &["balance start is not part of creamery"])
        .map(drop)
}

/// In a directory on a mount of Linux, a partition of a disk is an image, and a word is no file: such calls are not handed over.
fn kept_beside_linux(bench: &Bench) -> Result<()> {
    let (image, of_ours) = (bench.scratch.file("disk.img"), bench.scratch.file("ours.img"));
    mkfs_empty(bench.creamery(), &[], "512M", &image)?;
    mkfs_empty(bench.creamery(), &["-L", "our-own"], "200M", &of_ours)?;
    let ours = bench.scratch.dir("ours")?;
    symlink(bench.creamery().path(), ours.join("btrfs"))?;
    let linux = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    // There is no other one.
    let call = |words: &str, place: &Path| {
        let run = Run::new(ours.join("btrfs")).args(words.split(' ')).arg(place).within(linux.dir());
        run.env("PATH", &ours)
    };
    let disk = linux.dir().join("disk.raw");
    sparse_file(&disk, 220 << 20)?;
    Run::new("sfdisk").arg("-q").arg(&disk).input("label: gpt\nname=root\n").ok()?;
    bench.creamery().run(["mkfs", "-q", "-L", "of-part"]).arg(linux.dir().join("disk.raw@1")).ok()?;
    let shown = call("filesystem show", Path::new("disk.raw@1")).ok()?;
    ensure!(shown.stdout_text().contains("'of-part'"), "{shown}");
    std::fs::write(linux.dir().join("third"), "a file with the name of a label")?;
    let loop_device = LoopDevice::attach(&of_ours, false)?;
    call("filesystem resize max", loop_device.path()).ok()?;
    call("filesystem label", loop_device.path()).arg("third").ok()?;
    loop_device.detach()?;
    // Words that are also names of files there: only the operand counts.
    for word in ["compression", "data", "subvol"] {
        std::fs::create_dir(linux.dir().join(word))?;
    }
    let root = PathBuf::from(format!("{}:/", of_ours.display()));
    call("property set", &root).args(["compression", "zstd"]).ok()?;
    call("property get -t subvol", &root).arg("ro").ok()?;
    call("filesystem label", Path::new("disk.raw@1")).arg("data").ok()?;
    let shown = bench.creamery().run(["filesystem", "show"]).arg(&of_ours).ok()?.stdout_text();
    ensure!(shown.contains("'third'"), "{shown}");
    linux.unmount()
}

/// A command that waits prints so, and goes on when the holder is gone.
fn wait_for_an_image(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mut holder = Command::new("flock")
        .arg("-x")
        .arg(&image)
        .args(["sh", "-c", "echo locked; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    BufReader::new(holder.stdout.take().context("a pipe")?).read_line(&mut said)?;
    ensure!(said == "locked\n", "flock says {said:?}");
    expect_failure(bench.creamery().run(["ls"]).arg(&image), &["disk.img", "in use"])?;
    expect_failure(bench.creamery().run(["ls", "--wait", "0"]).arg(&image), &["disk.img", "in use"])?;
    let mut waiters = Vec::new();
    for words in [&["ls"][..], &["mkdir"], &["check"], &["mkfs", "-q", "-f"]] {
        let mut place = image.clone().into_os_string();
        if words[0] == "mkdir" {
            place.push(":/made");
        }
        let mut waiter = Command::new(bench.creamery().path());
        waiter.args(words).args(["--wait", "1000000"]).arg(place);
        waiters.push((words, waiter.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?));
    }
    let mut told = Vec::new();
    for (words, waiter) in &mut waiters {
        let mut line = String::new();
        let mut errors = BufReader::new(waiter.stderr.take().context("a pipe")?);
        errors.read_line(&mut line)?;
        told.push((*words, line, errors));
    }
    // All of them wait; then the holder ends.
    drop(holder.stdin.take());
    holder.wait()?;
    for (words, line, _) in &told {
        ensure!(line.contains("waiting") && line.contains("disk.img"), "{words:?} says {line:?}");
    }
    for (words, mut waiter) in waiters {
        let status = waiter.wait()?;
        ensure!(status.success(), "{words:?} ends with {status}");
    }
    Ok(())
}

/// Under our own name the messages are those under the name `btrfs`.
fn missing_commands(bench: &Bench) -> Result<()> {
    let link = bench.scratch.file("btrfs");
    symlink(bench.creamery().path(), &link)?;
    for words in ["send x", "receive x", "balance start x", "device add x y", "replace start 1 x y"] {
        let own = bench.creamery().run(words.split(' ')).output()?;
        let linked = Run::new(&link).args(words.split(' ')).output()?;
        ensure!(own.code == Some(2) && linked.code == Some(1), "{words}: {own}\n{linked}");
        let text = own.stderr_text().trim().trim_start_matches("creamery: ").to_owned();
        ensure!(text.contains("is not part of creamery") && text.contains("; "), "{words}: {text}");
        let by_link = linked.stderr_text().trim().trim_start_matches("btrfs: ").to_owned();
        ensure!(by_link == text, "{words}: {text}\nby the link {by_link}");
    }
    expect_refusal(bench.creamery().run(["sned", "x"]), &["unrecognized subcommand"])
}
