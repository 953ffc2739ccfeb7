//! Facts about subvolumes, and the list of all of them.
//!
//! A subvolume's root item has nearly everything. Its name and the directory of its entry are in the ROOT_BACKREF beside it. A path is made from these, and from the
//! references of the directories between. A deleted subvolume that is not dropped yet has a root item without users, and no name.

use std::collections::BTreeMap;

use creamery_base::{Error, ErrorKind, Generation, InodeId, ObjectId, Result, Timespec, TreeId, Uuid, Wait};
use creamery_format::{Key, KeyType, RawRootItem, RootFlags, RootRef};
use creamery_tree::Tree;
use serde::{Deserialize, Serialize};

use super::Subvolumes;
use crate::items::inode_ref;
use crate::keys;

/// Directories that a path is followed through. Each has a name; a longer path is a circle in a damaged filesystem, or made on purpose.
const DEPTH_MAX: usize = 1 << 16;

/// A subvolume's number, name, UUIDs and times, as `btrfs subvolume show` prints them.
///
/// ```no_run
/// # fn example(fs: &creamery_fs::Filesystem) -> creamery_base::Result<()> {
/// let info = fs.subvolume_info(fs.default_subvolume())?;
/// println!("{} was made in transaction {}", info.id, info.otransid);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SubvolumeInfo {
    /// The subvolume's number.
    pub id: TreeId,
    /// The name in the directory of its entry; empty for the top level and for a deleted subvolume.
    pub name: Vec<u8>,
    /// The subvolume that contains it; `None` for the top level and for a deleted subvolume.
    pub parent: Option<TreeId>,
    /// The directory of `parent` that has its entry.
    pub dir: Option<ObjectId>,
    /// The transaction that last changed its tree.
    pub generation: Generation,
    /// The flags on disk.
    pub flags: u64,
    /// Whether it is deleted and not dropped yet.
    pub is_deleted: bool,
    /// Whether it was made as a snapshot.
    pub is_snapshot: bool,
    /// The UUID; `None` for a subvolume made before Linux 3.6.
    pub uuid: Option<Uuid>,
    /// UUID of the subvolume that it is a snapshot of.
    pub parent_uuid: Option<Uuid>,
    /// UUID of the subvolume at the sender, if it was received.
    pub received_uuid: Option<Uuid>,
    /// The transaction of its last change.
    pub ctransid: Generation,
    /// The transaction that made it.
    pub otransid: Generation,
    /// The sender's transaction, when it was received.
    pub stransid: Generation,
    /// The transaction that received it.
    pub rtransid: Generation,
    /// Time of the last change.
    pub ctime: Timespec,
    /// Time of creation.
    pub otime: Timespec,
    /// Time of sending.
    pub stime: Timespec,
    /// Time of receiving.
    pub rtime: Timespec,
}

/// An entry of the list of subvolumes.
///
/// ```no_run
/// # fn example(fs: &creamery_fs::Filesystem) -> creamery_base::Result<()> {
/// for subvolume in fs.subvolumes()? {
///     println!("{} {:?}", subvolume.info.id, subvolume.path);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ListedSubvolume {
    /// The subvolume's number, name, UUIDs and times.
    pub info: SubvolumeInfo,
    /// The path from the top level, without a slash at the front; `None` if the subvolume, or one that contains it, is deleted.
    pub path: Option<Vec<u8>>,
}

impl SubvolumeInfo {
    fn new(key: &Key, raw: &RawRootItem) -> Self {
        let known = |uuid: [u8; 16]| (uuid != [0; 16]).then(|| Uuid::from_bytes(uuid));
        Self {
            id: key.objectid.into(),
            name: Vec::new(),
            parent: None,
            dir: None,
            generation: raw.root_generation(),
            flags: raw.flags.get(),
            is_deleted: raw.refs.get() == 0 || raw.flags().contains(RootFlags::DEAD),
            // On Linux the key of a snapshot's root item has the transaction as its offset.
            is_snapshot: key.offset != 0,
            uuid: known(raw.uuid),
            parent_uuid: known(raw.parent_uuid),
            received_uuid: known(raw.received_uuid),
            ctransid: Generation::new(raw.ctransid.get()),
            otransid: Generation::new(raw.otransid.get()),
            stransid: Generation::new(raw.stransid.get()),
            rtransid: Generation::new(raw.rtransid.get()),
            ctime: raw.ctime.into(),
            otime: raw.otime.into(),
            stime: raw.stime.into(),
            rtime: raw.rtime.into(),
        }
    }

