//! fallocate: preallocating, punching and zeroing have the results of Linux.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Random, Run, btrfs_check};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use crate::posix::on_a_mount;
use crate::support::{JUDGED, MOUNTED, inside, judge_mount, mkfs_empty};

/// Bytes of the file at first.
const LEN: usize = 100_000;

/// Options of fallocate(1), in turn on one file. No file ends inside a sector without data when it grows, and no hole is punched into a part
/// of one: Linux writes zeros to such a sector, so it has data there, and we do not.
const STEPS: [&str; 15] = [
    "-l 50000",
    "-n -o 200000 -l 100000",
    "-p -o 5000 -l 30000",
    "-p -o 36100 -l 200",
    "-z -o 40001 -l 20000",
    "-l 249856",
    "-z -n -o 240000 -l 300000",
    "-p -o 229376 -l 100352",
    "-p -o 401408 -l 40960",
    "-o 500000 -l 10000",
    "-z -o 505000 -l 68440",
    "-n -o 0 -l 4096",
    "-p -o 0 -l 4096",
    "-z -o 7 -l 9",
    "-o 590000 -l 1",
];

/// Further options, which only a mount accepts.
const ON_A_MOUNT: [&str; 5] =
    ["-c -o 4096 -l 4096", "-i -o 4096 -l 4096", "-x -l 700000", "-l 100G", "-o 8E -l 1"];

pub(crate) fn cases() -> Vec<Case> {
    let tool = [Judge::Tool("fallocate")];
    let mounted = [&MOUNTED[..], &tool].concat();
    let judged = [&JUDGED[..], &tool].concat();
    vec![
        Case::new("fallocate/each-option-does-what-it-does-on-linux", &mounted, each_option),
        Case::new("fallocate/command", &judged, command),
        Case::new("fallocate/space-set-aside-is-there-when-all-is-full", &mounted, full),
        Case::new(
            "fallocate/set-user-id-goes",
            &[&mounted[..], &[Judge::Tool("setpriv")]].concat(),
            set_user_id_goes,
        ),
        Case::new("fallocate/refusals", &mounted, |bench| on_a_mount(bench, refusals)),
    ]
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ')
}

/// The visible state of a file.
#[derive(PartialEq, Eq, Debug)]
struct SeenFile {
    size: u64,
    blocks: u64,
}

/// Writes the file back, and reads its state.
fn look(path: &Path) -> Result<(SeenFile, Vec<u8>)> {
    File::open(path)?.sync_all()?;
    let stat = path.metadata()?;
    Ok((SeenFile { size: stat.size(), blocks: stat.blocks() }, std::fs::read(path)?))
}

/// The ranges of a file's data.
fn map(path: &Path) -> Result<Vec<(u64, u64)>> {
    let file = File::open(path)?;
    let (mut at, mut found) = (0, Vec::new());
    loop {
        match seek(&file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => return Ok(found),
            start => {
                let start = start?;
                at = seek(&file, SeekFrom::Hole(start))?;
                found.push((start, at));
            }
        }
    }
}

/// Runs `act` on both files, and compares the results.
fn beside(step: &str, files: [&Path; 2], act: impl Fn(&Path) -> Result<Option<i32>>) -> Result<()> {
    let [linux, ours] = files;
    let ended = (act(linux)?, act(ours)?);
    ensure!(ended.0 == ended.1, "{step}: Linux ends with {:?}, ours with {:?}", ended.0, ended.1);
    let ((linux, wanted), (ours, found)) = (look(linux)?, look(ours)?);
    ensure!(linux == ours, "{step}: Linux has {linux:?}, ours {ours:?}");
    ensure!(wanted == found, "{step}: the content differs");
    Ok(())
}

