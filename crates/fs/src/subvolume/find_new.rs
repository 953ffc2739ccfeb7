//! Finds the files that have extents newer than a transaction, for `btrfs subvolume find-new`.

use std::ops::ControlFlow;

use creamery_base::{Error, ErrorKind, Generation, InodeId, ObjectId, Result, TreeId, Wait};
use creamery_format::{FileExtent, Key, KeyType};
use creamery_tree::{ReadAhead, Tree, Walk};
use serde::{Deserialize, Serialize};

use super::Subvolumes;
use super::info::path_within;

/// Extents that one batch takes out of the tree.
const BATCH: usize = 1024;
/// Items that the walk reads in one commit. A longer walk in one commit would keep freed space from being used for long.
const RENEW_AFTER: u64 = 64 << 10;

/// A new extent of a file.
///
/// ```no_run
/// # fn example(fs: &creamery_fs::Filesystem) -> creamery_base::Result<()> {
/// use std::ops::ControlFlow;
/// fs.find_new(fs.default_subvolume(), creamery_base::Generation::new(100), &mut |extent| {
///     println!("{:?} at {}", extent.path, extent.file_offset);
///     ControlFlow::Continue(())
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NewExtent {
    /// The inode's number in its subvolume.
    pub ino: ObjectId,
    /// The path by the inode's first name, from the root of the subvolume; empty when it has no name any more.
    pub path: Vec<u8>,
    /// Where the extent begins in the file, bytes.
    pub file_offset: u64,
    /// Length in the file, bytes.
    pub len: u64,
    /// Logical address of the extent on disk; 0 for inline data and for holes.
    pub disk_start: u64,
    /// Where the data begins in the decompressed extent, bytes.
    pub offset: u64,
    /// The transaction that made the extent.
    pub generation: Generation,
    /// The data is compressed.
    pub is_compressed: bool,
    /// The data is in the tree.
    pub is_inline: bool,
    /// The extent is preallocated space, which reads as zeros.
    pub is_prealloc: bool,
}

impl NewExtent {
    /// Parses an item; the path stays empty.
    fn parse(key: &Key, item: &[u8]) -> Result<Self> {
        let extent = FileExtent::parse(item)
            .map_err(|damage| Error::with_source(ErrorKind::Corrupt, format!("item {key}"), damage))?;
        let (generation, compression, len, disk_start, offset) = match extent {
            FileExtent::Inline(head, _) => (head.generation, head.compression, head.ram_bytes.get(), 0, 0),
            FileExtent::Regular(body) | FileExtent::Prealloc(body) => (
                body.generation,
                body.compression,
                body.num_bytes.get(),
                body.disk_bytenr.get(),
                body.offset.get(),
            ),
        };
        Ok(Self {
            ino: key.objectid,
            path: Vec::new(),
            file_offset: key.offset,
            len,
            disk_start,
            offset,
            generation: Generation::new(generation.get()),
            is_compressed: compression != 0,
            is_inline: matches!(extent, FileExtent::Inline(..)),
            is_prealloc: matches!(extent, FileExtent::Prealloc(_)),
        })
    }
}

/// A batch of new extents.
///
/// ```no_run
/// # fn example(fs: &creamery_fs::Filesystem) -> creamery_base::Result<()> {
/// let since = creamery_base::Generation::new(100);
/// let mut found = fs.new_extents(fs.default_subvolume(), since, None)?;
/// while let Some(next) = found.next {
///     println!("{} more", found.extents.len());
///     found = fs.new_extents(fs.default_subvolume(), since, Some(next))?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewExtents {
    /// In the order of the tree.
    pub extents: Vec<NewExtent>,
    /// The inode and the offset in it where the next batch begins; `None` at the end.
    pub next: Option<(ObjectId, u64)>,
    /// The last transaction that changed the subvolume when this batch was read.
    pub generation: Generation,
}

impl Subvolumes {
    /// One batch of the extents that transaction `since` or a later one made in a subvolume's files, as the last commit has them. It begins at the inode and offset
    /// `from`, or at the beginning.
    /// Errors: not found; damage.
    pub(crate) fn new_extents(
        &self,
        id: TreeId,
        since: Generation,
        from: Option<(ObjectId, u64)>,
    ) -> Result<NewExtents> {
        let subvolume = self.get(id, Wait::Yes)?;
        let (ino, offset) = from.unwrap_or((ObjectId::FIRST_FREE, 0));
        let start = Key::new(ino, KeyType::EXTENT_DATA, offset);
        let (mut extents, next, generation) = batch(subvolume.tree(), &start, since)
            .map_err(|error| error.context(format!("subvolume {id}")))?;
        let mut known = (ObjectId::default(), Vec::new());
        for extent in &mut extents {
            if known.0 != extent.ino {
                known = (extent.ino, path_or_none(subvolume.tree(), InodeId::new(id, extent.ino))?);
            }
            extent.path.clone_from(&known.1);
        }
        Ok(NewExtents { extents, next, generation })
    }

    /// Reports the new extents to `each` until it breaks. Returns the last transaction that changed the subvolume before the walk: pass it as `since` the next time.
    /// Errors: not found; damage.
    pub(crate) fn find_new(
        &self,
        id: TreeId,
        since: Generation,
        each: &mut dyn FnMut(NewExtent) -> ControlFlow<()>,
    ) -> Result<Generation> {
        let mut found = self.new_extents(id, since, None)?;
        let marker = found.generation;
        loop {
            for extent in found.extents {
                if each(extent).is_break() {
                    return Ok(marker);
                }
            }
            match found.next {
                None => return Ok(marker),
                next => found = self.new_extents(id, since, next)?,
            }
        }
    }
}

/// Extents, the inode and offset where the next batch begins, and the transaction that had changed the tree last at the start.
type NewExtentBatch = (Vec<NewExtent>, Option<(ObjectId, u64)>, Generation);

/// The new extents among the next items from `start` on, without paths, and where the next batch begins; `None` at the end of the tree. Leaves that are older than
/// `since` are not read.
fn batch(tree: &Tree, start: &Key, since: Generation) -> Result<NewExtentBatch> {
    let (mut found, mut seen) = (Vec::new(), 0_u64);
    let mut cursor = tree.commit_cursor(start, since, Walk::new(Wait::Yes, ReadAhead::ForwardAlways))?;
    let generation = cursor.generation();
    loop {
        seen += 1;
        if seen.is_multiple_of(RENEW_AFTER) {
            cursor.renew()?;
        }
        let Some((key, item)) = cursor.item() else { return Ok((found, None, generation)) };
        if key.kind == KeyType::EXTENT_DATA {
            if found.len() == BATCH {
                return Ok((found, Some((key.objectid, key.offset)), generation));
            }
            let extent = NewExtent::parse(&key, item)?;
            if extent.generation >= since {
                found.push(extent);
            }
        }
        cursor.advance()?;
    }
}

fn path_or_none(tree: &Tree, id: InodeId) -> Result<Vec<u8>> {
    match path_within(tree, id) {
        // Unlinked: a user has it open, or had at the last crash.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}
