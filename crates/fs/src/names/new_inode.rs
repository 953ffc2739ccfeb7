//! The specification of a new inode, and its items.
//!
//! All items of a new inode stand side by side, since its number is new:
//! INODE_ITEM, INODE_REF, XATTR_ITEMs in the order of their hashes, and the EXTENT_DATA of a symbolic link. They
//! are inserted together, with one search.

use std::collections::BTreeMap;
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Generation, InodeId, ObjectId, Result, Timespec};
use creamery_format::dir_item::{self, Head, ItemBytes};
use creamery_format::{Key, file_extent};
use creamery_tree::Tree;
use creamery_txn::{Engine, Handle};
use smallvec::SmallVec;

use crate::compression;
use crate::context::Context;
use crate::data::{FileContent, NewContent, Packing};
use crate::directory;
use crate::inode::acl::{self, Acl};
use crate::inode::attributes::{DeviceNumber, MODE_BITS, S_ISGID, Times};
use crate::inode::table::InodeTable;
use crate::inode::xattr;
use crate::inode::{DirectoryInode, FileType, Inode, InodeFlags, InodeItem};
use crate::items::{Name, inode_ref};
use crate::keys;
use crate::ops;
use crate::subvolume::{SubvolumeRef, orphan_item};

/// The kind of a new inode.
///
/// ```
/// use creamery_fs::NewKind;
/// assert_ne!(NewKind::File, NewKind::Symlink(b"target"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewKind<'a> {
    /// An empty file.
    File,
    /// An empty directory.
    Directory,
    /// A symbolic link to this target.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice(DeviceNumber),
    /// A block device.
    BlockDevice(DeviceNumber),
}

impl NewKind<'_> {
    /// The type of the inode.
    #[must_use]
    pub const fn file_type(&self) -> FileType {
        match self {
            Self::File => FileType::File,
            Self::Directory => FileType::Directory,
            Self::Symlink(_) => FileType::Symlink,
            Self::Fifo => FileType::Fifo,
            Self::Socket => FileType::Socket,
            Self::CharDevice(_) => FileType::CharDevice,
            Self::BlockDevice(_) => FileType::BlockDevice,
        }
    }
}

/// The properties that a new inode takes over from its directory.
///
/// ```
/// assert_eq!(creamery_fs::Inherit::default(), creamery_fs::Inherit::FromDirectory);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Inherit {
    /// Those of POSIX and Linux: the group and set-group-id bit of a set-group-id directory, the default ACL, compression and
    /// overwriting in place.
    #[default]
    FromDirectory,
    /// Only flags: mode, owner, group and attributes are exactly the given ones. For copies of existing files.
    OnlyFlags,
}

/// The specification of a new inode.
///
/// ```
/// use creamery_fs::{NewInode, NewKind};
/// let directory = NewInode { kind: NewKind::Directory, mode: 0o777, umask: 0o022, ..NewInode::file(0) };
/// # assert_eq!(directory.uid, 0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NewInode<'a> {
    /// Its kind.
    pub kind: NewKind<'a>,
    /// Permission bits; a symbolic link has all nine.
    pub mode: u32,
    /// Bits to remove from the mode, unless a default ACL replaces them.
    pub umask: u32,
    /// Owner.
    pub uid: u32,
    /// Group, unless the directory determines it.
    pub gid: u32,
    /// Times; `None` is now.
    pub times: Option<Times>,
    /// Extended attributes.
    pub xattrs: &'a [(&'a [u8], &'a [u8])],
    /// The properties that it takes over from the directory.
    pub inherit: Inherit,
}

impl NewInode<'_> {
    /// A file of root with these permission bits.
    #[must_use]
    pub const fn file(mode: u32) -> Self {
        Self {
            kind: NewKind::File,
            mode,
            umask: 0,
            uid: 0,
            gid: 0,
            times: None,
            xattrs: &[],
            inherit: Inherit::FromDirectory,
        }
    }

    /// A directory of root with these permission bits.
    #[must_use]
    pub const fn directory(mode: u32) -> Self {
        Self { kind: NewKind::Directory, ..NewInode::file(mode) }
    }
}

/// A new inode before it has a number and a transaction.
pub(crate) struct Draft<'a> {
    item: InodeItem,
    target: Option<&'a [u8]>,
    /// Attributes by the hash of their names, which is the order of their items.
    xattrs: BTreeMap<u64, SmallVec<[Attribute; 1]>>,
    default_acl: Option<Arc<Acl>>,
    /// Data of a file that is created with some.
    content: Option<NewContent>,
}

