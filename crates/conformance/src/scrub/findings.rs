//! What scrubs leave beside their status: the findings of all parts of one scrub, and of no other.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Run, until};

use crate::scrub::later::{Scrubs, image};
use crate::scrub::rot;
use crate::sets::with_kernel;
use crate::support::{JUDGED, MOUNTED, expect_failure, expect_untouched, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("scrub/findings-are-those-of-all-parts-of-one-scrub", &JUDGED, of_one_scrub),
        Case::new("scrub/findings-of-a-live-mount-outlive-it", &MOUNTED, of_a_mount),
        Case::new("scrub/one-begun-read-only-stays-so", &JUDGED, read_only_to_the_end),
    ]
}

/// So slow that a scrub of [`image`] is seen while it runs.
const SLOW: &str = "256K";
/// Files of which the first sector rots.
const ROTTEN: std::ops::Range<u8> = 1..40;

/// Where the first sectors of the files [`ROTTEN`] lie, in their order.
fn first_sectors(image: &Path) -> Result<Vec<u64>> {
    let bytes = std::fs::read(image)?;
    let mut first = BTreeMap::new();
    for (number, sector) in bytes.chunks(4096).enumerate() {
        if ROTTEN.contains(&sector[0]) && sector.iter().all(|byte| *byte == sector[0]) {
            first.entry(sector[0]).or_insert((number * 4096) as u64);
        }
    }
    ensure!(first.len() == ROTTEN.len(), "files {:?}", first.keys());
    Ok(first.into_values().collect())
}

/// The file of findings that a status names, if it names one.
fn findings_of(scrubs: &Scrubs<'_>) -> Result<Option<PathBuf>> {
    let status = scrubs.call(&["status"]).ok()?.stdout_text();
    Ok(status.lines().find_map(|line| line.strip_prefix("Findings:")).map(|path| path.trim().into()))
}

fn csum_errors(scrubs: &Scrubs<'_>) -> Result<u64> {
    scrubs.status()?["devices"][0]["csum_errors"].as_u64().context("csum_errors")
}

/// What the first part found is named after the second one, too; a new scrub begins without it.
fn of_one_scrub(bench: &Bench) -> Result<()> {
    let image = image(bench)?;
    let sectors = first_sectors(&image)?;
    sectors.iter().try_for_each(|at| rot(&image, *at))?;
    let scrubs = Scrubs { bench, image: image.clone(), others: Vec::new() };
    scrubs.call(&["start", "--limit", SLOW]).ok()?;
    until("it has found something", || Ok(csum_errors(&scrubs)? > 0))?;
    scrubs.call(&["cancel"]).ok()?;
    let first = csum_errors(&scrubs)?;
    ensure!(first < sectors.len() as u64, "it was ended too late to show anything");
    let path = findings_of(&scrubs)?.context("the status names no findings")?;
    let lines = std::fs::read_to_string(&path)?;
    ensure!(lines.matches(", lost: ").count() as u64 == first, "{first} errors: {lines}");

    let resumed = scrubs.call(&["resume", "-B"]).output()?;
    ensure!(resumed.code == Some(3), "{resumed}");
    let lines = std::fs::read_to_string(&path)?;
    for text in [&resumed.stdout_text(), &lines] {
        for number in ROTTEN {
            ensure!(text.matches(&format!("/{number}, byte 0\n")).count() == 1, "file {number}: {text}");
        }
    }
    let file = File::options().write(true).open(&image)?;
    for (number, at) in ROTTEN.zip(&sectors).skip(1) {
        file.write_all_at(&[number; 4096], *at)?;
    }
    let one = scrubs.call(&["start", "-B"]).output()?;
    ensure!(one.code == Some(3), "{one}");
    let lines = std::fs::read_to_string(findings_of(&scrubs)?.context("findings of one in the foreground")?)?;
    ensure!(lines.matches(", lost: ").count() == 1 && lines.contains("/1, byte 0"), "{lines}");
    file.write_all_at(&[1; 4096], sectors[0])?;
    scrubs.call(&["start", "-B"]).ok()?;
    ensure!(findings_of(&scrubs)?.is_none() && !path.exists(), "a scrub that found nothing has findings");
    Ok(())
}

/// What the server of a mount finds is kept beside the status, with the files, also when it is gone.
fn of_a_mount(bench: &Bench) -> Result<()> {
    let image = image(bench)?;
    rot(&image, first_sectors(&image)?[6])?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "")?;
    let live = Scrubs { bench, image: mount.dir().to_owned(), others: Vec::new() };
    live.call(&["start"]).ok()?;
    until("it has ended", || Ok(live.call(&["status"]).ok()?.stdout_text().contains("finished")))?;
    let path = findings_of(&live)?.context("the status of the mount names no findings")?;
    mount.unmount()?;
    let of_image = Scrubs { bench, image, others: Vec::new() };
    ensure!(findings_of(&of_image)? == Some(path.clone()), "the status of the image names others");
    let lines = std::fs::read_to_string(&path)?;
    ensure!(lines.contains(", lost: ") && lines.contains("/7, byte 0"), "{lines}");
    Ok(())
}

/// A scrub that began with `-r` writes nothing when it is resumed without it, and says what mends.
fn read_only_to_the_end(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("dup.img");
    sparse_file(&image, 256 << 20)?;
    Run::new("mkfs.btrfs").args(["-q", "-d", "dup", "-m", "dup"]).arg(&image).ok()?;
    with_kernel(bench, std::slice::from_ref(&image), "rw", |dir| {
        (1..40_u8)
            .try_for_each(|number| std::fs::write(dir.join(number.to_string()), vec![number; 100_000]))?;
        Ok(())
    })?;
    let sectors = first_sectors(&image)?;
    sectors.iter().try_for_each(|at| rot(&image, *at))?;
    let scrubs = Scrubs { bench, image: image.clone(), others: Vec::new() };
    expect_untouched(&image, || {
        scrubs.call(&["start", "-r", "--limit", SLOW]).ok()?;
        until("it has found something", || Ok(csum_errors(&scrubs)? > 0))?;
        scrubs.call(&["cancel"]).ok()?;
        expect_failure(
            scrubs.call(&["resume", "--rewrite-parity", "-B"]),
            &["is read-only (-r)", "scrub start"],
        )?;
        let resumed = scrubs.call(&["resume", "-B"]).output()?;
        let (out, error) = (resumed.stdout_text(), resumed.stderr_text());
        ensure!(resumed.code == Some(3) && error.contains("begun with -r"), "{resumed}");
        ensure!(out.matches(", mendable: ").count() == sectors.len(), "{out}");
        ensure!(
            scrubs.call(&["status"]).ok()?.stdout_text().contains("read-only"),
            "the status does not say so"
        );
        Ok(())
    })?;
    let mended = scrubs.call(&["start", "-B"]).ok()?.stdout_text();
    ensure!(mended.contains(&format!("Corrected:      {}", sectors.len())), "{mended}");
    Ok(())
}
