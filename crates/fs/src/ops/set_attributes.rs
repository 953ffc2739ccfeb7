//! Changes of an inode's attributes, for `chmod`, `chown`, `utimes`, `truncate` and `chattr`.

use creamery_base::{Error, ErrorKind, Result, Timespec, Wait};
use creamery_txn::ReserveItems;
use smallvec::SmallVec;

use crate::compression;
use crate::data;
use crate::inode::acl::{self, Acl};
use crate::inode::attributes::{Attributes, MODE_BITS, S_ISGID, Times};
use crate::inode::permission::{check_not_append_only, check_not_immutable, check_not_sealed};
use crate::inode::xattr::{self, PreparedXattr, XattrChange, XattrMode};
use crate::inode::{FILE_SIZE_MAX, FileType, Inode, InodeFlags, InodeItem};
use crate::operation::{finish, or_end};

const S_ISUID: u32 = 0o4000;
const S_IXGRP: u32 = 0o010;

/// A time to be set.
///
/// ```
/// use creamery_base::Timespec;
/// use creamery_fs::Time;
/// assert_ne!(Time::Now, Time::At(Timespec::default()));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// The time of the change.
    Now,
    /// This one.
    At(Timespec),
}

/// The attributes to change, with their new values. The change time becomes now unless it is given.
///
/// ```
/// use creamery_fs::SetAttributes;
/// let chmod = SetAttributes { mode: Some(0o600), ..Default::default() };
/// # assert!(chmod.uid.is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttributes {
    /// Permission bits (the type bits are ignored).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length of a file.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<Time>,
    /// Last change of the data.
    pub mtime: Option<Time>,
    /// Last change of the inode.
    pub ctime: Option<Time>,
    /// Birth.
    pub btime: Option<Time>,
    /// Flags. Flags that describe the data (for example `PREALLOC`) stay as they are. As on Linux the compression property
    /// follows: with `COMPRESS` it becomes the mount's algorithm, or zlib; without it the property goes.
    pub flags: Option<InodeFlags>,
    /// Clear set-user-id, and set-group-id where the group may execute, as a write by another user does.
    pub kill_suid_sgid: bool,
    /// Clear set-group-id also where the group may not execute, as a write by a user outside the group does.
    pub kill_sgid: bool,
}

/// The writer of a file, by its effect on set-user-id and set-group-id.
///
/// ```
/// # fn fallocate(file: &creamery_fs::OpenFile, own: u32) -> creamery_base::Result<bool> {
/// use creamery_fs::WritingUser;
/// file.kill_privileges(|group| if group == own { WritingUser::OfTheGroup } else { WritingUser::Stranger })
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritingUser {
    /// Keeps both bits (`CAP_FSETID`).
    Privileged,
    /// A member of the file's group, or a user whose groups are not known.
    OfTheGroup,
    /// Any other user.
    Stranger,
}

/// The flags that a caller can set.
const SETTABLE: InodeFlags = InodeFlags::NODATACOW
    .union(InodeFlags::NOCOMPRESS)
    .union(InodeFlags::COMPRESS)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::DIRSYNC);

/// The flags that an inode of this kind can have; others are ignored, as on Linux.
const fn settable(kind: FileType) -> InodeFlags {
    match kind {
        FileType::Directory => SETTABLE,
        FileType::File => SETTABLE.difference(InodeFlags::DIRSYNC),
        _ => InodeFlags::NODUMP.union(InodeFlags::NOATIME),
    }
}

/// The new flags when a caller asks for `wanted`.
fn new_flags(item: &InodeItem, wanted: InodeFlags) -> Result<InodeFlags> {
    let mut flags = (item.flags - SETTABLE) | (wanted & settable(item.kind()));
    let in_place = InodeFlags::NODATACOW;
    let compression = InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS;
    if flags.contains(compression) && item.flags.contains(compression) {
        // Both are stored: as on Linux the effective one, `NOCOMPRESS`, counts.
        flags -= InodeFlags::COMPRESS;
    }
    if flags.contains(compression) {
        return Err(Error::invalid("flags compress and nocompress conflict"));
    }
    // As on Linux: a compression flag and the flag to overwrite in place never come together.
    if flags.contains(in_place | InodeFlags::COMPRESS)
        || item.flags.contains(in_place) && flags.intersects(compression)
        || flags.contains(in_place) && item.flags.intersects(compression)
    {
        return Err(Error::invalid("flag nodatacow conflicts with compression"));
    }
    if item.kind() == FileType::File && flags.contains(in_place) != item.flags.contains(in_place) {
        if item.size == 0 {
            flags.set(InodeFlags::NODATASUM, flags.contains(in_place));
        } else {
            // The existing data has checksums, or has none: the flag cannot change for it, and as on Linux the call succeeds.
            flags.set(in_place, item.flags.contains(in_place));
        }
    }
    Ok(flags)
}

