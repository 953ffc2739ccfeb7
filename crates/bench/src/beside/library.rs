//! Common parts of the library's benches: a fresh image, and the program `creamery-bench` on it or on a mount.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use creamery_testkit::{Program, Run, Scratch};
use serde_json::Value;

use creamery_workspace::{build_program, cargo, run, target};

/// Builds `creamery` and `creamery-bench` in the measured profile.
pub(super) fn build() -> Result<()> {
    build_program()?;
    build_bench(&RELEASE)
}

/// Cargo's words for the measured profile.
pub(super) const RELEASE: [&str; 3] = ["build", "--locked", "--release"];

/// Builds `creamery-bench` with these words.
pub(super) fn build_bench(words: &[&str]) -> Result<()> {
    run(cargo(words).args(["--bin", "creamery-bench"]))
}

/// Directories of a thread, unless a bench says otherwise.
pub(super) const ROUNDS: u64 = 4;

/// The directory of a bench's images, and the number of files in each directory.
pub(super) struct ImageFolder {
    pub(super) scratch: Scratch,
    creamery: Program,
    files: u64,
}

impl ImageFolder {
    /// The place of the bench `name`. Builds the measured programs.
    pub(super) fn new(name: &str, files: u64) -> Result<Self> {
        build()?;
        Ok(Self { scratch: Scratch::new(&format!("bench-{name}"))?, creamery: Program::find()?, files })
    }

    /// A new, empty filesystem in `file`.
    pub(super) fn filesystem(&self, file: &str, bytes: u64) -> Result<PathBuf> {
        let image = self.scratch.file(file);
        empty_filesystem(&self.creamery, &image, bytes).map(|()| image)
    }

    /// Runs `creamery-bench` with so many threads.
    pub(super) fn bench(&self, workload: &str, side: &str, at: &Path, threads: usize) -> Result<Said> {
        let scale = [("--threads", threads as u64), ("--files", self.files), ("--rounds", ROUNDS)];
        bench(workload, side, at, &scale.map(|(option, value)| (option, value.to_string())))
    }
}

/// Makes an empty filesystem of ours with single metadata, and overwrites an existing image.
pub(super) fn empty_filesystem(creamery: &Program, image: &Path, bytes: u64) -> Result<()> {
    empty_image(image, bytes)?;
    creamery.run(["mkfs", "-q", "-f", "-m", "single"]).arg(image).ok().map(drop)
}

/// Makes an empty file of `bytes` bytes, and replaces an existing one.
pub(super) fn empty_image(image: &Path, bytes: u64) -> Result<()> {
    if image.exists() {
        std::fs::remove_file(image)?;
    }
    Ok(std::fs::File::create_new(image)?.set_len(bytes)?)
}

/// Makes the kernel's filesystem, and overwrites an existing one.
pub(super) fn kernel_filesystem(image: &Path, bytes: u64) -> Result<()> {
    empty_image(image, bytes)?;
    Run::new("mkfs.btrfs").args(["-q", "-f", "-m", "single", "-d", "single"]).arg(image).ok().map(drop)
}

/// The output of `creamery-bench` for one workload.
pub(super) struct Said(Value);

/// Runs `creamery-bench` in a new process, so nothing is cached. The side is `--image` or `--dir`.
pub(super) fn bench(
    workload: &str,
    side: &str,
    at: &Path,
    options: &[(impl AsRef<OsStr>, String)],
) -> Result<Said> {
    let at = at.to_str().context("a path that is no text")?.to_owned();
    let side = (OsStr::new(side), at);
    let options = options.iter().map(|(option, value)| (option.as_ref(), value.clone()));
    bench_of(&target().join("release"), workload, &[side].into_iter().chain(options).collect::<Vec<_>>())
}

/// Runs `creamery-bench` from the folder `programs`; the options name the side, too.
pub(super) fn bench_of(
    programs: &Path,
    workload: &str,
    options: &[(impl AsRef<OsStr>, String)],
) -> Result<Said> {
    let mut command = Command::new(programs.join("creamery-bench"));
    command.arg(workload);
    for (option, value) in options {
        command.arg(option).arg(value);
    }
    let output = command.output().context("starting creamery-bench")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    serde_json::from_slice(&output.stdout).map(Said).context("reading what creamery-bench says")
}

impl Said {
    /// The number `name` at the top level.
    pub(super) fn number(&self, name: &str) -> Result<f64> {
        self.0[name].as_f64().with_context(|| format!("creamery-bench says no {name}"))
    }

    /// The number at the path `names`.
    pub(super) fn at(&self, names: &[&str]) -> Result<f64> {
        let found = names.iter().fold(&self.0, |value, name| &value[name]);
        found.as_f64().with_context(|| format!("creamery-bench says no {}", names.join(".")))
    }

    /// The flag `name`, if the output has it.
    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        self.0[name].as_bool()
    }

    /// The names below the path `names`.
    pub(super) fn names(&self, names: &[&str]) -> Vec<String> {
        let found = names.iter().fold(&self.0, |value, name| &value[name]);
        found.as_object().map_or_else(Vec::new, |object| object.keys().cloned().collect())
    }

    /// The time `name` at the top level.
    pub(super) fn time(&self, name: &str) -> Result<Duration> {
        self.number(name).map(Duration::from_secs_f64)
    }

    /// The time of the work and of making it durable.
    pub(super) fn durable_time(&self) -> Result<Duration> {
        Ok(self.time("work_seconds")? + self.time("sync_seconds")?)
    }

    /// A count over all trees; 0 on a mount, which has no counters here.
    pub(super) fn trees(&self, name: &str) -> u64 {
        self.0["statistics"]["trees"][name].as_u64().unwrap_or(0)
    }

    /// A number about the waits for write locks of one level; 0 without any wait.
    pub(super) fn waits(&self, level: u64, name: &str) -> u64 {
        let locks = self.0["statistics"]["locks"].as_array();
        let lock = locks.and_then(|locks| locks.iter().find(|lock| lock["level"] == level));
        lock.and_then(|lock| lock["waited_nanos"][name].as_u64()).unwrap_or(0)
    }
}