struct Attribute {
    name: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Draft<'a> {
    /// Determines the inode for `dir`. The caller has locked `dir`, whose item is `dir_item`.
    pub(crate) fn new(
        dir: &DirectoryInode<'_>,
        dir_item: &InodeItem,
        new: &NewInode<'a>,
        now: Timespec,
    ) -> Result<Self> {
        let mut draft = Self::as_given(dir, dir_item, new, now)?;
        if new.inherit == Inherit::FromDirectory {
            draft.inherit_group(dir_item);
            draft.inherit_permissions(dir, new.umask)?;
            draft.inherit_compression(dir, dir_item)?;
        } else {
            draft.apply_umask(new.umask);
        }
        draft.check_collisions(dir.tree())?;
        Ok(draft)
    }

    /// Determines the root directory of a new subvolume in `dir`. Linux passes a group, its bit and a default ACL on to directories,
    /// but not to subvolumes.
    pub(crate) fn root_of_subvolume(
        dir: &DirectoryInode<'_>,
        dir_item: &InodeItem,
        new: &NewInode<'a>,
        now: Timespec,
    ) -> Result<Self> {
        let mut draft = Self::as_given(dir, dir_item, new, now)?;
        draft.apply_umask(new.umask);
        if new.inherit == Inherit::FromDirectory {
            draft.inherit_compression(dir, dir_item)?;
        }
        draft.check_collisions(dir.tree())?;
        Ok(draft)
    }

    /// The inode with the properties of `new`, and with the flags of the directory.
    fn as_given(
        dir: &DirectoryInode<'_>,
        dir_item: &InodeItem,
        new: &NewInode<'a>,
        now: Timespec,
    ) -> Result<Self> {
        let kind = new.kind.file_type();
        let times = new.times.unwrap_or(Times::all(now));
        let mut draft = Self {
            item: InodeItem {
                nlink: 1,
                uid: new.uid,
                gid: new.gid,
                mode: kind.mode_bits() | new.mode & MODE_BITS,
                flags: flags_of_new(dir_item.flags, kind, dir.context().policy().nodatacow),
                atime: times.access,
                mtime: times.modification,
                ctime: times.change,
                otime: times.birth,
                ..InodeItem::default()
            },
            target: None,
            xattrs: BTreeMap::new(),
            default_acl: None,
            content: None,
        };
        match new.kind {
            NewKind::CharDevice(device) | NewKind::BlockDevice(device) => draft.item.rdev = device.encode(),
            NewKind::Symlink(target) => {
                ops::check_target(dir.tree(), target)?;
                draft.item.mode = kind.mode_bits() | 0o777;
                draft.item.size = target.len() as u64;
                draft.item.nbytes = target.len() as u64;
                draft.target = Some(target);
            }
            _ => {}
        }
        for (name, value) in new.xattrs {
            draft.add_given(dir.tree(), name, value)?;
        }
        Ok(draft)
    }

    /// Removes the bits of a umask from the permissions; a symbolic link has all of them.
    fn apply_umask(&mut self, umask: u32) {
        if self.item.kind() != FileType::Symlink {
            self.item.mode &= !(umask & 0o777);
        }
    }

    /// Refuses attributes that share an item, because their names have the same hash, and do not fit in it.
    fn check_collisions(&self, tree: &Tree) -> Result<()> {
        let len = |a: &Attribute| dir_item::HEADER_LEN + a.name.len() + a.value.len();
        let longest = self.xattrs.values().map(|attributes| attributes.iter().map(len).sum::<usize>()).max();
        if longest.is_some_and(|longest| longest > tree.max_item_size()) {
            return Err(Error::new(ErrorKind::NoSpace, "attributes whose names have the same hash"));
        }
        Ok(())
    }

    fn xattr(&self, name: &[u8]) -> Option<&[u8]> {
        let same_hash = self.xattrs.get(&keys::xattr(ObjectId::default(), name).offset)?;
        same_hash.iter().find(|attribute| attribute.name == name).map(|attribute| &attribute.value[..])
    }

    fn add(&mut self, name: &[u8], value: &[u8]) {
        let hash = keys::xattr(ObjectId::default(), name).offset;
        let attributes = self.xattrs.entry(hash).or_default();
        attributes.retain(|attribute| attribute.name != name);
        attributes.push(Attribute { name: name.to_vec(), value: value.to_vec() });
    }

    fn add_given(&mut self, tree: &Tree, name: &[u8], value: &[u8]) -> Result<()> {
        xattr::check_name(name)?;
        xattr::check_size(tree, name, value)?;
        if name == acl::ACCESS || name == acl::DEFAULT {
            let Some(acl) = Acl::decode(value)? else { return Ok(()) };
            if name == acl::DEFAULT {
                self.default_acl = Some(Arc::new(acl));
            } else {
                self.item.mode = self.item.mode & !0o777 | acl.permissions();
                if acl.is_equivalent_to_mode() {
                    return Ok(());
                }
            }
        }
        if name == xattr::COMPRESSION {
            let flags = xattr::compression_flags(&self.item, value)?;
            if !xattr::has_compression(&self.item) {
                return Ok(());
            }
            self.item.flags = flags;
        }
        self.add(name, value);
        Ok(())
    }

