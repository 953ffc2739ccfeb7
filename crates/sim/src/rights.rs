//! Rights in the model: inodes that are marked immutable or append-only, and subvolumes that are read-only.
//!
//! The rules are those of Linux (chattr(1), btrfs-property(8)). A mark or a read-only subvolume refuses an operation that would succeed
//! otherwise. Of an operation that has several reasons to fail any of them may be named.

use creamery_base::ErrorKind;
use creamery_fs::{Fallocate, RenameMode};

use crate::mark::Mark;
use crate::model::{Model, ROOT};
use crate::operation::Operation;

/// What an operation does to an inode, as far as marks judge it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InodeChange {
    /// Data behind the end of a file, or a new name in a directory.
    Adds,
    /// Anything else.
    Alters,
}

impl Model {
    /// The inodes that an operation changes, and how. Those that it names and that are not there are left out.
    fn changes(&self, operation: &Operation) -> Vec<(u64, InodeChange)> {
        use InodeChange::{Adds, Alters};
        let named = |dir: u64, name: &[u8]| self.child(dir, name).map(|id| (id, Alters));
        match operation {
            Operation::Create { dir, .. }
            | Operation::Symlink { dir, .. }
            | Operation::CreateSubvolume { dir, .. }
            | Operation::Snapshot { dir, .. }
            | Operation::Tmpfile { dir } => vec![(*dir, Adds)],
            Operation::Unlink { dir, name }
            | Operation::Rmdir { dir, name }
            | Operation::DeleteSubvolume { dir, name } => {
                [Some((*dir, Alters)), named(*dir, name)].into_iter().flatten().collect()
            }
            Operation::Link { target, dir, .. } => vec![(*target, Alters), (*dir, Adds)],
            Operation::Rename { from, name, to, new_name, mode } => {
                let replaced = named(*to, new_name);
                let at_target =
                    if replaced.is_some() || *mode == RenameMode::Exchange { Alters } else { Adds };
                let moved = named(*from, name);
                [Some((*from, Alters)), Some((*to, at_target)), moved, replaced]
                    .into_iter()
                    .flatten()
                    .collect()
            }
            Operation::Append { inode, .. } => vec![(*inode, Adds)],
            Operation::Fallocate { inode, mode: Fallocate::Allocate { .. }, .. }
            | Operation::Defragment { inode, .. } => vec![(*inode, Adds)],
            Operation::Write { inode, .. }
            | Operation::Truncate { inode, .. }
            | Operation::Fallocate { inode, .. }
            | Operation::Clone { inode, .. }
            | Operation::SetXattr { inode, .. }
            | Operation::RemoveXattr { inode, .. }
            | Operation::Chmod { inode, .. }
            | Operation::Chown { inode, .. }
            | Operation::SetTimes { inode, .. } => vec![(*inode, Alters)],
            // Marks are set and taken whatever marks there are.
            Operation::Mark { .. }
            | Operation::SetReadOnly { .. }
            | Operation::Open { .. }
            | Operation::Close { .. }
            | Operation::Read { .. }
            | Operation::Fsync { .. }
            | Operation::Grow { .. }
            | Operation::Convert(_)
            | Operation::Sync => Vec::new(),
        }
    }

    /// Why rights refuse an operation: each reason that there is.
    pub(crate) fn refusals(&self, operation: &Operation) -> Vec<ErrorKind> {
        let changes = self.changes(operation);
        let is_marked =
            |(id, change): &(u64, InodeChange)| match self.node(*id).ok().and_then(|node| node.mark) {
                Some(Mark::Immutable) => true,
                Some(Mark::AppendOnly) => *change == InodeChange::Alters,
                None => false,
            };
        let mut refusals = Vec::new();
        if changes.iter().any(is_marked) {
            refusals.push(ErrorKind::PermissionDenied);
        }
        if self.changes_what_is_read_only(operation, &changes) {
            refusals.push(ErrorKind::ReadOnly);
        }
        refusals
    }

    /// Whether both names of a rename are of one inode. That is done already, as rename(2) has it, and whether rights are asked before is open.
    pub(crate) fn renames_nothing(&self, operation: &Operation) -> bool {
        let Operation::Rename { from, name, to, new_name, .. } = operation else { return false };
        self.child(*from, name).is_some_and(|moved| self.child(*to, new_name) == Some(moved))
    }

    fn changes_what_is_read_only(&self, operation: &Operation, changes: &[(u64, InodeChange)]) -> bool {
        let is_read_only = |id: u64| self.read_only.contains(&self.subvolume_of(id));
        // The root of a subvolume belongs to itself: where it goes, and whether it does, is a matter of its directory.
        let of_names = |id: u64| !self.is_root_of_subvolume(id) && is_read_only(id);
        match operation {
            Operation::DeleteSubvolume { dir, .. } => is_read_only(*dir),
            Operation::Unlink { dir, name } | Operation::Rmdir { dir, name } => {
                is_read_only(*dir) || self.child(*dir, name).is_some_and(of_names)
            }
            Operation::Rename { from, name, to, .. } => {
                let moved = self.child(*from, name).filter(|moved| self.is_root_of_subvolume(*moved));
                // A read-only subvolume stays in its directory.
                let stays = from != to && moved.is_some_and(is_read_only);
                is_read_only(*from) || is_read_only(*to) || stays
            }
            Operation::Mark { inode, .. } => is_read_only(*inode),
            _ => changes.iter().any(|(id, _)| is_read_only(*id)),
        }
    }

    pub(crate) fn is_root_of_subvolume(&self, id: u64) -> bool {
        id != ROOT && self.subvolume_of(id) == id
    }

    /// Forbids or allows changes in a subvolume.
    pub(crate) fn set_read_only(&mut self, subvolume: u64, read_only: bool) -> Result<(), ErrorKind> {
        self.node(subvolume)?;
        match read_only {
            true => self.read_only.insert(subvolume),
            false => self.read_only.remove(&subvolume),
        };
        Ok(())
    }
}
