//! Common parts of benches beside the kernel: required tools, and ways that take turns in coming first.

use anyhow::{Context, Result, bail};
use creamery_testkit::{Judge, Judges};

use super::stage::SideOptions;

/// Checks the tools. Errors: the bench `name` lacks one.
pub(super) fn needs(name: &str, tool: Judge) -> Result<()> {
    let needed = [Judge::Root, Judge::Fuse, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs, tool];
    match needed.into_iter().find(|judge| Judges::here().missing(*judge).is_some()) {
        Some(missing) => bail!("bench {name} stands beside the kernel: {missing} is missing"),
        None => Ok(()),
    }
}

/// The results of `play` for each of `ways`, once each round.
pub(super) fn rounds<T>(
    ways: &'static [SideOptions],
    runs: usize,
    scene: &str,
    play: impl Fn(&'static SideOptions) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut taken: Vec<Vec<T>> = ways.iter().map(|_| Vec::new()).collect();
    for round in 1..=runs {
        for number in 0..ways.len() {
            // A later way finds memory that an earlier one warmed, so the ways take turns in coming first.
            let number = (number + round) % ways.len();
            let way = &ways[number];
            taken[number].push(play(way).with_context(|| format!("{scene}: {}", way.name))?);
        }
        println!("  run {round}: {scene}");
    }
    Ok(taken)
}
