//! Prints the names of processed files with `-v`, and counts them.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery::Error;
use creamery::error::Escaped;
use creamery::progress::Progress;

use crate::failure::Failure;
use crate::interrupt;
use crate::output::writing;
use crate::progress::{ProgressArgs, ShownProgress};
use crate::size::Human;

/// Prints names as their turn comes, and counts them. The lines are for people, so names are escaped in a pipe, too.
pub(crate) struct NamePrinter {
    command: &'static str,
    wanted: bool,
    /// The error that stopped the printing. The work goes on without it.
    failed: OnceLock<std::io::Error>,
    shown: ShownProgress,
    entries: AtomicU64,
    bytes: AtomicU64,
}

impl NamePrinter {
    /// Prints names if they are `wanted`; otherwise shows their number.
    pub(crate) fn new(command: &'static str, wanted: bool, progress: ProgressArgs) -> Self {
        let shown = ShownProgress::unbounded(command, progress);
        let (entries, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let names = Self { command, wanted, failed: OnceLock::new(), shown, entries, bytes };
        if wanted { names.unseen() } else { names }
    }

    /// Without a progress line, where other output comes.
    pub(crate) fn unseen(self) -> Self {
        self.shown.hide();
        self
    }

    /// The number of files and directories so far, and their bytes, in words.
    fn count(&self) -> String {
        let (entries, bytes) = (self.entries.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        format!("{entries} files and directories, {}", Human(bytes))
    }

    /// Ends the output. Errors: names could not be printed; a closed pipe (`| head`) is no error.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        self.shown.end_with(|| self.count());
        match self.failed.into_inner() {
            Some(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Failure::new(self.command, writing(error)))
            }
            _ => Ok(()),
        }
    }
}

impl Progress for NamePrinter {
    fn go_on(&self) -> Result<(), Error> {
        self.shown.at(|| self.count());
        interrupt::go_on()
    }

    fn in_place(&self, _path: &[u8]) {
        interrupt::in_place();
    }

    fn entry(&self, path: &[u8], bytes: u64) {
        interrupt::done();
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.shown.at(|| self.count());
        if !self.wanted || self.failed.get().is_some() {
            return;
        }
        let path = Escaped(if path.is_empty() { b"." } else { path });
        if let Err(error) = writeln!(anstream::stdout(), "{path}") {
            // Only the first error counts.
            let _ = self.failed.set(error);
        }
    }
}
