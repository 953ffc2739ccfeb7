//! Filesystems of several devices, read by every command: all members there, some named, some away.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, LoopDevice, Run, share_or_whole};

use crate::sets::{Set, expect_read, walk_of_kernel};
use crate::support::{JUDGED, expect_failure, expect_refusal, expect_untouched, inside, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    let profile = |name: &str, profile: &'static str, count: usize, borne: usize| {
        Case::new(format!("sets/{name}"), &JUDGED, move |bench| of_profile(bench, profile, count, borne))
    };
    let other_user = [&JUDGED[..], &[Judge::Tool("setpriv")]].concat();
    vec![
        profile("raid1", "raid1", 2, 1),
        profile("raid10", "raid10", 4, 1),
        profile("raid0", "raid0", 3, 0),
        profile("raid1c3", "raid1c3", 3, 2),
        profile("raid5", "raid5", 3, 1),
        profile("raid6", "raid6", 4, 2),
        Case::new("sets/what-is-lost-is-named", &JUDGED, lost),
        Case::new("sets/every-command-that-reads", &JUDGED, every_command),
        Case::new("sets/nothing-writes", &JUDGED, nothing_writes),
        Case::new("sets/found-beside", &JUDGED, beside),
        Case::new("sets/read-only-files", &other_user, read_only_files),
        Case::new(
            "sets/in-partitions",
            &[&JUDGED[..], &[Judge::Tool("sfdisk"), Judge::Tool("partx")]].concat(),
            partitions,
        ),
    ]
}

fn named(members: &[PathBuf]) -> Vec<&OsStr> {
    members.iter().flat_map(|member| [OsStr::new("--device"), member.as_os_str()]).collect()
}

/// All members, found and named; then some of them away, as many as the profile bears, and one more.
fn of_profile(bench: &Bench, profile: &str, count: usize, borne: usize) -> Result<()> {
    let set = Set::made(bench, "set", &["-d", profile, "-m", profile], count)?;
    let degraded = OsStr::new("--degraded");
    for member in &set.members[..share_or_whole(1, count)] {
        expect_read(bench, member, &[], &set.truth)?;
    }
    let set = set.apart(bench, "apart")?;
    let (first, others) = (set.first().to_owned(), &set.members[1..]);
    expect_read(bench, &first, &named(others), &set.truth)?;
    // Behind the image, and by `check` as operands.
    let behind = bench.creamery().run(["ls"]).arg(inside(&first, "/")).args(named(others)).ok()?;
    ensure!(behind.stdout_text().contains("nocow"), "{behind}");
    bench.creamery().run(["check", "--check-data-csum"]).args(&set.members).ok()?;
    let no_commit =
        bench.creamery().run(["ls", "--generation", "1"]).arg(inside(&first, "/")).args(named(others));
    expect_refusal(no_commit, &[&format!("`creamery history {}`", first.display())])?;
    for away in 1..=(borne + 1).min(count - 1) {
        let there = &set.members[..count - away];
        let missing = match away {
            1 => format!("device {count} is missing"),
            _ => format!(" and {count} are missing"),
        };
        let run =
            |words: &[&str]| bench.creamery().run(words).arg(inside(&first, "/")).args(named(&there[1..]));
        let wanted = [&missing[..], "--device PATH", "--degraded"];
        expect_refusal(run(&["ls"]), &wanted)?;
        if away > borne {
            let lost = [&missing[..], "too many for these chunks", &profile.to_uppercase()];
            expect_refusal(run(&["ls", "--degraded"]), &lost)?;
            continue;
        }
        let truth = walk_of_kernel(bench, there, "ro,degraded")?;
        let mut options = named(&there[1..]);
        options.push(degraded);
        let said = expect_read(bench, &first, &options, &truth)?;
        ensure!(said.contains(&missing), "no warning: {said}");
        bench.creamery().run(["check", "--check-data-csum", "--degraded"]).args(there).ok()?;
    }
    Ok(())
}

