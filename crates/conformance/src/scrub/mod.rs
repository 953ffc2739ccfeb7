//! Scrubs of images and sets that the kernel has made, beside its own.

pub(crate) mod findings;
pub(crate) mod later;
pub(crate) mod left;
pub(crate) mod said;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Run};
use serde_json::Value;

use crate::sets::{Set, with_kernel};
use crate::support::{JUDGED, MOUNTED, expect_failure, expect_refusal, expect_untouched, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("scrub/numbers-as-on-linux", &JUDGED, numbers),
        Case::new("scrub/mends-what-linux-then-finds-whole", &JUDGED, mends),
        Case::new("scrub/what-is-lost-is-named", &JUDGED, lost),
        Case::new("scrub/what-it-writes-to-is-named", &MOUNTED, named),
        Case::new("scrub/what-is-somebody-elses-stays", &JUDGED, somebody_elses),
    ]
}

/// Numbers that are those of Linux, summed over the devices.
const NUMBERS: [&str; 10] = [
    "tree_extents_scrubbed",
    "data_bytes_scrubbed",
    "tree_bytes_scrubbed",
    "read_errors",
    "csum_errors",
    "verify_errors",
    "no_csum",
    "super_errors",
    "uncorrectable_errors",
    "corrected_errors",
];

/// Lines "name: number", each name summed.
fn summed(text: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, number)) = line.trim().split_once(": ")
            && let Ok(number) = number.parse::<u64>()
        {
            *sums.entry(name.to_owned()).or_default() += number;
        }
    }
    sums
}

/// Nothing is wrong, nothing is changed, and as much was read as Linux reads.
fn numbers(bench: &Bench) -> Result<()> {
    for (profile, count) in [("single", 1), ("dup", 1), ("raid1", 2), ("raid0", 3), ("raid10", 4)] {
        let set = Set::made(bench, profile, &["-d", profile, "-m", profile], count)?;
        // A commit of Linux' own between its scrub and ours would change what there is to read.
        let theirs = with_kernel(bench, &set.members, "ro", |dir| {
            Ok(Run::new("btrfs")
                .args(["scrub", "start", "-B", "-d", "-R", "-r"])
                .arg(dir)
                .ok()?
                .stdout_text())
        })?;
        let sums: Vec<Vec<u8>> = set.members.iter().map(std::fs::read).collect::<Result<_, _>>()?;
        let ours = |words: &[&str]| -> Result<String> {
            let run = bench.creamery().run(["scrub", "start", "-B", "-d", "-R"]).args(words).arg(set.first());
            let others = set.members[1..].iter().flat_map(|member| ["--device".as_ref(), member.as_os_str()]);
            Ok(run.args(others).ok()?.stdout_text())
        };
        for words in [&["-r"][..], &[]] {
            let ours = ours(words)?;
            let (want, have) = (summed(&theirs), summed(&ours));
            for name in NUMBERS {
                ensure!(have.get(name) == want.get(name), "{profile}, {name}: btrfs\n{theirs}\nhere\n{ours}");
            }
        }
        for (member, before) in set.members.iter().zip(sums) {
            ensure!(std::fs::read(member)? == before, "{profile}: {} was changed", member.display());
        }
        std::fs::remove_dir_all(set.first().parent().context("a directory")?)?;
    }
    Ok(())
}

/// Sectors of content that no other file has.
pub(crate) fn pattern(number: u8) -> Vec<u8> {
    (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ number).collect()
}

/// Where a sector like this lies in a file.
pub(crate) fn places(file: &Path, sector: &[u8]) -> Result<Vec<u64>> {
    let bytes = std::fs::read(file)?;
    let at = bytes.chunks(sector.len()).enumerate().filter(|(_, bytes)| *bytes == sector);
    Ok(at.map(|(number, _)| (number * sector.len()) as u64).collect())
}

pub(crate) fn rot(file: &Path, at: u64) -> Result<()> {
    File::options().write(true).open(file)?.write_all_at(b"rotten", at + 77).map_err(Into::into)
}

