//! Runs the work on one of the sides.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use creamery_testkit::{Run, Scratch, btrfs_check};

use super::backing::Backing;
use super::fio::fio;
use super::nowait;
use super::taken::{DirectScale, DirectTaken};
use crate::library::Said;
use crate::programs::Programs;
use crate::server::Server;

const THREADS: u64 = 4;
const DEPTH: u64 = 64;
/// The name of the file on a mount.
const FILE: &str = "direct";
const LIMIT: Duration = Duration::from_secs(300);

/// The side that has the file, and the program that works on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DirectSide {
    Library,
    Kernel,
    Bare,
    KernelFio,
    MountFio,
    BareFio,
}

pub(super) const SIDES: [DirectSide; 6] = [
    DirectSide::Library,
    DirectSide::Kernel,
    DirectSide::Bare,
    DirectSide::KernelFio,
    DirectSide::MountFio,
    DirectSide::BareFio,
];

impl DirectSide {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::Kernel => "kernel",
            Self::Bare => "bare",
            Self::KernelFio => "kernel, fio",
            Self::MountFio => "mount, fio",
            Self::BareFio => "bare, fio",
        }
    }

    /// Whether the side runs with this kind of data: without a filesystem there are no checksums.
    pub(super) const fn plays(self, data: DataKind) -> bool {
        !matches!((self, data), (Self::Bare | Self::BareFio, DataKind::Summed))
    }
}

/// The kind of the file's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DataKind {
    /// Overwritten in place (`nodatacow`).
    InPlace,
    /// Written to new space, with checksums.
    Summed,
}

impl DataKind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::InPlace => "nodatacow",
            Self::Summed => "checksums",
        }
    }

    const fn option(self) -> &'static str {
        match self {
            Self::InPlace => "nodatacow",
            Self::Summed => "datacow",
        }
    }
}

type DirectOption = (&'static str, String);

/// The programs.
pub(super) struct DirectStage {
    scratch: Scratch,
    programs: Programs,
    scale: DirectScale,
}

impl DirectStage {
    pub(super) fn new(scale: DirectScale, quick: bool) -> Result<Self> {
        Ok(Self { programs: Programs::build(quick)?, scratch: Scratch::new("bench-direct")?, scale })
    }

    /// Runs on a fresh filesystem, if the side has one. A figure counts only if `btrfs check` accepts an image of ours.
    pub(super) fn play(&self, backing: &Backing, side: DirectSide, data: DataKind) -> Result<DirectTaken> {
        let taken = match side {
            DirectSide::Library => self
                .on_library(backing, data, self.words("allocated", DEPTH))
                .and_then(|said| DirectTaken::of(&said)),
            DirectSide::Kernel => self.on_kernel(backing, data, |file| self.bench("allocated", file)),
            DirectSide::Bare => self.bench("there", backing.path()),
            DirectSide::KernelFio => self.on_kernel(backing, data, |file| fio(file, &[], self.scale)),
            DirectSide::MountFio => self.on_mount(backing, data),
            DirectSide::BareFio => fio(backing.path(), &[], self.scale),
        };
        taken.with_context(|| format!("{}, {}: {}", backing.kind().name(), data.name(), side.name()))
    }

    /// Runs requests that must not wait, through the library.
    pub(super) fn nowait(&self, backing: &Backing, row: nowait::NowaitRow) -> Result<Said> {
        let mut words = self.words(row.prepared, row.depth);
        words.extend([("--queue", "try".to_owned()), ("--overlap", row.overlap.to_owned())]);
        self.on_library(backing, DataKind::InPlace, words).with_context(|| row.name)
    }

    fn words(&self, prepared: &str, depth: u64) -> Vec<DirectOption> {
        let DirectScale { bytes, seconds } = self.scale;
        let numbers =
            [("--threads", THREADS), ("--depth", depth), ("--bytes", bytes), ("--seconds", seconds)];
        let prepared = ("--prepared", prepared.to_owned());
        numbers.map(|(name, number)| (name, number.to_string())).into_iter().chain([prepared]).collect()
    }

    /// Runs our own generator on a file of the host.
    fn bench(&self, prepared: &str, file: &Path) -> Result<DirectTaken> {
        let mut words = self.words(prepared, DEPTH);
        words.push(("--file", file.display().to_string()));
        DirectTaken::of(&self.programs.bench("direct", &words)?)
    }

    fn on_library(&self, backing: &Backing, data: DataKind, mut words: Vec<DirectOption>) -> Result<Said> {
        self.mkfs(backing)?;
        let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
        words.push(("--image", backing.path().display().to_string()));
        words.push(("--nodatacow", switch(data == DataKind::InPlace)));
        words.push(("--direct-io", switch(backing.is_direct())));
        let said = self.programs.bench("direct", &words)?;
        btrfs_check(backing.image())?;
        Ok(said)
    }

    fn on_kernel(
        &self,
        backing: &Backing,
        data: DataKind,
        run: impl FnOnce(&Path) -> Result<DirectTaken>,
    ) -> Result<DirectTaken> {
        let dir = self.mount_point()?;
        backing.on_device(|device| {
            let mkfs = Run::new("mkfs.btrfs").args(["-q", "-f", "-K", "-m", "single", "-d", "single"]);
            mkfs.arg(device).ok()?;
            let options = format!("ssd,nodiscard,{}", data.option());
            Run::new("mount").args(["-t", "btrfs", "-o", &options]).arg(device).arg(&dir).ok()?;
            let taken = run(&dir.join(FILE));
            Run::new("umount").arg(&dir).limit(LIMIT).ok()?;
            taken
        })
    }

    fn on_mount(&self, backing: &Backing, data: DataKind) -> Result<DirectTaken> {
        self.mkfs(backing)?;
        let dir = self.mount_point()?;
        let mut command = Command::new(self.programs.creamery.path());
        command.args(["mount", "--foreground", "-o", data.option()]);
        if backing.is_direct() {
            command.arg("--direct-io");
        }
        let server = Server::start(command.arg(backing.path()).arg(&dir), &dir)?;
        let taken = fio(&dir.join(FILE), &[server.id()], self.scale);
        server.end()?;
        btrfs_check(backing.image())?;
        taken
    }

    /// Makes a filesystem without discarding: the backing stays written.
    fn mkfs(&self, backing: &Backing) -> Result<()> {
        let mkfs = self.programs.creamery.run(["mkfs", "-q", "-f", "-K", "-m", "single"]);
        mkfs.arg(backing.path()).ok().map(drop)
    }

    fn mount_point(&self) -> Result<PathBuf> {
        self.scratch.dir("mount")
    }
}
