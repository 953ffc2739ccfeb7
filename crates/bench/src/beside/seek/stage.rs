//! Goes through a sparse file on one of the sides.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use creamery_testkit::{LoopDevice, Run, Scratch, btrfs_check, sync_filesystem};

use crate::library::{Said, empty_filesystem, kernel_filesystem};
use crate::programs::Programs;
use crate::server::Server;

/// Bytes of the image. It is sparse, so it costs only its data. Each delayed extent reserves metadata: 64 GiB have room for 49,000 of them,
/// this image for a million.
const IMAGE_BYTES: u64 = 4 << 40;
/// Limit of delayed data, MiB. Background writeback begins at an eighth of it: no file here has that much.
const DELAYED_MIB: u64 = 65_536;
/// Bytes of a piece of data and of the hole behind it.
pub(super) const STEP: u64 = 8192;
const LIMIT: Duration = Duration::from_secs(900);

/// The side that has the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SeekSide {
    Kernel,
    Library,
    Without,
    Mount,
    Null,
}

pub(super) const SIDES: [SeekSide; 5] =
    [SeekSide::Kernel, SeekSide::Library, SeekSide::Without, SeekSide::Mount, SeekSide::Null];

/// The state of the file before the scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ScannedState {
    Dirty,
    Flushed,
    Cold,
}

pub(super) const STATES: [ScannedState; 3] = [ScannedState::Dirty, ScannedState::Flushed, ScannedState::Cold];

impl ScannedState {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Dirty => "dirty",
            Self::Flushed => "flushed",
            Self::Cold => "cold",
        }
    }
}

/// The result of a scan.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanTaken {
    pub(super) calls: f64,
    pub(super) extents: f64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    /// Seconds of a second scan, which read the data, too.
    pub(super) reading_seconds: Option<f64>,
    /// Whether the file was still in memory only at the end, where that is reported.
    pub(super) is_delayed: Option<bool>,
}

impl ScanTaken {
    fn of(said: &Said) -> Result<Self> {
        Ok(Self {
            calls: said.number("operations")?,
            extents: said.number("extents")?,
            seconds: said.number("work_seconds")?,
            cpu_seconds: said.number("cpu_seconds")?,
            reading_seconds: said.at(&["reading", "work_seconds"]).ok(),
            is_delayed: said.flag("is_delayed"),
        })
    }
}

/// The images and programs of the bench.
pub(super) struct SeekStage {
    pub(super) scratch: Scratch,
    pub(super) programs: Programs,
}

