//! Attributes in the model: permission bits, owners, times, extended attributes and marks.

use creamery_base::ErrorKind;
use creamery_fs::XattrMode;

use crate::mark::Mark;
use crate::model::{Content, Effect, Model};
use crate::operation::{Operation, Outcome};

/// Names of attributes belong to somebody.
fn check_space(name: &[u8]) -> Result<(), ErrorKind> {
    let known = [&b"user."[..], b"trusted."];
    let fits = known.iter().any(|space| name.starts_with(space) && name.len() > space.len());
    if fits { Ok(()) } else { Err(ErrorKind::Unsupported) }
}

impl Model {
    /// Carries out an operation that changes attributes and nothing else.
    pub(crate) fn change_attributes(&mut self, operation: &Operation) -> Effect {
        match operation {
            Operation::SetXattr { inode, name, value, mode } => self.set_xattr(*inode, name, value, *mode),
            Operation::RemoveXattr { inode, name } => self.remove_xattr(*inode, name),
            Operation::Chmod { inode, mode } => {
                self.node(*inode)?;
                self.node_mut(*inode).mode = mode & 0o7777;
                Ok(Outcome::Done)
            }
            Operation::Chown { inode, uid, gid } => {
                self.node(*inode)?;
                let node = self.node_mut(*inode);
                (node.uid, node.gid) = (*uid, *gid);
                Ok(Outcome::Done)
            }
            Operation::SetTimes { inode, second } => {
                self.node(*inode)?;
                self.node_mut(*inode).mtime = Some(*second);
                Ok(Outcome::Done)
            }
            Operation::Mark { inode, mark } => self.mark(*inode, *mark).map(|()| Outcome::Done),
            other => unreachable!("{other:?} changes more"),
        }
    }

    /// Sets or takes the mark of an inode.
    fn mark(&mut self, inode: u64, mark: Option<Mark>) -> Result<(), ErrorKind> {
        // Other kinds of inodes take no mark.
        if let Content::File(_) | Content::Directory(_) = self.node(inode)?.content {
            self.node_mut(inode).mark = mark;
        }
        Ok(())
    }

    fn set_xattr(&mut self, id: u64, name: &[u8], value: &[u8], mode: XattrMode) -> Effect {
        check_space(name)?;
        let here = self.node(id)?.xattrs.contains_key(name);
        match mode {
            XattrMode::Create if here => Err(ErrorKind::AlreadyExists),
            XattrMode::Replace if !here => Err(ErrorKind::NoAttribute),
            _ => {
                self.node_mut(id).xattrs.insert(name.to_vec(), value.to_vec());
                Ok(Outcome::Done)
            }
        }
    }

    fn remove_xattr(&mut self, id: u64, name: &[u8]) -> Effect {
        check_space(name)?;
        self.node(id)?;
        match self.node_mut(id).xattrs.remove(name) {
            Some(_) => Ok(Outcome::Done),
            None => Err(ErrorKind::NoAttribute),
        }
    }
}
