//! From addresses and numbers back to names.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use creamery_base::{InodeId, Logical, ObjectId, Result, TreeId};

use crate::filesystem::Filesystem;
use crate::fs::ExtentPart;

/// A file that refers to data.
///
/// ```
/// let file = creamery::extents::DataUser { subvolume: creamery::id::TreeId::FS, ino: 257, offset: 0 };
/// assert_eq!(file.ino, 257);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataUser {
    /// The subvolume.
    pub subvolume: TreeId,
    /// The inode.
    pub ino: u64,
    /// Where in the file, bytes.
    pub offset: u64,
}

impl From<(InodeId, u64)> for DataUser {
    /// An inode, and where in it.
    fn from((id, offset): (InodeId, u64)) -> Self {
        Self { subvolume: id.subvolume, ino: id.ino.get(), offset }
    }
}

/// Looking up names.
impl Filesystem {
    /// The files that refer to the data at the logical address `at`, as the last commit left them.
    ///
    /// ```no_run
    /// use creamery::extents::ExtentPart;
    /// let fs = creamery::Image::open("disk.img")?;
    /// for user in fs.resolve_logical(13631488, ExtentPart::Byte)? {
    ///     println!("inode {} offset {} root {}", user.ino, user.offset, user.subvolume);
    /// }
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no data extent; damage.
    pub fn resolve_logical(&self, at: u64, part: ExtentPart) -> Result<Vec<DataUser>> {
        let found = self.fs.resolve_logical(Logical::new(at), part)?;
        Ok(found.into_iter().map(DataUser::from).collect())
    }

    /// All paths of the inode `ino` of a subvolume, from that subvolume's root on, without a slash before them.
    ///
    /// # Errors
    /// When there is no such subvolume, or nothing with that number; damage.
    pub fn inode_paths(&self, subvolume: TreeId, ino: u64) -> Result<Vec<PathBuf>> {
        let paths = self.fs.inode_paths(InodeId::new(subvolume, ObjectId::new(ino)))?;
        Ok(paths.into_iter().map(path).collect())
    }

    /// The path of a subvolume from the top level on, without a slash before it; empty for the top level.
    ///
    /// # Errors
    /// When there is no such subvolume; damage.
    pub fn subvolume_path(&self, id: TreeId) -> Result<PathBuf> {
        self.fs.subvolume_path(id).map(path)
    }
}

fn path(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}
