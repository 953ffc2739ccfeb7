//! `umount` and similar commands reach the image that is named, and all changes are durable when they end.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, Run, Signal, btrfs_check, signal};
use serde_json::Value;

use crate::support::{MOUNTED, expect_refusal, mkfs_empty, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "unmounts/one-hides-another",
            &[&MOUNTED[..], &[Judge::Tool("setpriv")]].concat(),
            one_hides_another,
        ),
        Case::new("unmounts/a-new-image-by-an-old-name", &MOUNTED, new_by_an_old_name),
        Case::new(
            "unmounts/names-that-move-on",
            &[&MOUNTED[..], &[Judge::Tool("setpriv")]].concat(),
            names_that_move_on,
        ),
        Case::new("unmounts/two-readers", &MOUNTED, two_readers),
        Case::new("unmounts/still-mounted-elsewhere", &MOUNTED, still_mounted_elsewhere),
        Case::new("unmounts/a-file-of-it-mounted-elsewhere", &MOUNTED, file_mounted_elsewhere),
        Case::new(
            "unmounts/other-names-of-a-partition",
            &[&MOUNTED[..], &[Judge::Tool("sfdisk")]].concat(),
            other_names_of_a_partition,
        ),
        Case::new(
            "unmounts/beside-others-that-look",
            &[&MOUNTED[..], &[Judge::Fuse]].concat(),
            beside_others,
        ),
    ]
}

/// Makes an empty image of that name.
fn image(bench: &Bench, name: &str) -> Result<std::path::PathBuf> {
    let image = bench.scratch.file(name);
    mkfs_empty(bench.creamery(), &["-L", name], "200M", &image)?;
    Ok(image)
}

fn server_of(bench: &Bench, image: &Path) -> Result<(String, Option<u32>)> {
    row_of(&bench.creamery().run(["mounts", "--json"]).ok()?.stdout_text(), image)
}

/// The lines of the list `told` about the server of `image`, and the server's process id.
fn row_of(told: &str, image: &Path) -> Result<(String, Option<u32>)> {
    let rows: Vec<Value> = serde_json::from_str(told).with_context(|| told.to_owned())?;
    let row = rows.into_iter().find(|row| row["image"] == image.to_string_lossy().as_ref());
    let row = row.with_context(|| format!("{} is not listed", image.display()))?;
    let process = row["process"].as_u64().map(u32::try_from).transpose()?;
    Ok((row["server"].as_str().unwrap_or_default().to_owned(), process))
}

/// Of two images at one directory the first is hidden: no command with its name reaches the other.
fn one_hides_another(bench: &Bench) -> Result<()> {
    let (first, second) = (image(bench, "first.img")?, image(bench, "second.img")?);
    let private = bench.scratch.dir("private")?;
    let dir = bench.scratch.dir("private/dir")?;
    let mount = |image: &Path| bench.creamery().run(["mount"]).arg(image).arg(&dir).ok();
    mount(&first)?;
    std::fs::write(dir.join("precious"), "milk\n")?;
    mount(&second)?;
    let (first_said, _) = server_of(bench, &first)?;
    let (second_said, _) = server_of(bench, &second)?;
    ensure!(first_said == "hidden" && second_said == "answers", "{first_said}, {second_said}");
    for words in [&["sync"][..], &["stats"], &["umount"], &["umount", "-l"]] {
        expect_refusal(bench.creamery().run(words).arg(&first), &["first.img", "another mount hides it"])
            .with_context(|| format!("{words:?}"))?;
    }
    let shown = bench.creamery().run(["df"]).arg(&first).output()?;
    ensure!(shown.code == Some(1), "df of a hidden mount: {shown}");
    ensure!(server_of(bench, &second)?.0 == "answers", "the second is gone");
    // A user without access to the mount point does not know that either.
    let program = bench.scratch.file("creamery");
    bench.creamery().copy_to(&program)?;
    Run::new("chmod").arg("755").arg(bench.scratch.path()).ok()?;
    Run::new("chmod").arg("700").arg(&private).ok()?;
    let stranger = Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    let listed = stranger.arg(&program).args(["mounts", "--json"]).ok()?.stdout_text();
    let (seen, _) = row_of(&listed, &first)?;
    ensure!(seen != "hidden", "{listed}");
    bench.creamery().run(["umount"]).arg(&second).ok()?;
    bench.creamery().run(["umount"]).arg(&first).ok()?;
    let kept = bench.creamery().run(["cat"]).arg(format!("{}:/precious", first.display())).ok()?;
    ensure!(kept.stdout_text() == "milk\n", "{kept}");
    btrfs_check(&first)?;
    btrfs_check(&second)
}

