//! Look-ups beside commits: the time of each without other work, beside a thread that computes, and beside one that repeatedly makes files
//! and commits them.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};
use creamery_testkit::Random;
use serde_json::{Value, json};

use crate::side::Side;
use crate::times::spread;

/// Files that are made before each commit.
const BATCH: usize = 500;
const NAMES_OF_A_DIR: usize = 1000;

/// Looks up `lookups` of `files` names in each of the three situations.
pub(crate) fn run(side: &dyn Side, files: usize, lookups: usize) -> Result<Value> {
    for dir in 0..files.div_ceil(NAMES_OF_A_DIR) {
        side.make_dir(&dir.to_string())?;
        (0..NAMES_OF_A_DIR).try_for_each(|name| side.create(&format!("{dir}/{name}")))?;
    }
    side.make_dir("new")?;
    side.sync()?;
    let look_up = |seed| {
        let mut random = Random::new(seed);
        let mut took = Vec::with_capacity(lookups);
        for _ in 0..lookups {
            let number = random.below(files as u64) as usize;
            let path = format!("{}/{}", number / NAMES_OF_A_DIR, number % NAMES_OF_A_DIR);
            let begun = Instant::now();
            side.stat(&path)?;
            took.push(begun.elapsed());
        }
        Ok::<_, anyhow::Error>(took)
    };
    look_up(0)?; // so that all of it is cached
    let alone = look_up(1)?;
    let computing = beside(
        || {
            black_box((0..10_000_u64).map(black_box).sum::<u64>());
        },
        || look_up(2),
    )?;
    let commits = AtomicUsize::new(0);
    let commit = || {
        let number = commits.fetch_add(1, Ordering::Relaxed);
        let made = (0..BATCH).try_for_each(|name| side.create(&format!("new/{number}-{name}")));
        made.and_then(|()| side.sync()).expect("there is room");
    };
    let committing = beside(commit, || look_up(3))?;
    Ok(json!({
        "alone": spread(alone),
        "beside_a_thread_that_computes": spread(computing),
        "beside_commits": spread(committing),
        "commits": commits.into_inner(),
    }))
}

/// Runs `work` while another thread repeats `other`.
fn beside<T: Send>(other: impl Fn() + Sync, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                other();
            }
        });
        let done = work();
        ends.store(true, Ordering::Relaxed);
        thread.join().ok().context("the other thread panicked")?;
        done
    })
}
