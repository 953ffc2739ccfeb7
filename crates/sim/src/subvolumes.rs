//! Snapshots in the model: all that a subvolume has, once more, and its end.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::ensure;
use creamery_base::{ErrorKind, InodeId, ObjectId, TreeId};
use creamery_format::KeyType;
use creamery_fs::{Filesystem, SearchKey};

use crate::model::{Content, Model, Node, ROOT};
use crate::operation::{Operation, Outcome};

/// Inodes that a model has at most when a snapshot makes more of them.
const NODES_MAX: usize = 400;

/// A subvolume has no inode without a name, as a new snapshot must not, whatever is open in its source.
pub(crate) fn ensure_no_orphans(fs: &Filesystem, id: TreeId) -> anyhow::Result<()> {
    let (orphan, kind) = (ObjectId::ORPHAN.get(), u32::from(KeyType::ORPHAN_ITEM.get()));
    let wanted = SearchKey { objectids: (orphan, orphan), types: (kind, kind), ..SearchKey::all_of(id) };
    let mut found = 0;
    fs.tree_search(&wanted, &mut |_| {
        found += 1;
        ControlFlow::Continue(())
    })?;
    ensure!(found == 0, "the new snapshot {id} has {found} orphans");
    Ok(())
}

impl Model {
    /// The roots of the subvolumes that operations may take snapshots of: what has subvolumes in it has stubs in a snapshot, which
    /// are no directories like others.
    pub(crate) fn sources(&self) -> Vec<u64> {
        if self.nodes.len() > NODES_MAX {
            return Vec::new();
        }
        let roots = self.nodes.iter().filter(|(id, node)| node.subvolume == **id && node.nlink > 0);
        roots.map(|(id, _)| *id).filter(|id| !self.has_subvolumes(*id)).collect()
    }

    /// Whether there are subvolumes in a subvolume.
    fn has_subvolumes(&self, subvolume: u64) -> bool {
        self.nodes.iter().any(|(id, node)| {
            *id != ROOT && node.subvolume == *id && self.subvolume_of(node.parent) == subvolume
        })
    }

    /// Whether operations may delete a subvolume: what somebody has open stays as long, and the model does not know how long.
    pub(crate) fn may_be_deleted(&self, subvolume: u64) -> bool {
        !self.has_subvolumes(subvolume)
            && self.nodes.values().all(|node| node.subvolume != subvolume || node.opens == 0)
    }

    pub(crate) fn create_subvolume(&mut self, dir: u64, name: &[u8]) -> Result<u64, ErrorKind> {
        let made = self.create(dir, name, Content::Directory(BTreeMap::new()), 0o755)?;
        let Outcome::Made(id) = made else { unreachable!("that is what it does") };
        let node = self.node_mut(id);
        // Linux hands a group down to directories, not to subvolumes.
        (node.subvolume, node.mode, node.gid) = (id, 0o755, 0);
        self.place(id, id);
        Ok(id)
    }

    /// A snapshot of the subvolume `source`, called `name` in `dir`. What was written is on the device then.
    pub(crate) fn take_snapshot(&mut self, source: u64, dir: u64, name: &[u8]) -> Result<Outcome, ErrorKind> {
        let mtime = self.nodes.get(&dir).and_then(|dir| dir.mtime);
        let root = self.create_subvolume(dir, name)?;
        let named = |node: &Node| node.subvolume == source && node.nlink > 0;
        let of = self.nodes.iter().filter(|(id, node)| named(node) && **id != root).map(|(id, _)| *id);
        let mut copies = BTreeMap::from([(source, root)]);
        for id in of.collect::<Vec<_>>() {
            self.node_mut(id).is_synced();
            if id != source {
                copies.insert(id, self.add(Node::new(Content::File(Arc::default()), root, root, 0)));
            }
        }
        for (id, copy) in &copies {
            let mut node = self.nodes[id].clone();
            if let Content::Directory(names) = &mut node.content {
                // Its own name is not in it.
                names.retain(|_, id| copies.contains_key(id) && *id != root);
                names.values_mut().for_each(|id| *id = copies[id]);
            }
            (node.subvolume, node.opens, node.linkable) = (root, 0, false);
            node.parent = if *copy == root { dir } else { copies.get(&node.parent).copied().unwrap_or(root) };
            *self.node_mut(*copy) = node;
            self.place(*copy, root);
        }
        if let Some(copy) = copies.get(&dir) {
            self.node_mut(*copy).mtime = mtime;
        }
        self.copies = copies;
        Ok(Outcome::Made(root))
    }

    /// Deletes the subvolume called `name` in `dir`.
    pub(crate) fn delete_subvolume(&mut self, dir: u64, name: &[u8]) -> Result<Outcome, ErrorKind> {
        let id = self.child(dir, name).ok_or(ErrorKind::NotFound)?;
        self.names_mut(dir).remove(name);
        self.nodes.retain(|_, node| node.subvolume != id);
        self.read_only.remove(&id);
        Ok(Outcome::Done)
    }
}

/// Whether an operation is about inodes of two subvolumes, of which one is gone and the other one has its number since.
pub(crate) fn are_one_by_number(model: &Model, operation: &Operation, id: impl Fn(u64) -> InodeId) -> bool {
    let (from, to) = match operation {
        Operation::Rename { from, to, .. } => (*from, *to),
        Operation::Link { target, dir, .. } => (*target, *dir),
        _ => return false,
    };
    model.subvolume_of(from) != model.subvolume_of(to) && id(from).subvolume == id(to).subvolume
}