    fn inherit_group(&mut self, dir_item: &InodeItem) {
        if dir_item.mode & S_ISGID != 0 {
            self.item.gid = dir_item.gid;
            if self.item.is_dir() {
                self.item.mode |= S_ISGID;
            }
        }
    }

    /// Sets the permissions by the default ACL of the directory, or by the umask if there is none.
    fn inherit_permissions(&mut self, dir: &DirectoryInode<'_>, umask: u32) -> Result<()> {
        if self.item.kind() == FileType::Symlink {
            return Ok(());
        }
        match xattr::default_acl(dir)? {
            None => self.apply_umask(umask),
            Some(default) => {
                let inherited = default.for_new_inode(self.item.mode);
                self.item.mode = self.item.mode & !0o777 | inherited.permissions;
                if let Some(access) = inherited.access {
                    self.add(acl::ACCESS, &access.encode());
                }
                if self.item.is_dir() {
                    self.add(acl::DEFAULT, &default.encode());
                    self.default_acl = Some(default);
                }
            }
        }
        Ok(())
    }

    fn inherit_compression(&mut self, dir: &Inode, dir_item: &InodeItem) -> Result<()> {
        let compression = InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS;
        if dir_item.flags.intersects(compression)
            && !self.item.flags.intersects(InodeFlags::NODATACOW | InodeFlags::NODATASUM)
            && matches!(self.item.kind(), FileType::File | FileType::Directory)
            && let Some(value) = xattr::get_known(dir, xattr::COMPRESSION, creamery_base::Wait::Yes)?
            && let Some(algorithm) = compression::algorithm(&value)
        {
            // As on Linux the algorithm alone; a flag forbids compression.
            self.add(xattr::COMPRESSION, algorithm.to_string().as_bytes());
        }
        Ok(())
    }

    /// The kind of the inode.
    pub(crate) fn kind(&self) -> FileType {
        self.item.kind()
    }

    /// Writes the initial data of the file. The caller holds no handle.
    pub(crate) fn write_content(
        &mut self,
        context: &Context,
        tree: &Tree,
        content: &FileContent<'_>,
    ) -> Result<()> {
        let property = self.xattr(xattr::COMPRESSION);
        let mut packing = Packing::new(context, &self.item, property);
        if let (Some(packing), Some(ahead), [(0, bytes)]) = (&mut packing, content.packed, content.stretches)
            && bytes.len() as u64 == content.size
        {
            packing.take_ahead(ahead, bytes);
        }
        let content = (content.size, content.stretches);
        let written = NewContent::write(context, tree, self.item.flags, packing, content)?;
        written.count(&mut self.item);
        self.content = Some(written);
        Ok(())
    }

    /// How many metadata units its data takes besides.
    pub(crate) fn content_units(&self, engine: &Engine) -> u32 {
        self.content.as_ref().map_or(0, |content| content.units(engine))
    }

    /// How many tree items the inode takes without those of its data.
    pub(crate) fn item_count(&self) -> u32 {
        2 + u32::from(self.target.is_some()) + u32::try_from(self.xattrs.len()).unwrap_or(u32::MAX / 2)
    }

