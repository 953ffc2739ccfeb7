//! Extended attributes.
//!
//! An attribute is an entry of an XATTR_ITEM, found by the hash of its name, packed like directory entries; the
//! value stands behind the name. Name and value must fit in one leaf. Access control lists and the `btrfs.`
//! properties are attributes whose setting changes more of the inode than its attributes.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, ObjectId, Result, Wait};
use creamery_format::dir_item::{self, HEADER_LEN, Head, ItemBytes};
use creamery_format::{Key, KeyType, NAME_LEN_MAX};
use creamery_tree::Tree;
use creamery_txn::{Handle, ReserveItems};

use crate::compression;
use crate::inode::acl::{self, Acl};
use crate::inode::permission::check_not_append_only;
use crate::inode::{DirectoryInode, FileType, Inode, InodeFlags, InodeItem, XattrsKnown};
use crate::keys;
use crate::operation::{finish, or_end};

/// Attribute name of the compression property.
pub(crate) const COMPRESSION: &[u8] = b"btrfs.compression";
/// The extended attribute with the capabilities of a program (capabilities(7)). A change of the content or the owner of the file
/// removes it.
///
/// ```
/// assert!(creamery_fs::CAPABILITIES.starts_with(b"security."));
/// ```
pub const CAPABILITIES: &[u8] = b"security.capability";

/// Whether an attribute may, must not or must exist already.
///
/// ```
/// use creamery_fs::XattrMode;
/// assert_ne!(XattrMode::Create, XattrMode::Replace);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrMode {
    /// Set it, whether it exists or not.
    Any,
    /// Fail if it exists.
    Create,
    /// Fail unless it exists.
    Replace,
    /// Both of these: fails. The error is that of the condition that does not hold.
    CreateAndReplace,
}

/// Namespaces whose names are free.
const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
/// The namespace of properties.
const PROPERTIES: &[u8] = b"btrfs.";

/// Refuses names without a meaning in this filesystem, for a caller that changes an attribute.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    check_namespace(name)?;
    match name.starts_with(PROPERTIES) && name != COMPRESSION {
        true => Err(Error::invalid(format!("unknown property {:?}", String::from_utf8_lossy(name)))),
        false => Ok(()),
    }
}

/// Refuses names of no known namespace, also for a caller that only reads.
fn check_namespace(name: &[u8]) -> Result<()> {
    if name.len() > NAME_LEN_MAX {
        return Err(Error::new(ErrorKind::Range, "attribute name exceeds 255 bytes"));
    }
    let spaces = || NAMESPACES.into_iter().chain([PROPERTIES]);
    if spaces().any(|space| name == space) || name.contains(&0) {
        return Err(Error::invalid(format!("invalid attribute name {:?}", String::from_utf8_lossy(name))));
    }
    let known = spaces().any(|space| name.starts_with(space)) || name == acl::ACCESS || name == acl::DEFAULT;
    let unknown =
        || Error::unsupported(format!("the extended attribute {:?}", String::from_utf8_lossy(name)));
    if known { Ok(()) } else { Err(unknown()) }
}

/// Refuses a name and value that no leaf can hold.
pub(crate) fn check_size(tree: &Tree, name: &[u8], value: &[u8]) -> Result<()> {
    let most = value_max(tree, name);
    if value.len() <= most {
        return Ok(());
    }
    let text = format!("extended attribute of {} bytes, expected at most {most}", value.len());
    Err(Error::new(ErrorKind::NoSpace, text))
}

/// The longest value of an attribute with this name, bytes. The two share the only item of a leaf.
pub(crate) fn value_max(tree: &Tree, name: &[u8]) -> usize {
    let room = tree.max_item_size().min(usize::from(u16::MAX)).saturating_sub(HEADER_LEN);
    room.saturating_sub(name.len())
}

/// The value of an attribute.
pub(crate) fn get(tree: &Tree, ino: ObjectId, name: &[u8], wait: Wait) -> Result<Option<Vec<u8>>> {
    let value = tree.get(&keys::xattr(ino, name), wait, |item| {
        dir_item::find(item, name).map(|entry| entry.map(|(entry, _)| entry.data.to_vec()))
    })?;
    Ok(value.transpose()?.flatten())
}