/// Where data is in stripes and trees in mirrors, a lost device loses data alone.
fn lost(bench: &Bench) -> Result<()> {
    let set = Set::made(bench, "set", &["-d", "raid0", "-m", "raid1"], 2)?.apart(bench, "apart")?;
    let at = |path: &str| inside(set.first(), path);
    let run = |words: &[&str], path: &str| bench.creamery().run(words).arg(at(path));
    expect_refusal(run(&["ls"], "/"), &["device 2 is missing", "--degraded"])?;
    expect_refusal(run(&["ls", "--degraded"], "/"), &["DATA|RAID0", "bytes at logical", "--rescue all"])?;
    let listed = run(&["ls", "--rescue", "all"], "/").ok()?;
    ensure!(
        listed.stdout_text().contains("file-1") && listed.stderr_text().contains("device 2 is missing"),
        "{listed}"
    );
    ensure!(run(&["cat", "--rescue", "all"], "/small/7").ok()?.stdout_text() == "small 7");
    expect_failure(run(&["cat", "--rescue", "all"], "/file-4"), &["file-4"])?;
    let roots = bench.creamery().run(["rescue", "find-root", "--degraded"]).arg(set.first()).ok()?;
    ensure!(roots.stdout_text().contains("Found tree root"), "{roots}");
    let restored = bench.scratch.dir("restored")?;
    let _ = bench.creamery().run(["restore", "-i"]).arg(set.first()).arg(&restored).output()?;
    ensure!(std::fs::read_to_string(restored.join("small/7"))? == "small 7");
    Ok(())
}

/// The commands that read, each with its operands.
fn commands_that_read(image: &Path, page: &Path) -> Vec<(&'static str, Vec<OsString>)> {
    let at = |path: &str| inside(image, path);
    let whole = || image.as_os_str().to_owned();
    let mut commands = vec![
        ("ls -lR", vec![at("/")]),
        ("cat", vec![at("/small/1")]),
        ("stat --json", vec![at("/file-1")]),
        ("find", vec![at("/")]),
        ("diff", vec![at("/"), at("/snapshot")]),
        ("report -o", vec![page.as_os_str().to_owned(), whole()]),
        ("filesystem fiemap --json", vec![at("/file-2")]),
        ("filesystem du", vec![at("/")]),
        ("subvolume show", vec![at("/snapshot")]),
        ("subvolume find-new", vec![at("/"), "0".into()]),
        ("property get", vec![at("/snapshot"), "ro".into()]),
        ("inspect-internal rootid", vec![at("/snapshot")]),
        ("tar -c -f /dev/null", vec![at("/small")]),
        ("restore -D", vec![whole(), "/".into()]),
    ];
    let of_image = [
        "check",
        "device stats",
        "df",
        "filesystem df",
        "filesystem label",
        "filesystem show",
        "filesystem usage -T",
        "history",
        "inspect-internal dump-super",
        "inspect-internal dump-tree",
        "inspect-internal inode-resolve 257",
        "inspect-internal subvolid-resolve 256",
        "rescue find-root",
        "restore -l",
        "subvolume get-default",
        "subvolume list",
        "undelete",
    ];
    commands.extend(of_image.map(|command| (command, vec![whole()])));
    commands
}

/// Those that tell of each device, by its path.
const OF_EACH: [&str; 4] =
    ["device stats", "filesystem show", "filesystem usage -T", "inspect-internal dump-super"];
/// Those that say something else without a device: there is less room, and blocks of earlier commits may be gone.
const OTHERWISE: [&str; 4] = ["df", "history", "undelete", "check"];
/// Those that read what is left unasked, with a warning; the one that looks at one device alone; and the one that needs superblocks alone.
const UNASKED: [&str; 5] =
    ["filesystem show", "inspect-internal dump-super", "restore -D", "restore -l", "undelete"];

