//! `device stats`: error counts by Linux of a device, on its mounts, on ours and in images, and resetting them to 0.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Run, btrfs_check};

use crate::subvolumes::controls::compile;
use crate::subvolumes::live::{AS_NOBODY, for_everybody, mount_point};
use crate::support::{MOUNTED, expect_failure, expect_refusal, flip_byte, inside, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    let by_others = [&MOUNTED[..], &[Judge::Tool("setpriv")]].concat();
    let compiled = [&by_others[..], &[Judge::Tool("cc")]].concat();
    vec![
        Case::new("live/device-stats", &by_others, device_stats),
        Case::new("live/device-stats-controls", &compiled, controls),
    ]
}

/// An image with a file whose first sector does not match its checksum.
fn with_a_wrong_sector(bench: &Bench) -> Result<PathBuf> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-m", "single"], "256M", &image)?;
    let content = creamery_testkit::Random::new(3).bytes(1 << 20);
    let source = bench.scratch.file("content");
    std::fs::write(&source, &content)?;
    bench.creamery().run(["cp"]).arg(&source).arg(inside(&image, "/file")).ok()?;
    // The beginning of the file, at its offset on the device.
    let bytes = std::fs::read(&image)?;
    let at = bytes.windows(64).position(|window| window == &content[..64]).context("the data")? as u64;
    flip_byte(&image, at)?;
    Ok(image)
}

/// `device stats` of a device that returned wrong data, on mounts and in the image; through the link, the JSON of btrfs-progs.
fn device_stats(bench: &Bench) -> Result<()> {
    let image = with_a_wrong_sector(bench)?;
    let ours = bench.creamery().path();
    let as_btrfs = bench.scratch.file("btrfs");
    std::os::unix::fs::symlink(ours, &as_btrfs)?;
    let mut linux = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    ensure!(std::fs::read(linux.dir().join("file")).is_err(), "it was read");
    // The kernel may read the wrong sector any number of times, also meanwhile.
    let said = |program: &Path, words: &[&str], place: &Path| -> Result<(String, Option<i32>)> {
        let done = Run::new(program).args(words).arg(place).output()?;
        let some = |count: &str| count.replace(|digit| ('1'..='9').contains(&digit), "9");
        let lines = done.stdout_text();
        let lines = lines.lines().map(|line| match line.split_once("corruption_errs") {
            Some((before, count)) => format!("{before}corruption_errs{}", some(count)),
            None => {
                if words.contains(&"-T") {
                    some(line)
                } else {
                    line.to_owned()
                }
            }
        });
        Ok((lines.collect::<Vec<_>>().join("\n"), done.code))
    };
    let device =
        Run::new("findmnt").args(["-no", "SOURCE"]).arg(linux.dir()).ok()?.stdout_text().trim().to_owned();
    let stats = ["device", "stats"];
    let mut wanted = Vec::new();
    for options in [&[][..], &["-T"], &["-c"], &["--check", "-T"]] {
        let words = [&stats, options].concat();
        let theirs = said("btrfs".as_ref(), &words, linux.dir())?;
        for place in [linux.dir(), Path::new(&device)] {
            let found = said(ours, &words, place)?;
            ensure!(found == theirs, "{words:?}: ours says {found:?}, btrfs-progs {theirs:?}");
        }
        wanted.push((words, theirs));
    }
    ensure!(wanted[2].1.1 == Some(64) && !wanted[0].1.0.contains("corruption_errs  0"), "{:?}", wanted[2]);
    let json = ["--format", "json", "device", "stats"];
    let theirs = said("btrfs".as_ref(), &json, linux.dir())?;
    ensure!(said(&as_btrfs, &json, linux.dir())? == theirs, "{theirs:?}");
    expect_refusal(Run::new(ours).args(stats).arg(linux.dir().join("file")), &["not a directory"])?;
    linux.unmount_and_tell()?;
    let shown = image.display().to_string();
    for (words, (text, code)) in &wanted {
        let (found, status) = said(ours, words, &image)?;
        let found = found.replace(&shown, &device);
        ensure!(
            words.contains(&"-T") || found == *text,
            "{words:?} of the image: {found}, of the mount {text}"
        );
        ensure!(status == *code, "{words:?} of the image: {status:?}");
    }
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("ours"), "")?;
    let found = said(ours, &wanted[0].0, mount.dir())?.0.replace(&shown, &device);
    ensure!(found == wanted[0].1.0, "on our mount: {found}");
    mount.unmount()?;
    resets(bench, &image)
}

/// The five numbers in the output of `device stats`, and the exit status.
fn numbers(program: &Path, options: &[&str], place: &Path) -> Result<(Vec<u64>, Option<i32>)> {
    let done = Run::new(program).args(["device", "stats"]).args(options).arg(place).output()?;
    let number = |line: &str| line.split_whitespace().last().and_then(|count| count.parse().ok());
    let numbers: Option<Vec<u64>> = done.stdout_text().lines().map(number).collect();
    let numbers = numbers.filter(|numbers| numbers.len() == 5).with_context(|| format!("numbers: {done}"))?;
    Ok((numbers, done.code))
}

