//! The name of a quota group.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, ObjectId, TreeId};

/// The number of bits of the group's number, below the bits of the level.
const LEVEL_SHIFT: u32 = 48;

/// A quota group: its level, and a number within it. A group of level 0 belongs to the subvolume with its number.
///
/// ```
/// use creamery_base::{QgroupId, TreeId};
/// assert_eq!(QgroupId::of(TreeId::FS).to_string(), "0/5");
/// assert_eq!("1/100".parse::<QgroupId>().expect("a group").level(), 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QgroupId(u64);

impl QgroupId {
    /// Creates an id from its form in keys: the level in the upper 16 bits.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Creates an id from a level and a number. `None` if the number needs more than 48 bits.
    #[must_use]
    pub const fn new(level: u16, number: u64) -> Option<Self> {
        if number >> LEVEL_SHIFT != 0 {
            return None;
        }
        Some(Self((level as u64) << LEVEL_SHIFT | number))
    }

    /// Returns the group of a subvolume.
    #[must_use]
    pub const fn of(subvolume: TreeId) -> Self {
        Self(subvolume.get())
    }

    /// Returns the id in its form in keys.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the id as a key's objectid.
    #[must_use]
    pub const fn objectid(self) -> ObjectId {
        ObjectId::new(self.0)
    }

    /// Returns the level: 0 for subvolumes; the members of a group have lower levels.
    #[must_use]
    pub const fn level(self) -> u16 {
        (self.0 >> LEVEL_SHIFT) as u16
    }

    /// Returns the number within the level.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & ((1 << LEVEL_SHIFT) - 1)
    }

    /// Returns the subvolume of the group; `None` for a group of groups.
    #[must_use]
    pub fn subvolume(self) -> Option<TreeId> {
        let id = TreeId::new(self.0);
        (self.level() == 0 && id.is_subvolume()).then_some(id)
    }
}

impl fmt::Display for QgroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.level(), self.number())
    }
}

impl FromStr for QgroupId {
    type Err = Error;

    /// Reads "LEVEL/NUMBER".
    /// Errors: invalid.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::invalid(format!("invalid quota group {text:?}: expected LEVEL/NUMBER"));
        let (level, number) = text.split_once('/').ok_or_else(wrong)?;
        let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(level) || !is_digits(number) {
            return Err(wrong());
        }
        let level = level.parse().map_err(|_| wrong())?;
        let number = number.parse().map_err(|_| wrong())?;
        Self::new(level, number).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_read_as_it_is_written() {
        for (text, level, number) in
            [("0/5", 0, 5), ("0/256", 0, 256), ("65535/281474976710655", 65535, (1 << 48) - 1)]
        {
            let id: QgroupId = text.parse().expect("a group");
            assert_eq!((id.level(), id.number()), (level, number));
            assert_eq!(QgroupId::from_raw(id.get()), id);
        }
        for text in ["", "5", "/", "1/", "/1", "65536/0", "0/281474976710656", "+1/2", "1/2/3", "a/b", "-1"] {
            assert!(text.parse::<QgroupId>().is_err(), "{text}");
        }
        assert_eq!(QgroupId::new(1, 5).and_then(QgroupId::subvolume), None);
        assert_eq!(QgroupId::of(TreeId::FS).subvolume(), Some(TreeId::FS));
    }
}
