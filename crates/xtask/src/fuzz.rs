//! `cargo xtask fuzz`: all fuzz targets for a while, one after the other.
//!
//! libFuzzer is linked by plain cargo with the stable compiler: the flags below are what cargo-fuzz passes without a
//! sanitizer. Where it is installed, `cargo +nightly fuzz run TARGET` works on the same folder.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use creamery_workspace::{cargo, root, run};

const TRIPLE: &str = "x86_64-unknown-linux-gnu";
const SECONDS: u64 = 600;
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
                     --cfg fuzzing";
/// What no input may exceed: memory in MiB, and seconds.
const LIMITS: [&str; 2] = ["-rss_limit_mb=1024", "-timeout=10"];
const ADDRESS_SPACE_KIB: &str = "1048576";
const INPUT_MAX: &str = "-max_len=2048";
/// Files of a corpus: it is replayed by every `cargo test`.
const CORPUS_FILES_MAX: usize = 200;

/// Options of the command.
struct FuzzOptions {
    seconds: u64,
    targets: Vec<String>,
    shrink: bool,
}

/// Runs the targets named by `words`, or all of them.
pub(crate) fn fuzz(words: &[&str]) -> Result<()> {
    let wanted = FuzzOptions::of(words)?;
    build()?;
    if wanted.shrink {
        return wanted.targets.iter().try_for_each(|target| shrink(target));
    }
    let each = (wanted.seconds / wanted.targets.len() as u64).max(1);
    println!("{:<14}{:>14}{:>12}{:>12}  findings", "target", "executions", "CPU s", "peak MiB");
    let (mut executions, mut cpu, mut findings) = (0, Duration::ZERO, 0);
    for target in &wanted.targets {
        let done = campaign(target, each)?;
        let told = if done.status.success() { "none".to_owned() } else { done.last_words() };
        let seconds = done.cpu.as_secs_f64();
        println!("{target:<14}{:>14}{seconds:>12.1}{:>12}  {told}", done.executions, done.peak);
        executions += done.executions;
        cpu += done.cpu;
        findings += usize::from(!done.status.success());
    }
    println!("{:<14}{executions:>14}{:>12.1}", "together", cpu.as_secs_f64());
    ensure!(
        findings == 0,
        "{findings} targets found something, see fuzz/artifacts and docs/internals/fuzzing.md"
    );
    Ok(())
}

impl FuzzOptions {
    fn of(words: &[&str]) -> Result<Self> {
        let all = targets()?;
        let mut wanted = Self { seconds: SECONDS, targets: Vec::new(), shrink: false };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--seconds" => {
                    let value = words.next().context("--seconds wants a number")?;
                    wanted.seconds = value.parse().with_context(|| format!("--seconds {value}"))?;
                }
                "--shrink" => wanted.shrink = true,
                name if all.iter().any(|target| target == name) => wanted.targets.push(name.to_owned()),
                _ => bail!("{word} is no target; there are {}", all.join(", ")),
            }
        }
        if wanted.targets.is_empty() {
            wanted.targets = all;
        }
        Ok(wanted)
    }
}

