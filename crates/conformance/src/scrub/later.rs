//! Scrubs that go on in the background: asking how far one is, ending it, and going on.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Run, btrfs_check, signal, until};
use rustix::process::Signal;
use serde_json::Value;

use crate::scrub::{pattern, places, rot};
use crate::sets::{Set, with_kernel};
use crate::support::{JUDGED, MOUNTED, expect_failure, expect_refusal, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("scrub/goes-on-where-it-was-cancelled", &JUDGED, cancelled),
        Case::new("scrub/goes-on-where-it-was-killed", &JUDGED, killed),
        Case::new("scrub/a-limit-that-is-taken-back-holds-at-once", &JUDGED, taken_back),
        Case::new("scrub/a-status-is-of-one-image", &JUDGED, of_one_image),
        Case::new("scrub/status-and-exit-as-on-linux", &JUDGED, as_on_linux),
        Case::new("scrub/of-a-live-mount-mends-beside-writers", &JUDGED, live),
        Case::new("scrub/of-a-live-mount-is-ended-and-gone-on-with", &JUDGED, live_ended),
        Case::new("scrub/of-a-live-mount-is-for-root-and-the-mounter", &MOUNTED, live_rights),
    ]
}

/// So slow that nothing ends before it is ended.
const SLOW: &str = "64K";

pub(crate) struct Scrubs<'b> {
    pub(crate) bench: &'b Bench,
    pub(crate) image: PathBuf,
    pub(crate) others: Vec<PathBuf>,
}

impl Scrubs<'_> {
    pub(crate) fn call(&self, words: &[&str]) -> Run {
        let others = self.others.iter().flat_map(|other| ["--device".as_ref(), other.as_os_str()]);
        self.bench.creamery().run(["scrub"]).args(words).arg(&self.image).args(others)
    }

    pub(crate) fn status(&self) -> Result<Value> {
        Ok(serde_json::from_slice(&self.call(&["status", "--json"]).ok()?.stdout)?)
    }

    /// The numbers of all devices, but where they stopped and when.
    fn numbers(&self) -> Result<Vec<(String, u64)>> {
        let status = self.status()?;
        let mut all = Vec::new();
        for device in status["devices"].as_array().context("devices")? {
            let numbers = device.as_object().context("an object")?;
            let numbers =
                numbers.iter().filter(|(name, _)| name.ends_with("scrubbed") || name.ends_with("errors"));
            all.extend(numbers.filter_map(|(name, number)| Some((name.clone(), number.as_u64()?))));
        }
        Ok(all)
    }
}

/// An image with a few MiB of files.
pub(crate) fn image(bench: &Bench) -> Result<PathBuf> {
    let image = bench.scratch.file("disk.img");
    sparse_file(&image, 256 << 20)?;
    Run::new("mkfs.btrfs").arg("-q").arg(&image).ok()?;
    with_kernel(bench, std::slice::from_ref(&image), "rw", |dir| {
        for number in 0..40_u8 {
            std::fs::write(dir.join(number.to_string()), vec![number; 100_000 + usize::from(number)])?;
        }
        Ok(())
    })?;
    Ok(image)
}

