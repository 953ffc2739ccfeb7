//! Files that are put together, or packed another way: in an image and on a live mount, by our program and by the ioctl of Linux.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Random, Run, btrfs_check, until};

use crate::support::{MOUNTED, expect_refusal, judge_mount, mkfs_empty, stats};

const SECTOR: usize = 4096;
const SECTORS: usize = 300;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("defragment/image", &MOUNTED, image),
        Case::new("defragment/mount", &[&MOUNTED[..], &[Judge::Tool("python3")]].concat(), mount),
        Case::new("defragment/until-it-is-read-only", &MOUNTED, until_it_is_read_only),
        Case::new("defragment/what-is-shared", &MOUNTED, shared),
    ]
}

/// Lines that get shorter, another one for each sector.
fn sector(at: usize) -> Vec<u8> {
    format!("sector {at} of what gets shorter\n").into_bytes().into_iter().cycle().take(SECTOR).collect()
}

/// A file of single sectors, the last one written first, in a directory below others.
fn fragmented(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir.join("a/b"))?;
    let file = File::create_new(dir.join("a/b/file"))?;
    for at in (0..SECTORS).rev() {
        file.write_all_at(&sector(at), (at * SECTOR) as u64)?;
    }
    fs::write(dir.join("small"), "in the tree")?;
    fs::write(dir.join("noise"), Random::new(1).bytes(100_000))?;
    Ok(())
}

/// How many extents of a file are packed, and how many are not.
fn extents(bench: &Bench, image: &Path, path: &str) -> Result<(usize, usize)> {
    let place = format!("{}:{path}", image.display());
    let said = bench.creamery().run(["filesystem", "fiemap", "--json"]).arg(place).ok()?.stdout_text();
    let all = said.matches("logical").count();
    let packed = said.matches("encoded").count();
    Ok((packed, all - packed))
}

fn check_content(dir: &Path) -> Result<()> {
    let found = fs::read(dir.join("a/b/file"))?;
    ensure!(found == (0..SECTORS).flat_map(sector).collect::<Vec<_>>(), "the file is another");
    ensure!(fs::read(dir.join("small"))? == b"in the tree");
    ensure!(fs::read(dir.join("noise"))? == Random::new(1).bytes(100_000));
    Ok(())
}

fn judge(bench: &Bench, image: &Path) -> Result<()> {
    btrfs_check(image)?;
    let kernel = LoopMount::mount(image, &bench.scratch.file("kernel"), "ro")?;
    check_content(kernel.dir())?;
    kernel.unmount()
}

fn image(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let made = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "nodelalloc")?;
    fragmented(made.dir())?;
    made.unmount()?;
    let place = |path: &str| format!("{}:{path}", image.display());
    let run = |args: &[&str], path: &str| {
        bench.creamery().run(["filesystem", "defragment"]).args(args).arg(place(path))
    };
    let (_, before) = extents(bench, &image, "/a/b/file")?;
    ensure!(before == SECTORS, "{before} extents to begin with");
    for (args, wanted) in [
        // What is packed, and what is not.
        (&[][..], (0, 1)),
        (&["-c", "zstd:5"][..], (10, 0)),
        (&["-c", "none"][..], (0, 1)),
        (&["-c", "lzo", "-s", "128K", "-l", "128K"][..], (1, 2)),
    ] {
        let said = run(&[args, &["-r", "--json"]].concat(), "/").ok()?.stdout_text();
        ensure!(said.contains("\"files\": 3"), "{said}");
        let found = extents(bench, &image, "/a/b/file")?;
        ensure!(found == wanted, "{args:?}: {found:?} extents are packed, and not; wanted {wanted:?}");
        judge(bench, &image)?;
    }
    let said = run(&["-v"], "/a/b/file").ok()?.stdout_text();
    ensure!(said.contains("/a/b/file\n1 files looked at"), "{said}");
    expect_refusal(run(&[], "/a"), &["/a", "directory"])?;
    expect_refusal(run(&[], "/nothing"), &["/nothing", "not found"])?;
    expect_refusal(run(&["-c", "gzip"], "/a"), &["gzip", "zstd"])?;
    Ok(())
}

