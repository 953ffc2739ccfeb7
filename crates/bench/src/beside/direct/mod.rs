//! `bench direct`: a fio job of Btrfs' developers, direct reads and writes of all sizes at random over one file that is overwritten in
//! place, 256 in flight. Real fio with io_uring works on the kernel's mount and on ours; a generator of ours sends the same requests
//! through the library, through the kernel's mount, and to the bare file or device. All sides use one backing, one after the other, each
//! round on a fresh filesystem; figures are medians. Further rows have checksums on, and count the requests that begin without waiting.
//!
//! Back of the envelope: a request has 111 KiB on average. In memory its bytes move in 15 us, and their crc32c takes 5. A filesystem adds
//! the range, the item and the permission to write in place: 3 us through the library. The kernel's loop device adds a wake-up of a worker,
//! 10 us, and the mount adds one through `/dev/fuse`. So on memory the kernel is behind because of its loop device; on a disk only the
//! number of requests in flight counts.

mod backing;
mod fio;
mod nowait;
mod stage;
mod table;
mod taken;

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::{Judge, Judges};

use super::options::{BesideOptions, options};
use super::report::publish;
use backing::{Backing, KINDS};
use stage::{DataKind, DirectStage, SIDES};
use table::DirectRow;
use taken::DirectScale;

/// `cargo xtask bench direct`. `--seconds` is the time of each run; with `--only WORD`, only backings whose name contains the word run, and
/// nothing is published. With `--quick` everything runs once at a size that takes seconds, and nothing is published.
pub(crate) fn direct(words: &[&str]) -> Result<()> {
    let mut words = words.to_vec();
    let quick = words.iter().position(|word| *word == "--quick").map(|at| words.remove(at)).is_some();
    let only = value_of(&mut words, "--only")?.unwrap_or("");
    let seconds = value_of(&mut words, "--seconds")?.map(str::parse).transpose()?;
    let seconds = seconds.unwrap_or(if quick { 1 } else { 15 });
    let (bytes, runs) = if quick { (64 << 20, 1) } else { (1 << 30, 3) };
    let mut options = options(BesideOptions { files: 0, bytes, runs, dry: false }, &words)?;
    options.dry |= quick || !only.is_empty();
    let scale = DirectScale { bytes: options.bytes.next_multiple_of(1 << 20), seconds };
    let needed = [Judge::Root, Judge::Fuse, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    for judge in needed.into_iter().chain([Judge::Tool("fio")]) {
        if Judges::here().missing(judge).is_some() {
            bail!("bench direct stands beside the kernel: {judge} is missing");
        }
    }
    let stage = DirectStage::new(scale, quick)?;
    let load_before = load();
    let (mut rows, mut nowait) = (Vec::new(), nowait::Table::default());
    for kind in KINDS.into_iter().filter(|kind| kind.name().contains(only)) {
        let backing = Backing::new(kind, scale.bytes)?;
        for data in [DataKind::InPlace, DataKind::Summed] {
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

/// Removes an option and its value from the words.
fn value_of<'w>(words: &mut Vec<&'w str>, name: &str) -> Result<Option<&'w str>> {
    let Some(at) = words.iter().position(|word| *word == name) else { return Ok(None) };
    let value = *words.get(at + 1).with_context(|| format!("{name} needs a value"))?;
    words.drain(at..at + 2);
    Ok(Some(value))
}

/// Runs all sides in turn, `runs` times.
fn row(stage: &DirectStage, backing: &Backing, data: DataKind, runs: usize) -> Result<DirectRow> {
    let mut row = DirectRow::new(backing.kind(), data);
    for round in 1..=runs {
        let mut sides: Vec<_> = SIDES.into_iter().enumerate().filter(|(_, side)| side.plays(data)).collect();
        // A later side finds the leftovers of an earlier one, so the sides take turns in coming first.
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

/// The version of the kernel.
fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {}", release.trim())
}

/// The average number of threads that wanted a processor in the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}