/// One image, and a set with parity.
fn each(bench: &Bench, check: impl Fn(&Scrubs<'_>) -> Result<()>) -> Result<()> {
    check(&Scrubs { bench, image: image(bench)?, others: Vec::new() }).context("one image")?;
    let set = Set::made(bench, "set", &["-d", "raid5", "-m", "raid1"], 3)?;
    with_kernel(bench, &set.members, "rw", |dir| Ok(std::fs::write(dir.join("more"), vec![7; 3 << 20])?))?;
    let others = set.members[1..].to_vec();
    check(&Scrubs { bench, image: set.first().to_owned(), others }).context("a set")
}

/// Ended in the middle it says so, and what goes on there counts in the end what one at once has counted.
fn cancelled(bench: &Bench) -> Result<()> {
    each(bench, |scrubs| {
        scrubs.call(&["start", "-B"]).ok()?;
        let whole = scrubs.numbers()?;
        let begun = scrubs.call(&["start", "--limit", SLOW]).ok()?.stdout_text();
        let pid = scrubs.status()?["pid"].to_string();
        ensure!(
            begun.contains(&format!("(pid={pid})")) && begun.contains("Starting scrub on devid 1"),
            "{begun}"
        );
        let status = scrubs.call(&["status"]).ok()?.stdout_text();
        ensure!(
            status.contains("Status:           running") && status.contains("Bytes scrubbed:"),
            "{status}"
        );
        expect_refusal(scrubs.call(&["resume"]), &["runs", &pid])
            .or_else(|_| expect_refusal(scrubs.call(&["resume"]), &["in use"]))?;
        let ended = scrubs.call(&["cancel"]).ok()?.stdout_text();
        ensure!(ended.contains("scrub cancelled"), "{ended}");
        let status = scrubs.call(&["status"]).ok()?.stdout_text();
        ensure!(status.contains("Status:           aborted"), "{status}");
        ensure!(scrubs.numbers()? != whole, "it was ended too late to show anything");
        let again = scrubs.call(&["cancel"]).output()?;
        ensure!(again.code == Some(2) && again.stderr_text().contains("no scrub runs"), "{again}");
        scrubs.call(&["resume", "-B"]).ok()?;
        ensure!(scrubs.numbers()? == whole, "{:?}, at once {whole:?}", scrubs.numbers()?);
        let status = scrubs.call(&["status"]).ok()?.stdout_text();
        ensure!(
            status.contains("Scrub resumed:") && status.contains("Status:           finished"),
            "{status}"
        );
        let nothing = scrubs.call(&["resume"]).output()?;
        ensure!(nothing.code == Some(2) && nothing.stderr_text().contains("nothing to resume"), "{nothing}");
        Ok(())
    })
}

/// Killed, it is known as interrupted, nobody waits for it, and the next one goes on.
fn killed(bench: &Bench) -> Result<()> {
    each(bench, |scrubs| {
        scrubs.call(&["start", "-B"]).ok()?;
        let whole = scrubs.numbers()?;
        scrubs.call(&["limit", "-a", "-l", SLOW]).ok()?;
        scrubs.call(&["start"]).ok()?;
        let pid = scrubs.status()?["pid"].as_u64().context("it runs")?;
        signal(Signal::KILL, u32::try_from(pid)?)?;
        until("it is gone", || Ok(scrubs.status()?["pid"].is_null()))?;
        let status = scrubs.call(&["status"]).ok()?.stdout_text();
        ensure!(status.contains("Status:           interrupted"), "{status}");
        let limits = scrubs.call(&["limit"]).ok()?.stdout_text();
        ensure!(limits.contains("64.00KiB"), "{limits}");
        scrubs.call(&["limit", "-a", "-l", "0"]).ok()?;
        scrubs.call(&["resume", "-B"]).ok()?;
        ensure!(scrubs.numbers()? == whole, "{:?}, at once {whole:?}", scrubs.numbers()?);
        Ok(())
    })
}

/// One that would have to wait for days goes on, of an image and of a mount; and one file has one path.
fn taken_back(bench: &Bench) -> Result<()> {
    let image = image(bench)?;
    let scrubs = |place: &Path| Scrubs { bench, image: place.to_owned(), others: Vec::new() };
    let folder = bench.scratch.dir("folder")?;
    let taken_back = |scrubs: &Scrubs<'_>| -> Result<()> {
        scrubs.call(&["limit", "-a", "-l", "1"]).ok()?;
        scrubs.call(&["start", "-r"]).ok()?;
        scrubs.call(&["limit", "-a", "-l", "0"]).ok()?;
        until("it has ended", || {
            Ok(scrubs.call(&["status"]).ok()?.stdout_text().contains("Status:           finished"))
        })
    };
    taken_back(&scrubs(&folder.join("..").join("disk.img"))).context("of an image")?;
    // Named another way it is the same image; and with --limit 0 no limit holds.
    let same = scrubs(&image);
    same.call(&["limit", "-a", "-l", "1"]).ok()?;
    scrubs(&folder.join("..").join("disk.img")).call(&["start", "-r"]).ok()?;
    same.call(&["cancel"]).ok()?;
    let resumed = same.call(&["resume", "-B", "--limit", "0"]).ok()?.stdout_text();
    ensure!(resumed.contains("no errors found"), "{resumed}");
    same.call(&["limit", "-a", "-l", "0"]).ok()?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "")?;
    taken_back(&scrubs(mount.dir())).context("of a mount")?;
    mount.unmount()
}