/// Every command that reads says the same with members found and with members named, and without one of two mirrors.
fn every_command(bench: &Bench) -> Result<()> {
    let set = Set::made(bench, "set", &["-d", "raid1", "-m", "raid1"], 2)?;
    let commands = commands_that_read(set.first(), &bench.scratch.file("page.html"));
    let said =
        |command: &str, before: &[&OsStr], operands: &[OsString], behind: &[&OsStr]| -> Result<String> {
            let run = bench.creamery().run(command.split(' ').filter(|word| *word != "-o"));
            // An option that takes the operand behind it stays beside it.
            let run = if command.ends_with("-o") { run.args(before).arg("-o") } else { run.args(before) };
            let finished = run.args(operands).args(behind).output()?;
            // Of diff 1 is an answer.
            ensure!(finished.code == Some(0) || command == "diff" && finished.code == Some(1), "{finished}");
            Ok(finished.stdout_text())
        };
    let found: Vec<String> = commands
        .iter()
        .map(|(command, operands)| said(command, &[], operands, &[]))
        .collect::<Result<_>>()?;
    let away = bench.scratch.dir("away")?.join("other.img");
    std::fs::rename(&set.members[1], &away)?;
    let (device, degraded) = ([OsStr::new("--device"), away.as_os_str()], [OsStr::new("--degraded")]);
    for ((command, operands), found) in commands.iter().zip(&found) {
        let is_same = |said: &String| OF_EACH.contains(command) || said == found;
        let before = said(command, &device, operands, &[])?;
        ensure!(is_same(&before), "{command} --device:\n{before}beside:\n{found}");
        // What stands behind its image are tests.
        if *command != "find" {
            let behind = said(command, &[], operands, &device)?;
            ensure!(behind == before, "{command}: --device behind the image:\n{behind}before it:\n{before}");
        }
        let without = said(command, &degraded, operands, &[])?;
        ensure!(
            OTHERWISE.contains(command) || is_same(&without),
            "{command} --degraded:\n{without}beside:\n{found}"
        );
        let tells = without.contains("warning 315: a device of the filesystem is missing: device 2");
        ensure!(*command != "check" || tells, "check --degraded tells of it:\n{without}");
        if !UNASKED.contains(command) {
            let run = bench.creamery().run(command.split(' ')).args(operands);
            expect_failure(run, &["device 2 is missing", "--device PATH", "--degraded"])?;
        }
    }
    Ok(())
}

/// What writes refuses, by name, and changes neither member.
fn nothing_writes(bench: &Bench) -> Result<()> {
    let set = Set::made(bench, "set", &["-d", "raid1", "-m", "raid1"], 2)?;
    let (image, other) = (set.first(), &set.members[1]);
    let at = |path: &str| inside(image, path);
    let whole = image.as_os_str().to_owned();
    let calls: Vec<(&str, Vec<OsString>)> = vec![
        ("tune -n", vec![whole.clone()]),
        ("tune -f -u", vec![whole.clone()]),
        ("tune -f -m", vec![whole.clone()]),
        ("tune -S 1", vec![whole.clone()]),
        ("rescue zero-log", vec![whole.clone()]),
        ("rescue clear-space-cache v1", vec![whole.clone()]),
        ("filesystem resize max", vec![whole.clone()]),
        ("filesystem label", vec![whole.clone(), "x".into()]),
        ("device stats -z", vec![whole.clone()]),
        ("filesystem trim", vec![whole.clone()]),
        ("quota enable", vec![whole.clone()]),
        ("subvolume create", vec![at("/x")]),
        ("subvolume set-default 5", vec![whole.clone()]),
        ("mkdir", vec![at("/x")]),
        ("touch", vec![at("/x")]),
        ("rm", vec![at("/file-1")]),
        ("truncate -s 1", vec![at("/file-1")]),
        ("chmod 600", vec![at("/file-1")]),
        ("cp /proc/version", vec![at("/x")]),
        ("filesystem defragment", vec![at("/file-1")]),
    ];
    expect_untouched(other, || {
        expect_untouched(image, || {
            for (words, more) in &calls {
                let run =
                    |degraded: &[&str]| bench.creamery().run(words.split(' ')).args(degraded).args(more);
                expect_failure(run(&[]), &["writing to a filesystem of 2 devices"])?;
            }
            let copies = bench.creamery().run(["rescue", "super-recover"]).arg(image).ok()?;
            ensure!(copies.stdout_text().contains("All supers are valid"), "{copies}");
            Ok(())
        })
    })?;
    // The copies on one member are mended from one another, also where the other one is away.
    let want = superblocks(image)?;
    let mend = || -> Result<()> {
        crate::support::flip_byte(image, (64 << 20) + 200)?;
        let run = bench.creamery().run(["rescue", "super-recover", "-y"]).arg(image).output()?;
        ensure!(run.code == Some(2) && superblocks(image)? == want, "{run}");
        Ok(())
    };
    mend()?;
    std::fs::rename(other, bench.scratch.file("away.img"))?;
    mend()
}

