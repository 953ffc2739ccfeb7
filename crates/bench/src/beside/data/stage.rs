//! Runs a scene on one of the sides.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{LoopDevice, LoopMount, Run, Scratch, btrfs_check, sync_filesystem, tree};

use super::scenes::{DataScene, DataStep, DataWork, DataWorkload, Start};
use crate::library::{Said, empty_filesystem, kernel_filesystem};
use crate::programs::Programs;
use crate::server::Server;

const IMAGE_BYTES: u64 = 4 << 30;
const SEED: u64 = 20_251_121;
const LIMIT: Duration = Duration::from_secs(300);

/// The side that keeps the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DataSide {
    Library,
    Kernel,
    Mount,
    Null,
}

pub(super) const SIDES: [DataSide; 4] =
    [DataSide::Library, DataSide::Kernel, DataSide::Mount, DataSide::Null];

impl DataSide {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::Kernel => "kernel",
            Self::Mount => "mount",
            Self::Null => "null server",
        }
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepTaken {
    pub(super) operations: f64,
    /// Seconds of the work and the final sync.
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
}

/// The place of the scenes: images, a tree to copy, and the programs.
pub(super) struct DataStage {
    scratch: Scratch,
    programs: Programs,
    files: u64,
    quick: bool,
    source: Walk,
}

/// A side with an image of its own.
enum DataImage {
    Library,
    Kernel(LoopDevice),
    Mount,
    Null(Server),
}

impl DataStage {
    /// Builds the measured programs (a quick run measures nothing, so it builds without optimisation) and makes the tree.
    pub(super) fn new(files: u64, bytes: u64, quick: bool) -> Result<Self> {
        let programs = Programs::build(quick)?.with_null()?;
        let scratch = Scratch::new("bench-data")?;
        let source = scratch.dir("tree")?;
        tree::generate(&source, files, bytes, SEED)?;
        let source = Walk::take(&source)?;
        Ok(Self { scratch, programs, files, quick, source })
    }

    /// Runs `scene` on `side`. A figure counts only if everything reads back afterwards, and `btrfs check` accepts an image of ours.
    pub(super) fn play(&self, side: DataSide, scene: &DataScene) -> Result<Vec<StepTaken>> {
        let what = |step: &DataStep| format!("{}, {}: {}", side.name(), scene.name, step.name);
        let image = self.image(side, scene.start)?;
        let set = self.set(side, &image)?;
        let mut taken = Vec::new();
        for step in scene.steps {
            let said = self.step(&set, &image, step).with_context(|| what(step))?;
            taken.push(StepTaken {
                operations: said.number("operations")?,
                seconds: said.durable_time()?.as_secs_f64(),
                cpu_seconds: said.number("cpu_seconds")?,
            });
        }
        for step in scene.ends.iter().filter(|_| side != DataSide::Null) {
            self.step(&set, &image, step).with_context(|| what(step))?;
        }
        match set {
            DataImage::Kernel(device) => device.detach()?,
            DataImage::Null(server) => server.end()?,
            DataImage::Library | DataImage::Mount => btrfs_check(&image)?,
        }
        Ok(taken)
    }

    fn image(&self, side: DataSide, start: Start) -> Result<PathBuf> {
        let image = self.scratch.file("data.img");
        match (start, side) {
            (Start::Snapshot(bytes), _) => {
                let shared = self.shared(bytes)?;
                Run::new("cp").arg("--sparse=always").arg(shared).arg(&image).limit(LIMIT).ok()?;
            }
            (Start::Empty, DataSide::Library | DataSide::Mount) => {
                empty_filesystem(&self.programs.creamery, &image, IMAGE_BYTES)?;
            }
            (Start::Empty, DataSide::Kernel) => kernel_filesystem(&image, IMAGE_BYTES)?,
            (Start::Empty, DataSide::Null) => {}
        }
        Ok(image)
    }

    /// The image with a file and its snapshot, which the kernel makes once.
    fn shared(&self, bytes: u64) -> Result<PathBuf> {
        let image = self.scratch.file("shared.img");
        if image.exists() {
            return Ok(image);
        }
        kernel_filesystem(&image, IMAGE_BYTES)?;
        let mount = LoopMount::mount(&image, &self.mount_point()?, "")?;
        let (workload, mut words) = DataWork::before_snapshot(bytes).words(self.quick);
        words.push(("--dir", mount.dir().display().to_string()));
        self.programs.bench(workload, &words)?;
        let snapshot = Run::new("btrfs").args(["-q", "subvolume", "snapshot", "-r"]).arg(mount.dir());
        snapshot.arg(mount.dir().join("snapshot")).ok()?;
        sync_filesystem(mount.dir())?;
        mount.unmount()?;
        Ok(image)
    }

    fn mount_point(&self) -> Result<PathBuf> {
        self.scratch.dir("mount")
    }

    fn set(&self, side: DataSide, image: &Path) -> Result<DataImage> {
        Ok(match side {
            DataSide::Library => DataImage::Library,
            DataSide::Mount => DataImage::Mount,
            DataSide::Kernel => DataImage::Kernel(LoopDevice::attach(image, false)?),
            // The server keeps the lengths of its files only while it runs; the kernel drops its cache of them on open.
            DataSide::Null => DataImage::Null(self.programs.start_null(&self.mount_point()?)?),
        })
    }

    /// Runs one step; the filesystem is opened or mounted anew.
    fn step(&self, set: &DataImage, image: &Path, step: &DataStep) -> Result<Said> {
        let out = self.scratch.file("out");
        let (workload, mut words) = match step.work {
            DataWorkload::Data(data) => data.words(self.quick),
            DataWorkload::Tree(workload) => {
                let host = if workload == "copy-in" { self.scratch.file("tree") } else { out.clone() };
                let words = [("--files", self.files.to_string()), ("--host", host.display().to_string())];
                (workload, words.into())
            }
        };
        let dir = self.mount_point()?;
        let on_dir = ("--dir", dir.display().to_string());
        let said = match set {
            DataImage::Library => {
                words.push(("--image", image.display().to_string()));
                self.programs.bench(workload, &words)
            }
            DataImage::Kernel(device) => {
                Run::new("mount").args(["-t", "btrfs", "-o", "ssd"]).arg(device.path()).arg(&dir).ok()?;
                words.push(on_dir);
                let said = self.programs.bench(workload, &words);
                Run::new("umount").arg(&dir).limit(LIMIT).ok()?;
                said
            }
            DataImage::Mount => {
                let mut command = Command::new(self.programs.creamery.path());
                let server =
                    Server::start(command.args(["mount", "--foreground"]).arg(image).arg(&dir), &dir)?;
                let sync_by = self.programs.creamery.path().display().to_string();
                words.extend([on_dir, ("--server", server.id().to_string()), ("--sync-by", sync_by)]);
                let said = self.programs.bench(workload, &words);
                server.end()?;
                said
            }
            DataImage::Null(server) => {
                words.extend([on_dir, ("--server", server.id().to_string()), ("--zeros", "on".to_owned())]);
                self.programs.bench(workload, &words)
            }
        }?;
        if workload == "copy-out" {
            let compare = Compare { holes: false, ..Compare::default() };
            expect_same("what was copied in and out", &self.source, &Walk::take(&out)?, &compare)?;
            std::fs::remove_dir_all(&out)?;
        }
        Ok(said)
    }
}
