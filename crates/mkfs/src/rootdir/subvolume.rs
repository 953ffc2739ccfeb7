//! The directories of the source that become subvolumes.

use std::collections::BTreeMap;

use creamery_base::{Error, Result};

/// The kind of subvolume that a directory becomes.
///
/// ```
/// use creamery_mkfs::SubvolumeKind;
/// assert!(SubvolumeKind::DefaultReadOnly.is_default() && SubvolumeKind::DefaultReadOnly.is_read_only());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubvolumeKind {
    /// Writable.
    ReadWrite,
    /// Read-only once the image is made.
    ReadOnly,
    /// Writable, and the default subvolume.
    Default,
    /// Read-only once the image is made, and the default subvolume.
    DefaultReadOnly,
}

impl SubvolumeKind {
    /// Whether it is the default subvolume, which is mounted without further options.
    #[must_use]
    pub const fn is_default(self) -> bool {
        matches!(self, Self::Default | Self::DefaultReadOnly)
    }

    /// Whether it is read-only.
    #[must_use]
    pub const fn is_read_only(self) -> bool {
        matches!(self, Self::ReadOnly | Self::DefaultReadOnly)
    }
}

/// A directory of the source that becomes a subvolume.
///
/// ```
/// use creamery_mkfs::{RootdirSubvolume, SubvolumeKind};
/// let home: RootdirSubvolume = "ro:home".parse()?;
/// assert_eq!((&home.path[..], home.kind), (&b"home"[..], SubvolumeKind::ReadOnly));
/// let plain: RootdirSubvolume = "./srv//data/".parse()?;
/// assert_eq!((&plain.path[..], plain.kind), (&b"srv/data"[..], SubvolumeKind::ReadWrite));
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootdirSubvolume {
    /// The path from the root of the source tree, without "." and needless slashes.
    pub path: Vec<u8>,
    /// The kind of the subvolume.
    pub kind: SubvolumeKind,
}

impl RootdirSubvolume {
    /// Parses `[TYPE:]PATH`; TYPE is rw, ro, default or default-ro. The path begins at the top of the source tree, with or without a slash.
    ///
    /// # Errors
    /// The path is empty, or leaves the tree.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let types = [
            (&b"rw:"[..], SubvolumeKind::ReadWrite),
            (b"ro:", SubvolumeKind::ReadOnly),
            (b"default:", SubvolumeKind::Default),
            (b"default-ro:", SubvolumeKind::DefaultReadOnly),
        ];
        let (path, kind) = types
            .iter()
            .find_map(|(prefix, kind)| Some((text.strip_prefix(*prefix)?, *kind)))
            .unwrap_or((text, SubvolumeKind::ReadWrite));
        let shown = || String::from_utf8_lossy(text).into_owned();
        let parts: Vec<_> =
            path.split(|&b| b == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
        if parts.is_empty() || parts.contains(&&b".."[..]) {
            return Err(Error::invalid(format!(
                "subvolume '{}': expected a directory below the source",
                shown()
            )));
        }
        Ok(Self { path: parts.join(&b'/'), kind })
    }

    /// Checks that the subvolumes of one filesystem fit together.
    ///
    /// # Errors
    /// A path comes twice, or there is more than one default.
    pub fn check_all(list: &[Self]) -> Result<()> {
        Subvolumes::new(list).map(drop)
    }
}

impl std::str::FromStr for RootdirSubvolume {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text.as_bytes())
    }
}

/// Subvolumes by path.
#[derive(Default)]
pub(crate) struct Subvolumes(BTreeMap<Vec<u8>, SubvolumeKind>);

impl Subvolumes {
    /// Builds the map. Errors: a path comes twice, or there is more than one default.
    pub(crate) fn new(list: &[RootdirSubvolume]) -> Result<Self> {
        let mut map = BTreeMap::new();
        for one in list {
            if map.insert(one.path.clone(), one.kind).is_some() {
                let path = String::from_utf8_lossy(&one.path);
                return Err(Error::invalid(format!("subvolume '{path}' is given twice")));
            }
        }
        if map.values().filter(|kind| kind.is_default()).count() > 1 {
            return Err(Error::invalid("more than one default subvolume"));
        }
        Ok(Self(map))
    }

    pub(crate) fn kind_of(&self, path: &[u8]) -> Option<SubvolumeKind> {
        self.0.get(path).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_tree_are_refused() {
        for bad in ["", "rw:", "/", "/../x", "../x", "a/../..", "ro:.", "default:/"] {
            assert!(bad.parse::<RootdirSubvolume>().is_err(), "{bad}");
        }
        let named = "ro://etc/".parse::<RootdirSubvolume>().expect("a slash is no matter");
        assert_eq!(named.path, b"etc");
    }

    #[test]
    fn one_default_and_each_path_once() {
        let parse = |list: &[&str]| {
            let list: Vec<_> = list.iter().map(|text| text.parse().unwrap()).collect();
            Subvolumes::new(&list).map(drop)
        };
        assert!(parse(&["default:a", "ro:b", "c"]).is_ok());
        assert!(parse(&["default:a", "default-ro:b"]).is_err());
        assert!(parse(&["a", "ro:./a"]).is_err());
    }
}
