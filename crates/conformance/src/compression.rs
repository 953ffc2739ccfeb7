//! Data that is compressed as it is written, judged by Linux, which reads it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::Compare;
use creamery_testkit::{FuseMount, Judge, LoopMount, Random, Run};
use serde_json::Value;

use crate::support::{
    MOUNTED, expect_refusal, inside, judge, judge_mount, mkfs_empty, mkfs_from, torture_source,
};

const SECTOR: usize = 4096;
const CHUNK: usize = 128 << 10;

pub(crate) fn cases() -> Vec<Case> {
    let with_chattr = [&MOUNTED[..], &[Judge::Tool("chattr"), Judge::Tool("setfattr")]].concat();
    vec![
        Case::new("compression/mount-options", &MOUNTED, mount_options),
        Case::new("compression/options-that-are-refused", &MOUNTED, refused),
        Case::new("compression/remounted", &MOUNTED, remounted),
        Case::new("compression/flags-and-properties", &with_chattr, flags_and_properties),
        Case::new("compression/one-word-after-the-other", &with_chattr, words),
        Case::new("compression/in-turn-with-linux", &MOUNTED, in_turn),
        Case::new("compression/when-all-is-full", &MOUNTED, when_full).long(),
        Case::new("compression/mkfs", &MOUNTED, mkfs),
    ]
}

/// Lengths around a sector, the longest inline file, and a chunk.
const LENGTHS: [usize; 14] = [
    1,
    100,
    2047,
    2048,
    2049,
    SECTOR - 1,
    SECTOR,
    SECTOR + 1,
    3 * SECTOR,
    CHUNK - 1,
    CHUNK,
    CHUNK + 1,
    300_000,
    3_000_001,
];

fn text(len: usize, salt: u64) -> Vec<u8> {
    let lines =
        (0_u64..).flat_map(|number| format!("{salt} line {number} of what gets shorter\n").into_bytes());
    lines.take(len).collect()
}

/// Files of all lengths that get shorter, and that do not, and one with holes between.
fn fill(dir: &Path, salt: u64) -> Result<()> {
    let mut random = Random::new(salt);
    for len in LENGTHS {
        fs::write(dir.join(format!("text {len}")), text(len, salt))?;
        fs::write(dir.join(format!("noise {len}")), random.bytes(len))?;
    }
    let sparse = File::create(dir.join("sparse"))?;
    sparse.set_len(10 << 20)?;
    for piece in 0..20 {
        sparse.write_all_at(&text(40_000, piece), piece * 500_000 + piece)?;
    }
    Ok(())
}

/// Bytes of a file that lie in extents that are encoded, as Linux' word for compressed is, and in others.
fn extents(bench: &Bench, image: &Path, path: &str) -> Result<(u64, u64)> {
    let run = bench.creamery().run(["filesystem", "fiemap", "--json"]).arg(inside(image, path));
    let said: Value = serde_json::from_str(&run.ok()?.stdout_text())?;
    let said = said["extents"].as_array().or(said.as_array()).context("a list of extents")?.clone();
    let mut found = (0, 0);
    for extent in said {
        let len = extent["length"].as_u64().context("a length")?;
        if extent["flags"].to_string().contains("encoded") {
            found.0 += len;
        } else {
            found.1 += len;
        }
    }
    Ok(found)
}

fn mount_options(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    for (option, packs_text, packs_noise) in [
        ("compress", true, false),
        ("compress=zstd", true, false),
        ("compress=zstd:-5", true, false),
        ("compress=zlib:9", true, false),
        ("compress=lzo", true, false),
        ("compress-force=zstd:15", true, false),
        ("compress-force=lzo,nodelalloc", true, false),
        ("compress=zstd,compress=no", false, false),
        ("compress=zstd,nodatacow", false, false),
        ("nodatacow,compress=zstd", true, false),
    ] {
        let _ = fs::remove_file(&image);
        mkfs_empty(bench.creamery(), &[], "512M", &image)?;
        let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), option)?;
        fill(mount.dir(), 7)?;
        // Over what is there, and behind it.
        let file = File::options().write(true).open(mount.dir().join("text 300000"))?;
        file.write_all_at(&text(50_000, 8), 100_001)?;
        file.write_all_at(&text(200_000, 9), 300_000)?;
        file.sync_all()?;
        drop(file);
        judge_mount(bench, &image, mount).with_context(|| option.to_owned())?;
        for (path, packs) in
            [("/text 3000001", packs_text), ("/noise 3000001", packs_noise), ("/sparse", packs_text)]
        {
            let (encoded, plain) = extents(bench, &image, path)?;
            let is_so = if packs { encoded > 0 && plain <= CHUNK as u64 } else { encoded == 0 && plain > 0 };
            ensure!(is_so, "{option}: of {path} {encoded} bytes are compressed, {plain} are not");
        }
    }
    Ok(())
}

