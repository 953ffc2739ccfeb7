//! `bench create`, `lookup`, `readdir`, `unlink` and `mixed`: work on names through the library, beside the kernel's Btrfs on a
//! loop device, both on one tmpfs, in turn, medians. The same program (`creamery-bench`) does the same operations on
//! both sides.
//!
//! Back of the envelope for `create`: a file is six items, three of them in leaves that the file before touched, too. At
//! 200 ns for a descent of three levels with everything cached and 300 ns for an insertion with its share of splits,
//! that is 3 us; the kernel takes 30.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use creamery_testkit::{Judge, Judges, LoopDevice, Run, btrfs_check};

use super::library::{ImageFolder, ROUNDS, empty_image};
use super::measure::median;
use super::options::{BesideOptions, options};
use super::report::publish;

const IMAGE_BYTES: u64 = 6 << 30;
const IMAGE: &str = "names.img";
const LIMIT: Duration = Duration::from_secs(900);

/// One workload: what it is called, what must be there before, and whether it changes anything.
struct NamesWork {
    name: &'static str,
    before: Option<&'static str>,
    writes: bool,
}

const WORKS: [NamesWork; 6] = [
    NamesWork { name: "create", before: None, writes: true },
    NamesWork { name: "lookup", before: Some("create"), writes: false },
    NamesWork { name: "lookup-warm", before: Some("create"), writes: false },
    NamesWork { name: "readdir", before: Some("create"), writes: false },
    NamesWork { name: "unlink", before: Some("create"), writes: true },
    NamesWork { name: "mixed", before: None, writes: true },
];

/// What a number of threads did on one side.
#[derive(Clone, Copy, Debug)]
struct NamesTaken {
    operations: f64,
    work: f64,
    sync: f64,
    /// CPU time of both, in seconds.
    cpu: f64,
    /// Insertions into trees, and those that let go of the leaf's parents before they searched it.
    insertions: u64,
    by_finger: u64,
    early_unlocks: u64,
}

impl NamesTaken {
    fn rate(&self) -> f64 {
        self.operations / self.work
    }

    fn durable_rate(&self) -> f64 {
        self.operations / (self.work + self.sync)
    }

    /// CPU time for an operation, in microseconds.
    fn cpu_micros(&self) -> f64 {
        self.cpu * 1e6 / self.operations
    }
}

/// One row: a number of threads, both sides.
struct NamesRow {
    threads: usize,
    ours: Vec<NamesTaken>,
    theirs: Vec<NamesTaken>,
}

/// `cargo xtask bench NAME`, where `NAME` is one of `WORKS`.
pub(crate) fn names(name: &str, words: &[&str]) -> Result<()> {
    let work = WORKS.iter().find(|work| work.name == name).context("unknown workload")?;
    let options = options(BesideOptions { files: 100_000, bytes: 0, runs: 3, dry: false }, words)?;
    let needed = [Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    if let Some(missing) = needed.into_iter().find(|judge| Judges::here().missing(*judge).is_some()) {
        bail!("bench {name} stands beside the kernel: {missing} is missing");
    }
    let place = ImageFolder::new("names", options.files)?;
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let counts = [1, 2, 4, 8, 16].into_iter().filter(|threads| *threads <= cores.max(2));
    let mut rows: Vec<NamesRow> =
        counts.map(|threads| NamesRow { threads, ours: Vec::new(), theirs: Vec::new() }).collect();
    for round in 1..=options.runs {
        for row in &mut rows {
            let (ours, theirs) = (place.library(work, row.threads)?, place.kernel(work, row.threads)?);
            println!(
                "  run {round}, {} threads: {:.0} a second, the kernel {:.0}",
                row.threads,
                ours.rate(),
                theirs.rate()
            );
            row.ours.push(ours);
            row.theirs.push(theirs);
        }
    }
    let insertions = if work.name == "create" { counted(&rows) } else { String::new() };
    let text = format!(
        "{}{insertions}\n`cargo xtask bench {name} --files {} --runs {}`: {} directories of {} files for each thread, `-m single`, the kernel's with `-o ssd` on a loop device, all on one tmpfs, sides alternating, medians of {}.",
        table(&rows),
        options.files,
        options.runs,
        ROUNDS,
        options.files,
        options.runs
    );
    publish(&format!("bench {name}"), &text, options.dry)?;
    let two = rows.iter().find(|row| row.threads == 2).unwrap_or(&rows[0]);
    println!(
        "ratio {:.2}",
        middle(&two.ours, NamesTaken::durable_rate) / middle(&two.theirs, NamesTaken::durable_rate)
    );
    Ok(())
}

impl ImageFolder {
    /// Through the library, each workload in a process of its own, so with nothing cached. A figure counts only if the
    /// image is right.
    fn library(&self, work: &NamesWork, threads: usize) -> Result<NamesTaken> {
        let image = self.filesystem(IMAGE, IMAGE_BYTES)?;
        let bench = |name| self.taken(name, "--image", &image, threads);
        if let Some(before) = work.before {
            bench(before)?;
        }
        let taken = bench(work.name)?;
        if work.writes {
            btrfs_check(&image)?;
        }
        Ok(taken)
    }

    /// Through the kernel, mounted anew before what is measured.
    fn kernel(&self, work: &NamesWork, threads: usize) -> Result<NamesTaken> {
        let image = self.scratch.file(IMAGE);
        empty_image(&image, IMAGE_BYTES)?;
        Run::new("mkfs.btrfs").args(["-q", "-f", "-m", "single", "-d", "single"]).arg(&image).ok()?;
        let device = LoopDevice::attach(&image, false)?;
        let dir = self.scratch.dir("kernel")?;
        let mounted = |name: &'static str| -> Result<NamesTaken> {
            Run::new("mount").args(["-t", "btrfs", "-o", "ssd"]).arg(device.path()).arg(&dir).ok()?;
            let taken = self.taken(name, "--dir", &dir, threads);
            Run::new("umount").arg(&dir).limit(LIMIT).ok()?;
            taken
        };
        if let Some(before) = work.before {
            mounted(before)?;
        }
        let taken = mounted(work.name)?;
        device.detach()?;
        Ok(taken)
    }

    fn taken(&self, name: &str, side: &str, at: &Path, threads: usize) -> Result<NamesTaken> {
        let said = self.bench(name, side, at, threads)?;
        Ok(NamesTaken {
            operations: said.number("operations")?,
            work: said.number("work_seconds")?,
            sync: said.number("sync_seconds")?,
            cpu: said.number("cpu_seconds")?,
            insertions: said.trees("insertions"),
            by_finger: said.trees("leaf_step_finger"),
            early_unlocks: said.trees("early_unlocks"),
        })
    }
}

