//! References to one extent with one hash: each has an item, and their keys follow each other from the hash on.

use std::fs::File;

use anyhow::{Context, Result, ensure};
use creamery_base::TreeId;
use creamery_check::Problem;
use creamery_format::{BlockMut, KeyType};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::tree::colliding_offsets;
use creamery_testkit::{LoopMount, Run, btrfs_check, clone_range, sync_filesystem};

use crate::image::{Image, Item};
use crate::shapes::NEEDS;

const EXTENT: u64 = 12 << 10;
/// More references than fit into an extent item.
const FILLERS: u64 = 20;
const COLLIDING: usize = 40;
/// Offset of the count in a reference's item.
const COUNT: usize = 24;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("damage/references-of-one-hash", &NEEDS, references)]
}

fn make(bench: &Bench) -> Result<Image> {
    let path = bench.scratch.file("made.img");
    File::create(&path)?.set_len(300 << 20)?;
    Run::new("mkfs.btrfs").args(["-q", "-n", "4096"]).arg(&path).ok()?;
    let mounted = LoopMount::mount(&path, &bench.scratch.file("mounted"), "")?;
    let (base, clones) = (mounted.dir().join("base"), mounted.dir().join("clones"));
    std::fs::write(&base, vec![b'x'; usize::try_from(EXTENT)?])?;
    File::create(&clones)?;
    sync_filesystem(mounted.dir())?;
    let fillers = (1..=FILLERS).map(|at| at << 16).collect();
    for offsets in [fillers, colliding_offsets(COLLIDING)] {
        for at in offsets {
            clone_range(&base, EXTENT, &clones, at)?;
        }
        sync_filesystem(mounted.dir())?;
    }
    mounted.unmount()?;
    btrfs_check(&path)?;
    Image::open(&path)
}

/// The longest row of references whose keys follow each other.
fn row(image: &Image) -> Result<Vec<Item>> {
    let (mut longest, mut row) = (Vec::new(), Vec::<Item>::new());
    for item in image.items(TreeId::EXTENT)? {
        let kind = item.key.kind;
        if row.last().is_none_or(|last| last.key.next() != Some(item.key)) {
            row.clear();
        }
        if kind == KeyType::EXTENT_DATA_REF {
            row.push(item);
        }
        if row.len() > longest.len() {
            longest.clone_from(&row);
        }
    }
    Ok(longest)
}

fn references(bench: &Bench) -> Result<()> {
    let image = make(bench)?;
    let row = row(&image)?;
    ensure!(row.len() == COLLIDING, "{} references follow each other", row.len());
    let report = image.check()?;
    ensure!(report.findings.is_empty(), "{:#?}", report.findings);
    for number in [0, 15, 16, 17, COLLIDING - 1] {
        let item = &row[number];
        let whole = image.block(item.block)?;
        let count = |bytes: &mut [u8]| BlockMut::new(bytes).data_mut(item.slot)[COUNT] += 1;
        image.change(item.block, count)?;
        expect(&image, Problem::ReferenceCount)
            .with_context(|| format!("the count of reference {number}"))?;
        image.write(item.block, &whole)?;
        image.change(item.block, |bytes| BlockMut::new(bytes).remove_items(item.slot, 1))?;
        expect(&image, Problem::ReferenceMissing).with_context(|| format!("without reference {number}"))?;
        image.write(item.block, &whole)?;
    }
    let report = image.check()?;
    ensure!(report.findings.is_empty(), "{:#?}", report.findings);
    Ok(())
}

fn expect(image: &Image, problem: Problem) -> Result<()> {
    let report = image.check()?;
    ensure!(report.findings.iter().any(|found| found.number == problem.number()), "{:#?}", report.findings);
    ensure!(btrfs_check(image.path()).is_err(), "btrfs check is content");
    Ok(())
}
