//! `creamery check`: its exit status, its output, and that it never writes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Finished, Judge};
use serde_json::Value;

use crate::support::{expect_refusal, expect_untouched, flip_byte, inside, mkfs_from, sparse_file};

const PROGRAM: [Judge; 1] = [Judge::Program];
const CLEAN: i32 = 0;
const DAMAGED: i32 = 4;
const NOT_CHECKED: i32 = 8;
const WRONG_CALL: i32 = 16;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("check/exit-status", &PROGRAM, exit_status),
        Case::new("check/json", &PROGRAM, json),
        Case::new("check/json-when-nothing-can-be-checked", &PROGRAM, json_of_nothing),
        Case::new("check/progress", &PROGRAM, progress),
        Case::new("check/names-the-files-of-damaged-data", &PROGRAM, names_of_files),
    ]
}

fn image(bench: &Bench) -> Result<PathBuf> {
    let source = bench.scratch.dir("source")?;
    for number in 0..300 {
        std::fs::write(source.join(format!("file-{number}")), vec![b'q'; 5000])?;
    }
    std::fs::write(source.join("longer"), vec![b'l'; 20_000])?;
    let image = bench.scratch.file("disk.img");
    mkfs_from(bench.creamery(), &["-d", "single", "-m", "single"], &source, &image)?;
    Ok(image)
}

/// Runs a check, which must not change the image.
fn check(bench: &Bench, flags: &[&str], image: &Path, status: i32) -> Result<Finished> {
    let mut finished = None;
    expect_untouched(image, || {
        finished = Some(bench.creamery().run(["check"]).args(flags).arg(image).output()?);
        Ok(())
    })?;
    let finished = finished.context("it ran")?;
    ensure!(finished.code == Some(status), "want status {status}: {finished}");
    Ok(finished)
}

/// The finding about a sector that many files share names some of them, and the number of others; a read error gives the same place.
fn names_of_files(bench: &Bench) -> Result<()> {
    let image = image(bench)?;
    let cp = |name: &str| {
        let copy = bench.creamery().run(["cp", "--reflink=always"]).arg(inside(&image, "/longer"));
        copy.arg(inside(&image, name)).ok()
    };
    for number in 0..10 {
        cp(&format!("/clone-{number}"))?;
    }
    bench.creamery().run(["rm"]).arg(inside(&image, "/longer")).ok()?;
    // The third sector.
    let sector = place_of_data(&image, b'l')? + 2 * 4096;
    flip_byte(&image, sector + 77)?;
    let text = check(bench, &["--check-data-csum"], &image, DAMAGED)?.stdout_text();
    let line = text.lines().find(|line| line.starts_with("error 605")).context("no finding")?;
    ensure!(line.contains(&format!("devid 1 offset {sector}: checksum mismatch; of /clone-")), "{line}");
    ensure!(line.matches(" at byte 8192").count() == 8 && line.ends_with(", and 2 more"), "{line}");
    let report: Value =
        serde_json::from_slice(&check(bench, &["--check-data-csum", "--json"], &image, DAMAGED)?.stdout)?;
    let found = &report["findings"][0]["place"]["sector"];
    ensure!(found["device_offset"] == sector && found["devid"] == 1 && found["more_files"] == 2, "{found}");
    let files = found["files"].as_array().context("files")?;
    ensure!(files.len() == 8 && files.iter().all(|file| file["offset"] == 8192), "{found}");
    ensure!(files.iter().all(|file| file["path"].as_str().is_some_and(|path| path.starts_with("/clone-"))));
    let read = bench.creamery().run(["cat"]).arg(inside(&image, "/clone-3"));
    expect_refusal(
        read,
        &["/clone-3", "bytes 8192 to 12288", &format!("offset {sector}): checksum mismatch")],
    )
}

/// The address of a file's bytes: a page of a letter that only this file has.
fn place_of_data(image: &Path, letter: u8) -> Result<u64> {
    let bytes = std::fs::read(image)?;
    let page = bytes.chunks(4096).position(|page| page.iter().all(|byte| *byte == letter));
    Ok(page.context("no data in the image")? as u64 * 4096)
}

