//! A filesystem in a partition, which Linux has as a device that partx has told it of, and Creamery as a part of the disk image.

use std::ffi::OsStr;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, Judge, KernelLog, LoopDevice, Run, btrfs_check, tree};

use crate::support::{JUDGED, MOUNTED, expect_refusal, flip_byte, inside, sparse_file};

pub(crate) fn cases() -> Vec<Case> {
    const TOOLS: [Judge; 2] = [Judge::Tool("sfdisk"), Judge::Tool("partx")];
    let judged = [&JUDGED[..], &TOOLS].concat();
    let mounted = [&MOUNTED[..], &TOOLS].concat();
    vec![
        Case::new("partitions/gpt-in-turn-with-linux", &mounted, |bench| in_turn(bench, &GPT)),
        Case::new("partitions/mbr-in-turn-with-linux", &mounted, |bench| in_turn(bench, &MBR)),
        Case::new("partitions/mkfs-stays-within", &judged, mkfs_stays_within),
        Case::new("partitions/two-at-once", &mounted, two_at_once),
        Case::new(
            "partitions/between-logical",
            &[Judge::Program, Judge::Tool("sfdisk")],
            between_logical_partitions,
        ),
        Case::new("partitions/damaged-tables", &[Judge::Program, Judge::Tool("sfdisk")], damaged_tables),
        Case::new("partitions/told", &[Judge::Program, Judge::Tool("sfdisk")], told),
        Case::new("partitions/by-name", &mounted, by_name),
        Case::new("partitions/signs-in-names", &judged, signs_in_names),
        Case::new(
            "partitions/no-file-beside-a-disk",
            &[Judge::Program, Judge::Tool("sfdisk")],
            no_file_beside_a_disk,
        ),
    ]
}

const MIB: u64 = 1 << 20;
const DISK: u64 = 480 * MIB;
const SECOND: Range<u64> = 17 * MIB..317 * MIB;
const LAST: Range<u64> = 318 * MIB..468 * MIB;

/// What sfdisk reads, and the number of the partition at [`LAST`].
struct Table {
    script: &'static str,
    last: u32,
}

const GPT: Table = Table {
    script: "label: gpt\nstart=1MiB, size=16MiB, type=uefi, name=boot\nstart=17MiB, size=300MiB, name=root\n\
             start=318MiB, size=150MiB, name=home\n",
    last: 3,
};

/// The last one is in an extended partition.
const MBR: Table = Table {
    script: "label: dos\nstart=1MiB, size=16MiB, type=ef\nstart=17MiB, size=300MiB, type=83\n\
             start=317MiB, size=160MiB, type=5\nstart=318MiB, size=150MiB, type=83\n",
    last: 5,
};

