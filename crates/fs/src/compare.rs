//! Comparing two open files, in one filesystem or in two: finds the ranges that have to be read.

use std::ops::Range;

use creamery_base::Result;

use crate::data;
use crate::open_file::OpenFile;

impl OpenFile {
    /// The first bytes of `range` that have to be read to know whether both files are equal there. Returns `None` if the files are known to be equal without
    /// reading: both show the same parts of the same extents, or zeros. Such data is equal even if it cannot be read.
    /// Errors: one of them is no regular file; device errors; damage of either tree.
    pub fn first_unshared(&self, other: &Self, range: Range<u64>) -> Result<Option<Range<u64>>> {
        let (one, other) = (&**self.inode(), &**other.inode());
        one.engine().check_open()?;
        other.engine().check_open()?;
        data::first_unshared(&one.regular()?, &other.regular()?, range)
    }
}
