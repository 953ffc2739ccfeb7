//! Scrubs of every profile, beside the kernel's, and beside reading and summing the same files.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use creamery_testkit::{CpuMeter, Run};

use super::population::fill;
use super::stage::ScrubStage;
use crate::kernel_set::KernelSet;
use crate::measure::{measure, median};
use crate::report::mebibytes;

/// Profile, members, checksum, and how many times the kernel's speed is wanted.
const ROWS: [(&str, usize, &str, f64); 7] = [
    ("single", 1, "crc32c", 2.0),
    ("dup", 1, "crc32c", 1.5),
    ("raid1", 2, "crc32c", 1.5),
    ("raid10", 4, "crc32c", 1.5),
    ("raid5", 4, "crc32c", 3.0),
    ("raid6", 5, "crc32c", 4.0),
    ("single", 1, "sha256", 1.2),
];
const MEMBER_BYTES: u64 = 12 << 30;
const LIMIT: Duration = Duration::from_secs(600);

/// Wall and CPU seconds.
type ScrubTaken = (f64, f64);

pub(super) fn sets(stage: &ScrubStage) -> Result<String> {
    let mut text = String::from(
        "| profile | members | checksum | here | kernel | as fast | wanted | CPU time, here | kernel | as fast as reading and summing alone | most memory |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for (profile, count, checksum, wanted) in ROWS {
        let words = ["-d", profile, "-m", profile, "--csum", checksum];
        let set = KernelSet::make(&stage.scratch, (count, MEMBER_BYTES), &words, |dir| {
            fill(dir, stage.options.files)
        })?;
        let (mut ours, mut theirs, mut alone, mut peak) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for round in 1..=stage.options.runs {
            alone.push(sum(stage, &set, checksum)?);
            let (taken, memory) = here(stage, &set)?;
            ours.push(taken);
            peak = memory.max(peak);
            theirs.push(kernel(&set)?);
            println!(
                "  run {round}: {profile} of {count}, {checksum}: {:?}, {:?}",
                ours.last(),
                theirs.last()
            );
        }
        let (ours, theirs, alone) = (middle(&ours), middle(&theirs), middle(&alone));
        text += &format!(
            "| {profile} | {count} | {checksum} | {:.2} s | {:.2} s | {:.2} | {wanted} | {:.2} s | {:.2} s | {:.2} | {} |\n",
            ours.0,
            theirs.0,
            theirs.0 / ours.0,
            ours.1,
            theirs.1,
            alone.0 / ours.0,
            mebibytes(peak),
        );
    }
    Ok(text)
}

fn middle(taken: &[ScrubTaken]) -> ScrubTaken {
    (
        median(&taken.iter().map(|one| one.0).collect::<Vec<_>>()),
        median(&taken.iter().map(|one| one.1).collect::<Vec<_>>()),
    )
}

/// What reading everything that was ever written to the members and computing checksums takes, by as many threads as there are processors.
fn sum(stage: &ScrubStage, set: &KernelSet, checksum: &str) -> Result<ScrubTaken> {
    let threads = std::thread::available_parallelism()?.to_string();
    let image = set.files[0].to_string_lossy().into_owned();
    let mut options = vec![("--image", image), ("--checksum", checksum.to_owned()), ("--threads", threads)];
    options.extend(set.files[1..].iter().map(|file| ("--device", file.to_string_lossy().into_owned())));
    let said = stage.programs.bench("sum", &options)?;
    Ok((said.number("work_seconds")?, said.number("cpu_seconds")?))
}

/// A scrub by the program, and the most memory that it had.
fn here(stage: &ScrubStage, set: &KernelSet) -> Result<(ScrubTaken, u64)> {
    let state = stage.scratch.dir("state")?;
    let devices = set.files[1..].iter().flat_map(|file| ["--device".as_ref(), file.as_os_str()]);
    let mut command = Command::new(stage.programs.creamery.path());
    command.args(["scrub", "start", "-B", "-r"]).arg(&set.files[0]).args(devices);
    let cpu = CpuMeter::start(&[])?;
    let taken = measure(command.env("XDG_STATE_HOME", &state))?;
    Ok(((taken.time.as_secs_f64(), cpu.elapsed()?.as_secs_f64()), taken.peak_bytes))
}

fn kernel(set: &KernelSet) -> Result<ScrubTaken> {
    set.mounted("ro", |dir| {
        std::fs::write("/proc/sys/vm/drop_caches", "3")?;
        let (cpu, start) = (CpuMeter::start(&[])?, Instant::now());
        Run::new("btrfs").args(["scrub", "start", "-B", "-r"]).arg(dir).limit(LIMIT).ok()?;
        Ok((start.elapsed().as_secs_f64(), cpu.elapsed()?.as_secs_f64()))
    })
}