/// Partitions by what a GPT calls them, and by their UUIDs. A name that no partition has makes no file beside a disk.
fn by_name(bench: &Bench) -> Result<()> {
    const UUID: &str = "5c0ac001-1111-4222-8333-00000000abcd";
    let disk = bench.scratch.file("disk.raw");
    sparse_file(&disk, DISK)?;
    let script = format!(
        "label: gpt\nstart=1MiB, size=16MiB, name=twice\nstart=17MiB, size=300MiB, name=root, uuid={UUID}\n\
         start=318MiB, size=20MiB, name=twice\nstart=340MiB, size=120MiB, name=\"a name\"\n"
    );
    Run::new("sfdisk").arg("-q").arg(&disk).input(script.into_bytes()).ok()?;
    let named = |name: &str| PathBuf::from(format!("{}@{name}", disk.display()));
    let creamery = |words: &[&str]| bench.creamery().run(words.iter().copied());
    creamery(&["mkfs", "-q", "-L", "by-name"]).arg(named("root")).ok()?;
    creamery(&["mkfs", "-q", "--owner", "7:8"]).arg(named("a name")).ok()?;
    creamery(&["mkdir"]).arg(inside(&named(&UUID.to_uppercase()), "/made")).ok()?;
    for name in ["root", "2", UUID] {
        let listed = creamery(&["ls"]).arg(inside(&named(name), "/")).ok()?.stdout_text();
        ensure!(listed == "made\n", "{name}: {listed}");
    }
    let mount = FuseMount::mount(bench.creamery(), &named("a name"), &bench.scratch.file("fuse"), "rw")?;
    std::fs::write(mount.dir().join("file"), "text")?;
    mount.unmount()?;
    let made: Vec<(&[&str], &str, &[&str])> = vec![
        (&["mkfs", "-b", "128M"], "none", &["has no partition called 'none'", "root", "a name"]),
        (&["mkfs", "-f"], "twice", &["partitions 1, 3", "called 'twice'", "number"]),
        (&["ls"], "none", &["has no partition called 'none'"]),
        (&["check"], "none", &["has no partition called 'none'"]),
    ];
    for (words, name, said) in made {
        expect_refusal(creamery(words).arg(named(name)), said)?;
        ensure!(!named(name).exists(), "{words:?} has made a file");
    }
    let copy = creamery(&["cp"]).arg(inside(&named("a name"), "/file")).arg(named("none"));
    expect_refusal(copy, &["has no partition called 'none'", "root"])?;
    let archive = creamery(&["tar", "-c", "-f"]).arg(named("none")).arg(inside(&named("root"), "/made"));
    expect_refusal(archive, &["the archive is the image itself"])?;
    ensure!(!named("none").exists(), "a file beside the disk");
    // Beside a file without a table the name is one as any other.
    let plain = bench.scratch.file("plain");
    sparse_file(&plain, 1 << 20)?;
    let beside = PathBuf::from(format!("{}@home", plain.display()));
    creamery(&["mkfs", "-q", "-b", "128M"]).arg(&beside).ok()?;
    ensure!(beside.exists(), "a file called plain@home");
    let device = LoopDevice::attach_disk(&disk)?;
    for number in [2, 4] {
        btrfs_check(&device.partition(number)?)?;
    }
    let dir = bench.scratch.file("linux");
    mounted_by_linux(&device.partition(4)?, &dir, "ro", || {
        ensure!(std::fs::read(dir.join("file"))? == b"text", "what Linux reads");
        Ok(())
    })?;
    device.detach()
}

/// A disk whose partitions have names with signs in them, and their sizes in MiB.
fn disk_with_signs(bench: &Bench) -> Result<PathBuf> {
    let disk = bench.scratch.file("disk.raw");
    sparse_file(&disk, 600 * MIB)?;
    let script = "label: gpt\nstart=1MiB, size=120MiB, name=\"+2\"\nstart=121MiB, size=130MiB, name=\"a@b\"\n\
                  start=251MiB, size=140MiB, name=root\nstart=391MiB, size=150MiB, name=\"@c\"\n";
    Run::new("sfdisk").arg("-q").arg(&disk).input(script).ok()?;
    Ok(disk)
}

/// A sign is a part of a name, and never of a number.
fn signs_in_names(bench: &Bench) -> Result<()> {
    let disk = disk_with_signs(bench)?;
    for (name, number, label) in
        [("+2", 1, "one"), ("a@b", 2, "two"), ("root", 3, "three"), ("@c", 4, "four")]
    {
        let mkfs = bench.creamery().run(["mkfs", "-q", "-b", "110M", "-L", label]).arg(part(&disk, name));
        mkfs.ok()?;
        let told = bench.creamery().run(["inspect", "partitions"]).arg(&disk).ok()?.stdout_text();
        ensure!(told.matches(" Btrfs ").count() == number, "{name}: {told}");
        let listed = bench.creamery().run(["filesystem", "label"]).arg(part(&disk, number)).ok()?;
        let listed = listed.stdout_text();
        ensure!(listed.trim() == label, "{name}: {listed}");
    }
    bench.creamery().run(["mkdir"]).arg(inside(&part(&disk, "a@b"), "/made")).ok()?;
    ensure!(std::fs::read_dir(bench.scratch.path())?.count() == 1, "a file beside the disk");
    let device = LoopDevice::attach_disk(&disk)?;
    for number in 1..=4 {
        btrfs_check(&device.partition(number)?)?;
    }
    device.detach()
}

