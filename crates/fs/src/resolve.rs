//! Resolves addresses and numbers to names: the files that hold the data at a logical address, the paths of an inode, and the path of a subvolume.
//!
//! These functions walk the references of the last commit (`creamery_txn`, `backref_walk`), so they first commit the earlier changes. A caller must hold no lock of
//! this crate that keeps a commit from ending, and may wait as long as the commit takes.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use creamery_base::{Error, ErrorKind, InodeId, Logical, ObjectId, Result, TreeId, Wait};
use creamery_format::{CorruptKind, InodeExtrefs, InodeRefs, Key, KeyType, RootRef};

use crate::Filesystem;

/// The part of an extent whose users [`Filesystem::resolve_logical`] looks for.
///
/// ```
/// use creamery_fs::ExtentPart;
/// assert_ne!(ExtentPart::Byte, ExtentPart::Whole);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentPart {
    /// Files that show the byte at the address; of a compressed extent, all files.
    Byte,
    /// Files that refer to any part of the extent.
    Whole,
}

/// A name of an inode in a directory.
struct NameIn {
    dir: ObjectId,
    name: Vec<u8>,
}

fn damaged(kind: CorruptKind) -> Error {
    Error::with_source(ErrorKind::Corrupt, "inode reference", kind)
}

impl Filesystem {
    /// The files that refer to the data at `at`, each with an offset in the file, bytes. With [`ExtentPart::Byte`] it is the offset of the byte, with
    /// [`ExtentPart::Whole`] the beginning of the file's part of the extent. On a writable filesystem this commits the earlier changes.
    ///
    /// # Errors
    /// Not found: there is no data extent. Those of a commit; device errors; damage.
    pub fn resolve_logical(&self, at: Logical, part: ExtentPart) -> Result<Vec<(InodeId, u64)>> {
        self.commit_before_walk()?;
        self.resolve_committed(at, part)
    }

    /// The files that refer to the data at `at`, like [`resolve_logical`](Self::resolve_logical), but in the last commit: nothing is written.
    ///
    /// # Errors
    /// Not found: there is no data extent. Device errors; damage.
    pub fn resolve_committed(&self, at: Logical, part: ExtentPart) -> Result<Vec<(InodeId, u64)>> {
        let found = self.engine().extent_users(at)?;
        let within = at.get() - found.start.get();
        let mut files = Vec::new();
        for user in found.users {
            if part == ExtentPart::Whole || user.encoded {
                files.push((user.id, user.offset));
                continue;
            }
            let into = within.checked_sub(user.extent_offset).filter(|&into| into < user.len);
            files.extend(into.and_then(|into| user.offset.checked_add(into)).map(|offset| (user.id, offset)));
        }
        Ok(files)
    }

    /// All paths of an inode, from the root of its subvolume, without a leading slash; the path of the root itself is empty.
    ///
    /// # Errors
    /// Not found: the subvolume, or a name of the inode. Device errors; damage, also a circle of directories.
    pub fn inode_paths(&self, id: InodeId) -> Result<Vec<Vec<u8>>> {
        if id.ino == ObjectId::FIRST_FREE {
            return Ok(vec![Vec::new()]);
        }
        let names = self.names_of(id)?;
        if names.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, format!("{id} has no name")));
        }
        names
            .into_iter()
            .map(|NameIn { dir, name }| {
                let mut path = self.path_in_subvolume(InodeId::new(id.subvolume, dir))?;
                push(&mut path, &name);
                Ok(path)
            })
            .collect()
    }

    /// The path of a subvolume from the top level, without a leading slash; the path of the top level is empty.
    ///
    /// # Errors
    /// Not found: there is no such subvolume, or no directory leads to it. Device errors; damage, also a circle of subvolumes.
    pub fn subvolume_path(&self, id: TreeId) -> Result<Vec<u8>> {
        let root_tree = self.engine().tree(TreeId::ROOT)?;
        let (mut at, mut parts, mut seen) = (id, Vec::new(), HashSet::new());
        while at != TreeId::FS {
            if !seen.insert(at) {
                let message = format!("subvolume {id}: its parents are a loop");
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            let cursor = root_tree.cursor(&Key::new(at.objectid(), KeyType::ROOT_BACKREF, 0), Wait::Yes)?;
            let backref = cursor
                .item()
                .filter(|(key, _)| key.objectid == at.objectid() && key.kind == KeyType::ROOT_BACKREF);
            let Some((key, data)) = backref else {
                return Err(Error::new(ErrorKind::NotFound, format!("reference to subvolume {at}")));
            };
            let found = RootRef::parse(data).map_err(|kind| {
                Error::with_source(ErrorKind::Corrupt, format!("root reference {key}"), kind)
            })?;
            let (dir, name) = (ObjectId::new(found.dirid), found.name.to_vec());
            drop(cursor);
            at = TreeId::new(key.offset);
            let mut part = self.path_in_subvolume(InodeId::new(at, dir))?;
            push(&mut part, &name);
            parts.push(part);
        }
        parts.reverse();
        Ok(parts.join(&b'/'))
    }

    /// All names of an inode: those in INODE_REF items, then those in INODE_EXTREF items.
    fn names_of(&self, id: InodeId) -> Result<Vec<NameIn>> {
        let subvolume = self.subvolume(id.subvolume)?;
        let tree = subvolume.tree();
        let kinds: RangeInclusive<KeyType> = KeyType::INODE_REF..=KeyType::INODE_EXTREF;
        let mut cursor = tree.cursor(&Key::new(id.ino, KeyType::INODE_REF, 0), Wait::Yes)?;
        let mut names = Vec::new();
        while let Some((key, data)) = cursor.item() {
            if key.objectid != id.ino || !kinds.contains(&key.kind) {
                break;
            }
            if key.kind == KeyType::INODE_REF {
                for found in InodeRefs::new(data) {
                    let name = found.map_err(damaged)?.name.to_vec();
                    names.push(NameIn { dir: ObjectId::new(key.offset), name });
                }
            } else if key.kind == KeyType::INODE_EXTREF {
                for found in InodeExtrefs::new(data) {
                    let found = found.map_err(damaged)?;
                    names.push(NameIn { dir: ObjectId::new(found.parent), name: found.name.to_vec() });
                }
            }
            cursor.advance()?;
        }
        Ok(names)
    }
}

fn push(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}