/// The first two superblocks of a device.
fn superblocks(device: &Path) -> Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::open(device)?;
    let mut bytes = vec![0; 8192];
    file.read_exact_at(&mut bytes[..4096], 64 << 10)?;
    file.read_exact_at(&mut bytes[4096..], 64 << 20)?;
    Ok(bytes)
}

/// Members are found among other files, whatever those are; of several copies of a member the newest counts, and of equal ones none.
fn beside(bench: &Bench) -> Result<()> {
    let set = Set::of_sizes(bench, "set", &["-d", "raid1", "-m", "raid1"], &[256 << 20, 320 << 20])?;
    let [first, second] = [&set.members[0], &set.members[1]];
    let dir = first.parent().expect("a directory").to_owned();
    for number in 0..33 {
        std::fs::write(dir.join(format!("m{number}.txt")), vec![b'x'; 100_000])?;
    }
    Run::new("mkfifo").arg(dir.join("m3.img")).ok()?;
    std::os::unix::fs::symlink("nowhere", dir.join("m4.img"))?;
    std::fs::create_dir(dir.join("m5.img"))?;
    expect_read(bench, first, &[], &set.truth)?;
    // From the directory itself, and by another name of a member.
    let ls = |words: &[&str]| bench.creamery().run(["ls"]).args(words).within(&dir);
    ls(&["m2.img:/"]).ok()?;
    std::fs::hard_link(second, dir.join("m2-link.img"))?;
    ls(&["m1.img:/"]).ok()?;
    std::fs::remove_file(dir.join("m2-link.img"))?;
    // Swapped, and named twice.
    for (from, to) in [("m1.img", "x"), ("m2.img", "m1.img"), ("x", "m2.img")] {
        std::fs::rename(dir.join(from), dir.join(to))?;
    }
    expect_read(bench, first, &[], &set.truth)?;
    expect_refusal(ls(&["m1.img:/", "--device", "m1.img"]), &["the same device"])?;
    expect_refusal(ls(&["m1.img:/", "--device", "m2.img", "--device", "m2.img"]), &["the same device"])?;
    expect_refusal(ls(&["m1.img:/", "--device", "none.img"]), &["none.img"])?;
    expect_refusal(ls(&["m1.img:/", "--device", "m1.txt"]), &["m1.txt"])?;
    // One that lost its superblocks is named where it is missed.
    std::fs::rename(dir.join("m1.img"), dir.join("whole"))?;
    Run::new("cp").args(["--sparse=always", "whole", "m1.img"]).within(&dir).ok()?;
    let damaged = std::fs::File::options().write(true).open(dir.join("m1.img"))?;
    for at in [64 << 10, 64 << 20] {
        std::os::unix::fs::FileExt::write_all_at(&damaged, b"rot", at + 0x200)?;
    }
    std::fs::rename(dir.join("whole"), bench.scratch.file("whole"))?;
    expect_refusal(ls(&["m2.img:/"]), &["m1.img", "no superblock copy is whole", "--device"])?;
    let listed = ls(&["m2.img:/", "--degraded"]).ok()?;
    ensure!(listed.stderr_text().contains("no superblock copy is whole"), "{listed}");
    std::fs::rename(bench.scratch.file("whole"), dir.join("m1.img"))?;
    // A copy of a member.
    Run::new("cp").args(["--sparse=always", "m2.img", "copy.img"]).within(&dir).ok()?;
    expect_refusal(ls(&["m1.img:/"]), &["m2.img", "copy.img", "equally new", "--device"])?;
    ls(&["m1.img:/", "--device", "copy.img"]).ok()?;
    ls(&["--device", "m2.img", "m1.img:/"]).ok()?;
    ls(&["m2.img:/"]).ok()?;
    // An older one.
    let members = [dir.join("m1.img"), dir.join("m2.img")];
    crate::sets::with_kernel(bench, &members, "rw", |dir| Ok(std::fs::write(dir.join("later"), "later")?))?;
    let listed = ls(&["m1.img:/"]).ok()?;
    ensure!(listed.stdout_text().contains("later") && listed.stderr_text().is_empty(), "{listed}");
    let listed = ls(&["m1.img:/", "--device", "copy.img"]).ok()?;
    ensure!(
        listed.stdout_text().contains("later") && listed.stderr_text().contains("copy.img missed writes"),
        "{listed}"
    );
    Ok(())
}

