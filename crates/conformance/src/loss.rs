//! A mount reports lost changes. No change is lost in silence, however a mount ends.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Finished, FuseMount, Judge, Run, Signal, btrfs_check, daemon, signal, until};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::mappings::{LEN, MappingWriter, program};
use crate::support::{JUDGED, MOUNTED, expect_refusal, inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let with_cc = [&MOUNTED[..], &[Judge::Tool("cc")]].concat();
    let with_users = [&MOUNTED[..], &[Judge::Tool("setpriv")]].concat();
    vec![
        Case::new("loss/last-commit", &MOUNTED, last_commit),
        Case::new("loss/room-on-the-host", &MOUNTED, room_on_the_host),
        Case::new("loss/behind-another-failure", &JUDGED, behind_another_failure),
        Case::new("loss/while-dropping", &JUDGED, while_dropping),
        Case::new("loss/told-everywhere", &MOUNTED, told_everywhere),
        Case::new("mount/names-forge-no-lines", &MOUNTED, forged),
        Case::new("loss/of-mappings", &with_cc, of_mappings),
        Case::new("loss/of-delayed-data", &MOUNTED, of_delayed_data),
        Case::new("loss/openers-and-users", &with_users, openers_and_users),
        Case::new(
            "loss/limit-of-length",
            &[&MOUNTED[..], &[Judge::Tool("prlimit")]].concat(),
            limit_of_length,
        ),
        Case::new("loss/server-killed", &MOUNTED, server_killed),
        Case::new("loss/reading-server-killed", &MOUNTED, reading_server_killed),
        Case::new(
            "loss/signal-while-mounting",
            &[&MOUNTED[..], &[Judge::Tool("strace")]].concat(),
            signal_while_mounting,
        ),
        Case::new("loss/well-is-quiet", &MOUNTED, well_is_quiet),
        Case::new("loss/sync", &JUDGED, sync),
        Case::new("loss/terminated-with-writers", &JUDGED, terminated_with_writers),
        Case::new("loss/remount-settles", &JUDGED, remount_settles),
        Case::new("loss/stranger-with-the-lock", &JUDGED, stranger_with_the_lock),
    ]
}

/// A filesystem of the host that will be full: an image on it, and a mount of the image.
struct FullHost<'a> {
    bench: &'a Bench,
    host: PathBuf,
    image: PathBuf,
    mount: FuseMount,
}

impl<'a> FullHost<'a> {
    fn new(bench: &'a Bench) -> Result<Self> {
        Self::with(bench, "disk.img")
    }

    /// Makes the image with this name.
    fn with(bench: &'a Bench, name: &str) -> Result<Self> {
        let host = bench.scratch.dir("host")?;
        Run::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "none"]).arg(&host).ok()?;
        let image = host.join(name);
        mkfs_empty(bench.creamery(), &["-m", "single"], "1G", &image)?;
        // Reads must not cause a commit, for which there will be no room.
        let options = "commit=3600,noatime,allow_other";
        let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), options)?;
        Ok(Self { bench, host, image, mount })
    }

    /// Makes directories that need more room in a commit than is left.
    fn make_and_fill(&self) -> Result<()> {
        for number in 0..301 {
            std::fs::create_dir(self.mount.dir().join(format!("dir-{number}")))?;
        }
        self.fill()
    }

    /// Leaves no room on the host.
    fn fill(&self) -> Result<()> {
        let mut fill = File::create(self.host.join("fill"))?;
        let zeros = vec![0; 64 << 10];
        while fill.write_all(&zeros).is_ok() {}
        Ok(())
    }

    fn umount(&self) -> Result<Finished> {
        let said = self.bench.creamery().run(["umount"]).arg(self.mount.dir()).again_while_busy().output()?;
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        ensure!(!mounts.contains(&*self.mount.dir().to_string_lossy()), "it is still mounted: {said}");
        Ok(said)
    }

    /// Checks that the image has the state of the last commit.
    fn expect_the_last_commit(self) -> Result<()> {
        std::fs::remove_file(self.host.join("fill"))?;
        btrfs_check(&self.image)?;
        let listed = self.bench.creamery().run(["ls"]).arg(inside(&self.image, "/")).ok()?;
        ensure!(listed.stdout.is_empty(), "there is something: {listed}");
        Run::new("umount").arg(&self.host).again_while_busy().ok().map(drop)
    }
}

