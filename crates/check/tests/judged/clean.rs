//! Filesystems that Linux made and btrfs check accepts are clean.

use std::collections::HashSet;

use anyhow::{Result, ensure};
use creamery_check::Report;
use creamery_testkit::harness::Case;
use creamery_testkit::{LoopMount, Run, btrfs_check};

use crate::image::{Image, checked_all};
use crate::shapes::{self, Shape};

const SHAPES: &[(&str, Shape)] = &[
    ("default", Shape::new(&[], "")),
    ("xxhash-4k", Shape::new(&["--csum", "xxhash", "-n", "4096"], "")),
    ("sha256-32k-single", Shape::new(&["--csum", "sha256", "-n", "32768", "-m", "single"], "")),
    ("blake2-64k", Shape::new(&["--csum", "blake2", "-n", "65536"], "")),
    ("mixed", Shape::new(&["--mixed", "-n", "4096"], "")),
    ("dup-data", Shape::new(&["-d", "dup", "-m", "dup"], "")),
    ("dup-data-single-metadata", Shape::new(&["-d", "dup", "-m", "single"], "")),
    ("holes-described", Shape::new(&["-O", "^no-holes"], "")),
    ("fat-metadata-items", Shape::new(&["-O", "^skinny-metadata"], "")),
    ("no-free-space", Shape::new(&["-R", "^free-space-tree"], "nospace_cache")),
    ("old-free-space-cache", Shape::old_cache()),
    ("block-group-tree", Shape::new(&["-O", "block-group-tree"], "")),
    ("compressed", Shape::new(&[], "compress-force=zstd")),
    ("without-checksums", Shape::new(&[], "nodatasum")),
    ("balanced", Shape::balanced()),
    ("default-subvolume", Shape::default_subvolume()),
    ("quota", Shape::quotas(&["-O", "quota"])),
    ("quota-4k", Shape::quotas(&["-O", "quota", "-n", "4096"])),
    ("simple-quota", Shape::quotas(&["-O", "squota"])),
];

/// Profiles, and the number of devices.
const PROFILES: &[(&str, usize)] =
    &[("raid0", 2), ("raid1", 3), ("raid10", 4), ("raid1c3", 3), ("raid1c4", 4)];

pub(crate) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = SHAPES
        .iter()
        .map(|(name, shape)| {
            Case::new(format!("clean/{name}"), &shapes::NEEDS, move |bench| {
                let path = shapes::make(&bench.scratch, shape)?;
                btrfs_check(&path)?;
                nothing_found(&Image::open(&path)?)
            })
        })
        .collect();
    cases.extend(PROFILES.iter().map(|(profile, count)| {
        Case::new(format!("clean/devices-{profile}"), &shapes::NEEDS, move |bench| {
            let paths = shapes::make_on_devices(&bench.scratch, profile, *count)?;
            clean(&checked_all(&paths, true)?)
        })
    }));
    cases.push(Case::new("clean/bitmaps", &shapes::NEEDS, |bench| {
        let path = shapes::make(&bench.scratch, &Shape::new(&["-n", "4096"], ""))?;
        let mounted = LoopMount::mount(&path, &bench.scratch.file("again"), "")?;
        // Every other sector of a stretch is freed, which the kernel lists as a bitmap.
        let script =
            "for i in $(seq 1 1500); do head -c 4096 /dev/urandom > x$i; done; sync -f .; rm x*[13579]; sync -f .";
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
    clean(&image.check()?)
}

fn clean(report: &Report) -> Result<()> {
    ensure!(report.findings.is_empty(), "findings on a clean image: {:#?}", report.findings);
    ensure!(report.counts.inodes > 1000 && report.counts.tree_blocks > 20, "{:?}", report.counts);
    Ok(())
}
