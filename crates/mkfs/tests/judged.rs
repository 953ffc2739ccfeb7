//! Empty filesystems of every kind before independent judges: `btrfs check`, mkfs.btrfs' own layout, and the kernel, which mounts them,
//! writes to them and is judged again.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use creamery_base::{FixedEnv, Timespec, Uuid};
use creamery_codec::ChecksumType;
use creamery_device::FileDevice;
use creamery_mkfs::{MkfsOptions, NoProgress, Profile, RootdirOptions, make_filesystem, make_image};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{Judge, LoopMount, Run, btrfs_check, harness, tree};

const JUDGES: [Judge; 4] = [Judge::Root, Judge::BtrfsProgs, Judge::KernelBtrfs, Judge::LoopDevices];
const MIB: u64 = 1 << 20;

/// One kind of filesystem.
#[derive(Clone, Copy)]
struct Make {
    size: u64,
    checksum: ChecksumType,
    node_size: u32,
    data: Profile,
    metadata: Profile,
    features: &'static str,
}

const PLAIN: Make = Make {
    size: 300 * MIB,
    checksum: ChecksumType::Crc32c,
    node_size: 16384,
    data: Profile::Single,
    metadata: Profile::Dup,
    features: "",
};

impl Make {
    fn name(&self) -> String {
        let Self { size, checksum, node_size, data, metadata, features } = self;
        format!("empty/{}MiB-{checksum}-{node_size}-{data}-{metadata}{features}", size / MIB)
    }

    fn options(&self) -> MkfsOptions {
        let mut options = MkfsOptions {
            label: b"judged".to_vec(),
            uuid: Some(Uuid::from_u128(0x1111_1111_2222_4333_8444_5555_5555_5555)),
            data: Some(self.data),
            metadata: Some(self.metadata),
            node_size: Some(self.node_size),
            checksum: self.checksum,
            ..MkfsOptions::default()
        };
        options.features.change(self.features).expect("the features are known");
        options
    }

    /// The options of mkfs.btrfs for the same kind.
    fn words(&self) -> Vec<String> {
        let checksum = match self.checksum {
            ChecksumType::Xxhash64 => "xxhash".to_owned(),
            ChecksumType::Blake2b => "blake2".to_owned(),
            other => other.to_string(),
        };
        let mut words: Vec<String> =
            ["-q", "-f", "-L", "judged", "-U", "11111111-2222-4333-8444-555555555555"]
                .map(str::to_owned)
                .into();
        let features = if self.features.is_empty() { "block-group-tree" } else { self.features };
        let features = match features.strip_prefix("mixed-bg,") {
            // `-O mixed-bg` changes little more than the flag; `-M` makes mixed groups.
            Some(others) => {
                words.push("-M".to_owned());
                others
            }
            None => features,
        };
        for (option, value) in [
            ("--csum", checksum),
            ("-n", self.node_size.to_string()),
            ("-d", self.data.to_string()),
            ("-m", self.metadata.to_string()),
            ("-O", features.to_owned()),
        ] {
            words.extend([option.to_owned(), value]);
        }
        words
    }
}

fn makes() -> Vec<Make> {
    let mut makes = vec![PLAIN];
    for checksum in [ChecksumType::Xxhash64, ChecksumType::Sha256, ChecksumType::Blake2b] {
        makes.push(Make { checksum, ..PLAIN });
    }
    for node_size in [4096, 8192, 32768, 65536] {
        makes.push(Make { node_size, ..PLAIN });
    }
    for (data, metadata) in
        [(Profile::Single, Profile::Single), (Profile::Dup, Profile::Dup), (Profile::Dup, Profile::Single)]
    {
        for features in ["", "^block-group-tree", "^no-holes,^block-group-tree"] {
            makes.push(Make { data, metadata, features, ..PLAIN });
        }
    }
    for node_size in [4096, 65536] {
        makes.push(Make {
            node_size,
            features: "^block-group-tree",
            checksum: ChecksumType::Sha256,
            ..PLAIN
        });
    }
    for (profile, size) in [(Profile::Single, 16), (Profile::Single, 300), (Profile::Dup, 200)] {
        for features in ["mixed-bg,block-group-tree", "mixed-bg,^block-group-tree"] {
            let (size, node_size) = (size * MIB, 4096);
            makes.push(Make { size, node_size, data: profile, metadata: profile, features, ..PLAIN });
        }
    }
    for features in ["quota,block-group-tree", "squota,block-group-tree", "quota,squota,^block-group-tree"] {
        makes.push(Make { features, ..PLAIN });
    }
    // The minimum sizes, and one with the third superblock copy and chunks of 1 GiB.
    for (size, data, metadata) in [
        (45, Profile::Single, Profile::Single),
        (109, Profile::Single, Profile::Dup),
        (229, Profile::Dup, Profile::Dup),
        (300 << 10, Profile::Dup, Profile::Dup),
    ] {
        makes.push(Make { size: size * MIB, data, metadata, ..PLAIN });
    }
    makes
}

