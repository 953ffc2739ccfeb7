//! Names of directory entries.

use creamery_base::{Error, ErrorKind, Result};
use creamery_format::{NAME_LEN_MAX, position_of_any};

/// A valid name of a directory entry: 1 to 255 bytes, without `/` and NUL, not `.` and not `..`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks a name that has to exist already.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self> {
        match bytes {
            b"" => Err(ErrorKind::NotFound.into()),
            b"." | b".." => Err(Error::invalid("the names . and .. cannot be changed")),
            _ if bytes.len() > NAME_LEN_MAX => Err(ErrorKind::NameTooLong.into()),
            _ if position_of_any(bytes, [0, b'/']).is_some() => {
                Err(Error::invalid("name contains a slash or a NUL byte"))
            }
            _ => Ok(Self(bytes)),
        }
    }

    /// Checks a name for a new entry.
    pub(crate) fn to_make(bytes: &'a [u8]) -> Result<Self> {
        match bytes {
            b"." | b".." => Err(ErrorKind::AlreadyExists.into()),
            _ => Self::new(bytes),
        }
    }

    /// The bytes.
    pub(crate) const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The size that the entry adds to its directory: its length, once for DIR_ITEM and once for DIR_INDEX.
    pub(crate) const fn size_in_directory(self) -> u64 {
        self.0.len() as u64 * 2
    }

    /// The length as entries and references store it.
    pub(crate) fn len_u16(self) -> u16 {
        u16::try_from(self.0.len()).expect("a checked name has at most 255 bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_an_entry_can_have_pass() {
        let long = [b'x'; 256];
        let rows: [(&[u8], Option<ErrorKind>); 9] = [
            (b"a", None),
            (&long[..255], None),
            (b"\xff\x01\n ", None),
            (b"...", None),
            (&long, Some(ErrorKind::NameTooLong)),
            (b"", Some(ErrorKind::NotFound)),
            (b"..", Some(ErrorKind::InvalidInput)),
            (b"a/b", Some(ErrorKind::InvalidInput)),
            (b"a\0", Some(ErrorKind::InvalidInput)),
        ];
        for (name, refused) in rows {
            assert_eq!(Name::new(name).err().map(|error| error.kind()), refused, "{name:?}");
        }
        assert_eq!(Name::to_make(b".").err().map(|error| error.kind()), Some(ErrorKind::AlreadyExists));
    }
}
