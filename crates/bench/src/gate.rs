//! A bystander among writers: one thread overwrites a file of very many extents in random order and makes that durable. Another one, the
//! stranger, changes the mode of an unrelated file all the time, and notes the time of each change. Then it does that alone for as long,
//! for comparison.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use creamery_testkit::Random;
use serde_json::{Value, json};

use crate::content::{Contents, PIECE_MAX};
use crate::data::DataShape;
use crate::side::{How, Side};
use crate::times::{Times, spread};

const FILE: &str = "data-0";
const STRANGER: &str = "stranger";
/// Time between two changes of the stranger.
const PAUSE: Duration = Duration::from_micros(100);
/// Minimum time of the stranger alone.
const ALONE_MIN: Duration = Duration::from_millis(500);
/// How often the number of waiting changes is polled.
const ASKED: usize = 32;

/// Overwrites each piece of the file that `write` made once. `shape.generation` is that of the new content.
pub(crate) fn run(side: &dyn Side, shape: &DataShape) -> Result<(Times, Value)> {
    ensure!((1..=PIECE_MAX).contains(&shape.piece), "a piece has 1 to {PIECE_MAX} bytes");
    let contents = Contents::new(shape.generation, false);
    let mut offsets: Vec<u64> = (0..shape.bytes).step_by(shape.piece).collect();
    // The order differs from the order of the first writes, so freed space is scattered, too.
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

/// The stranger's changes while nothing else runs.
fn alone(side: &dyn Side, time: Duration) -> Result<Vec<Duration>> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stranger = scope.spawn(|| changes(side, &over));
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        stranger.join().map_err(|_| anyhow::anyhow!("the stranger panicked"))?
    })
}

/// Changes the mode of the stranger's file until `over`, at least once; returns the time of each change.
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
