//! The mark that distinguishes a running scrub from all others.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// The mark that distinguishes a running scrub from all others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pid: u32,
    /// The PID namespace of the process id.
    namespace: String,
    /// The time at which it began, nanoseconds since 1970.
    begun: u128,
}

impl Mark {
    /// The mark of a scrub that this process begins.
    pub(super) fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { pid: std::process::id(), namespace: namespace(), begun: now.as_nanos() }
    }

    /// The process id; `None` if it is one of another PID namespace.
    pub(super) fn pid_here(&self) -> Option<u32> {
        (self.namespace == namespace()).then_some(self.pid)
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let (pid, namespace, begun) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { pid: pid.parse().ok()?, namespace: namespace.to_owned(), begun: begun.parse().ok()? })
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.pid, self.namespace, self.begun)
    }
}

/// The PID namespace of this process; a word that is no namespace if `/proc` does not have it.
fn namespace() -> String {
    let link = std::fs::read_link("/proc/self/ns/pid");
    link.map_or_else(|_| "unknown".to_owned(), |link| link.to_string_lossy().replace([' ', '\n'], ""))
}

/// The scrub that a file names, and the mount that its process serves, if there is one.
pub(super) fn runner_in(file: &mut File) -> Option<(Mark, Option<PathBuf>)> {
    let mut text = Vec::new();
    file.take(64 << 10).read_to_end(&mut text).ok()?;
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let mark = Mark::parse(std::str::from_utf8(&text[..end]).ok()?)?;
    let mount = OsString::from_vec(text.split_off(end + 1));
    Some((mark, (!mount.is_empty()).then(|| mount.into())))
}