fn expect_loss(said: &Finished, words: &[&str]) -> Result<()> {
    ensure!(said.code == Some(1), "a loss is told as success: {said}");
    let text = said.stderr_text();
    ensure!(text.trim_end().lines().count() == 1, "one line was wanted: {said}");
    for word in words {
        ensure!(text.contains(word), "{word:?} is not in it: {said}");
    }
    Ok(())
}

const WHY: [&str; 2] = ["aborted, phase ", "No space left on device"];

/// The image has room, and its host has none: the error says so, also if a control of the mount meets it.
fn room_on_the_host(bench: &Bench) -> Result<()> {
    let host = FullHost::new(bench)?;
    let dir = host.mount.dir();
    let creamery = |words: &[&str]| bench.creamery().run(words);
    creamery(&["subvolume", "create"]).arg(dir.join("work")).ok()?;
    creamery(&["sync"]).arg(dir).ok()?;
    host.fill()?;
    std::fs::write(dir.join("work/file"), creamery_testkit::Random::new(1).bytes(3_000_000))?;
    let snapshot = creamery(&["subvolume", "snapshot"]).arg(dir.join("work")).arg(dir.join("copy"));
    expect_refusal(snapshot, &["No space left on device", "make room on the host"])?;
    host.umount()?;
    std::fs::remove_file(host.host.join("fill"))?;
    btrfs_check(&host.image)?;
    Run::new("umount").arg(&host.host).again_while_busy().ok().map(drop)
}

/// One of several operands is refused, and the changes of the others are not durable: both are reported.
fn behind_another_failure(bench: &Bench) -> Result<()> {
    let host = bench.scratch.dir("host")?;
    Run::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "none"]).arg(&host).ok()?;
    let image = host.join("disk.img");
    mkfs_empty(bench.creamery(), &["-m", "single"], "1G", &image)?;
    let places: Vec<_> = (0..400).map(|number| inside(&image, &format!("/dir-{number}"))).collect();
    bench.creamery().run(["mkdir"]).arg(&places[7]).ok()?;
    std::fs::write(host.join("fill"), vec![0; 64 << 20]).expect_err("the host has less");
    let said = bench.creamery().run(["mkdir"]).args(&places).output()?;
    let text = said.stderr_text();
    ensure!(said.code == Some(1) && text.contains("/dir-7: already exists"), "{said}");
    let last = text.lines().last().unwrap_or_default();
    ensure!(last.contains("No space left on device") && last.contains("make room on the host"), "{said}");
    std::fs::remove_file(host.join("fill"))?;
    btrfs_check(&image)?;
    Run::new("umount").arg(&host).again_while_busy().ok().map(drop)
}

/// Drops a deleted subvolume on a host with little or no room: each error gives that reason, and no consequence of it.
fn while_dropping(bench: &Bench) -> Result<()> {
    let (host, kept) = (bench.scratch.dir("host")?, bench.scratch.file("kept.img"));
    Run::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "none"]).arg(&host).ok()?;
    mkfs_empty(bench.creamery(), &["-m", "single"], "256M", &kept)?;
    let subvolume = |word: &str| bench.creamery().run(["subvolume", word]);
    subvolume("create").arg(inside(&kept, "/work")).ok()?;
    let source = bench.scratch.dir("source")?;
    (0..4000).try_for_each(|number| std::fs::write(source.join(number.to_string()), "text"))?;
    bench.creamery().run(["cp", "-r"]).arg(&source).arg(inside(&kept, "/work")).ok()?;
    subvolume("snapshot").args([inside(&kept, "/work"), inside(&kept, "/copy")]).ok()?;
    bench.creamery().run(["touch"]).arg(inside(&kept, "/copy/source/7")).ok()?;
    let (image, fill) = (host.join("disk.img"), host.join("fill"));
    let mut refused = 0;
    for room in [0, 16, 48, 64, 96] {
        Run::new("cp").arg("--sparse=always").args([&kept, &image]).ok()?;
        std::fs::write(&fill, vec![0; 64 << 20]).expect_err("the host has less");
        let filled = std::fs::metadata(&fill)?.len();
        File::options().write(true).open(&fill)?.set_len(filled - (room << 10))?;
        let deleted = subvolume("delete").args(["/work", "/copy"].map(|path| inside(&image, path)));
        for run in [deleted, subvolume("sync").arg(&image)] {
            let said = run.output()?;
            if said.code != Some(0) {
                refused += 1;
                expect_loss(&said, &[&WHY[..], &["(os error 28); make room on the host"]].concat())?;
            }
        }
        std::fs::remove_file(&fill)?;
        subvolume("sync").arg(&image).ok()?;
        btrfs_check(&image)?;
        std::fs::remove_file(&image)?;
    }
    ensure!(refused > 0, "there was room for all");
    Run::new("umount").arg(&host).again_while_busy().ok().map(drop)
}

