//! What a file with fs-verity is known by.

use creamery_base::{Result, Wait};
use creamery_codec::{VerityDigest, VerityHash};

use super::file::VerityFile;
use super::is_sealed;
use crate::inode::Inode;
use crate::open_file::{OpenFile, check_regular};

/// The digest of a file with fs-verity, which is one of all its data.
///
/// ```
/// # fn show(file: &creamery_fs::OpenFile) -> creamery_base::Result<()> {
/// if let Some(info) = file.verity()? {
///     println!("{}:{}", info.hash, info.digest);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerityInfo {
    /// Which hash.
    pub hash: VerityHash,
    /// What `FS_IOC_MEASURE_VERITY` and `fsverity digest` tell of the file.
    pub digest: VerityDigest,
}

impl Inode {
    fn verity(&self, wait: Wait) -> Result<Option<VerityInfo>> {
        let item = self.item(wait)?;
        if !is_sealed(&item) {
            return Ok(None);
        }
        let file = VerityFile::open(self, &item, wait)?;
        let descriptor = file.descriptor();
        Ok(Some(VerityInfo { hash: descriptor.hash(), digest: descriptor.digest() }))
    }
}

impl OpenFile {
    /// The digest of a file with fs-verity; none of any other. It takes as long whatever the file's size: reading is what compares.
    /// Errors: it is no file; items are missing or make no sense; device errors; damage.
    pub fn verity(&self) -> Result<Option<VerityInfo>> {
        let inode = self.inode();
        inode.engine().check_open()?;
        check_regular(inode)?;
        inode.verity(Wait::Yes)
    }
}
