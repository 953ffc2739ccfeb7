//! Servers of mounts, for as long as they are measured.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use creamery_testkit::Run;

use creamery_workspace::{cargo, run};

const LIMIT: Duration = Duration::from_secs(300);
const MOUNT_LIMIT: Duration = Duration::from_secs(20);

/// A server in the foreground, which ends when its mount does. All servers are children of this process and none a daemon: the
/// scheduler shares out time by session first, and they are to be measured alike. None outlives its run.
pub(super) struct Server {
    process: Child,
    dir: PathBuf,
}

impl Server {
    /// Starts `command`, and returns when something is mounted on `dir`.
    pub(super) fn start(command: &mut Command, dir: &Path) -> Result<Self> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = quiet.spawn().with_context(|| format!("starting {command:?}"))?;
        let mut server = Self { process, dir: dir.to_owned() };
        let deadline = Instant::now() + MOUNT_LIMIT;
        while Run::new("mountpoint").arg("-q").arg(dir).output()?.code != Some(0) {
            ensure!(server.process.try_wait()?.is_none(), "the server ended before anything was mounted");
            ensure!(Instant::now() < deadline, "nothing is mounted after {} s", MOUNT_LIMIT.as_secs());
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Unmounts, and insists that the server ends well.
    pub(super) fn end(mut self) -> Result<()> {
        Run::new("umount").arg(&self.dir).limit(LIMIT).ok()?;
        let status = self.process.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already when all went well.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Builds the server of ours that does nothing; it lies in `examples/null` of the profile's folder.
pub(super) fn build_null(words: &[&str]) -> Result<()> {
    run(cargo(words).args(["--example", "null"]))
}

/// Threads of servers that do nothing: as many as the mount has.
pub(super) fn server_threads() -> String {
    let cores = std::thread::available_parallelism().map_or(4, usize::from);
    cores.clamp(4, 16).to_string()
}