fn last_commit(bench: &Bench) -> Result<()> {
    let host = FullHost::new(bench)?;
    host.make_and_fill()?;
    let said = host.umount()?;
    expect_loss(&said, &[&["unmounted", "lost", "the log is "], &WHY[..]].concat())?;
    host.expect_the_last_commit()
}

fn told_everywhere(bench: &Bench) -> Result<()> {
    let host = FullHost::new(bench)?;
    let dir = host.mount.dir().to_owned();
    let (file, root) = (File::create(dir.join("file"))?, File::open(&dir)?);
    std::fs::remove_file(dir.join("file"))?;
    host.make_and_fill()?;
    expect_loss(&bench.creamery().run(["sync"]).arg(&dir).output()?, &WHY)?;

    // Each later fsync fails, too, as on Linux.
    for synced in [file.sync_all(), file.sync_data(), root.sync_all(), file.sync_all()] {
        let code = synced.err().and_then(|error| error.raw_os_error());
        ensure!(code == Some(30), "fsync after an abort gives {code:?}, want EROFS");
    }
    let code = std::fs::create_dir(dir.join("more")).err().and_then(|error| error.raw_os_error());
    ensure!(code == Some(30), "mkdir after an abort gives {code:?}, want EROFS");
    ensure!(std::fs::read_dir(&dir)?.count() == 301, "reading goes on");
    expect_loss(&bench.creamery().run(["sync"]).arg(&host.image).output()?, &WHY)?;

    // The statistics report the loss.
    let told = bench.creamery().run(["stats", "--json"]).arg(&dir).ok()?;
    let told: Value = serde_json::from_slice(&told.stdout).context("the statistics are no JSON")?;
    let aborted = &told["filesystem"]["aborted"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    ensure!(text(&aborted["reason"]).contains("No space left"), "the reason is {aborted}");
    ensure!(text(&aborted["place"]).contains(".rs:"), "the place is {aborted}");
    let people = bench.creamery().run(["stats"]).arg(&dir).ok()?.stdout_text();
    for words in ["ABORTED", "No space left", ".rs:", "log: "] {
        ensure!(people.contains(words), "{words:?} is not in:\n{people}");
    }
    let mounts = bench.creamery().run(["mounts"]).ok()?.stdout_text();
    let row = mounts.lines().find(|line| line.contains(&*host.image.to_string_lossy()));
    ensure!(row.is_some_and(|row| row.contains(" aborted ")), "{mounts}");
    // The log reports it once, although it lies on a disk that may be full.
    let log = std::fs::read_to_string(text(&told["log"])).context("reading the log")?;
    ensure!(log.lines().filter(|line| line.contains("aborted, phase ")).count() == 1, "the log has:\n{log}");
    // The place in the source belongs in the log.
    ensure!(log.contains("(at crates/") && log.contains(".rs:"), "the log has:\n{log}");

    let options = ["mount", "-o", "remount,rw"];
    let refused = bench.creamery().run(options).arg(&host.image).arg(&dir).output()?;
    expect_loss(&refused, &["the filesystem aborted", "No space left"])?;
    drop((file, root));
    expect_loss(&host.umount()?, &WHY)?;
    host.expect_the_last_commit()
}

/// An image with a line end and a terminal's escape in its name.
fn forged(bench: &Bench) -> Result<()> {
    let host = FullHost::with(bench, "a\n2026-01-01 forged\u{1b}[2J.img")?;
    host.make_and_fill()?;
    expect_loss(&bench.creamery().run(["sync"]).arg(host.mount.dir()).output()?, &WHY)?;
    let told = bench.creamery().run(["stats", "--json"]).arg(&host.image).ok()?;
    let told: Value = serde_json::from_slice(&told.stdout)?;
    let log = std::fs::read_to_string(told["log"].as_str().context("no log")?)?;
    let is_ours =
        |line: &str| line.contains(" creamery[") && line.contains("a\\n2026-01-01 forged\\u{1b}[2J.img");
    ensure!(log.lines().count() > 0 && log.lines().all(is_ours), "{log:?}");
    let shown = bench.creamery().run(["stats"]).arg(&host.image).ok()?.stdout_text();
    let is_forged = |line: &str| line.starts_with("2026-01-01") || line.contains('\u{1b}');
    ensure!(!shown.lines().any(is_forged) && shown.contains("log: "), "{shown:?}");
    expect_loss(&host.umount()?, &WHY)?;
    host.expect_the_last_commit()
}

/// A mapped file is changed, and written back when no process is left to get the error.
fn of_mappings(bench: &Bench) -> Result<()> {
    let program = program(bench)?;
    let host = FullHost::new(bench)?;
    let path = host.mount.dir().join("mapped");
    let file = File::create(&path)?;
    file.write_all_at(b"written", 0)?; // this gives data its block group
    file.set_len(LEN)?;
    bench.creamery().run(["sync"]).arg(host.mount.dir()).ok()?;
    drop(file);
    host.fill()?;
    MappingWriter::start(&program, &path)?.end()?;
    let said = host.umount()?;
    expect_loss(&said, &["unmounted", "written data was lost", "No space left", "the log is "])?;
    std::fs::remove_file(host.host.join("fill"))?;
    btrfs_check(&host.image)?;
    Run::new("umount").arg(&host.host).again_while_busy().ok().map(drop)
}

/// Delayed data that cannot be written disappears everywhere, also from the kernel's pages. Each process that has the file open gets an
/// error, and so do syncs and the unmount.
fn of_delayed_data(bench: &Bench) -> Result<()> {
    const OLD: usize = 5_000_000;
    const NEW: usize = 2_000_000;
    let host = FullHost::new(bench)?;
    let path = host.mount.dir().join("file");
    let [writer, other] =
        [(); 2].map(|()| File::options().read(true).write(true).create(true).truncate(false).open(&path));
    let (writer, other) = (writer?, other?);
    writer.write_all_at(&vec![b'o'; OLD], 0)?;
    // The names and extents are in the trees now: a commit on the full host has nothing to write.
    bench.creamery().run(["sync"]).arg(host.mount.dir()).ok()?;
    host.fill()?;
    writer.write_all_at(&vec![b'n'; NEW], 0)?;
    let expect_fsync = |file: &File, told: Option<i32>| {
        let code = file.sync_all().err().and_then(|error| error.raw_os_error());
        ensure!(code == told, "fsync gives {code:?}, want {told:?}");
        Ok(())
    };
    expect_fsync(&writer, Some(28))?;
    expect_fsync(&File::open(&path)?, None)?;
    expect_fsync(&writer, None)?;
    expect_fsync(&other, Some(28))?;
    let old = |read: &[u8]| read.len() == OLD && read.iter().all(|byte| *byte == b'o');
    until("what was lost to be read no more", || Ok(old(&std::fs::read(&path)?)))?;
    drop((writer, other));
    let words = ["written data was lost", "no space left"];
    let (sync, umount) = (bench.creamery().run(["sync"]).arg(host.mount.dir()).output()?, host.umount()?);
    expect_loss(&sync, &words)?;
    expect_loss(&umount, &[&["unmounted"], &words[..]].concat())?;
    for said in [sync, umount] {
        ensure!(!said.stderr_text().contains("abort"), "nothing aborted: {said}");
    }
    std::fs::remove_file(host.host.join("fill"))?;
    btrfs_check(&host.image)?;
    let read = bench.creamery().run(["cat"]).arg(inside(&host.image, "/file")).ok()?.stdout;
    ensure!(old(&read), "the image has something else");
    Run::new("umount").arg(&host.host).again_while_busy().ok().map(drop)
}

/// The writer closes the file before its data is lost: the next opener gets the error, and each user gets it on sync.
fn openers_and_users(bench: &Bench) -> Result<()> {
    let host = FullHost::new(bench)?;
    let dir = host.mount.dir();
    let path = dir.join("file");
    std::fs::write(&path, vec![b'o'; 5_000_000])?;
    let root = || bench.creamery().run(["sync"]).arg(dir);
    root().ok()?;
    host.fill()?;
    File::options().write(true).open(&path)?.write_all_at(&vec![b'n'; 2_000_000], 0)?;
    std::fs::set_permissions(bench.scratch.path(), std::fs::Permissions::from_mode(0o755))?;
    let copy = bench.scratch.file("creamery");
    bench.creamery().copy_to(&copy)?;
    let nobody = || {
        let as_nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
        Run::new("setpriv").args(as_nobody).arg(&copy).arg("sync").arg(dir)
    };
    let words = ["written data was lost", "no space left"];
    expect_loss(&nobody().output()?, &words)?;
    let fsync = || Ok(File::open(&path)?.sync_all().err().and_then(|error| error.raw_os_error()));
    let codes: Result<Vec<_>> = [(); 2].map(|()| fsync()).into_iter().collect();
    ensure!(codes? == [Some(28), None], "the next opener, and the one after that");
    nobody().ok()?;
    expect_loss(&root().output()?, &words)?;
    root().ok()?;
    expect_loss(&host.umount()?, &[&["unmounted"], &words[..]].concat())?;
    std::fs::remove_file(host.host.join("fill"))?;
    btrfs_check(&host.image)?;
    Run::new("umount").arg(&host.host).again_while_busy().ok().map(drop)
}

/// A server with a limit on file size (RLIMIT_FSIZE) goes on, and reports the loss.
fn limit_of_length(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let dir = bench.scratch.dir("fuse")?;
    let mut limited = Run::new("prlimit").arg("--fsize=41943040").arg(bench.creamery().path());
    limited = limited.arg("mount").arg(&image).arg(&dir);
    limited.ok()?;
    let file = File::create(dir.join("file"))?;
    file.write_all_at(&vec![7; 100 << 20], 0)?;
    ensure!(file.sync_all().is_err(), "written behind the limit");
    drop(file);
    bench.creamery().run(["stats"]).arg(&dir).ok()?;
    expect_loss(
        &bench.creamery().run(["umount"]).arg(&dir).again_while_busy().output()?,
        &["unmounted", "lost"],
    )?;
    btrfs_check(&image)
}

fn mounted(bench: &Bench) -> Result<(PathBuf, FuseMount)> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "commit=3600")?;
    Ok((image, mount))
}

