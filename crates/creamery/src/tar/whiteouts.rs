//! Whiteouts: how a layer of a container image says what is gone of the layers below it
//! (the image specification of OCI, "Image Layer Filesystem Changeset").
//!
//! A member `DIR/.wh.NAME` takes `NAME` away, with all that is in it, and `DIR/.wh..wh..opq` all that is in `DIR`. They speak of lower layers
//! alone, wherever in the archive they stand: what the layer itself has stays. So an archive is read twice: first its whiteouts are
//! applied, to what lower layers have made, and then all else is added (`layer.rs`). Nothing is
//! remembered in between, however large a layer is.
//!
//! No file of a layer can have a name that begins so: such members are whiteouts, or refused, and never reach the filesystem.
//!
//! A whiteout is of a name, not of what a link leads to: no link is followed on the way to it. In a directory that lower layers do not have,
//! as one, it takes nothing away.

use creamery_base::{Error, ErrorKind, Result};

use super::names::components;

/// What names of whiteouts begin with.
const PREFIX: &[u8] = b".wh.";
/// Of all that is in the directory.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// What a member takes away.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Whiteout<'n> {
    /// One name of this directory.
    Name(Vec<&'n [u8]>, &'n [u8]),
    /// All names of this one.
    All(Vec<&'n [u8]>),
}

/// Whether a member with this name is no file, but says what is gone, or should.
pub(super) fn is_marked(name: &[u8]) -> bool {
    name.split(|&byte| byte == b'/').any(|part| part.starts_with(PREFIX))
}

/// What a marked name takes away.
pub(super) fn parse(name: &[u8]) -> Result<Whiteout<'_>> {
    let wrong = |what| Err(Error::new(ErrorKind::InvalidData, what));
    let mut dir = components(name)?;
    let last = dir.pop().unwrap_or_default();
    if dir.iter().any(|part| part.starts_with(PREFIX)) {
        return wrong("it lies in a whiteout, in which nothing is");
    }
    match last.strip_prefix(PREFIX) {
        _ if last == OPAQUE => Ok(Whiteout::All(dir)),
        None | Some(b"" | b"." | b"..") => wrong("a whiteout that is of no name"),
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