/// What the library's trees counted.
fn counted(rows: &[NamesRow]) -> String {
    let taken = || rows.iter().flat_map(|row| &row.ours);
    let sum = |of: fn(&NamesTaken) -> u64| taken().map(of).sum::<u64>();
    let (insertions, by_finger) = (sum(|taken| taken.insertions), sum(|taken| taken.by_finger));
    let from_the_root = insertions - by_finger;
    let share = 100.0 * sum(|taken| taken.early_unlocks) as f64 / from_the_root as f64;
    format!(
        "\nOf {insertions} insertions {by_finger} went straight to their leaf by a finger. Of the others {share:.1} % let go of the leaf's parents before they searched it.\n"
    )
}

fn middle(taken: &[NamesTaken], rate: fn(&NamesTaken) -> f64) -> f64 {
    // A median of rates is the rate of the median time: all did the same number.
    let times: Vec<Duration> = taken.iter().map(|taken| Duration::from_secs_f64(1.0 / rate(taken))).collect();
    1.0 / median(&times).as_secs_f64()
}

fn table(rows: &[NamesRow]) -> String {
    let mut text = String::from(
        "| threads | library, a second | kernel, a second | ratio | with the final sync: library | kernel | ratio | CPU time each: library | kernel |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let [ours, theirs] = [&row.ours, &row.theirs].map(|taken| middle(taken, NamesTaken::rate));
        let [durable, durable_theirs] =
            [&row.ours, &row.theirs].map(|taken| middle(taken, NamesTaken::durable_rate));
        let [cpu, cpu_theirs] = [&row.ours, &row.theirs]
            .map(|taken| median(&taken.iter().map(NamesTaken::cpu_micros).collect::<Vec<_>>()));
        text += &format!(
            "| {} | {ours:.0} | {theirs:.0} | {:.2} | {durable:.0} | {durable_theirs:.0} | {:.2} | {cpu:.2} us | {cpu_theirs:.2} us |\n",
            row.threads,
            ours / theirs,
            durable / durable_theirs
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{NamesRow, NamesTaken, table};

    #[test]
    fn ratios_are_over_the_kernel() {
        let taken = |work, sync| {
            vec![
                NamesTaken {
                    operations: 100.0,
                    work,
                    sync,
                    cpu: work + sync,
                    insertions: 0,
                    by_finger: 0,
                    early_unlocks: 0
                };
                3
            ]
        };
        let text = table(&[NamesRow { threads: 2, ours: taken(1.0, 1.0), theirs: taken(4.0, 0.0) }]);
        assert!(
            text.ends_with("| 2 | 100 | 25 | 4.00 | 50 | 25 | 2.00 | 20000.00 us | 40000.00 us |\n"),
            "{text}"
        );
    }
}