/// Whether the inode has any attribute. The answer is remembered, since most have none and Linux asks on every write.
fn has_any(inode: &Inode, wait: Wait) -> Result<bool> {
    match inode.xattrs_known() {
        XattrsKnown::Absent => return Ok(false),
        XattrsKnown::Present => return Ok(true),
        XattrsKnown::Unknown => {}
    }
    let cursor = inode.tree().cursor(&Key::new(inode.id.ino, KeyType::XATTR_ITEM, 0), wait)?;
    let present =
        cursor.item().is_some_and(|(key, _)| key.objectid == inode.id.ino && key.kind == KeyType::XATTR_ITEM);
    inode.set_xattrs_known(present);
    Ok(present)
}

/// The value of an attribute. Costs no search for inodes without any. The caller has locked the inode.
pub(crate) fn get_known(inode: &Inode, name: &[u8], wait: Wait) -> Result<Option<Vec<u8>>> {
    if has_any(inode, wait)? { get(inode.tree(), inode.id.ino, name, wait) } else { Ok(None) }
}

/// A directory's default ACL. The caller has locked the inode.
pub(crate) fn default_acl(dir: &DirectoryInode<'_>) -> Result<Option<Arc<Acl>>> {
    if let Some(known) = dir.known_default_acl() {
        return Ok(known);
    }
    let value = get_known(dir, acl::DEFAULT, Wait::Yes)?;
    let acl = match value {
        Some(value) => Acl::decode(&value)?.map(Arc::new),
        None => None,
    };
    dir.set_known_default_acl(acl.clone());
    Ok(acl)
}

/// A change of one attribute.
pub(crate) struct XattrChange<'a> {
    pub(crate) name: &'a [u8],
    /// `None` removes the attribute.
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) mode: XattrMode,
}

/// A change that can be made.
pub(crate) struct PreparedXattr {
    key: Key,
    /// Whether the attribute was there before.
    was_there: bool,
    /// The new item; `None` if nothing changes.
    item: Option<ItemBytes>,
}

impl XattrChange<'_> {
    /// Makes the change; when it fails, nothing was changed. Returns whether the attribute was there before.
    pub(crate) fn apply(&self, handle: &Handle<'_>, tree: &Tree, ino: ObjectId) -> Result<bool> {
        let prepared = self.prepare(handle, tree, ino)?;
        prepared.store(handle, tree)?;
        Ok(prepared.was_there)
    }

    /// Checks whether the change can be made, and reads the present item.
    pub(crate) fn prepare(&self, handle: &Handle<'_>, tree: &Tree, ino: ObjectId) -> Result<PreparedXattr> {
        let key = keys::xattr(ino, self.name);
        let old = tree.get(&key, Wait::Yes, |item| -> Result<(ItemBytes, bool)> {
            Ok(match dir_item::without(item, self.name)? {
                Some(rest) => (rest, true),
                None => (ItemBytes::from_slice(item), false),
            })
        })?;
        let (mut item, was_there) = old.transpose()?.unwrap_or_default();
        match (self.mode, was_there) {
            (XattrMode::Create | XattrMode::CreateAndReplace, true) => {
                return Err(ErrorKind::AlreadyExists.into());
            }
            (XattrMode::Replace | XattrMode::CreateAndReplace, false) => {
                return Err(ErrorKind::NoAttribute.into());
            }
            _ => {}
        }
        if let Some(value) = self.value {
            dir_item::push(&mut item, &Head::xattr(handle.generation()), self.name, value);
            if item.len() > tree.max_item_size() {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    "adding an attribute beside others with the same hash",
                ));
            }
        }
        let changes = self.value.is_some() || was_there;
        Ok(PreparedXattr { key, was_there, item: changes.then_some(item) })
    }
}

impl PreparedXattr {
    /// Makes the change. Any error comes after the first change: the caller aborts.
    pub(crate) fn store(&self, handle: &Handle<'_>, tree: &Tree) -> Result<()> {
        match &self.item {
            None => Ok(()),
            Some(item) if item.is_empty() => tree.remove(handle, &self.key).map(drop),
            Some(item) => tree.upsert(handle, &self.key, item).map(drop),
        }
    }
}

