//! The way to where a member lies, below the directory that is unpacked to.
//!
//! Links on it are followed. They begin at the root of the extraction, and lead no further up. Each directory on the way is looked up
//! once, however long a name is; behind a link the way begins anew, and there may be as many as Linux follows.

use std::collections::BTreeSet;

use creamery_base::{Error, ErrorKind, InodeId, Result, Wait};

use super::names::path_of;
use crate::fs::{self, NewInode};
use crate::path::{Last, resolve_within};

/// Of directories that no member is.
pub(super) const DIRECTORY_MODE: u32 = 0o755;
/// As many links as Linux follows.
const LINKS_MAX: usize = 40;

/// What becomes of a directory on the way that is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Missing<'a> {
    /// It is made.
    Made,
    /// The same, also in place of one of these files: those of lower layers that have to be directories.
    Replaced(&'a BTreeSet<InodeId>),
    /// The way ends: it is not found.
    NotFound,
}

/// The directory below `root` that `names` lead to.
pub(super) fn way(
    fs: &fs::Filesystem,
    root: InodeId,
    names: &[&[u8]],
    missing: Missing<'_>,
) -> Result<InodeId> {
    let (mut dir, mut links) = (root, 0);
    for (at, name) in names.iter().enumerate() {
        dir = match fs.lookup_kind(dir, name, Wait::Yes) {
            Ok((there, fs::FileType::Directory)) => there,
            Ok((_, fs::FileType::Symlink)) => {
                links += 1;
                if links > LINKS_MAX {
                    return Err(ErrorKind::TooManySymlinks.into());
                }
                behind_link(fs, root, &names[..=at])?
            }
            Ok((there, _)) if matches!(missing, Missing::Replaced(files) if files.contains(&there)) => {
                fs.unlink(dir, name)?;
                fs.create(dir, name, &NewInode::directory(DIRECTORY_MODE))?.id
            }
            Ok(_) => return Err(ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == ErrorKind::NotFound && missing != Missing::NotFound => {
                fs.create(dir, name, &NewInode::directory(DIRECTORY_MODE))?.id
            }
            Err(error) => return Err(error),
        };
    }
    Ok(dir)
}

/// The directory that the link by these names leads to.
fn behind_link(fs: &fs::Filesystem, root: InodeId, names: &[&[u8]]) -> Result<InodeId> {
    let path = path_of(names);
    let leads = |error: Error| match error.kind() {
        ErrorKind::NotFound => {
            let what =
                format!("the link {} leads to nothing", path.as_os_str().as_encoded_bytes().escape_ascii());
            Error::new(ErrorKind::NotFound, what)
        }
        _ => error,
    };
    let found = resolve_within(fs, root, &path, Last::Follow).map_err(leads)?;
    match fs.stat(found, Wait::Yes)?.kind {
        fs::FileType::Directory => Ok(found),
        _ => Err(ErrorKind::NotADirectory.into()),
    }
}
