//! Damaged, foreign and impossible input: one clear line, an exit status other than 0, and no change.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk};
use creamery_testkit::{FuseMount, Judge, LoopDevice, LoopMount, Random, Run, btrfs_check, tree};

use crate::support::{
    JUDGED, MOUNTED, crc32c, expect_failure, expect_refusal, expect_untouched, flip_byte, inside, judge,
    mkfs_empty, mkfs_from, sparse_file,
};

const PROGRAM: [Judge; 1] = [Judge::Program];
const SUPERBLOCK: u64 = 65_536;
const SUPERBLOCK_LEN: usize = 4_096;
const SECOND_SUPERBLOCK: u64 = 64 << 20;

type CaseBody = fn(&Bench) -> Result<()>;

pub(crate) fn cases() -> Vec<Case> {
    let ext4: &[Judge] = &[Judge::Program, Judge::Tool("mkfs.ext4")];
    let setfattr: &[Judge] = &[Judge::Program, Judge::Tool("setfattr")];
    let cases: [(&str, &[Judge], CaseBody); 20] = [
        ("random-bytes", &PROGRAM, random_bytes),
        ("truncated-image", &PROGRAM, truncated_image),
        ("superblock-checksum", &PROGRAM, superblock_checksum),
        ("damaged-blocks", &PROGRAM, damaged_blocks),
        ("ext4-image", ext4, ext4_image),
        ("unknown-incompat-bit", &PROGRAM, unknown_incompat_bit),
        ("device-too-small", &PROGRAM, device_too_small),
        ("tree-does-not-fit", &PROGRAM, tree_does_not_fit),
        ("target-mounted", &JUDGED, target_mounted),
        ("target-holds-a-filesystem", ext4, target_holds_a_filesystem),
        ("image-mounted-by-us", &MOUNTED, image_mounted_by_us),
        ("image-behind-a-loop-device", &JUDGED, image_behind_a_loop_device),
        ("seed", &JUDGED, seed),
        ("two-loop-devices-of-an-image", &JUDGED, two_loop_devices_of_an_image),
        ("copy-into-a-full-image", &JUDGED, copy_into_a_full_image),
        ("long-name", &PROGRAM, long_name),
        ("attribute-that-no-leaf-holds", setfattr, attribute_that_no_leaf_holds),
        ("unknown-option", &PROGRAM, unknown_option),
        ("missing-things", &PROGRAM, missing_things),
        ("log-to-replay", &MOUNTED, log_to_replay),
    ];
    let case =
        |(name, needs, body): (&str, &[Judge], CaseBody)| Case::new(format!("bad-input/{name}"), needs, body);
    let long = Case::new("bad-input/full-image", &MOUNTED, full_image).long();
    cases.into_iter().map(case).chain([long]).collect()
}

/// No filesystem size helps, so no message advises a larger one.
fn attribute_that_no_leaf_holds(bench: &Bench) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &bench.scratch.file("there.img"))?;
    std::fs::create_dir(source.join("dir"))?;
    for (name, is_dir) in [("dir/file", false), ("dir/below", true)] {
        let path = source.join(name);
        if is_dir {
            std::fs::create_dir(&path)?
        } else {
            std::fs::write(&path, "text")?
        }
        let value = "v".repeat(16_300);
        let run = Run::new("setfattr").args(["-n", "user.large", "-v", &value]).arg(&path).output()?;
        ensure!(run.code == Some(0), "the scratch folder's filesystem takes no such attribute");
        let words = [name, "user.large", "16300", "16218"];
        for size in [&[][..], &["-b", "512M"]] {
            let run = || bench.creamery().run(["mkfs"]).args(size).arg("--rootdir").arg(&source).arg(&image);
            expect_refusal(run(), &words)?;
            let said = run().output()?.stderr_text();
            ensure!(!said.contains("with -b") && !said.contains("guess"), "{said}");
        }
        let run = bench.creamery().run(["cp", "-a"]).arg(source.join("dir"));
        expect_failure(run.arg(inside(&bench.scratch.file("there.img"), "/")), &words)?;
        // A larger leaf has room.
        mkfs_from(bench.creamery(), &["--nodesize", "64k", "-f"], &source, &image)?;
        std::fs::remove_file(&image)?;
        if is_dir { std::fs::remove_dir(&path)? } else { std::fs::remove_file(&path)? }
    }
    Ok(())
}