fn refused(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let dir = bench.scratch.dir("fuse")?;
    for option in [
        "compress=gzip",
        "compress=",
        "compress=zstd:x",
        "compress=ZLIB",
        "compress-force=zlib:",
        "compress=none:1",
    ] {
        let run = bench.creamery().run(["mount", "-o", option]).arg(&image).arg(&dir);
        expect_refusal(run, &[option, "zstd"])?;
    }
    let run = bench.creamery().run(["mkfs", "-f", "--compress", "zip", "--rootdir"]).arg(&dir).arg(&image);
    expect_refusal(run, &["zip", "zstd"])?;
    Ok(())
}

/// Files that are written after each remount.
fn remounted(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    let remount = |option: &str| {
        bench.creamery().run(["mount", "-o", &format!("remount,{option}")]).arg(&image).arg(mount.dir())
    };
    let steps = [
        ("compress=zstd:3", true),
        ("noatime", true),
        ("compress=none", false),
        ("compress-force=lzo", true),
    ];
    for (at, (option, _)) in steps.into_iter().enumerate() {
        remount(option).ok()?;
        fs::write(mount.dir().join(at.to_string()), text(CHUNK, 1))?;
        bench.creamery().run(["sync"]).arg(mount.dir()).ok()?;
    }
    expect_refusal(remount("compress=gzip"), &["gzip", "zstd"])?;
    let open = fs::File::create_new(mount.dir().join("open"))?;
    expect_refusal(remount("ro,compress=zstd"), &["in use"])?;
    drop(open);
    let said = bench.creamery().run(["stats", "--json"]).arg(mount.dir()).ok()?.stdout_text();
    let said: Value = serde_json::from_str(&said)?;
    let writing = (&said["writing"]["compress"], &said["writing"]["compress_force"]);
    ensure!(writing == (&"lzo".into(), &true.into()), "{writing:?}");
    judge_mount(bench, &image, mount)?;
    for (at, (option, is_packed)) in steps.into_iter().enumerate() {
        let (packed, _) = extents(bench, &image, &format!("/{at}"))?;
        ensure!((packed > 0) == is_packed, "after {option}: {packed} extents are compressed");
    }
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "nodatacow")?;
    let run = bench.creamery().run(["mount", "-o", "remount,compress"]).arg(&image).arg(mount.dir());
    expect_refusal(run, &["compress", "unmount it"])?;
    mount.unmount()
}

