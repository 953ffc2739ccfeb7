//! What Linux made and btrfs check accepts is clean.

use std::collections::HashSet;

use anyhow::{Result, ensure};
use creamery_testkit::harness::Case;
use creamery_testkit::{LoopMount, Run, btrfs_check};

use crate::image::Image;
use crate::shapes;

const SHAPES: &[(&str, &[&str], &str)] = &[
    ("default", &[], ""),
    ("xxhash-4k", &["--csum", "xxhash", "-n", "4096"], ""),
    ("sha256-32k-single", &["--csum", "sha256", "-n", "32768", "-m", "single"], ""),
    ("blake2-64k", &["--csum", "blake2", "-n", "65536"], ""),
    ("mixed", &["--mixed", "-n", "4096"], ""),
    ("dup-data", &["-d", "dup", "-m", "dup"], ""),
    ("holes-described", &["-O", "^no-holes"], ""),
    ("fat-metadata-items", &["-O", "^skinny-metadata"], ""),
    ("old-free-space-cache", &["-R", "^free-space-tree"], ""),
    ("block-group-tree", &["-O", "block-group-tree"], ""),
    ("compressed", &[], "compress-force=zstd"),
    ("without-checksums", &[], "nodatasum"),
    ("quota", &["-O", "quota"], ""),
];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = SHAPES
        .iter()
        .map(|(name, mkfs, mount)| {
            Case::new(format!("clean/{name}"), &shapes::NEEDS, move |bench| {
                let path = shapes::make(&bench.scratch, mkfs, mount)?;
                btrfs_check(&path)?;
                nothing_found(&Image::open(&path)?)
            })
        })
        .collect();
    cases.push(Case::new("clean/bitmaps", &shapes::NEEDS, |bench| {
        let path = shapes::make(&bench.scratch, &["-n", "4096"], "")?;
        let mounted = LoopMount::mount(&path, &bench.scratch.file("again"), "")?;
        // Every other sector of a stretch is freed, which the kernel lists as a bitmap.
        let script =
            "for i in $(seq 1 1500); do head -c 4096 /dev/urandom > x$i; done; sync; rm x*[13579]; sync";
        Run::new("bash").args(["-c", script]).within(mounted.dir()).ok()?;
        mounted.unmount()?;
        btrfs_check(&path)?;
        let image = Image::open(&path)?;
        let kinds: HashSet<u8> = image
            .items(creamery_base::TreeId::FREE_SPACE)?
            .into_iter()
            .map(|item| item.key.kind.get())
            .collect();
        ensure!(kinds.contains(&200), "the kernel made no bitmap: {kinds:?}");
        nothing_found(&image)
    }));
    cases
}

fn nothing_found(image: &Image) -> Result<()> {
    let report = image.check()?;
    ensure!(report.findings.is_empty(), "findings on a clean image: {:#?}", report.findings);
    ensure!(report.counts.inodes > 1000 && report.counts.tree_blocks > 20, "{:?}", report.counts);
    Ok(())
}