/// Every command that opens an image refuses this one, names it, and does not change it.
fn expect_all_refuse(bench: &Bench, image: &Path, words: &[&str]) -> Result<()> {
    let name = image.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let words: Vec<&str> = words.iter().copied().chain([&*name]).collect();
    let point = bench.scratch.dir("point")?;
    expect_untouched(image, || {
        let run = |args: &[&str]| bench.creamery().run(args);
        expect_refusal(run(&["ls"]).arg(inside(image, "/")), &words)?;
        expect_refusal(run(&["cat"]).arg(inside(image, "/file")), &words)?;
        expect_refusal(run(&["mkdir"]).arg(inside(image, "/new")), &words)?;
        expect_refusal(run(&["cp", "/etc/hostname"]).arg(inside(image, "/new")), &words)?;
        expect_refusal(run(&["df"]).arg(image), &words)?;
        expect_refusal(run(&["mount"]).arg(image).arg(&point), &words)
    })
}

fn small_image(bench: &Bench, name: &str, options: &[&str]) -> Result<PathBuf> {
    let image = bench.scratch.file(name);
    let source = bench.scratch.dir("small-source")?;
    if !source.join("file").exists() {
        tree::generate(&source, 100, 1_000_000, 9)?;
        std::fs::write(source.join("file"), b"content")?;
    }
    mkfs_from(bench.creamery(), &[options, &["-b", "256M"]].concat(), &source, &image)?;
    Ok(image)
}

fn random_bytes(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("random.img");
    std::fs::write(&image, Random::new(1).bytes(2 << 20))?;
    expect_all_refuse(bench, &image, &[])?;
    let short = bench.scratch.file("short.img");
    std::fs::write(&short, b"short")?;
    expect_all_refuse(bench, &short, &[])?;
    let empty = bench.scratch.file("empty.img");
    std::fs::write(&empty, b"")?;
    expect_all_refuse(bench, &empty, &[])
}

/// Reading works up to the end of the file (`rescue/of-a-device-that-ends-early`). Writing is refused, and so is reading if nothing readable
/// is left.
fn truncated_image(bench: &Bench) -> Result<()> {
    for (name, len) in [("half", 128 << 20), ("by-one-sector", (256 << 20) - 4_096)] {
        let image = small_image(bench, &format!("{name}.img"), &[])?;
        File::options().write(true).open(&image)?.set_len(len)?;
        let both = [&*len.to_string(), "268435456"];
        expect_untouched(&image, || {
            expect_refusal(bench.creamery().run(["mkdir"]).arg(inside(&image, "/new")), &both)
        })?;
    }
    for (name, len) in [("tiny", 100_000), ("without-its-superblock", 68_000)] {
        let image = small_image(bench, &format!("{name}.img"), &[])?;
        File::options().write(true).open(&image)?.set_len(len)?;
        expect_all_refuse(bench, &image, &[])?;
    }
    Ok(())
}

/// With all copies bad nothing can be opened; with only the first one bad, the message mentions it.
fn superblock_checksum(bench: &Bench) -> Result<()> {
    // The checksum lies in the first four bytes; the rest of its field is not covered.
    for at in [0, 3, 32, 48, 64, 72, 96, 128, 200, 300, 811, 2_048, 4_095] {
        let image = small_image(bench, &format!("byte-{at}.img"), &[])?;
        flip_byte(&image, SUPERBLOCK + at)?;
        let first_only = bench.creamery().run(["ls"]).arg(inside(&image, "/")).output()?;
        let said = first_only.stderr_text();
        ensure!(first_only.code != Some(101) && !said.contains("panicked"), "panicked: {first_only}");
        ensure!(
            said.to_lowercase().contains("superblock"),
            "a bad first superblock is not mentioned: {first_only}"
        );
        flip_byte(&image, SECOND_SUPERBLOCK + at)?;
        expect_all_refuse(bench, &image, &[])?;
        std::fs::remove_file(image)?;
    }
    Ok(())
}

