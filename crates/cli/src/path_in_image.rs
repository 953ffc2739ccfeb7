//! `IMAGE:/PATH`. The library parses the names of images, and of partitions in them.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use creamery::partitions::ImageName;
use creamery::subvolume::TOP_LEVEL;
use creamery::{Error, ErrorKind};
use creamery_mount::Live;

/// A path inside an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PathInImage {
    pub(crate) image: PathBuf,
    /// The path; it begins with a slash, or with [`TOP_LEVEL`].
    pub(crate) path: PathBuf,
}

/// One end of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Host(PathBuf),
    Image(PathInImage),
}

impl std::fmt::Display for PathInImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.image.display(), self.path.display())
    }
}

/// The names that one call has made in a directory: two sources with one name are a mistake of the user, and neither may be lost.
#[derive(Default)]
pub(crate) struct JustMade(HashSet<OsString>);

impl JustMade {
    /// Refuses a source whose name another source of this call had.
    pub(crate) fn claim(&mut self, source: &Path, target: impl std::fmt::Display) -> Result<(), Error> {
        let Some(name) = source.file_name() else { return Ok(()) };
        if self.0.insert(name.to_owned()) {
            return Ok(());
        }
        let what = format!("{}: not overwriting the file just made in {target}", source.display());
        Err(Error::new(ErrorKind::AlreadyExists, what))
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(path) => path.display().fmt(f),
            Self::Image(place) => place.fmt(f),
        }
    }
}

/// Every way to read `text` as an image and a path in it, the shortest image first.
fn splits(text: &OsStr) -> impl Iterator<Item = PathInImage> {
    let bytes = text.as_bytes();
    let colons = (1..bytes.len()).filter(move |&at| bytes[at] == b':');
    colons.filter(move |&at| begins_path(&bytes[at + 1..])).map(move |at| PathInImage {
        image: OsStr::from_bytes(&bytes[..at]).into(),
        path: OsStr::from_bytes(&bytes[at + 1..]).into(),
    })
}

/// Whether `text` begins a path in an image.
fn begins_path(text: &[u8]) -> bool {
    text.starts_with(b"/") || Path::new(OsStr::from_bytes(text)).starts_with(TOP_LEVEL)
}

/// Whether the path can be an image.
pub(crate) fn is_image(path: &Path) -> bool {
    ImageName::metadata(path).is_ok_and(|meta| !meta.is_dir())
}

/// The directory that a path is in.
pub(crate) fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The directory of a live mount that contains the path, or is it, whether the path is an image or not. Links are followed.
pub(crate) fn mount_of(path: &Path) -> Option<Live> {
    let whole = path.canonicalize();
    let path = whole.as_deref().unwrap_or(path);
    Live::at(if path.is_dir() { path } else { parent_of(path) }).ok().flatten()
}

/// Whether an image could not be opened because the file is no Btrfs.
pub(crate) fn is_no_image(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::IsADirectory | ErrorKind::NotFound)
}

impl PathInImage {
    /// Parses `IMAGE:/PATH`, `IMAGE:<FS_TREE>/PATH`, or `IMAGE` alone for its root. If a name contains ":/" itself, the image is the
    /// shortest prefix that exists.
    pub(crate) fn parse(text: &OsStr) -> Self {
        let whole = || Self { image: text.into(), path: "/".into() };
        let there = splits(text).find(|place| is_image(&place.image));
        // A name with ":/" in it may be the whole name of an image.
        let there = there.or_else(|| is_image(text.as_ref()).then(whole));
        there.or_else(|| splits(text).next()).unwrap_or_else(whole)
    }
}

impl PathInImage {
    /// The place as the user writes it.
    pub(crate) fn to_os_string(&self) -> OsString {
        let mut text = self.image.clone().into_os_string();
        text.push(":");
        text.push(&self.path);
        text
    }

    /// The path without its leading part, as a name in an archive.
    pub(crate) fn below_root(&self) -> &Path {
        let below = self.path.strip_prefix(TOP_LEVEL).unwrap_or(&self.path);
        below.strip_prefix("/").unwrap_or(below)
    }
}

impl End {
    /// Parses `IMAGE:/PATH` or a path of the host. A text with ":/" is a place in an image if the part before it is an image, or if the
    /// host has no file of that whole name.
    pub(crate) fn parse(text: &OsStr) -> Self {
        if let Some(place) = splits(text).find(|place| is_image(&place.image)) {
            return Self::Image(place);
        }
        match splits(text).next() {
            Some(place) if std::fs::symlink_metadata(text).is_err() && !is_image(text.as_ref()) => {
                Self::Image(place)
            }
            _ => Self::Host(text.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_ends_at_a_colon_and_a_slash() {
        let place = PathInImage::parse("/tmp/disk.img:/etc/x:/y".as_ref());
        assert_eq!((place.image, place.path), ("/tmp/disk.img".into(), "/etc/x:/y".into()));
        let place = PathInImage::parse("disk.img".as_ref());
        assert_eq!((place.image, place.path), ("disk.img".into(), "/".into()));
        let place = PathInImage::parse("disk.img:<FS_TREE>/@home".as_ref());
        assert_eq!((place.image.clone(), place.path.clone()), ("disk.img".into(), "<FS_TREE>/@home".into()));
        assert_eq!(place.below_root(), Path::new("@home"));
        assert_eq!(
            PathInImage::parse("disk.img:<FS_TREE>x".as_ref()).image,
            PathBuf::from("disk.img:<FS_TREE>x")
        );
        let place = PathInImage::parse("a:b".as_ref());
        assert_eq!(place.image, PathBuf::from("a:b"));
    }

    #[test]
    fn a_partition_is_an_image() {
        let dir = tempfile::tempdir().expect("a directory");
        let disk = dir.path().join("disk.raw");
        std::fs::write(&disk, "").expect("it is written");
        for behind in ["@2", "@@1M", "@1@2"] {
            let image = format!("{}{behind}", disk.display());
            let place = PathInImage::parse(format!("{image}:/etc").as_ref());
            assert_eq!((place.image, place.path), (image.clone().into(), "/etc".into()));
            assert!(matches!(End::parse(format!("{image}:/etc").as_ref()), End::Image(_)));
            assert!(is_image(image.as_ref()));
        }
    }

    #[test]
    fn paths_of_the_host_are_told_apart() {
        assert_eq!(End::parse("./dir".as_ref()), End::Host("./dir".into()));
        assert_eq!(End::parse(":/x".as_ref()), End::Host(":/x".into()));
        assert!(matches!(End::parse("no-such.img:/x".as_ref()), End::Image(_)));
    }
}
