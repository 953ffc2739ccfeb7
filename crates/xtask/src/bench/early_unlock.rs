//! `bench early-unlock`: creating with parents let go before the leaf is searched, and with that switched off; how fast, and
//! how long threads wait for a leaf's parent.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use creamery_testkit::{Program, Scratch, btrfs_check};

use super::library::{bench, build, empty_image};
use super::measure::median;
use super::report::publish;
use super::{Options, options};

const IMAGE_BYTES: u64 = 8 << 30;
const THREADS: [u64; 4] = [2, 4, 8, 16];
/// The level of the leaves' parents.
const PARENTS: u64 = 1;

/// One run.
struct Taken {
    work: Duration,
    /// Of all threads, for write locks one level above the leaves.
    waits: u64,
    waited: Duration,
    longest: Duration,
    /// Insertions, and those that let go early.
    insertions: u64,
    early: u64,
}

/// `cargo xtask bench early-unlock`.
pub(crate) fn early_unlock(words: &[&str]) -> Result<()> {
    let options = options(Options { files: 200_000, bytes: 0, runs: 3, dry: false }, words)?;
    build()?;
    let (scratch, creamery) = (Scratch::new("bench-early-unlock")?, Program::find()?);
    let image = scratch.file("early.img");
    let mut rows = THREADS.map(|threads| (threads, Vec::new(), Vec::new()));
    for round in 1..=options.runs {
        for (threads, on, off) in &mut rows {
            on.push(create(&creamery, &image, options.files / *threads, *threads, "on")?);
            off.push(create(&creamery, &image, options.files / *threads, *threads, "off")?);
        }
        println!("  run {round} of {}", options.runs);
    }
    let mut text = String::from(
        "| threads | on, a second | off, a second | ratio | waits for parents, on | off | together, on | off | longest, on | off | let go early |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut last = 0.0;
    for (threads, on, off) in &rows {
        let rate = |taken: &[Taken]| options.files as f64 / middle(taken, |taken| taken.work).as_secs_f64();
        let waits = |taken: &[Taken]| median_of(taken.iter().map(|taken| taken.waits).collect());
        let (fast, slow) = (rate(on), rate(off));
        last = fast / slow;
        let (insertions, early) =
            on.iter().fold((0, 0), |sum, taken| (sum.0 + taken.insertions, sum.1 + taken.early));
        text += &format!(
            "| {threads} | {fast:.0} | {slow:.0} | {last:.2} | {} | {} | {} | {} | {} | {} | {:.1} % |\n",
            waits(on),
            waits(off),
            micros(middle(on, |taken| taken.waited)),
            micros(middle(off, |taken| taken.waited)),
            micros(middle(on, |taken| taken.longest)),
            micros(middle(off, |taken| taken.longest)),
            100.0 * early as f64 / insertions.max(1) as f64,
        );
    }
    text += &format!(
        "\n`cargo xtask bench early-unlock --files {} --runs {}`: so many files in all, each thread in a directory of its own, `-m single`, both ways alternating, medians of {}. A wait is for a write lock one level above the leaves that somebody else had, of all threads together.",
        options.files, options.runs, options.runs
    );
    publish("bench early-unlock", &text, options.dry)?;
    println!("ratio {last:.2}");
    Ok(())
}

fn create(creamery: &Program, image: &Path, files: u64, threads: u64, switch: &str) -> Result<Taken> {
    empty_image(image, IMAGE_BYTES)?;
    creamery.run(["mkfs", "-q", "-f", "-m", "single"]).arg(image).ok()?;
    let setting = [
        ("--lock-times", "on".to_owned()),
        ("--early-unlock", switch.to_owned()),
        ("--files", files.to_string()),
        ("--threads", threads.to_string()),
    ];
    let said = bench("create", "--image", image, &setting)?;
    btrfs_check(image)?;
    Ok(Taken {
        work: said.durable_time()?,
        waits: said.waits(PARENTS, "count"),
        waited: Duration::from_nanos(said.waits(PARENTS, "sum")),
        longest: Duration::from_nanos(said.waits(PARENTS, "max")),
        insertions: said.trees("insertions"),
        early: said.trees("early_unlocks"),
    })
}

fn middle(taken: &[Taken], of: fn(&Taken) -> Duration) -> Duration {
    median(&taken.iter().map(of).collect::<Vec<_>>())
}

fn median_of(mut counts: Vec<u64>) -> u64 {
    counts.sort_unstable();
    counts[counts.len() / 2]
}

fn micros(time: Duration) -> String {
    format!("{} us", time.as_micros())
}