/// The mounted image is renamed, and a new image gets its old name: that one is not mounted.
fn new_by_an_old_name(bench: &Bench) -> Result<()> {
    let old = image(bench, "disk.img")?;
    let dir = bench.scratch.dir("dir")?;
    bench.creamery().run(["mount"]).arg(&old).arg(&dir).ok()?;
    std::fs::rename(&old, bench.scratch.file("renamed.img"))?;
    let new = image(bench, "disk.img")?;
    for words in [&["sync"][..], &["stats"], &["umount"]] {
        expect_refusal(bench.creamery().run(words).arg(&new), &["no mount of this image"])
            .with_context(|| format!("{words:?}"))?;
    }
    ensure!(server_of(bench, &new)?.0 == "answers", "the mount is gone");
    bench.creamery().run(["filesystem", "label"]).arg(&new).arg("new").ok()?;
    let label_of = |image: &Path| -> Result<String> {
        let shown =
            bench.creamery().run(["filesystem", "show", "--wait", "1"]).arg(image).ok()?.stdout_text();
        Ok(shown.lines().next().unwrap_or_default().to_owned())
    };
    ensure!(label_of(&new)?.contains("'new'"), "{}", label_of(&new)?);
    // Also while another process reads the new image: its lock is no sign of a mount.
    let mut reader = Command::new("flock");
    reader.args(["-s"]).arg(&new).args(["sh", "-c", "echo locked; exec cat"]);
    let mut reader = reader.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut said = String::new();
    BufReader::new(reader.stdout.take().context("a pipe")?).read_line(&mut said)?;
    let refused = expect_refusal(bench.creamery().run(["umount"]).arg(&new), &["no mount of this image"]);
    drop(reader.stdin.take());
    reader.wait()?;
    refused.context("beside a reader")?;
    // The mounted image is reached by its new name.
    let renamed = bench.scratch.file("renamed.img");
    ensure!(label_of(&renamed)?.contains("'disk.img'"), "{}", label_of(&renamed)?);
    bench.creamery().run(["sync"]).arg(&renamed).ok()?;
    expect_refusal(
        bench.creamery().run(["ls"]).arg(&renamed),
        &["renamed.img", &format!("creamery umount {}", dir.display())],
    )?;
    // Both are mounted: each is reached by its own name.
    let other = bench.scratch.dir("other")?;
    bench.creamery().run(["mount"]).arg(&new).arg(&other).ok()?;
    ensure!(label_of(&new)?.contains("'new'") && label_of(&renamed)?.contains("'disk.img'"), "mixed up");
    // Mounts of other cases, in any state, are listed too.
    let all = bench.creamery().run(["filesystem", "show"]).output()?.stdout_text();
    ensure!(all.contains("'new'") && all.contains("'disk.img'"), "{all}");
    bench.creamery().run(["umount"]).arg(&new).ok()?;
    // A mount of another image that hangs stops no command: it is not asked.
    let third = image(bench, "third.img")?;
    let third_dir = bench.scratch.dir("third")?;
    bench.creamery().run(["mount"]).arg(&third).arg(&third_dir).ok()?;
    let hung = server_of(bench, &third)?.1.context("no process")?;
    signal(Signal::STOP, hung)?;
    let beside = bench.creamery().run(["sync"]).arg(&renamed).ok();
    signal(Signal::CONT, hung)?;
    beside?;
    bench.creamery().run(["umount"]).arg(&third).ok()?;
    // A dead server has no lock: its mount is found by name.
    let (_, server) = server_of(bench, &new)?;
    signal(Signal::KILL, server.context("no process")?)?;
    // The dead mount does not block the image itself.
    bench.creamery().run(["df", "--wait", "1000000"]).arg(&new).ok()?;
    let dead = bench.creamery().run(["umount"]).arg(&new).output()?;
    ensure!(dead.code == Some(1) && dead.stderr_text().contains("died"), "{dead}");
    btrfs_check(&new)
}

