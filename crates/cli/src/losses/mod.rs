//! Accounts for the data that a copy cannot take along. The output is one short line for each file that lacks something, one for each
//! damaged block with the number of files that it affects, and at the end how much was copied and how much was not. Attributes that the
//! host does not accept are only summed up. If an earlier commit than the last one was read, a line at the end says so: a script must not
//! take files that may be old for good.

mod blocks;
mod count;
mod report;

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use creamery::error::Escaped;
use creamery::progress::{Lost, Progress};
use creamery::rescue::EarlierRoot;
use creamery::{Error, ErrorKind, Filesystem};
use creamery_base::lock::{RankedMutex, rank};

use self::blocks::Blocks;
use self::count::Counts;
use self::report::{LossJson, LossReport};
use crate::failure::{Failure, complain, warn, with_advice, with_all};
use crate::names::NamePrinter;

/// Counts the losses of a command and prints them.
pub(crate) struct Losses {
    command: &'static str,
    /// Advice that helps to get more of the missing files.
    advice: Option<&'static str>,
    state: RankedMutex<State, { rank::LEAF }>,
    /// One sentence for each image of which an earlier commit was read.
    earlier: Vec<String>,
}

#[derive(Default)]
struct State {
    counts: Counts,
    blocks: Blocks,
    report: Option<LossReport>,
    /// The file whose bytes are being lost.
    at_hand: Option<Stretches>,
    /// Files that lack something, and the last of them.
    files: u64,
    last: String,
    /// Whether the last one is a directory that lacks entries already.
    lacks_entries: bool,
    /// Whether anything was damaged, not only refused by the host.
    is_damaged: bool,
    /// Extended attributes of kinds that the host does not accept, and the first of them.
    untaken: u64,
    first_untaken: Option<String>,
}

/// Lost ranges of one file.
struct Stretches {
    shown: String,
    count: u64,
    first: Range<u64>,
    bytes: u64,
    /// The first reason, if no damaged block's line gives it.
    why: Option<String>,
}

/// The file that lacks something.
pub(crate) struct Site<'a> {
    /// The image, or the source on the host.
    source: &'a str,
    /// The separator of source and path: a colon, or a slash.
    between: &'static str,
    /// The image whose blocks may be damaged.
    image: &'a str,
    /// The path as the library gives it.
    told: &'a [u8],
    /// The path without a "." of the operand (`disk.img:/.`).
    path: PathBuf,
}

impl<'a> Site<'a> {
    pub(crate) fn in_image(image: &'a str, path: &'a [u8]) -> Self {
        Self::of(image, ":", image, path)
    }

    fn of(source: &'a str, between: &'static str, image: &'a str, told: &'a [u8]) -> Self {
        let path = Path::new(OsStr::from_bytes(told)).components().collect();
        Self { source, between, image, told, path }
    }

    /// Whether the path is in an image, which may be damaged. The host reports its own errors.
    fn is_in_image(&self) -> bool {
        self.between == ":"
    }

    fn path(&self) -> &[u8] {
        self.path.as_os_str().as_bytes()
    }

    fn shown(&self) -> String {
        format!("{}{}{}", self.source, self.between, Escaped(self.path()))
    }
}

impl Losses {
    pub(crate) fn new(command: &'static str) -> Self {
        Self { command, advice: None, state: RankedMutex::default(), earlier: Vec::new() }
    }

    /// Sets the advice that is printed if damage left something out.
    pub(crate) fn advising(self, advice: &'static str) -> Self {
        Self { advice: Some(advice), ..self }
    }

    /// Writes a report to `path` if there is one; `target` is the copy's place on the host. Errors: the report cannot be made, or is the
    /// target itself.
    pub(crate) fn reported(self, path: Option<&Path>, target: Option<&Path>) -> Result<Self, Failure> {
        if let Some(path) = path {
            let report = LossReport::begin(self.command, path, target)
                .map_err(|error| Failure::new(self.command, error))?;
            self.state.lock().report = Some(report);
        }
        Ok(self)
    }

