//! Runs a scene in one of the ways.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use creamery_testkit::{CpuMeter, LoopDevice, Run, Scratch, btrfs_check};
use serde_json::Value;

use crate::library::{Said, empty_filesystem, kernel_filesystem};
use crate::programs::Programs;
use crate::server::Server;

const IMAGE_BYTES: u64 = 6 << 30;
const LIMIT: Duration = Duration::from_secs(300);
const FIO_SECONDS: f64 = 8.0;

/// The side that keeps the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Who {
    Library,
    Kernel,
    Mount,
    Null,
}

/// A side, and its options.
pub(super) struct SideOptions {
    pub(super) name: &'static str,
    pub(super) who: Who,
    /// Mount options of the side.
    mount: &'static str,
    /// Options of `creamery-bench`, for the library.
    words: &'static [(&'static str, &'static str)],
}

impl SideOptions {
    pub(super) const fn new(name: &'static str, who: Who) -> Self {
        Self { name, who, mount: "", words: &[] }
    }

    pub(super) const fn mount(self, mount: &'static str) -> Self {
        Self { mount, ..self }
    }

    pub(super) const fn words(self, words: &'static [(&'static str, &'static str)]) -> Self {
        Self { words, ..self }
    }
}

/// A workload.
#[derive(Clone, Copy)]
pub(super) enum DurableWork {
    /// `creamery-bench`.
    Bench {
        workload: &'static str,
        threads: u64,
        bytes: u64,
        piece: u64,
        pieces: u64,
        sync_every: u64,
        random: bool,
    },
    /// fio, in the existing files.
    Fio,
}

impl DurableWork {
    /// One file of `bytes` bytes for each thread.
    pub(super) const fn files(workload: &'static str, threads: u64, bytes: u64) -> Self {
        Self::Bench { workload, threads, bytes, piece: 4096, pieces: 0, sync_every: 0, random: false }
    }
}

