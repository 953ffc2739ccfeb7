//! What a copy goes on without: a line for each thing that could not be read, with `--ignore-errors`, and for each extended attribute
//! that is too large for the host; one in the end that sums up. Attributes that the host takes none of are summed up alone. And who read
//! an earlier commit than the last one is told so in the end: to a script, files that may be old are not all right.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery::{EarlierRoot, Error, ErrorKind, Escaped, Filesystem, Lost, Progress};

use crate::failure::{Failure, complain, warn, with_all};
use crate::names::Names;

/// Counts what a command goes on without.
pub(crate) struct Losses {
    command: &'static str,
    others: AtomicU64,
    stretches: AtomicU64,
    bytes: AtomicU64,
    /// Extended attributes without room.
    large: AtomicU64,
    /// Those of kinds that the host does not take, and the first of them.
    untaken: AtomicU64,
    first_untaken: OnceLock<String>,
    /// What was read of an earlier commit: a sentence for each image.
    earlier: Vec<String>,
}

impl Losses {
    pub(crate) const fn new(command: &'static str) -> Self {
        let none = AtomicU64::new;
        Self {
            command,
            others: none(0),
            stretches: none(0),
            bytes: none(0),
            large: none(0),
            untaken: none(0),
            first_untaken: OnceLock::new(),
            earlier: Vec::new(),
        }
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

    /// Tells that an extended attribute of `path` in `image` does not come along.
    pub(crate) fn tell_xattr(&self, image: &str, path: &[u8], name: &[u8], error: &Error) {
        let (shown, name) = (Escaped(path), Escaped(name));
        let what = format!("{image}:{shown}: extended attribute {name}: {}", error.without_kind());
        if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied) {
            self.untaken.fetch_add(1, Ordering::Relaxed);
            self.first_untaken.get_or_init(|| what);
        } else {
            self.large.fetch_add(1, Ordering::Relaxed);
            complain(&format!("{}: {what}", self.command));
        }
    }

    /// Notes which commit was read of `fs`, the filesystem in `image`.
    pub(crate) fn read_from(&mut self, image: &Path, fs: &Filesystem) {
        if let Some(EarlierRoot { wanted, shown }) = fs.earlier_root() {
            self.earlier.push(format!(
                "{}: generation {shown} was read, since generation {wanted} cannot be: what was changed after it may be missing or old",
                image.display()
            ));
        }
    }

    /// The outcome of all, with what was lost and may be old: that is told beside a failure, too.
    pub(crate) fn end(self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        match (outcome, self.finish()) {
            (Err(failure), Err(lost)) => {
                let _told = lost.tell();
                Err(failure)
            }
            (outcome, lost) => outcome.and(lost),
        }
    }

    /// That something was lost, or may be old, if so. What the host takes of nobody is worth a line, as it would come along elsewhere, and no failure.
    fn finish(self) -> Result<(), Failure> {
        if let Some(first) = self.first_untaken.get() {
            let count = self.untaken.into_inner();
            warn(&format!(
                "{}: {count} extended attributes do not come along; the first: {first}",
                self.command
            ));
        }
        let (others, stretches, large) =
            (self.others.into_inner(), self.stretches.into_inner(), self.large.into_inner());
        let mut failures = Vec::new();
        let mut parts = Vec::new();
        if (others, stretches) != (0, 0) {
            let bytes = self.bytes.into_inner();
            parts.push(format!(
                "not all could be read: {bytes} bytes in {stretches} places of files, and {others} other things"
            ));
        }
        if large > 0 {
            parts.push(format!("{large} extended attributes do not come along"));
        }
        if !parts.is_empty() {
            let rest = if self.earlier.is_empty() { "; all else is there" } else { "" };
            failures.push(format!("{}, each named above{rest}", parts.join("; ")));
        }
        failures.extend(self.earlier);
        with_all(failures, |what| {
            Err(Failure::new(self.command, Error::new(ErrorKind::Unreadable, what)).plain())
        })
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

    fn in_place(&self, path: &[u8]) {
        self.names.in_place(path);
    }

    fn go_on(&self) -> Result<(), Error> {
        self.names.go_on()
    }

    fn lost(&self, path: &[u8], what: Lost, error: &Error) {
        self.losses.tell(&self.image, path, what, error);
    }

    fn xattr_left_out(&self, path: &[u8], name: &[u8], error: &Error) {
        self.losses.tell_xattr(&self.image, path, name, error);
    }
}
