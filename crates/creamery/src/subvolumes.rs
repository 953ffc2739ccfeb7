//! Subvolumes and snapshots.

use std::path::Path;

use creamery_base::{Error, ObjectId, Result};
use creamery_fs::NewInode;

use crate::filesystem::{DIRECTORY_MODE, Filesystem};
use crate::path::{Last, at};

/// Subvolumes.
impl Filesystem {
    /// Makes a subvolume.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn create_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.resolve_parent(path.as_ref())?;
        let new = NewInode::directory(DIRECTORY_MODE);
        self.fs.create_subvolume(dir, name, &new).map(drop).map_err(at(path.as_ref()))
    }

    /// Takes a snapshot, called `path`, of the subvolume whose root is `source`: all that it has at the moment, at the price of
    /// a commit, however much that is. With `read_only` nothing in it can be changed. It is durable when this returns.
    ///
    /// Subvolumes in the source are empty directories in the snapshot.
    ///
    /// # Errors
    /// When `source` is not the root of a subvolume, the name is taken, or what was written before cannot be written back.
    ///
    /// ```no_run
    /// # fn main() -> creamery::Result<()> {
    /// let fs = creamery::Image::options().write(true).open("disk.img")?;
    /// fs.create_subvolume("/work")?;
    /// fs.write("/work/file", "first")?;
    /// fs.create_snapshot("/work", "/before", true)?;
    /// fs.write("/work/file", "second")?;
    /// assert_eq!(fs.read_to_string("/before/file")?, "first");
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_snapshot(
        &self,
        source: impl AsRef<Path>,
        path: impl AsRef<Path>,
        read_only: bool,
    ) -> Result<()> {
        let of = self.resolve(source.as_ref(), Last::Follow)?;
        if of.ino != ObjectId::FIRST_FREE {
            return Err(at(source.as_ref())(Error::invalid("not the root of a subvolume")));
        }
        let (dir, name) = self.resolve_parent(path.as_ref())?;
        let made = self.fs.create_snapshot(of.subvolume, dir, name, read_only);
        made.map(drop).map_err(at(path.as_ref()))
    }
}
