//! A full filesystem: a failed change has no effect that the mount does not show.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Judge, LoopMount, Random, Run, btrfs_check, until};
use rustix::fs::{FallocateFlags, copy_file_range, fallocate};

use crate::mappings;
use crate::support::MOUNTED;

const FILES: u64 = 4;
const SIZE_MAX: u64 = 2 << 20;
const ROUNDS: u64 = 16;
const CHANGES: u64 = 60;

pub(crate) fn cases() -> Vec<Case> {
    let with_cc = [&MOUNTED[..], &[Judge::Tool("cc")]].concat();
    vec![
        Case::new("full/what-fails-is-shown-as-it-is", &MOUNTED, what_fails),
        Case::new("full/what-a-mapping-lost-is-shown-no-more", &with_cc, lost_by_a_mapping),
    ]
}

/// Files are changed at random, mostly without success for lack of space, and read all the time, so that their pages are cached: at the end
/// their content is that found by the kernel.
fn what_fails(bench: &Bench) -> Result<()> {
    let mut failed = 0;
    for seed in 0..ROUNDS {
        let image = bench.scratch.file(&format!("{seed}.img"));
        File::create_new(&image)?.set_len(16 << 20)?;
        Run::new("mkfs.btrfs").args(["-q", "-M"]).arg(&image).ok()?;
        let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("ours"), "")?;
        failed += change(mount.dir(), &mut Random::new(seed))?;
        let shown = contents(mount.dir())?;
        mount.unmount()?;
        let linux = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
        let found = contents(linux.dir())?;
        linux.unmount()?;
        for (number, (shown, found)) in shown.iter().zip(&found).enumerate() {
            let sizes = (shown.len(), found.len());
            ensure!(sizes.0 == sizes.1, "seed {seed}, file {number}: {sizes:?} bytes are shown and found");
            let place = shown.iter().zip(found).position(|(shown, found)| shown != found);
            ensure!(place.is_none(), "seed {seed}, file {number} is another at {place:?}");
        }
        btrfs_check(&image)?;
        std::fs::remove_file(image)?;
    }
    ensure!(failed > ROUNDS * CHANGES / 6, "only {failed} changes failed");
    Ok(())
}

/// The changes of a mapping find no space at writeback: a reader of the file sees the old content.
fn lost_by_a_mapping(bench: &Bench) -> Result<()> {
    static OLD: [u8; 1 << 16] = [b'A'; 1 << 16];
    let image = bench.scratch.file("disk.img");
    File::create_new(&image)?.set_len(16 << 20)?;
    Run::new("mkfs.btrfs").args(["-q", "-M"]).arg(&image).ok()?;
    let program = mappings::program(bench)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("ours"), "")?;
    let path = mount.dir().join("file");
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    file.write_all_at(&OLD, 0)?;
    file.sync_all()?;
    fill(mount.dir())?;
    let places = (0..OLD.len()).step_by(4096).map(|at| at.to_string());
    // It ends at once: its input is empty.
    Run::new(program.join("dirty")).arg(&path).args(places).input("").ok()?;
    ensure!(file.sync_all().is_err(), "there was room");
    until("what was lost to be shown no more", || Ok(std::fs::read(&path)? == OLD))?;
    drop(file);
    let said = bench.creamery().run(["umount"]).arg(mount.dir()).output()?;
    ensure!(said.code != Some(0), "nobody says that something was lost");
    btrfs_check(&image)
}

/// Leaves no space for data.
fn fill(dir: &Path) -> Result<()> {
    let rest = File::create_new(dir.join("rest"))?;
    let mut end = 0;
    for piece in [1 << 20, 1 << 16, 1 << 12] {
        while fallocate(&rest, FallocateFlags::empty(), end, piece).is_ok() {
            end += piece;
        }
    }
    Ok(())
}

fn contents(dir: &Path) -> Result<Vec<Vec<u8>>> {
    (0..FILES).map(|number| Ok(std::fs::read(dir.join(number.to_string()))?)).collect()
}

/// Fills the filesystem and changes its files. Returns the number of failed changes.
fn change(dir: &Path, random: &mut Random) -> Result<u64> {
    let mut files = Vec::new();
    for number in 0..FILES {
        let path = dir.join(number.to_string());
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        for _ in 0..4 {
            let len = [100, 5000, 60_000, 300_000][random.below(4) as usize];
            file.write_all_at(&random.bytes(len), random.below(SIZE_MAX / 2))?;
        }
        file.sync_all()?;
        files.push(file);
    }
    fill(dir)?;
    let mut failed = 0;
    for round in 0..CHANGES {
        contents(dir)?;
        let [one, other] = [(); 2].map(|()| &files[random.below(FILES) as usize]);
        match change_one(one, other, random) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::StorageFull => failed += 1,
            // The file is copied to itself, and the ranges overlap.
            Err(error) if error.kind() == ErrorKind::InvalidInput => {}
            Err(error) => return Err(error).with_context(|| format!("change {round}")),
        }
    }
    // Data in the page cache that finds no space causes an error here.
    for file in &files {
        let _ = file.sync_all();
    }
    Ok(failed)
}

fn change_one(one: &File, other: &File, random: &mut Random) -> std::io::Result<()> {
    let at = random.below(SIZE_MAX);
    let at = if random.below(3) == 0 { at - at % 4096 } else { at };
    let len = [1, 500, 4096, 10_000, 100_000, 400_000][random.below(6) as usize];
    let flags = match random.below(8) {
        0 | 1 => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        2 => FallocateFlags::ZERO_RANGE,
        3 => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        4 => FallocateFlags::empty(),
        5 => FallocateFlags::KEEP_SIZE,
        6 => {
            let (mut from, mut to) = (random.below(SIZE_MAX / 2) / 4096 * 4096, at / 4096 * 4096);
            copy_file_range(one, Some(&mut from), other, Some(&mut to), len as usize)?;
            return Ok(());
        }
        _ => return one.set_len(at),
    };
    Ok(fallocate(one, flags, at, len)?)
}