/// The effect of an attribute on the rest of the inode.
enum Effect {
    /// No effect: store the value as it is.
    Plain,
    /// Store this value instead, or none, and take over the permissions.
    Access { stored: Option<Vec<u8>>, permissions: Option<u32> },
    /// A new default ACL.
    Default { acl: Option<Arc<Acl>> },
    /// New flags.
    Flags { flags: InodeFlags },
}

fn effect(item: &InodeItem, name: &[u8], value: Option<&[u8]>) -> Result<Effect> {
    if name == acl::ACCESS || name == acl::DEFAULT {
        return acl_effect(item, name, value);
    }
    if name == COMPRESSION {
        return Ok(Effect::Flags { flags: compression_flags(item, value.unwrap_or_default())? });
    }
    Ok(Effect::Plain)
}

fn acl_effect(item: &InodeItem, name: &[u8], value: Option<&[u8]>) -> Result<Effect> {
    if item.kind() == FileType::Symlink {
        return Err(Error::unsupported("ACL of a symbolic link"));
    }
    let acl = match value {
        Some(value) => Acl::decode(value)?,
        None => None,
    };
    if name == acl::DEFAULT {
        if acl.is_some() && !item.is_dir() {
            return Err(Error::new(ErrorKind::PermissionDenied, "default ACL on a non-directory"));
        }
        return Ok(Effect::Default { acl: acl.map(Arc::new) });
    }
    let permissions = acl.as_ref().map(Acl::permissions);
    let stored = acl.filter(|acl| !acl.is_equivalent_to_mode()).map(|acl| acl.encode());
    Ok(Effect::Access { stored, permissions })
}

/// Whether the inode can have the compression property. For other kinds Linux accepts every value that it knows, and keeps none.
pub(crate) fn has_compression(item: &InodeItem) -> bool {
    matches!(item.kind(), FileType::File | FileType::Directory)
}

/// The flags of an inode with this value of the compression property.
/// Errors: no such value; the file is overwritten in place (NODATACOW).
pub(crate) fn compression_flags(item: &InodeItem, value: &[u8]) -> Result<InodeFlags> {
    if item.flags.contains(InodeFlags::NODATACOW) && !value.is_empty() {
        return Err(Error::invalid("compression conflicts with nodatacow"));
    }
    let mut flags = item.flags - InodeFlags::COMPRESS - InodeFlags::NOCOMPRESS;
    match value {
        b"" => {}
        b"no" | b"none" => flags |= InodeFlags::NOCOMPRESS,
        _ if compression::algorithm(value).is_some() => flags |= InodeFlags::COMPRESS,
        _ => return Err(Error::invalid("unknown compression algorithm")),
    }
    Ok(flags)
}

impl Inode {
    /// The value of an extended attribute.
    pub(crate) fn get_xattr(&self, name: &[u8], wait: Wait) -> Result<Vec<u8>> {
        check_namespace(name)?;
        let _locked = self.lock_shared(wait)?;
        if self.id.ino == keys::EMPTY_SUBVOLUME_DIR {
            return Err(ErrorKind::NoAttribute.into());
        }
        get_known(self, name, wait)?.ok_or_else(|| ErrorKind::NoAttribute.into())
    }

    /// The names of all extended attributes, in the order of the tree.
    pub(crate) fn list_xattrs(&self, wait: Wait) -> Result<Vec<Vec<u8>>> {
        let _locked = self.lock_shared(wait)?;
        let mut names = Vec::new();
        if self.id.ino == keys::EMPTY_SUBVOLUME_DIR || !has_any(self, wait)? {
            return Ok(names);
        }
        let mut cursor = self.tree().cursor(&Key::new(self.id.ino, KeyType::XATTR_ITEM, 0), wait)?;
        while let Some((key, item)) = cursor.item() {
            if key.objectid != self.id.ino || key.kind != KeyType::XATTR_ITEM {
                break;
            }
            for entry in dir_item::entries(item) {
                names.push(entry?.0.name.to_vec());
            }
            cursor.advance()?;
        }
        Ok(names)
    }

