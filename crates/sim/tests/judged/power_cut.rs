//! A sample of the states that power cuts leave, and the outcome of random work, before judges that are not ours.

use anyhow::{Result, ensure};
use creamery_format::CompatRo;
use creamery_sim::{
    Image, MadeBy, Taste, check_image, check_survivor, crash, fresh_image, kernel_image, kernel_run,
    mount_survivor, random_run, record, stored_seeds,
};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, LoopMount, Run, seed_of};

/// States that are tried, and how many of them are judged: one in so many.
const STATES: usize = 200;
const ONE_IN: usize = 12;

fn sampled(bench: &Bench, made_by: &MadeBy, seed: u64, mounted: bool) -> Result<()> {
    let history = record(&fresh_image(made_by)?, seed, None)?;
    let mut number = 0;
    crash(&history, seed, STATES, &mut |survivor| {
        number += 1;
        if number % ONE_IN != 0 {
            return Ok(());
        }
        if !mounted {
            return check_survivor(survivor, &bench.scratch);
        }
        mount_survivor(survivor, &bench.scratch)
    })?;
    ensure!(number == STATES, "{number} states");
    Ok(())
}

fn shared_blocks(bench: &Bench) -> Result<()> {
    let image = kernel_image(&bench.scratch)?;
    let history = record(&image, 31, None)?;
    ensure!(history.features.snapshots >= 2, "{:?}", history.features);
    let mut number = 0;
    crash(&history, 31, STATES, &mut |survivor| {
        number += 1;
        if number % ONE_IN != 0 {
            return Ok(());
        }
        check_survivor(survivor, &bench.scratch)
    })?;
    Ok(())
}

/// A filesystem of before both trees, which gets them while it is worked with.
fn conversions_survive_every_power_cut(bench: &Bench) -> Result<()> {
    let path = bench.scratch.file("old.img");
    std::fs::File::create(&path)?.set_len(192 << 20)?;
    let old = ["-q", "-n", "4096", "-O", "^free-space-tree,^block-group-tree"];
    Run::new("mkfs.btrfs").args(old).arg(&path).ok()?;
    let history = record(&Image::load(&path)?, 41, None)?;
    let (free_space, both) =
        (CompatRo::FREE_SPACE_TREE | CompatRo::FREE_SPACE_TREE_VALID, history.features.converted);
    ensure!(both == free_space | CompatRo::BLOCK_GROUP_TREE, "{:?}", history.features);
    let mut number = 0;
    crash(&history, 41, STATES, &mut |survivor| {
        number += 1;
        if number % ONE_IN == 0 { check_survivor(survivor, &bench.scratch) } else { Ok(()) }
    })?;
    Ok(())
}

fn random_work(bench: &Bench) -> Result<()> {
    for seed in 100..106 {
        let node_size = if seed % 2 == 0 { 4096 } else { 16384 };
        let image = random_run(seed, 3000, &MadeBy { node_size, ..MadeBy::default() }, Taste::default())?;
        check_image(&image, &bench.scratch)?;
    }
    Ok(())
}

fn against_the_kernel(bench: &Bench, seed: u64, count: u64) -> Result<()> {
    let path = bench.scratch.file("kernel.img");
    std::fs::File::create(&path)?.set_len(1 << 30)?;
    Run::new("mkfs.btrfs").arg("-q").arg(&path).ok()?;
    let mount = LoopMount::mount(&path, &bench.scratch.dir("kernel")?, "")?;
    kernel_run(seed, count, mount.dir())?;
    mount.unmount()
}

/// Operations of a sequence that the kernel is asked for, too.
const OPERATIONS: u64 = 3000;

pub(crate) fn cases() -> Vec<Case> {
    let progs = [Judge::BtrfsProgs];
    let kernel = [Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    let deep = MadeBy { node_size: 4096, ..MadeBy::default() };
    vec![
        Case::new("power_cut/btrfs_check", &progs, |bench| sampled(bench, &MadeBy::default(), 11, false))
            .long(),
        Case::new("power_cut/btrfs_check_deep", &progs, move |bench| sampled(bench, &deep, 12, false)).long(),
        Case::new("power_cut/kernel", &kernel, |bench| sampled(bench, &MadeBy::default(), 13, true)).long(),
        Case::new("power_cut/kernel_deep", &kernel, move |bench| sampled(bench, &deep, 14, true)).long(),
        Case::new("power_cut/conversions", &progs, conversions_survive_every_power_cut).long(),
        Case::new("power_cut/shared_blocks", &kernel, shared_blocks).long(),
        Case::new("random_work/btrfs_check", &progs, random_work),
        Case::new("random_work/kernel", &kernel, |bench| {
            let mut seeds = (201..203).chain(stored_seeds("kernel"));
            seeds.try_for_each(|seed| against_the_kernel(bench, seed, OPERATIONS))
        })
        .long(),
        Case::new("random_work/kernel_asked_seed", &kernel, |bench| {
            against_the_kernel(bench, seed_of("kernel"), OPERATIONS)
        }),
    ]
}
