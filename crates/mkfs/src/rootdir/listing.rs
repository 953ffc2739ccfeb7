//! The names in one source directory, sorted.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use creamery_base::{Error, ErrorKind, Result};
use rustix::fs::{FileType, RawDir};

/// A directory's names in bytewise order, without "." and "..".
///
/// The names lie one after the other in one allocation, each with its closing zero. So a million of them costs little more than their
/// bytes, and a name can be passed to a system call unchanged.
#[derive(Default)]
pub(crate) struct Listing {
    names: Vec<u8>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    start: u32,
    /// The length without the closing zero.
    len: u16,
    kind: FileType,
}

impl Listing {
    /// Reads and sorts the names of the open directory `dir`.
    pub(crate) fn read(dir: BorrowedFd<'_>) -> Result<Self> {
        let mut listing = Self::default();
        let mut buffer = Vec::with_capacity(64 << 10);
        let mut raw = RawDir::new(dir.as_fd(), buffer.spare_capacity_mut());
        while let Some(entry) = raw.next() {
            let entry = entry.map_err(std::io::Error::from)?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                listing.push(name, entry.file_type())?;
            }
        }
        listing.sort();
        Ok(listing)
    }

    fn push(&mut self, name: &CStr, kind: FileType) -> Result<()> {
        let too_many = |_| Error::new(ErrorKind::Unsupported, "more than 4 GiB of names in one directory");
        let start = u32::try_from(self.names.len()).map_err(too_many)?;
        let len = u16::try_from(name.to_bytes().len())
            .map_err(|_| Error::new(ErrorKind::NameTooLong, "a name in the source directory"))?;
        self.names.extend_from_slice(name.to_bytes_with_nul());
        self.entries.push(Entry { start, len, kind });
        Ok(())
    }

    fn sort(&mut self) {
        let Self { names, entries } = self;
        let bytes = |entry: &Entry| &names[entry.start as usize..][..usize::from(entry.len)];
        entries.sort_unstable_by(|a, b| bytes(a).cmp(bytes(b)));
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Name number `index` and its type; the type is unknown if the host's filesystem does not report it.
    pub(crate) fn get(&self, index: usize) -> (&CStr, FileType) {
        let entry = self.entries[index];
        let bytes = &self.names[entry.start as usize..][..usize::from(entry.len) + 1];
        (CStr::from_bytes_with_nul(bytes).expect("names are stored with one closing zero"), entry.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_by_their_bytes() {
        let mut listing = Listing::default();
        for name in [c"b", c"\xff", c"B", c"aa", c"a", c"\x01"] {
            listing.push(name, FileType::RegularFile).unwrap();
        }
        listing.sort();
        let names: Vec<_> = (0..listing.len()).map(|index| listing.get(index).0).collect();
        assert_eq!(names, [c"\x01", c"B", c"a", c"aa", c"b", c"\xff"]);
    }
}
