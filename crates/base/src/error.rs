//! One error type for the whole house: a small public kind, a sentence, and the exact cause behind it.
//!
//! The frequent, expected kinds (`NotFound`, `WouldBlock`, ...) are made without allocating.

use std::error::Error as StdError;
use std::fmt;

use crate::DamagedBlock;
use crate::escape::Escaping;

/// `Result` with the house's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What sort of failure it was; a caller branches on this, a person reads the message.
///
/// ```
/// use creamery_base::{Error, ErrorKind};
/// assert_eq!(Error::from(ErrorKind::NotFound).kind(), ErrorKind::NotFound);
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u64)] // as a byte of each `Result` it would have what lies around it copied in pieces, also where all goes well
pub enum ErrorKind {
    /// No such file, tree, item or device.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// A directory was needed.
    NotADirectory,
    /// A directory was given where none may be.
    IsADirectory,
    /// The directory still has entries.
    DirectoryNotEmpty,
    /// An argument makes no sense.
    InvalidInput,
    /// A name or value is longer than the format can hold.
    NameTooLong,
    /// No room left on the devices.
    NoSpace,
    /// A quota group's limit would be exceeded.
    QuotaExceeded,
    /// The filesystem, subvolume or open is read-only.
    ReadOnly,
    /// Not allowed by the file's flags or mode.
    PermissionDenied,
    /// The answer needs waiting and the caller forbade it; nothing was changed.
    WouldBlock,
    /// A device failed.
    Io,
    /// What is written is whole and makes no sense.
    Corrupt,
    /// No copy of what was asked for is whole: checksums are wrong or missing, or packed data does not unpack.
    Unreadable,
    /// A valid thing that this version does not do.
    Unsupported,
    /// In use by somebody else.
    Busy,
    /// The inode or directory has as many links as the format can count.
    TooManyLinks,
    /// As many names with one hash as an item can hold.
    TooManyCollisions,
    /// The file would be larger than the format allows.
    FileTooLarge,
    /// No such extended attribute.
    NoAttribute,
    /// The caller's buffer is too small for the value.
    Range,
    /// The object that the handle named is gone.
    Stale,
    /// Two subvolumes or filesystems where one was needed.
    CrossDevice,
    /// Too many symbolic links.
    TooManySymlinks,
    /// What is read is not of the form that was asked for: an archive, text.
    InvalidData,
    /// The file ends before the end of what was to be read.
    UnexpectedEof,
    /// Stopped at the caller's wish.
    Interrupted,
    /// The filesystem has a device that was not given.
    DeviceMissing,
    /// The transaction was aborted; the filesystem is read-only from here on.
    Aborted,
}

impl ErrorKind {
    /// Whether there is no room, on the devices or within a limit.
    #[must_use]
    pub const fn is_no_room(self) -> bool {
        matches!(self, Self::NoSpace | Self::QuotaExceeded)
    }

    /// Whether what was read is not as it was written, or cannot be read.
    #[must_use]
    pub const fn is_damage(self) -> bool {
        matches!(self, Self::Corrupt | Self::Unreadable | Self::Io)
    }

    /// Whether whatever is tried next would fail by it, too: there is no room, the transaction was aborted, or the caller wants no more.
    #[must_use]
    pub const fn ends_all(self) -> bool {
        self.is_no_room() || matches!(self, Self::Aborted | Self::Interrupted)
    }

    const fn words(self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::AlreadyExists => "already exists",
            Self::NotADirectory => "not a directory",
            Self::IsADirectory => "is a directory",
            Self::DirectoryNotEmpty => "directory not empty",
            Self::InvalidInput => "invalid argument",
            Self::NameTooLong => "name too long",
            Self::NoSpace => "no space left on device",
            Self::QuotaExceeded => "disk quota exceeded",
            Self::ReadOnly => "read-only filesystem",
            Self::PermissionDenied => "operation not permitted",
            Self::WouldBlock => "operation would block",
            Self::Io => "input/output error",
            Self::Corrupt => "filesystem is damaged",
            Self::Unreadable => "content is damaged",
            Self::Unsupported => "not supported",
            Self::Busy => "in use",
            Self::TooManyLinks => "too many links",
            Self::TooManyCollisions => "too many names with the same hash",
            Self::FileTooLarge => "file too large",
            Self::NoAttribute => "no such attribute",
            Self::Range => "result does not fit",
            Self::Stale => "stale handle",
            Self::CrossDevice => "crosses a subvolume boundary",
            Self::TooManySymlinks => "too many levels of symbolic links",
            Self::InvalidData => "invalid data",
            Self::UnexpectedEof => "unexpected end of file",
            Self::Interrupted => "interrupted",
            Self::DeviceMissing => "device missing",
            Self::Aborted => "transaction aborted",
        }
    }
}