fn mount(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "nodelalloc")?;
    fragmented(mount.dir())?;
    let file = mount.dir().join("a/b/file");
    let (before, content) = (fs::metadata(&file)?, fs::read(&file)?);
    let packed = || -> Result<bool> {
        let said = bench.creamery().run(["filesystem", "fiemap", "--sync"]).arg(&file).ok()?.stdout_text();
        Ok(said.contains("encoded"))
    };
    let ours =
        |args: &[&str]| bench.creamery().run(["filesystem", "defragment", "-r"]).args(args).arg(mount.dir());
    // BTRFS_IOC_DEFRAG_RANGE: all of the file, compressed.
    let by_ioctl = |algorithm: u32| {
        let script = format!(
            "import fcntl, struct, sys\n\
             args = struct.pack('<QQQII16x', 0, 2**64 - 1, 1, 0, {algorithm})\n\
             fcntl.ioctl(open(sys.argv[1]), 0x40309410, args)"
        );
        Run::new("python3").args(["-c", &script]).arg(&file)
    };
    ours(&[]).ok()?;
    ensure!(!packed()?);
    by_ioctl(3).ok()?;
    ensure!(packed()?, "the ioctl asked for it in vain");
    ensure!(by_ioctl(4).output()?.code != Some(0), "there is no such algorithm");
    ours(&["-c", "none"]).ok()?;
    ensure!(!packed()?);
    ours(&["-c", "lzo"]).ok()?;
    ensure!(packed()?);
    let after = fs::metadata(&file)?;
    ensure!((after.mtime(), after.ctime_nsec()) == (before.mtime(), before.ctime_nsec()), "the times moved");
    ensure!(fs::read(&file)? == content, "the mount shows something else");
    bench.creamery().run(["mount", "-o", "remount,ro"]).arg(&image).arg(mount.dir()).ok()?;
    let lies = || bench.creamery().run(["filesystem", "fiemap"]).arg(&file).ok();
    let before = lies()?.stdout;
    let said = ours(&["-c", "none", "--json"]).ok()?.stdout_text();
    ensure!(said.contains("\"unchangeable_files\": 3"), "{said}");
    ensure!(by_ioctl(3).output()?.code != Some(0), "the ioctl writes to what is read-only");
    ensure!(lies()?.stdout == before, "what is read-only was changed");
    bench.creamery().run(["mount", "-o", "remount,rw"]).arg(&image).arg(mount.dir()).ok()?;
    expect_refusal(ours(&[]).arg("/proc/version"), &["/proc/version", "not on a mount of an image"])?;
    judge_mount(bench, &image, mount)?;
    judge(bench, &image)
}

/// A mount, or a subvolume, that becomes read-only in the midst of it: from then on nothing is changed.
fn until_it_is_read_only(bench: &Bench) -> Result<()> {
    const FILES: u64 = 4;
    for by_remount in [true, false] {
        let image = bench.scratch.file(&format!("{by_remount}.img"));
        mkfs_empty(bench.creamery(), &[], "1G", &image)?;
        let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
        let top = mount.dir().join("top");
        bench.creamery().run(["subvolume", "create"]).arg(&top).ok()?;
        let mut random = Random::new(1);
        for number in 0..FILES {
            let text: Vec<u8> = random.bytes(8 << 20).iter().map(|byte| b'a' + byte % 16).collect();
            fs::write(top.join(number.to_string()), text)?;
        }
        bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
        let stop = std::thread::scope(|scope| {
            let run =
                bench.creamery().run(["filesystem", "defragment", "-r", "-c", "zstd:9", "--json"]).arg(&top);
            let defragment = scope.spawn(|| run.output());
            until("some chunks to be packed", || {
                let chunks = &stats(bench, mount.dir())?["filesystem"]["compression"]["chunks"];
                Ok(defragment.is_finished() || chunks.as_u64().context("a number of chunks")? > 0)
            })?;
            let stop = match by_remount {
                true => bench.creamery().run(["mount", "-o", "remount,ro"]).arg(&image).arg(mount.dir()),
                false => bench.creamery().run(["property", "set"]).arg(&top).args(["ro", "true"]),
            };
            stop.ok()?;
            let lies =
                || bench.creamery().run(["filesystem", "fiemap"]).arg(top.join((FILES - 1).to_string())).ok();
            let before = lies()?.stdout;
            let done = defragment.join().ok().context("a panic")??;
            ensure!(lies()?.stdout == before, "what is read-only went on changing");
            Ok(done.stdout_text())
        });
        let said: String = stop?;
        ensure!(said.contains("\"files\": 4"), "{said}");
        mount.unmount()?;
        btrfs_check(&image)?;
    }
    Ok(())
}

/// Snapshots keep what they have: they are not entered, on a mount or in an image.
fn shared(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "nodelalloc")?;
    fragmented(mount.dir())?;
    for name in ["0-first", "snapshot"] {
        let snapshot = mount.dir().join(name);
        bench.creamery().run(["subvolume", "snapshot"]).arg(mount.dir()).arg(&snapshot).ok()?;
    }
    let run = |place: &Path| {
        let run = bench
            .creamery()
            .run(["filesystem", "defragment", "-r", "-c", "zstd", "--json"])
            .arg(place)
            .ok()?;
        let said = run.stdout_text();
        ensure!(said.contains("\"files\": 3"), "{said}");
        Ok(())
    };
    run(mount.dir())?;
    check_content(&mount.dir().join("snapshot"))?;
    mount.unmount()?;
    run(Path::new(&format!("{}:/", image.display())))?;
    for name in ["0-first", "snapshot"] {
        let found = extents(bench, &image, &format!("/{name}/a/b/file"))?;
        ensure!(found == (0, SECTORS), "{name} has {found:?} extents that are packed, and not");
    }
    ensure!(extents(bench, &image, "/a/b/file")?.1 == 0, "the file was forgotten");
    btrfs_check(&image)?;
    let kernel = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    check_content(&kernel.dir().join("snapshot"))?;
    check_content(kernel.dir())?;
    kernel.unmount()
}