/// A copy has not been scrubbed; one that moved is not gone on with; a status that lies is refused by its name.
fn of_one_image(bench: &Bench) -> Result<()> {
    let image = image(bench)?;
    let scrubs = |image: &Path| Scrubs { bench, image: image.to_owned(), others: Vec::new() };
    let first = scrubs(&image);
    first.call(&["start", "--limit", SLOW]).ok()?;
    first.call(&["cancel"]).ok()?;
    let [copy, moved] = ["copy.img", "moved.img"].map(|name| bench.scratch.file(name));
    std::fs::copy(&image, &copy)?;
    let status = scrubs(&copy).call(&["status"]).ok()?.stdout_text();
    ensure!(status.contains("no stats available"), "{status}");
    ensure!(scrubs(&copy).call(&["resume"]).output()?.code == Some(2), "a copy was not scrubbed");
    std::fs::rename(&image, &moved)?;
    let refused = scrubs(&moved);
    expect_refusal(refused.call(&["resume", "-B"]), &["disk.img", "moved.img", "begin a new one"])?;
    std::fs::rename(&moved, &image)?;
    first.call(&["resume", "-B"]).ok()?;

    let state = bench.scratch.file("state");
    let with_state = |words: &[&str]| first.call(words).env("XDG_STATE_HOME", &state);
    with_state(&["start", "-B"]).ok()?;
    let files = std::fs::read_dir(state.join("creamery"))?.collect::<Result<Vec<_>, _>>()?;
    let is_status =
        |file: &std::fs::DirEntry| file.file_name().to_string_lossy().starts_with("scrub.status.");
    let file = files.into_iter().find(is_status).context("a status")?.path();
    let name = file.file_name().context("a name")?.to_string_lossy().into_owned();
    let text = std::fs::read_to_string(&file)?;
    for (lie, word) in [
        (text.replace("scrub status:1", "scrub status:7"), "scrub status:7"),
        (text.replace("csum_errors:0", "csum_errors:-1"), "not a number"),
        (text.replace("data_extents_scrubbed", "colour"), "colour"),
        (
            text.lines().next().unwrap_or_default().to_owned()
                + "\n00000000-0000-0000-0000-000000000000:1|finished:1\n",
            "expected",
        ),
    ] {
        std::fs::write(&file, lie)?;
        for command in ["status", "resume", "start"] {
            expect_failure(with_state(&[command]), &[&name, word, "remove the file"])?;
        }
    }
    with_state(&["start", "-B", "-f"]).ok()?;
    ensure!(with_state(&["status"]).ok()?.stdout_text().contains("finished"), "it was written anew");
    Ok(())
}