/// A failure: its kind, what was being done, and the cause.
///
/// ```
/// use creamery_base::{Error, ErrorKind};
/// let e = Error::new(ErrorKind::NoSpace, "reserving 4096 bytes of metadata");
/// assert_eq!(e.to_string(), "reserving 4096 bytes of metadata: no space left on device");
/// ```
pub struct Error {
    kind: ErrorKind,
    detail: Option<Box<Detail>>,
}

#[derive(Default)]
struct Detail {
    context: String,
    /// Whether the message begins with a path of the host.
    is_on_host: bool,
    advice: Option<Box<str>>,
    block: Option<DamagedBlock>,
    source: Option<Box<dyn StdError + Send + Sync + 'static>>,
}

impl Error {
    // Cold, as all that makes a message: what leads here is kept apart from the code of what goes well, of which the processor's
    // cache for instructions holds the more.

    /// An error of `kind` that says in `context` what was being done or found.
    #[cold]
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, detail: Some(Box::new(Detail { context: context.into(), ..Detail::default() })) }
    }

    /// The same with the error that caused it.
    #[cold]
    pub fn with_source(
        kind: ErrorKind,
        context: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync + 'static>>,
    ) -> Self {
        let (context, source) = (context.into(), Some(source.into()));
        Self { kind, detail: Some(Box::new(Detail { context, source, ..Detail::default() })) }
    }

    /// What sort of failure it was.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What the host's system said, where that is the cause: a disk of the host that is full is told apart from a full
    /// filesystem, which has the same kind.
    ///
    /// ```
    /// use creamery_base::{Error, ErrorKind};
    /// use std::io;
    /// let host = Error::from(io::Error::from(io::ErrorKind::StorageFull)).context("writing");
    /// assert_eq!((host.kind(), host.host()), (ErrorKind::NoSpace, Some(io::ErrorKind::StorageFull)));
    /// assert_eq!(Error::from(ErrorKind::NoSpace).host(), None);
    /// ```
    #[must_use]
    pub fn host(&self) -> Option<std::io::ErrorKind> {
        self.in_chain(|error| error.downcast_ref::<std::io::Error>().map(std::io::Error::kind))
    }

    /// What `find` finds first, in this error and those that caused it.
    fn in_chain<'e, T>(&'e self, find: impl Fn(&'e (dyn StdError + 'static)) -> Option<T>) -> Option<T> {
        let mut cause: Option<&(dyn StdError + 'static)> = Some(self);
        while let Some(error) = cause {
            if let Some(found) = find(error) {
                return Some(found);
            }
            cause = error.source();
        }
        None
    }

    /// What `find` finds first in the details of our own errors among these.
    fn known<'e, T>(&'e self, find: impl Fn(&'e Detail) -> Option<T>) -> Option<T> {
        self.in_chain(|error| error.downcast_ref::<Self>()?.detail.as_deref().and_then(&find))
    }

    /// Gives the failure another kind.
    ///
    /// ```
    /// use creamery_base::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::UnexpectedEof, "reading").with_kind(ErrorKind::Io);
    /// assert_eq!(error.kind(), ErrorKind::Io);
    /// ```
    #[must_use]
    #[cold]
    pub const fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// Puts what was being done in front of the message.
    #[must_use]
    #[cold]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        match &mut self.detail {
            Some(detail) if detail.context.is_empty() => detail.context = context.to_string(),
            Some(detail) => detail.context = format!("{context}: {}", detail.context),
            None => {
                let context = context.to_string();
                self.detail = Some(Box::new(Detail { context, ..Detail::default() }));
            }
        }
        self
    }

    /// Says that it happened to `path` of the host, which is put in front. Who works on an image adds no path in it then.
    ///
    /// ```
    /// use creamery_base::{Error, ErrorKind};
    /// let error = Error::from(ErrorKind::PermissionDenied).on_host("/etc/shadow".as_ref());
    /// assert!(error.is_on_host() && !Error::from(ErrorKind::NotFound).is_on_host());
    /// assert_eq!(error.to_string(), "/etc/shadow: operation not permitted");
    /// ```
    #[must_use]
    #[cold]
    pub fn on_host(self, path: &std::path::Path) -> Self {
        let mut told = self.context(path.display());
        if let Some(detail) = &mut told.detail {
            detail.is_on_host = true;
        }
        told
    }

    /// Whether it happened to a path of the host, with which the message begins.
    #[must_use]
    pub fn is_on_host(&self) -> bool {
        self.detail.as_ref().is_some_and(|detail| detail.is_on_host)
    }

    /// Adds what can be done about it. The message does not say it: [`advice`](Self::advice) has it for the end of the line.
    ///
    /// ```
    /// use creamery_base::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::NotFound, "there is no /dev/fuse").advise("load the kernel's FUSE");
    /// assert_eq!(error.to_string(), "there is no /dev/fuse: not found");
    /// assert_eq!(error.context("mounting").advice(), Some("load the kernel's FUSE"));
    /// ```
    #[must_use]
    #[cold]
    pub fn advise(mut self, advice: impl Into<Box<str>>) -> Self {
        self.detail.get_or_insert_default().advice = Some(advice.into());
        self
    }

    /// What can be done about it, where that place knew.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.known(|detail| detail.advice.as_deref())
    }

    /// Says which block is damaged, where no more exact one is known already.
    ///
    /// ```
    /// use creamery_base::{DamagedBlock, Error, ErrorKind, Logical};
    /// let error = Error::new(ErrorKind::Unreadable, "no good copy").of_block(DamagedBlock::Data(Logical::new(4096)));
    /// let outer = error.of_block(DamagedBlock::Tree(Logical::new(8192))).context("reading");
    /// assert_eq!(outer.block(), Some(DamagedBlock::Data(Logical::new(4096))));
    /// ```
    #[must_use]
    #[cold]
    pub fn of_block(mut self, block: DamagedBlock) -> Self {
        self.detail.get_or_insert_default().block.get_or_insert(block);
        self
    }

    /// The block that is damaged, where that is the cause and the place is known.
    #[must_use]
    pub fn block(&self) -> Option<DamagedBlock> {
        self.known(|detail| detail.block)
    }

    /// What it says but for the words of its kind: for a list at whose end the whole says them once.
    ///
    /// ```
    /// use creamery_base::{Error, ErrorKind};
    /// assert_eq!(Error::new(ErrorKind::Unreadable, "checksum mismatch").without_kind(), "checksum mismatch");
    /// ```
    #[must_use]
    pub fn without_kind(&self) -> String {
        let whole = self.to_string();
        let words = format!(": {}", self.kind.words());
        whole.strip_suffix(&words).unwrap_or(&whole).to_owned()
    }

    /// The sentence of the error without the words of its kind, and its advice behind that: a text to pass on.
    ///
    /// ```
    /// use creamery_base::{Error, ErrorKind};
    /// let error = Error::new(ErrorKind::Busy, "disk.img").advise("unmount it");
    /// assert_eq!(error.with_advice(), "disk.img; unmount it");
    /// ```
    #[must_use]
    pub fn with_advice(&self) -> String {
        match self.advice() {
            Some(advice) => format!("{}; {advice}", self.without_kind()),
            None => self.without_kind(),
        }
    }

    /// Shorthand for [`ErrorKind::Unsupported`].
    #[cold]
    pub fn unsupported(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, what)
    }

    /// Shorthand for [`ErrorKind::InvalidInput`].
    #[cold]
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, what)
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, detail: None }
    }
}