/// What rots in one member of each pair, and its superblock's copy, is as it was afterwards; then Linux finds nothing.
fn mends(bench: &Bench) -> Result<()> {
    let set = Set::made(bench, "set", &["-d", "raid1", "-m", "raid1"], 2)?;
    with_kernel(bench, &set.members, "rw", |dir| {
        Ok(std::fs::write(dir.join("pattern"), [pattern(1), pattern(2), pattern(3)].concat())?)
    })?;
    let before: Vec<Vec<u8>> = set.members.iter().map(std::fs::read).collect::<Result<_, _>>()?;
    for (member, number) in set.members.iter().zip([1, 2]) {
        let found = places(member, &pattern(number))?;
        ensure!(!found.is_empty(), "the file lies on {}", member.display());
        found.into_iter().try_for_each(|at| rot(member, at))?;
    }
    rot(&set.members[1], 64 << 20)?;
    let scrub = |words: &[&str]| {
        let run = bench.creamery().run(["scrub", "start", "-B", "-R"]).args(words).arg(set.first());
        run.arg("--device").arg(&set.members[1])
    };
    let seen = scrub(&["-r"]).output()?;
    ensure!(seen.code == Some(3), "to read finds it: {seen}");
    let seen = summed(&seen.stdout_text());
    ensure!(
        seen["csum_errors"] == 2 && seen["super_errors"] == 1 && seen["corrected_errors"] == 0,
        "{seen:?}"
    );
    let mended = summed(&scrub(&[]).ok()?.stdout_text());
    ensure!(mended["corrected_errors"] == 3 && mended["uncorrectable_errors"] == 0, "{mended:?}");
    for (member, before) in set.members.iter().zip(before) {
        ensure!(std::fs::read(member)? == before, "{} is not what it was", member.display());
    }
    let linux = with_kernel(bench, &set.members, "rw", |dir| {
        Ok(Run::new("btrfs").args(["scrub", "start", "-B"]).arg(dir).ok()?.stdout_text())
    })?;
    ensure!(linux.contains("no errors found"), "{linux}");
    Ok(())
}

/// Of one copy nothing brings back what rots; the file, its byte and the way out are said.
fn lost(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    sparse_file(&image, 256 << 20)?;
    Run::new("mkfs.btrfs").arg("-q").arg(&image).ok()?;
    with_kernel(bench, std::slice::from_ref(&image), "rw", |dir| {
        std::fs::create_dir(dir.join("dir"))?;
        Ok(std::fs::write(dir.join("dir/file"), [pattern(5), pattern(6), pattern(7)].concat())?)
    })?;
    places(&image, &pattern(6))?.into_iter().try_for_each(|at| rot(&image, at))?;
    expect_untouched(&image, || {
        let json = bench.creamery().run(["scrub", "start", "-B", "-r", "--json"]).arg(&image).output()?;
        let json: Value = serde_json::from_slice(&json.stdout)?;
        let finding = &json["findings"][0];
        ensure!(finding["what"] == "data" && finding["outcome"] == "lost", "{json}");
        ensure!(
            finding["files"][0]["path"] == "/dir/file" && json["devices"][0]["csum_errors"] == 1,
            "{json}"
        );
        Ok(())
    })?;
    let said = bench.creamery().run(["scrub", "start", "-B"]).arg(&image).output()?;
    ensure!(said.code == Some(3), "{said}");
    let (out, error) = (said.stdout_text(), said.stderr_text());
    ensure!(out.contains("csum=1") && out.contains("Uncorrectable:  1"), "{out}");
    ensure!(out.contains("checksum mismatch") && out.contains("/dir/file, byte 4096"), "{out}");
    ensure!(error.contains("1 errors are left") && error.contains("backup"), "{error}");
    // What was found is added to the numbers of the device, and nothing else is changed.
    let stats = bench.creamery().run(["device", "stats"]).arg(&image).ok()?.stdout_text();
    ensure!(stats.lines().any(|line| line.contains("corruption_errs") && line.ends_with(" 1")), "{stats}");
    ensure!(places(&image, &pattern(7))?.len() == 1, "what was good is where it was");
    Ok(())
}

