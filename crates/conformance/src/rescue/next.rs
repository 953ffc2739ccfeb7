//! Messages about damage name a next step, and that step works.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, LoopMount, Run, btrfs_check};
use serde_json::Value;

use crate::rescue::{FILES, damaged, source};
use crate::support::{JUDGED, expect_refusal, flip_byte, inside, mkfs_empty, mkfs_from};

pub(crate) fn cases() -> Vec<Case> {
    let program = [Judge::Program];
    vec![
        Case::new("rescue/report", &program, report),
        Case::new(
            "rescue/next-file-of-the-host",
            &[&JUDGED[..], &[Judge::Tool("setpriv")]].concat(),
            of_the_host,
        ),
        Case::new("rescue/ways-in", &program, ways_in),
    ]
}

/// `--report` of `cp`, `tar -c` and `restore`: each lost range, each damaged block with the files it affects, and the sums.
fn report(bench: &Bench) -> Result<()> {
    let (source, large) = source(bench)?;
    let image = damaged(bench, &source, &large)?;
    let (place, out) = (inside(&image, "/."), bench.scratch.dir("out")?);
    let restored = bench.scratch.dir("restored")?;
    let file = |name: &str| bench.scratch.file(name);
    let run = |words: &[&str]| bench.creamery().run(words).arg("--report");
    let calls = [
        ("cp", run(&["cp", "-a", "--ignore-errors"]).arg(file("cp.json")).arg(&place).arg(&out)),
        (
            "tar",
            run(&["tar", "-c", "--ignore-errors"])
                .arg(file("tar.json"))
                .arg("-f")
                .arg(file("a.tar"))
                .arg(inside(&image, "/")),
        ),
        ("restore", run(&["restore", "-i"]).arg(file("restore.json")).arg(&image).arg(&restored)),
    ];
    for (command, call) in calls {
        let done = call.output()?;
        ensure!(done.code == Some(1), "{done}");
        let report: Value = serde_json::from_slice(&fs::read(file(&format!("{command}.json")))?)?;
        let losses = report["losses"].as_array().context("losses")?;
        let of_large = losses.iter().filter(|loss| loss["path"] == "/below/large");
        let stretches: Vec<_> =
            of_large.map(|loss| (loss["offset"].as_u64(), loss["bytes"].as_u64())).collect();
        let wanted = [(0, 4096), (409_600, 8192), (1_228_800, 100)].map(|(at, len)| (Some(at), Some(len)));
        ensure!(stretches == wanted, "{command}: {report:#}");
        let sums = ["lack_bytes", "lost_bytes"].map(|sum| report[sum].as_u64());
        ensure!(sums == [Some(1), Some(12_388)], "{command}: {report:#}");
        ensure!(report["came"].as_u64().is_some_and(|came| came > 2_000), "{command}: {report:#}");
        let blocks = report["damaged_blocks"].as_array().context("blocks")?;
        let of = |kind: &str| blocks.iter().filter(|block| block["kind"] == kind).count();
        ensure!(of("data") == 3 && of("tree") >= 2, "{command}: {report:#}");
        let said = done.stderr_text();
        let lines = said.lines().filter(|line| line.contains("is damaged, and ")).count();
        ensure!(lines == blocks.len(), "a line for each block: {said}");
    }
    // A report replaces only another report.
    for (place_of_report, words) in
        [(&image, "no report"), (&out.join("below/large"), "no report"), (&file("new"), "one name")]
    {
        let refused = run(&["cp", "-a"])
            .arg(place_of_report)
            .arg(inside(&image, "/below/deeper/last"))
            .arg(file("new"));
        let wanted =
            if words == "one name" { "the report has the name of the copy" } else { "it is not a report" };
        expect_refusal(refused, &[wanted])?;
    }
    // The report has the error that ended the command.
    let lone =
        run(&["cp"]).arg(file("cp.json")).arg(inside(&image, "/below/large")).arg(file("new")).output()?;
    let report: Value = serde_json::from_slice(&fs::read(file("cp.json"))?)?;
    let why = report["ended_by"].as_str().unwrap_or_default();
    ensure!(
        lone.code == Some(1) && why.contains("no good copy") && !file("new").exists(),
        "{report:#}\n{lone}"
    );
    Ok(())
}

