//! What scrubs say to do next is true, and what they cannot do is refused by its name.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Signal, btrfs_check, signal, until};

use crate::scrub::later::{Scrubs, image};
use crate::scrub::{pattern, places, rot};
use crate::sets::{Set, seed_and_sprout, with_kernel};
use crate::superblock_copies::with_a_log;
use crate::support::{JUDGED, MOUNTED, expect_failure, expect_refusal, inside};
use crate::tree_log::{LOG_ROOT_AT, superblock_word};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("scrub/a-bad-first-superblock-is-one-for-super-recover", &JUDGED, first_superblock),
        Case::new("scrub/what-is-not-for-mounts-is-refused", &MOUNTED, not_for_mounts),
        Case::new("scrub/an-older-state-of-the-image-is-not-gone-on-with", &JUDGED, older_state),
        Case::new("scrub/status-of-a-mounted-image-is-that-of-the-mount", &JUDGED, status_of_mounted),
        Case::new("scrub/a-log-that-waits-is-committed-as-advised", &MOUNTED, with_log),
        Case::new("scrub/a-signal-leaves-something-to-resume", &JUDGED, interrupted),
        Case::new("scrub/of-a-mount-that-nobody-wrote-to", &JUDGED, of_untouched_mount),
        Case::new("scrub/limits-that-cannot-be-read-are-named", &MOUNTED, damaged_limits),
        Case::new("scrub/why-nothing-can-be-mended-is-said", &JUDGED, hindrance),
        Case::new("scrub/complaints-alone", &JUDGED, quiet),
        Case::new("scrub/of-what-was-made-from-a-seed", &JUDGED, made_from_seed),
    ]
}

/// So slow that nothing ends before it is ended.
const SLOW: &str = "64K";

/// Whichever member has it, what is advised brings it back.
fn first_superblock(bench: &Bench) -> Result<()> {
    for bad in 0..2 {
        let set = Set::made(bench, &format!("set-{bad}"), &["-d", "raid1", "-m", "raid1"], 2)?;
        let path = &set.members[bad];
        rot(path, 64 << 10)?;
        let advice = format!("`creamery rescue super-recover {}`", path.display());
        let start =
            |words: &[&str]| bench.creamery().run(["scrub", "start", "-B"]).args(words).arg(set.first());
        let seen = start(&["-r"]).output()?;
        let error = seen.stderr_text();
        ensure!(seen.code == Some(3) && error.contains(&advice) && !error.contains("backup"), "{seen}");
        let mend = || start(&[]).arg("--device").arg(&set.members[1]);
        expect_refusal(mend(), &["superblock at 65536", "super-recover"])?;
        let recovered = bench.creamery().run(["rescue", "super-recover", "-y"]).arg(path).output()?;
        ensure!(recovered.code == Some(2), "{recovered}");
        let mended = mend().ok()?.stdout_text();
        ensure!(mended.contains("no errors found"), "{mended}");
    }
    Ok(())
}

/// What lies in the place of the image is an earlier state of it: what was scrubbed is not there any more.
fn older_state(bench: &Bench) -> Result<()> {
    let image = image(bench)?;
    let before = std::fs::read(&image)?;
    with_kernel(bench, std::slice::from_ref(&image), "rw", |dir| {
        Ok(std::fs::write(dir.join("more"), "text")?)
    })?;
    let scrubs = Scrubs { bench, image: image.clone(), others: Vec::new() };
    scrubs.call(&["start", "--limit", SLOW]).ok()?;
    scrubs.call(&["cancel"]).ok()?;
    std::fs::write(&image, before)?;
    expect_refusal(scrubs.call(&["resume", "-B"]), &["older state", "scrub start"])?;
    scrubs.call(&["start", "-B"]).ok().map(drop)
}

/// The status of an image that a mount has is that of the mount, and not what the server has written last.
fn status_of_mounted(bench: &Bench) -> Result<()> {
    let image = image(bench)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "")?;
    let [live, of_image] =
        [mount.dir(), &image].map(|place| Scrubs { bench, image: place.to_owned(), others: Vec::new() });
    let scrubbed = |scrubs: &Scrubs<'_>| -> Result<u64> {
        let device = &scrubs.status()?["devices"][0];
        Ok(device["data_bytes_scrubbed"].as_u64().unwrap_or(0)
            + device["tree_bytes_scrubbed"].as_u64().unwrap_or(0))
    };
    live.call(&["start", "--limit", SLOW]).ok()?;
    until("it has scrubbed something", || Ok(scrubbed(&live)? > 0))?;
    let (of_mount, of_image) = (scrubbed(&live)?, scrubbed(&of_image)?);
    ensure!(of_image >= of_mount, "{of_mount} bytes, and of the image {of_image}");
    mount.unmount()
}

