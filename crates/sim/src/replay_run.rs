//! Logs that are replayed while power fails: whatever is left, what is seen afterwards is the whole of the replay.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use crate::crash::judge;
use crate::device::SimDevice;
use crate::driver::open;
use crate::image::Image;
use crate::made_log::with_log;
use crate::power_cut::PowerCut;
use crate::snapshot::walk;

/// Replays a log that `seed` has made up for `image`, whose replay is judged, and again in up to `states` states that power cuts leave
/// of that. Returns how many were tried.
///
/// # Errors
/// The first state that shows something else, in words that tell how to make it again.
pub fn replay_run(image: &Image, seed: u64, states: usize) -> Result<usize> {
    let logged = with_log(image, seed)?;
    let device = Arc::new(SimDevice::recording(logged.clone(), None));
    let fs = open(&device).with_context(|| format!("seed {seed}: replaying"))?;
    let replayed = fs.replayed().context("nothing was replayed")?;
    ensure!(replayed.inodes >= 2, "seed {seed}: {replayed}");
    let wanted = walk(&fs, true)?.snapshot;
    ensure!(device.take_log().is_empty(), "seed {seed}: opening has written");
    fs.begin_changes()?;
    let events = device.take_log();
    fs.shut_down()?;
    judge(&device.image()).with_context(|| format!("seed {seed}: what was replayed"))?;
    let mut cut = PowerCut::new(logged, events, seed, false);
    let mut tried = 0;
    while tried < states {
        let Some(state) = cut.next_state() else { break };
        let told = || format!("seed {seed}: {}", state.story);
        let device = Arc::new(SimDevice::new(state.image.clone()));
        let fs = open(&device).with_context(told)?;
        let seen = walk(&fs, true).with_context(told)?.snapshot;
        ensure!(seen == wanted, "{}: {}", told(), wanted.difference(&seen).unwrap_or_default());
        fs.begin_changes().with_context(told)?;
        fs.shut_down().with_context(told)?;
        judge(&device.image()).with_context(told)?;
        tried += 1;
    }
    Ok(tried)
}