/// No command makes a file or a directory of a name that a disk with partitions has, and an `@` behind. Without a table it does.
fn no_file_beside_a_disk(bench: &Bench) -> Result<()> {
    let disk = disk_with_signs(bench)?;
    let image = bench.scratch.file("disk.img");
    bench.creamery().run(["mkfs", "-q", "-b", "128M"]).arg(&image).ok()?;
    bench.creamery().run(["mkdir"]).arg(inside(&image, "/folder")).ok()?;
    bench.creamery().run(["touch"]).arg(inside(&image, "/file")).ok()?;
    let names = || -> Result<usize> { Ok(std::fs::read_dir(bench.scratch.path())?.count()) };
    let before = names()?;
    let behind: [&[u8]; 11] =
        [b"", b"@", b"b@", b"@root", b"@+1", b"+3", b"zzz", b"a@b@", b"\xff", b"1@root", b"9"];
    let named = |behind: &[u8]| {
        let mut name = part(&disk, "").into_os_string();
        name.push(OsStr::from_bytes(behind));
        PathBuf::from(name)
    };
    for behind in behind {
        let name = named(behind);
        let from = inside(&image, "/folder");
        let run = |words: &[&str]| bench.creamery().run(words.iter().copied());
        let commands = [
            run(&["mkfs", "-q", "-b", "110M"]).arg(&name),
            run(&["cp", "-r"]).arg(&from).arg(&name),
            run(&["cp", "-r"]).arg(inside(&image, "/")).arg(&name),
            run(&["cp", "-a"]).arg(&from).arg(name.join("")),
            run(&["cp"]).arg(inside(&image, "/file")).arg(&name),
            run(&["tar", "-c", "-f"]).arg(&name).arg(&from),
            run(&["restore"]).arg(&image).arg(&name),
        ];
        for command in commands {
            let done = command.output()?;
            ensure!(done.code.is_some_and(|code| code != 0), "succeeds: {done}");
            ensure!(names()? == before, "makes a file: {done}");
        }
        expect_refusal(run(&["mkfs", "-q", "-b", "110M"]).arg(&name), &["partition"])?;
    }
    Ok(())
}

/// Between logical partitions there is free space, and in it the sectors that lead from one to the next.
fn between_logical_partitions(bench: &Bench) -> Result<()> {
    const SECTOR: u64 = 512;
    let disk = bench.scratch.file("disk.raw");
    sparse_file(&disk, 1 << 30)?;
    let table = "label: dos\n1: start=2048,size=100M\n2: start=500000,size=1500000,type=5\n\
                 5: start=502048,size=150M,type=83\n6: start=1400000,size=150M\n";
    Run::new("sfdisk").arg("-q").arg(&disk).input(table).ok()?;
    let last = format!("{}@6", disk.display());
    bench.creamery().run(["mkfs", "-q"]).arg(&last).ok()?;
    let free = 502_048 * SECTOR + (150 << 20);
    let outside = |disk: &Path| Ok::<_, anyhow::Error>(std::fs::read(disk)?.split_off(1_390_000 * 512));
    let before = outside(&disk)?;
    bench.creamery().run(["mkfs", "-q"]).arg(format!("{}@@{free}", disk.display())).ok()?;
    ensure!(
        outside(&disk)?[7_952 * 512..] == before[7_952 * 512..],
        "the sector at 1397952 and what is behind it"
    );
    bench.creamery().run(["ls"]).arg(&last).ok().map(drop)
}