fn each_option(bench: &Bench) -> Result<()> {
    let images = ["linux.img", "disk.img"].map(|name| bench.scratch.file(name));
    for image in &images {
        mkfs_empty(bench.creamery(), &[], "512M", image)?;
    }
    let linux = LoopMount::mount(&images[0], &bench.scratch.file("linux"), "")?;
    let ours = FuseMount::mount(bench.creamery(), &images[1], &bench.scratch.file("fuse"), "")?;
    let files = [linux.dir().join("file"), ours.dir().join("file")];
    let files = [files[0].as_path(), files[1].as_path()];
    let mut random = Random::new(8);
    let data = random.bytes(LEN);
    let written = |at: u64, data: &[u8]| {
        beside(&format!("{} bytes at {at}", data.len()), files, |file| {
            let file = File::options().create(true).truncate(false).write(true).open(file)?;
            file.write_all_at(data, at)?;
            Ok(None)
        })
    };
    written(0, &data)?;
    for step in STEPS.into_iter().chain(ON_A_MOUNT) {
        beside(step, files, |file| Ok(Run::new("fallocate").args(words(step)).arg(file).output()?.code))?;
        let (at, len) = (random.below(600_000), 1 + random.below(20_000));
        written(at, &random.bytes(usize::try_from(len)?))?;
    }
    for size in [590_000, 299_008, 299_008, 650_000] {
        beside(&format!("truncate to {size}"), files, |file| {
            File::options().write(true).open(file)?.set_len(size)?;
            Ok(None)
        })?;
    }
    let wanted = map(files[0])?;
    linux.unmount()?;
    judge_mount(bench, &images[1], ours)?;
    let ours = LoopMount::mount(&images[1], &bench.scratch.file("kernel"), "ro")?;
    let found = map(&ours.dir().join("file"))?;
    ours.unmount()?;
    ensure!(wanted == found, "Linux has data at {wanted:?}, ours at {found:?}");
    Ok(())
}

/// The command has the result of fallocate(1).
fn command(bench: &Bench) -> Result<()> {
    let images = ["linux.img", "disk.img"].map(|name| bench.scratch.file(name));
    let source = bench.scratch.file("source");
    std::fs::write(&source, Random::new(9).bytes(LEN))?;
    for image in &images {
        mkfs_empty(bench.creamery(), &[], "512M", image)?;
        bench.creamery().run(["cp"]).arg(&source).arg(inside(image, "/file")).ok()?;
    }
    let linux = LoopMount::mount(&images[0], &bench.scratch.file("linux"), "")?;
    for step in STEPS {
        Run::new("fallocate").args(words(step)).arg(linux.dir().join("file")).ok()?;
        bench.creamery().run(["fallocate"]).args(words(step)).arg(inside(&images[1], "/file")).ok()?;
    }
    Run::new("fallocate").args(["-l", "1M"]).arg(linux.dir().join("new")).ok()?;
    bench.creamery().run(["fallocate", "-l", "1M"]).arg(inside(&images[1], "/new")).ok()?;
    for wrong in ["-l 0", "-l 1T", "-n -l 1M"] {
        let place = inside(&images[1], if wrong.starts_with("-n") { "/missing" } else { "/new" });
        let refused = bench.creamery().run(["fallocate"]).args(words(wrong)).arg(place).output()?;
        ensure!(refused.code == Some(1), "fallocate {wrong}: {refused}");
    }
    btrfs_check(&images[1])?;
    let ours = LoopMount::mount(&images[1], &bench.scratch.file("kernel"), "ro")?;
    for name in ["file", "new"] {
        let [wanted, found] = [linux.dir(), ours.dir()].map(|dir| dir.join(name));
        ensure!(look(&wanted)? == look(&found)?, "{name} is not what Linux makes of it");
        ensure!(map(&wanted)? == map(&found)?, "{name} has data elsewhere");
    }
    ours.unmount()?;
    linux.unmount().map(drop)
}

/// Preallocated space can be written on a full filesystem.
fn full(bench: &Bench) -> Result<()> {
    const KEPT: usize = 48 << 20;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    let kept = mount.dir().join("kept");
    std::fs::write(&kept, b"")?;
    Run::new("fallocate").args(["-n", "-l", &KEPT.to_string()]).arg(&kept).ok()?;
    let filler = File::create(mount.dir().join("filler"))?;
    let piece = vec![1; 1 << 20];
    let error = (0..).find_map(|at| filler.write_all_at(&piece, at << 20).err()).context("it never ends")?;
    ensure!(error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()), "filling ended with {error}");
    match std::fs::write(mount.dir().join("other"), vec![2; 4 << 20]) {
        Err(error) if error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => {}
        other => bail!("what was set aside is there for others: {other:?}"),
    }
    let data = Random::new(10).bytes(KEPT);
    let file = File::options().write(true).open(&kept)?;
    file.write_all_at(&data, 0).context("writing to what was set aside")?;
    file.sync_all()?;
    drop((file, filler));
    ensure!(std::fs::read(&kept)? == data, "it reads differently");
    judge_mount(bench, &image, mount)?;
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    ensure!(std::fs::read(kernel.dir().join("kept"))? == data, "the kernel reads something else");
    kernel.unmount().map(drop)
}