fn main() -> ExitCode {
    let mut cases: Vec<Case> = makes()
        .into_iter()
        .map(|make| Case::new(make.name(), &JUDGES, move |bench| judged(bench, &make)))
        .collect();
    cases.push(Case::new("sector-size", &[Judge::BtrfsProgs], sector_sizes));
    for make in [
        PLAIN,
        Make { node_size: 4096, features: "^no-holes", ..PLAIN },
        Make { features: "quota", ..PLAIN },
        Make { features: "squota", ..PLAIN },
    ] {
        let name = make.name().replace("empty/", "rootdir/");
        cases.push(Case::new(name, &JUDGES, move |bench| rootdir(bench, &make)));
    }
    harness::main(cases)
}

fn env() -> FixedEnv {
    FixedEnv::new(Timespec { sec: 1_700_000_000, nsec: 0 }, 7)
}

fn make(image: &Path, size: u64, options: &MkfsOptions) -> Result<()> {
    let device = FileDevice::create(image, size)?;
    make_filesystem(&device, options, &env())?;
    Ok(())
}

fn judged(bench: &Bench, make_of: &Make) -> Result<()> {
    let (image, again) = (bench.scratch.file("ours.img"), bench.scratch.file("again.img"));
    make(&image, make_of.size, &make_of.options())?;
    btrfs_check(&image)?;
    make(&again, make_of.size, &make_of.options())?;
    if make_of.size <= 300 * MIB {
        let same = Run::new("cmp").arg(&image).arg(&again).output()?;
        ensure!(same.code == Some(0), "the same options gave other bytes: {same}");
    }
    like_mkfs_btrfs(bench, &image, make_of).context("compared with mkfs.btrfs")?;

    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "")?;
    for index in 0..200 {
        std::fs::write(mount.dir().join(format!("file-{index}")), vec![7; index * 50])?;
    }
    std::fs::create_dir(mount.dir().join("folder"))?;
    mount.unmount()?;
    btrfs_check(&image)?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    ensure!(std::fs::read(mount.dir().join("file-199"))? == vec![7; 199 * 50], "file-199 has other bytes");
    mount.unmount()
}

/// Checks that chunks, device extents, block groups and superblock equal those of mkfs.btrfs, except for generations, addresses of tree
/// blocks, and values that follow from these.
fn like_mkfs_btrfs(bench: &Bench, ours: &Path, make_of: &Make) -> Result<()> {
    let theirs = bench.scratch.file("theirs.img");
    std::fs::File::create_new(&theirs)?.set_len(make_of.size)?;
    Run::new("mkfs.btrfs").args(make_of.words()).arg(&theirs).ok()?;
    let tiny_mixed = make_of.size < 20 * MIB; // mkfs.btrfs itself needed a second chunk there
    for tree in ["chunk", "device"] {
        let dump = |image: &Path| -> Result<Vec<String>> {
            let run = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", tree]).arg(image);
            Ok(run.ok()?.stdout_text().lines().filter_map(stable).collect())
        };
        ensure!(
            tiny_mixed || dump(ours)? == dump(&theirs)?,
            "{tree}: {:#?}\n{:#?}",
            dump(ours)?,
            dump(&theirs)?
        );
    }
    ensure!(quotas(ours)? == quotas(&theirs)?, "{:#?}\n{:#?}", quotas(ours)?, quotas(&theirs)?);
    let (ours, theirs) = (fields(ours)?, fields(&theirs)?);
    for (name, value) in &theirs {
        let own = ours.get(name).with_context(|| format!("no {name} in the superblock"))?;
        ensure!(tiny_mixed || own == value, "superblock: {name} is {own}, mkfs.btrfs has {value}");
    }
    Ok(())
}