fn server_killed(bench: &Bench) -> Result<()> {
    let (image, mount) = mounted(bench)?;
    std::fs::create_dir(mount.dir().join("dir"))?;
    signal(Signal::KILL, daemon(&image)?)?;
    // The kernel notices the end when the last of the server's threads is gone.
    while std::fs::metadata(mount.dir()).is_ok() {}
    let said = bench.creamery().run(["umount"]).arg(mount.dir()).again_while_busy().output()?;
    expect_loss(&said, &["unmounted", "had died", "lost"])?;
    btrfs_check(&image)
}

/// The mount table does not show whether a read-only mount was written before, so no loss is claimed.
fn reading_server_killed(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    for options in ["ro", ""] {
        let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), options)?;
        if options.is_empty() {
            std::fs::write(mount.dir().join("file"), "content")?;
            bench.creamery().run(["mount", "-o", "remount,ro"]).arg(&image).arg(mount.dir()).ok()?;
        }
        signal(Signal::KILL, daemon(&image)?)?;
        while std::fs::metadata(mount.dir()).is_ok() {}
        let said = bench.creamery().run(["umount"]).arg(mount.dir()).again_while_busy().output()?;
        expect_loss(&said, &["unmounted", "had died", "nothing is lost if it was read-only from the start"])?;
        btrfs_check(&image)?;
    }
    let kept = bench.creamery().run(["cat"]).arg(inside(&image, "/file")).ok()?;
    ensure!(kept.stdout == b"content", "{kept}");
    Ok(())
}