/// Damage at many places of an image with single metadata: the image is refused or read right, without a panic or a hang.
fn damaged_blocks(bench: &Bench) -> Result<()> {
    let pristine = small_image(bench, "pristine.img", &["-m", "single", "-d", "single"])?;
    let image = bench.scratch.file("damaged.img");
    let mut random = Random::new(77);
    for round in 0..40 {
        Run::new("cp").arg("--sparse=always").arg(&pristine).arg(&image).ok()?;
        let file = File::options().read(true).write(true).open(&image)?;
        let mut hits = 0;
        while hits < 20 {
            let at = random.below((256 << 20) / 4_096) * 4_096;
            let mut block = [0; 4_096];
            file.read_exact_at(&mut block, at)?;
            if block.iter().any(|byte| *byte != 0) && at != SUPERBLOCK && at != SECOND_SUPERBLOCK {
                file.write_all_at(&random.bytes(64), at + random.below(4_032))?;
            }
            hits += 1;
        }
        for args in [&["ls", "-lR"][..], &["cp", "-a"]] {
            let run = bench.creamery().run(args).arg(inside(&image, "/"));
            let out = bench.scratch.file(&format!("out-{round}"));
            let run = if args[0] == "cp" { run.arg(&out) } else { run };
            let finished = run.output()?;
            let bad =
                matches!(finished.code, None | Some(101)) || finished.stderr_text().contains("panicked");
            ensure!(!bad, "round {round}: {finished}");
            let _ = std::fs::remove_dir_all(out);
        }
    }
    Ok(())
}

fn ext4_image(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("ext4.img");
    sparse_file(&image, 64 << 20)?;
    Run::new("mkfs.ext4").arg("-q").arg(&image).ok()?;
    expect_all_refuse(bench, &image, &["ext4"])
}

fn unknown_incompat_bit(bench: &Bench) -> Result<()> {
    let image = small_image(bench, "future.img", &["--csum", "crc32c"])?;
    let file = File::options().read(true).write(true).open(&image)?;
    for at in [SUPERBLOCK, SECOND_SUPERBLOCK] {
        let mut bytes = vec![0; SUPERBLOCK_LEN];
        file.read_exact_at(&mut bytes, at)?;
        bytes[188 + 5] |= 1; // incompat_flags, a little-endian u64 at 188: bit 40.
        let checksum = crc32c(&bytes[32..]);
        bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        file.write_all_at(&bytes, at)?;
    }
    expect_all_refuse(bench, &image, &["incompat"])
}

fn device_too_small(bench: &Bench) -> Result<()> {
    let fresh = bench.scratch.file("fresh.img");
    expect_refusal(bench.creamery().run(["mkfs", "-b", "1M"]).arg(&fresh), &["fresh.img", "small"])?;
    ensure!(!fresh.exists(), "a refused mkfs left a file");
    let there = bench.scratch.file("there.img");
    sparse_file(&there, 4 << 20)?;
    expect_untouched(&there, || {
        expect_refusal(bench.creamery().run(["mkfs", "-f"]).arg(&there), &["there.img", "small"])
    })
}

fn tree_does_not_fit(bench: &Bench) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    std::fs::write(source.join("large"), Random::new(3).bytes(200 << 20))?;
    let fresh = bench.scratch.file("fresh.img");
    let mkfs = || bench.creamery().run(["mkfs", "-b", "128M", "--rootdir"]).arg(&source);
    expect_refusal(mkfs().arg(&fresh), &["fresh.img", "space"])?;
    ensure!(!fresh.exists(), "a failed build left an image");
    // A file that exists may have been written to, but must not look like a whole filesystem.
    let there = bench.scratch.file("there.img");
    sparse_file(&there, 128 << 20)?;
    expect_refusal(
        bench.creamery().run(["mkfs", "--rootdir"]).arg(&source).arg(&there),
        &["there.img", "space"],
    )?;
    let opened = bench.creamery().run(["ls"]).arg(inside(&there, "/")).output()?;
    ensure!(opened.code != Some(0), "a failed build left an image that opens: {opened}");
    Ok(())
}

fn target_mounted(bench: &Bench) -> Result<()> {
    let image = small_image(bench, "mounted.img", &[])?;
    let source = bench.scratch.file("small-source");
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let point = mount.dir().to_string_lossy().into_owned();
    let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some(&*point));
    let Some(device) = line.and_then(|line| line.split(' ').next()) else { bail!("no line for {point}") };
    let run = |args: &[&str]| bench.creamery().run(args);
    for target in [device.as_ref(), image.as_os_str()] {
        expect_refusal(run(&["mkfs", "-f", "--rootdir"]).arg(&source).arg(target), &["mkfs"])?;
        expect_refusal(run(&["mkdir"]).arg(inside(target.as_ref(), "/new")), &["use"])?;
    }
    expect_refusal(run(&["mkfs", "-f"]).arg(device), &["mounted"])?;
    std::fs::write(mount.dir().join("still-alive"), b"yes")?;
    mount.unmount()?;
    btrfs_check(&image)
}