/// Everybody can read the numbers in `image`, and the permitted users can reset them: in an image, and on a mount of ours also under the
/// name `btrfs`. The kernel sees the new numbers.
fn resets(bench: &Bench, image: &Path) -> Result<()> {
    let ours = bench.creamery().path();
    let (counted, _) = numbers(ours, &[], image)?;
    let none = vec![0; 5];
    ensure!(counted != none, "nothing is counted");
    let copies = ["copy-1.img", "copy-2.img"].map(|name| bench.scratch.file(name));
    for copy in &copies {
        Run::new("cp").arg("--sparse=always").args([image, copy]).ok()?;
    }

    let said = numbers(ours, &["-z", "-c"], image)?;
    ensure!(said == (counted.clone(), Some(64)), "of the image: {said:?}, not {counted:?}");
    for options in [&["-c"][..], &["-z", "-c"]] {
        let said = numbers(ours, options, image)?;
        ensure!(said == (none.clone(), Some(0)), "{options:?} of the image that is reset: {said:?}");
    }

    let for_nobody = for_everybody(bench)?;
    let as_btrfs = bench.scratch.dir("bin")?.join("btrfs");
    std::os::unix::fs::symlink(ours, &as_btrfs)?;
    for (copy, program) in copies.iter().zip([ours, &as_btrfs]) {
        let mount = FuseMount::mount(bench.creamery(), copy, &mount_point(bench), "ro,allow_other")?;
        let reset = Run::new(program).args(["device", "stats", "-z"]).arg(mount.dir());
        expect_failure(reset, &["read-only"])?;
        mount.unmount()?;
        let mount = FuseMount::mount(bench.creamery(), copy, &mount_point(bench), "allow_other")?;
        let nobody = |options: &[&str]| {
            let run = Run::new("setpriv").args(AS_NOBODY).arg(&for_nobody).args(["device", "stats"]);
            run.args(options).arg(mount.dir())
        };
        let shown = nobody(&[]).ok()?.stdout_text();
        expect_failure(nobody(&["-z"]), &["not permitted"])?;
        ensure!(nobody(&[]).ok()?.stdout_text() == shown, "nobody has reset them: {shown}");
        for (options, code) in [(&[][..], 0), (&["-c"], 64), (&["-z"], 0)] {
            let said = numbers(program, options, mount.dir())?;
            ensure!(said == (counted.clone(), Some(code)), "{options:?} of {program:?}: {said:?}");
        }
        let said = numbers(program, &["-c"], mount.dir())?;
        ensure!(said == (none.clone(), Some(0)), "{program:?} has left {said:?}");
        mount.unmount()?;
    }

    for image in [image, &copies[0], &copies[1]] {
        // Without checking data: a sector is wrong, and was counted.
        Run::new("btrfs").arg("check").arg(image).ok()?;
        let mut linux = LoopMount::mount(image, &bench.scratch.file("kernel"), "ro")?;
        let said = numbers(Path::new("btrfs"), &["-c"], linux.dir())?;
        ensure!(said == (none.clone(), Some(0)), "the kernel counts {said:?}");
        linux.unmount_and_tell()?;
    }
    Ok(())
}

/// The control itself, of the kernel and of ours: the number of counters, the device, and the permitted users.
fn controls(bench: &Bench) -> Result<()> {
    for_everybody(bench)?;
    let program = compile(bench)?;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "300M", &image)?;
    bench.creamery().run(["cp", "/proc/version"]).arg(inside(&image, "/file")).ok()?;
    let tell = |dir: &Path| -> Result<Vec<String>> {
        let mut said = Vec::new();
        for words in [
            ["1", "5", "0"],
            ["1", "129", "0"],
            ["1", "18446744073709551615", "2"],
            ["1", "3", "0"],
            ["1", "0", "0"],
            ["0", "5", "0"],
            ["2", "5", "0"],
            ["18446744073709551615", "5", "0"],
            ["2", "5", "1"],
            ["1", "5", "1"],
            ["1", "2", "1"],
            ["1", "0", "3"],
        ] {
            for (who, place) in [(&[][..], "."), (&[], "file"), (&AS_NOBODY, "."), (&AS_NOBODY, "file")] {
                let run = match who {
                    [] => Run::new(&program),
                    who => Run::new("setpriv").args(who).arg(&program),
                };
                let answer = run.args(["device-stats", place]).args(words).within(dir).ok()?.stdout_text();
                said.push(format!("{words:?} {place} {who:?}: {answer}"));
            }
        }
        Ok(said)
    };
    let mut kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "noatime")?;
    Run::new("chmod").arg("644").arg(kernel.dir().join("file")).ok()?;
    let want = tell(kernel.dir())?;
    kernel.unmount_and_tell()?; // it complains of missing devices
    let mount = FuseMount::mount(bench.creamery(), &image, &mount_point(bench), "allow_other")?;
    let found = tell(mount.dir())?;
    mount.unmount()?;
    for (want, found) in want.iter().zip(&found) {
        ensure!(want == found, "Linux: {want}\n ours: {found}");
    }
    btrfs_check(&image)
}
