//! `cargo xtask fsx [--operations N]`: random reads, writes, mappings and truncations of one file, three seeds.

use std::path::Path;

use anyhow::{Context, Result, bail};
use creamery_testkit::{FuseMount, Program, Run, btrfs_check};

use super::{OPTIONS, Stage, install, stage};

const SUITE: (&str, &str) = ("fsx", "0.3.2");
/// Operations of all seeds together.
const OPERATIONS: u64 = 100_000;
/// Between two rounds the filesystem is unmounted, checked and mounted again.
const OPERATIONS_OF_A_ROUND: u64 = 20_000;
const SEEDS: u64 = 3;

/// All operations that exist.
const SETTINGS: &str = "
flen = 262144
[opsize]
min = 0
max = 65536
align = 1
[weights]
close_open = 1.0
invalidate = 1.0
mapread = 10.0
mapwrite = 10.0
read = 10.0
write = 10.0
truncate = 10.0
fsync = 0.5
fdatasync = 0.5
posix_fallocate = 3.0
punch_hole = 3.0
sendfile = 1.0
posix_fadvise = 1.0
copy_file_range = 3.0
";

/// Runs each seed in rounds, each on a fresh mount of the same image.
pub(crate) fn fsx(words: &[&str]) -> Result<()> {
    let operations = match words {
        [] => OPERATIONS,
        ["--operations", number] => number.parse().with_context(|| format!("--operations {number}"))?,
        _ => bail!("usage: cargo xtask fsx [--operations N]"),
    };
    let program = install(SUITE)?;
    let Stage { scratch, image, mount } = stage("fsx")?;
    let dir = mount.dir().to_owned();
    mount.unmount()?;
    let settings = scratch.file("fsx.toml");
    std::fs::write(&settings, SETTINGS)?;
    for seed in 1..=SEEDS {
        let share = operations.div_ceil(SEEDS);
        let mut left = share;
        let mut round = 0;
        while left > 0 {
            let count = left.min(OPERATIONS_OF_A_ROUND);
            let mount = FuseMount::mount(&Program::find()?, &image, &dir, OPTIONS)?;
            // Each round has its own random numbers, made from the seed's.
            run(&program, &settings, seed + SEEDS * round, count, &mount.dir().join("file"))?;
            mount.unmount()?;
            btrfs_check(&image)?;
            left -= count;
            round += 1;
        }
        println!("fsx {}: seed {seed}, {share} operations in {round} rounds agree", SUITE.1);
    }
    Ok(())
}

fn run(program: &Path, settings: &Path, seed: u64, count: u64, file: &Path) -> Result<()> {
    let args = ["-S".to_owned(), seed.to_string(), "-N".to_owned(), count.to_string(), "-f".to_owned()];
    let ran = Run::new(program).args(args).arg(settings).arg(file).output()?;
    if ran.code != Some(0) {
        bail!("fsx with seed {seed}: {ran}");
    }
    Ok(())
}
