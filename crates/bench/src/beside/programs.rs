//! The programs that benches with sides run, built as they are measured.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use creamery_testkit::Program;

use super::library::{RELEASE, Said, bench_of, build_bench};
use super::server::{Server, build_null, server_threads};
use creamery_workspace::with_faults;
use creamery_workspace::{build_program, target};

/// `creamery`, `creamery-bench`, and the server that does nothing.
pub(super) struct Programs {
    pub(super) creamery: Program,
    /// How the others are built.
    words: Vec<&'static str>,
    /// The folder that has the others.
    folder: PathBuf,
}

impl Programs {
    /// Builds the first two; in a quick run, which measures nothing, `creamery-bench` as tests are built.
    pub(super) fn build(quick: bool) -> Result<Self> {
        let (words, folder) =
            if quick { (with_faults(&["build"]), "debug") } else { (RELEASE.to_vec(), "release") };
        build_program()?;
        build_bench(&words)?;
        Ok(Self { creamery: Program::find()?, words, folder: target().join(folder) })
    }

    /// Builds the server that does nothing, too.
    pub(super) fn with_null(self) -> Result<Self> {
        build_null(&self.words)?;
        Ok(self)
    }

    /// Runs `creamery-bench` in a process of its own.
    pub(super) fn bench(&self, workload: &str, options: &[(impl AsRef<OsStr>, String)]) -> Result<Said> {
        bench_of(&self.folder, workload, options)
    }

    /// Has the server that does nothing serve `dir`.
    pub(super) fn start_null(&self, dir: &Path) -> Result<Server> {
        let mut command = Command::new(self.folder.join("examples/null"));
        Server::start(command.args(["--threads", &server_threads()]).arg(dir), dir)
    }
}