/// What the host says, by the kind that is nearest. An error of ours that went through `std::io` is what it was.
///
/// ```
/// use creamery_base::{Error, ErrorKind};
/// let ours = Error::new(ErrorKind::Unreadable, "checksum mismatch");
/// assert_eq!(Error::from(std::io::Error::from(ours)).kind(), ErrorKind::Unreadable);
/// let host = std::io::Error::from(std::io::ErrorKind::IsADirectory);
/// assert_eq!(Error::from(host).kind(), ErrorKind::IsADirectory);
/// ```
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind as Host;
        if error.get_ref().is_some_and(|cause| cause.is::<Self>()) {
            let cause = error.into_inner().and_then(|cause| cause.downcast::<Self>().ok());
            return *cause.expect("it has one of ours as its cause");
        }
        let kind = match error.kind() {
            Host::NotFound => ErrorKind::NotFound,
            Host::PermissionDenied => ErrorKind::PermissionDenied,
            Host::AlreadyExists => ErrorKind::AlreadyExists,
            Host::NotADirectory => ErrorKind::NotADirectory,
            Host::IsADirectory => ErrorKind::IsADirectory,
            Host::DirectoryNotEmpty => ErrorKind::DirectoryNotEmpty,
            Host::InvalidInput => ErrorKind::InvalidInput,
            Host::InvalidFilename => ErrorKind::NameTooLong,
            Host::StorageFull => ErrorKind::NoSpace,
            Host::QuotaExceeded => ErrorKind::QuotaExceeded,
            Host::FileTooLarge => ErrorKind::FileTooLarge,
            Host::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            Host::WouldBlock => ErrorKind::WouldBlock,
            Host::Interrupted => ErrorKind::Interrupted,
            Host::Unsupported => ErrorKind::Unsupported,
            Host::ResourceBusy => ErrorKind::Busy,
            Host::TooManyLinks => ErrorKind::TooManyLinks,
            Host::StaleNetworkFileHandle => ErrorKind::Stale,
            Host::CrossesDevices => ErrorKind::CrossDevice,
            Host::InvalidData => ErrorKind::InvalidData,
            Host::UnexpectedEof => ErrorKind::UnexpectedEof,
            _ if error.raw_os_error() == Some(ELOOP) => ErrorKind::TooManySymlinks,
            _ => ErrorKind::Io,
        };
        Self::with_source(kind, String::new(), error)
    }
}