/// A disk with partitions, and something in all of it that is not to change.
fn disk(bench: &Bench, table: &Table) -> Result<PathBuf> {
    let path = bench.scratch.file("disk.raw");
    sparse_file(&path, DISK)?;
    let file = File::options().write(true).open(&path)?;
    for at in (0..DISK).step_by(1 << 18).skip(4) {
        file.write_all_at(&at.to_le_bytes(), at + 4096)?;
    }
    partition(&path, table)?;
    Ok(path)
}

fn partition(path: &Path, table: &Table) -> Result<()> {
    Run::new("sfdisk").arg("-q").arg(path).input(table.script).ok()?;
    Ok(())
}

/// `disk.raw@2`.
fn part(disk: &Path, behind: impl std::fmt::Display) -> PathBuf {
    let mut name = disk.as_os_str().to_owned();
    name.push(format!("@{behind}"));
    name.into()
}

/// A sum of all bytes outside of the ranges, and the length.
fn outside(disk: &Path, ranges: &[Range<u64>]) -> Result<(u64, u64)> {
    let (mut sum, mut file, mut at) = (DefaultHasher::new(), File::open(disk)?, 0);
    let mut piece = vec![0; 1 << 20]; // partitions begin and end with one
    loop {
        let read = file.read(&mut piece)?;
        ensure!(read == piece.len() || read == 0, "a piece of {read} bytes");
        if read == 0 {
            return Ok((sum.finish(), at));
        }
        if !ranges.iter().any(|range| range.contains(&at)) {
            sum.write(&piece);
        }
        at += read as u64;
    }
}

/// Does `work` with the kernel's device of a partition, and insists that the kernel has nothing to complain of.
fn with_kernel(disk: &Path, number: u32, work: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let device = LoopDevice::attach_disk(disk)?;
    let mut log = KernelLog::start()?;
    let outcome = device.partition(number).and_then(|partition| work(&partition));
    let complaints = log.complaints(&device.name())?;
    let detached = device.detach();
    outcome?;
    ensure!(complaints.is_empty(), "the kernel logged:\n  {}", complaints.join("\n  "));
    detached
}

/// Mounts a block device with Linux while `work` is done.
fn mounted_by_linux(
    device: &Path,
    dir: &Path,
    options: &str,
    work: impl FnOnce() -> Result<()>,
) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    Run::new("mount").args(["-t", "btrfs", "-o", options]).arg(device).arg(dir).ok()?;
    let outcome = work();
    Run::new("umount").arg(dir).again_while_busy().ok()?;
    outcome
}

/// `btrfs check` of the partition, and what Linux shows of it.
fn judge(bench: &Bench, disk: &Path, number: u32, want: &Walk) -> Result<()> {
    with_kernel(disk, number, |device| {
        btrfs_check(device)?;
        let dir = bench.scratch.file("judge");
        mounted_by_linux(device, &dir, "ro,noatime", || {
            let loose = Compare { root: false, ..Compare::default() };
            expect_same("the kernel's view of the partition", want, &Walk::take(&dir)?, &loose)
        })
    })
}

fn generate(dir: &Path, name: &str, files: u64, bytes: u64, seed: u64) -> Result<()> {
    std::fs::create_dir(dir.join(name))?;
    tree::generate(&dir.join(name), files, bytes, seed)?;
    Ok(())
}