/// Two mounted images, one of which has got the other's old name: each is reached by its present name.
fn names_that_move_on(bench: &Bench) -> Result<()> {
    let (first, second) = (image(bench, "now.img")?, image(bench, "next.img")?);
    let (first_dir, second_dir) = (bench.scratch.dir("first")?, bench.scratch.dir("second")?);
    for (image, dir) in [(&first, &first_dir), (&second, &second_dir)] {
        bench.creamery().run(["mount"]).arg(image).arg(dir).ok()?;
    }
    let (before, now) = (bench.scratch.file("before.img"), bench.scratch.file("now.img"));
    std::fs::rename(&first, &before)?;
    std::fs::rename(&second, &now)?;
    for (image, label, dir) in [(&before, "now.img", &first_dir), (&now, "next.img", &second_dir)] {
        let shown = bench.creamery().run(["filesystem", "show"]).arg(image).ok()?.stdout_text();
        ensure!(shown.contains(&format!("'{label}'")), "{}: {shown}", image.display());
        let refused = bench.creamery().run(["ls"]).arg(image);
        expect_refusal(refused, &[&format!("creamery umount {}", dir.display())])?;
        let told: Value =
            serde_json::from_slice(&bench.creamery().run(["stats", "--json"]).arg(image).ok()?.stdout)?;
        let of_mount: Value =
            serde_json::from_slice(&bench.creamery().run(["stats", "--json"]).arg(dir).ok()?.stdout)?;
        ensure!(told["image"] == of_mount["image"], "{}: {told}", image.display());
    }
    std::fs::write(second_dir.join("precious"), "milk\n")?;
    bench.creamery().run(["sync"]).arg(&now).ok()?;
    // A mount that refuses the caller says so at once: there is no wait.
    let program = bench.scratch.file("creamery");
    bench.creamery().copy_to(&program)?;
    for path in [bench.scratch.path(), &now] {
        Run::new("chmod").arg("755").arg(path).ok()?;
    }
    let stranger = Run::new("setpriv").args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    let refused = stranger.arg(&program).args(["df", "--wait", "1000000"]).arg(&now).output()?;
    ensure!(refused.code == Some(1) && refused.stderr_text().contains("ermission denied"), "{refused}");
    // A server that inherited the lock of another image has not mounted that image.
    let (third, third_dir) = (image(bench, "third.img")?, bench.scratch.dir("third")?);
    let free = image(bench, "free.img")?;
    let inherits = "exec 9<\"$1\"; flock -x 9; shift; exec \"$@\"";
    let shell = Run::new("sh").args(["-c", inherits, "sh"]).arg(&free);
    shell.arg(bench.creamery().path()).arg("mount").arg(&third).arg(&third_dir).ok()?;
    for words in [&["stats"][..], &["sync"], &["umount"], &["umount", "-l"]] {
        expect_refusal(bench.creamery().run(words).arg(&free), &["no mount of this image"])?;
    }
    bench.creamery().run(["umount"]).arg(&third).ok()?;
    // Only the image with the old name is unmounted.
    bench.creamery().run(["umount"]).arg(&now).ok()?;
    let listed = bench.creamery().run(["mounts"]).ok()?.stdout_text();
    ensure!(
        listed.contains(&*first_dir.to_string_lossy()) && !listed.contains(&*second_dir.to_string_lossy()),
        "{listed}"
    );
    let kept = bench.creamery().run(["cat"]).arg(format!("{}:/precious", now.display())).ok()?;
    ensure!(kept.stdout_text() == "milk\n", "{kept}");
    bench.creamery().run(["umount"]).arg(&before).ok()?;
    btrfs_check(&before)?;
    btrfs_check(&now)
}

/// An image that is mounted at a second place stays mounted there, and the message says so; changes are durable all the same.
fn still_mounted_elsewhere(bench: &Bench) -> Result<()> {
    let image = image(bench, "disk.img")?;
    let (dir, bind) = (bench.scratch.dir("dir")?, bench.scratch.dir("bind")?);
    bench.creamery().run(["mount"]).arg(&image).arg(&dir).ok()?;
    let (_, server) = server_of(bench, &image)?;
    Run::new("mount").arg("--bind").arg(&dir).arg(&bind).ok()?;
    std::fs::write(dir.join("one"), "1\n")?;
    let said = bench.creamery().run(["umount"]).arg(&dir).ok()?.stderr_text();
    let place = bind.to_string_lossy();
    ensure!(said.contains("still mounted at") && said.contains(&*place), "{said}");
    signal(Signal::KILL, server.context("no process")?)?;
    let dead = bench.creamery().run(["umount"]).arg(&bind).output()?;
    ensure!(dead.code == Some(1) && dead.stderr_text().contains("died"), "{dead}");
    let kept = bench.creamery().run(["cat"]).arg(format!("{}:/one", image.display())).ok()?;
    ensure!(kept.stdout_text() == "1\n", "{kept}");
    btrfs_check(&image)
}