/// The lines of a status, and the exit statuses, beside those of btrfs-progs for the same filesystem.
fn as_on_linux(bench: &Bench) -> Result<()> {
    let image = image(bench)?;
    let ours = Scrubs { bench, image: image.clone(), others: Vec::new() };
    let heads = |text: &str| -> Vec<String> {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let head = |line: &str| words(line.split(':').next().unwrap_or_default());
        text.lines().map(head).collect()
    };
    let theirs = |words: &'static [&'static str]| {
        with_kernel(bench, std::slice::from_ref(&image), "rw", move |dir| {
            Run::new("btrfs").arg("scrub").args(words).arg(dir).output()
        })
    };
    for words in [&["status"][..], &["cancel"], &["resume", "-B"], &["limit"]] {
        let (have, want) = (ours.call(words).output()?, theirs(words)?);
        ensure!(have.code == want.code, "{words:?}: {have}\nbtrfs: {want}");
        let is_list = matches!(words[0], "status" | "limit");
        ensure!(
            !is_list || heads(&have.stdout_text())[..2] == heads(&want.stdout_text())[..2],
            "{words:?}: {have}\nbtrfs: {want}"
        );
    }
    let both = [&["start", "-B"][..], &["status"], &["status", "-d"], &["status", "-R"]];
    let want = with_kernel(bench, std::slice::from_ref(&image), "rw", |dir| {
        both.iter()
            .map(|words| Run::new("btrfs").arg("scrub").args(*words).arg(dir).ok())
            .collect::<Result<Vec<_>>>()
    })?;
    for (words, want) in both.iter().zip(want) {
        let have = heads(&ours.call(words).ok()?.stdout_text());
        let want: Vec<String> = heads(&want.stdout_text());
        let known = |head: &&String| !head.starts_with("Scrub device") && !head.starts_with("scrub done");
        let lacks: Vec<_> = want.iter().filter(known).filter(|head| !have.contains(head)).collect();
        ensure!(lacks.is_empty(), "{words:?}: lines {lacks:?} are not there: {have:?}");
    }
    Ok(())
}

/// What rots in one copy while others write is mended, the numbers of the device say so, and Linux finds nothing afterwards.
fn live(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    sparse_file(&image, 512 << 20)?;
    Run::new("mkfs.btrfs").args(["-q", "-d", "dup", "-m", "dup"]).arg(&image).ok()?;
    with_kernel(bench, std::slice::from_ref(&image), "rw", |dir| {
        Ok(std::fs::write(dir.join("pattern"), [pattern(1), pattern(2), pattern(3)].concat())?)
    })?;
    let found = places(&image, &pattern(2))?;
    ensure!(found.len() == 2, "two copies: {found:?}");
    rot(&image, found[1])?;
    rot(&image, 64 << 20)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "")?;
    let scrub = |words: &[&str]| bench.creamery().run(["scrub"]).args(words).arg(mount.dir());
    // To read finds the same, and leaves it.
    let read = scrub(&["start", "-B", "-r"]).output()?;
    let text = read.stdout_text();
    ensure!(read.code == Some(3) && text.contains("csum=1") && text.contains("Unverified:     2"), "{read}");
    ensure!(places(&image, &pattern(2))? == found[..1], "nothing is mended");
    let said = std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            (0..200_u8).try_for_each(|number| {
                let file = mount.dir().join(format!("file-{number}"));
                std::fs::write(&file, vec![number; 40_000])?;
                if number % 3 == 0 { std::fs::remove_file(&file) } else { Ok(()) }
            })
        });
        let said = scrub(&["start", "-B"]).ok();
        writer.join().map_err(|_| anyhow::anyhow!("the writer"))??;
        said
    })?;
    let text = said.stdout_text();
    ensure!(
        text.contains("csum=1") && text.contains("super=1") && text.contains("Corrected:      2"),
        "{text}"
    );
    let stats = bench.creamery().run(["device", "stats"]).arg(mount.dir()).ok()?.stdout_text();
    ensure!(stats.lines().any(|line| line.contains("corruption_errs") && line.ends_with(" 2")), "{stats}");
    for words in [&["start", "-B", "-r"][..], &["start", "-B"], &["status"]] {
        let text = scrub(words).ok()?.stdout_text();
        ensure!(text.contains("no errors found") && text.contains("finished"), "{words:?}: {text}");
    }
    // The kernel would say them when it mounts the image.
    bench.creamery().run(["device", "stats", "-z"]).arg(mount.dir()).ok()?;
    mount.unmount()?;
    btrfs_check(&image)?;
    ensure!(places(&image, &pattern(2))?.len() == 2, "both copies are good");
    let theirs = with_kernel(bench, std::slice::from_ref(&image), "rw", |dir| {
        Ok(Run::new("btrfs").args(["scrub", "start", "-B", "-R"]).arg(dir).ok()?.stdout_text())
    })?;
    ensure!(theirs.contains("csum_errors: 0") && theirs.contains("super_errors: 0"), "{theirs}");
    Ok(())
}