/// A signal during the mount, or before the server leaves its terminal, ends the mount, not only the server.
fn signal_while_mounting(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let dir = bench.scratch.dir("fuse")?;
    for (words, call) in [(&["mount", "-F"][..], "mount"), (&["mount"], "mount"), (&["mount"], "setsid")] {
        for signal in ["TERM", "INT", "HUP"] {
            let inject = format!("inject={call}:signal={signal}:when=1");
            let traced = Run::new("strace").args(["-f", "-qq", "-e", "trace=mount,setsid", "-e", &inject]);
            let run = traced.arg(bench.creamery().path()).args(words).arg(&image).arg(&dir).output()?;
            let seen = run.stderr_text();
            ensure!(seen.contains(&format!("SIG{signal}")), "the signal came: {run}");
            let table = std::fs::read_to_string("/proc/self/mounts")?;
            ensure!(!table.contains(&*dir.to_string_lossy()), "{call}, SIG{signal}: still mounted: {run}");
        }
    }
    btrfs_check(&image)
}

/// A mount that ends well leaves no log, and its server prints the path of the log.
fn well_is_quiet(bench: &Bench) -> Result<()> {
    let (image, mount) = mounted(bench)?;
    let told = bench.creamery().run(["stats", "--json"]).arg(&image).ok()?;
    let told: Value = serde_json::from_slice(&told.stdout)?;
    let log = PathBuf::from(told["log"].as_str().context("no log")?);
    let mode = log.metadata()?.permissions().mode();
    ensure!(mode & 0o077 == 0, "others may read the log: {mode:o}");
    ensure!(told["filesystem"]["aborted"].is_null(), "nothing aborted: {told}");
    mount.unmount()?;
    ensure!(!log.exists(), "a log is left: {}", std::fs::read_to_string(&log)?);
    Ok(())
}

