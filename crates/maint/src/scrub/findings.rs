//! What a scrub has found, in memory and as the text of a file: a line of each finding, and below it those of the files that have it.
//!
//! ```text
//! scrub findings:1
//! data at devid 1 offset 13631488, logical 13631488, lost: checksum mismatch
//!   /dir/file, byte 4096
//! and 12 findings more
//! ```

use std::fmt::Write as _;

use creamery_base::{DevId, Error, ErrorKind, Escaped, ObjectId, Result, TreeId};

use super::{Finding, Outcome, What};

pub(super) const HEAD: &str = "scrub findings:1";
/// Findings of either kind that are kept; the rest is counted.
const MOST: usize = 10_000;
/// Bytes of the lines of either kind.
const LINES_MAX: usize = 4 << 20;
/// Files of one finding that are named.
pub const FILES_MAX: usize = 8;
/// Bytes of all lines with files.
const NAMES_MAX: usize = 7 << 20;
/// No text of findings is longer: their lines, those of files, and two of the text itself.
pub(super) const TEXT_MAX: u64 = 16 << 20;

/// Findings of a scrub. What was mended takes no place of what is left.
///
/// ```
/// use creamery_maint::scrub::Findings;
/// let none = Findings::default();
/// assert!(none.left().is_empty());
/// assert!(Findings::parse(none.to_text().as_bytes())?.left().is_empty());
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Findings {
    left: Vec<Found>,
    mended: Vec<Found>,
    /// Bytes of the lines of what is left, and of what was mended.
    lines: [usize; 2],
    left_out: u64,
}

/// A finding, and the lines of the files that have it.
#[derive(Clone, Debug)]
struct Found {
    finding: Finding,
    files: Vec<String>,
}

/// Where the scrub of a device stopped, that another one goes on with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stopped {
    /// It went through.
    Nowhere,
    /// At this byte of the device.
    At(u64),
    /// There, and it is unknown what it has done since: it failed.
    Failed(u64),
}

impl Found {
    /// Bytes of the finding's line.
    fn line_len(finding: &Finding) -> usize {
        finding.to_string().len() + 1
    }

    fn write_to(&self, text: &mut String) {
        let _ = writeln!(text, "{}", self.finding);
        self.files.iter().for_each(|file| {
            let _ = writeln!(text, "  {file}");
        });
    }
}

impl Findings {
    /// Adds one. Whether there was place for it.
    pub fn add(&mut self, finding: Finding) -> bool {
        let is_mended = finding.outcome == Outcome::Mended;
        let [left, mended] = &mut self.lines;
        let (findings, lines) = if is_mended { (&mut self.mended, mended) } else { (&mut self.left, left) };
        let len = if findings.len() < MOST { Found::line_len(&finding) } else { usize::MAX };
        let has_place = len <= LINES_MAX - *lines;
        if has_place {
            findings.push(Found { finding, files: Vec::new() });
            *lines += len;
        } else {
            self.left_out += u64::from(!is_mended);
        }
        has_place
    }

    /// What is bad still.
    #[must_use]
    pub fn left(&self) -> Vec<&Finding> {
        self.left.iter().map(|found| &found.finding).collect()
    }

