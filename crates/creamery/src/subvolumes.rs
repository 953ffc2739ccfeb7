//! Subvolumes and snapshots.

use std::path::Path;

use creamery_base::{Error, ErrorKind, ObjectId, Result};
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

    /// Deletes a subvolume with all that is in it. Nobody finds it any more; who has a file of it open may read that. The space
    /// comes back in the background, or when somebody asks for that ([`Filesystem::sync_subvolumes`]).
    ///
    /// # Errors
    /// When it is not a subvolume, is the one that is open, the top level or the default, or has subvolumes in it.
    pub fn delete_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (dir, name) = self.resolve_parent(path)?;
        let found = self.resolve(path, Last::Keep)?;
        if found.ino == ObjectId::FIRST_FREE && found.subvolume == self.root.subvolume {
            return Err(at(path)(Error::new(ErrorKind::Busy, "the subvolume that is open")));
        }
        self.fs.delete_subvolume(dir, name).map(drop).map_err(at(path))
    }

    /// Waits until nothing is left of the subvolumes that were deleted, and helps. `progress` is called after each step with how
    /// many there are still. What somebody has open stays.
    ///
    /// # Errors
    /// No space; those of the devices; damage.
    pub fn sync_subvolumes(&self, mut progress: impl FnMut(usize)) -> Result<()> {
        self.fs.sync()?;
        loop {
            let cleaning = self.fs.clean_step()?;
            progress(self.fs.dead_subvolumes().len());
            if cleaning == creamery_fs::Cleaning::Idle {
                return self.fs.sync();
            }
        }
    }
}
