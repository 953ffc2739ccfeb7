//! Which files have extents that are newer than a transaction, as `btrfs subvolume find-new` asks.

use std::ops::ControlFlow;

use creamery_base::{Error, ErrorKind, Generation, InodeId, ObjectId, Result, TreeId, Wait};
use creamery_format::{FileExtent, Key, KeyType};
use creamery_tree::Tree;

use super::Subvolumes;
use super::info::path_within;
use crate::keys;

/// Extents that are taken out of the tree at once: no lock is held while names are looked up and the caller has his turn.
const BATCH: usize = 1024;

/// A piece of a file that is new.
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
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewExtent {
    /// The inode's number in its subvolume.
    pub ino: ObjectId,
    /// Its first name, from the root of the subvolume; empty when it has none any more.
    pub path: Vec<u8>,
    /// Where it begins in the file, bytes.
    pub file_offset: u64,
    /// Bytes of the file.
    pub len: u64,
    /// Logical address of the extent on disk; 0 for inline data and for holes.
    pub disk_start: u64,
    /// Where in the extent, once decompressed, it begins, bytes.
    pub offset: u64,
    /// The transaction that made it.
    pub generation: Generation,
    /// The data is compressed.
    pub is_compressed: bool,
    /// The data is in the tree.
    pub is_inline: bool,
    /// Space that is set aside and reads as zeros.
    pub is_prealloc: bool,
}

impl NewExtent {
    /// What an item says, without the path.
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

/// The new extents among the next items from `start` on, and where to go on; none at the end of the tree.
fn batch(tree: &Tree, start: &Key, since: Generation) -> Result<(Vec<NewExtent>, Option<Key>)> {
    let mut found = Vec::new();
    let mut cursor = tree.cursor(start, Wait::Yes)?;
    while let Some((key, item)) = cursor.item() {
        if found.len() == BATCH {
            return Ok((found, Some(key)));
        }
        if key.kind == KeyType::EXTENT_DATA {
            let extent = NewExtent::parse(&key, item)?;
            if extent.generation >= since {
                found.push(extent);
            }
        }
        cursor.advance()?;
    }
    Ok((found, None))
}

impl Subvolumes {
    /// Reports the extents of a subvolume's files that transaction `since` or a later one made, in the order of the tree, until
    /// `each` breaks. Returns the last transaction that changed the subvolume, to ask from the next time.
    /// Errors: not found; damage.
    pub(crate) fn find_new(
        &self,
        id: TreeId,
        since: Generation,
        each: &mut dyn FnMut(NewExtent) -> ControlFlow<()>,
    ) -> Result<Generation> {
        let marker = self.info(id)?.generation;
        let subvolume = self.get(id, Wait::Yes)?;
        let (mut start, mut known) =
            (Some(keys::first_of(ObjectId::FIRST_FREE)), (ObjectId::default(), Vec::new()));
        while let Some(from) = start {
            let (found, next) = batch(subvolume.tree(), &from, since)
                .map_err(|error| error.context(format!("subvolume {id}")))?;
            for mut extent in found {
                if known.0 != extent.ino {
                    known = (extent.ino, path_or_none(subvolume.tree(), InodeId::new(id, extent.ino))?);
                }
                extent.path.clone_from(&known.1);
                if each(extent).is_break() {
                    return Ok(marker);
                }
            }
            start = next;
        }
        Ok(marker)
    }
}

fn path_or_none(tree: &Tree, id: InodeId) -> Result<Vec<u8>> {
    match path_within(tree, id) {
        // Unlinked, and somebody has it open or had at the last crash.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}
