//! The header of a member, and the extended records before it.

use creamery_base::{Error, ErrorKind, Result, Timespec};
use tar::{EntryType, Header};

use super::keys::{ACL_KEYS, SELINUX, SELINUX_KEY, XATTR_KEY};
use super::pax::{self, number};
use crate::fs::DeviceNumber;

/// The largest major and minor number of a device on Linux.
const MAJOR_MAX: u64 = 0xfff;
const MINOR_MAX: u64 = 0xf_ffff;

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what.to_owned())
}

/// The header of a member with its extended records.
#[derive(Clone, Default, Debug)]
pub(super) struct MemberHeader {
    pub(super) name: Vec<u8>,
    pub(super) link: Vec<u8>,
    /// Bytes of data in the archive.
    pub(super) size: u64,
    pub(super) mode: u32,
    /// Owner and group, which may be larger than a filesystem allows ([`MemberHeader::owner`]).
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) mtime: Timespec,
    pub(super) atime: Option<Timespec>,
    /// Major and minor number of a node, which may be larger than Linux allows ([`MemberHeader::device`]).
    pub(super) device: (u64, u64),
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// ACLs as text, with the names of their attributes.
    pub(super) acls: Vec<(&'static [u8], Vec<u8>)>,
    /// The reason why the member cannot be made, if its header is invalid.
    pub(super) refusal: Option<String>,
}

/// Parses `SECONDS[.FRACTION]`, which may be negative.
fn time(value: &[u8]) -> Result<Timespec> {
    let read = || {
        let (value, negative) = match value.strip_prefix(b"-") {
            Some(value) => (value, true),
            None => (value, false),
        };
        let dot = value.iter().position(|&byte| byte == b'.').unwrap_or(value.len());
        let sec = i64::try_from(number(&value[..dot])?).ok()?;
        let mut digits = value.get(dot + 1..).unwrap_or_default().to_vec();
        digits.resize(9, b'0');
        let nsec = u32::try_from(number(&digits)?).ok()?;
        Some(match (negative, nsec) {
            (false, _) => Timespec { sec, nsec },
            (true, 0) => Timespec { sec: -sec, nsec },
            (true, _) => Timespec { sec: -sec - 1, nsec: 1_000_000_000 - nsec },
        })
    };
    read().ok_or_else(|| damaged(&format!("invalid time: {}", value.escape_ascii())))
}

/// Parses a field of a header: octal digits, or after a set bit a number in two's complement. A blank field is zero.
fn numeric(field: &[u8]) -> Option<u64> {
    if let Some((&first, rest)) = field.split_first().filter(|(first, _)| **first & 0x80 != 0) {
        let begin = i128::from(first.cast_signed() << 1 >> 1);
        let value = rest.iter().fold(begin, |value, &byte| value << 8 | i128::from(byte));
        let below_zero = || i64::try_from(value).ok().map(i64::cast_unsigned);
        return u64::try_from(value).ok().or_else(below_zero);
    }
    let text = std::str::from_utf8(field).ok()?;
    let text = text.split('\0').next().unwrap_or_default().trim_matches(' ');
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}

impl MemberHeader {
    /// Parses a header. A member with an invalid number cannot be made, but the members behind it can.
    pub(super) fn of(header: &Header) -> Self {
        let fields = header.as_old();
        let mut refusal = None;
        let mut said = |field: &[u8], what: &str| {
            numeric(field).unwrap_or_else(|| {
                refusal.get_or_insert(format!("invalid {what} in a header"));
                0
            })
        };
        let mode = said(&fields.mode, "mode");
        let (uid, gid) = (said(&fields.uid, "owner"), said(&fields.gid, "group"));
        let mtime = said(&fields.mtime, "time");
        let of_device = header.as_ustar().map(|header| (&header.dev_major, &header.dev_minor));
        let of_device =
            of_device.or_else(|| header.as_gnu().map(|header| (&header.dev_major, &header.dev_minor)));
        let is_device = matches!(header.entry_type(), EntryType::Char | EntryType::Block);
        let device = of_device.filter(|_| is_device);
        let device = device.map(|(major, minor)| (said(major, "device"), said(minor, "device")));
        Self {
            name: header.path_bytes().into_owned(),
            link: header.link_name_bytes().map(std::borrow::Cow::into_owned).unwrap_or_default(),
            mode: (mode & 0o7777) as u32,
            uid,
            gid,
            // Before 1970 the number is in two's complement.
            mtime: Timespec { sec: mtime.cast_signed(), nsec: 0 },
            device: device.unwrap_or_default(),
            refusal,
            ..Self::default()
        }
    }

    /// The device number of a node.
    pub(super) fn device(&self) -> Result<DeviceNumber> {
        let (major, minor) = self.device;
        if major > MAJOR_MAX || minor > MINOR_MAX {
            return Err(damaged(&format!(
                "device {major}:{minor}, expected at most {MAJOR_MAX}:{MINOR_MAX}"
            )));
        }
        Ok(DeviceNumber { major: major as u32, minor: minor as u32 })
    }

