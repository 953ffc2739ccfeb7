//! Mounting and unmounting for a test.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use creamery_fuse::{MountOptions, Notifier, Session, Unmount, Unmounter};

use crate::memory::Memory;

/// A mount that lives as long as the test.
pub struct Mounted {
    pub dir: PathBuf,
    pub fs: Arc<Memory>,
    pub unmounter: Unmounter,
    pub notifier: Notifier,
    server: Option<JoinHandle<creamery_base::Result<()>>>,
}

/// Says that `test` could not be run. With `CREAMERY_REQUIRE_JUDGES=1` that is a failure.
pub fn skip(test: &str, why: &str) {
    let required = std::env::var_os("CREAMERY_REQUIRE_JUDGES").is_some_and(|value| value == "1");
    assert!(!required, "{test} cannot be skipped here: {why}");
    // Not `eprintln!`, which the test harness would swallow.
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// Whether mounts can be made; if not, says so.
pub fn can_mount(test: &str) -> bool {
    let open = rustix::fs::open("/dev/fuse", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty());
    match open {
        Ok(_) if rustix::process::geteuid().is_root() => true,
        Ok(_) => {
            skip(test, "only root mounts directly");
            false
        }
        Err(errno) => {
            skip(test, &format!("opening /dev/fuse: {errno}"));
            false
        }
    }
}

/// A fresh directory.
pub fn scratch(test: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("creamery-fuse-{}-{test}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("temporary directory");
    dir
}

impl Mounted {
    /// Mounts with two workers, or says why `test` cannot run.
    pub fn new(test: &str) -> Option<Self> {
        if !can_mount(test) {
            return None;
        }
        let dir = scratch(test);
        let fs = Arc::new(Memory::new());
        let mut options = MountOptions::new("memory", "creamery-test");
        options.allow_other = true;
        options.apply("dev").expect("device nodes are tested");
        options.apply("suid").expect("setuid bits are tested");
        let session = Session::mount(fs.clone(), &dir, &options).expect("mounting");
        let (unmounter, notifier) = (session.unmounter(), session.notifier());
        let server = Some(std::thread::spawn(move || session.run(2)));
        Some(Self { dir, fs, unmounter, notifier, server })
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// Waits for the server, which something else has ended.
    pub fn join(&mut self) {
        if let Some(server) = self.server.take() {
            server.join().expect("run does not panic").expect("run ends well");
        }
    }

    /// Unmounts and waits for the server.
    pub fn finish(&mut self) {
        if self.dir.as_os_str().is_empty() {
            return;
        }
        if self.unmounter.unmount(Unmount::WhenIdle).is_err() {
            self.unmounter.unmount(Unmount::Lazy).expect("a lazy unmount does not fail");
        }
        self.join();
        assert_eq!(self.fs.counters.destroyed.load(Ordering::SeqCst), 1);
        std::fs::remove_dir(&self.dir).expect("the mount point is a plain directory again");
        self.dir = PathBuf::new();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.unmounter.unmount(Unmount::Lazy);
        } else {
            self.finish();
        }
    }
}