    /// Whether the subvolume is read-only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        RootFlags::from_bits_retain(self.flags).contains(RootFlags::RDONLY)
    }

    fn set_entry(&mut self, key: &Key, item: &[u8]) -> Result<()> {
        let entry = RootRef::parse(item).map_err(|damage| {
            Error::with_source(ErrorKind::Corrupt, format!("root tree, item {key}"), damage)
        })?;
        self.parent = Some(TreeId::new(key.offset));
        self.dir = Some(ObjectId::new(entry.dirid));
        self.name = entry.name.to_vec();
        Ok(())
    }
}

/// The path of an inode from the root of its subvolume, by its first name.
/// Errors: not found; damage, also a circle of directories.
pub(crate) fn path_within(tree: &Tree, id: InodeId) -> Result<Vec<u8>> {
    let (mut names, mut at) = (Vec::new(), id);
    while at.ino != ObjectId::FIRST_FREE {
        if names.len() == DEPTH_MAX {
            return Err(Error::new(ErrorKind::Corrupt, format!("inode {id} is in a directory loop")));
        }
        let (dir, name) = inode_ref::first_name(tree, at, Wait::Yes)?;
        names.push(name);
        at = InodeId::new(id.subvolume, dir);
    }
    names.reverse();
    Ok(names.join(&b'/'))
}

impl Subvolumes {
    /// The subvolumes with numbers from `first` to `last`, as the last commit has them.
    fn infos(&self, first: TreeId, last: TreeId) -> Result<Vec<SubvolumeInfo>> {
        let mut found: Vec<SubvolumeInfo> = Vec::new();
        let start = Key::new(first.objectid(), KeyType::ROOT_ITEM, 0);
        let mut cursor = self.root_tree().cursor(&start, Wait::Yes)?;
        while let Some((key, item)) = cursor.item() {
            if key.objectid > last.objectid() {
                break;
            }
            match key.kind {
                KeyType::ROOT_ITEM if TreeId::from(key.objectid).is_subvolume() => {
                    let raw = RawRootItem::from_item(item).map_err(|damage| {
                        Error::with_source(ErrorKind::Corrupt, format!("root tree, item {key}"), damage)
                    })?;
                    found.push(SubvolumeInfo::new(&key, &raw));
                }
                KeyType::ROOT_BACKREF => {
                    if let Some(info) = found.last_mut().filter(|info| info.id.objectid() == key.objectid) {
                        info.set_entry(&key, item)?;
                    }
                }
                _ => {}
            }
            cursor.advance()?;
        }
        Ok(found)
    }

    /// The facts about a subvolume, also about one that is being deleted.
    /// Errors: not found; damage.
    pub(crate) fn info(&self, id: TreeId) -> Result<SubvolumeInfo> {
        let not_there = || Error::new(ErrorKind::NotFound, format!("subvolume {id}"));
        if !id.is_subvolume() {
            return Err(not_there());
        }
        self.infos(id, id)?.into_iter().next().ok_or_else(not_there)
    }

    /// Finds the subvolume with this UUID: by the UUID tree, or, if that is missing or has no current entry, among all subvolumes.
    /// Errors: not found; damage.
    pub(crate) fn info_by_uuid(&self, uuid: Uuid) -> Result<SubvolumeInfo> {
        let is_it = |info: &SubvolumeInfo| info.uuid == Some(uuid) && !info.is_deleted;
        for id in self.ids_of_uuid(uuid)? {
            // The UUID tree may be out of date: Linux maintains it, other programs may not.
            match self.info(id) {
                Ok(info) if is_it(&info) => return Ok(info),
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let all = self.infos(TreeId::FS, TreeId::from(ObjectId::LAST_FREE))?;
        let found = all.into_iter().find(is_it);
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("subvolume with UUID {uuid}")))
    }

    /// The path of an inode from the root of its subvolume, by its first name.
    /// Errors: not found; damage.
    pub(crate) fn path_in(&self, id: InodeId) -> Result<Vec<u8>> {
        path_within(self.get(id.subvolume, Wait::Yes)?.tree(), id)
    }

    /// The directory that has the entry of a subvolume, and the name there.
    /// Errors: not found, also for a subvolume that is being deleted; permission denied for the top level, which has no entry.
    pub(crate) fn entry_of(&self, id: TreeId) -> Result<(InodeId, Vec<u8>)> {
        if id == TreeId::FS {
            return Err(Error::new(ErrorKind::PermissionDenied, "the top level has no name"));
        }
        let info = self.info(id)?;
        match (info.parent, info.dir) {
            (Some(parent), Some(dir)) if !info.is_deleted => Ok((InodeId::new(parent, dir), info.name)),
            _ => Err(Error::new(ErrorKind::NotFound, format!("subvolume {id} is deleted"))),
        }
    }

