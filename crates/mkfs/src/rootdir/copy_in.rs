//! Copies files of the host into a filesystem that is in use, as `creamery cp` does.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use creamery_base::{Error, ErrorKind, InodeId, Result};
use creamery_fs::Filesystem;

use super::fill::{Keep, Rules, WalkRoot};
use super::queue::Feeder;
use super::source::SourceDir;
use super::subvolume::Subvolumes;
use super::{OnError, Progress, run};

/// The source on the host and the target in the filesystem.
///
/// ```no_run
/// # fn example(fs: &creamery_fs::Filesystem) -> creamery_base::Result<()> {
/// use creamery_mkfs::{copy_in, CopyIn, NoProgress, OnError};
/// let root = fs.root(fs.default_subvolume())?;
/// let copy = CopyIn { source: "/etc".as_ref(), dir: root, name: Some(b"etc"), archive: true, on_error: OnError::Stop, image: None };
/// copy_in(fs, &copy, &NoProgress)
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CopyIn<'a> {
    /// A file or directory of the host; a symbolic link stands for itself.
    pub source: &'a Path,
    /// The target directory.
    pub dir: InodeId,
    /// Its name there. Without a name, the content of the source directory goes into `dir` itself.
    pub name: Option<&'a [u8]>,
    /// Keep owners, times, xattrs and hard links; otherwise only permission bits.
    pub archive: bool,
    /// Whether the copy goes on behind a file that cannot be read or made. Files of the host are never read past damage:
    /// [`OnError::PastDamage`] is [`OnError::NextFile`] here.
    pub on_error: OnError,
    /// Device and inode of the image file, which may lie in the source and cannot be copied into itself.
    pub image: Option<(u64, u64)>,
}

/// Copies a file, or a directory with its content. Existing files are replaced, directories are merged.
///
/// # Errors
/// With [`OnError::Stop`] the first file that cannot be read or written; files copied before stay.
pub fn copy_in(fs: &Filesystem, copy: &CopyIn<'_>, progress: &dyn Progress) -> Result<()> {
    let (keep, owner) = match copy.archive {
        true => (Keep::Everything, None),
        false => (Keep::Permissions, Some((0, 0))),
    };
    let (now, is_reproducible) = (fs.engine().env().now(), fs.engine().env().is_reproducible());
    // Reading a file changes its access time, so the next copy would differ.
    let clamp = is_reproducible.then_some(now);
    let rules = Rules { owner, clamp, now, keep, on_error: copy.on_error };
    let place = match copy.name {
        Some(name) => WalkRoot::In(copy.dir, name),
        None => WalkRoot::Onto(copy.dir),
    };
    let source = copy.source;
    let meta = std::fs::symlink_metadata(source).map_err(|error| Error::from(error).on_host(source))?;
    let none = Subvolumes::default();
    if meta.is_dir() {
        let root = SourceDir::root(source)?;
        return run(fs, rules, place, progress, |steps, jobs| {
            Feeder::new(steps, jobs, &none, copy.image).run(root);
        });
    }
    let no_name = || Error::new(ErrorKind::NotADirectory, source.display().to_string());
    let to = copy.name.ok_or_else(no_name)?;
    let name = source.file_name().ok_or_else(no_name)?;
    let name = CString::new(name.as_bytes()).expect("a path of the host has no zero byte");
    let parent = source.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let dir = SourceDir::root(parent)?;
    run(fs, rules, place, progress, |steps, jobs| {
        Feeder::new(steps, jobs, &none, copy.image).run_file(dir, &name, to);
    })
}
