//! What could not be read, with `--ignore-errors`: a line for each, and one in the end that sums up.

use std::sync::atomic::{AtomicU64, Ordering};

use creamery::{Error, ErrorKind, Escaped, Lost, Progress};

use crate::failure::{Failure, complain};
use crate::names::Names;

/// Counts what a command goes on without.
pub(crate) struct Losses {
    command: &'static str,
    others: AtomicU64,
    stretches: AtomicU64,
    bytes: AtomicU64,
}

impl Losses {
    pub(crate) const fn new(command: &'static str) -> Self {
        let none = AtomicU64::new;
        Self { command, others: none(0), stretches: none(0), bytes: none(0) }
    }

    /// Tells that this cannot be read of `path` in `image`.
    pub(crate) fn tell(&self, image: &str, path: &[u8], what: Lost, error: &Error) {
        let Self { command, others, stretches, .. } = self;
        // The library may have put the path first.
        let shown = Escaped(path).to_string();
        let why = error.to_string();
        let why = why.strip_prefix(&format!("{shown}: ")).unwrap_or(&why);
        let lost = match what {
            Lost::Bytes(bytes) => {
                stretches.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(bytes.end - bytes.start, Ordering::Relaxed);
                format!("{} bytes from {} on are lost", bytes.end - bytes.start, bytes.start)
            }
            what => {
                others.fetch_add(1, Ordering::Relaxed);
                let words = match what {
                    Lost::Entries => "some of its entries are lost",
                    Lost::Xattrs => "its attributes are lost",
                    _ => "left out",
                };
                words.to_owned()
            }
        };
        complain(&format!("{command}: {image}:{shown}: {lost}: {why}"));
    }

    /// That something was lost, if so.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let (others, stretches) = (self.others.into_inner(), self.stretches.into_inner());
        if (others, stretches) == (0, 0) {
            return Ok(());
        }
        let bytes = self.bytes.into_inner();
        let what = format!(
            "not all could be read: {bytes} bytes in {stretches} places of files, and {others} other things, each named above; all else is there"
        );
        Err(Failure::new(self.command, Error::new(ErrorKind::Unreadable, what)).plain())
    }
}

/// A copy out of `image` as it goes.
pub(crate) struct Watched<'a> {
    pub(crate) image: String,
    pub(crate) names: &'a Names,
    pub(crate) losses: &'a Losses,
}

impl Progress for Watched<'_> {
    fn entry(&self, path: &[u8], bytes: u64) {
        self.names.entry(path, bytes);
    }

    fn go_on(&self) -> Result<(), Error> {
        self.names.go_on()
    }

    fn lost(&self, path: &[u8], what: Lost, error: &Error) {
        self.losses.tell(&self.image, path, what, error);
    }
}