/// Linux makes and fills the second partition, Creamery reads it, changes it and makes a filesystem in the last one.
fn in_turn(bench: &Bench, table: &Table) -> Result<()> {
    let disk = disk(bench, table)?;
    let want = bench.scratch.dir("want")?;
    generate(&want, "linux", 200, 20_000_000, 7)?;
    let kernel = bench.scratch.file("kernel");
    with_kernel(&disk, 2, |device| {
        Run::new("mkfs.btrfs").args(["-q", "-f", "-K"]).arg(device).ok()?;
        mounted_by_linux(device, &kernel, "noatime", || {
            Run::new("cp").args(["-a"]).arg(want.join("linux")).arg(&kernel).ok().map(drop)
        })
    })?;
    let before = outside(&disk, &[SECOND])?;
    let (second, at_second) = (part(&disk, 2), part(&disk, "@17M"));
    for name in [&second, &at_second, &part(&disk, format!("@{}", SECOND.start))] {
        let out = bench.scratch.file("out");
        bench.creamery().run(["cp", "-a"]).arg(inside(name, "/linux")).arg(&out).ok()?;
        expect_same(
            "a partition read",
            &Walk::take(&want.join("linux"))?,
            &Walk::take(&out)?,
            &Compare::default(),
        )?;
        std::fs::remove_dir_all(&out)?;
        bench.creamery().run(["check", "--check-data-csum"]).arg(name).ok()?;
    }
    // Written by the command, by a mount, and given back by a trim.
    generate(&want, "command", 100, 10_000_000, 8)?;
    generate(&want, "mount", 100, 10_000_000, 9)?;
    bench.creamery().run(["cp", "-a"]).arg(want.join("command")).arg(inside(&second, "/")).ok()?;
    let mount = FuseMount::mount(bench.creamery(), &at_second, &bench.scratch.file("mount"), "")?;
    Run::new("cp").arg("-a").arg(want.join("mount")).arg(mount.dir()).ok()?;
    mount.unmount()?;
    bench.creamery().run(["filesystem", "trim"]).arg(&second).ok()?;
    ensure!(outside(&disk, &[SECOND])? == before, "something was written outside of the partition");
    judge(bench, &disk, 2, &Walk::take(&want)?)?;
    // The other one, by ours alone.
    let before = outside(&disk, &[LAST])?;
    let last = part(&disk, table.last);
    bench.creamery().run(["mkfs", "-q", "-f", "--rootdir"]).arg(&want).arg(&last).ok()?;
    ensure!(outside(&disk, &[LAST])? == before, "mkfs wrote outside of the partition");
    judge(bench, &disk, table.last, &Walk::take(&want)?)?;
    judge(bench, &disk, 2, &Walk::take(&want)?)
}

fn mkfs_stays_within(bench: &Bench) -> Result<()> {
    let disk = disk(bench, &GPT)?;
    let (second, before) = (part(&disk, 2), outside(&disk, &[SECOND])?);
    let unchanged = |what: &str| -> Result<()> {
        ensure!(outside(&disk, &[SECOND])? == before, "{what} wrote outside of the partition");
        Ok(())
    };
    let mkfs = |words: &[&str]| bench.creamery().run(["mkfs"]).args(words);
    // What is in a partition of a file is overwritten by force only, and so is what is in the whole of it.
    expect_refusal(mkfs(&[]).arg(&second), &["disk.raw@2 holds unknown data", "use -f"])?;
    expect_refusal(mkfs(&[]).arg(&disk), &["holds a disk with a GPT partition table", "use -f"])?;
    expect_refusal(
        mkfs(&["-f", "-b", "301M"]).arg(&second),
        &["disk.raw@2 has 314572800 bytes, expected 315621376"],
    )?;
    unchanged("a refusal")?;
    let nothing = Walk::take(&bench.scratch.dir("nothing")?)?;
    let source = bench.scratch.dir("source")?;
    tree::generate(&source, 50, 3_000_000, 5)?;
    for words in [&["-f", "-q"][..], &["-f", "-q", "-K"], &["-f", "-q", "-b", "200M"], &["-f", "-q", "-M"]] {
        mkfs(words).arg(&second).ok()?;
        unchanged(&format!("mkfs {words:?}"))?;
        judge(bench, &disk, 2, &nothing)?;
    }
    let told = mkfs(&["-f", "--json"]).arg(&second).ok()?.stdout_text();
    ensure!(told.contains("\"size\": 314572800"), "the filesystem has another size: {told}");
    expect_refusal(mkfs(&[]).arg(&second), &["holds a Btrfs filesystem"])?;
    mkfs(&["-f", "-q", "--shrink", "--rootdir"]).arg(&source).arg(&second).ok()?;
    unchanged("mkfs --shrink")?;
    judge(bench, &disk, 2, &Walk::take(&source)?)?;
    // By force the whole disk is one filesystem, and no table is left.
    mkfs(&["-f", "-q"]).arg(&disk).ok()?;
    btrfs_check(&disk)?;
    expect_refusal(bench.creamery().run(["inspect", "partitions"]).arg(&disk), &["has no partition table"])
}