/// `cp` from the host goes on behind a file and a directory without read permission, as cp(1); and another name of an unreadable file is no
/// file of zeros.
fn of_the_host(bench: &Bench) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    for (name, mode) in [("a", 0o644), ("b-secret", 0o600), ("c", 0o644)] {
        fs::write(source.join(name), name.repeat(5000))?;
        fs::set_permissions(source.join(name), fs::Permissions::from_mode(mode))?;
    }
    fs::create_dir(source.join("d-closed"))?;
    fs::write(source.join("d-closed/within"), "within")?;
    fs::hard_link(source.join("d-closed/within"), source.join("z-name-of-within"))?;
    fs::set_permissions(source.join("d-closed"), fs::Permissions::from_mode(0o700))?;
    let dir = bench.scratch.dir("of-a-user")?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777))?;
    let image = dir.join("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    fs::set_permissions(&image, fs::Permissions::from_mode(0o666))?;
    // Another kind of file has the name of a directory.
    fs::create_dir(source.join("e"))?;
    fs::write(source.join("e/0-first"), "linked twice")?;
    fs::hard_link(source.join("e/0-first"), source.join("f-second"))?;
    bench.creamery().run(["mkdir"]).args([inside(&image, "/source"), inside(&image, "/source/g-2")]).ok()?;
    fs::write(source.join("g-1"), "three names")?;
    ["g-2", "g-3"].iter().try_for_each(|name| fs::hard_link(source.join("g-1"), source.join(name)))?;
    bench.creamery().run(["cp"]).arg(source.join("a")).arg(inside(&image, "/source/e")).ok()?;
    let copied = Run::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(bench.creamery().path())
        .args(["cp", "-a"])
        .arg(&source)
        .arg(inside(&image, "/"))
        .output()?;
    let said = copied.stderr_text();
    ensure!(copied.code == Some(1), "{copied}");
    for name in ["/b-secret", "/d-closed", "/e", "/f-second", "/g-2"] {
        ensure!(said.contains(&format!("source{name}: left out: ")), "{name}: {copied}");
    }
    let names = bench.creamery().run(["ls"]).arg(inside(&image, "/source")).ok()?.stdout_text();
    ensure!(names.lines().eq(["a", "c", "e", "g-1", "g-2", "g-3", "z-name-of-within"]), "{names}\n{copied}");
    for (name, wanted) in [("z-name-of-within", "within"), ("g-3", "three names")] {
        let text = bench.creamery().run(["cat"]).arg(inside(&image, &format!("/source/{name}"))).ok()?;
        ensure!(text.stdout_text() == wanted, "{name}: {text}");
    }
    btrfs_check(&image)?;
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    let at = |name: &str| kernel.dir().join("source").join(name);
    let (first, third) = (fs::metadata(at("g-1"))?, fs::metadata(at("g-3"))?);
    ensure!(first.ino() == third.ino() && first.nlink() == 2, "{} links", first.nlink());
    ensure!(
        at("g-2").is_dir() && fs::read(at("a"))? == "a".repeat(5000).as_bytes(),
        "what was there, and a copy"
    );
    kernel.unmount()
}

/// If an image does not open, the command that the message names gets its files out.
fn ways_in(bench: &Bench) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    fs::write(source.join("file"), "what is wanted")?;
    // The file tree has several leaves.
    for number in 0..FILES / 10 {
        fs::write(source.join(format!("one-of-several-files-{number:03}")), "another one")?;
    }
    let whole = bench.scratch.file("whole.img");
    mkfs_from(bench.creamery(), &["-m", "single"], &source, &whole)?;
    bench.creamery().run(["touch"]).arg(inside(&whole, "/later")).ok()?;
    let bytes = fs::read(&whole)?;
    // The root blocks of the extent tree, and of the root tree; the first leaf of the files, which a writer reads.
    let rows = [
        ("extent", "node", "ls", "/", "--rescue ibadroots"),
        ("root", "node", "ls", "/", "--rescue usebackuproot"),
        ("5", "leaf", "mkdir", "/new", "cp -a --ignore-errors"),
    ];
    for (tree, kind, command, path, wanted) in rows {
        let image = bench.scratch.file(&format!("{tree}.img"));
        fs::write(&image, &bytes)?;
        let dump = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", tree]).arg(&image).ok()?;
        let text = dump.stdout_text();
        let blocks = |kind: &str| text.lines().find_map(|line| line.strip_prefix(&format!("{kind} ")));
        let block = blocks(kind).or_else(|| blocks("leaf"));
        let logical = block.and_then(|block| block.split(' ').next()).context("a block")?;
        let map = Run::new("btrfs-map-logical").args(["-l", logical]).arg(&image).ok()?.stdout_text();
        let physical =
            map.split("physical ").nth(1).and_then(|rest| rest.split(' ').next()).context("a place")?;
        flip_byte(&image, physical.parse::<u64>()? + 200)?;
        let refused = bench.creamery().run([command]).arg(inside(&image, path)).output()?;
        let said = refused.stderr_text();
        ensure!(refused.code == Some(1) && said.contains(wanted) && !said.contains("btrfs check"), "{said}");
        let named = said.split('`').nth(1).context("a command")?;
        let out = bench.scratch.dir(tree)?;
        let words =
            named.strip_prefix("creamery ").context("of ours")?.replace("DIR", &out.display().to_string());
        let copied = bench.creamery().run(words.split(' ')).output()?;
        ensure!(fs::read(out.join("file")).is_ok_and(|text| text == b"what is wanted"), "{words}: {copied}");
    }
    Ok(())
}
