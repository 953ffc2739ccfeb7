//! `bench direct`: a fio job of Btrfs' developers, direct reads and writes of all sizes at random over one file that is overwritten in
//! place, 256 in flight. Real fio with io_uring works on the kernel's mount and on ours; the same requests by a generator of ours go
//! through the library, through the kernel's mount, and to the bare file or device. All sides have the same backing, one after
//! the other, each round on a fresh filesystem, medians. The same with checksums on; and how many requests begin that must not wait.
//!
//! Back of the envelope: a request has 111 KiB on average. In memory its bytes move in 15 us, and a crc32c of them takes 5. What a
//! filesystem adds - the range, the item, the right to write in place - is 3 us through the library. The kernel's loop device adds a
//! wake-up of a worker, 10 us, and the mount one through `/dev/fuse`. So on memory the kernel is behind by its loop device, on a
//! disk all that counts is that enough requests are there at once.

mod backing;
mod fio;
mod nowait;
mod stage;
mod table;
mod taken;

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::{Judge, Judges};

use super::options::{Options, options};
use super::report::publish;
use backing::{Backing, KINDS};
use stage::{Data, SIDES, Stage};
use table::Row;
use taken::Scale;

/// `cargo xtask bench direct`. `--seconds` says how long each run takes; with `--only WORD`, backings whose name contains the word, and
/// nothing is published. With `--quick` everything is done once with so little that it takes seconds, and nothing is published.
pub(crate) fn direct(words: &[&str]) -> Result<()> {
    let mut words = words.to_vec();
    let quick = words.iter().position(|word| *word == "--quick").map(|at| words.remove(at)).is_some();
    let only = value_of(&mut words, "--only")?.unwrap_or("");
    let seconds = value_of(&mut words, "--seconds")?.map(str::parse).transpose()?;
    let seconds = seconds.unwrap_or(if quick { 1 } else { 15 });
    let (bytes, runs) = if quick { (64 << 20, 1) } else { (1 << 30, 3) };
    let mut options = options(Options { files: 0, bytes, runs, dry: false }, &words)?;
    options.dry |= quick || !only.is_empty();
    let scale = Scale { bytes: options.bytes.next_multiple_of(1 << 20), seconds };
    let needed = [Judge::Root, Judge::Fuse, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    for judge in needed.into_iter().chain([Judge::Tool("fio")]) {
        if Judges::here().missing(judge).is_some() {
            bail!("bench direct stands beside the kernel: {judge} is missing");
        }
    }
    let stage = Stage::new(scale, quick)?;
    let load_before = load();
    let (mut rows, mut nowait) = (Vec::new(), nowait::Table::default());
    for kind in KINDS.into_iter().filter(|kind| kind.name().contains(only)) {
        let backing = Backing::new(kind, scale.bytes)?;
        for data in [Data::InPlace, Data::Summed] {
            rows.push(row(&stage, &backing, data, options.runs)?);
        }
        for row in nowait::ROWS {
            nowait.add(kind.name(), row, &stage.nowait(&backing, row)?)?;
        }
    }
    ensure!(!rows.is_empty(), "there is no backing with {only} in its name");
    let text = format!(
        "{}\nOf the requests that must not wait (`File::try_submit`), those that began, and the others by reason, in percent:\n\n{}\n`cargo xtask bench direct --bytes {} --seconds {} --runs {}`: one file of {} bytes, its space set aside before, in 4 threads or jobs with 64 requests each; reads and writes of 4 KiB to 1 MiB as fio's `rw=randrw bssplit=4k/20:8k/20:16k/20:32k/10:64k/10:128k/5:256k/5:512k/5:1m/5 ioengine=io_uring iodepth=64 numjobs=4 direct=1` draws them; a fresh filesystem for each run of {} s, on one backing that was written before, sides alternating, medians of {}. `btrfs check` accepted each image of ours. The load of this machine, work of others included, was {load_before} before and {} at the end, in the minute before that.",
        table::tables(&rows, &kernel()),
        nowait.text(),
        scale.bytes,
        scale.seconds,
        options.runs,
        scale.bytes,
        scale.seconds,
        options.runs,
        load(),
    );
    publish("bench direct", &text, options.dry)
}

/// Takes an option with a value out of the words.
fn value_of<'w>(words: &mut Vec<&'w str>, name: &str) -> Result<Option<&'w str>> {
    let Some(at) = words.iter().position(|word| *word == name) else { return Ok(None) };
    let value = *words.get(at + 1).with_context(|| format!("{name} needs a value"))?;
    words.drain(at..at + 2);
    Ok(Some(value))
}

/// All sides in turn, as often as there are runs.
fn row(stage: &Stage, backing: &Backing, data: Data, runs: usize) -> Result<Row> {
    let mut row = Row::new(backing.kind(), data);
    for round in 1..=runs {
        let mut sides: Vec<_> = SIDES.into_iter().enumerate().filter(|(_, side)| side.plays(data)).collect();
        // Who comes later finds what the one before left: each comes first in its turn.
        let count = sides.len();
        sides.rotate_left(round % count);
        for (index, side) in sides {
            let taken = stage.play(backing, side, data)?;
            println!("  run {round}: {}, {}: {}: {taken}", backing.kind().name(), data.name(), side.name());
            row.taken[index].push(taken);
        }
    }
    Ok(row)
}

/// The kernel, with its version.
fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}", release.trim())
}

/// How many threads wanted a processor in the last minute, on average.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}