/// Two partitions of one file are mounted at once; nobody gets the whole, nor a partition twice.
fn two_at_once(bench: &Bench) -> Result<()> {
    let disk = disk(bench, &GPT)?;
    let names = [part(&disk, 2), part(&disk, 3)];
    for name in &names {
        bench.creamery().run(["mkfs", "-f", "-q"]).arg(name).ok()?;
    }
    let before = outside(&disk, &[SECOND, LAST])?;
    let want = bench.scratch.dir("want")?;
    tree::generate(&want, 100, 10_000_000, 3)?;
    let mounts: Vec<FuseMount> = names
        .iter()
        .enumerate()
        .map(|(row, name)| {
            FuseMount::mount(bench.creamery(), name, &bench.scratch.file(&row.to_string()), "")
        })
        .collect::<Result<_>>()?;
    let copied: Result<Vec<()>> = std::thread::scope(|scope| {
        let copies = mounts.iter().map(|mount| {
            let from = want.join(".");
            scope.spawn(move || Run::new("cp").arg("-a").arg(from).arg(mount.dir()).ok().map(drop))
        });
        let copies: Vec<_> = copies.collect();
        copies.into_iter().map(|copy| copy.join().expect("it does not panic")).collect()
    });
    copied?;
    // The mount table has the name of the partition that is mounted: another name for its bytes is not found there.
    let refused = [(&disk, "mounted at"), (&names[0], "mounted at"), (&part(&disk, "@17M"), "has it open")];
    for (refused, why) in refused {
        for words in [&["ls"][..], &["mkfs", "-f"]] {
            expect_refusal(bench.creamery().run(words).arg(refused), &["process", "creamery", why])?;
        }
    }
    bench.creamery().run(["inspect", "partitions"]).arg(&disk).ok()?;
    bench.creamery().run(["sync"]).arg(&names[0]).ok()?;
    bench.creamery().run(["stats"]).arg(&names[1]).ok()?;
    mounts.into_iter().try_for_each(FuseMount::unmount)?;
    ensure!(outside(&disk, &[SECOND, LAST])? == before, "something was written outside of the partitions");
    for number in [2, 3] {
        judge(bench, &disk, number, &Walk::take(&want)?)?;
    }
    Ok(())
}