fn target_holds_a_filesystem(bench: &Bench) -> Result<()> {
    let ext4 = bench.scratch.file("ext4.img");
    sparse_file(&ext4, 300 << 20)?;
    Run::new("mkfs.ext4").arg("-q").arg(&ext4).ok()?;
    let btrfs = small_image(bench, "btrfs.img", &[])?;
    for (image, kind) in [(&ext4, "ext4"), (&btrfs, "btrfs")] {
        let mkfs = |args: &[&str]| bench.creamery().run(["mkfs"]).args(args).arg(image);
        expect_untouched(image, || expect_refusal(mkfs(&[]), &[kind, "-f"]))?;
        mkfs(&["-f"]).ok()?;
        bench.creamery().run(["ls"]).arg(inside(image, "/")).ok()?;
    }
    Ok(())
}

fn image_mounted_by_us(bench: &Bench) -> Result<()> {
    let image = small_image(bench, "busy.img", &[])?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    let run = |args: &[&str]| bench.creamery().run(args);
    let second = bench.scratch.dir("second")?;
    expect_refusal(run(&["mount"]).arg(&image).arg(second), &["busy.img", "use"])?;
    expect_refusal(run(&["mkdir"]).arg(inside(&image, "/new")), &["busy.img", "use"])?;
    expect_refusal(run(&["mkfs", "-f"]).arg(&image), &["busy.img", "use"])?;
    std::fs::write(mount.dir().join("still-alive"), b"yes")?;
    mount.unmount()?;
    run(&["mkdir"]).arg(inside(&image, "/new")).ok().map(drop)
}

fn image_behind_a_loop_device(bench: &Bench) -> Result<()> {
    let image = small_image(bench, "looped.img", &[])?;
    let device = LoopDevice::attach(&image, false)?;
    let run = |args: &[&str]| bench.creamery().run(args);
    expect_refusal(run(&["mkdir"]).arg(inside(&image, "/new")), &["looped.img", &device.name()])?;
    expect_refusal(run(&["mkfs", "-f"]).arg(&image), &["looped.img", &device.name()])?;
    device.detach()?;
    run(&["mkdir"]).arg(inside(&image, "/new")).ok().map(drop)
}

/// Linux mounts a seed read-only, and so do we; a write gives the reason why not.
fn seed(bench: &Bench) -> Result<()> {
    let image = small_image(bench, "seed.img", &[])?;
    Run::new("btrfstune").args(["-f", "-S", "1"]).arg(&image).ok()?;
    let run = |args: &[&str]| bench.creamery().run(args);
    expect_untouched(&image, || {
        let dir = bench.scratch.dir("mounted")?;
        let mounted = run(&["mount"]).arg(&image).arg(&dir).ok()?;
        let said = mounted.stderr_text();
        let table = std::fs::read_to_string("/proc/self/mounts")?;
        let written = std::fs::write(dir.join("new"), b"x").map_err(|error| error.raw_os_error());
        let read = std::fs::read(dir.join("file"));
        run(&["umount"]).arg(&dir).ok()?;
        ensure!(said.contains("seed") && said.contains("read-only"), "{said}");
        let line = table.lines().find(|line| line.contains(dir.to_str().unwrap_or_default()));
        ensure!(line.is_some_and(|line| line.contains(" ro,")), "{line:?}");
        ensure!(written == Err(Some(30)) && read.is_ok(), "{written:?}, {read:?}");
        expect_refusal(run(&["mkdir"]).arg(inside(&image, "/new")), &["seed.img", "a seed"])?;
        expect_refusal(run(&["cp"]).arg("/etc/passwd").arg(inside(&image, "/new")), &["seed.img", "a seed"])?;
        expect_refusal(run(&["subvolume", "create"]).arg(inside(&image, "/new")), &["seed.img", "a seed"])
    })
}