fn sync(bench: &Bench) -> Result<()> {
    let (image, mount) = mounted(bench)?;
    for place in [mount.dir(), &image] {
        let name = format!("file-{}", place.is_dir());
        std::fs::write(mount.dir().join(&name), b"content")?;
        bench.creamery().run(["sync"]).arg(place).ok()?;
        let copy = bench.scratch.file("copy.img");
        Run::new("cp").arg("--sparse=always").arg(&image).arg(&copy).ok()?;
        let said = bench.creamery().run(["cat"]).arg(inside(&copy, &format!("/{name}"))).ok()?;
        ensure!(said.stdout == b"content", "after a sync the image has {said}");
        btrfs_check(&copy)?;
    }
    mount.unmount()?;
    expect_refusal(bench.creamery().run(["sync"]).arg(&image), &["no mount of this image"])?;
    expect_refusal(bench.creamery().run(["sync"]).arg(bench.scratch.path()), &["nothing is mounted there"])
}

/// SIGTERM beside writers: the server ends, and acknowledged writes are in the image.
fn terminated_with_writers(bench: &Bench) -> Result<()> {
    let (image, mount) = mounted(bench)?;
    let (stop, counts) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    std::thread::scope(|scope| -> Result<()> {
        for (writer, count) in counts.iter().enumerate() {
            let (dir, stop) = (mount.dir(), &stop);
            scope.spawn(move || {
                let Ok(log) = File::create(dir.join(format!("log-{writer}"))) else { return };
                while !stop.load(Ordering::Relaxed) {
                    let number = count.load(Ordering::Relaxed);
                    let made = std::fs::create_dir(dir.join(format!("{writer}-{number}")));
                    let wrote = made.and_then(|()| log.write_all_at(&number.to_le_bytes(), number * 8));
                    if wrote.is_err() {
                        return;
                    }
                    count.store(number + 1, Ordering::Relaxed);
                }
            });
        }
        while counts.iter().any(|count| count.load(Ordering::Relaxed) < 200) {
            std::thread::yield_now();
        }
        let server = daemon(&image)?;
        signal(Signal::TERM, server)?;
        let ended = until("the server to end", || Ok(!Path::new("/proc").join(server.to_string()).exists()));
        stop.store(true, Ordering::Relaxed);
        ended.context("the server goes on as long as there are writers")
    })?;
    drop(mount);
    btrfs_check(&image)?;
    let listed = bench.creamery().run(["ls"]).arg(inside(&image, "/")).ok()?.stdout_text();
    let there: std::collections::HashSet<&str> = listed.lines().collect();
    for (writer, count) in counts.iter().enumerate() {
        for number in 0..count.load(Ordering::Relaxed) {
            ensure!(there.contains(&*format!("{writer}-{number}")), "{writer}-{number} is lost");
        }
        let log = bench.creamery().run(["cat"]).arg(inside(&image, &format!("/log-{writer}"))).ok()?.stdout;
        for number in 0..count.load(Ordering::Relaxed) {
            let at = usize::try_from(number * 8)?;
            ensure!(
                log.get(at..at + 8) == Some(&number.to_le_bytes()[..]),
                "write {number} of {writer} is lost"
            );
        }
    }
    Ok(())
}