/// A mount of a single file of it (`mount --bind`) is unmounted like any other, and keeps the image mounted. That mount alone gives no way to make
/// changes durable.
fn file_mounted_elsewhere(bench: &Bench) -> Result<()> {
    let image = image(bench, "disk.img")?;
    let (dir, bind) = (bench.scratch.dir("dir")?, bench.scratch.file("bind"));
    std::fs::write(&bind, "")?;
    bench.creamery().run(["mount"]).arg(&image).arg(&dir).ok()?;
    std::fs::write(dir.join("one"), "1\n")?;
    let place = |at: &Path| at.to_string_lossy().into_owned();
    let bind_it = || Run::new("mount").arg("--bind").arg(dir.join("one")).arg(&bind).ok();
    bind_it()?;
    let said = bench.creamery().run(["umount"]).arg(&bind).ok()?;
    ensure!(said.stderr.is_empty(), "as of mount(8): {said}");
    bind_it()?;
    let told = bench.creamery().run(["umount"]).arg(&dir).output()?;
    let said = told.stderr_text();
    ensure!(
        told.code == Some(1)
            && said.contains("through which no sync is possible")
            && said.contains(&place(&bind)),
        "{told}"
    );
    ensure!(std::fs::read_to_string(&bind)? == "1\n", "the file is there still");
    // No directory of it is mounted through which its server could be asked. The image is closed all the same.
    let last = bench.creamery().run(["umount"]).arg(&bind).output()?;
    ensure!(last.code == Some(1) && last.stderr_text().contains("could not be asked"), "{last}");
    btrfs_check(&image)
}

/// Two servers may read one image: the operand must say which mount is meant, and an invisible mount hides no other.
fn two_readers(bench: &Bench) -> Result<()> {
    let image = image(bench, "disk.img")?;
    let (one, two) = (bench.scratch.dir("one")?, bench.scratch.dir("two")?);
    let mount = |dir: &Path| bench.creamery().run(["mount", "-o", "ro"]).arg(&image).arg(dir).ok();
    mount(&one)?;
    mount(&two)?;
    expect_refusal(bench.creamery().run(["umount"]).arg(&image), &["mounted at several places"])?;
    let inside = std::fs::File::open(&one)?;
    bench.creamery().run(["umount", "-l"]).arg(&one).ok()?;
    bench.creamery().run(["stats"]).arg(&image).ok()?;
    bench.creamery().run(["umount"]).arg(&image).ok()?;
    drop(inside);
    ensure!(std::fs::read_dir(&two)?.next().is_none(), "the second is still mounted");
    Ok(())
}

/// A partition by number, by name, and by offset is one image.
fn other_names_of_a_partition(bench: &Bench) -> Result<()> {
    let disk = bench.scratch.file("disk.raw");
    sparse_file(&disk, 400 << 20)?;
    let table = "label: gpt\nstart=2048, size=614400, name=\"boot\"\nname=\"rest\"\n";
    Run::new("sfdisk").arg("-q").arg(&disk).input(table).ok()?;
    let part = |behind: &str| format!("{}@{behind}", disk.display());
    bench.creamery().run(["mkfs", "-q", "-L", "milk"]).arg(part("1")).ok()?;
    let dir = bench.scratch.dir("dir")?;
    bench.creamery().run(["mount"]).arg(part("1")).arg(&dir).ok()?;
    for behind in ["1", "boot", "@1M"] {
        let shown = bench.creamery().run(["filesystem", "show"]).arg(part(behind)).ok()?.stdout_text();
        ensure!(shown.contains("'milk'"), "@{behind}: {shown}");
        bench.creamery().run(["sync"]).arg(part(behind)).ok()?;
    }
    expect_refusal(bench.creamery().run(["umount"]).arg(part("rest")), &["no mount of this image"])?;
    // The whole disk, of which it is a part, is not that image.
    for words in ["umount", "sync", "stats"] {
        expect_refusal(bench.creamery().run([words]).arg(&disk), &["no mount of this image"])?;
    }
    bench.creamery().run(["umount"]).arg(part("@1M")).ok()?;
    bench.creamery().run(["check"]).arg(part("boot")).ok().map(drop)
}

/// Listing mounts holds each mount for a moment, which makes no command fail.
fn beside_others(bench: &Bench) -> Result<()> {
    let image = image(bench, "disk.img")?;
    let dir = bench.scratch.dir("dir")?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| -> Result<u32> {
            let mut looks = 0;
            while !is_over.load(Ordering::Relaxed) {
                bench.creamery().run(["mounts"]).ok()?;
                looks += 1;
            }
            Ok(looks)
        });
        let work = || -> Result<()> {
            for round in 0..20 {
                bench.creamery().run(["mount"]).arg(&image).arg(&dir).ok()?;
                std::fs::write(dir.join(format!("file{round}")), "x")?;
                bench.creamery().run(["umount"]).arg(&dir).ok().with_context(|| format!("round {round}"))?;
            }
            Ok(())
        };
        let worked = work();
        is_over.store(true, Ordering::Relaxed);
        let looks = looking.join().map_err(|_| anyhow::anyhow!("the thread that looks has panicked"))?;
        worked?;
        ensure!(looks? > 0, "nobody looked");
        Ok(())
    })?;
    btrfs_check(&image)
}