/// What is said of files and directories, by Linux' programs on our mount, means what it means on Linux' own.
fn flags_and_properties(bench: &Bench) -> Result<()> {
    let images = ["linux.img", "disk.img"].map(|name| bench.scratch.file(name));
    for image in &images {
        mkfs_empty(bench.creamery(), &[], "512M", image)?;
    }
    let linux = LoopMount::mount(&images[0], &bench.scratch.file("linux"), "compress=lzo")?;
    let ours = FuseMount::mount(bench.creamery(), &images[1], &bench.scratch.file("fuse"), "compress=lzo")?;
    let property = |at: &Path, value: &str| {
        Run::new("setfattr").args(["-n", "btrfs.compression", "-v", value]).arg(at).output()
    };
    for top in [linux.dir(), ours.dir()] {
        for (name, value) in [("zstd", "zstd"), ("zlib", "zlib:9"), ("none", "none")] {
            fs::create_dir(top.join(name))?;
            ensure!(
                property(&top.join(name), value)?.code == Some(0),
                "{value} is refused in {}",
                top.display()
            );
        }
        fs::create_dir(top.join("plain"))?;
        for dir in ["zstd", "zlib", "none", "plain"] {
            fs::create_dir(top.join(dir).join("below"))?;
            fs::write(top.join(dir).join("below/text"), text(CHUNK, 1))?;
        }
        for (name, flag) in [("c", "+c"), ("m", "+m")] {
            fs::write(top.join(name), "")?;
            Run::new("chattr").arg(flag).arg(top.join(name)).ok()?;
            fs::write(top.join(name), text(CHUNK, 1))?;
        }
        ensure!(property(&top.join("plain"), "gzip")?.code != Some(0), "an algorithm that nobody has");
    }
    let told = |top: &Path| -> Result<String> {
        let mut told = String::new();
        for name in ["zstd", "zlib", "none", "plain"] {
            for below in ["", "/below", "/below/text"] {
                let path = top.join(format!("{name}{below}"));
                let run = Run::new("getfattr").args(["--only-values", "-n", "btrfs.compression"]).arg(&path);
                told += &format!("{name}{below}: {}\n", run.output()?.stdout_text());
            }
        }
        for name in ["c", "m"] {
            let said = Run::new("lsattr").arg(top.join(name)).ok()?.stdout_text();
            told += &format!("{name}: {}\n", said.split(' ').next().unwrap_or_default());
        }
        Ok(told)
    };
    let (wanted, found) = (told(linux.dir())?, told(ours.dir())?);
    ensure!(wanted == found, "Linux says\n{wanted}and we\n{found}");
    let paths = ["/zstd/below/text", "/zlib/below/text", "/none/below/text", "/plain/below/text", "/c", "/m"];
    linux.unmount()?;
    judge_mount(bench, &images[1], ours)?;
    for path in paths {
        let [linux, ours] = [&images[0], &images[1]].map(|image| extents(bench, image, path));
        let (linux, ours) = (linux?, ours?);
        ensure!(linux == ours, "{path}: Linux has (compressed, not) {linux:?}, we have {ours:?}");
    }
    Ok(())
}

/// Flags and the property are changed one after the other: after each step they are what they are on Linux.
fn words(bench: &Bench) -> Result<()> {
    const STEPS: [&str; 18] = [
        "+c", "=zstd", "+A", "-A", "-c", "=lzo", "+m", "-m", "=none", "+A", "-A", "+c", "-c", "=lzo", "-c",
        "+m", "-m", "=zlib",
    ];
    for (round, options) in ["", "compress=zstd:5", "compress-force=lzo"].into_iter().enumerate() {
        let images = ["linux", "ours"].map(|name| bench.scratch.file(&format!("{name}-{round}.img")));
        for image in &images {
            mkfs_empty(bench.creamery(), &[], "128M", image)?;
        }
        let linux = LoopMount::mount(&images[0], &bench.scratch.file("linux"), options)?;
        let ours = FuseMount::mount(bench.creamery(), &images[1], &bench.scratch.file("fuse"), options)?;
        for kind in ["file", "dir"] {
            let steps = |top: &Path| -> Result<String> {
                let at = top.join(kind);
                if kind == "dir" {
                    fs::create_dir(&at)?
                } else {
                    fs::write(&at, "text")?
                }
                let mut told = String::new();
                for step in STEPS {
                    let run = match step.strip_prefix('=') {
                        Some(value) => {
                            Run::new("setfattr").args(["-n", "btrfs.compression", "-v", value]).arg(&at)
                        }
                        None => Run::new("chattr").arg(step).arg(&at),
                    };
                    let is_done = run.output()?.code == Some(0);
                    let flags = Run::new("lsattr").arg("-d").arg(&at).ok()?.stdout_text();
                    let property = Run::new("getfattr").args(["--only-values", "-n", "btrfs.compression"]);
                    let property = property.arg(&at).output()?.stdout_text();
                    let flags = flags.split(' ').next().unwrap_or_default();
                    told += &format!("{step} {is_done} {flags} {property}\n");
                }
                Ok(told)
            };
            let (wanted, found) = (steps(linux.dir())?, steps(ours.dir())?);
            ensure!(wanted == found, "{options:?}, {kind}: Linux says\n{wanted}and we\n{found}");
        }
        linux.unmount()?;
        judge_mount(bench, &images[1], ours)?;
    }
    Ok(())
}

