//! The items of the quota tree.

use creamery_base::{Error, ErrorKind, Generation, Logical, ObjectId, QgroupId, Result};
use creamery_format::{Key, KeyType, RawQgroupInfo, RawQgroupLimit, RawQgroupStatus};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::QuotaMode;
use super::forest::QgroupUsage;

/// Most bytes of an item in a leaf.
pub(super) const LEN_MAX: u64 = 65;
const ON: u64 = 1;
const RESCAN: u64 = 2;
const INCONSISTENT: u64 = 4;
const SIMPLE: u64 = 8;
const VERSION: u64 = 1;

/// The key of the status.
pub(super) const STATUS: Key = Key::new(ObjectId::new(0), KeyType::QGROUP_STATUS, 0);

pub(super) const fn info_key(id: QgroupId) -> Key {
    Key::new(ObjectId::new(0), KeyType::QGROUP_INFO, id.get())
}

pub(super) const fn limit_key(id: QgroupId) -> Key {
    Key::new(ObjectId::new(0), KeyType::QGROUP_LIMIT, id.get())
}

pub(super) fn no_limit() -> RawQgroupLimit {
    RawQgroupLimit::read_from_bytes(&[0; RawQgroupLimit::LEN]).expect("the size is right")
}

pub(super) fn bytes_of<T: IntoBytes + Immutable>(item: &T) -> Vec<u8> {
    item.as_bytes().to_vec()
}

/// A group's info item. Compressed extents count by their size on disk, as in Linux.
pub(super) fn info(generation: Generation, usage: QgroupUsage) -> Vec<u8> {
    bytes_of(&RawQgroupInfo {
        generation: generation.get().into(),
        referenced: usage.referenced.into(),
        referenced_compressed: usage.referenced.into(),
        exclusive: usage.exclusive.into(),
        exclusive_compressed: usage.exclusive.into(),
    })
}

/// The status item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Status {
    pub(super) generation: Generation,
    pub(super) is_on: bool,
    pub(super) inconsistent: bool,
    pub(super) rescan: Option<Logical>,
    pub(super) mode: QuotaMode,
    pub(super) enabled_in: Generation,
}

impl Status {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let bits = [
            (self.is_on, ON),
            (self.rescan.is_some(), RESCAN),
            (self.inconsistent, INCONSISTENT),
            (self.mode == QuotaMode::Simple, SIMPLE),
        ];
        let flags: u64 = bits.iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum();
        let mut bytes = bytes_of(&RawQgroupStatus {
            version: VERSION.into(),
            generation: self.generation.get().into(),
            flags: flags.into(),
            rescan: self.rescan.map_or(0, Logical::get).into(),
        });
        if self.mode == QuotaMode::Simple {
            bytes.extend_from_slice(&self.enabled_in.get().to_le_bytes());
        }
        bytes
    }

    /// Parses the status item. `None` for another version, which Linux takes for disabled quotas.
    pub(super) fn parse(data: &[u8]) -> Result<Option<Self>> {
        let damaged = |what: &str| Error::new(ErrorKind::Corrupt, format!("quota status item: {what}"));
        let (status, rest) = RawQgroupStatus::ref_from_prefix(data).map_err(|_| damaged("too short"))?;
        if status.version.get() != VERSION {
            return Ok(None);
        }
        let flags = status.flags.get();
        let unknown = flags & !(ON | RESCAN | INCONSISTENT | SIMPLE);
        if unknown != 0 {
            return Err(damaged(&format!("unknown flags, found 0x{unknown:x}")));
        }
        let is_simple = flags & SIMPLE != 0;
        let enabled_in = match rest.first_chunk() {
            Some(bytes) if is_simple => u64::from_le_bytes(*bytes),
            None if is_simple => return Err(damaged("simple quotas lack their first generation")),
            _ => 0,
        };
        Ok(Some(Self {
            generation: Generation::new(status.generation.get()),
            is_on: flags & ON != 0,
            inconsistent: flags & INCONSISTENT != 0,
            rescan: (flags & RESCAN != 0).then(|| Logical::new(status.rescan.get())),
            mode: if is_simple { QuotaMode::Simple } else { QuotaMode::Full },
            enabled_in: Generation::new(enabled_in),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_as_it_was_written() {
        let full = Status {
            generation: Generation::new(9),
            is_on: true,
            inconsistent: true,
            rescan: Some(Logical::new(1 << 30)),
            mode: QuotaMode::Full,
            enabled_in: Generation::default(),
        };
        assert_eq!(full.to_bytes().len(), 32);
        assert_eq!(Status::parse(&full.to_bytes()).expect("whole"), Some(full));
        let simple = Status {
            rescan: None,
            inconsistent: false,
            mode: QuotaMode::Simple,
            enabled_in: Generation::new(8),
            ..full
        };
        assert_eq!(simple.to_bytes().len(), 40);
        assert_eq!(Status::parse(&simple.to_bytes()).expect("whole"), Some(simple));
        for cut in [0, 31] {
            assert!(Status::parse(&full.to_bytes()[..cut]).is_err());
        }
        assert!(Status::parse(&simple.to_bytes()[..32]).is_err(), "not since when");
        let mut other = full.to_bytes();
        other[0] = 2;
        assert_eq!(Status::parse(&other).expect("whole"), None, "of another version");
        let off = Status { is_on: false, ..full };
        assert_eq!(Status::parse(&off.to_bytes()).expect("whole"), Some(off));
    }
}
