//! Names of what is worked on, with `-v`.

use std::io::Write;
use std::sync::OnceLock;

use creamery::{Error, Escaped, Progress};

use crate::failure::Failure;
use crate::interrupt;
use crate::output::writing;

/// Prints names as their turn comes: for people, so escaped in a pipe, too.
#[derive(Default)]
pub(crate) struct Names {
    wanted: bool,
    /// Why names are printed no more. What is done does not depend on it.
    failed: OnceLock<std::io::Error>,
}

impl Names {
    /// Prints them if they are `wanted`.
    pub(crate) fn new(wanted: bool) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Whether everybody could read them. A reader that went away (`| head`) has seen what it wanted.
    pub(crate) fn finish(self, command: &'static str) -> Result<(), Failure> {
        match self.failed.into_inner() {
            Some(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                Err(Failure::new(command, writing(error)))
            }
            _ => Ok(()),
        }
    }
}

impl Progress for Names {
    fn go_on(&self) -> Result<(), Error> {
        interrupt::go_on()
    }

    fn entry(&self, path: &[u8], _bytes: u64) {
        interrupt::done();
        if !self.wanted || self.failed.get().is_some() {
            return;
        }
        let path = Escaped(if path.is_empty() { b"." } else { path });
        if let Err(error) = writeln!(anstream::stdout(), "{path}") {
            // Only the first one counts.
            let _ = self.failed.set(error);
        }
    }
}
