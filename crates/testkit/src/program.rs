//! Finds the program under test.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::Run;

/// The built `creamery`.
///
/// ```no_run
/// use creamery_testkit::Program;
/// let creamery = Program::find().unwrap();
/// creamery.run(["ls", "disk.img:/"]).ok().unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
}

impl Program {
    /// `CREAMERY_BIN`, or `release/creamery` in the target folder of this workspace.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn find() -> Result<Self> {
        if let Some(path) = std::env::var_os("CREAMERY_BIN").map(PathBuf::from) {
            if !path.is_file() {
                bail!("CREAMERY_BIN names {}, which is not a file", path.display());
            }
            return Ok(Self { path });
        }
        let path = target_dir().join("release/creamery");
        if !path.is_file() {
            bail!("{} is not built: cargo build --release", path.display());
        }
        Ok(Self { path: path.canonicalize().context("resolving the program's path")? })
    }

    /// The one at `path`.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Puts a copy of it at `path`. Another process writes the copy: what this one has open for writing, a program that another thread
    /// starts has open too for a moment, and the kernel then runs no such file (`ETXTBSY`).
    ///
    /// # Errors
    /// Those of cp(1).
    pub fn copy_to(&self, path: &Path) -> Result<()> {
        Run::new("cp").arg("--").arg(&self.path).arg(path).ok().map(drop)
    }

    /// A run of it with `args`. Logs of its mounts do not go where those of the host are.
    #[must_use]
    pub fn run<I: IntoIterator<Item = S>, S: AsRef<std::ffi::OsStr>>(&self, args: I) -> Run {
        let logs = crate::scratch_root().join("creamery-test-logs");
        Run::new(&self.path).args(args).env("XDG_STATE_HOME", logs)
    }
}

fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
    }
}