    /// Prints that `what` of a file cannot be read.
    pub(crate) fn tell(&self, site: &Site<'_>, what: Lost, error: &Error) {
        let mut state = self.state.lock();
        let shown = site.shown();
        state.is_damaged |= error.kind().is_damage() && !error.is_on_host() && site.is_in_image();
        let why = error.block().is_none().then(|| match (error.kind(), error.is_on_host()) {
            (ErrorKind::AlreadyExists, true) => {
                format!("{}; use --force to replace it", told_reason(site, error))
            }
            _ => with_advice(told_reason(site, error), error),
        });
        if let Lost::Bytes(bytes) = what {
            state.report(|| {
                let len = bytes.end - bytes.start;
                LossJson::new(site.source, site.path(), "bytes", error).of(Some(len), Some(bytes.start))
            });
            state.lose_bytes(self.command, &shown, bytes, why);
        } else {
            state.settle(self.command);
            let is_known = !state.turn_to(&shown) && what == Lost::Entries && state.lacks_entries;
            state.lacks_entries |= what == Lost::Entries;
            let (words, field, size) = match what {
                Lost::Entries => ("some of its entries are lost", "entries", None),
                Lost::Xattrs => ("its attributes are lost", "attributes", None),
                Lost::Everything { size } => ("left out", "everything", size),
                Lost::Bytes(_) => unreachable!("told above"),
            };
            state.report(|| LossJson::new(site.source, site.path(), field, error).of(size, None));
            if !is_known {
                state.count(&what);
                complain(&line(self.command, &shown, words, why.as_deref()));
            }
        }
        let file = state.files;
        state.blocks.note(site.image, error, file);
    }

    /// Prints that an extended attribute is not copied.
    pub(crate) fn tell_xattr(&self, site: &Site<'_>, name: &[u8], error: &Error) {
        let mut state = self.state.lock();
        let what =
            format!("{}: extended attribute {}: {}", site.shown(), Escaped(name), error.without_kind());
        if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied) {
            state.untaken += 1;
            state.first_untaken.get_or_insert(what);
        } else {
            state.counts.large_attributes += 1;
            state.report(|| LossJson::new(site.source, site.path(), "extended attribute", error));
            complain(&format!("{}: {what}", self.command));
        }
    }

    /// Counts a file or directory that was copied, with its full length in bytes.
    pub(crate) fn came(&self, bytes: u64) {
        let mut state = self.state.lock();
        let lost = state.settle(self.command);
        state.counts.came += 1;
        state.counts.came_bytes += bytes.saturating_sub(lost);
    }

    /// Notes which commit of `fs`, the filesystem in `image`, is read.
    pub(crate) fn read_from(&mut self, image: &Path, fs: &Filesystem) {
        if let Some(EarlierRoot { wanted, shown }) = fs.volume().earlier_root() {
            self.earlier.push(format!(
                "{}: generation {shown} was read, since generation {wanted} cannot be: later changes may be missing",
                image.display()
            ));
        }
    }

    /// The outcome of the command. Lines about lost or possibly old files are printed also if it failed.
    pub(crate) fn end(self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        let ended_by = outcome.as_ref().err().map(Failure::why);
        match (outcome, self.finish(ended_by)) {
            (Err(failure), Err(lost)) => {
                let _told = lost.tell();
                Err(failure)
            }
            (outcome, lost) => outcome.and(lost),
        }
    }

    /// Prints the totals. Errors: something is lost, or may be old. Attributes that the host does not support or permit get a line and are
    /// no failure, as another host may accept them. `ended_by` is the failure that ended the command early: then copied files may not be
    /// durable, so no line counts them.
    fn finish(self, ended_by: Option<String>) -> Result<(), Failure> {
        let command = self.command;
        let mut state = self.state.into_inner();
        state.settle(command);
        if let Some(first) = state.first_untaken {
            let count = state.untaken;
            warn(&format!("{command}: {count} extended attributes do not come along; the first: {first}"));
        }
        for (image, block, met) in state.blocks.iter() {
            let files =
                if met.files == 1 { "1 file lacks".to_owned() } else { format!("{} files lack", met.files) };
            complain(&format!(
                "{command}: {image}: {block} is damaged, and {files} something by it: {}",
                met.why
            ));
        }
        if state.blocks.others() > 0 {
            complain(&format!("{command}: more damaged blocks were met {} times", state.blocks.others()));
        }
        let mut failures: Vec<Failure> = Vec::new();
        if let Some(report) = state.report {
            let written = report.end(&state.blocks, &state.counts, &self.earlier, ended_by.as_deref());
            failures.extend(written.err().map(|error| Failure::new(command, error)));
        }
        let advice = self.advice.filter(|_| state.is_damaged);
        failures.extend(state.counts.told(ended_by.is_none()).map(|what| lost(command, what, advice)));
        failures.extend(self.earlier.into_iter().map(|what| lost(command, what, None)));
        with_all(failures, Err)
    }
}

fn lost(command: &'static str, what: String, advice: Option<&'static str>) -> Failure {
    let failure = Failure::new(command, Error::new(ErrorKind::Unreadable, what)).plain();
    match advice {
        Some(advice) => failure.advise(advice),
        None => failure,
    }
}

