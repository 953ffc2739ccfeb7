//! Expands patterns in paths, like a shell (glob(7)): matches names of the filesystem byte by byte.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use creamery::{Error, ErrorKind, Filesystem, Result};

use crate::glob::Glob;

/// Whether a shell lets `pattern` match `name`: a name with a leading dot needs a pattern with one.
fn stands_for(pattern: &[u8], glob: &Glob, name: &[u8]) -> bool {
    let is_hidden = name.starts_with(b".");
    (!is_hidden || pattern.starts_with(b".") || pattern.starts_with(b"\\.")) && glob.matches(name)
}

/// Whether an error means that the name does not exist.
fn is_absence(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Returns the paths of `fs` that `pattern` matches, sorted by the bytes of their names. `*`, `?` and `[...]` match no slash, and no dot at
/// the beginning of a name. A path without these stands for itself, and so does one that exists exactly as it is written.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// for name in ["/b.conf", "/a.conf", "/.c.conf", "/x"] {
///     fs.write(name, "")?;
/// }
/// let found = creamery_tools::glob::expand(&fs, "/*.conf")?;
/// assert_eq!(found, [std::path::Path::new("/a.conf"), std::path::Path::new("/b.conf")]);
/// # Ok::<(), creamery::Error>(())
/// ```
///
/// # Errors
/// `NotFound` if nothing matches; a directory cannot be read.
pub fn expand(fs: &Filesystem, pattern: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let pattern = pattern.as_ref();
    let bytes = pattern.as_os_str().as_bytes();
    if !Glob::is_pattern(bytes) || fs.symlink_metadata(pattern).is_ok() {
        return Ok(vec![pattern.to_owned()]);
    }
    let start = bytes.iter().position(|byte| *byte == b'/').unwrap_or(0);
    let wants_directory = bytes.ends_with(b"/");
    let mut found: Vec<Vec<u8>> = vec![bytes[..start].to_vec()];
    for component in bytes[start..].split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        found = step(fs, &found, component)?;
    }
    let paths = found.into_iter().map(|mut path| {
        if wants_directory {
            path.push(b'/');
        }
        PathBuf::from(OsString::from_vec(path))
    });
    // A component behind a pattern need not exist, and with a slash at the end only directories match.
    let mut there = Vec::new();
    for path in paths {
        match fs.symlink_metadata(&path) {
            Ok(_) => there.push(path),
            Err(error) if is_absence(&error) => {}
            Err(error) => return Err(error),
        }
    }
    if there.is_empty() {
        let what = format!("{}: no name matches this pattern", pattern.display());
        return Err(Error::new(ErrorKind::NotFound, what).advise("list what there is with `creamery ls`"));
    }
    Ok(there)
}

/// The paths with one more component, in order.
fn step(fs: &Filesystem, dirs: &[Vec<u8>], component: &[u8]) -> Result<Vec<Vec<u8>>> {
    let join = |dir: &[u8], name: &[u8]| [dir, b"/", name].concat();
    if !Glob::is_pattern(component) {
        return Ok(dirs.iter().map(|dir| join(dir, component)).collect());
    }
    let glob = Glob::new(component);
    let mut found = Vec::new();
    for dir in dirs {
        let path = join(dir, b"");
        let entries = match fs.read_dir(OsStr::from_bytes(&path)) {
            Ok(entries) => entries,
            Err(error) if is_absence(&error) => continue,
            Err(error) => return Err(error),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry?.file_name().as_bytes().to_vec();
            if stands_for(component, &glob, &name) {
                names.push(name);
            }
        }
        names.sort_unstable();
        found.extend(names.iter().map(|name| join(dir, name)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_dot_are_asked_for_with_one() {
        for (pattern, name, matches) in [
            ("*", "a", true),
            ("*", ".a", false),
            ("?a", ".a", false),
            ("[.]a", ".a", false),
            (".*", ".a", true),
            ("*.a", "x.a", true),
            ("[!a]*", "b\u{fc}", true),
        ] {
            let glob = Glob::new(pattern.as_bytes());
            assert_eq!(stands_for(pattern.as_bytes(), &glob, name.as_bytes()), matches, "{pattern} {name}");
        }
    }
}
