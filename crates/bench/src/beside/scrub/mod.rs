//! `bench scrub`: scrubs beside the kernel's of the same members, beside reading and summing alone, and beside work on a mount; and what readahead
//! is worth on devices that take their time. Nothing is written by either side.
//!
//! Back of the envelope: 3 GB out of memory files are copied once at some 8 GB/s a core and summed at 10 to 25, so two cores need 0.3 s. The
//! kernel's scrub copies through loop devices. Parity is computed at 10 GB/s from what is in the cache anyway. On a device that takes 5 ms for a
//! request, each leaf that nobody asked for before costs these 5 ms, and one that was read ahead costs nothing.

mod beside;
mod delayed;
mod population;
mod sets;
mod stage;

use anyhow::{Context, Result, bail};
use creamery_testkit::{Judge, Judges, Scratch};

use super::options::{BesideOptions, options};
use super::programs::Programs;
use super::report::publish;
use stage::ScrubStage;

/// Measures one thing, and gives its table.
type ScrubPart = fn(&ScrubStage) -> Result<String>;

/// `cargo xtask bench scrub`. With `--only WORD` one of its parts, `sets`, `delayed` or `beside`, and nothing is published.
pub(crate) fn scrub(words: &[&str]) -> Result<()> {
    let mut words = words.to_vec();
    let mut only = None;
    if let Some(at) = words.iter().position(|word| *word == "--only") {
        only = Some(words.get(at + 1).context("--only needs a word")?.to_owned());
        words.drain(at..at + 2);
    }
    let mut options = options(BesideOptions { files: 4 * 3072, bytes: 0, runs: 3, dry: false }, &words)?;
    options.dry |= only.is_some();
    let needed = [Judge::Root, Judge::Fuse, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    if let Some(missing) = needed.into_iter().find(|judge| Judges::here().missing(*judge).is_some()) {
        bail!("bench scrub stands beside the kernel: {missing} is missing");
    }
    let (programs, scratch) = (Programs::build(false)?, Scratch::new("bench-scrub")?);
    let stage = ScrubStage { programs, scratch, options };
    let parts: [(&str, ScrubPart); 3] =
        [("sets", sets::sets), ("delayed", delayed::delayed), ("beside", beside::beside)];
    let mut text = String::new();
    for (name, part) in parts.into_iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        text += &part(&stage).with_context(|| format!("the part {name}"))?;
        text += "\n";
    }
    let BesideOptions { files, runs, dry, .. } = stage.options;
    text += &format!(
        "`cargo xtask bench scrub --files {files} --runs {runs}`: {files} files of 2 to 512 KiB, a sixteenth of them removed; members on tmpfs, the kernel's loop devices over the same files; both sides with `-r`, caches dropped, sides alternating, medians of {runs}."
    );
    publish("bench scrub", &text, dry)
}
