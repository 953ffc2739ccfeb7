//! Helpers of this room's tests.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// A process that ends with the test.
pub(crate) struct Other(pub(crate) Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reports that a test stops here because `what` is missing. Panics if everything must be there.
pub(crate) fn skipped(what: &str) {
    let required = std::env::var_os("CREAMERY_REQUIRE_JUDGES").is_some_and(|value| value == "1");
    assert!(!required, "{what} missing");
    println!("skipped: {what} missing");
}

/// A loop device that ends with the test.
pub(crate) struct TestLoop(pub(crate) PathBuf);

impl TestLoop {
    pub(crate) fn attach(file: &Path) -> Option<Self> {
        Self::attach_as(file, &[])
    }

    pub(crate) fn attach_as(file: &Path, options: &[&str]) -> Option<Self> {
        let output = Command::new("losetup").args(options).args(["-f", "--show"]).arg(file).output();
        match output {
            Ok(output) if output.status.success() => {
                Some(Self(PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())))
            }
            _ => {
                skipped("root with a free loop device");
                None
            }
        }
    }
}

impl Drop for TestLoop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}
