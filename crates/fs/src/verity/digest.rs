//! The digest of a file with fs-verity.

use creamery_base::{InodeId, Result, Wait};
use creamery_codec::{VerityDigest, VerityHash};
use creamery_tree::Tree;

use super::file::VerityFile;
use super::is_sealed;
use super::kept::KeptVerity;
use crate::items::InodeItem;

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
    /// The hash algorithm.
    pub hash: VerityHash,
    /// The digest that `FS_IOC_MEASURE_VERITY` and `fsverity digest` report for the file.
    pub digest: VerityDigest,
}

/// The digest of the file `id` of `tree`; `None` for a file without fs-verity.
/// Errors: items are missing or make no sense; would block; device errors; damage.
pub(crate) fn info(
    kept: &KeptVerity,
    tree: &Tree,
    id: InodeId,
    item: &InodeItem,
    wait: Wait,
) -> Result<Option<VerityInfo>> {
    if !is_sealed(item) {
        return Ok(None);
    }
    let file = VerityFile::open(kept, tree, id, item, wait)?;
    let descriptor = file.descriptor();
    Ok(Some(VerityInfo { hash: descriptor.hash(), digest: descriptor.digest() }))
}