/// The mode without set-user-id, and without set-group-id where the group may execute; a directory keeps both.
fn without_privileges(item: &InodeItem) -> u32 {
    let taken = match item.mode & S_IXGRP {
        _ if item.is_dir() => 0,
        0 => S_ISUID,
        _ => S_ISUID | S_ISGID,
    };
    item.mode & !taken
}

impl SetAttributes {
    /// A new size as ftruncate(2) and O_TRUNC set it: a modification even when the size stays. (For truncate(2) set the size
    /// alone: the modification time moves only if the size changes.)
    #[must_use]
    pub fn truncate(size: u64) -> Self {
        Self { size: Some(size), mtime: Some(Time::Now), ..Self::default() }
    }

    /// Sets all four times.
    #[must_use]
    pub fn times(times: &Times) -> Self {
        Self {
            atime: Some(Time::At(times.access)),
            mtime: Some(Time::At(times.modification)),
            ctime: Some(Time::At(times.change)),
            btime: Some(Time::At(times.birth)),
            ..Self::default()
        }
    }

    /// Changes everything but the size and flags.
    fn apply(&self, item: &mut InodeItem, now: Timespec) {
        let at = |time: Time| match time {
            Time::Now => now,
            Time::At(time) => time,
        };
        if let Some(mode) = self.mode {
            item.mode = item.mode & !MODE_BITS | mode & MODE_BITS;
        }
        if self.kill_suid_sgid {
            item.mode = without_privileges(item);
        }
        if self.kill_sgid && !item.is_dir() {
            item.mode &= !S_ISGID;
        }
        item.uid = self.uid.unwrap_or(item.uid);
        item.gid = self.gid.unwrap_or(item.gid);
        item.atime = self.atime.map_or(item.atime, at);
        item.mtime = self.mtime.map_or(item.mtime, at);
        item.otime = self.btime.map_or(item.otime, at);
        item.ctime = self.ctime.map_or(now, at);
    }

    fn is_only_size(&self) -> bool {
        Self { size: None, ..*self } == Self::default()
    }

    fn check(&self, item: &InodeItem) -> Result<()> {
        if self.flags.is_none() {
            check_not_immutable(item)?;
            let past = [self.atime, self.mtime].iter().any(|time| matches!(time, Some(Time::At(_))));
            let more_than_now = self.mode.is_some() || self.uid.is_some() || self.gid.is_some() || past;
            if more_than_now || self.size.is_some() {
                check_not_append_only(item)?;
            }
        }
        if self.size.is_some() {
            check_not_sealed(item)?;
        }
        for time in [self.atime, self.mtime, self.ctime, self.btime].into_iter().flatten() {
            if let Time::At(time) = time
                && time.nsec >= 1_000_000_000
            {
                return Err(Error::invalid("nanoseconds exceed 999,999,999"));
            }
        }
        match (self.size, item.kind()) {
            (None, _) => Ok(()),
            (Some(_), FileType::Directory) => Err(ErrorKind::IsADirectory.into()),
            (Some(size), FileType::File) if size <= FILE_SIZE_MAX => Ok(()),
            (Some(_), FileType::File) => Err(ErrorKind::FileTooLarge.into()),
            (Some(_), _) => Err(Error::invalid("not a regular file")),
        }
    }
}