/// Linux' number for too many symbolic links, which `std` has no stable kind for.
const ELOOP: i32 = 40;

/// For who works with `std::io`: the kind that is nearest, with this error as its cause.
///
/// ```
/// use creamery_base::{Error, ErrorKind};
/// let error = std::io::Error::from(Error::new(ErrorKind::NoSpace, "writing"));
/// assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
/// assert_eq!(error.to_string(), "writing: no space left on device");
/// assert!(error.get_ref().is_some_and(|cause| cause.is::<Error>()));
/// ```
impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        use std::io::ErrorKind as Host;
        let kind = match error.kind() {
            ErrorKind::NotFound => Host::NotFound,
            ErrorKind::AlreadyExists => Host::AlreadyExists,
            ErrorKind::NotADirectory => Host::NotADirectory,
            ErrorKind::IsADirectory => Host::IsADirectory,
            ErrorKind::DirectoryNotEmpty => Host::DirectoryNotEmpty,
            ErrorKind::InvalidInput => Host::InvalidInput,
            ErrorKind::NameTooLong => Host::InvalidFilename,
            ErrorKind::NoSpace => Host::StorageFull,
            ErrorKind::QuotaExceeded => Host::QuotaExceeded,
            ErrorKind::ReadOnly | ErrorKind::Aborted => Host::ReadOnlyFilesystem,
            ErrorKind::PermissionDenied => Host::PermissionDenied,
            ErrorKind::WouldBlock => Host::WouldBlock,
            ErrorKind::Corrupt | ErrorKind::Unreadable | ErrorKind::InvalidData => Host::InvalidData,
            ErrorKind::Unsupported => Host::Unsupported,
            ErrorKind::Busy => Host::ResourceBusy,
            ErrorKind::TooManyLinks => Host::TooManyLinks,
            ErrorKind::FileTooLarge => Host::FileTooLarge,
            ErrorKind::Stale => Host::StaleNetworkFileHandle,
            ErrorKind::CrossDevice => Host::CrossesDevices,
            ErrorKind::UnexpectedEof => Host::UnexpectedEof,
            // Who reads with `std::io` tries again after what is interrupted.
            _ => Host::Other,
        };
        Self::new(kind, error)
    }
}

/// Whether `words` are the last part of a message.
fn ends_with(message: &str, words: &str) -> bool {
    message.strip_suffix(words).is_some_and(|rest| rest.is_empty() || rest.ends_with(": "))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        let Some(detail) = &self.detail else { return f.write_str(self.kind.words()) };
        // Messages name files, and what a file is called is up to whoever made it.
        let mut f = Escaping(f);
        match (&detail.source, detail.context.is_empty()) {
            (Some(source), true) => write!(f, "{source}"),
            (Some(source), false) => write!(f, "{}: {source}", detail.context),
            (None, true) => f.write_str(self.kind.words()),
            // What was being done may be told in the words of another error, which has said it.
            (None, false) if ends_with(&detail.context, self.kind.words()) => f.write_str(&detail.context),
            (None, false) => write!(f, "{}: {}", detail.context, self.kind.words()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.detail {
            Some(detail) => detail.source.as_deref().map(|source| source as &(dyn StdError + 'static)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_kind_are_said_once() {
        let inner = Error::new(ErrorKind::Unreadable, "checksum mismatch");
        let outer = Error::new(ErrorKind::Unreadable, format!("no good copy: {inner}"));
        assert_eq!(outer.to_string(), "no good copy: checksum mismatch: content is damaged");
        let bare = Error::new(
            ErrorKind::Unreadable,
            format!("no good copy: {}", Error::from(ErrorKind::Unreadable)),
        );
        assert_eq!(bare.context("reading").to_string(), "reading: no good copy: content is damaged");
        let told = Error::new(ErrorKind::Unreadable, "content is damaged");
        assert_eq!(told.to_string(), "content is damaged");
        let other = Error::new(ErrorKind::Io, format!("no good copy: {inner}"));
        assert_eq!(
            other.to_string(),
            "no good copy: checksum mismatch: content is damaged: input/output error"
        );
    }
}
