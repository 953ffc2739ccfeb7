//! Scrubs of a device that takes its time, with the trees read ahead and without.

use anyhow::Result;

use super::population::{fill, fill_small};
use super::stage::ScrubStage;
use crate::kernel_set::KernelSet;
use crate::measure::median;

/// Microseconds of each request.
const LATENCIES: [u64; 2] = [100, 5000];
const DEVICE_BYTES: u64 = 12 << 30;
/// Files of one sector for each file of the usual population.
const SMALL: u64 = 5;
/// Whether files are of one sector each, and bytes of a tree block.
const POPULATIONS: [(bool, &str); 3] = [(true, "4096"), (true, "16384"), (false, "16384")];
const TREES: [&str; 2] = ["extents", "checksums"];

/// What one latency comes to.
#[derive(Default)]
struct LatencyTaken {
    on: Vec<f64>,
    off: Vec<f64>,
    /// Of the extent tree and of the checksum tree.
    issued: [f64; 2],
    hit: [f64; 2],
}

pub(super) fn delayed(stage: &ScrubStage) -> Result<String> {
    let mut text = String::from(
        "| files | nodes | a request takes | read ahead | not read ahead | times as fast | extent tree: blocks ahead, of them came to | checksum tree |\n|---|---|---|---|---|---|---|---|\n",
    );
    let files = stage.options.files;
    for (small, node) in POPULATIONS {
        let words = ["-d", "single", "-m", "single", "-n", node];
        let set = KernelSet::make(&stage.scratch, (1, DEVICE_BYTES), &words, |dir| {
            if small { fill_small(dir, files * SMALL) } else { fill(dir, files) }
        })?;
        for latency in LATENCIES {
            let mut taken = LatencyTaken::default();
            for round in 1..=stage.options.runs {
                play(stage, &set, latency, &mut taken)?;
                println!(
                    "  run {round}: {latency} us: {:?}, {:?} without",
                    taken.on.last(),
                    taken.off.last()
                );
            }
            let (on, off) = (median(&taken.on), median(&taken.off));
            let name = if small { "of 4 KiB" } else { "of 2 to 512 KiB" };
            let trees = [0, 1].map(|tree| format!("{}, {}", taken.issued[tree], taken.hit[tree]));
            text += &format!(
                "| {name} | {node} | {latency} us | {on:.2} s | {off:.2} s | {:.2} | {} |\n",
                off / on,
                trees.join(" | ")
            );
        }
    }
    Ok(text)
}

fn play(stage: &ScrubStage, set: &KernelSet, latency: u64, taken: &mut LatencyTaken) -> Result<()> {
    let image = set.files[0].to_string_lossy().into_owned();
    for switch in ["on", "off"] {
        let options = [
            ("--image", image.clone()),
            ("--latency-us", latency.to_string()),
            ("--read-ahead", switch.to_owned()),
        ];
        let said = stage.programs.bench("scrub", &options)?;
        let seconds = said.number("work_seconds")?;
        if switch == "off" {
            taken.off.push(seconds);
            continue;
        }
        taken.on.push(seconds);
        for (tree, name) in TREES.into_iter().enumerate() {
            taken.issued[tree] = said.at(&["read_ahead", name, "issued"])?;
            taken.hit[tree] = said.at(&["read_ahead", name, "hit"])?;
        }
    }
    Ok(())
}