type SeekOptions = Vec<(&'static str, String)>;

/// A side with an image of its own.
enum SeekImage {
    Library { cursors: bool },
    Kernel(LoopDevice),
    Mount,
    Null(Server),
}

impl SeekStage {
    /// Builds the measured programs; a quick run measures nothing, so it builds without optimisation.
    pub(super) fn new(quick: bool) -> Result<Self> {
        let programs = Programs::build(quick)?.with_null()?;
        Ok(Self { scratch: Scratch::new("bench-seek")?, programs })
    }

    pub(super) fn image(&self) -> PathBuf {
        self.scratch.file("seek.img")
    }

    fn mount_point(&self) -> Result<PathBuf> {
        self.scratch.dir("mount")
    }

    fn set(&self, side: SeekSide) -> Result<SeekImage> {
        let image = self.image();
        match side {
            SeekSide::Kernel => kernel_filesystem(&image, IMAGE_BYTES)?,
            SeekSide::Null => {}
            SeekSide::Library | SeekSide::Without | SeekSide::Mount => self.empty()?,
        }
        Ok(match side {
            SeekSide::Kernel => SeekImage::Kernel(LoopDevice::attach(&image, false)?),
            SeekSide::Library => SeekImage::Library { cursors: true },
            SeekSide::Without => SeekImage::Library { cursors: false },
            SeekSide::Mount => SeekImage::Mount,
            SeekSide::Null => SeekImage::Null(self.programs.start_null(&self.mount_point()?)?),
        })
    }

    /// Makes a new filesystem of ours.
    pub(super) fn empty(&self) -> Result<()> {
        empty_filesystem(&self.programs.creamery, &self.image(), IMAGE_BYTES)
    }

    /// Ends a set. A figure counts only if an image of ours is accepted.
    fn end(&self, set: SeekImage) -> Result<()> {
        match set {
            SeekImage::Kernel(device) => device.detach(),
            SeekImage::Null(server) => server.end(),
            SeekImage::Library { .. } | SeekImage::Mount => btrfs_check(&self.image()),
        }
    }

    /// Goes through a file of `bytes` bytes in each of the states; the filesystem is opened or mounted anew for each.
    pub(super) fn play(&self, side: SeekSide, bytes: u64, states: &[ScannedState]) -> Result<Vec<ScanTaken>> {
        let set = self.set(side)?;
        let mut taken = Vec::new();
        for state in states {
            let what = || format!("{side:?}, {} of {bytes} bytes", state.name());
            // For a dirty file the kernel needs the same long time again for the second scan.
            let reading = if *state == ScannedState::Dirty { "off" } else { "on" };
            let words: SeekOptions = vec![
                ("--bytes", bytes.to_string()),
                ("--state", state.name().to_owned()),
                ("--reading", reading.to_owned()),
            ];
            let said = self.step(&set, "seek", words).with_context(what)?;
            taken.push(ScanTaken::of(&said).with_context(what)?);
        }
        self.end(set)?;
        Ok(taken)
    }

    /// Runs one workload; the filesystem is opened or mounted anew.
    fn step(&self, set: &SeekImage, workload: &str, mut words: SeekOptions) -> Result<Said> {
        let dir = self.mount_point()?;
        let on_dir = ("--dir", dir.display().to_string());
        match set {
            SeekImage::Library { cursors } => {
                words.push(("--seek-cursors", if *cursors { "on" } else { "off" }.to_owned()));
                self.library(workload, words)
            }
            SeekImage::Null(server) => {
                words.extend([on_dir, ("--server", server.id().to_string()), ("--zeros", "on".to_owned())]);
                self.programs.bench(workload, &words)
            }
            SeekImage::Kernel(device) => self.mounted(device, &dir, || {
                words.push(on_dir);
                self.programs.bench(workload, &words)
            }),
            SeekImage::Mount => self.served(&dir, |server| {
                let sync_by = self.programs.creamery.path().display().to_string();
                words.extend([on_dir, ("--server", server.id().to_string()), ("--sync-by", sync_by)]);
                self.programs.bench(workload, &words)
            }),
        }
    }

    /// Runs one workload on the image, through the library.
    pub(super) fn library(&self, workload: &str, mut words: SeekOptions) -> Result<Said> {
        words.push(("--image", self.image().display().to_string()));
        words.push(("--delayed-mib", DELAYED_MIB.to_string()));
        self.programs.bench(workload, &words)
    }

    fn mounted<T>(&self, device: &LoopDevice, dir: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
        Run::new("mount").args(["-t", "btrfs", "-o", "ssd"]).arg(device.path()).arg(dir).ok()?;
        let done = work();
        Run::new("umount").arg(dir).limit(LIMIT).ok()?;
        done
    }

    fn served<T>(&self, dir: &Path, work: impl FnOnce(&Server) -> Result<T>) -> Result<T> {
        let mut command = Command::new(self.programs.creamery.path());
        let server = Server::start(command.args(["mount", "--foreground"]).arg(self.image()).arg(dir), dir)?;
        let done = work(&server);
        server.end()?;
        done
    }

    /// Seconds of `cp FILE /dev/null` in each of the states, for the kernel or the mount.
    pub(super) fn copies(&self, side: SeekSide, bytes: u64) -> Result<[f64; 3]> {
        let (set, dir) = (self.set(side)?, self.mount_point()?);
        let file = dir.join("sparse-dirty");
        let warm = || {
            let words: SeekOptions = vec![
                ("--bytes", bytes.to_string()),
                ("--state", "dirty".to_owned()),
                ("--dir", dir.display().to_string()),
            ];
            self.programs.bench("sparse", &words)?;
            let dirty = copy(&file)?;
            match side {
                SeekSide::Kernel => sync_filesystem(&dir)?,
                _ => drop(self.programs.creamery.run(["sync"]).arg(&dir).limit(LIMIT).ok()?),
            }
            Ok([dirty, copy(&file)?])
        };
        let cold = || copy(&file);
        let ([dirty, flushed], cold) = match &set {
            SeekImage::Kernel(device) => {
                (self.mounted(device, &dir, warm)?, self.mounted(device, &dir, cold)?)
            }
            _ => (self.served(&dir, |_| warm())?, self.served(&dir, |_| cold())?),
        };
        self.end(set)?;
        Ok([dirty, flushed, cold])
    }
}

fn copy(file: &Path) -> Result<f64> {
    let start = Instant::now();
    Run::new("cp").arg(file).arg("/dev/null").limit(LIMIT).ok()?;
    Ok(start.elapsed().as_secs_f64())
}
