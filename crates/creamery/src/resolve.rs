//! Finds names from addresses and numbers.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use creamery_base::{InodeId, Logical, ObjectId, Result, TreeId};

use crate::extents::Extents;
use crate::fs::ExtentPart;
use crate::subvolumes::Subvolumes;

/// A reference from a file to data.
///
/// ```
/// let file = creamery::extents::DataUser { subvolume: creamery::id::TreeId::FS, ino: creamery::id::ObjectId::new(257), offset: 0 };
/// assert_eq!(file.ino.get(), 257);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataUser {
    /// The subvolume of the file.
    pub subvolume: TreeId,
    /// The inode number of the file.
    pub ino: ObjectId,
    /// Offset in the file, bytes.
    pub offset: u64,
}

impl From<(InodeId, u64)> for DataUser {
    /// Converts an inode and an offset in it.
    fn from((id, offset): (InodeId, u64)) -> Self {
        Self { subvolume: id.subvolume, ino: id.ino, offset }
    }
}

impl Extents<'_> {
    /// Returns the files that refer to the data at the logical address `at`, as of the last commit:
    /// `btrfs inspect-internal logical-resolve`.
    ///
    /// ```no_run
    /// use creamery::extents::ExtentPart;
    /// use creamery::id::Logical;
    /// let fs = creamery::Image::open("disk.img")?;
    /// for user in fs.extents().users(Logical::new(13631488), ExtentPart::Byte)? {
    ///     println!("inode {} offset {} root {}", user.ino, user.offset, user.subvolume);
    /// }
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no data extent; damage.
    pub fn users(self, at: Logical, part: ExtentPart) -> Result<Vec<DataUser>> {
        let found = self.0.fs.resolve_logical(at, part)?;
        Ok(found.into_iter().map(DataUser::from).collect())
    }
}

impl Subvolumes<'_> {
    /// Returns all paths of the inode `ino` of a subvolume, from the root of that subvolume, without a leading slash:
    /// `btrfs inspect-internal inode-resolve`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/one", "text")?;
    /// fs.hard_link("/one", "/other")?;
    /// let meta = fs.metadata("/one")?;
    /// assert_eq!(fs.subvolumes().inode_paths(meta.subvolume(), meta.ino())?.len(), 2);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the subvolume or the inode does not exist; damage.
    pub fn inode_paths(self, id: TreeId, ino: ObjectId) -> Result<Vec<PathBuf>> {
        let paths = self.0.fs.inode_paths(InodeId::new(id, ino))?;
        Ok(paths.into_iter().map(path).collect())
    }

    /// Returns the path of a subvolume from the top level, without a leading slash; empty for the top level:
    /// `btrfs inspect-internal subvolid-resolve`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.subvolumes().create("/home")?;
    /// let id = fs.subvolumes().id_at("/home")?;
    /// assert_eq!(fs.subvolumes().path(id)?, std::path::Path::new("home"));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such subvolume; damage.
    pub fn path(self, id: TreeId) -> Result<PathBuf> {
        self.0.fs.subvolume_path(id).map(path)
    }
}

fn path(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}