/// One writes over what the other one has compressed, again and again, each with another algorithm.
fn in_turn(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["-m", "single"], "512M", &image)?;
    let mut random = Random::new(11);
    let mut model = text(1_000_000, 0);
    for round in 0..9_u64 {
        let method = ["zstd", "lzo", "zlib"][usize::try_from(round % 3)?];
        let option = format!("compress{}={method}", if round % 2 == 0 { "" } else { "-force" });
        let mut change = |dir: &Path| -> Result<()> {
            let path = dir.join("file");
            if round == 0 {
                fs::write(&path, &model)?;
            }
            ensure!(fs::read(&path)? == model, "round {round}: what is read before is something else");
            let file = File::options().write(true).open(&path)?;
            for _ in 0..30 {
                let (at, len) = (random.below(model.len() as u64), random.below(200_000) + 1);
                let at = usize::try_from(at)?;
                let len = usize::try_from(len)?.min(model.len() - at);
                let bytes = if random.below(3) == 0 { random.bytes(len) } else { text(len, round) };
                file.write_all_at(&bytes, at as u64)?;
                model[at..at + len].copy_from_slice(&bytes);
            }
            if round % 4 == 3 {
                let len = random.below(model.len() as u64);
                file.set_len(len)?;
                file.set_len(1_000_000)?;
                model[usize::try_from(len)?..].fill(0);
            }
            file.sync_all()?;
            ensure!(fs::read(&path)? == model, "round {round}: what is read after is something else");
            Ok(())
        };
        if round % 2 == 0 {
            let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), &option)?;
            change(mount.dir())?;
            judge_mount(bench, &image, mount)?;
        } else {
            let mount = LoopMount::mount(&image, &bench.scratch.file("linux"), &option)?;
            change(mount.dir())?;
            mount.unmount()?;
        }
    }
    Ok(())
}

/// More text goes into a small filesystem than it has room for bytes, and what was written with success before it is full is there.
fn when_full(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    mkfs_empty(bench.creamery(), &["--mixed"], "32M", &image)?;
    let mount =
        FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "compress-force=zstd")?;
    let mut written = 0;
    for number in 0..2000_u64 {
        let path = mount.dir().join(format!("file {number}"));
        let bytes = text(1 << 20, number);
        let done = fs::write(&path, &bytes).and_then(|()| File::open(&path)?.sync_all());
        if done.is_err() {
            let _ = fs::remove_file(&path);
            break;
        }
        written += 1;
    }
    ensure!(written > 50, "{written} MiB of text fit into 32 MiB");
    for number in 0..written {
        let found = fs::read(mount.dir().join(format!("file {number}")))?;
        ensure!(found == text(1 << 20, number), "file {number} has something else");
    }
    judge_mount(bench, &image, mount)
}

fn mkfs(bench: &Bench) -> Result<()> {
    let (source, walk) = torture_source(bench)?;
    let compare = Compare { ctime: false, btime: false, ..Compare::default() };
    for method in ["no", "zlib:1", "lzo", "zstd", "zstd:-3"] {
        let image = bench.scratch.file(&format!("{}.img", method.replace(':', "")));
        mkfs_from(bench.creamery(), &["--compress", method, "--shrink"], &source, &image)?;
        judge(bench, &image, &walk, &compare)?;
    }
    let source = bench.scratch.dir("text")?;
    fill(&source, 3)?;
    let [plain, packed] = ["no", "zstd"].map(|method| -> Result<u64> {
        let image = bench.scratch.file(&format!("text {method}.img"));
        mkfs_from(bench.creamery(), &["--compress", method, "--shrink"], &source, &image)?;
        let mount = LoopMount::mount(&image, &bench.scratch.file("linux"), "ro")?;
        for len in LENGTHS {
            let name = format!("text {len}");
            ensure!(fs::read(mount.dir().join(&name))? == text(len, 3), "{name} has something else");
        }
        mount.unmount()?;
        Ok(extents(bench, &image, "/text 3000001")?.0)
    });
    let (plain, packed) = (plain?, packed?);
    ensure!(plain == 0 && packed >= 3_000_000, "{plain} bytes are compressed without, {packed} with");
    Ok(())
}