    /// How many are kept.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.left.len() + self.mended.len()
    }

    /// Whether none is kept.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// First what is left, then what was mended.
    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.left.iter().chain(&self.mended).map(|found| &found.finding)
    }

    /// How much of what is left has no place.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Keeps what a scrub does not find again that goes on where each device stopped. Gives the devices that could not be scrubbed any more, each as often as that
    /// has counted as an error: the scrub goes on with them.
    pub(super) fn keep_found(&mut self, stopped: impl Fn(DevId) -> Stopped) -> Vec<DevId> {
        let mut again = Vec::new();
        let is_of_device = |finding: &Finding| finding.what == What::NotScrubbed && finding.logical.is_none();
        let is_passed = |finding: &Finding, place: u64| match finding.what {
            _ if is_of_device(finding) => false,
            // A device's superblocks come first, wherever they lie.
            What::Superblock => place > 0,
            _ => finding.at.offset < place,
        };
        self.left.retain(|Found { finding, .. }| {
            let is_kept = match stopped(finding.at.dev) {
                Stopped::Nowhere => true,
                Stopped::At(place) | Stopped::Failed(place) => is_passed(finding, place),
            };
            if !is_kept && is_of_device(finding) {
                again.push(finding.at.dev);
            }
            is_kept
        });
        self.mended.retain(|Found { finding, .. }| match stopped(finding.at.dev) {
            // It is good now, also where the scrub of another device has mended it ahead of its own.
            Stopped::Nowhere | Stopped::At(_) => true,
            Stopped::Failed(place) => is_passed(finding, place),
        });
        self.measure();
        again
    }

    fn measure(&mut self) {
        let lines = |findings: &[Found]| findings.iter().map(|found| Found::line_len(&found.finding)).sum();
        self.lines = [lines(&self.left), lines(&self.mended)];
    }

    /// The superblocks of a device were made good.
    pub(super) fn superblocks_are_mended(&mut self, dev: DevId) {
        let its = |found: &mut Found| (found.finding.what, found.finding.at.dev) == (What::Superblock, dev);
        for mut found in self.left.extract_if(.., its) {
            found.finding.outcome = Outcome::Mended;
            self.mended.push(found);
        }
        self.measure();
    }

    /// Asks for the lines of the files that have what is left, each made by [`file_line`], the last one perhaps by [`more_files_line`]. A few of each are kept, and as many as the text of the file has room for.
    /// Behind as many findings as `most` they are not asked for.
    pub(super) fn name_files(&mut self, most: usize, files: &mut dyn FnMut(&Finding) -> Vec<String>) {
        let is_data = |found: &Found| found.finding.what.is_of_files();
        for found in self.left.iter_mut().skip(most).filter(|found| is_data(found) && found.files.is_empty())
        {
            found.files = vec![format!("its files are not looked for: only those of {most} findings are")];
        }
        for found in self.left.iter_mut().take(most) {
            let named = files(&found.finding);
            if !named.is_empty() {
                found.files = named;
                found.files.truncate(FILES_MAX + 1);
            }
        }
        self.bound_names();
    }

    fn bound_names(&mut self) {
        let mut room = NAMES_MAX;
        for found in self.left.iter_mut().chain(&mut self.mended) {
            found.files.retain(|file| {
                // Two spaces before it, and the end of the line.
                let rest = room.checked_sub(file.len() + 3);
                room = rest.unwrap_or(room);
                rest.is_some()
            });
        }
    }

    /// The text of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        self.left.iter().chain(&self.mended).for_each(|found| found.write_to(&mut text));
        if self.left_out > 0 {
            let _ = writeln!(text, "and {} findings more", self.left_out);
        }
        text
    }

    /// Reads the text of the file. A line that the end of the file cuts is passed over, be it the first one: a process that writes has made the
    /// file and not written to it yet, or died then.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`]: it is no such text.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let corrupt = |what: String| Error::new(ErrorKind::InvalidData, what);
        let text = std::str::from_utf8(text).map_err(|_| corrupt("it is no text".to_owned()))?;
        let mut findings = Self::default();
        if HEAD.starts_with(text) {
            return Ok(findings);
        }
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut lines = whole.lines();
        if lines.next() != Some(HEAD) {
            return Err(corrupt(format!("its first line is not {HEAD:?}")));
        }
        let mut is_mended = false;
        for (number, line) in lines.enumerate() {
            let more = line.strip_prefix("and ").and_then(|line| line.strip_suffix(" findings more"));
            if let Some(file) = line.strip_prefix("  ") {
                let above = if is_mended { &mut findings.mended } else { &mut findings.left };
                above.last_mut().into_iter().for_each(|found| found.files.push(file.to_owned()));
            } else if let Some(more) = more.and_then(|more| more.parse::<u64>().ok()) {
                findings.left_out = findings.left_out.saturating_add(more);
            } else {
                let finding = Finding::parse(line);
                let finding = finding.ok_or_else(|| corrupt(format!("line {} is no finding", number + 2)))?;
                is_mended = finding.outcome == Outcome::Mended;
                findings.add(finding);
            }
        }
        findings.bound_names();
        Ok(findings)
    }
}

/// The line of a file that has something bad at a byte of it: of its path, if that is known.
///
/// ```
/// use creamery_base::{ObjectId, TreeId};
/// use creamery_maint::scrub::file_line;
/// let inode = (TreeId::FS, ObjectId::new(257));
/// assert_eq!(file_line(Some(b"/dir/file"), inode, 4096), "/dir/file, byte 4096");
/// assert_eq!(file_line(None, inode, 4096), "inode 257 of subvolume 5, byte 4096");
/// ```
#[must_use]
pub fn file_line(path: Option<&[u8]>, (subvolume, inode): (TreeId, ObjectId), byte: u64) -> String {
    match path {
        Some(path) => format!("{}, byte {byte}", Escaped(path)),
        None => format!("inode {inode} of subvolume {subvolume}, byte {byte}"),
    }
}