/// It is cancelled and resumed; it ends with the mount, and when that becomes read-only; the image is gone on with where the mount stopped.
fn live_ended(bench: &Bench) -> Result<()> {
    let image = image(bench)?;
    let point = bench.scratch.file("mount");
    let of_image = Scrubs { bench, image: image.clone(), others: Vec::new() };
    of_image.call(&["start", "-B"]).ok()?;
    let whole = of_image.numbers()?;
    let mount = FuseMount::mount(bench.creamery(), &image, &point, "")?;
    let live = Scrubs { bench, image: mount.dir().to_owned(), others: Vec::new() };
    live.call(&["start", "--limit", SLOW]).ok()?;
    let again = live.call(&["start"]).output()?;
    ensure!(
        again.code == Some(1) && again.stderr_text().contains("a scrub of this mount is running"),
        "{again}"
    );
    expect_refusal(of_image.call(&["cancel"]), &["mount point", "give the mount point"])?;
    live.call(&["cancel"]).ok()?;
    ensure!(live.call(&["cancel"]).output()?.code == Some(2), "it was ended already");
    let status = live.call(&["status", "-d"]).ok()?.stdout_text();
    ensure!(status.contains("Status:           aborted") && status.contains("disk.img"), "{status}");
    live.call(&["limit", "-a", "-l", SLOW]).ok()?;
    live.call(&["resume"]).ok()?;
    let status = live.call(&["status"]).ok()?.stdout_text();
    ensure!(status.contains("Status:           running"), "{status}");
    Run::new("mount").args(["-i", "-o", "remount,ro"]).arg(mount.dir()).ok()?;
    until("it has ended", || Ok(live.call(&["status"]).ok()?.stdout_text().contains("aborted")))?;
    Run::new("mount").args(["-i", "-o", "remount,rw"]).arg(mount.dir()).ok()?;
    live.call(&["resume"]).ok()?;
    mount.unmount()?;
    let status = of_image.call(&["status"]).ok()?.stdout_text();
    ensure!(status.contains("Status:           interrupted"), "{status}");
    of_image.call(&["limit", "-a", "-l", "0"]).ok()?;
    of_image.call(&["resume", "-B"]).ok()?;
    ensure!(of_image.numbers()? == whole, "{:?}, at once {whole:?}", of_image.numbers()?);
    btrfs_check(&image)?;
    Ok(())
}

/// Others may not even ask; what is mounted read-only is read; a set is, too.
fn live_rights(bench: &Bench) -> Result<()> {
    let set = Set::made(bench, "set", &["-d", "raid5", "-m", "raid1"], 3)?;
    let mount =
        FuseMount::mount(bench.creamery(), set.first(), &bench.scratch.file("mount"), "ro,allow_other")?;
    let scrub = |words: &[&str]| bench.creamery().run(["scrub"]).args(words).arg(mount.dir());
    expect_refusal(scrub(&["start", "-B"]), &["read-only mount", "-r"])?;
    let text = scrub(&["start", "-B", "-r"]).ok()?.stdout_text();
    ensure!(text.contains("no errors found") && text.contains("Starting scrub on devid 3"), "{text}");
    let nobody = |words: &[&str]| {
        let run = Run::new("setpriv").args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        run.arg(bench.creamery().path()).arg("scrub").args(words).arg(mount.dir())
    };
    for words in [&["status"][..], &["start", "-r"], &["cancel"], &["limit"]] {
        expect_failure(nobody(words), &["permitted"])
            .or_else(|_| expect_failure(nobody(words), &["denied"]))?;
    }
    mount.unmount()
}
