//! A mount made by the program under test, undone when dropped.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{Program, Run};

/// `creamery mount IMAGE DIR` that is unmounted when it goes.
///
/// ```no_run
/// use creamery_testkit::{FuseMount, Program};
/// let mount = FuseMount::mount(&Program::find().unwrap(), "disk.img".as_ref(), "/mnt".as_ref(), "").unwrap();
/// mount.unmount().unwrap();
/// ```
pub struct FuseMount {
    program: Program,
    dir: PathBuf,
    mounted: bool,
}

impl FuseMount {
    /// Mounts `image` on `dir` (made when it does not exist) with `options`, a list with commas or nothing.
    ///
    /// # Errors
    /// When the program refuses, or returns before anything is mounted.
    pub fn mount(program: &Program, image: &Path, dir: &Path, options: &str) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let mut args: Vec<&OsStr> = vec!["mount".as_ref()];
        if !options.is_empty() {
            args.extend([OsStr::new("-o"), OsStr::new(options)]);
        }
        args.extend([image.as_os_str(), dir.as_os_str()]);
        program.run(args).ok()?;
        Self::adopt(program, dir)
    }

    /// Takes over what a run of the program's has mounted on `dir`.
    ///
    /// # Errors
    /// When nothing is mounted there.
    pub fn adopt(program: &Program, dir: &Path) -> Result<Self> {
        let mount = Self { program: program.clone(), dir: dir.to_owned(), mounted: true };
        if !is_mounted(dir)? {
            bail!("creamery mount returned, and nothing is mounted on {}", dir.display());
        }
        Ok(mount)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// `creamery umount DIR`; the image is closed and durable when this returns.
    ///
    /// # Errors
    /// When the program fails, or the mount is still there; when data that it accepted found no space.
    pub fn unmount(mut self) -> Result<()> {
        self.ensure_room_was_kept()?;
        self.program.run([OsStr::new("umount"), self.dir.as_os_str()]).again_while_busy().ok()?;
        if is_mounted(&self.dir)? {
            bail!("creamery umount returned, and {} is still mounted", self.dir.display());
        }
        self.mounted = false;
        Ok(())
    }
}

impl FuseMount {
    /// Data that waits in memory has room kept for it, so it finds space (DELALLOC-8). A mount that does not tell its statistics any
    /// more is not asked.
    fn ensure_room_was_kept(&self) -> Result<()> {
        let asked = self.program.run([OsStr::new("stats"), OsStr::new("--json"), self.dir.as_os_str()]);
        let told = asked.output()?.stdout_text();
        let Some((_, figure)) = told.split_once("\"no_space\":") else { return Ok(()) };
        let figure: String = figure.trim_start().chars().take_while(char::is_ascii_digit).collect();
        match figure.as_str() {
            "0" => Ok(()),
            failed => {
                bail!("DELALLOC-8: {failed} runs of delayed data found no space, and room was kept for them")
            }
        }
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        if !self.mounted {
            return;
        }
        let quiet = self.program.run([OsStr::new("umount"), self.dir.as_os_str()]).ok();
        if quiet.is_err() {
            let _ = Run::new("umount").arg("-f").arg(&self.dir).output();
            let _ = Run::new("umount").arg("-l").arg(&self.dir).output();
        }
    }
}

fn is_mounted(dir: &Path) -> Result<bool> {
    let dir = dir.canonicalize().with_context(|| format!("resolving {}", dir.display()))?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").context("reading /proc/self/mounts")?;
    let point = dir.to_string_lossy();
    Ok(mounts.lines().any(|line| line.split(' ').nth(1) == Some(&*point)))
}

/// The other process that has an image open: the server of its mount.
///
/// # Errors
/// There is none.
pub fn daemon(image: &Path) -> Result<u32> {
    for process in std::fs::read_dir("/proc")? {
        let process = process?.path();
        let Some(id) = process.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()) else {
            continue;
        };
        if id == std::process::id() {
            continue; // the caller may have it open, too
        }
        let Ok(descriptors) = std::fs::read_dir(process.join("fd")) else { continue };
        let holds =
            descriptors.flatten().any(|fd| std::fs::read_link(fd.path()).is_ok_and(|path| path == image));
        if holds {
            return Ok(id);
        }
    }
    bail!("no process has {} open", image.display())
}