/// What is advised where a log waits commits it, and then the numbers of the device are kept.
fn with_log(bench: &Bench) -> Result<()> {
    let image = with_a_log(bench)?;
    rot(&image, 64 << 20)?;
    let scrub = || bench.creamery().run(["scrub", "start", "-B"]).arg(&image);
    let said = scrub().ok()?.stderr_text();
    let advice = format!("`creamery touch {}:/`", image.display());
    ensure!(said.contains("the log is not replayed") && said.contains(&advice), "{said}");
    ensure!(superblock_word(&image, LOG_ROOT_AT)? != 0, "the scrub replayed it");
    bench.creamery().run(["touch"]).arg(inside(&image, "/")).ok()?;
    ensure!(superblock_word(&image, LOG_ROOT_AT)? == 0, "the log waits still");
    rot(&image, 64 << 20)?;
    let said = scrub().ok()?.stderr_text();
    ensure!(!said.contains("log"), "{said}");
    let stats = bench.creamery().run(["device", "stats"]).arg(&image).ok()?.stdout_text();
    ensure!(stats.lines().any(|line| line.contains("corruption_errs") && line.ends_with(" 1")), "{stats}");
    Ok(())
}

/// What has no meaning on a mount is not passed over in silence.
fn not_for_mounts(bench: &Bench) -> Result<()> {
    let image = image(bench)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "")?;
    let other = format!("--device={}", image.display());
    for words in [
        &["start", "--degraded"][..],
        &["start", &other],
        &["start", "--rewrite-parity"],
        &["resume", "--degraded"],
        &["status", "--degraded"],
        &["cancel", "--degraded"],
        &["limit", "--degraded"],
    ] {
        let option = words[1].split('=').next().unwrap_or_default();
        let run = bench.creamery().run(["scrub"]).args(words).arg(mount.dir());
        expect_failure(run, &[option, "image"]).with_context(|| format!("{words:?}"))?;
    }
    // As scripts call `btrfs scrub`.
    let said =
        bench.creamery().run(["scrub", "start", "-Bd", "-f", "-c", "2", "-n", "4"]).arg(mount.dir()).ok()?;
    ensure!(said.stderr_text().contains("-c and -n have no effect"), "{said}");
    mount.unmount()
}

/// SIGINT ends it, and the message is that of a scrub.
fn interrupted(bench: &Bench) -> Result<()> {
    let image = image(bench)?;
    let scrubs = Scrubs { bench, image: image.clone(), others: Vec::new() };
    let state = bench.scratch.file("state");
    let call = |words: &[&str]| scrubs.call(words).env("XDG_STATE_HOME", &state);
    // Tests in the background ignore SIGINT, and so would what they start.
    let mut command = Command::new("env");
    command.arg("--default-signal=INT").arg(bench.creamery().path());
    command.args(["scrub", "start", "-B", "--limit", SLOW]).arg(&image).env("XDG_STATE_HOME", &state);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    until("it runs", || Ok(call(&["status"]).ok()?.stdout_text().contains("running")))?;
    signal(Signal::INT, child.id())?;
    let mut error = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().context("its complaints")?, &mut error)?;
    child.wait()?;
    ensure!(error.contains("ended by SIGINT") && error.contains("creamery scrub resume"), "{error}");
    ensure!(!error.contains("files and directories"), "{error}");
    call(&["resume", "-B"]).ok().map(drop)
}

/// Before anybody writes to a mount, what its reads repair is held. A scrub sees what is on the device, writes nothing with -r, and mends without.
fn of_untouched_mount(bench: &Bench) -> Result<()> {
    let set = Set::made(bench, "set", &["-d", "dup", "-m", "dup"], 1)?;
    with_kernel(bench, &set.members, "rw", |dir| Ok(std::fs::write(dir.join("file"), pattern(1))?))?;
    let image = set.first();
    let found = places(image, &pattern(1))?;
    ensure!(found.len() == 2, "two copies: {found:?}");
    for at in found {
        rot(image, at)?;
        let rotten = std::fs::read(image)?;
        let mount = FuseMount::mount(bench.creamery(), image, &bench.scratch.file("mount"), "noatime")?;
        let scrub = |words: &[&str]| bench.creamery().run(["scrub", "start"]).args(words).arg(mount.dir());
        for round in 1..=2 {
            ensure!(std::fs::read(mount.dir().join("file"))? == pattern(1), "one copy is good");
            let seen = scrub(&["-B", "-r", "-R"]).output()?;
            let said = seen.stdout_text();
            ensure!(seen.code == Some(3) && said.contains("csum_errors: 1"), "round {round}: {seen}");
        }
        ensure!(std::fs::read(image)? == rotten, "with -r nothing is written");
        let mended = scrub(&["-B", "-R"]).ok()?.stdout_text();
        ensure!(mended.contains("corrected_errors: 1"), "{mended}");
        mount.unmount()?;
        ensure!(places(image, &pattern(1))?.len() == 2, "the copy is good again");
    }
    btrfs_check(image)
}

