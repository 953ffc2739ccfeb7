//! Free space from the extent tree: the gaps between extents. For filesystems that have no free space tree.

use creamery_base::{Error, ErrorKind, Logical, ObjectId, Result, Wait};
use creamery_format::{Key, KeyType};
use creamery_tree::{ReadAhead, Walk};

use super::tree::ExtentTree;

impl ExtentTree {
    /// Visits the gaps between the extents of a block group with `used` bytes in use, whole sectors, in order. The queue is empty.
    ///
    /// # Errors
    /// Device errors; damage: extents that overlap, leave the group, are not whole sectors, or do not add up to `used`: the space of an extent
    /// without an item would be handed out.
    pub(crate) fn each_gap(
        &self,
        (start, len): (Logical, u64),
        used: u64,
        sector: u64,
        visit: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let (mut at, end, mut found) = (start.get(), (start + len).get(), 0);
        let first = Key::new(ObjectId::new(at), KeyType::EXTENT_ITEM, 0);
        let mut cursor = self.tree.cursor(&first, Walk::new(Wait::Yes, ReadAhead::ForwardAlways))?;
        while let Some((key, _)) = cursor.item() {
            let extent = key.objectid.get();
            if extent >= end {
                break;
            }
            let bytes = match key.kind {
                KeyType::EXTENT_ITEM => Some(key.offset),
                KeyType::METADATA_ITEM => Some(u64::from(self.node_size)),
                _ => None,
            };
            if let Some(bytes) = bytes {
                let is_whole = extent.is_multiple_of(sector) && bytes.is_multiple_of(sector) && bytes > 0;
                let behind =
                    extent.checked_add(bytes).filter(|behind| at <= extent && *behind <= end && is_whole);
                let behind = behind.ok_or_else(|| {
                    let what = format!("extent item {key}: overlaps the previous one, leaves block group {start}, or is unaligned");
                    Error::new(ErrorKind::Corrupt, what)
                })?;
                if at < extent {
                    visit(at, extent - at);
                }
                at = behind;
                found += bytes;
            }
            cursor.advance()?;
        }
        if at < end {
            visit(at, end - at);
        }
        if found != used {
            let what = format!(
                "block group {start}: expected extents of {used} bytes, as its item says, found {found}"
            );
            return Err(Error::new(ErrorKind::Corrupt, what));
        }
        Ok(())
    }
}
