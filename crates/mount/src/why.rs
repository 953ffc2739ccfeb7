//! What kind of a failure one end of a channel tells the other, beside its words.

use creamery_base::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// The kinds that make a difference to who is told.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) enum Why {
    /// Nobody can do that.
    Unsupported,
    ReadOnly,
    DeviceMissing,
    NoSpace,
    QuotaExceeded,
    /// The host has no room for what the image has: that is written in it.
    HostFull,
    /// Nothing can be written any more.
    Aborted,
    NotFound,
    AlreadyExists,
    NotADirectory,
    DirectoryNotEmpty,
    InvalidInput,
    NameTooLong,
    FileTooLarge,
    Corrupt,
    Unreadable,
    PermissionDenied,
    Busy,
    #[default]
    Other,
}

impl Why {
    /// Of an error, with what the host said.
    pub(crate) fn of_error(error: &Error) -> Self {
        match error.host() {
            Some(std::io::ErrorKind::StorageFull) => Self::HostFull,
            _ => Self::of(error.kind()),
        }
    }

    /// The error again, from what was said of it.
    pub(crate) fn error(self, failure: String) -> Error {
        match self {
            Self::HostFull => std::io::Error::new(std::io::ErrorKind::StorageFull, failure).into(),
            _ if failure.is_empty() => self.kind().into(),
            _ => Error::new(self.kind(), failure),
        }
    }

    pub(crate) const fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Unsupported => Self::Unsupported,
            ErrorKind::ReadOnly => Self::ReadOnly,
            ErrorKind::DeviceMissing => Self::DeviceMissing,
            ErrorKind::NoSpace => Self::NoSpace,
            ErrorKind::QuotaExceeded => Self::QuotaExceeded,
            ErrorKind::Aborted => Self::Aborted,
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::AlreadyExists => Self::AlreadyExists,
            ErrorKind::NotADirectory => Self::NotADirectory,
            ErrorKind::DirectoryNotEmpty => Self::DirectoryNotEmpty,
            ErrorKind::InvalidInput => Self::InvalidInput,
            ErrorKind::NameTooLong => Self::NameTooLong,
            ErrorKind::FileTooLarge => Self::FileTooLarge,
            ErrorKind::Corrupt => Self::Corrupt,
            ErrorKind::Unreadable => Self::Unreadable,
            ErrorKind::PermissionDenied => Self::PermissionDenied,
            ErrorKind::Busy => Self::Busy,
            _ => Self::Other,
        }
    }

    pub(crate) const fn kind(self) -> ErrorKind {
        match self {
            Self::Unsupported => ErrorKind::Unsupported,
            Self::ReadOnly => ErrorKind::ReadOnly,
            Self::DeviceMissing => ErrorKind::DeviceMissing,
            Self::NoSpace | Self::HostFull => ErrorKind::NoSpace,
            Self::QuotaExceeded => ErrorKind::QuotaExceeded,
            Self::Aborted => ErrorKind::Aborted,
            Self::NotFound => ErrorKind::NotFound,
            Self::AlreadyExists => ErrorKind::AlreadyExists,
            Self::NotADirectory => ErrorKind::NotADirectory,
            Self::DirectoryNotEmpty => ErrorKind::DirectoryNotEmpty,
            Self::InvalidInput => ErrorKind::InvalidInput,
            Self::NameTooLong => ErrorKind::NameTooLong,
            Self::FileTooLarge => ErrorKind::FileTooLarge,
            Self::Corrupt => ErrorKind::Corrupt,
            Self::Unreadable => ErrorKind::Unreadable,
            Self::PermissionDenied => ErrorKind::PermissionDenied,
            Self::Busy => ErrorKind::Busy,
            Self::Other => ErrorKind::Io,
        }
    }
}

/// How many bytes something was done to, or why not: what one end of a channel tells the other.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct BytesDone {
    bytes: u64,
    failure: Option<String>,
    /// What kind of a failure that is.
    why: Why,
}

impl BytesDone {
    pub(crate) fn of(done: Result<u64>) -> Self {
        match done {
            Ok(bytes) => Self { bytes, ..Self::default() },
            Err(error) => Self { bytes: 0, failure: Some(error.without_kind()), why: Why::of_error(&error) },
        }
    }

    /// The same again, at the other end.
    pub(crate) fn into_result(self) -> Result<u64> {
        match self.failure {
            None => Ok(self.bytes),
            Some(failure) => Err(self.why.error(failure)),
        }
    }
}
