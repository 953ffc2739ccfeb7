//! A stranger among those who write: one thread overwrites a file in very many extents, at random, and makes that durable; another
//! one changes the mode of a file that has nothing to do with it, all the time, and notes how long each change took. Then it does
//! the same with nothing going on, for as long.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use creamery_testkit::Random;
use serde_json::{Value, json};

use crate::content::{Contents, PIECE_MAX};
use crate::data::Shape;
use crate::side::{How, Side};
use crate::times::{Times, spread};

const FILE: &str = "data-0";
const STRANGER: &str = "stranger";
/// Between two of its changes.
const PAUSE: Duration = Duration::from_micros(100);
/// The stranger's time alone, at least.
const ALONE_MIN: Duration = Duration::from_millis(500);
/// How often it is asked how much waits.
const ASKED: usize = 32;

/// Overwrites the pieces of the file that `write` made, each once; `shape.generation` is of what is written.
pub(crate) fn run(side: &dyn Side, shape: &Shape) -> Result<(Times, Value)> {
    ensure!((1..=PIECE_MAX).contains(&shape.piece), "a piece has 1 to {PIECE_MAX} bytes");
    let contents = Contents::new(shape.generation, false);
    let mut offsets: Vec<u64> = (0..shape.bytes).step_by(shape.piece).collect();
    // In another order than that in which they were written: what is freed is scattered, too.
    Random::new(1_000 + shape.generation as u64).shuffle(&mut offsets);
    let file = side.open(FILE, How::Write)?;
    side.create(STRANGER)?;
    let (waiting, ask_every) = (AtomicU64::new(0), offsets.len().div_ceil(ASKED));
    let over = AtomicBool::new(false);
    let (times, meanwhile) = std::thread::scope(|scope| {
        let stranger = scope.spawn(|| changes(side, &over));
        let times = Times::measure(side, 1, &|_| {
            for (done, &offset) in (1..).zip(&offsets) {
                file.write_all_at(contents.at(0, offset, shape.piece), offset)?;
                if done % ask_every == 0
                    && let Some(statistics) = side.statistics()
                {
                    waiting.fetch_max(statistics.pending.delayed_refs, Ordering::Relaxed);
                }
            }
            Ok(offsets.len())
        });
        over.store(true, Ordering::Relaxed);
        let meanwhile = stranger.join().map_err(|_| anyhow::anyhow!("the stranger panicked"))?;
        Ok::<_, anyhow::Error>((times?, meanwhile.context("the stranger's changes")?))
    })?;
    let alone = alone(side, times.took().max(ALONE_MIN))?;
    let said = json!({ "delayed_refs_max": waiting.into_inner(), "meanwhile": spread(meanwhile), "alone": spread(alone) });
    Ok((times, said))
}

/// With nothing else going on.
fn alone(side: &dyn Side, time: Duration) -> Result<Vec<Duration>> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stranger = scope.spawn(|| changes(side, &over));
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        stranger.join().map_err(|_| anyhow::anyhow!("the stranger panicked"))?
    })
}

/// Changes the stranger's mode until it is `over`, at least once: how long each change took.
fn changes(side: &dyn Side, over: &AtomicBool) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    let mut mode = 0o600;
    loop {
        mode ^= 0o044;
        let begun = Instant::now();
        side.change_mode(STRANGER, mode)?;
        took.push(begun.elapsed());
        if over.load(Ordering::Relaxed) {
            return Ok(took);
        }
        std::thread::sleep(PAUSE);
    }
}