/// One of the devices is mounted, by Linux or by us, and the other one cannot be used meanwhile.
fn two_loop_devices_of_an_image(bench: &Bench) -> Result<()> {
    let image = small_image(bench, "looped.img", &[])?;
    let (one, other) = (LoopDevice::attach(&image, false)?, LoopDevice::attach(&image, false)?);
    let (one_path, other_path) = (one.path().to_owned(), other.path().to_owned());
    let refused = || -> Result<()> {
        let run = |args: &[&str]| bench.creamery().run(args);
        let names = [other_path.to_str().unwrap_or_default(), "use"];
        expect_refusal(run(&["mount"]).arg(&other_path).arg(bench.scratch.dir("second")?), &names)?;
        expect_refusal(run(&["mkdir"]).arg(inside(&other_path, "/new")), &names)?;
        expect_refusal(run(&["mkfs", "-f"]).arg(&other_path), &names)?;
        expect_refusal(run(&["cp"]).arg("/etc/passwd").arg(inside(&other_path, "/new")), &names)
    };
    let mount = FuseMount::mount(bench.creamery(), &one_path, &bench.scratch.file("fuse"), "")?;
    refused()?;
    mount.unmount()?;
    let dir = bench.scratch.dir("kernel")?;
    Run::new("mount").args(["-t", "btrfs"]).arg(&one_path).arg(&dir).ok()?;
    let outcome = refused();
    Run::new("umount").arg(&dir).again_while_busy().ok()?;
    outcome?;
    bench.creamery().run(["mkdir"]).arg(inside(&other_path, "/new")).ok()?;
    one.detach()?;
    other.detach()?;
    btrfs_check(&image).map(drop)
}

