//! The bytes of descriptors and Merkle trees, out of the items that they are cut into.

use creamery_base::{Error, ErrorKind, InodeId, ObjectId, Result, Wait};
use creamery_format::{Key, KeyType, VerityDescriptor, verity_descriptor_len};
use creamery_tree::{ReadAhead, Tree, Walk};
use creamery_txn::{Engine, ReserveItems};

use crate::operation::in_handle;

/// Upper bound of the items that are removed in one handle.
const ITEMS_AT_ONCE: usize = 16;

/// The two sorts of stored bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stored {
    Descriptor,
    MerkleTree,
}

impl Stored {
    const fn key(self, ino: ObjectId, at: u64) -> Key {
        match self {
            // The item at offset 0 describes the others.
            Self::Descriptor => Key::new(ino, KeyType::VERITY_DESC_ITEM, at.saturating_add(1)),
            Self::MerkleTree => Key::new(ino, KeyType::VERITY_MERKLE_ITEM, at),
        }
    }

    /// The position of the first byte of the item with this key.
    const fn start(self, key: Key) -> Option<u64> {
        match self {
            Self::Descriptor => key.offset.checked_sub(1),
            Self::MerkleTree => Some(key.offset),
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Descriptor => "descriptor",
            Self::MerkleTree => "Merkle tree",
        }
    }
}

/// An error for missing or senseless items of a file's fs-verity.
pub(super) fn damaged(id: InodeId, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Unreadable, format!("inode {id}, fs-verity: {what}"))
}

/// Reads bytes of `stored` from `at` on.
/// Errors: an item is missing; would block; device errors; damage.
pub(super) fn read_stored(
    tree: &Tree,
    id: InodeId,
    stored: Stored,
    at: u64,
    out: &mut [u8],
    wait: Wait,
) -> Result<()> {
    let first = stored.key(id.ino, at);
    let walk = Walk::new(wait, ReadAhead::None).within(id.ino);
    let mut cursor = tree.cursor_at_or_before(&first, walk)?;
    let mut done = 0;
    while done < out.len() {
        let place = at.saturating_add(done as u64);
        let found = cursor.item().filter(|(key, _)| (key.objectid, key.kind) == (id.ino, first.kind));
        let bytes = found.and_then(|(key, bytes)| {
            let skip = place.checked_sub(stored.start(key)?)?;
            bytes.get(usize::try_from(skip).ok()?..).filter(|bytes| !bytes.is_empty())
        });
        let Some(bytes) = bytes else {
            return Err(damaged(id, format!("no item has byte {place} of its {}", stored.words())));
        };
        let len = bytes.len().min(out.len() - done);
        out[done..done + len].copy_from_slice(&bytes[..len]);
        done += len;
        if done < out.len() {
            cursor.advance()?;
        }
    }
    Ok(())
}

/// Reads the descriptor of a file.
/// Errors: items are missing or make no sense; would block; device errors; damage.
pub(super) fn read_descriptor(tree: &Tree, id: InodeId, wait: Wait) -> Result<VerityDescriptor> {
    let about = Key::new(id.ino, KeyType::VERITY_DESC_ITEM, 0);
    let len = tree.get(&about, wait, verity_descriptor_len)?;
    let len = len.ok_or_else(|| damaged(id, format!("{about} is missing")))?;
    let len = len.map_err(|damage| damaged(id, damage))?;
    assert!(len <= VerityDescriptor::LEN_MAX, "a length that was checked");
    let mut bytes = vec![0; len];
    read_stored(tree, id, Stored::Descriptor, 0, &mut bytes, wait)?;
    VerityDescriptor::parse(&bytes).map_err(|damage| damaged(id, damage))
}

/// Removes the fs-verity items of a file that is not sealed: an interrupted sealing left them.
/// Errors: no space; damage; aborted.
pub(crate) fn remove_stale(engine: &Engine, tree: &Tree, ino: ObjectId) -> Result<()> {
    let first = Key::new(ino, KeyType::VERITY_DESC_ITEM, 0);
    loop {
        let mut found = Vec::new();
        let mut cursor = tree.cursor(&first, Wait::Yes)?;
        while let Some((key, _)) = cursor.item()
            && (key.objectid, key.kind) <= (ino, KeyType::VERITY_MERKLE_ITEM)
            && found.len() < ITEMS_AT_ONCE
        {
            found.push(key);
            cursor.advance()?;
        }
        drop(cursor);
        if found.is_empty() {
            return Ok(());
        }
        let units = ReserveItems::freeing(u32::try_from(found.len()).expect("a few")).of(tree.id());
        in_handle(engine, units, |handle| {
            found.iter().try_for_each(|key| tree.remove(handle, key).map(|_| ()))
        })?;
    }
}