/// The content of the quota tree, except for generations and limits, which mkfs.btrfs 6.14 leaves uninitialised.
fn quotas(image: &Path) -> Result<Vec<String>> {
    let run = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "quota"]).arg(image);
    let said = run.ok()?.stdout_text();
    let told = ["item ", "version ", "referenced ", "exclusive "];
    let lines = said.lines().map(str::trim).filter(|line| told.iter().any(|word| line.starts_with(word)));
    let without = |line: &str| {
        let mut words: Vec<_> = line.split_whitespace().collect();
        for at in (1..words.len())
            .filter(|&at| words[at - 1].ends_with("generation") || words[at - 1] == "enable_gen")
            .collect::<Vec<_>>()
        {
            words[at] = "N";
        }
        words.join(" ")
    };
    Ok(lines.map(without).collect())
}

/// A line of dump-tree without the values that differ between any two filesystems.
fn stable(line: &str) -> Option<String> {
    // The first SYSTEM chunk of mkfs.btrfs has odd values here that no other chunk has, and that no reader uses.
    let line = line.trim().replace("io_align 4096 io_width 4096", "io_align 65536 io_width 65536");
    let line = line.replace("sub_stripes 0", "sub_stripes 1");
    let varies =
        ["leaf ", "node ", "chunk uuid", "btrfs-progs", "uuid ", "dev_uuid", "chunk_tree_uuid", "bytes used"];
    if varies.iter().any(|word| line.starts_with(word)) { None } else { Some(line) }
}

fn fields(image: &Path) -> Result<BTreeMap<String, String>> {
    const VARIES: [&str; 12] = [
        "csum",
        "generation",
        "root",
        "chunk_root",
        "chunk_root_generation",
        "bytes_used",
        "dev_item.uuid",
        "superblock:",
        "cache_generation",
        "uuid_tree_generation",
        "log_root_transid",
        "(",
    ];
    let said = Run::new("btrfs").args(["inspect-internal", "dump-super"]).arg(image).ok()?.stdout_text();
    let fields = said.lines().filter_map(|line| {
        let (name, value) = line.trim().split_once(char::is_whitespace)?;
        (!VARIES.contains(&name)).then(|| (name.to_owned(), value.trim().to_owned()))
    });
    Ok(fields.collect())
}

/// The torture tree, as the kernel sees it.
fn rootdir(bench: &Bench, make: &Make) -> Result<()> {
    let source = bench.scratch.dir("source")?;
    tree::torture(&source, true)?;
    if make.node_size == 4096 {
        // A symlink's target is kept inline, and a leaf of 4 KiB cannot hold one of 4,095 bytes.
        std::fs::remove_file(source.join("symlinks/long-4095"))?;
    }
    let want = Walk::take(&source)?;
    let images = [bench.scratch.file("one.img"), bench.scratch.file("two.img")];
    for image in &images {
        let rootdir = RootdirOptions { shrink: make.node_size == 4096, ..RootdirOptions::new(&source) };
        make_image(image, &make.options(), Some(&rootdir), Arc::new(env()), &NoProgress)?;
        btrfs_check(image)?;
    }
    let same = Run::new("cmp").args(&images).output()?;
    ensure!(same.code == Some(0), "two builds of one tree differ: {same}");
    let mount = LoopMount::mount(&images[0], &bench.scratch.file("kernel"), "ro,noatime")?;
    let exact = Compare { atime: true, ..Compare::default() };
    expect_same("the kernel's view", &want, &Walk::take(mount.dir())?, &exact)?;
    mount.unmount()
}

/// The kernel mounts only some filesystems with sectors above its page size; btrfs-progs judges them all.
fn sector_sizes(bench: &Bench) -> Result<()> {
    for (sector_size, node_size) in [(8192, 16384), (16384, 16384), (65536, 65536)] {
        let image = bench.scratch.file(&format!("{sector_size}.img"));
        let options = MkfsOptions {
            sector_size: Some(sector_size),
            node_size: Some(node_size),
            ..MkfsOptions::default()
        };
        make(&image, 300 * MIB, &options)?;
        let said = Run::new("btrfs").args(["check"]).arg(&image).output()?;
        ensure!(said.code == Some(0), "sector size {sector_size}: {said}");
    }
    Ok(())
}