fn told(bench: &Bench) -> Result<()> {
    let disk = bench.scratch.file("disk.raw");
    sparse_file(&disk, DISK)?;
    let creamery = bench.creamery();
    let listed = |words: &[&str]| creamery.run(["inspect", "partitions"]).args(words).arg(&disk);
    expect_refusal(listed(&[]), &["disk.raw has no partition table"])?;
    expect_refusal(creamery.run(["ls"]).arg(part(&disk, 2)), &["has no partition table: partition 2"])?;
    partition(&disk, &GPT)?;
    let there = "1 ('boot', EFI System, 16.00MiB); 2 ('root', Linux filesystem, 300.00MiB); 3 ('home', Linux filesystem, 150.00MiB)";
    expect_refusal(
        creamery.run(["ls"]).arg(&disk),
        &["name a partition, as in", "disk.raw@2; none has a btrfs", there],
    )?;
    creamery.run(["mkfs", "-q"]).arg(part(&disk, 3)).ok()?;
    expect_refusal(
        creamery.run(["ls"]).arg(&disk),
        &["name a partition, as in", "disk.raw@3, which has a btrfs"],
    )?;
    for command in ["check", "df", "cat", "stat", "rm", "mkdir"] {
        expect_refusal(
            creamery.run([command]).arg(part(&disk, 4)),
            &["has no partition 4", there, "which has a btrfs"],
        )?;
    }
    expect_refusal(creamery.run(["ls"]).arg(part(&disk, "@1000")), &["byte 1000 of", "sector of 512 bytes"])?;
    expect_refusal(
        creamery.run(["ls"]).arg(part(&disk, "@1T")),
        &["byte 1099511627776 of", "is beyond its"],
    )?;
    let text = listed(&[]).ok()?.stdout_text();
    ensure!(text.lines().count() == 4 && text.contains("@3") && text.contains("Btrfs"), "{text}");
    let json = listed(&["--json"]).ok()?.stdout_text();
    for part in
        ["\"table\":\"gpt\"", "\"number\":3,\"start\":333447168,\"size\":157286400", "\"has_btrfs\":true"]
    {
        ensure!(json.contains(part), "{part} is not in {json}");
    }
    // What is really called so comes first.
    let real = part(&disk, 2);
    creamery.run(["mkfs", "-q", "-b", "128M", "-L", "real"]).arg(bench.scratch.file("other")).ok()?;
    std::fs::rename(bench.scratch.file("other"), &real)?;
    let df = creamery.run(["df"]).arg(&real).ok()?.stdout_text();
    ensure!(df.contains("128.00MiB"), "the partition came first: {df}");
    Ok(())
}

/// Tables that are damaged, gone, or tell of more than there is.
fn damaged_tables(bench: &Bench) -> Result<()> {
    let disk = bench.scratch.file("disk.raw");
    sparse_file(&disk, DISK)?;
    partition(&disk, &GPT)?;
    let creamery = bench.creamery();
    let listed = || creamery.run(["inspect", "partitions"]).arg(&disk);
    // A damaged table: the one at the end, with a word about it; then none.
    flip_byte(&disk, 512 + 60)?;
    let third = part(&disk, 3);
    let works = [
        listed(),
        creamery.run(["mkfs", "-q"]).arg(&third),
        creamery.run(["ls"]).arg(&third),
        creamery.run(["mkdir"]).arg(inside(&third, "/made")),
        creamery.run(["check"]).arg(&third),
        creamery.run(["inspect", "dump-super"]).arg(&third),
        creamery.run(["inspect", "dump-tree"]).arg(&third),
    ];
    for run in works {
        let finished = run.ok()?;
        let warned = finished.stderr_text().matches("the one at the end was used").count();
        ensure!(warned == 1, "warned {warned} times: {finished}");
    }
    flip_byte(&disk, DISK - 512 + 60)?;
    expect_refusal(listed(), &["the GPT partition table is damaged: its header has checksum"])?;
    expect_refusal(creamery.run(["ls"]).arg(part(&disk, 3)), &["the GPT partition table is damaged"])?;
    // An offset needs no table.
    creamery.run(["ls"]).arg(part(&disk, "@318M")).ok()?;
    // A disk whose start was zeroed is one with partitions still.
    let wiped = bench.scratch.file("wiped.raw");
    sparse_file(&wiped, DISK)?;
    partition(&wiped, &GPT)?;
    let zeros = vec![0; 1 << 20];
    File::options().write(true).open(&wiped)?.write_all_at(&zeros, 0)?;
    expect_refusal(
        creamery.run(["mkfs"]).arg(&wiped),
        &["holds a disk with a GPT partition table", "use -f"],
    )?;
    creamery.run(["mkfs", "-q"]).arg(part(&wiped, 2)).ok()?;
    // Cut off in the middle of a partition.
    partition(&disk, &MBR)?;
    File::options().write(true).open(&disk)?.set_len(400 * MIB).context("cutting the disk")?;
    expect_refusal(
        creamery.run(["mkfs"]).arg(part(&disk, 5)),
        &["partition 5 of", "ends at byte 490733568, expected at most"],
    )
}