/// The reason, without the path that the line begins with.
fn told_reason(site: &Site<'_>, error: &Error) -> String {
    let (path, why) = (Escaped(site.told).to_string(), error.to_string());
    let said = [format!("{path}: "), format!("reading source '{path}': "), format!("writing '{path}': ")];
    said.iter().find_map(|said| why.strip_prefix(said)).unwrap_or(&why).to_owned()
}

fn line(command: &str, shown: &str, words: &str, why: Option<&str>) -> String {
    match why {
        Some(why) => format!("{command}: {shown}: {words}: {why}"),
        None => format!("{command}: {shown}: {words}"),
    }
}

impl State {
    fn report(&mut self, loss: impl FnOnce() -> LossJson) {
        if let Some(report) = &mut self.report {
            report.add(&loss());
        }
    }

    const fn count(&mut self, what: &Lost) {
        let counts = &mut self.counts;
        match what {
            Lost::Everything { size } => {
                counts.left_out += 1;
                if let Some(size) = size {
                    counts.left_out_bytes = counts.left_out_bytes.saturating_add(*size);
                }
            }
            Lost::Entries => counts.lack_entries += 1,
            Lost::Xattrs => counts.lack_attributes += 1,
            Lost::Bytes(_) => {}
        }
    }

    /// Counts a file that lacks something. Returns false if it is the last counted file.
    fn turn_to(&mut self, shown: &str) -> bool {
        if self.last == shown {
            return false;
        }
        self.files += 1;
        self.last = shown.to_owned();
        self.lacks_entries = false;
        true
    }

    /// Adds a lost range of the current file.
    fn lose_bytes(&mut self, command: &str, shown: &str, bytes: Range<u64>, why: Option<String>) {
        let len = bytes.end - bytes.start;
        self.counts.lost_bytes += len;
        match &mut self.at_hand {
            Some(file) if file.shown == shown => {
                file.count += 1;
                file.bytes += len;
            }
            _ => {
                self.settle(command);
                self.turn_to(shown);
                let shown = shown.to_owned();
                self.at_hand = Some(Stretches { shown, count: 1, first: bytes, bytes: len, why });
            }
        }
    }

    /// Ends the current file: prints its line, and returns the number of its lost bytes.
    fn settle(&mut self, command: &str) -> u64 {
        let Some(Stretches { shown, count, first, bytes, why }) = self.at_hand.take() else { return 0 };
        self.counts.lack_bytes += 1;
        let words = match count {
            1 => format!("{bytes} bytes from {} on are lost", first.start),
            _ => format!("{bytes} bytes in {count} places are lost, the first from {} on", first.start),
        };
        complain(&line(command, &shown, &words, why.as_deref()));
        bytes
    }
}

/// Observes a running copy.
pub(crate) struct Watched<'a> {
    /// The image, or the source on the host.
    pub(crate) source: String,
    /// The separator of the source and a path in it.
    pub(crate) between: &'static str,
    /// The image whose blocks may be damaged: the source, or the target of a copy from the host.
    pub(crate) image: String,
    pub(crate) names: &'a NamePrinter,
    pub(crate) losses: &'a Losses,
}

impl<'a> Watched<'a> {
    fn at<'s>(&'s self, path: &'s [u8]) -> Site<'s> {
        Site::of(&self.source, self.between, &self.image, path)
    }

    /// Observes a copy out of `image`.
    pub(crate) fn image(image: &Path, names: &'a NamePrinter, losses: &'a Losses) -> Self {
        let source = image.display().to_string();
        Self { image: source.clone(), source, between: ":", names, losses }
    }

    /// Observes a copy from `source`, on the host, into `image`.
    pub(crate) fn host(source: &Path, image: &Path, names: &'a NamePrinter, losses: &'a Losses) -> Self {
        let (source, image) = (source.display().to_string(), image.display().to_string());
        Self { source: source.trim_end_matches('/').to_owned(), between: "/", image, names, losses }
    }
}

impl Progress for Watched<'_> {
    fn entry(&self, path: &[u8], bytes: u64) {
        self.losses.came(bytes);
        self.names.entry(path, bytes);
    }

    fn in_place(&self, path: &[u8]) {
        self.names.in_place(path);
    }

    fn go_on(&self) -> Result<(), Error> {
        self.names.go_on()
    }

    fn lost(&self, path: &[u8], what: Lost, error: &Error) {
        self.losses.tell(&self.at(path), what, error);
    }

    fn xattr_left_out(&self, path: &[u8], name: &[u8], error: &Error) {
        self.losses.tell_xattr(&self.at(path), name, error);
    }
}
