//! `bench fsync` and `bench nocow-fsync`: making a little durable again and again, through the library and through the mount, beside
//! the kernel's Btrfs on a loop device, all on one tmpfs, in turn, medians; each with its mechanism on and off.
//!
//! Back of the envelope: an fsync of 4 KiB writes the data, two log blocks of 16 KiB and a superblock, 40 KiB in three requests with two
//! flushes. In a tmpfs that is 20 us of copying and checksums, and the rest is waking each other. The kernel hands its data, its
//! checksums and the loop device's requests to other threads: four switches, of 10 to 20 us each, which the library does not have.
//! The mount adds the two round trips of write(2) and fsync(2), 30 us each, which a server that does no work shows.

mod dbench;
mod rounds;
mod stage;
mod table;

use anyhow::{Context, Result};
use creamery_testkit::Judge;

pub(crate) use dbench::dbench;

use super::options::{BesideOptions, options};
use super::report::publish;
use rounds::{needs, rounds};
use stage::{DurableScene, DurableStage, DurableWork, SideOptions, Who};
use table::DurableRow;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

const LOGS: [SideOptions; 7] = [
    SideOptions::new("library", Who::Library),
    SideOptions::new("library, no logs", Who::Library).words(&[("--tree-log", "off")]),
    SideOptions::new("kernel", Who::Kernel),
    SideOptions::new("kernel, no logs", Who::Kernel).mount("notreelog"),
    SideOptions::new("mount", Who::Mount),
    SideOptions::new("mount, no logs", Who::Mount).mount("notreelog"),
    SideOptions::new("null server", Who::Null),
];

const IN_PLACE: [SideOptions; 6] = [
    SideOptions::new("library", Who::Library).words(&[("--nodatacow", "on")]),
    SideOptions::new("library, leaf kept", Who::Library)
        .words(&[("--nodatacow", "on"), ("--nocow-keeps-leaf", "on")]),
    SideOptions::new("library, no logs", Who::Library).words(&[("--nodatacow", "on"), ("--tree-log", "off")]),
    SideOptions::new("kernel", Who::Kernel).mount("nodatacow"),
    SideOptions::new("mount", Who::Mount).mount("nodatacow"),
    SideOptions::new("null server", Who::Null),
];

const BY_FIO: [SideOptions; 4] = [
    SideOptions::new("kernel", Who::Kernel).mount("nodatacow"),
    SideOptions::new("mount", Who::Mount).mount("nodatacow"),
    SideOptions::new("mount, no logs", Who::Mount).mount("nodatacow,notreelog"),
    SideOptions::new("null server", Who::Null),
];

/// Each thread appends to a file of its own.
const fn appends(name: &'static str, threads: u64, pieces: u64) -> DurableScene {
    let files = DurableWork::files("write", threads, pieces * 4 * KIB);
    let work = files.piece(4 * KIB).sync_every(1);
    DurableScene { name, before: None, work, after: Some(files.workload("verify")), ways: &LOGS }
}

const FSYNC: [DurableScene; 3] =
    [appends("1 thread", 1, 4096), appends("8 threads", 8, 1024), appends("64 threads", 64, 256)];

const JOBS: u64 = 16;
const PREWRITTEN: DurableWork = DurableWork::files("write", JOBS, 64 * MIB).piece(MIB);

const NOCOW_FSYNC: [DurableScene; 2] = [
    DurableScene {
        name: "the same program on all",
        before: Some(PREWRITTEN),
        work: PREWRITTEN.workload("overwrite").piece(4 * KIB).random().pieces(2_000).sync_every(2),
        after: None,
        ways: &IN_PLACE,
    },
    DurableScene {
        name: "fio",
        before: Some(PREWRITTEN),
        work: DurableWork::Fio,
        after: None,
        ways: &BY_FIO,
    },
];

/// `cargo xtask bench fsync`.
pub(crate) fn fsync(words: &[&str]) -> Result<()> {
    const SAYS: &str = "each thread appends 4 KiB to a file of its own, with an fsync behind each: 4,096 times by one thread, 1,024 times by each of 8, 256 times by each of 64. A time is from before the write to behind the fsync";
    compare("fsync", &FSYNC, SAYS, words)
}

/// `cargo xtask bench nocow-fsync`.
pub(crate) fn nocow_fsync(words: &[&str]) -> Result<()> {
    const SAYS: &str = "16 files of 64 MiB that exist and are written in place (`nodatacow`), overwritten by 16 threads or jobs in pieces of 4 KiB at random, with an fsync behind every second one: 2,000 pieces each, and fio (`rw=randwrite bs=4k fsync=2 ioengine=sync numjobs=16`) for 8 s. A time is that of two writes with their fsync; fio's is that of the fsync alone";
    compare("nocow-fsync", &NOCOW_FSYNC, SAYS, words)
}

fn compare(name: &str, scenes: &'static [DurableScene], says: &str, words: &[&str]) -> Result<()> {
    let mut words = words.to_vec();
    let mut only = "";
    if let Some(at) = words.iter().position(|word| *word == "--only") {
        only = words.get(at + 1).context("--only needs a word")?;
        words.drain(at..at + 2);
    }
    let mut options = options(BesideOptions { files: 0, bytes: 0, runs: 3, dry: false }, &words)?;
    options.dry |= !only.is_empty();
    needs(name, Judge::Tool("fio"))?;
    let stage = DurableStage::new(name)?;
    let mut rows = Vec::new();
    for scene in scenes.iter().filter(|scene| scene.name.contains(only)) {
        let played = rounds(scene.ways, options.runs, scene.name, |way| stage.play(way, scene))?;
        rows.extend(scene.ways.iter().zip(played).map(|(way, taken)| DurableRow {
            scene: scene.name,
            way,
            taken,
        }));
    }
    let text = format!(
        "{}\n`cargo xtask bench {name} --runs {}`: {says}. `-m single`, the kernel's with `-o ssd` on a loop device, all on one tmpfs, ways in turn, medians of {}; `btrfs check` accepted each image of ours.",
        table::table(&rows),
        options.runs,
        options.runs
    );
    publish(&format!("bench {name}"), &text, options.dry)
}
