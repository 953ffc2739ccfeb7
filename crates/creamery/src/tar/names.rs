//! Names of members: components below one directory.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use creamery_base::{Error, ErrorKind, Result};

/// The components of a name that only leads downwards.
pub(super) fn components(name: &[u8]) -> Result<Vec<&[u8]>> {
    let names: Vec<&[u8]> =
        name.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
    if names.contains(&&b".."[..]) {
        return Err(Error::new(ErrorKind::InvalidData, "the name contains '..'"));
    }
    if name.contains(&0) {
        return Err(Error::new(ErrorKind::InvalidData, "the name contains a NUL byte"));
    }
    Ok(names)
}

pub(super) fn path_of(names: &[&[u8]]) -> PathBuf {
    OsString::from_vec(names.join(&b'/')).into()
}