    /// The subvolumes that are in `id`, at any depth, each before the one that contains it.
    /// Errors: damage.
    pub(crate) fn nested(&self, id: TreeId) -> Result<Vec<TreeId>> {
        let mut inside: BTreeMap<TreeId, Vec<TreeId>> = BTreeMap::new();
        for info in self.infos(TreeId::from(ObjectId::FIRST_FREE), TreeId::from(ObjectId::LAST_FREE))? {
            if let Some(parent) = info.parent.filter(|_| !info.is_deleted) {
                inside.entry(parent).or_default().push(info.id);
            }
        }
        let (mut found, mut looked_at) = (Vec::new(), 0);
        let mut of = id;
        loop {
            // Removed from the map: so the loop ends also in a damaged filesystem, where a subvolume is in itself.
            found.extend(inside.remove(&of).unwrap_or_default());
            let Some(next) = found.get(looked_at) else { break };
            of = *next;
            looked_at += 1;
        }
        found.reverse();
        Ok(found)
    }

    fn ids_of_uuid(&self, uuid: Uuid) -> Result<Vec<TreeId>> {
        let tree = match self.engine().tree(TreeId::UUID) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let item = tree.get(&keys::uuid_subvolume(uuid), Wait::Yes, <[u8]>::to_vec)?.unwrap_or_default();
        let id = |bytes: &[u8]| TreeId::new(u64::from_le_bytes(bytes.try_into().expect("chunks of eight")));
        Ok(item.chunks_exact(size_of::<u64>()).map(id).collect())
    }

    /// All subvolumes but the top level, by their numbers.
    /// Errors: damage.
    pub(crate) fn list(&self) -> Result<Vec<ListedSubvolume>> {
        let infos = self.infos(TreeId::from(ObjectId::FIRST_FREE), TreeId::from(ObjectId::LAST_FREE))?;
        let mut entries = BTreeMap::new();
        for info in &infos {
            if let (Some(parent), Some(dir), false) = (info.parent, info.dir, info.is_deleted) {
                let tree = match self.get(parent, Wait::Yes) {
                    // The parent was deleted since the items were read, and this subvolume before it.
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    other => other?,
                };
                let mut path = path_within(tree.tree(), InodeId::new(parent, dir))
                    .map_err(|error| error.context(format!("subvolume {}", info.id)))?;
                append(&mut path, &info.name);
                entries.insert(info.id, (parent, path));
            }
        }
        let listed = |info: SubvolumeInfo| {
            let path = if info.is_deleted { None } else { whole_path(&entries, info.id)? };
            Ok(ListedSubvolume { info, path })
        };
        infos.into_iter().map(listed).collect()
    }
}

fn append(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// The path of a subvolume from the top level. `entries` has for each subvolume the one that contains it, and its path from there. Returns `None` if one on the way
/// is missing.
/// Errors: a circle of subvolumes.
fn whole_path(entries: &BTreeMap<TreeId, (TreeId, Vec<u8>)>, id: TreeId) -> Result<Option<Vec<u8>>> {
    let (mut pieces, mut at) = (Vec::new(), id);
    while at != TreeId::FS {
        let Some((parent, path)) = entries.get(&at) else { return Ok(None) };
        if pieces.len() == entries.len() {
            let text = format!("root tree, subvolume {id} is in a subvolume loop");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        pieces.push(path.as_slice());
        at = *parent;
    }
    pieces.reverse();
    Ok(Some(pieces.join(&b'/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_through_all_that_a_subvolume_is_in() {
        let id = |number| TreeId::new(number);
        let entries = [(256, 5, "a"), (257, 258, "b"), (258, 256, "dir/c"), (300, 301, "x"), (301, 300, "y")]
            .map(|(child, parent, path)| (id(child), (id(parent), path.as_bytes().to_vec())));
        let entries = BTreeMap::from(entries);
        assert_eq!(whole_path(&entries, id(257)).expect("no circle").as_deref(), Some(&b"a/dir/c/b"[..]));
        assert_eq!(whole_path(&entries, id(300)).expect_err("a circle").kind(), ErrorKind::Corrupt);
        assert_eq!(whole_path(&entries, id(999)).expect("no circle"), None);
        assert_eq!(whole_path(&BTreeMap::new(), id(300)).expect("no circle"), None);
        let chain = [(256, 257), (257, 999)].map(|(child, parent)| (id(child), (id(parent), b"x".to_vec())));
        assert_eq!(whole_path(&BTreeMap::from(chain), id(256)).expect("no circle"), None, "its end is gone");
    }
}