    /// Inserts the items of inode `ino`: with a name, or as an inode without one (which has an orphan item).
    pub(crate) fn insert(
        &mut self,
        handle: &Handle<'_>,
        tree: &Tree,
        ino: ObjectId,
        name: Option<(ObjectId, u64, Name<'_>)>,
    ) -> Result<()> {
        let running = handle.generation();
        self.item.generation = running;
        self.item.transid = running;
        self.item.nlink = u32::from(name.is_some());
        let inode_item = self.item.encode();
        let reference =
            name.map(|(dir, index, name)| (keys::inode_ref(ino, dir), inode_ref::single(index, name)));
        let xattrs = self.encode_xattrs(ino, running);
        let extent = self
            .target
            .map(|target| (keys::extent_data(ino, 0), file_extent::encode_inline(running, target)));
        let content = self.content.take();
        let data = content.as_ref().map(|content| content.items(handle, ino)).unwrap_or_default();
        let mut items: SmallVec<[(Key, &[u8]); 4]> = SmallVec::new();
        items.push((keys::inode_item(ino), &inode_item));
        items.extend(reference.iter().map(|(key, bytes)| (*key, &bytes[..])));
        items.extend(xattrs.iter().map(|(key, bytes)| (*key, &bytes[..])));
        items.extend(extent.iter().map(|(key, bytes)| (*key, &bytes[..])));
        items.extend(data.iter().map(|(key, bytes)| (*key, &bytes[..])));
        tree.insert_batch(handle, &items)?;
        if let Some(content) = content {
            content.hand_over(handle, InodeId::new(tree.id(), ino))?;
        }
        if name.is_none() {
            orphan_item::insert(handle, tree, ino)?;
        }
        Ok(())
    }

    fn encode_xattrs(&self, ino: ObjectId, running: Generation) -> Vec<(Key, ItemBytes)> {
        let encode = |attributes: &SmallVec<[Attribute; 1]>| {
            let mut item = ItemBytes::new();
            for attribute in attributes {
                dir_item::push(&mut item, &Head::xattr(running), &attribute.name, &attribute.value);
            }
            (keys::xattr(ino, &attributes[0].name), item)
        };
        self.xattrs.values().map(encode).collect()
    }

    /// The inode item as a subvolume's root directory.
    pub(crate) fn root_dir_item(&mut self, running: Generation) -> &InodeItem {
        self.item.generation = running;
        self.item.transid = running;
        &self.item
    }

    /// Inserts the attributes of an inode that is in the tree already.
    pub(crate) fn insert_xattrs(&self, handle: &Handle<'_>, tree: &Tree, ino: ObjectId) -> Result<()> {
        self.encode_xattrs(ino, self.item.generation)
            .iter()
            .try_for_each(|(key, item)| tree.insert(handle, key, item))
    }

    /// The object of the inode, once its items are in the tree.
    pub(crate) fn publish(self, table: &InodeTable, id: InodeId, subvolume: SubvolumeRef) -> Arc<Inode> {
        let inode = Inode::new(id, subvolume, self.item);
        inode.set_xattrs_known(!self.xattrs.is_empty());
        if let Some(directory) = inode.as_directory() {
            directory.set_known_default_acl(self.default_acl);
            directory.set_next_index(directory::FIRST_INDEX);
        }
        table.publish_new(inode)
    }

    /// The inode item as it was inserted last.
    pub(crate) const fn item(&self) -> &InodeItem {
        &self.item
    }
}

/// Whether a file made in a directory with these flags has checksums; `nodatacow` is the mount option.
pub(crate) fn new_file_has_checksums(dir: InodeFlags, nodatacow: bool) -> bool {
    !flags_of_new(dir, FileType::File, nodatacow).contains(InodeFlags::NODATASUM)
}

/// The flags that a new inode takes over from its directory, and the flags of files by the mount option.
fn flags_of_new(dir: InodeFlags, kind: FileType, nodatacow: bool) -> InodeFlags {
    let mut flags = InodeFlags::empty();
    if !matches!(kind, FileType::File | FileType::Directory) {
        return flags;
    }
    if dir.contains(InodeFlags::NOCOMPRESS) {
        flags |= InodeFlags::NOCOMPRESS;
    } else if dir.contains(InodeFlags::COMPRESS) {
        flags |= InodeFlags::COMPRESS;
    }
    if dir.contains(InodeFlags::NODATACOW) {
        flags |= InodeFlags::NODATACOW;
    }
    if kind == FileType::File && (nodatacow || flags.contains(InodeFlags::NODATACOW)) {
        // A compression flag stays beside these, as on Linux, and has no effect.
        flags |= InodeFlags::NODATACOW | InodeFlags::NODATASUM;
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_taken_over_from_the_directory() {
        use FileType::{Directory, Fifo, File};
        let both = InodeFlags::NODATACOW | InodeFlags::NODATASUM;
        let rows = [
            (InodeFlags::NODATACOW, File, both),
            (InodeFlags::NODATACOW, Directory, InodeFlags::NODATACOW),
            (InodeFlags::COMPRESS, File, InodeFlags::COMPRESS),
            (InodeFlags::NOCOMPRESS, Directory, InodeFlags::NOCOMPRESS),
            (InodeFlags::IMMUTABLE | InodeFlags::SYNC, File, InodeFlags::empty()),
            (InodeFlags::NODATACOW, Fifo, InodeFlags::empty()),
        ];
        for (dir, kind, expected) in rows {
            assert_eq!(flags_of_new(dir, kind, false), expected, "{dir:?} {kind:?}");
        }
        for word in [InodeFlags::COMPRESS, InodeFlags::NOCOMPRESS] {
            assert_eq!(flags_of_new(word, File, true), both | word);
            assert_eq!(flags_of_new(word, Directory, true), word);
        }
    }
}
