//! `bench early-unlock` and `bench fingers`: creates files with a mechanism of the tree on and off, and measures the rate, and the waits of
//! threads for a leaf's parent.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use creamery_testkit::{Program, Scratch, btrfs_check};

use super::library::{bench, build, empty_filesystem};
use super::measure::median;
use super::options::{BesideOptions, options};
use super::report::publish;

const IMAGE_BYTES: u64 = 8 << 30;
const THREADS: [u64; 4] = [2, 4, 8, 16];
/// The level of the leaves' parents.
const PARENTS: u64 = 1;

/// A mechanism that a switch turns off.
struct Switch {
    name: &'static str,
    /// Other switches that are off on both sides, as they would hide the effect of this one.
    off: &'static [&'static str],
    /// The title of the last column.
    column: &'static str,
    /// The count in the last column, and the number of insertions it relates to.
    counts: fn(&SwitchTaken) -> (u64, u64),
}

const EARLY_UNLOCK: Switch = Switch {
    name: "early-unlock",
    off: &["fingers"],
    column: "let go early",
    counts: |taken| (taken.early, taken.insertions - taken.by_finger),
};

const FINGERS: Switch = Switch {
    name: "fingers",
    off: &[],
    column: "by finger",
    counts: |taken| (taken.by_finger, taken.insertions),
};

/// One run.
struct SwitchTaken {
    work: Duration,
    /// Waits of all threads for write locks one level above the leaves.
    waits: u64,
    waited: Duration,
    longest: Duration,
    insertions: u64,
    early: u64,
    by_finger: u64,
}

/// `cargo xtask bench early-unlock`.
pub(crate) fn early_unlock(words: &[&str]) -> Result<()> {
    compare(&EARLY_UNLOCK, words)
}

/// `cargo xtask bench fingers`.
pub(crate) fn fingers(words: &[&str]) -> Result<()> {
    compare(&FINGERS, words)
}

fn compare(switch: &Switch, words: &[&str]) -> Result<()> {
    let options = options(BesideOptions { files: 400_000, bytes: 0, runs: 6, dry: false }, words)?;
    build()?;
    let (scratch, creamery) = (Scratch::new(&format!("bench-{}", switch.name))?, Program::find()?);
    let image = scratch.file("switch.img");
    let mut rows = THREADS.map(|threads| (threads, Vec::new(), Vec::new()));
    for round in 1..=options.runs {
        for (threads, on, off) in &mut rows {
            // The second way finds memory that the first one warmed, so the ways swap places in every round.
            let mut ways = [("on", &mut *on), ("off", &mut *off)];
            if round % 2 == 0 {
                ways.reverse();
            }
            for (to, taken) in ways {
                taken.push(create(&creamery, &image, options.files / *threads, *threads, switch, to)?);
            }
        }
        println!("  run {round} of {}", options.runs);
    }
    let mut text = format!(
        "| threads | on, a second | off, a second | ratio | waits for parents, on | off | together, on | off | longest, on | off | {} |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
        switch.column
    );
    let mut last = 0.0;
    for (threads, on, off) in &rows {
        let rate =
            |taken: &[SwitchTaken]| options.files as f64 / middle(taken, |taken| taken.work).as_secs_f64();
        let waits =
            |taken: &[SwitchTaken]| median(&taken.iter().map(|taken| taken.waits).collect::<Vec<_>>());
        let (fast, slow) = (rate(on), rate(off));
        last = fast / slow;
        let (some, all) =
            on.iter().map(switch.counts).fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1));
        text += &format!(
            "| {threads} | {fast:.0} | {slow:.0} | {last:.2} | {} | {} | {} | {} | {} | {} | {:.1} % |\n",
            waits(on),
            waits(off),
            micros(middle(on, |taken| taken.waited)),
            micros(middle(off, |taken| taken.waited)),
            micros(middle(on, |taken| taken.longest)),
            micros(middle(off, |taken| taken.longest)),
            100.0 * some as f64 / all.max(1) as f64,
        );
    }
    let off = switch.off.iter().map(|name| format!(", {name} off on both sides")).collect::<String>();
    text += &format!(
        "\n`cargo xtask bench {} --files {} --runs {}`: so many files in all, each thread in a directory of its own, `-m single`{off}, both ways alternating, medians of {}. A wait is for a write lock one level above the leaves that somebody else had, of all threads together.",
        switch.name, options.files, options.runs, options.runs
    );
    publish(&format!("bench {}", switch.name), &text, options.dry)?;
    println!("ratio {last:.2}");
    Ok(())
}

fn create(
    creamery: &Program,
    image: &Path,
    files: u64,
    threads: u64,
    switch: &Switch,
    to: &str,
) -> Result<SwitchTaken> {
    empty_filesystem(creamery, image, IMAGE_BYTES)?;
    let mut setting = vec![
        ("--lock-times".to_owned(), "on".to_owned()),
        ("--files".to_owned(), files.to_string()),
        ("--threads".to_owned(), threads.to_string()),
        (format!("--{}", switch.name), to.to_owned()),
    ];
    setting.extend(switch.off.iter().map(|name| (format!("--{name}"), "off".to_owned())));
    let said = bench("create", "--image", image, &setting)?;
    btrfs_check(image)?;
    Ok(SwitchTaken {
        work: said.durable_time()?,
        waits: said.waits(PARENTS, "count"),
        waited: Duration::from_nanos(said.waits(PARENTS, "sum")),
        longest: Duration::from_nanos(said.waits(PARENTS, "max")),
        insertions: said.trees("insertions"),
        early: said.trees("early_unlocks"),
        by_finger: said.trees("leaf_step_finger"),
    })
}

fn middle(taken: &[SwitchTaken], of: fn(&SwitchTaken) -> Duration) -> Duration {
    median(&taken.iter().map(of).collect::<Vec<_>>())
}

fn micros(time: Duration) -> String {
    format!("{} us", time.as_micros())
}