/// Files that nobody may write are read, by another user, too.
fn read_only_files(bench: &Bench) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let set = Set::made(bench, "set", &["-d", "raid1", "-m", "raid1"], 2)?;
    for member in &set.members {
        std::fs::set_permissions(member, std::fs::Permissions::from_mode(0o444))?;
    }
    expect_read(bench, set.first(), &[], &set.truth)?;
    // Where that user can get at them.
    std::fs::set_permissions(bench.scratch.path(), std::fs::Permissions::from_mode(0o755))?;
    let program = bench.scratch.file("creamery");
    bench.creamery().copy_to(&program)?;
    let ls = || {
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
        Run::new("setpriv").args(user).arg(&program).arg("ls").arg(inside(set.first(), "/"))
    };
    ls().ok()?;
    std::fs::set_permissions(&set.members[1], std::fs::Permissions::from_mode(0o400))?;
    expect_refusal(ls(), &["device 2 is missing", "--device PATH"])
}

/// Partitions of one disk, and of two disks.
fn partitions(bench: &Bench) -> Result<()> {
    let table = "label: gpt\nsize=260M\nsize=260M\n";
    let dir = bench.scratch.dir("disks")?;
    let disks = ["a.raw", "b.raw"].map(|name| dir.join(name));
    for disk in &disks {
        sparse_file(disk, 600 << 20)?;
        Run::new("sfdisk").arg("-q").arg(disk).input(table).ok()?;
    }
    let (one, other) = (LoopDevice::attach_disk(&disks[0])?, LoopDevice::attach_disk(&disks[1])?);
    let parts = [one.partition(1)?, other.partition(1)?, one.partition(2)?];
    Run::new("mkfs.btrfs")
        .args(["-q", "-L", "parted", "-d", "raid1c3", "-m", "raid1c3"])
        .args(&parts)
        .ok()?;
    one.detach()?;
    other.detach()?;
    // Of other disks the partition with the same number is looked at.
    for (image, other) in [("a.raw@1", None), ("b.raw@1", Some("a.raw@2")), ("a.raw@2", Some("b.raw@1"))] {
        let label = bench.creamery().run(["filesystem", "label"]).arg(dir.join(image));
        let label = match other {
            Some(other) => label.arg("--device").arg(dir.join(other)).ok()?,
            None => label.ok()?,
        };
        ensure!(label.stdout_text() == "parted\n", "{label}");
    }
    let shown = bench.creamery().run(["filesystem", "show"]).arg(dir.join("a.raw@1")).ok()?.stdout_text();
    ensure!(["a.raw@1\n", "a.raw@2\n", "b.raw@1\n"].iter().all(|path| shown.contains(path)), "{shown}");
    std::fs::remove_file(&disks[1])?;
    let label = || bench.creamery().run(["filesystem", "label"]).arg(dir.join("a.raw@2"));
    expect_refusal(label(), &["missing", "--degraded"])?;
    label().arg("--degraded").ok().map(drop)
}
