//! Root references: the links between subvolumes.
//!
//! A subvolume's entry in a directory points to a tree, not to an inode. The root tree records the link twice, by ROOT_REF (from the parent) and ROOT_BACKREF (from
//! the child), with the directory, the number and the name of the entry. A snapshot copies the entries of nested subvolumes but not these references, so an entry
//! without its ROOT_REF leads to an empty directory, inode 2.

use creamery_base::{Error, ErrorKind, InodeId, ObjectId, Result, TreeId, Wait};
use creamery_format::{Key, KeyType, RawRootRef, RootRef};
use creamery_txn::Handle;
use zerocopy::IntoBytes;

use super::Subvolumes;
use crate::keys;

/// The entry of a subvolume: the directory that has it, its DIR_INDEX number, and its name.
#[derive(Clone, Copy)]
pub(crate) struct SubvolumeEntry<'a> {
    pub(crate) dir: InodeId,
    pub(crate) index: u64,
    pub(crate) name: &'a [u8],
}

impl SubvolumeEntry<'_> {
    /// The payload of ROOT_REF and ROOT_BACKREF items.
    fn encode(&self) -> Vec<u8> {
        let raw = RawRootRef {
            dirid: self.dir.ino.get().into(),
            sequence: self.index.into(),
            name_len: u16::try_from(self.name.len()).expect("names are checked").into(),
        };
        [raw.as_bytes(), self.name].concat()
    }
}

fn decode(item: &[u8]) -> Result<RootRef<'_>> {
    RootRef::parse(item).map_err(|damage| Error::with_source(ErrorKind::Corrupt, "root reference", damage))
}

impl Subvolumes {
    /// The root directory of the subvolume `child` that the entry `name` of `dir` points to. If the root tree has no such entry, it is the empty directory in its
    /// place.
    pub(crate) fn resolve(&self, dir: InodeId, name: &[u8], child: TreeId, wait: Wait) -> Result<InodeId> {
        let linked = self.root_tree().get(&keys::root_ref(dir.subvolume, child), wait, |item| {
            decode(item).map(|root_ref| root_ref.dirid == dir.ino.get() && root_ref.name == name)
        })?;
        if linked.transpose()?.unwrap_or(false) {
            Ok(InodeId::new(child, ObjectId::FIRST_FREE))
        } else {
            Ok(InodeId::new(dir.subvolume, keys::EMPTY_SUBVOLUME_DIR))
        }
    }

    /// The subvolume's parent directory, which has its entry; `None` for the top level.
    pub(crate) fn parent_of(&self, id: TreeId, wait: Wait) -> Result<Option<InodeId>> {
        let cursor = self.root_tree().cursor(&Key::new(id.objectid(), KeyType::ROOT_BACKREF, 0), wait)?;
        match cursor.item() {
            Some((key, item)) if key.objectid == id.objectid() && key.kind == KeyType::ROOT_BACKREF => {
                let dir = ObjectId::new(decode(item)?.dirid);
                Ok(Some(InodeId::new(TreeId::new(key.offset), dir)))
            }
            _ => Ok(None),
        }
    }

    /// The DIR_INDEX number of the entry `name` of `dir` that points to `child`.
    pub(crate) fn index_of(&self, dir: InodeId, name: &[u8], child: TreeId) -> Result<u64> {
        let wanted = (dir.ino.get(), name);
        let index = self.root_tree().get(&keys::root_ref(dir.subvolume, child), Wait::Yes, |item| {
            RootRef::parse(item)
                .ok()
                .filter(|found| (found.dirid, found.name) == wanted)
                .map(|found| found.sequence)
        })?;
        index.flatten().ok_or_else(|| Error::unsupported("renaming a missing subvolume"))
    }

    /// Adds the references of a new subvolume.
    pub(crate) fn insert_refs(
        &self,
        handle: &Handle<'_>,
        child: TreeId,
        entry: &SubvolumeEntry<'_>,
    ) -> Result<()> {
        let write = |key: &Key, item: &[u8]| self.root_tree().insert(handle, key, item);
        for_both(child, entry, write)
    }

    /// Removes the references of a subvolume whose entry is in `parent`.
    pub(crate) fn remove_refs(&self, handle: &Handle<'_>, child: TreeId, parent: TreeId) -> Result<()> {
        for key in [keys::root_ref(parent, child), keys::root_backref(child, parent)] {
            self.root_tree().remove(handle, &key)?;
        }
        Ok(())
    }

    /// Rewrites the references of a subvolume: its entry has moved within `entry.dir.subvolume`.
    pub(crate) fn update_refs(
        &self,
        handle: &Handle<'_>,
        child: TreeId,
        entry: &SubvolumeEntry<'_>,
    ) -> Result<()> {
        let write = |key: &Key, item: &[u8]| self.root_tree().upsert(handle, key, item);
        for_both(child, entry, write)
    }
}

/// Writes the contents of both references of `child`, each under its key.
fn for_both(
    child: TreeId,
    entry: &SubvolumeEntry<'_>,
    write: impl Fn(&Key, &[u8]) -> Result<()>,
) -> Result<()> {
    let (item, parent) = (entry.encode(), entry.dir.subvolume);
    write(&keys::root_ref(parent, child), &item)?;
    write(&keys::root_backref(child, parent), &item)
}
