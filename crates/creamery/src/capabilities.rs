//! What a program may beyond who runs it. Linux takes it away with every change of what the file is, or whose.

use creamery_base::{ErrorKind, InodeId, Result};

use crate::fs;

/// Takes it away from a file.
pub(crate) fn drop_capabilities(fs: &fs::Filesystem, id: InodeId) -> Result<()> {
    match fs.remove_xattr(id, fs::CAPABILITIES) {
        Err(error) if error.kind() == ErrorKind::NoAttribute => Ok(()),
        outcome => outcome,
    }
}
