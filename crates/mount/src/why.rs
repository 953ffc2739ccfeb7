//! What kind of a failure one end of a channel tells the other, beside its words.

use creamery_base::ErrorKind;
use serde::{Deserialize, Serialize};

/// The kinds that make a difference to who is told.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) enum Why {
    /// Nobody can do that.
    Unsupported,
    ReadOnly,
    NoSpace,
    /// Nothing can be written any more.
    Aborted,
    #[default]
    Other,
}

impl Why {
    pub(crate) const fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Unsupported => Self::Unsupported,
            ErrorKind::ReadOnly => Self::ReadOnly,
            ErrorKind::NoSpace => Self::NoSpace,
            ErrorKind::Aborted => Self::Aborted,
            _ => Self::Other,
        }
    }

    pub(crate) const fn kind(self) -> ErrorKind {
        match self {
            Self::Unsupported => ErrorKind::Unsupported,
            Self::ReadOnly => ErrorKind::ReadOnly,
            Self::NoSpace => ErrorKind::NoSpace,
            Self::Aborted => ErrorKind::Aborted,
            Self::Other => ErrorKind::Io,
        }
    }
}
