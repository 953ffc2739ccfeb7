//! Random damage with good checksums: `check` ends soon, without a panic, and the image stays unchanged. Damage that we do not notice,
//! btrfs check must not notice either.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use creamery_base::TreeId;
use creamery_check::{CheckOptions, NoProgress, check};
use creamery_device::{Access, FileDevice, Hook, Hooked, Request};
use creamery_edges::edge_values;
use creamery_testkit::harness::Case;
use creamery_testkit::{HANG, Random, btrfs_check, ends_within};
use creamery_volume::{Mode, Volume};

use crate::image::Image;
use crate::shapes::{self, Shape};

const ROUNDS: u64 = 80;
/// Maximum reads of the device by one check, many times those for the undamaged image.
const READS_MAX: u64 = 100_000;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("mutation/resealed-blocks", &shapes::NEEDS, |bench| {
        let base = shapes::make(&bench.scratch, &Shape::new(&["-n", "4096"], ""))?;
        let damaged = bench.scratch.file("damaged.img");
        let trees = [1, 2, 3, 4, 5, 7, 9, 10, 256].map(TreeId::new);
        let seed = 20_260_801;
        let mut random = Random::new(seed);
        let image = Image::open(&base)?;
        let mut noticed = 0;
        for round in 0..ROUNDS {
            shapes::copy(&base, &damaged)?;
            let target = Image::open(&damaged)?;
            for _ in 0..=random.below(4) {
                let tree = trees[random.below(trees.len() as u64) as usize];
                let blocks = image.blocks(tree)?;
                let block = blocks[random.below(blocks.len() as u64) as usize];
                let mut bytes = image.block(block)?;
                for _ in 0..=random.below(6) {
                    mutate(&mut random, &mut bytes);
                }
                creamery_format::seal(&mut bytes, image.volume.checksum_type());
                target.write(block, &bytes)?;
            }
            drop(target);
            let before = std::fs::metadata(&damaged)?.modified()?;
            let (found, reads) = look(&damaged)?;
            ensure!(reads < READS_MAX, "round {round} of seed {seed} took {reads} reads");
            noticed += u64::from(found);
            if !found && let Err(complaint) = btrfs_check(&damaged) {
                ensure!(false, "round {round} of seed {seed}: only btrfs check complains: {complaint:#}");
            }
            ensure!(std::fs::metadata(&damaged)?.modified()? == before, "round {round} wrote");
        }
        ensure!(noticed > ROUNDS * 3 / 4, "only {noticed} of {ROUNDS} mutations were noticed");
        Ok(())
    })]
}

/// Counts the requests to a device.
#[derive(Default)]
struct Asked(AtomicU64);

impl Hook for Asked {
    fn before(&self, _: &Request) -> creamery_base::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Whether the check reports an error, and the number of reads; an image that cannot be opened counts as an error. A hang is an error of
/// the test.
fn look(path: &std::path::Path) -> Result<(bool, u64)> {
    let device = Arc::new(Hooked::new(Arc::new(FileDevice::open(path, Access::ReadOnly)?), Asked::default()));
    let asked = Arc::clone(&device);
    let work = move || {
        let Ok(volume) = Volume::open(vec![device], Mode::ReadOnly) else { return true };
        let options = CheckOptions { check_data_csum: true, threads: 2, ..CheckOptions::default() };
        check(&volume, &options, &NoProgress).map_or(true, |report| !report.is_clean())
    };
    let found = ends_within(HANG, work).context("it hangs")?.map_err(|_| anyhow!("it panics"))?;
    Ok((found, asked.0.load(Ordering::Relaxed)))
}

/// Numbers that are likely to reach a limit, at likely places; some at the limit of a field.
fn mutate(random: &mut Random, bytes: &mut [u8]) {
    let head = 101 + random.below(40) as usize * 25;
    let at = match random.below(3) {
        0 => (head + random.below(25) as usize).min(bytes.len() - 8),
        1 => 48 + random.below(53) as usize,
        _ => random.below(bytes.len() as u64 - 8) as usize,
    };
    match random.below(6) {
        5 => {
            let width = 1 << random.below(4);
            let now = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
            let edges: Vec<u64> = edge_values(width, now).collect();
            let value = edges[random.below(edges.len() as u64) as usize].to_le_bytes();
            bytes[at..at + width].copy_from_slice(&value[..width]);
        }
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at..at + 8].fill(0xff),
        2 => bytes[at..at + 8].fill(0),
        3 => bytes[at] = random.below(256) as u8,
        _ => {
            let from = random.below(bytes.len() as u64 - 8) as usize;
            bytes.copy_within(from..from + 8, at);
        }
    }
}
