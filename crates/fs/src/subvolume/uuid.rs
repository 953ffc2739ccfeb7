//! UUIDs of subvolumes.
//!
//! They are random, except in reproducible images ([`creamery_base::Env::is_reproducible`]): there the same steps make the same UUIDs. `btrfs receive` finds the
//! parent of a stream by its UUID. So two subvolumes with different content must have different UUIDs, or it would put a file together from the wrong parent. The
//! UUID therefore follows from the whole content of the filesystem's subvolumes: all items of their trees, and the checksums of their data. Data without checksums
//! counts by its place alone.
//!
//! The digest reads all of these trees while the directory of the new subvolume is locked. One thread makes a reproducible image, so no other thread waits for that.
//!
//! A subvolume that is filled after it was made keeps its UUID, as on Linux: two copies of it that are changed apart have the same one. A snapshot
//! of each has its own.

use creamery_base::{InodeId, Result, TreeId, Uuid, Wait};
use creamery_codec::{ChecksumType, checksum};
use creamery_format::{Key, KeyType};
use creamery_txn::ReserveItems;

use super::subvolumes::Subvolumes;
use crate::keys;
use crate::operation::finish;

/// Bytes of items that one hash covers.
const BATCH: usize = 64 << 10;

/// A digest of items, in their order.
#[derive(Default)]
struct ItemsDigest {
    /// The digest of all earlier batches, then items that are not hashed yet.
    waiting: Vec<u8>,
}

impl ItemsDigest {
    fn add(&mut self, key: &Key, item: &[u8]) {
        let len = u32::try_from(item.len()).expect("an item is shorter than a node");
        self.waiting.extend_from_slice(&key.objectid.get().to_le_bytes());
        self.waiting.push(key.kind.get());
        self.waiting.extend_from_slice(&key.offset.to_le_bytes());
        self.waiting.extend_from_slice(&len.to_le_bytes());
        self.waiting.extend_from_slice(item);
        if self.waiting.len() >= BATCH {
            self.waiting = self.checksum();
        }
    }

    fn checksum(&self) -> Vec<u8> {
        checksum(ChecksumType::Blake2b, &self.waiting).as_bytes(ChecksumType::Blake2b).to_vec()
    }
}

impl Subvolumes {
    /// The UUID of the new subvolume `id`, called `name` in `dir`: a snapshot of `source`, or an empty subvolume.
    /// Errors: for reproducible images, those of reading.
    pub(crate) fn new_uuid(
        &self,
        id: TreeId,
        dir: InodeId,
        name: &[u8],
        source: Option<TreeId>,
    ) -> Result<Uuid> {
        let engine = self.engine();
        if !engine.env().is_reproducible() {
            return Ok(engine.env().uuid());
        }
        let source =
            source.map_or(Ok(Uuid::nil()), |source| engine.root_item(source).map(|root| root.uuid()))?;
        let numbers = [engine.generation().get(), id.get(), dir.subvolume.get(), dir.ino.get()];
        let facts =
            [&*numbers.map(u64::to_le_bytes).concat(), source.as_bytes(), &self.content_digest()?, name];
        Ok(Uuid::new_v5(&engine.volume().superblock().fsid(), &facts.concat()))
    }

    /// Gives the subvolumes `ids`, which were filled since they were made, UUIDs that follow from the present content of all subvolumes. It does nothing where
    /// images are not reproducible.
    /// Errors: those of reading and writing.
    pub(crate) fn renew_uuids(&self, ids: &[TreeId]) -> Result<()> {
        let engine = self.engine();
        if !engine.env().is_reproducible() {
            return Ok(());
        }
        engine.commit()?;
        let digest = self.content_digest()?;
        let fsid = engine.volume().superblock().fsid();
        let _changing = self.changing();
        for &id in ids {
            let uuid = Uuid::new_v5(&fsid, &[&id.get().to_le_bytes()[..], &digest].concat());
            let old = engine.root_item(id)?.uuid();
            let handle = engine.start(ReserveItems::items(3).of(id))?;
            let done = (|| {
                self.remove_uuid(&handle, &keys::uuid_subvolume(old), id)?;
                handle.update_root_item(id, |root| root.uuid = uuid.into_bytes())?;
                self.insert_uuid(&handle, uuid, id)
            })();
            finish(handle, done)?;
        }
        Ok(())
    }

    /// A digest of the content of all subvolumes.
    fn content_digest(&self) -> Result<Vec<u8>> {
        let engine = self.engine();
        let mut trees = Vec::new();
        let mut cursor = self.root_tree().cursor(&Key::MIN, Wait::Yes)?;
        while let Some((key, _)) = cursor.item() {
            let id = TreeId::from(key.objectid);
            if key.kind == KeyType::ROOT_ITEM && (id.is_subvolume() || id == TreeId::CSUM) {
                trees.push(id);
            }
            cursor.advance()?;
        }
        drop(cursor);
        // A deleted subvolume that is being dropped can be read only in part, and has no entry: it does not count.
        let deleted = engine.orphan_subvolumes()?;
        trees.retain(|id| !deleted.contains(id));
        let mut digest = ItemsDigest::default();
        for id in trees {
            let tree = engine.tree(id)?;
            let mut cursor = tree.cursor(&Key::MIN, Wait::Yes)?;
            while let Some((key, item)) = cursor.item() {
                digest.add(&key, item);
                cursor.advance()?;
            }
        }
        Ok(digest.checksum())
    }
}
