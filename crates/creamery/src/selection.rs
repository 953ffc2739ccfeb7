//! The selection of the files that a restore copies: it leaves out snapshots with repeated content, and unwanted types of files.

use std::error::Error as _;
use std::path::Path;

use creamery_base::{Error, ErrorKind, ObjectId, Result, Wait};
use creamery_mkfs::Skipped;
use regex_automata::nfa::thompson::{self, pikevm::PikeVM};
use regex_automata::util::syntax;

use crate::read_dir::DirEntry;
use crate::{FileType, fs};

/// The most memory that a pattern may take, bytes: nested repetitions become long.
const PROGRAM_MAX: usize = 10 << 20;

/// An extended regular expression over paths, bytes of any kind. It matches anywhere in a path, unless it anchors the beginning (`^`) or
/// the end (`$`). A directory whose path does not match is left out with everything below it. So the pattern for a deep file must also
/// match every directory above it.
///
/// ```
/// use creamery::rescue::PathPattern;
/// let pattern = PathPattern::new("^/(|home(|/ada(|/.*)))$")?;
/// assert!(["/", "/home", "/home/ada/diary"].iter().all(|path| pattern.matches(path)));
/// assert!(!pattern.matches("/home/bob"));
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PathPattern(PikeVM);

impl PathPattern {
    /// Parses a pattern, as for `--path-regex` of btrfs-restore(8).
    ///
    /// # Errors
    /// When the text is not a valid regular expression.
    pub fn new(text: &str) -> Result<Self> {
        Self::parse(text, false)
    }

    /// Parses a pattern that ignores the case of ASCII letters, as `-c` of btrfs-restore(8) does.
    ///
    /// # Errors
    /// When the text is not a valid regular expression.
    pub fn ignoring_case(text: &str) -> Result<Self> {
        Self::parse(text, true)
    }

    fn parse(text: &str, ignore_case: bool) -> Result<Self> {
        // Paths are bytes, and a name may contain any of them.
        let bytes = syntax::Config::new().unicode(false).utf8(false);
        let syntax = bytes.dot_matches_new_line(true).case_insensitive(ignore_case);
        let program = thompson::Config::new().utf8(false).nfa_size_limit(Some(PROGRAM_MAX));
        PikeVM::builder().syntax(syntax).thompson(program).build(text).map(Self).map_err(|error| {
            let error = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            let why = error.lines().last().unwrap_or_default();
            let why = why.strip_prefix("error: ").unwrap_or(why);
            Error::new(
                ErrorKind::InvalidInput,
                format!("invalid regular expression '{}': {why}", text.escape_debug()),
            )
        })
    }

    /// Whether the pattern matches a path.
    #[must_use]
    pub fn matches(&self, path: impl AsRef<Path>) -> bool {
        self.0.is_match(&mut self.0.create_cache(), path.as_ref().as_os_str().as_encoded_bytes())
    }
}

/// The files that a copy takes.
#[derive(Clone, Default, Debug)]
pub(crate) struct Selection {
    /// Takes snapshots, with everything in them.
    pub(crate) snapshots: bool,
    pub(crate) symlinks: bool,
    /// Fifos, sockets and devices.
    pub(crate) special: bool,
    /// Takes only regular files whose data has checksums.
    pub(crate) verified: bool,
    /// Takes only files and directories whose paths match.
    pub(crate) pattern: Option<PathPattern>,
}

impl Selection {
    /// Selects everything.
    pub(crate) fn everything() -> Self {
        Self { snapshots: true, symlinks: true, special: true, ..Self::default() }
    }

    /// Returns the reason why an entry of a directory is left out, if it is.
    pub(crate) fn skips(
        &self,
        fs: &fs::Filesystem,
        entry: &DirEntry,
        path: &Path,
    ) -> Result<Option<Skipped>> {
        if self.pattern.as_ref().is_some_and(|pattern| !pattern.matches(path)) {
            return Ok(Some(Skipped::Unmatched));
        }
        Ok(match entry.file_type() {
            FileType::Directory => {
                let id = entry.id();
                let is_subvolume = id.ino == ObjectId::FIRST_FREE && id.subvolume != entry.dir_id().subvolume;
                let is_snapshot =
                    !self.snapshots && is_subvolume && fs.subvolume_info(id.subvolume)?.is_snapshot;
                is_snapshot.then_some(Skipped::Snapshot)
            }
            FileType::File if self.verified => {
                let attributes = fs.stat(entry.id(), Wait::Yes)?;
                is_unverified(&attributes).then_some(Skipped::Unverified)
            }
            FileType::File => None,
            FileType::Symlink => (!self.symlinks).then_some(Skipped::Symlink),
            FileType::Fifo | FileType::Socket | FileType::CharDevice | FileType::BlockDevice => {
                (!self.special).then_some(Skipped::Special)
            }
        })
    }
}

/// Whether no checksum proves that the data belongs to the file.
pub(crate) fn is_unverified(attributes: &fs::Attributes) -> bool {
    attributes.flags.contains(fs::InodeFlags::NODATASUM) && attributes.size > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_over_bytes_and_found_anywhere_unless_it_says_where() {
        let pattern = |text, ignore_case| PathPattern::parse(text, ignore_case).expect("it is one");
        let odd = Path::new(std::ffi::OsStr::new("/d/\u{e4}\n")).to_owned();
        assert!(pattern("^/(|d(|/.*))$", false).matches(&odd));
        assert!(pattern("^/(|d(|/.*))$", false).matches(std::path::PathBuf::from(
            <std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(b"/d/\xff".to_vec())
        )));
        assert!(pattern("dir", false).matches("/a/dir/b") && !pattern("^dir", false).matches("/dir"));
        assert!(pattern("/DIR", true).matches("/dir") && !pattern("/DIR", false).matches("/dir"));
    }

    #[test]
    fn what_is_no_pattern_is_refused_on_one_line() {
        let refused = PathPattern::new("(").expect_err("it is open").to_string();
        assert!(refused.contains("invalid regular expression '(': ") && !refused.contains('\n'), "{refused}");
    }
}
