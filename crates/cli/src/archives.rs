//! Archives as the user names them.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use creamery::Error;
use creamery::tar::TarArchive;

use crate::failure::Failure;

/// Whether the path is `-`, standard input or output.
pub(crate) fn is_stream(path: &Path) -> bool {
    path == Path::new("-")
}

/// The directory for a copy of a stream that is read more than once. The copy may be large, and /tmp is memory on many hosts.
fn spool() -> PathBuf {
    let of_user = std::env::var_os("TMPDIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let usual = || PathBuf::from("/var/tmp");
    of_user.or_else(|| Some(usual()).filter(|dir| dir.is_dir())).unwrap_or_else(|| PathBuf::from("/tmp"))
}

fn open(path: &Path) -> Result<TarArchive, Error> {
    if !is_stream(path) {
        let file = File::open(path).map_err(|error| Error::from(error).on_host(path))?;
        return TarArchive::new(file, path, &spool());
    }
    let name = Path::new(OsStr::new("standard input"));
    let file = io::stdin().as_fd().try_clone_to_owned();
    TarArchive::new(File::from(file.map_err(|error| Error::from(error).on_host(name))?), name, &spool())
}

/// Opens an archive that is read more than once.
pub(crate) fn open_one(command: &'static str, path: &Path) -> Result<TarArchive, Failure> {
    open(path).map_err(|error| Failure::new(command, error))
}

/// Opens several archives.
pub(crate) fn open_all(command: &'static str, paths: &[PathBuf]) -> Result<Vec<TarArchive>, Failure> {
    if paths.iter().filter(|path| is_stream(path)).count() > 1 {
        return Err(Failure::usage(command, "only one archive can come from standard input"));
    }
    paths.iter().map(|path| open_one(command, path)).collect()
}