/// The programs in `fuzz/fuzz_targets`.
fn targets() -> Result<Vec<String>> {
    let folder = root().join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))? {
        names.extend(entry?.path().file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

fn build() -> Result<()> {
    let manifest = root().join("fuzz/Cargo.toml");
    let mut build = cargo(&["build", "--release", "--locked", "--target", TRIPLE, "--manifest-path"]);
    run(build.arg(manifest).arg("--target-dir").arg(results()).env("RUSTFLAGS", FLAGS))
}

/// A folder of its own: nothing else is built with these flags.
fn results() -> PathBuf {
    root().join("fuzz/target")
}

/// The target under a limit of address space as well: memory that is asked for and never touched shows nowhere else.
fn program(target: &str) -> Command {
    let mut program = Command::new("sh");
    program.args(["-c", "ulimit -v \"$0\" && exec \"$@\"", ADDRESS_SPACE_KIB]);
    program.arg(results().join(TRIPLE).join("release").join(target)).args(LIMITS).arg(INPUT_MAX);
    program
}

fn folder(of: &str, target: &str) -> Result<PathBuf> {
    let folder = root().join("fuzz").join(of).join(target);
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

/// What came of one target.
struct Campaign {
    status: ExitStatus,
    executions: u64,
    peak: u64,
    cpu: Duration,
    said: String,
}

impl Campaign {
    /// What a person wants to see first.
    fn last_words(&self) -> String {
        let telling = ["panicked at", "ERROR:", "Test unit written"];
        let lines = self.said.lines().filter(|line| telling.iter().any(|words| line.contains(words)));
        let lines: Vec<&str> = lines.map(str::trim).collect();
        if lines.is_empty() { self.status.to_string() } else { lines.join("\n    ") }
    }
}

/// Whether the lock file of `fuzz/`, which no other command looks at, fits its manifests.
pub(crate) fn check_lock() -> Result<()> {
    let manifest = root().join("fuzz/Cargo.toml");
    let mut metadata = cargo(&["metadata", "--format-version", "1", "--locked", "--manifest-path"]);
    run(metadata.arg(manifest).stdout(Stdio::null()))
}

fn campaign(target: &str, seconds: u64) -> Result<Campaign> {
    let grown = folder("target/corpus", target)?;
    let (corpus, artifacts) = (folder("corpus", target)?, folder("artifacts", target)?);
    let log = results().join(format!("{target}.log"));
    let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
    let mut program = program(target);
    program.arg(format!("-max_total_time={seconds}")).arg("-print_final_stats=1");
    program.arg(format!("-artifact_prefix={}/", artifacts.display()));
    let dictionary = root().join(format!("fuzz/dictionaries/{target}.dict"));
    if dictionary.exists() {
        program.arg(format!("-dict={}", dictionary.display()));
    }
    // What is new goes into the first folder; the others are only read.
    program.arg(grown).arg(corpus).stdout(file.try_clone()?).stderr(file);
    let before = children_cpu()?;
    let status = program.status().with_context(|| format!("starting {target}"))?;
    let cpu = children_cpu()?.saturating_sub(before);
    let said = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
    let figure = |name: &str| -> u64 {
        let line = said.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
    };
    let executions = figure("stat::number_of_executed_units:");
    let peak = figure("stat::peak_rss_mb:");
    Ok(Campaign { status, executions, peak, cpu, said })
}

/// User and system time of all children that have ended, from /proc/self/stat: the 16th and 17th field, in hundredths.
fn children_cpu() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("reading /proc/self/stat")?;
    let fields = stat.rsplit_once(')').context("/proc/self/stat without a name")?.1;
    let ticks: u64 =
        fields.split_whitespace().skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}

/// Replaces a corpus by a few files, among those that are there and those that were found, that reach what all reach.
fn shrink(target: &str) -> Result<()> {
    let (grown, corpus) = (folder("target/corpus", target)?, folder("corpus", target)?);
    let merged = folder("target/merged", target)?;
    std::fs::remove_dir_all(&merged)?;
    std::fs::create_dir(&merged)?;
    let control = results().join(format!("{target}.merge"));
    if control.exists() {
        std::fs::remove_file(&control)?;
    }
    let mut merge = program(target);
    merge.arg("-merge=1").arg(format!("-merge_control_file={}", control.display()));
    run(merge.args([&merged, &corpus, &grown]).stdout(Stdio::null()).stderr(Stdio::null()))?;
    let told = std::fs::read_to_string(&control).with_context(|| format!("reading {}", control.display()))?;
    let kept: Vec<(PathBuf, Vec<u8>)> = telling(&told)?
        .into_iter()
        .map(|path| Ok((corpus.join(path.file_name().context("a file")?), std::fs::read(&path)?)))
        .collect::<Result<_>>()?;
    std::fs::remove_dir_all(&corpus)?;
    std::fs::create_dir_all(&corpus)?;
    for (path, bytes) in &kept {
        std::fs::write(path, bytes)?;
    }
    println!(
        "{target}: {} files, {} bytes",
        kept.len(),
        kept.iter().map(|(_, bytes)| bytes.len()).sum::<usize>()
    );
    Ok(())
}

/// The files that reached code that no smaller one did, from what libFuzzer notes while it merges: the number of files,
/// that of a part of them, their names, and then lines with the number of a file. Those that reached most come first.
fn telling(notes: &str) -> Result<Vec<PathBuf>> {
    let mut lines = notes.lines();
    let count: usize = lines.next().context("an empty list")?.parse().context("the number of files")?;
    let names: Vec<&str> = lines.by_ref().skip(1).take(count).collect();
    let mut found: Vec<(usize, &str)> = Vec::new();
    for line in lines {
        let mut words = line.split_whitespace();
        if words.next() == Some("COV") {
            let number: usize = words.next().context("the number of a file")?.parse()?;
            let name = names.get(number).with_context(|| format!("there is no file {number}"))?;
            found.push((words.count(), name));
        }
    }
    found.retain(|(reached, _)| *reached > 0);
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found.into_iter().take(CORPUS_FILES_MAX).map(|(_, name)| PathBuf::from(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::telling;

    #[test]
    fn files_that_reach_something_new_are_kept() {
        let notes = "3\n0\na/one\na/two\nb/three\nSTARTED 0 4\nFT 0 1 2\nCOV 0 77\nSTARTED 1 9\nFT 1 1\nCOV 1\n\
                     STARTED 2 12\nFT 2 3\nCOV 2 78 79\n";
        assert_eq!(telling(notes).unwrap(), ["b/three", "a/one"].map(std::path::PathBuf::from));
    }
}
