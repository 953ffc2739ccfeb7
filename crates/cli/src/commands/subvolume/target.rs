//! The place of an existing or future subvolume: in an image that is not mounted, or on a live mount.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use creamery::{Error, ErrorKind, Image};
use creamery_mount::Live;

use crate::failure::Failure;
use crate::path_in_image::{End, PathInImage, is_image, is_no_image, mount_of, parent_of};
use crate::view::refuse_on_mount;

/// A place in an image, or on a live mount.
pub(super) enum Target {
    Image(PathInImage),
    Live(Entry),
}

/// A name in a directory of a live mount.
pub(super) struct Entry {
    pub(super) dir: Live,
    pub(super) name: OsString,
    /// The path as the user wrote it.
    pub(super) path: PathBuf,
}

impl Target {
    /// The target that `text` names; it need not exist yet.
    /// Errors: its directory does not exist, or is on no live mount.
    pub(super) fn of(command: &'static str, text: &OsStr) -> Result<Self, Failure> {
        let path = match End::parse(text) {
            End::Image(place) => return Ok(Self::Image(place)),
            End::Host(path) => path,
        };
        if is_image(&path) && !Live::at(parent_of(&path)).is_ok_and(|dir| dir.is_some()) {
            return Ok(Self::Image(PathInImage { image: path, path: "/".into() }));
        }
        Entry::of(command, &path).map(Self::Live)
    }
}

impl Entry {
    fn of(command: &'static str, path: &Path) -> Result<Self, Failure> {
        let failed = |error: Error| Failure::new(command, error);
        let whole = match path.file_name() {
            Some(_) => path.to_owned(),
            None => {
                path.canonicalize().map_err(|error| failed(Error::from(error).context(path.display())))?
            }
        };
        let (parent, name) = (parent_of(&whole), whole.file_name().unwrap_or_default().to_owned());
        let dir = match live(command, parent, path) {
            Err(failure) if failure.kind() == ErrorKind::InvalidInput => return Err(failure),
            Err(_) if Live::at(&whole).is_ok_and(|root| root.is_some()) => {
                let text = format!("{}: the root of the mount", path.display());
                return Err(failed(Error::new(ErrorKind::Busy, text)).advise("name a path in it"));
            }
            dir => dir?,
        };
        let device = |path: &Path| std::fs::symlink_metadata(path).map(|meta| meta.dev()).ok();
        if device(&whole).is_some_and(|there| Some(there) != device(parent)) {
            let text = format!("{}: a mount point", path.display());
            return Err(failed(Error::new(ErrorKind::Busy, text)));
        }
        Ok(Self { dir, name, path: path.to_owned() })
    }
}

/// A path on a live mount that is no image.
pub(in crate::commands) struct OnMount {
    /// The path as the user wrote it.
    pub(in crate::commands) path: PathBuf,
    /// The path itself, or its directory.
    pub(in crate::commands) dir: Live,
    pub(in crate::commands) is_dir: bool,
}

impl OnMount {
    /// The path on a mount that `text` names; `None` if it is, or can only be, an image.
    /// Errors: a directory on no live mount; an option that is about an image.
    pub(in crate::commands) fn of(command: &'static str, text: &OsStr) -> Result<Option<Self>, Failure> {
        let found = Self::find(command, text)?;
        if let Some(found) = &found {
            refuse_on_mount(&found.path).map_err(|error| Failure::new(command, error))?;
        }
        Ok(found)
    }

    fn find(command: &'static str, text: &OsStr) -> Result<Option<Self>, Failure> {
        let End::Host(path) = End::parse(text) else { return Ok(None) };
        if path.is_dir() {
            let dir = live(command, &path, &path)?;
            return Ok(Some(Self { path, dir, is_dir: true }));
        }
        let Some(dir) = mount_of(&path) else { return Ok(None) };
        if std::fs::symlink_metadata(&path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            return Err(failed_at(command, &path)(Error::new(
                ErrorKind::NotFound,
                "no such file or directory",
            )));
        }
        match Image::open(&path) {
            Err(error) if is_no_image(&error) => Ok(Some(Self { path, dir, is_dir: false })),
            _ => Ok(None),
        }
    }

    /// The path as a directory that can be the root of a subvolume, and as the user wrote it.
    pub(in crate::commands) fn directory(self, command: &'static str) -> Result<(Live, PathBuf), Failure> {
        if self.is_dir {
            return Ok((self.dir, self.path));
        }
        Err(failed_at(command, &self.path)(Error::invalid("not the root of a subvolume")))
    }
}

/// Opens the directory `dir` of a live mount; `path` is as the user wrote it.
pub(in crate::commands) fn live(command: &'static str, dir: &Path, path: &Path) -> Result<Live, Failure> {
    let failed = |error| Failure::new(command, error);
    let live = Live::at(dir).map_err(failed)?;
    let live = live.ok_or_else(|| {
        let text = format!("{} is not on a mount of an image", path.display());
        let advice = "name a path on a live mount, or IMAGE:/PATH in an image that is not mounted; \
                      on a mount of the kernel use `btrfs`";
        Failure::new(command, Error::unsupported(text)).advise(advice)
    })?;
    refuse_on_mount(path).map_err(failed)?;
    Ok(live)
}

/// Prefixes an error with the path as the user wrote it.
pub(in crate::commands) fn failed_at(
    command: &'static str,
    path: &Path,
) -> impl Fn(Error) -> Failure + use<> {
    let shown = path.display().to_string();
    move |error| {
        let is_busy = error.kind() == ErrorKind::Busy;
        let failure = Failure::new(command, error.context(&shown));
        if is_busy { failure.advise("it cannot be deleted while it is in use") } else { failure }
    }
}
