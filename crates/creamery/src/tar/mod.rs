//! Archives out of a filesystem and into one, without a mount and without root.
//!
//! Creamery writes POSIX' pax format with additions of GNU tar: extended attributes and ACLs, times to the nanosecond, sizes and
//! numbers beyond the fields of ustar, holes. It also reads ustar, GNU tar's own format and all its representations of holes.
//!
//! An archive is not trustworthy. Its names are components below the destination directory; a name with `..` is rejected,
//! and links on the way are followed as if that directory were the root (`docs/use/tar.md`). Numbers are checked before
//! use, and no allocation has the size of an unchecked number.
//!
//! The crate `tar` parses headers. Creamery parses records of extended headers, because the crate splits them at newlines, which values may
//! contain.

mod acl;
mod build;
mod extract;
mod facts;
mod keys;
mod layer;
mod list;
mod names;
mod packed;
mod pax;
mod read;
mod rootfs;
mod sparse;
mod stored;
mod way;
mod whiteouts;
mod write;

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use creamery_base::{Error, ErrorKind, InodeId, Result, Wait};

pub use self::build::{ReadTar, WriteTar};
pub use self::list::{TarEntry, list_tar};
pub use self::rootfs::TarRootfs;
pub use self::stored::TarArchive;

use self::extract::{Extractor, Rules};
use self::write::TarSink;
use crate::metadata::file_type;
use crate::path::{Last, at};
use crate::progress::{OnError, Progress};
use crate::sink::{Driver, KeptAttributes};
use crate::{FileType, Filesystem};

/// A file or tree for an archive, and its name there.
///
/// ```
/// let member = creamery::tar::TarMember::new("/etc", "etc");
/// # assert_ne!(member.path, member.name);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TarMember {
    /// The path in the filesystem; a symbolic link stands for itself.
    pub path: PathBuf,
    /// The name in the archive, without a leading slash; empty for the directory around the others, which gets the name `./`.
    pub name: PathBuf,
}

impl TarMember {
    /// A member for the file at `path`, with this name.
    pub fn new(path: impl Into<PathBuf>, name: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), name: name.into() }
    }
}

/// Options for writing an archive.
///
/// ```
/// let options = creamery::tar::TarOptions { ignore_errors: true, ..Default::default() };
/// # assert!(options.ignore_errors);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TarOptions {
    /// Goes on after errors: they are reported to the progress, and lost parts of files are holes.
    pub ignore_errors: bool,
    /// Lets the archive replace an image of a filesystem, or of a disk with partitions, at its name on the host.
    pub replace_images: bool,
}

/// Rejects a name that archive readers do not accept.
fn refuse_name(name: &Path) -> Result<()> {
    let bytes = name.as_os_str().as_encoded_bytes();
    let refused = |why| Err(Error::invalid(format!("{}: {why}", name.display())));
    match names::components(bytes) {
        _ if bytes.starts_with(b"/") => refused("member name begins with a slash"),
        Err(error) => refused(&error.without_kind()),
        Ok(_) => Ok(()),
    }
}

impl Filesystem {
    fn write_members(
        &self,
        members: &[TarMember],
        out: &mut dyn Write,
        options: TarOptions,
        note: &dyn Fn(&str),
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut sink = TarSink::new(out, note);
        let on_error = if options.ignore_errors { OnError::PastDamage } else { OnError::Stop };
        for TarMember { path, name } in members {
            let (id, kind) = self.member(path, options)?;
            refuse_name(name)?;
            let (parent, name) = split(name);
            let driver =
                Driver { from: self, keeps: KeptAttributes::all(true), on_error, selection: None, progress };
            driver.copy(&mut sink, id, kind, parent, Some(name), path)?;
        }
        sink.finish()
    }

    /// The inode of a member, and its type.
    fn member(&self, path: &Path, options: TarOptions) -> Result<(InodeId, FileType)> {
        let (id, kind) = if options.ignore_errors {
            self.resolve_past_damage(path, Last::Keep)?
        } else {
            let id = self.resolve(path, Last::Keep)?;
            (id, self.fs.stat(id, Wait::Yes).map_err(at(path))?.kind)
        };
        Ok((id, file_type(kind)))
    }

    fn extractor<'a>(
        &'a self,
        to: &Path,
        failed: &'a dyn Fn(&[u8], Error) -> Result<()>,
        progress: &'a dyn Progress,
        rules: Rules,
    ) -> Result<Extractor<'a>> {
        let root = self.resolve(to, Last::Follow)?;
        if !self.metadata(to)?.is_dir() {
            return Err(at(to)(ErrorKind::NotADirectory.into()));
        }
        Ok(Extractor { to: self, root, progress, failed, rules, gives_way: BTreeSet::new() })
    }
}

/// The directory of a name, and its last component.
fn split(name: &Path) -> (Vec<u8>, &[u8]) {
    let bytes = name.as_os_str().as_encoded_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let start = bytes[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    match &bytes[start..end] {
        b"" => (Vec::new(), b"."),
        last => (bytes[..start].to_vec(), last),
    }
}