fn exit_status(bench: &Bench) -> Result<()> {
    let image = image(bench)?;
    check(bench, &[], &image, CLEAN)?;
    let clean = check(bench, &["--check-data-csum"], &image, CLEAN)?;
    ensure!(clean.stdout_text().contains("0 errors, 0 warnings"), "{clean}");
    flip_byte(&image, place_of_data(&image, b'q')? + 17)?;
    check(bench, &[], &image, CLEAN)?;
    let damaged = check(bench, &["--check-data-csum"], &image, DAMAGED)?;
    ensure!(damaged.stdout_text().contains("error 605: data does not have its checksum"), "{damaged}");
    ensure!(damaged.stderr_text().contains("check --explain NUMBER"), "{damaged}");
    let explained = bench.creamery().run(["check", "--explain", "605"]).ok()?.stdout_text();
    ensure!(explained.starts_with("error 605: data does not have its checksum\n\n"), "{explained}");
    let unknown = bench.creamery().run(["check", "--explain", "999"]).output()?;
    ensure!(unknown.code == Some(WRONG_CALL) && unknown.stderr_text().contains("'999'"), "{unknown}");
    let nothing = bench.scratch.file("nothing.img");
    sparse_file(&nothing, 1 << 20)?;
    check(bench, &[], &nothing, NOT_CHECKED)?;
    let missing = bench.creamery().run(["check"]).arg(bench.scratch.file("none.img")).output()?;
    ensure!(missing.code == Some(NOT_CHECKED), "{missing}");
    Ok(())
}

fn json(bench: &Bench) -> Result<()> {
    let image = image(bench)?;
    let said: Value = serde_json::from_str(&check(bench, &["--json"], &image, CLEAN)?.stdout_text())?;
    ensure!(said["findings"].as_array().is_some_and(Vec::is_empty), "{said}");
    for (name, least) in [("inodes", 301), ("data_extents", 300), ("tree_blocks", 8), ("trees", 5)] {
        ensure!(said["counts"][name].as_u64().is_some_and(|found| found >= least), "{name} in {said}");
    }
    // In the third sector of the file.
    let at = place_of_data(&image, b'l')? + 2 * 4096;
    flip_byte(&image, at + 17)?;
    let damaged = check(bench, &["--json", "--check-data-csum"], &image, DAMAGED)?;
    let said: Value = serde_json::from_str(&damaged.stdout_text())?;
    ensure!(said["counts"]["errors"] == 1 && said["counts"]["warnings"] == 0, "{said}");
    let finding = &said["findings"][0];
    ensure!(finding["number"] == 605 && finding["severity"] == "error", "{said}");
    for field in ["title", "message"] {
        ensure!(finding[field].as_str().is_some_and(|text| !text.is_empty()), "{field} in {said}");
    }
    let place = &finding["place"];
    let listed = bench.creamery().run(["stat", "--json"]).arg(format!("{}:/longer", image.display())).ok()?;
    let listed: Value = serde_json::from_str(&listed.stdout_text())?;
    let inode = listed.get(0).unwrap_or(&listed)["inode"].as_u64().context("no inode")?;
    ensure!(place["tree"] == 5 && place["inode"] == inode, "want inode {inode}: {said}");
    let message = finding["message"].as_str().unwrap_or_default();
    for part in [format!("byte 8192 of inode {inode}"), format!("copy at devid 1 offset {at}")] {
        ensure!(message.contains(&part), "want '{part}': {said}");
    }
    Ok(())
}

fn json_of_nothing(bench: &Bench) -> Result<()> {
    let nothing = bench.scratch.file("nothing.img");
    sparse_file(&nothing, 1 << 20)?;
    let spoiled = image(bench)?;
    for copy in [0x1_0000, 0x400_0000] {
        flip_byte(&spoiled, copy + 300)?;
    }
    for (image, status) in
        [(nothing, NOT_CHECKED), (spoiled, DAMAGED), (bench.scratch.file("none.img"), NOT_CHECKED)]
    {
        let said = bench.creamery().run(["check", "--json"]).arg(&image).output()?;
        ensure!(said.code == Some(status), "want status {status}: {said}");
        let document: Value = serde_json::from_str(&said.stdout_text()).with_context(|| said.to_string())?;
        for field in ["kind", "message"] {
            ensure!(document["error"][field].as_str().is_some_and(|text| !text.is_empty()), "{document}");
        }
    }
    Ok(())
}

fn progress(bench: &Bench) -> Result<()> {
    let image = image(bench)?;
    let quiet = check(bench, &[], &image, CLEAN)?;
    ensure!(quiet.stderr_text().is_empty(), "{quiet}");
    let told = check(bench, &["--progress"], &image, CLEAN)?;
    for part in ["chunks", "extents", "free space", "checksums", "files", "references"] {
        let line = format!("checking {part}");
        ensure!(told.stderr_text().lines().any(|it| it == line), "{line}: {told}");
    }
    ensure!(told.stdout_text() == quiet.stdout_text(), "{told}");
    Ok(())
}