/// Fills an image to the last byte; then deleting must work, and everything must be right.
fn full_image(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("full.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    let mut random = Random::new(21);
    let block = random.bytes(1 << 20);
    let refused = (0..1_000).find_map(|index| {
        let file = mount.dir().join(format!("file-{index}"));
        std::fs::write(file, &block).err().map(|error| (index, error))
    });
    let Some((count, error)) = refused else { bail!("1,000 MiB fit into 256 MiB") };
    ensure!(error.raw_os_error() == Some(28), "a full image gives {error}, want ENOSPC");
    ensure!(count > 100, "only {count} MiB of 256 fit");
    let small = (0..200_000).find_map(|index| {
        let file = mount.dir().join(format!("small-{index}"));
        std::fs::write(file, b"small").err()
    });
    ensure!(small.is_none_or(|error| error.raw_os_error() == Some(28)), "a full image gives another error");
    for index in 0..count / 2 {
        std::fs::remove_file(mount.dir().join(format!("file-{index}")))?;
    }
    File::open(mount.dir())?.sync_all()?;
    std::fs::write(mount.dir().join("again"), &block)?;
    for index in count / 2..count {
        ensure!(
            std::fs::read(mount.dir().join(format!("file-{index}")))? == block,
            "file-{index} is damaged"
        );
    }
    let ours = Walk::take(mount.dir())?;
    mount.unmount()?;
    judge(bench, &image, &ours, &Compare::default())
}

fn copy_into_a_full_image(bench: &Bench) -> Result<()> {
    let image = small_image(bench, "full.img", &[])?;
    let large = bench.scratch.file("large");
    std::fs::write(&large, Random::new(8).bytes(300 << 20))?;
    let run = bench.creamery().run(["cp"]).arg(&large).arg(inside(&image, "/large"));
    expect_refusal(run, &["large", "space"])?;
    btrfs_check(&image)?;
    bench.creamery().run(["cat"]).arg(inside(&image, "/file")).ok().map(drop)
}

fn long_name(bench: &Bench) -> Result<()> {
    let image = small_image(bench, "names.img", &[])?;
    let (longest, too_long) = ("n".repeat(255), "n".repeat(256));
    bench.creamery().run(["mkdir"]).arg(inside(&image, &format!("/{longest}"))).ok()?;
    expect_untouched(&image, || {
        let run = bench.creamery().run(["mkdir"]).arg(inside(&image, &format!("/{too_long}")));
        expect_refusal(run, &["name", "long"])
    })
}

fn unknown_option(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("fresh.img");
    let point = bench.scratch.dir("point")?;
    for (args, word) in [
        (&["mkfs", "--no-such-option"][..], "--no-such-option"),
        (&["mkfs", "-O", "no-such-feature"], "no-such-feature"),
        (&["mkfs", "--csum", "md5"], "md5"),
        (&["mkfs", "-n", "5000"], "5000"),
        (&["mkfs", "-n", "131072"], "131072"),
        (&["mkfs", "-s", "123"], "123"),
        (&["mkfs", "-b", "many"], "many"),
        (&["mkfs", "-d", "raid7"], "raid7"),
        (&["mkfs", "-m", "raid1"], "raid1"),
        (&["mkfs", "-U", "not-a-uuid"], "not-a-uuid"),
        (&["mkfs", "--mixed", "-n", "16384"], "mixed"),
        (&["mkfs", "--rootdir", "/etc", "--owner", "someone"], "someone"),
        (&["no-such-command"], "no-such-command"),
    ] {
        expect_refusal(bench.creamery().run(args).arg(&image), &[word])?;
        ensure!(!image.exists(), "{args:?} left a file");
    }
    let too_long = "l".repeat(256);
    expect_refusal(bench.creamery().run(["mkfs", "-b", "256M", "-L", &too_long]).arg(&image), &["label"])?;
    ensure!(!image.exists(), "a label that is too long left a file");
    let there = small_image(bench, "there.img", &[])?;
    let run = bench.creamery().run(["mount", "-o", "no-such-option"]).arg(&there).arg(&point);
    expect_refusal(run, &["no-such-option"])?;
    let run = bench.creamery().run(["mount", "-o", "subvol=/none"]).arg(&there).arg(&point);
    expect_refusal(run, &["none"])
}

fn missing_things(bench: &Bench) -> Result<()> {
    let (none, folder) = (bench.scratch.file("none.img"), bench.scratch.dir("folder")?);
    let run = |args: &[&str]| bench.creamery().run(args);
    expect_refusal(run(&["ls"]).arg(inside(&none, "/")), &["none.img", "no such file"])?;
    expect_refusal(run(&["mount"]).arg(&none).arg(&folder), &["none.img", "no such file"])?;
    expect_refusal(run(&["ls"]).arg(inside(&folder, "/")), &["folder", "directory"])?;
    expect_refusal(run(&["mkfs"]).arg(&folder), &["folder", "directory"])?;
    let absent = bench.scratch.file("absent");
    expect_refusal(run(&["mkfs", "--rootdir"]).arg(&absent).arg(&none), &["absent", "no such file"])?;
    ensure!(!none.exists(), "a refused mkfs left a file");
    let image = small_image(bench, "there.img", &[])?;
    expect_refusal(run(&["mount"]).arg(&image).arg(&absent), &["absent", "no such file"])?;
    expect_refusal(run(&["umount"]).arg(&folder), &["folder", "mount"])
}

/// A kernel that was cut off in the middle of an fsync leaves a log; we read past it with a message, and do not write.
fn log_to_replay(bench: &Bench) -> Result<()> {
    let image = small_image(bench, "log.img", &[])?;
    let cut = bench.scratch.file("cut.img");
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "commit=300")?;
    std::fs::write(mount.dir().join("synced"), b"synced")?;
    File::open(mount.dir().join("synced"))?.sync_all()?;
    Run::new("cp").arg("--sparse=always").arg(&image).arg(&cut).ok()?;
    mount.unmount()?;
    expect_untouched(&cut, || {
        let listed = bench.creamery().run(["ls"]).arg(inside(&cut, "/")).ok()?;
        ensure!(listed.stderr_text().contains("log"), "the ignored log is not mentioned: {listed}");
        let point = bench.scratch.dir("point")?;
        let mount = |options| bench.creamery().run(["mount", "-o", options]).args([&cut, &point]);
        expect_refusal(mount("ro"), &["cut.img", "log", "nologreplay"])?;
        expect_refusal(mount("nologreplay"), &["nologreplay", "ro"])?;
        for options in ["ro,nologreplay", "ro,rescue=nologreplay"] {
            let mount = FuseMount::mount(bench.creamery(), &cut, &point, options)?;
            ensure!(!mount.dir().join("synced").exists(), "it was replayed");
            mount.unmount()?;
        }
        Ok(())
    })?;
    bench.creamery().run(["mkdir"]).arg(inside(&cut, "/new")).ok()?;
    let synced = bench.creamery().run(["cat"]).arg(inside(&cut, "/synced")).ok()?;
    ensure!(synced.stdout_text() == "synced" && synced.stderr_text().is_empty(), "{synced}");
    btrfs_check(&cut)
}