    /// Rejects a member that cannot be made.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(refusal) = &self.refusal {
            return Err(Error::new(ErrorKind::InvalidData, refusal.clone()));
        }
        self.owner().map(drop)
    }

    /// Owner and group. An archive can hold larger numbers than exist, and a negative number is a large one there; the largest one is
    /// not a valid owner.
    pub(super) fn owner(&self) -> Result<(u32, u32)> {
        let id = |what: &str, id: u64| match u32::try_from(id) {
            Ok(id) if id != u32::MAX => Ok(id),
            _ => Err(damaged(&format!("{what} id {id}, expected at most {}", u32::MAX - 1))),
        };
        Ok((id("owner", self.uid)?, id("group", self.gid)?))
    }

    /// Applies a record of an extended header.
    pub(super) fn take(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let bad = || damaged(&format!("record '{}' is not a number", key.escape_ascii()));
        match key {
            b"path" => self.name = value.to_vec(),
            b"linkpath" => self.link = value.to_vec(),
            b"size" => self.size = number(value).ok_or_else(bad)?,
            b"uid" => self.uid = number(value).ok_or_else(bad)?,
            b"gid" => self.gid = number(value).ok_or_else(bad)?,
            b"mtime" => self.mtime = time(value)?,
            b"atime" => self.atime = Some(time(value)?),
            SELINUX_KEY => self.xattrs.push((SELINUX.to_vec(), [value, b"\0"].concat())),
            _ => {
                if let Some(name) = key.strip_prefix(XATTR_KEY) {
                    self.xattrs.push((pax::decode_name(name), value.to_vec()));
                }
                if let Some((_, name)) = ACL_KEYS.iter().find(|(known, _)| *known == key) {
                    self.acls.push((name, value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_fractions() {
        for (text, sec, nsec) in [
            (&b"0"[..], 0, 0),
            (b"5.5", 5, 500_000_000),
            (b"-0.5", -1, 500_000_000),
            (b"-2.75", -3, 250_000_000),
            (b"1.1234567899", 1, 123_456_789),
        ] {
            assert_eq!(time(text).expect("a time"), Timespec { sec, nsec }, "{}", text.escape_ascii());
        }
        for text in [&b""[..], b"x", b"1.x", b"--1", b"99999999999999999999"] {
            assert!(time(text).is_err());
        }
    }

    #[test]
    fn owners_that_nobody_can_have_are_not_those_of_others() {
        for (field, owner) in [
            (&b"0000017\0"[..], Some(15)),
            (b"7777777\0", Some(2_097_151)),
            (b"\x80\0\0\0\xff\xff\xff\xfe", Some(u32::MAX - 1)),
            (b"        ", Some(0)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"\x80\0\0\0\xff\xff\xff\xff", None),
            (b"\x80\0\0\x01\0\0\0\0", None),
            // Negative numbers.
            (b"\xff\xff\xff\xff\xff\xff\xff\xff", None),
            (b"\xff\xff\xff\xff\xff\xff\xff\xfe", None),
        ] {
            let mut header = Header::new_ustar();
            header.set_mode(0o644);
            header.set_mtime(0);
            header.set_size(0);
            header.as_old_mut().uid.copy_from_slice(field);
            header.as_old_mut().gid.copy_from_slice(field);
            let found = MemberHeader::of(&header).owner().ok();
            assert_eq!(found, owner.map(|owner| (owner, owner)), "{}", field.escape_ascii());
        }
        let mut header = Header::new_ustar();
        header.as_old_mut().uid.copy_from_slice(b"somebody");
        assert!(MemberHeader::of(&header).refusal.is_some_and(|why| why.contains("owner")));
    }

    #[test]
    fn devices_that_linux_has_not_are_no_others() {
        for (major, minor, wanted) in [
            (&b"0000010\0"[..], &b"0000002\0"[..], Some((8, 2))),
            (b"0007777\0", b"3777777\0", Some((0xfff, 0xf_ffff))),
            (b"0010000\0", b"0000001\0", None),
            (b"0000001\0", b"4000000\0", None),
            (b"\x80\0\0\0\0\0\0\x08", b"        ", Some((8, 0))),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff", b"0000001\0", None),
        ] {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::Char);
            let fields = header.as_ustar_mut().expect("of this format");
            fields.dev_major.copy_from_slice(major);
            fields.dev_minor.copy_from_slice(minor);
            let found = MemberHeader::of(&header).device().ok().map(|device| (device.major, device.minor));
            assert_eq!(found, wanted, "{} {}", major.escape_ascii(), minor.escape_ascii());
        }
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Block);
        header.as_ustar_mut().expect("of this format").dev_major.copy_from_slice(b"zzzzzzzz");
        assert!(MemberHeader::of(&header).refusal.is_some());
        header.set_entry_type(EntryType::Fifo);
        assert_eq!(MemberHeader::of(&header).refusal, None);
    }

    #[test]
    fn what_is_left_blank_is_zero() {
        let mut header = Header::new_ustar();
        let fields = header.as_old_mut();
        (fields.mode, fields.mtime, fields.uid) = (*b"        ", [0; 12], [0; 8]);
        let facts = MemberHeader::of(&header);
        assert_eq!((facts.mode, facts.mtime.sec, facts.uid, facts.refusal), (0, 0, 0, None));
    }
}