/// The line that counts more files than are named; none where all are.
#[must_use]
pub fn more_files_line(more: u64) -> Option<String> {
    (more > 0).then(|| format!("and {more} files more"))
}

#[cfg(test)]
mod tests {
    use creamery_base::{Logical, Physical};

    use super::*;

    fn finding(what: What, outcome: Outcome, offset: u64) -> Finding {
        let logical = (what != What::Superblock).then(|| Logical::new(offset + 1));
        let at = Physical { dev: DevId::new(2), offset };
        Finding { what, at, logical, why: "expected a, found b: c".to_owned(), outcome }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut findings = Findings::default();
        let mut offset = 0;
        for what in What::ALL {
            for outcome in Outcome::ALL {
                offset += 4096;
                findings.add(finding(what, outcome, offset));
            }
        }
        findings.name_files(usize::MAX, &mut |found| vec![format!("/file-{}, byte 0", found.at.offset)]);
        findings.left_out = 7;
        let text = findings.to_text();
        let read = Findings::parse(text.as_bytes()).unwrap();
        assert_eq!(read.to_text(), text);
        assert_eq!((read.left().len(), read.iter().count(), read.left_out()), (28, 35, 7));
        let cut = Findings::parse(&text.as_bytes()[..text.len() - 3]).unwrap();
        assert_eq!(cut.left_out(), 0);
        for len in 0..=HEAD.len() {
            let begun = Findings::parse(&text.as_bytes()[..len]).unwrap();
            assert!(begun.is_empty(), "{len} bytes of the first line");
        }
    }

    #[test]
    fn no_text_is_longer_than_what_is_read() {
        for (count, why, files) in [(MOST, 10, 2 << 20), (MOST, 1 << 10, 100), (10, 1 << 20, 1 << 20)] {
            let mut findings = Findings::default();
            for number in 0..count as u64 + 1 {
                for outcome in [Outcome::Lost, Outcome::Mended] {
                    let why = "w".repeat(why);
                    findings.add(Finding { why, ..finding(What::Data, outcome, number << 12) });
                }
            }
            let mut named = 0;
            findings.name_files(usize::MAX, &mut |_| {
                named += 1;
                if named > 5 { Vec::new() } else { vec!["f".repeat(files); 2 * FILES_MAX] }
            });
            let text = findings.to_text();
            assert!(text.len() as u64 <= TEXT_MAX, "{} bytes", text.len());
            let read = Findings::parse(text.as_bytes()).unwrap();
            assert_eq!(read.to_text(), text);
            assert!(text.lines().filter(|line| line.starts_with("  ")).count() <= 5 * (FILES_MAX + 1));
        }
    }

    #[test]
    fn a_line_that_is_no_finding_is_refused_by_its_number() {
        for (text, word) in [
            ("scrub of what", "first line"),
            ("\n", "first line"),
            ("scrub findings:2\n", "first line"),
            ("scrub findings:1\ndata at devid 1 offset x, lost: y\n", "line 2"),
            ("scrub findings:1\ndata at devid 1 offset 1, gone: y\n", "line 2"),
        ] {
            let error = Findings::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(word), "{text:?}: {error}");
        }
    }

    #[test]
    fn what_a_resumed_scrub_finds_again_is_not_kept() {
        let mut findings = Findings::default();
        for (what, offset) in [(What::Superblock, 1 << 26), (What::Data, 4096), (What::Data, 8192)] {
            findings.add(finding(what, Outcome::Lost, offset));
        }
        findings.add(finding(What::Data, Outcome::Mended, 1 << 20));
        let mut whole = findings.clone();
        whole.keep_found(|_| Stopped::Nowhere);
        assert_eq!((whole.left().len(), whole.len()), (3, 4));
        findings.keep_found(|_| Stopped::At(8192));
        assert_eq!((findings.left().len(), findings.len()), (2, 3));
        findings.superblocks_are_mended(DevId::new(2));
        assert_eq!((findings.left().len(), findings.iter().count()), (1, 3));
        let error = Error::new(ErrorKind::Io, "no tree can be read");
        findings.add(Finding::of_device(DevId::new(2), &error));
        assert_eq!(findings.keep_found(|_| Stopped::At(1 << 30)), [DevId::new(2)], "it is gone on with");
        findings.keep_found(|_| Stopped::At(0));
        assert_eq!((findings.left().len(), findings.len()), (0, 2), "what was mended is good");
        findings.keep_found(|_| Stopped::Failed(1 << 20));
        assert_eq!(findings.iter().count(), 1, "it may not be mended behind the place");
        findings.keep_found(|_| Stopped::Failed(0));
        assert_eq!(findings.iter().count(), 0);
    }
}
