//! The findings of a scrub, in memory and as the text of a file: a line for each finding, followed by lines for the affected files.
//!
//! ```text
//! scrub findings:1
//! data at devid 1 offset 13631488, logical 13631488, lost: checksum mismatch
//!   /dir/file, byte 4096
//! and 12 findings more
//! ```

use std::fmt::Write as _;

use creamery_base::{DevId, Error, ErrorKind, Escaped, ObjectId, Result, TreeId};

use super::{Finding, FindingKind, Outcome};

pub(super) const HEAD: &str = "scrub findings:1";
/// Maximum findings of either kind (left, or repaired); further ones are only counted.
const MOST: usize = 10_000;
/// Maximum bytes of the lines of either kind.
const LINES_MAX: usize = 4 << 20;
/// Maximum number of named files of one finding.
pub const FILES_MAX: usize = 8;
/// Maximum bytes of all lines with files.
const NAMES_MAX: usize = 7 << 20;
/// Maximum bytes of a text of findings: their lines, those of files, and two lines of the text itself.
pub(super) const TEXT_MAX: u64 = 16 << 20;

/// The findings of a scrub. Repaired ones have separate limits, so they displace none that are left.
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
    /// Bytes of the lines of findings that are left, and of those that were repaired.
    lines: [usize; 2],
    left_out: u64,
}

/// A finding, and the lines of its files.
#[derive(Clone, Debug)]
struct Found {
    finding: Finding,
    files: Vec<String>,
}

/// The place where the scrub of a device stopped, from which another scrub goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stopped {
    /// It is complete.
    Nowhere,
    /// It stopped at this byte of the device.
    At(u64),
    /// It failed there, and later work is unknown.
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
    /// Adds a finding. Returns whether it is within the limits.
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

    /// The findings that are left.
    #[must_use]
    pub fn left(&self) -> Vec<&Finding> {
        self.left.iter().map(|found| &found.finding).collect()
    }

    /// The number of findings in the list.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.left.len() + self.mended.len()
    }

    /// Whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// First the findings that are left, then the repaired ones.
    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.left.iter().chain(&self.mended).map(|found| &found.finding)
    }

    /// The number of findings that are left but beyond the limits.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Keeps the findings that a scrub does not find again if it goes on where each device stopped. Returns the devices that could not be
    /// scrubbed any more, once for each error counted for that: the scrub goes on with them.
    pub(super) fn keep_found(&mut self, stopped: impl Fn(DevId) -> Stopped) -> Vec<DevId> {
        let mut again = Vec::new();
        let is_of_device =
            |finding: &Finding| finding.what == FindingKind::NotScrubbed && finding.logical.is_none();
        let is_passed = |finding: &Finding, place: u64| match finding.what {
            _ if is_of_device(finding) => false,
            // A device's superblocks come first, wherever they lie.
            FindingKind::Superblock => place > 0,
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
            // It is good now, also if the scrub of another device has repaired it ahead.
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

    /// Notes that the superblocks of a device were rewritten.
    pub(super) fn superblocks_are_mended(&mut self, dev: DevId) {
        let its =
            |found: &mut Found| (found.finding.what, found.finding.at.dev) == (FindingKind::Superblock, dev);
        for mut found in self.left.extract_if(.., its) {
            found.finding.outcome = Outcome::Mended;
            self.mended.push(found);
        }
        self.measure();
    }

    /// Asks `files` for the lines of the affected files of findings that are left, each made by [`file_line`], the last one possibly by
    /// [`more_files_line`]. Keeps a few of each, within the limit of the text. Asks only for the first `most` findings.
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
                // Two spaces before it, and the line break.
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

    /// Parses the text of the file. A line that the end of the file cuts is skipped, also if it is the first one: a writing process has
    /// created the file but not written to it yet, or died then.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidData`]: the text is invalid.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let corrupt = |what: String| Error::new(ErrorKind::InvalidData, what);
        let text = std::str::from_utf8(text).map_err(|_| corrupt("it is not UTF-8".to_owned()))?;
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
                let finding =
                    finding.ok_or_else(|| corrupt(format!("line {} is not a finding", number + 2)))?;
                is_mended = finding.outcome == Outcome::Mended;
                findings.add(finding);
            }
        }
        findings.bound_names();
        Ok(findings)
    }
}

/// The line about a file with damage at a byte of it: with its path, if that is known.
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

/// The line that counts further files; `None` if there are none.
#[must_use]
pub fn more_files_line(more: u64) -> Option<String> {
    (more > 0).then(|| format!("and {more} files more"))
}

#[cfg(test)]
mod tests {
    use creamery_base::{Logical, Physical};

    use super::*;

    fn finding(what: FindingKind, outcome: Outcome, offset: u64) -> Finding {
        let logical = (what != FindingKind::Superblock).then(|| Logical::new(offset + 1));
        let at = Physical { dev: DevId::new(2), offset };
        Finding { what, at, logical, why: "expected a, found b: c".to_owned(), outcome }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let mut findings = Findings::default();
        let mut offset = 0;
        for what in FindingKind::ALL {
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
                    findings.add(Finding { why, ..finding(FindingKind::Data, outcome, number << 12) });
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
        for (what, offset) in
            [(FindingKind::Superblock, 1 << 26), (FindingKind::Data, 4096), (FindingKind::Data, 8192)]
        {
            findings.add(finding(what, Outcome::Lost, offset));
        }
        findings.add(finding(FindingKind::Data, Outcome::Mended, 1 << 20));
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