    /// Sets an extended attribute; [`check_name`] has accepted its name.
    pub(crate) fn set_xattr(&self, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.change_xattr(name, Some(value), mode)
    }

    /// Removes an extended attribute; [`check_name`] has accepted its name.
    pub(crate) fn remove_xattr(&self, name: &[u8]) -> Result<()> {
        // On Linux it is no error to remove an access control list that does not exist.
        let mode =
            if name == acl::ACCESS || name == acl::DEFAULT { XattrMode::Any } else { XattrMode::Replace };
        self.change_xattr(name, None, mode)
    }

    /// Removes the capabilities of a program because a thread writes to the file. Needed also where other attributes do not change: in
    /// a file that is only appended to. Returns false if it had none.
    pub(crate) fn remove_capabilities(&self) -> Result<bool> {
        let item = self.lock_exclusive()?;
        if !has_any(self, Wait::Yes)? {
            return Ok(false);
        }
        match self.change_xattr_locked(&item, CAPABILITIES, None, XattrMode::Replace) {
            Err(error) if error.kind() == ErrorKind::NoAttribute => Ok(false),
            removed => removed.map(|()| true),
        }
    }

    fn change_xattr(&self, name: &[u8], value: Option<&[u8]>, mode: XattrMode) -> Result<()> {
        let item = self.lock_exclusive()?;
        check_not_append_only(&item)?;
        self.change_xattr_locked(&item, name, value, mode)
    }

    fn change_xattr_locked(
        &self,
        item: &InodeItem,
        name: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        if name == COMPRESSION && !has_compression(item) {
            return compression_flags(item, value.unwrap_or_default()).map(drop);
        }
        if value.is_none() && mode == XattrMode::Replace && !has_any(self, Wait::Yes)? {
            return Err(ErrorKind::NoAttribute.into());
        }
        let effect = effect(item, name, value)?;
        let value = match &effect {
            Effect::Access { stored, .. } => stored.as_deref(),
            Effect::Default { acl: None } => None,
            Effect::Flags { .. } if value == Some(b"") => None,
            _ => value,
        };
        if let Some(value) = value {
            check_size(self.tree(), name, value)?;
        }
        let handle = self.engine().start(ReserveItems::items(2).of(self.id.subvolume))?;
        let change = XattrChange { name, value, mode };
        let (handle, _) = or_end(handle, |handle| change.apply(handle, self.tree(), self.id.ino))?;
        let now = self.engine().env().now();
        let updated = self.update(&handle, |item| {
            item.ctime = now;
            match &effect {
                Effect::Access { permissions: Some(permissions), .. } => {
                    item.mode = item.mode & !0o777 | permissions;
                }
                Effect::Flags { flags } => item.flags = *flags,
                _ => {}
            }
        });
        finish(handle, updated)?;
        if value.is_some() {
            self.set_xattrs_known(true);
        }
        if let (Effect::Default { acl }, Some(directory)) = (effect, self.as_directory()) {
            directory.set_known_default_acl(acl);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_attribute_names_with_a_meaning_pass() {
        let rows: [(&[u8], bool); 10] = [
            (b"user.a", true),
            (b"user.", false),
            (b"trusted.x", true),
            (b"security.capability", true),
            (b"system.posix_acl_access", true),
            (b"system.other", false),
            (b"btrfs.compression", true),
            (b"btrfs.unknown", false),
            (b"plain", false),
            (b"user.a\0b", false),
        ];
        for (name, passes) in rows {
            assert_eq!(check_name(name).is_ok(), passes, "{}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn the_compression_property_sets_flags() {
        let item = InodeItem::default();
        let rows: [(&[u8], Option<InodeFlags>); 5] = [
            (b"zstd", Some(InodeFlags::COMPRESS)),
            (b"zlib:9", Some(InodeFlags::COMPRESS)),
            (b"none", Some(InodeFlags::NOCOMPRESS)),
            (b"", Some(InodeFlags::empty())),
            (b"gzip", None),
        ];
        for (value, flags) in rows {
            assert_eq!(compression_flags(&item, value).ok(), flags);
        }
    }
}
