//! The bounds-checked reader under the decoder.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::Errno;

/// A request that cannot be what a kernel sends.
///
/// ```
/// use creamery_fuse::Errno;
/// use creamery_fuse::protocol::{InitFlags, decode, wire::InHeader};
/// let lookup = InHeader { opcode: 1, len: 40, ..InHeader::default() };
/// assert_eq!(decode(&lookup, &[], &[], InitFlags::empty()).unwrap_err().errno, Errno::EIO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// The defect of the request, in words.
    pub what: &'static str,
    /// `EIO` for a request that is too short or torn, `EINVAL` for a value that makes no sense.
    pub errno: Errno,
}

impl Malformed {
    pub(super) const fn short(what: &'static str) -> Self {
        Self { what, errno: Errno::EIO }
    }

    pub(super) const fn value(what: &'static str) -> Self {
        Self { what, errno: Errno::EINVAL }
    }
}

/// Reads a request's body from the front. The body may lie in two pieces (`io_uring` keeps the fixed
/// structure apart from names and data); no field crosses the seam.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    now: &'a [u8],
    later: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(fixed: &'a [u8], rest: &'a [u8]) -> Self {
        Self { now: fixed, later: rest }
    }

    fn settle(&mut self) {
        if self.now.is_empty() {
            self.now = std::mem::take(&mut self.later);
        }
    }

    pub(super) fn structure<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Malformed> {
        self.settle();
        let (value, rest) =
            T::read_from_prefix(self.now).map_err(|_| Malformed::short("request ends in its structure"))?;
        self.now = rest;
        Ok(value)
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        self.settle();
        let (taken, rest) =
            self.now.split_at_checked(len).ok_or(Malformed::short("request ends in its data"))?;
        self.now = rest;
        Ok(taken)
    }

    /// The next bytes up to a NUL, without it.
    pub(super) fn string(&mut self) -> Result<&'a [u8], Malformed> {
        self.settle();
        let end = self.now.iter().position(|&byte| byte == 0).ok_or(Malformed::short("string has no end"))?;
        let taken = &self.now[..end];
        self.now = &self.now[end + 1..];
        Ok(taken)
    }

    /// A name in a directory or of an attribute.
    pub(super) fn name(&mut self) -> Result<&'a [u8], Malformed> {
        match self.string()? {
            [] => Err(Malformed::value("empty name")),
            name if name.contains(&b'/') => Err(Malformed::value("name contains a slash")),
            name => Ok(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_read_one_after_the_other() {
        let mut reader = Reader::new(&[1, 0, 0, 0], b"name\0data");
        assert_eq!(reader.structure::<u32>(), Ok(1));
        assert_eq!(reader.name(), Ok(&b"name"[..]));
        assert_eq!(reader.bytes(5).unwrap_err().errno, Errno::EIO);
        assert_eq!(reader.bytes(4), Ok(&b"data"[..]));
        assert_eq!(reader.bytes(0), Ok(&b""[..]));
        assert!(reader.structure::<u8>().is_err());
    }

    #[test]
    fn names_are_checked() {
        assert_eq!(Reader::new(b"\0", &[]).name().unwrap_err().errno, Errno::EINVAL);
        assert_eq!(Reader::new(b"a/b\0", &[]).name().unwrap_err().errno, Errno::EINVAL);
        assert_eq!(Reader::new(b"abc", &[]).name().unwrap_err().errno, Errno::EIO);
    }
}