/// After `remount,ro` the image is as after an unmount: no work waits, no deletion is half done, and no write follows.
fn remount_settles(bench: &Bench) -> Result<()> {
    let (image, mount) = mounted(bench)?;
    let dir = mount.dir();
    std::fs::create_dir(dir.join("sub"))?;
    let mut held = Vec::new();
    for number in 0..40 {
        let path = dir.join(format!("sub/file-{number}"));
        std::fs::write(&path, vec![1; 20_000])?;
        held.push(File::open(&path)?);
        std::fs::remove_file(&path)?;
    }
    std::fs::write(dir.join("sub/kept"), b"content")?;
    drop(held);
    bench.creamery().run(["mount", "-o", "remount,ro"]).arg(&image).arg(dir).ok()?;
    let refused = std::fs::write(dir.join("new"), b"").err().and_then(|error| error.raw_os_error());
    ensure!(refused == Some(30), "writing after remount,ro gives {refused:?}");
    let copy = bench.scratch.file("copy.img");
    Run::new("cp").arg("--sparse=always").arg(&image).arg(&copy).ok()?;
    btrfs_check(&copy)?;
    let said = bench.creamery().run(["cat"]).arg(inside(&copy, "/sub/kept")).ok()?;
    ensure!(said.stdout == b"content", "the image has {said}");
    let tree = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "5"]).arg(&copy).ok()?;
    let orphans = tree.stdout_text().matches("ORPHAN_ITEM").count();
    ensure!(orphans == 0, "{orphans} files are half deleted");
    bench.creamery().run(["mount", "-o", "remount,rw"]).arg(&image).arg(dir).ok()?;
    std::fs::write(dir.join("new"), b"")?;
    mount.unmount()
}

/// A process that may only read the image gets its lock as soon as the server releases it, and keeps it for as long as it likes.
fn stranger_with_the_lock(bench: &Bench) -> Result<()> {
    let (image, mount) = mounted(bench)?;
    std::fs::write(mount.dir().join("file"), b"content")?;
    let (opened, (end, ended)) = (File::open(&image)?, std::sync::mpsc::channel::<()>());
    let stranger = std::thread::spawn(move || {
        let locked = flock(&opened, FlockOperation::LockExclusive);
        let _ = ended.recv(); // it ends when the sender is gone
        locked
    });
    wait_for_lock(&image)?;
    let said = bench.creamery().run(["umount"]).arg(mount.dir()).again_while_busy().output();
    drop(end);
    stranger.join().expect("it does not panic").context("locking")?;
    let said = said.context("the unmount waits for a stranger")?;
    ensure!(said.code == Some(0), "{said}");
    btrfs_check(&image)
}

/// Waits until a process waits for the server's lock.
fn wait_for_lock(image: &Path) -> Result<()> {
    let inode = format!(":{} ", image.metadata()?.ino());
    until(&format!("somebody to wait for the lock of {}", image.display()), || {
        let locks = std::fs::read_to_string("/proc/locks")?;
        Ok(locks.lines().any(|line| line.contains("->") && line.contains(&inode)))
    })
}
