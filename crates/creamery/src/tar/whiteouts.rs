//! Whiteouts: the members of a container layer that remove files of the layers below
//! (the image specification of OCI, "Image Layer Filesystem Changeset").
//!
//! A member `DIR/.wh.NAME` removes `NAME`, with everything in it, and `DIR/.wh..wh..opq` removes everything in `DIR`. Whiteouts apply to
//! lower layers only, wherever they are in the archive: files of the layer itself stay. So an archive is read twice. The first pass applies
//! its whiteouts to the files of lower layers, and the second adds all other members (`layer.rs`). Nothing is remembered in between, so a
//! layer may be large.
//!
//! A file of a layer cannot have a name with this prefix: such members are whiteouts, or rejected, and never reach the filesystem.
//!
//! A whiteout names an entry, not the target of a link: no link is followed on the way to it. If a directory on the way does not exist in
//! lower layers, or is not a directory there, the whiteout removes nothing.

use creamery_base::{Error, ErrorKind, Result};

use super::names::components;

/// Prefix of the names of whiteouts.
const PREFIX: &[u8] = b".wh.";
/// The name of a whiteout for the whole directory.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// The entries that a whiteout removes.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Whiteout<'n> {
    /// One entry of this directory.
    Name(Vec<&'n [u8]>, &'n [u8]),
    /// All entries of this directory.
    All(Vec<&'n [u8]>),
}

/// Whether a member with this name is a whiteout, or an invalid one, and not a file.
pub(super) fn is_marked(name: &[u8]) -> bool {
    name.split(|&byte| byte == b'/').any(|part| part.starts_with(PREFIX))
}

/// Parses the name of a whiteout.
pub(super) fn parse(name: &[u8]) -> Result<Whiteout<'_>> {
    let wrong = |what| Err(Error::new(ErrorKind::InvalidData, what));
    let mut dir = components(name)?;
    let last = dir.pop().unwrap_or_default();
    if dir.iter().any(|part| part.starts_with(PREFIX)) {
        return wrong("it lies in a whiteout, in which nothing is");
    }
    match last.strip_prefix(PREFIX) {
        _ if last == OPAQUE => Ok(Whiteout::All(dir)),
        None | Some(b"" | b"." | b"..") => wrong("a whiteout without a name"),
        Some(gone) => Ok(Whiteout::Name(dir, gone)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whiteouts_are_of_one_name_below() {
        let names = |names: &'static [&'static str]| names.iter().map(|name| name.as_bytes()).collect();
        let gone = |dir, name: &'static str| Whiteout::Name(names(dir), name.as_bytes());
        assert_eq!(parse(b".wh.a").ok(), Some(gone(&[], "a")));
        assert_eq!(parse(b"./x//y/.wh..a/").ok(), Some(gone(&["x", "y"], ".a")));
        assert_eq!(parse(b"x/.wh....").ok(), Some(gone(&["x"], "...")));
        assert_eq!(parse(b"/x/.wh..wh..opq").ok(), Some(Whiteout::All(names(&["x"]))));
        for bad in ["x/.wh.", ".wh..", "x/.wh...", ".wh.a/b", ".wh..wh..opq/b", "../.wh.a", "x/../.wh.a"] {
            assert!(is_marked(bad.as_bytes()) && parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(!is_marked(b"a.wh.b/wh.c/.whx"));
    }
}
