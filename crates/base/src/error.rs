//! The error type of the whole project: a small public kind, a sentence, and the exact cause.
//!
//! Errors of the frequent, expected kinds (`NotFound`, `WouldBlock`, ...) do not allocate.

use std::error::Error as StdError;
use std::fmt;

use crate::DamagedBlock;
use crate::escape::Escaping;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of a failure; a caller branches on it, a person reads the message.
///
/// ```
/// use creamery_base::{Error, ErrorKind};
/// assert_eq!(Error::from(ErrorKind::NotFound).kind(), ErrorKind::NotFound);
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u64)] // as a byte, it would make the compiler copy the neighbours in each `Result` in pieces, also on success
pub enum ErrorKind {
    /// No such file, tree, item or device.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// A directory was needed.
    NotADirectory,
    /// A directory was given where none is allowed.
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
    /// The call would have to wait and the caller forbade it; nothing was changed.
    WouldBlock,
    /// A device failed.
    Io,
    /// Intact bytes on disk have an invalid meaning.
    Corrupt,
    /// No copy of the data is good: checksums are wrong or missing, or compressed data does not decompress.
    Unreadable,
    /// A valid request or format that this version does not support.
    Unsupported,
    /// In use by another process or thread.
    Busy,
    /// The inode or directory has as many links as the format can count.
    TooManyLinks,
    /// An item already holds as many names with one hash as it can.
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
    /// The input has another form than the one that was asked for: an archive, text.
    InvalidData,
    /// The file ends before the end of the requested range.
    UnexpectedEof,
    /// The caller asked to stop.
    Interrupted,
    /// A device of the filesystem was not given.
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

    /// Whether data cannot be read, or differs from the data that was written.
    #[must_use]
    pub const fn is_damage(self) -> bool {
        matches!(self, Self::Corrupt | Self::Unreadable | Self::Io)
    }

    /// Whether every later step would fail with this error, too: there is no room, the transaction was aborted, or the caller wants to stop.
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

/// A failure: its kind, the operation, and the cause.
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
    // Everything that makes a message is cold: the compiler keeps such code apart from the code of the successful path, and more of the
    // latter fits into the processor's instruction cache.

    /// Creates an error of `kind`. `context` is the operation or the finding.
    #[cold]
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, detail: Some(Box::new(Detail { context: context.into(), ..Detail::default() })) }
    }

    /// Creates an error of `kind` with a context and the error that caused it.
    #[cold]
    pub fn with_source(
        kind: ErrorKind,
        context: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync + 'static>>,
    ) -> Self {
        let (context, source) = (context.into(), Some(source.into()));
        Self { kind, detail: Some(Box::new(Detail { context, source, ..Detail::default() })) }
    }

    /// Returns the kind of the failure.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the error kind of the host's system, if that is the cause. This distinguishes a full disk of the host from a full
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

    /// Returns the first result of `find` in this error and its causes.
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

    /// Returns the first result of `find` in the details of the Creamery errors in this chain.
    fn known<'e, T>(&'e self, find: impl Fn(&'e Detail) -> Option<T>) -> Option<T> {
        self.in_chain(|error| error.downcast_ref::<Self>()?.detail.as_deref().and_then(&find))
    }

    /// Replaces the kind.
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

    /// Puts the operation in front of the message.
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

    /// Notes that the failure is about `path` of the host, and puts the path in front. Code that works on an image then adds no path in the image.
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

    /// Whether the failure is about a path of the host, with which the message begins.
    #[must_use]
    pub fn is_on_host(&self) -> bool {
        self.detail.as_ref().is_some_and(|detail| detail.is_on_host)
    }

    /// Adds advice for the user. The message does not contain it: [`advice`](Self::advice) returns it for the end of the line.
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

    /// Returns the advice for the user, if some place in the chain added one.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.known(|detail| detail.advice.as_deref())
    }

    /// Names the damaged block, unless a more exact block is known already.
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

    /// Returns the damaged block, if damage is the cause and its place is known.
    #[must_use]
    pub fn block(&self) -> Option<DamagedBlock> {
        self.known(|detail| detail.block)
    }

    /// Returns the message without the words of its kind: for a list with the same words at its end.
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

    /// Returns the message without the words of its kind, followed by the advice: a text to pass on.
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

/// Converts an error of the host to the nearest kind. A Creamery error inside a `std::io::Error` comes back unchanged.
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

/// Linux' number for too many symbolic links, for which `std` has no stable kind.
const ELOOP: i32 = 40;

/// Converts to the nearest kind of `std::io`, with this error as its cause.
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
            // `Interrupted` is not passed on: readers of `std::io` would try again.
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
        // Messages contain file names, and names may contain any bytes.
        let mut f = Escaping(f);
        match (&detail.source, detail.context.is_empty()) {
            (Some(source), true) => write!(f, "{source}"),
            (Some(source), false) => write!(f, "{}: {source}", detail.context),
            (None, true) => f.write_str(self.kind.words()),
            // The context may be the message of another error, which already has the words.
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