/// It writes to members that are named, to none that is missing or in use, and to nothing that is mounted.
fn named(bench: &Bench) -> Result<()> {
    let set = Set::made(bench, "set", &["-d", "raid1", "-m", "raid1"], 2)?;
    let scrub = |words: &[&str], image: &PathBuf| {
        bench.creamery().run(["scrub", "start", "-B"]).args(words).arg(image)
    };
    let second = set.members[1].display().to_string();
    for image in &set.members {
        expect_untouched(image, || {
            let other = set.members.iter().find(|other| *other != image).context("another member")?;
            let advice = format!("--device {}", other.display());
            expect_failure(scrub(&[], image), &["all devices by name", &advice]).map(drop)
        })?;
        scrub(&["-r"], image).ok()?;
    }
    scrub(&["--device", &second], &set.members[0]).ok()?;
    let mount = FuseMount::mount(bench.creamery(), set.first(), &bench.scratch.file("mount"), "ro")?;
    expect_failure(scrub(&["--device", &second], &set.members[0]), &["in use"])?;
    scrub(&["-r"], &set.members[0]).ok()?;
    expect_refusal(scrub(&[], &mount.dir().to_owned()), &["read-only mount", "-r"])?;
    expect_refusal(scrub(&[], &std::env::temp_dir()), &["not a mount of an image"])?;
    mount.unmount()?;
    let away = bench.scratch.file("away.img");
    std::fs::rename(&set.members[1], &away)?;
    expect_refusal(scrub(&[], &set.members[0]), &["device 2 is missing"])?;
    expect_refusal(scrub(&["--degraded"], &set.members[0]), &["has devices that are missing", "-r"])?;
    scrub(&["-r", "--degraded"], &set.members[0]).ok()?;
    ["start", "status", "cancel", "resume", "limit"].into_iter().try_for_each(|word| {
        expect_refusal(bench.creamery().run(["scrub", word, "no-such.img"]), &["no-such.img"])
    })
}

/// What lies behind the end of the filesystem, a device whose first superblock is gone, and a copy that is newer than the first one are not written to.
fn somebody_elses(bench: &Bench) -> Result<()> {
    let scrub = |image: &Path| bench.creamery().run(["scrub", "start", "-B"]).arg(image);
    let long = bench.scratch.file("long.img");
    sparse_file(&long, 200 << 30)?;
    Run::new("mkfs.btrfs").arg("-q").arg(&long).ok()?;
    let file = File::options().read(true).write(true).open(&long)?;
    file.set_len(300 << 30)?;
    file.write_all_at(b"somebody else's", 256 << 30)?;
    let said = scrub(&long).ok()?;
    ensure!(said.stdout_text().contains("no errors found"), "{said}");
    let mut found = [0; 15];
    file.read_exact_at(&mut found, 256 << 30)?;
    ensure!(&found == b"somebody else's", "the bytes behind the filesystem were written to");
    std::fs::remove_file(&long)?;

    let image = bench.scratch.file("disk.img");
    sparse_file(&image, 256 << 20)?;
    Run::new("mkfs.btrfs").arg("-q").arg(&image).ok()?;
    let file = File::options().read(true).write(true).open(&image)?;
    let mut first = vec![0; 4096];
    file.read_exact_at(&mut first, 64 << 10)?;
    with_kernel(bench, std::slice::from_ref(&image), "rw", |dir| {
        Ok(std::fs::write(dir.join("file"), "text")?)
    })?;
    let copy = |at: u64| -> Result<Vec<u8>> {
        let mut bytes = vec![0; 4096];
        file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    };
    let newest = copy(64 << 20)?;
    file.write_all_at(&first, 64 << 10)?;
    let said = scrub(&image).output()?;
    ensure!(said.code == Some(3) && said.stdout_text().contains("superblock at devid 1"), "{said}");
    ensure!(copy(64 << 20)? == newest, "the newer copy was overwritten");
    file.write_all_at(&[0; 4096], 64 << 10)?;
    expect_untouched(&image, || {
        expect_refusal(scrub(&image), &["the first superblock was overwritten", "super-recover"])
    })
}