/// Changes one field of a workload of `creamery-bench`.
macro_rules! with {
    ($($field:ident: $type:ty),*) => {
        impl DurableWork {
            $(pub(super) const fn $field(mut self, to: $type) -> Self {
                if let Self::Bench { $field, .. } = &mut self {
                    *$field = to;
                }
                self
            })*

            pub(super) const fn random(mut self) -> Self {
                if let Self::Bench { random, .. } = &mut self {
                    *random = true;
                }
                self
            }
        }
    };
}
with!(workload: &'static str, piece: u64, pieces: u64, sync_every: u64);

/// A workload, and the ways that are compared.
pub(super) struct DurableScene {
    pub(super) name: &'static str,
    /// The workload that makes the files, unless `work` does.
    pub(super) before: Option<DurableWork>,
    pub(super) work: DurableWork,
    /// The workload that reads the files back at the end.
    pub(super) after: Option<DurableWork>,
    pub(super) ways: &'static [SideOptions],
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct DurableTaken {
    /// Writes a second.
    pub(super) rate: f64,
    /// Median time of making a write durable, microseconds.
    pub(super) median: f64,
    pub(super) p99: f64,
    /// CPU time of a write with its part of the fsync, microseconds.
    pub(super) cpu: f64,
}

/// The programs, and the directory of images.
pub(super) struct DurableStage {
    scratch: Scratch,
    programs: Programs,
}

/// A side with an image of its own.
enum DurableImage {
    Library(PathBuf),
    Kernel(LoopDevice),
    Mount(PathBuf),
    Null(Server),
}

impl DurableStage {
    pub(super) fn new(name: &str) -> Result<Self> {
        let programs = Programs::build(false)?.with_null()?;
        Ok(Self { scratch: Scratch::new(&format!("bench-{name}"))?, programs })
    }

    /// Runs `scene` on a fresh filesystem.
    pub(super) fn play(&self, way: &SideOptions, scene: &DurableScene) -> Result<DurableTaken> {
        self.fresh(way, |set| {
            if let Some(work) = &scene.before {
                self.at(way, set, |at| self.step(work, &at))?;
            }
            let taken = self.at(way, set, |at| self.step(&scene.work, &at))?;
            if let Some(work) = scene.after.as_ref().filter(|_| way.who != Who::Null) {
                self.at(way, set, |at| self.step(work, &at))?;
            }
            taken.context("nothing was made durable")
        })
    }

    /// Calls `run` with a fresh filesystem. Its result counts only if `btrfs check` accepts an image of ours.
    fn fresh<T>(&self, way: &SideOptions, run: impl FnOnce(&DurableImage) -> Result<T>) -> Result<T> {
        let set = self.set(way.who)?;
        let found = run(&set)?;
        match set {
            DurableImage::Kernel(device) => device.detach()?,
            DurableImage::Null(server) => server.end()?,
            DurableImage::Library(image) | DurableImage::Mount(image) => btrfs_check(&image)?,
        }
        Ok(found)
    }

    /// Calls `run` with a fresh filesystem that is opened or mounted once.
    pub(super) fn once<T>(&self, way: &SideOptions, run: impl FnOnce(At<'_>) -> Result<T>) -> Result<T> {
        self.fresh(way, |set| self.at(way, set, run))
    }

    /// The output of `creamery-bench` for a workload.
    pub(super) fn bench(&self, workload: &str, at: &At<'_>, mut words: Vec<BenchOption>) -> Result<Said> {
        words.extend(at.words.iter().cloned());
        self.programs.bench(workload, &words).with_context(|| workload.to_owned())
    }

    fn set(&self, who: Who) -> Result<DurableImage> {
        let image = self.scratch.file("durable.img");
        Ok(match who {
            Who::Library | Who::Mount => {
                empty_filesystem(&self.programs.creamery, &image, IMAGE_BYTES)?;
                if who == Who::Mount { DurableImage::Mount(image) } else { DurableImage::Library(image) }
            }
            Who::Kernel => {
                kernel_filesystem(&image, IMAGE_BYTES)?;
                DurableImage::Kernel(LoopDevice::attach(&image, false)?)
            }
            Who::Null => DurableImage::Null(self.programs.start_null(&self.mount_point()?)?),
        })
    }

    fn mount_point(&self) -> Result<PathBuf> {
        self.scratch.dir("mount")
    }

    /// Calls `run` with the filesystem, opened or mounted anew.
    fn at<T>(
        &self,
        way: &SideOptions,
        set: &DurableImage,
        run: impl FnOnce(At<'_>) -> Result<T>,
    ) -> Result<T> {
        let dir = self.mount_point()?;
        match set {
            DurableImage::Library(image) => {
                let words = way.words.iter().map(|(option, value)| (*option, (*value).to_owned()));
                let image = ("--image", image.display().to_string());
                run(At { words: words.chain([image]).collect(), dir: None, servers: &[] })
            }
            DurableImage::Kernel(device) => {
                let options = ["ssd", way.mount].join(",");
                let mount = Run::new("mount").args(["-t", "btrfs", "-o"]).arg(options.trim_end_matches(','));
                mount.arg(device.path()).arg(&dir).ok()?;
                let found = run(At::dir(&dir, &[], None));
                Run::new("umount").arg(&dir).limit(LIMIT).ok()?;
                found
            }
            DurableImage::Mount(image) => {
                let mut command = Command::new(self.programs.creamery.path());
                command.args(["mount", "--foreground"]);
                if !way.mount.is_empty() {
                    command.args(["-o", way.mount]);
                }
                let server = Server::start(command.arg(image).arg(&dir), &dir)?;
                let found = run(At::dir(&dir, &[server.id()], Some(self.programs.creamery.path())));
                server.end()?;
                found
            }
            DurableImage::Null(server) => run(At::dir(&dir, &[server.id()], None)),
        }
    }

    fn step(&self, work: &DurableWork, at: &At<'_>) -> Result<Option<DurableTaken>> {
        let DurableWork::Bench { workload, threads, bytes, piece, pieces, sync_every, random } = *work else {
            return fio(at.mounted()?, at.servers).map(Some);
        };
        let numbers = [
            ("--threads", threads),
            ("--bytes", bytes),
            ("--piece", piece),
            ("--pieces", pieces),
            ("--sync-every", sync_every),
        ];
        let mut words: Vec<BenchOption> = numbers.map(|(option, number)| (option, number.to_string())).into();
        words.push(("--order", if random { "random" } else { "sequential" }.to_owned()));
        let said = self.bench(workload, at, words)?;
        if sync_every == 0 {
            return Ok(None);
        }
        let operations = said.number("operations")?;
        Ok(Some(DurableTaken {
            rate: operations / said.time("work_seconds")?.as_secs_f64(),
            median: said.at(&["synced", "median_seconds"])? * 1e6,
            p99: said.at(&["synced", "p99_seconds"])? * 1e6,
            cpu: said.number("cpu_seconds")? * 1e6 / operations,
        }))
    }
}

/// An option of `creamery-bench`.
pub(super) type BenchOption = (&'static str, String);

/// The place of a step.
pub(super) struct At<'a> {
    /// The options that name it for `creamery-bench`.
    words: Vec<BenchOption>,
    /// The mounted directory, if there is one.
    dir: Option<&'a Path>,
    pub(super) servers: &'a [u32],
}

impl<'a> At<'a> {
    fn dir(dir: &'a Path, servers: &'a [u32], sync_by: Option<&Path>) -> Self {
        let mut words = vec![("--dir", dir.display().to_string())];
        words.extend(servers.iter().map(|server| ("--server", server.to_string())));
        words.extend(sync_by.map(|program| ("--sync-by", program.display().to_string())));
        Self { words, dir: Some(dir), servers }
    }

    /// The mounted directory. Errors: the library has none.
    pub(super) fn mounted(&self) -> Result<&'a Path> {
        self.dir.context("the program wants a mounted directory")
    }
}

/// The fio job whose author measured the worth of releasing the tree early; it runs for `FIO_SECONDS`.
fn fio(dir: &Path, servers: &[u32]) -> Result<DurableTaken> {
    let job = Run::new("fio").args([
        "--name=writers",
        "--rw=randwrite",
        "--bs=4k",
        "--fsync=2",
        "--fallocate=none",
    ]);
    let job =
        job.args(["--direct=0", "--ioengine=sync", "--size=64m", "--numjobs=16", "--group_reporting=1"]);
    let job = job.args(["--filename_format=data-$jobnum", "--time_based", "--output-format=json"]);
    let job = job.arg(format!("--runtime={FIO_SECONDS}")).arg(format!("--directory={}", dir.display()));
    let cpu = CpuMeter::start(servers)?;
    let said: Value = serde_json::from_slice(&job.limit(LIMIT).ok()?.stdout).context("what fio says")?;
    let cpu = cpu.elapsed()?;
    let number = |names: &[&str]| {
        let found = names.iter().fold(&said["jobs"][0], |value, name| &value[*name]);
        found.as_f64().with_context(|| format!("fio says no {}", names.join(".")))
    };
    let writes = number(&["write", "total_ios"])?;
    Ok(DurableTaken {
        rate: number(&["write", "iops"])?,
        median: number(&["sync", "lat_ns", "percentile", "50.000000"])? / 1e3,
        p99: number(&["sync", "lat_ns", "percentile", "99.000000"])? / 1e3,
        cpu: cpu.as_secs_f64() * 1e6 / writes,
    })
}