/// A write by a user other than root clears set-user-id, and clears set-group-id if the group may execute or the user is not in the group.
fn set_user_id_goes(bench: &Bench) -> Result<()> {
    const ROOT: &[&str] = &["--reuid", "0"];
    let look = |dir: &Path| -> Result<Vec<String>> {
        let mut modes = Vec::new();
        for options in ["-l 20000", "-n -l 20000", "-p -l 4096", "-z -l 4096"] {
            let file = dir.join(options);
            for mode in [0o6777, 0o6666, 0o2766, 0o2777, 0o4777] {
                for who in
                    [&["--clear-groups"][..], &["--regid", "7", "--clear-groups"], &["--groups", "7"], ROOT]
                {
                    std::fs::write(&file, [7; 10_000])?;
                    std::os::unix::fs::chown(&file, None, Some(7))?;
                    std::fs::set_permissions(&file, Permissions::from_mode(mode))?;
                    let user: &[&str] = if who == ROOT { &[] } else { &["--reuid", "65534"] };
                    let run = Run::new("setpriv").args(user).args(who).args(["--", "fallocate"]);
                    run.args(words(options)).arg(&file).ok()?;
                    modes.push(format!(
                        "{mode:o}, {options}, {who:?}: {:o}",
                        file.metadata()?.mode() & 0o7777
                    ));
                    std::fs::remove_file(&file)?;
                }
            }
        }
        Ok(modes)
    };
    let images = ["linux.img", "disk.img"].map(|name| bench.scratch.file(name));
    for image in &images {
        mkfs_empty(bench.creamery(), &[], "512M", image)?;
    }
    let linux = LoopMount::mount(&images[0], &bench.scratch.file("linux"), "")?;
    let wanted = look(linux.dir())?;
    linux.unmount()?;
    let ours = FuseMount::mount(bench.creamery(), &images[1], &bench.scratch.file("fuse"), "allow_other")?;
    let found = look(ours.dir())?;
    for (wanted, found) in wanted.iter().zip(&found) {
        ensure!(wanted == found, "Linux leaves {wanted}, ours {found}");
    }
    judge_mount(bench, &images[1], ours)
}

fn refusals(dir: &Path) -> Result<()> {
    let path = dir.join("file");
    std::fs::write(&path, [7; 10_000])?;
    let file = File::options().read(true).write(true).open(&path)?;
    let keep = FallocateFlags::KEEP_SIZE;
    for (flags, offset, len, refused) in [
        (FallocateFlags::empty(), 0, 0, Errno::INVAL),
        (FallocateFlags::empty(), u64::MAX >> 1, 1, Errno::FBIG),
        (keep, 1 << 62, 1 << 62, Errno::FBIG),
        (FallocateFlags::PUNCH_HOLE, 0, 4096, Errno::OPNOTSUPP),
        (FallocateFlags::COLLAPSE_RANGE, 0, 4096, Errno::OPNOTSUPP),
        (FallocateFlags::INSERT_RANGE, 0, 4096, Errno::OPNOTSUPP),
        (FallocateFlags::UNSHARE_RANGE, 0, 4096, Errno::OPNOTSUPP),
        (FallocateFlags::empty(), 0, 1 << 40, Errno::NOSPC),
        (FallocateFlags::ZERO_RANGE | keep, 4096, 1 << 40, Errno::NOSPC),
    ] {
        let answer = fallocate(&file, flags, offset, len);
        ensure!(answer == Err(refused), "{flags:?} of {len} bytes at {offset}: {answer:?}");
    }
    let reader = File::open(&path)?;
    let answer = fallocate(&reader, FallocateFlags::empty(), 0, 4096);
    ensure!(answer == Err(Errno::BADF), "through a handle to read: {answer:?}");
    let answer = fallocate(&File::open(dir)?, FallocateFlags::empty(), 0, 4096);
    ensure!(answer == Err(Errno::BADF), "of a directory: {answer:?}");
    ensure!(std::fs::read(&path)? == [7; 10_000], "what was refused changed the file");
    Ok(())
}
