//! The kinds of failures that one end of a channel sends to the other, beside the message.

use creamery_base::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// The kinds of failures that the receiver handles differently.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) enum Why {
    /// The operation is not supported.
    Unsupported,
    ReadOnly,
    DeviceMissing,
    NoSpace,
    QuotaExceeded,
    /// The host has no space for data that the image contains.
    HostFull,
    /// An error has ended all writing.
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
    /// The kind of an error, with the host's error number.
    pub(crate) fn of_error(error: &Error) -> Self {
        match error.host() {
            Some(std::io::ErrorKind::StorageFull) => Self::HostFull,
            _ => Self::of(error.kind()),
        }
    }

    /// Makes the error again from its message.
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

/// The number of processed bytes, or the failure: an answer of the channel.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct BytesDone {
    bytes: u64,
    failure: Option<String>,
    /// The kind of the failure.
    why: Why,
}

impl BytesDone {
    pub(crate) fn of(done: Result<u64>) -> Self {
        match done {
            Ok(bytes) => Self { bytes, ..Self::default() },
            Err(error) => Self { bytes: 0, failure: Some(error.without_kind()), why: Why::of_error(&error) },
        }
    }

    /// Converts the answer to a result, at the receiver's end.
    pub(crate) fn into_result(self) -> Result<u64> {
        match self.failure {
            None => Ok(self.bytes),
            Some(failure) => Err(self.why.error(failure)),
        }
    }
}
