//! One of several directories of the host that fill a filesystem, and its target there.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use creamery_base::{Error, ErrorKind, InodeId, Result, TreeId, Wait};
use creamery_fs::{Filesystem, NewInode};

use super::RootdirSubvolume;

/// A directory of the host, and the directory of the new filesystem that gets its content.
///
/// ```
/// use creamery_mkfs::RootdirPart;
/// let part = RootdirPart::parse("./site:/srv//www/".as_ref())?;
/// assert_eq!((part.source.to_str(), &part.target[..]), (Some("./site"), &b"srv/www"[..]));
/// let whole = RootdirPart::parse("./rootfs".as_ref())?;
/// assert!(whole.target.is_empty());
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootdirPart {
    /// The directory of the host.
    pub source: PathBuf,
    /// The path from the root of the filesystem, without "." and needless slashes; empty for the root itself.
    pub target: Vec<u8>,
}

impl RootdirPart {
    /// Parses `DIR` or `DIR:/TARGET`. If the whole text names an existing directory, it is `DIR`. With several colons before a slash, the
    /// one behind the longest name of an existing directory counts.
    ///
    /// # Errors
    /// The target contains `..`.
    pub fn parse(text: &OsStr) -> Result<Self> {
        let bytes = text.as_bytes();
        let whole = Self { source: text.into(), target: Vec::new() };
        if Path::new(text).is_dir() {
            return Ok(whole);
        }
        let splits = (1..bytes.len()).rev().filter(|at| bytes[*at..].starts_with(b":/"));
        let splits: Vec<usize> = splits.collect();
        let is_there = |at: &&usize| Path::new(OsStr::from_bytes(&bytes[..**at])).is_dir();
        let Some(at) = splits.iter().find(is_there).or(splits.first()) else { return Ok(whole) };
        let (source, target) = (OsStr::from_bytes(&bytes[..*at]), &bytes[at + 1..]);
        let names: Vec<&[u8]> = names(target).collect();
        if names.contains(&&b".."[..]) {
            let what = format!("{}: the target contains \"..\"", text.display());
            return Err(Error::invalid(what).advise("name it without \"..\""));
        }
        Ok(Self { source: source.into(), target: names.join(&b'/') })
    }

    /// The subvolumes among its own directories, by paths relative to its source.
    pub(super) fn own(&self, all: &[RootdirSubvolume]) -> Vec<RootdirSubvolume> {
        let below = |subvolume: &RootdirSubvolume| {
            let path = match &self.target[..] {
                b"" => &subvolume.path[..],
                target => subvolume.path.strip_prefix(target)?.strip_prefix(b"/")?,
            };
            Some(RootdirSubvolume { path: path.to_vec(), kind: subvolume.kind })
        };
        all.iter().filter_map(below).collect()
    }

    /// Whether `path` is the target, or a directory above it.
    pub(super) fn goes_through(&self, path: &[u8]) -> bool {
        self.target.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }

    /// The target directory. Missing directories of its path are made, those in `subvolumes` as subvolumes.
    pub(super) fn make_target(
        &self,
        fs: &Filesystem,
        subvolumes: &[RootdirSubvolume],
        owner: (u32, u32),
    ) -> Result<InodeId> {
        let mut dir = fs.root(TreeId::FS)?;
        let mut path: Vec<u8> = Vec::new();
        for name in names(&self.target) {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
            let failed = |error: Error| error.context(format!("making /{}", path.escape_ascii()));
            let new = NewInode { uid: owner.0, gid: owner.1, ..NewInode::directory(0o755) };
            let made = match subvolumes.iter().any(|subvolume| subvolume.path == path) {
                true => fs.create_subvolume(dir, name, &new),
                false => fs.create(dir, name, &new).map(|attributes| attributes.id),
            };
            dir = match made {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    let id = fs.lookup(dir, name, Wait::Yes).map_err(failed)?;
                    if fs.stat(id, Wait::Yes).map_err(failed)?.kind != creamery_fs::FileType::Directory {
                        return Err(failed(Error::new(ErrorKind::NotADirectory, "expected a directory")));
                    }
                    id
                }
                made => made.map_err(failed)?,
            };
        }
        Ok(dir)
    }
}

/// The names in a path.
fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_a_colon_in_its_name_wins() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name).into_os_string();
        std::fs::create_dir_all(at("a:/b")).unwrap();
        std::fs::create_dir(at("c")).unwrap();
        let parse = |name: &str| {
            let part = RootdirPart::parse(&at(name)).unwrap();
            let source = part.source.strip_prefix(root.path()).unwrap().to_str().unwrap().to_owned();
            (source, String::from_utf8(part.target).unwrap())
        };
        for (name, source, target) in [
            ("a:/b", "a:/b", ""),
            ("a:/b:/x", "a:/b", "x"),
            ("c:/x/./y/", "c", "x/y"),
            ("c:/x:/y", "c", "x:/y"),
            ("none", "none", ""),
            ("none:/x", "none", "x"),
            ("c:/", "c", ""),
        ] {
            assert_eq!(parse(name), (source.to_owned(), target.to_owned()), "{name}");
        }
        assert!(RootdirPart::parse(&at("c:/../x")).is_err());
    }

    #[test]
    fn subvolumes_are_told_by_paths_of_the_part() {
        let part = RootdirPart { source: "x".into(), target: b"srv/www".to_vec() };
        let all: Vec<RootdirSubvolume> =
            ["srv", "srv/www", "ro:srv/www/a/b", "srv/wwwx"].map(|text| text.parse().unwrap()).to_vec();
        let own = part.own(&all);
        assert_eq!(own.iter().map(|one| &one.path[..]).collect::<Vec<_>>(), [b"a/b"]);
        let through: Vec<bool> = all.iter().map(|one| part.goes_through(&one.path)).collect();
        assert_eq!(through, [true, true, false, false]);
    }
}