/// No scrub begins without the limits that a user has set; what is there can be seen.
fn damaged_limits(bench: &Bench) -> Result<()> {
    let image = image(bench)?;
    let state = bench.scratch.file("state");
    let scrub = |place: &Path, words: &[&str]| {
        bench.creamery().run(["scrub"]).args(words).arg(place).env("XDG_STATE_HOME", &state)
    };
    scrub(&image, &["limit", "-a", "-l", "1M"]).ok()?;
    let files = std::fs::read_dir(state.join("creamery"))?.collect::<Result<Vec<_>, _>>()?;
    let limits = files.iter().find(|file| file.file_name().to_string_lossy().starts_with("scrub.limits."));
    let limits = limits.context("there is a file of limits")?.path();
    std::fs::write(&limits, "1:fast\n")?;
    let wanted = ["limits of scrub", "remove the file"];
    let point = bench.scratch.dir("mount")?;
    bench.creamery().run(["mount"]).args([&image, &point]).env("XDG_STATE_HOME", &state).ok()?;
    let mount = FuseMount::adopt(bench.creamery(), &point)?;
    let refused = |place: &Path| -> Result<()> {
        for words in [&["start", "-B", "-r"][..], &["limit"], &["limit", "-a", "-l", "2M"]] {
            expect_refusal(scrub(place, words), &wanted).with_context(|| format!("{words:?}"))?;
        }
        scrub(place, &["status"]).ok().map(drop)
    };
    refused(mount.dir())?;
    mount.unmount()?;
    refused(&image)?;
    std::fs::remove_file(&limits)?;
    scrub(&image, &["start", "-B", "-r"]).ok().map(drop)
}

/// Advice that leads back to where it was given helps nobody.
fn hindrance(bench: &Bench) -> Result<()> {
    let set = Set::made(bench, "set", &["-d", "dup", "-m", "dup"], 1)?;
    with_kernel(bench, &set.members, "rw", |dir| Ok(std::fs::write(dir.join("file"), pattern(1))?))?;
    let image = set.first();
    rot(image, places(image, &pattern(1))?[0])?;
    let said = |place: &Path| -> Result<String> {
        let seen = bench.creamery().run(["scrub", "start", "-B", "-r"]).arg(place).output()?;
        ensure!(seen.code == Some(3), "{seen}");
        Ok(seen.stderr_text())
    };
    ensure!(said(image)?.contains("without -r repairs them"), "{}", said(image)?);
    let mount = FuseMount::mount(bench.creamery(), image, &bench.scratch.file("mount"), "ro")?;
    let of_mount = said(mount.dir())?;
    ensure!(of_mount.contains("read-only") && of_mount.contains("unmount it"), "{of_mount}");
    mount.unmount()?;
    let pair = Set::made(bench, "pair", &["-d", "raid1", "-m", "raid1"], 2)?;
    with_kernel(bench, &pair.members, "rw", |dir| Ok(std::fs::write(dir.join("file"), pattern(2))?))?;
    rot(pair.first(), places(pair.first(), &pattern(2))?[0])?;
    std::fs::rename(&pair.members[1], bench.scratch.file("away"))?;
    let lonely = bench.creamery().run(["scrub", "start", "-B", "-r", "--degraded"]).arg(pair.first());
    let lonely = lonely.output()?;
    ensure!(lonely.code == Some(3) && !lonely.stderr_text().contains("without -r"), "{lonely}");
    Ok(())
}

/// With -q nothing is printed but complaints. A scrub that another command meets has its name.
fn quiet(bench: &Bench) -> Result<()> {
    let image = image(bench)?;
    let scrub = |words: &[&str]| bench.creamery().run(["scrub"]).args(words).arg(&image);
    for words in [&["start", "-B", "-q"][..], &["start", "-q", "--limit", SLOW]] {
        let said = scrub(words).ok()?;
        ensure!(said.stdout_text().is_empty() && said.stderr_text().is_empty(), "{words:?}: {said}");
    }
    let touch = bench.creamery().run(["touch"]).arg(inside(&image, "/new"));
    expect_refusal(touch, &["(creamery scrub) has it open"])?;
    scrub(&["cancel"]).ok().map(drop)
}

/// All commands mean the scrub of the filesystem, and not one of its seed.
fn made_from_seed(bench: &Bench) -> Result<()> {
    let (_, image) = seed_and_sprout(bench)?;
    let scrubs = Scrubs { bench, image, others: Vec::new() };
    scrubs.call(&["start", "-r", "--limit", SLOW]).ok()?;
    ensure!(scrubs.status()?["devices"][0]["status"] == "running", "{}", scrubs.status()?);
    scrubs.call(&["limit", "-a", "-l", "1G"]).ok()?;
    scrubs.call(&["cancel"]).ok()?;
    scrubs.call(&["resume", "-B", "-r"]).ok()?;
    let status = scrubs.status()?;
    let devices = status["devices"].as_array().context("devices")?;
    ensure!(devices.len() == 2 && devices.iter().all(|device| device["status"] == "finished"), "{status}");
    ensure!(status["mode"] == "read-only", "{status}");
    Ok(())
}
