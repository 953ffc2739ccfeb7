//! A set of image files that the kernel makes and fills, and its mounts of them: each member a loop device over its file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use creamery_testkit::{LoopDevice, Run, Scratch};

const FILL_LIMIT: Duration = Duration::from_secs(600);

/// Its files.
pub(super) struct KernelSet {
    pub(super) files: Vec<PathBuf>,
    dir: PathBuf,
}

impl KernelSet {
    /// `count` members of `bytes` bytes in the place of what is there, made by `mkfs.btrfs` with these words and filled by `fill`.
    pub(super) fn make(
        scratch: &Scratch,
        (count, bytes): (usize, u64),
        words: &[&str],
        fill: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Self> {
        let files: Vec<PathBuf> =
            (0..count).map(|number| scratch.file(&format!("member-{number}.img"))).collect();
        for file in &files {
            let _ = std::fs::remove_file(file);
            std::fs::File::create_new(file)?.set_len(bytes)?;
        }
        let set = Self { files, dir: scratch.dir("mounted")? };
        let loops = set.attach()?;
        Run::new("mkfs.btrfs")
            .args(["-q", "-f"])
            .args(words)
            .args(loops.iter().map(LoopDevice::path))
            .ok()?;
        set.on_mount(loops, "", fill)?;
        Ok(set)
    }

    fn attach(&self) -> Result<Vec<LoopDevice>> {
        self.files.iter().map(|file| LoopDevice::attach(file, false)).collect()
    }

    /// What `body` gives on the kernel's mount of all members with these options.
    pub(super) fn mounted<T>(&self, options: &str, body: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        self.on_mount(self.attach()?, options, body)
    }

    fn on_mount<T>(
        &self,
        loops: Vec<LoopDevice>,
        options: &str,
        body: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<T> {
        let paths = || loops.iter().map(LoopDevice::path);
        Run::new("btrfs").args(["device", "scan"]).args(paths()).ok()?;
        let options = if options.is_empty() { "noatime".to_owned() } else { format!("noatime,{options}") };
        let first = loops.first().context("a set has a member")?.path();
        Run::new("mount").args(["-t", "btrfs", "-o", &options]).args([first, &self.dir]).ok()?;
        let done = body(&self.dir);
        Run::new("umount").arg(&self.dir).limit(FILL_LIMIT).again_while_busy().ok()?;
        Run::new("btrfs").args(["device", "scan", "--forget"]).args(paths()).ok()?;
        loops.into_iter().try_for_each(LoopDevice::detach)?;
        done
    }
}
