//! Finds the directory of a member below the destination.
//!
//! Links on the way are followed. They begin at the root of the extraction, and do not lead above it. Each directory on the way is looked
//! up once. Behind a link the walk begins anew, with as many links as Linux follows.

use std::collections::BTreeSet;

use creamery_base::{Error, ErrorKind, InodeId, Result, Wait};

use super::names::path_of;
use crate::fs::{self, NewInode};
use crate::path::{Last, resolve_within};

/// Mode of a directory that is not a member.
pub(super) const DIRECTORY_MODE: u32 = 0o755;
/// Links that are followed at most, as on Linux.
const LINKS_MAX: usize = 40;

/// The handling of a missing directory on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Missing<'a> {
    /// The directory is made.
    Made,
    /// The directory is made, also in place of one of these files of lower layers, which must become directories.
    Replaced(&'a BTreeSet<InodeId>),
    /// The walk fails with `NotFound`.
    NotFound,
}

/// Resolves `names` to a directory below `root`.
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

/// Resolves the link with these names to its directory.
fn behind_link(fs: &fs::Filesystem, root: InodeId, names: &[&[u8]]) -> Result<InodeId> {
    let path = path_of(names);
    let leads = |error: Error| match error.kind() {
        ErrorKind::NotFound => {
            let what = format!("the link {} is dangling", path.as_os_str().as_encoded_bytes().escape_ascii());
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