/// Clears set-user-id and set-group-id for a write to the file; calls `writer` with the file's group. Returns whether there was
/// anything to clear. Mostly there is not, and nothing changes.
pub(crate) fn kill_privileges(inode: &Inode, writer: impl FnOnce(u32) -> WritingUser) -> Result<bool> {
    let item = inode.item(Wait::Yes)?;
    if item.is_dir() || item.mode & (S_ISUID | S_ISGID) == 0 {
        return Ok(false);
    }
    let kill_sgid = match writer(item.gid) {
        WritingUser::Privileged => return Ok(false),
        WritingUser::OfTheGroup => false,
        WritingUser::Stranger => true,
    };
    if without_privileges(&item) == item.mode && !(kill_sgid && item.mode & S_ISGID != 0) {
        return Ok(false);
    }
    let _change = inode.begin_change()?;
    set_attributes(inode, &SetAttributes { kill_suid_sgid: true, kill_sgid, ..SetAttributes::default() })?;
    Ok(true)
}

/// Changes all attributes, or none of them if it returns an error before the size was changed.
pub(crate) fn set_attributes(inode: &Inode, set: &SetAttributes) -> Result<Attributes> {
    let mut locked = inode.lock_exclusive()?;
    set.check(&locked)?;
    let mut set = *set;
    if let Some(size) = set.size {
        let (shrinks, grows) = (size < locked.size, size > locked.size);
        let file = inode.regular()?;
        let range = file.lock_range(size.min(locked.size), u64::MAX, Wait::Yes)?;
        let shown = shrinks.then(|| file.show_size(size));
        if size == 0 && locked.size > 0 {
            file.set_flush_on_close();
        }
        file.settle_cut(&mut locked, size);
        if shrinks && locked.size == size {
            // The data that was cut was in memory alone, and so were its times: the item needs them.
            set.mtime = set.mtime.or(Some(Time::Now));
        }
        if !grows && locked.size < size {
            data::drop_behind(&file, locked.item_mut(), size)?;
        }
        data::truncate(&file, locked.item_mut(), size)?;
        drop((shown, range));
        if set.is_only_size() {
            return Ok(Attributes::new(inode.id, &locked));
        }
    }
    let flags = set.flags.map(|wanted| new_flags(&locked, wanted)).transpose()?;
    let access = changed_access_acl(inode, &set)?;
    let access = access.as_deref();
    let access =
        access.map(|value| XattrChange { name: acl::ACCESS, value: Some(value), mode: XattrMode::Replace });
    let property = flags.map(|flags| compression::property(inode.context().compression().option(), flags));
    let property = property.as_ref().map(|value| XattrChange {
        name: xattr::COMPRESSION,
        value: value.as_deref().map(str::as_bytes),
        mode: XattrMode::Any,
    });
    let changes: SmallVec<[XattrChange<'_>; 2]> = access.into_iter().chain(property).collect();
    let attributes = u32::try_from(changes.len()).expect("two at most");
    let units = ReserveItems::items(1 + attributes);
    // A limit does not stop an operation that has already cut the file.
    let units = if changes.is_empty() { units.growing_nothing() } else { units };
    let handle = inode.engine().start(units.of(inode.id.subvolume))?;
    // If one change fails, none is made.
    let (handle, prepared) = or_end(handle, |handle| {
        let prepare = |change: &XattrChange<'_>| change.prepare(handle, inode.tree(), inode.id.ino);
        changes.iter().map(prepare).collect::<Result<SmallVec<[PreparedXattr; 2]>>>()
    })?;
    let now = inode.engine().env().now();
    let stored = prepared.iter().try_for_each(|change| change.store(&handle, inode.tree()));
    let updated = stored.and_then(|()| {
        inode.update(&handle, |item| {
            item.flags = flags.unwrap_or(item.flags);
            set.apply(item, now);
        })
    });
    let item = finish(handle, updated)?;
    if changes.iter().any(|change| change.value.is_some()) {
        inode.set_xattrs_known(true);
    }
    Ok(Attributes::new(inode.id, &item))
}

/// The access ACL after a change of the mode; `None` when the mode stays or there is no ACL.
fn changed_access_acl(inode: &Inode, set: &SetAttributes) -> Result<Option<Vec<u8>>> {
    let Some(mode) = set.mode else { return Ok(None) };
    let Some(value) = xattr::get_known(inode, acl::ACCESS, Wait::Yes)? else { return Ok(None) };
    let Some(mut acl) = Acl::decode(&value)? else { return Ok(None) };
    acl.set_permissions(mode);
    Ok(Some(acl.encode()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_change_one_by_one() {
        let now = Timespec { sec: 9, nsec: 9 };
        let before = InodeItem { mode: 0o106_755, uid: 1, gid: 2, ..InodeItem::default() };
        let change = |set: SetAttributes| {
            let mut item = before.clone();
            set.apply(&mut item, now);
            item
        };
        assert_eq!(change(SetAttributes { mode: Some(0o140_644), ..Default::default() }).mode, 0o100_644);
        assert_eq!(change(SetAttributes { kill_suid_sgid: true, ..Default::default() }).mode, 0o100_755);
        let after = change(SetAttributes { uid: Some(5), atime: Some(Time::Now), ..Default::default() });
        assert_eq!((after.uid, after.gid, after.atime, after.ctime), (5, 2, now, now));
        let old = Timespec { sec: -5_000_000_000, nsec: 1 };
        let after = change(SetAttributes { ctime: Some(Time::At(old)), ..Default::default() });
        assert_eq!((after.ctime, after.mtime), (old, before.mtime));
    }

    #[test]
    fn overwriting_in_place_is_chosen_while_a_file_is_empty() {
        let empty = InodeItem::default();
        let flags = new_flags(&empty, InodeFlags::NODATACOW).expect("empty");
        assert_eq!(flags, InodeFlags::NODATACOW | InodeFlags::NODATASUM);
        let full = InodeItem { size: 1, flags: InodeFlags::PREALLOC, ..InodeItem::default() };
        for asked in [InodeFlags::NODUMP, InodeFlags::NODUMP | InodeFlags::NODATACOW] {
            let flags = new_flags(&full, asked).ok();
            assert_eq!(flags, Some(InodeFlags::PREALLOC | InodeFlags::NODUMP));
        }
        let in_place = InodeItem { size: 1, flags, ..InodeItem::default() };
        assert_eq!(new_flags(&in_place, InodeFlags::SYNC).ok(), Some(flags | InodeFlags::SYNC));
        assert!(new_flags(&empty, InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS).is_err());
    }

    #[test]
    fn an_inode_with_both_words_on_compression_can_be_given_others() {
        let (yes, no) = (InodeFlags::COMPRESS, InodeFlags::NOCOMPRESS);
        let item = InodeItem { flags: yes | no, ..InodeItem::default() };
        let rows = [
            (yes | no | InodeFlags::NODUMP, no | InodeFlags::NODUMP),
            (no, no),
            (yes, yes),
            (InodeFlags::empty(), InodeFlags::empty()),
        ];
        for (asked, flags) in rows {
            assert_eq!(new_flags(&item, asked).ok(), Some(flags), "{asked:?}");
        }
    }

    #[test]
    fn what_is_overwritten_in_place_is_not_compressed() {
        let dir = InodeItem { mode: 0o040_755, ..InodeItem::default() };
        for item in [InodeItem { mode: 0o100_644, ..InodeItem::default() }, dir] {
            assert!(new_flags(&item, InodeFlags::NODATACOW | InodeFlags::COMPRESS).is_err());
            for compression in [InodeFlags::COMPRESS, InodeFlags::NOCOMPRESS] {
                for (has, asked) in
                    [(InodeFlags::NODATACOW, compression), (compression, InodeFlags::NODATACOW)]
                {
                    let item = InodeItem { flags: has, ..item };
                    assert!(new_flags(&item, has | asked).is_err());
                    assert!(new_flags(&item, InodeFlags::empty()).is_ok());
                }
            }
        }
    }

    #[test]
    fn an_inode_keeps_the_flags_that_its_kind_can_have() {
        let asked = InodeFlags::DIRSYNC | InodeFlags::SYNC | InodeFlags::NODUMP | InodeFlags::NOATIME;
        let of = |mode| new_flags(&InodeItem { mode, ..InodeItem::default() }, asked).ok();
        assert_eq!(of(0o040_755), Some(asked));
        assert_eq!(of(0o100_644), Some(asked - InodeFlags::DIRSYNC));
        assert_eq!(of(0o010_644), Some(InodeFlags::NODUMP | InodeFlags::NOATIME));
    }
}
