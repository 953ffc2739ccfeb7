//! POSIX access control lists.
//!
//! An ACL is stored as the extended attribute `system.posix_acl_access` or `system.posix_acl_default` in the form
//! in which it crosses the system call boundary: a version (2), then entries of tag, permissions and id. The access ACL and the
//! mode overlap, so a change of one changes the other:
//!
//! - setting the access ACL sets the mode's nine bits; an ACL that says no more than a mode is not stored at all;
//! - changing the mode changes the owner's entry, the others' entry, and the mask (or the group's entry if there is no mask);
//! - a new inode in a directory with a default ACL gets that ACL narrowed by the requested mode, in place of the umask; a new
//!   directory gets the default ACL as well.

use creamery_base::{Error, Result, memory};
use smallvec::SmallVec;

/// Attribute name of the access ACL.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Attribute name of the default ACL.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const ENTRY_LEN: usize = 8;
const NO_ID: u32 = u32::MAX;

const PERMISSIONS: u32 = 0o777;

/// The subject of an entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Tag {
    UserObj = 0x01,
    User = 0x02,
    GroupObj = 0x04,
    Group = 0x08,
    Mask = 0x10,
    Other = 0x20,
}

impl Tag {
    const fn new(value: u16) -> Option<Self> {
        Some(match value {
            0x01 => Self::UserObj,
            0x02 => Self::User,
            0x04 => Self::GroupObj,
            0x08 => Self::Group,
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct AclEntry {
    tag: Tag,
    perm: u16,
    id: u32,
}

/// A valid ACL: owner, named users, group, named groups, mask, others, in this order; one each of owner, group and others; a mask
/// if it has a named user or group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acl {
    entries: SmallVec<[AclEntry; 8]>,
}

/// The result of [`Acl::for_new_inode`] for a default ACL and a mode.
pub(crate) struct Inherited {
    /// The mode's nine bits.
    pub(crate) permissions: u32,
    /// The access ACL, when it says more than the mode.
    pub(crate) access: Option<Acl>,
}

impl Acl {
    /// The memory of a shared ACL, bytes.
    pub(crate) fn memory(&self) -> u64 {
        let outside =
            if self.entries.spilled() { memory::vec::<AclEntry>(self.entries.capacity()) } else { 0 };
        memory::shared::<Self>() + outside
    }

    /// Reads and checks the stored form. Returns `None` for an ACL without entries.
    pub(crate) fn decode(value: &[u8]) -> Result<Option<Self>> {
        let invalid = |what: &str| Error::invalid(format!("invalid ACL: {what}"));
        let (version, rest) = value.split_first_chunk::<4>().ok_or_else(|| invalid("no version"))?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Error::unsupported("unknown ACL version, expected 2"));
        }
        if rest.len() % ENTRY_LEN != 0 {
            return Err(invalid("truncated"));
        }
        let mut entries = SmallVec::new();
        for bytes in rest.chunks_exact(ENTRY_LEN) {
            let tag =
                Tag::new(u16::from_le_bytes([bytes[0], bytes[1]])).ok_or_else(|| invalid("unknown tag"))?;
            let perm = u16::from_le_bytes([bytes[2], bytes[3]]);
            if perm > 7 {
                return Err(invalid("unknown permissions"));
            }
            let id = match tag {
                Tag::User | Tag::Group => u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
                _ => NO_ID,
            };
            entries.push(AclEntry { tag, perm, id });
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let acl = Self { entries };
        if acl.is_valid() { Ok(Some(acl)) } else { Err(invalid("missing or misplaced entries")) }
    }

    fn is_valid(&self) -> bool {
        let count = |tag| self.entries.iter().filter(|entry| entry.tag == tag).count();
        let named = count(Tag::User) + count(Tag::Group);
        self.entries.is_sorted_by_key(|entry| entry.tag)
            && count(Tag::UserObj) == 1
            && count(Tag::GroupObj) == 1
            && count(Tag::Other) == 1
            && count(Tag::Mask) <= 1
            && (named == 0 || count(Tag::Mask) == 1)
            && self
                .entries
                .iter()
                .all(|entry| !matches!(entry.tag, Tag::User | Tag::Group) || entry.id != NO_ID)
    }

    /// The stored form.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(4 + self.entries.len() * ENTRY_LEN);
        value.extend_from_slice(&VERSION.to_le_bytes());
        for entry in &self.entries {
            value.extend_from_slice(&(entry.tag as u16).to_le_bytes());
            value.extend_from_slice(&entry.perm.to_le_bytes());
            value.extend_from_slice(&entry.id.to_le_bytes());
        }
        value
    }

    fn perm(&self, tag: Tag) -> Option<u32> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| u32::from(entry.perm))
    }

    fn perm_mut(&mut self, tag: Tag) -> Option<&mut u16> {
        self.entries.iter_mut().find(|entry| entry.tag == tag).map(|entry| &mut entry.perm)
    }

    /// The tag whose permissions are the mode's group bits.
    fn group_class(&self) -> Tag {
        if self.perm(Tag::Mask).is_some() { Tag::Mask } else { Tag::GroupObj }
    }

    /// The nine mode bits that are equivalent to it.
    pub(crate) fn permissions(&self) -> u32 {
        let bits = |tag| self.perm(tag).expect("a valid list has its three obligatory entries");
        bits(Tag::UserObj) << 6 | bits(self.group_class()) << 3 | bits(Tag::Other)
    }

    /// Whether the mode bits express all of it.
    pub(crate) fn is_equivalent_to_mode(&self) -> bool {
        self.entries.iter().all(|entry| matches!(entry.tag, Tag::UserObj | Tag::GroupObj | Tag::Other))
    }

    /// Takes over the bits of a new mode.
    pub(crate) fn set_permissions(&mut self, mode: u32) {
        let group = self.group_class();
        for (tag, shift) in [(Tag::UserObj, 6), (group, 3), (Tag::Other, 0)] {
            let perm = self.perm_mut(tag).expect("a valid list has its three obligatory entries");
            *perm = u16::try_from(mode >> shift & 7).expect("three bits");
        }
    }

    /// The access ACL and mode of an inode that is made with `mode` where `self` is the default ACL.
    pub(crate) fn for_new_inode(&self, mode: u32) -> Inherited {
        let mut acl = self.clone();
        acl.set_permissions(self.permissions() & mode & PERMISSIONS);
        let permissions = acl.permissions();
        let access = (!acl.is_equivalent_to_mode()).then_some(acl);
        Inherited { permissions, access }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(rows: &[(Tag, u16, u32)]) -> Vec<u8> {
        let entries = rows.iter().map(|&(tag, perm, id)| AclEntry { tag, perm, id }).collect();
        Acl { entries }.encode()
    }

    fn plain(owner: u16, group: u16, other: u16) -> Vec<u8> {
        list(&[(Tag::UserObj, owner, NO_ID), (Tag::GroupObj, group, NO_ID), (Tag::Other, other, NO_ID)])
    }

    fn named(owner: u16, user: u16, group: u16, mask: u16, other: u16) -> Vec<u8> {
        list(&[
            (Tag::UserObj, owner, NO_ID),
            (Tag::User, user, 1000),
            (Tag::GroupObj, group, NO_ID),
            (Tag::Mask, mask, NO_ID),
            (Tag::Other, other, NO_ID),
        ])
    }

    fn decode(value: &[u8]) -> Acl {
        Acl::decode(value).expect("valid").expect("has entries")
    }

    #[test]
    fn the_stored_form_is_the_kernels() {
        let stored =
            b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x06\0\xe8\x03\0\0\x04\0\x04\0\xff\xff\xff\xff\
            \x10\0\x06\0\xff\xff\xff\xff \0\x04\0\xff\xff\xff\xff";
        assert_eq!(named(6, 6, 4, 6, 4), stored);
        assert_eq!(decode(stored).encode(), stored);
    }

    #[test]
    fn malformed_lists_are_refused() {
        let rows: [(&str, Vec<u8>); 8] = [
            ("no version", vec![2, 0]),
            ("version 1", vec![1, 0, 0, 0]),
            ("cut short", plain(7, 7, 7)[..20].to_vec()),
            ("permission 8", plain(8, 7, 7)),
            ("no others", list(&[(Tag::UserObj, 7, NO_ID), (Tag::GroupObj, 7, NO_ID)])),
            ("named without mask", {
                let rows = [
                    (Tag::UserObj, 7, NO_ID),
                    (Tag::User, 7, 5),
                    (Tag::GroupObj, 7, NO_ID),
                    (Tag::Other, 7, NO_ID),
                ];
                list(&rows)
            }),
            ("order", list(&[(Tag::GroupObj, 7, NO_ID), (Tag::UserObj, 7, NO_ID), (Tag::Other, 7, NO_ID)])),
            ("two owners", {
                let rows = [
                    (Tag::UserObj, 7, NO_ID),
                    (Tag::UserObj, 7, NO_ID),
                    (Tag::GroupObj, 7, NO_ID),
                    (Tag::Other, 7, NO_ID),
                ];
                list(&rows)
            }),
        ];
        for (what, value) in rows {
            assert!(Acl::decode(&value).is_err(), "{what}");
        }
        assert_eq!(Acl::decode(&[2, 0, 0, 0]).expect("valid"), None);
    }

    #[test]
    fn mode_and_list_follow_each_other() {
        let rows = [
            (plain(7, 5, 4), 0o754, true, 0o640, plain(6, 4, 0)),
            (named(7, 6, 4, 6, 4), 0o764, false, 0o701, named(7, 6, 4, 0, 1)),
            (named(6, 7, 7, 5, 0), 0o650, false, 0o777, named(7, 7, 7, 7, 7)),
        ];
        for (value, permissions, equivalent, new_mode, after) in rows {
            let mut acl = decode(&value);
            assert_eq!(acl.permissions(), permissions);
            assert_eq!(acl.is_equivalent_to_mode(), equivalent);
            acl.set_permissions(new_mode);
            assert_eq!(acl.encode(), after);
        }
    }

    #[test]
    fn a_new_inode_gets_the_default_list_narrowed_by_its_mode() {
        let rows = [
            (named(7, 7, 7, 7, 5), 0o666, 0o664, Some(named(6, 7, 7, 6, 4))),
            (named(7, 7, 7, 7, 5), 0o777, 0o775, Some(named(7, 7, 7, 7, 5))),
            (plain(7, 5, 0), 0o666, 0o640, None),
            (named(7, 7, 7, 0, 7), 0o777, 0o707, Some(named(7, 7, 7, 0, 7))),
        ];
        for (default, mode, permissions, access) in rows {
            let inherited = decode(&default).for_new_inode(mode);
            assert_eq!(inherited.permissions, permissions);
            assert_eq!(inherited.access.map(|acl| acl.encode()), access);
        }
    }
}
