//! After a scrub: damage that is left is named, counts are kept, and a scrub that cannot be resumed is refused.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Run, Signal, btrfs_check, signal, until};

use crate::rescue::commands::Host;
use crate::scrub::later::{Scrubs, image};
use crate::scrub::{pattern, places, rot};
use crate::sets::{Set, seed_and_sprout, with_kernel};
use crate::support::{JUDGED, expect_refusal, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("scrub/an-older-state-than-its-own-commit-is-refused", &JUDGED, older_than_its_commit),
        Case::new("scrub/numbers-of-a-killed-scrub-are-kept", &JUDGED, killed),
        Case::new("scrub/parity-without-checksums-names-files", &JUDGED, unsummed_parity),
        Case::new("scrub/names-are-escaped", &JUDGED, odd_names),
        Case::new("scrub/a-superblock-of-another-filesystem-is-mended", &JUDGED, foreign_superblock),
        Case::new("scrub/seeds-are-not-written-to", &JUDGED, seed),
        Case::new("scrub/resume-of-nothing-there-fails", &JUDGED, nothing_there),
        Case::new("scrub/on-a-full-host-ends-no-mount", &JUDGED, full_host),
    ]
}

/// So slow that no scrub ends by itself.
const SLOW: &str = "256K";

fn csum_errors(scrubs: &Scrubs<'_>) -> Result<u64> {
    scrubs.status()?["devices"][0]["csum_errors"].as_u64().context("csum_errors")
}

/// An image with a rotten sector in each of its larger files.
fn rotten(bench: &Bench) -> Result<Scrubs<'_>> {
    let image = image(bench)?;
    let bytes = std::fs::read(&image)?;
    let mut known = 0;
    for (number, sector) in bytes.chunks(4096).enumerate() {
        if sector[0] == known + 1 && sector.iter().all(|byte| *byte == sector[0]) {
            known = sector[0];
            rot(&image, (number * 4096) as u64)?;
        }
    }
    ensure!(known > 20, "{known} files rot");
    Ok(Scrubs { bench, image, others: Vec::new() })
}

/// The status of a scrub names the commit with its numbers. Resuming on an image that was restored to an older state is refused.
fn older_than_its_commit(bench: &Bench) -> Result<()> {
    let scrubs = rotten(bench)?;
    let before = std::fs::read(&scrubs.image)?;
    scrubs.call(&["start", "--limit", SLOW]).ok()?;
    until("it has found something", || Ok(csum_errors(&scrubs)? > 0))?;
    scrubs.call(&["cancel"]).ok()?;
    std::fs::write(&scrubs.image, before)?;
    expect_refusal(scrubs.call(&["resume", "-B"]), &["older state", "scrub start"])
}

/// When a killed scrub is resumed, its counts get into the numbers of the device.
fn killed(bench: &Bench) -> Result<()> {
    let scrubs = rotten(bench)?;
    scrubs.call(&["start", "--limit", SLOW]).ok()?;
    until("it has found something", || Ok(csum_errors(&scrubs)? > 0))?;
    let pid = scrubs.status()?["pid"].as_u64().context("it runs")?;
    signal(Signal::KILL, u32::try_from(pid)?)?;
    until("it is gone", || Ok(scrubs.status()?["pid"].is_null()))?;
    let resumed = scrubs.call(&["resume", "-B"]).output()?;
    ensure!(resumed.code == Some(3), "{resumed}");
    let wanted = format!(" {}", csum_errors(&scrubs)?);
    let stats = bench.creamery().run(["device", "stats"]).arg(&scrubs.image).ok()?.stdout_text();
    let line = stats.lines().find(|line| line.contains("corruption_errs")).context("a line")?;
    ensure!(line.ends_with(&wanted), "{line}, expected{wanted}");
    Ok(())
}

/// If parity does not fit data without checksums, the report names the files of that data, and the option that accepts it.
fn unsummed_parity(bench: &Bench) -> Result<()> {
    let set = Set::made(bench, "set", &["-d", "raid5", "-m", "raid1"], 3)?;
    with_kernel(bench, &set.members, "rw", |dir| {
        for name in ["one", "two"] {
            let file = dir.join(name);
            File::create(&file)?;
            Run::new("chattr").arg("+C").arg(&file).ok()?;
        }
        std::fs::write(dir.join("one"), pattern(1))?;
        Ok(std::fs::write(dir.join("two"), pattern(2))?)
    })?;
    for number in 1..=2 {
        // In a row with one column in use, the parity has the same bytes: either copy may rot.
        let of = |member: &PathBuf| Ok((member.clone(), places(member, &pattern(number))?));
        let found = set.members.iter().map(of).collect::<Result<Vec<_>>>()?;
        let (member, at) =
            found.iter().find_map(|(member, at)| Some((member, *at.first()?))).context("a place")?;
        rot(member, at)?;
    }
    let seen = bench.creamery().run(["scrub", "start", "-B", "-r"]).arg(set.first()).output()?;
    let (out, error) = (seen.stdout_text(), seen.stderr_text());
    ensure!(seen.code == Some(3) && error.contains("--rewrite-parity"), "{seen}");
    ensure!(out.contains("parity of data without checksum"), "{out}");
    ensure!(out.contains("  /one, byte ") && out.contains("  /two, byte "), "{out}");
    Ok(())
}

/// A name cannot look like another line, or change a colour of the terminal.
fn odd_names(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    sparse_file(&image, 256 << 20)?;
    Run::new("mkfs.btrfs").arg("-q").arg(&image).ok()?;
    let name = "esc\u{1b}[31m\ndata at devid 9 offset 5, lost: forged";
    with_kernel(bench, std::slice::from_ref(&image), "rw", |dir| {
        Ok(std::fs::write(dir.join(name), pattern(1))?)
    })?;
    rot(&image, places(&image, &pattern(1))?[0])?;
    let seen = bench.creamery().run(["scrub", "start", "-B"]).arg(&image).output()?.stdout_text();
    ensure!(
        !seen.contains('\u{1b}') && !seen.lines().any(|line| line.starts_with("data at devid 9")),
        "{seen}"
    );
    ensure!(seen.contains(r"[31m\ndata at devid 9"), "{seen}");
    Ok(())
}

/// A superblock copy of another filesystem is no newer state of this one.
fn foreign_superblock(bench: &Bench) -> Result<()> {
    let (image, other) = (image(bench)?, bench.scratch.file("other.img"));
    sparse_file(&other, 256 << 20)?;
    Run::new("mkfs.btrfs").arg("-q").arg(&other).ok()?;
    for _ in 0..20 {
        with_kernel(bench, std::slice::from_ref(&other), "rw", |dir| {
            Ok(std::fs::write(dir.join("f"), "f")?)
        })?;
    }
    let mut copy = [0; 4096];
    File::open(&other)?.read_exact_at(&mut copy, 64 << 20)?;
    File::options().write(true).open(&image)?.write_all_at(&copy, 64 << 20)?;
    let mended = bench.creamery().run(["scrub", "start", "-B"]).arg(&image).ok()?.stdout_text();
    ensure!(mended.contains("super=1") && mended.contains("Corrected:      1"), "{mended}");
    btrfs_check(&image)
}

/// A filesystem made from a seed is scrubbed, and its seed stays a seed.
fn seed(bench: &Bench) -> Result<()> {
    let (seed, sprout) = seed_and_sprout(bench)?;
    let scrub = |words: &[&str]| {
        bench.creamery().run(["scrub", "start", "-B"]).args(words).arg(&sprout).arg("--device").arg(&seed)
    };
    expect_refusal(scrub(&[]), &["seed device", "-r"])?;
    scrub(&["-r"]).ok().map(drop)
}

/// The exit status for "nothing to resume" differs from that for a missing image.
fn nothing_there(bench: &Bench) -> Result<()> {
    let resume = |place: &Path| bench.creamery().run(["scrub", "resume", "-B"]).arg(place).output();
    let (nothing, never) = (resume(&bench.scratch.file("nothing.img"))?, resume(&image(bench)?)?);
    ensure!(nothing.code == Some(1), "{nothing}");
    ensure!(never.code == Some(2), "{never}");
    Ok(())
}

/// If the host has no room for a commit, a repair that needs none is made, and its numbers are left out: a failed commit would end all writing.
fn full_host(bench: &Bench) -> Result<()> {
    let dir = bench.scratch.dir("host")?;
    let _host = Host::mount("tmpfs", "size=24m", &dir)?;
    let image = dir.join("disk.img");
    sparse_file(&image, 300 << 20)?;
    Run::new("mkfs.btrfs").args(["-q", "-d", "dup", "-m", "dup"]).arg(&image).ok()?;
    with_kernel(bench, std::slice::from_ref(&image), "rw", |dir| {
        Ok(std::fs::write(dir.join("file"), pattern(1))?)
    })?;
    rot(&image, places(&image, &pattern(1))?[1])?;
    let options = "commit=3600,noatime";
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), options)?;
    let fill = dir.join("fill");
    Run::new("dd").args(["if=/dev/zero", "bs=64k"]).arg(format!("of={}", fill.display())).output()?;
    let scrub = bench.creamery().run(["scrub", "start", "-B"]).arg(mount.dir()).ok()?;
    let (out, error) = (scrub.stdout_text(), scrub.stderr_text());
    ensure!(out.contains("Corrected:      1") && error.contains("the host has"), "{scrub}");
    std::fs::remove_file(&fill)?;
    std::fs::write(mount.dir().join("more"), "it takes writes")?;
    mount.unmount()?;
    ensure!(places(&image, &pattern(1))?.len() == 2, "the copy is good again");
    btrfs_check(&image)
}
