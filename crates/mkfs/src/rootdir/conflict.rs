//! Checks whether the directories of the host that fill one filesystem can be merged.
//!
//! Directories are merged, and other files replace each other. A directory and another file cannot share a name. The walk that fills the
//! filesystem would notice that only in the middle; a filesystem that it replaces would be gone by then.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use creamery_base::{Error, Result};
use rustix::fs::FileType;

use super::part::RootdirPart;
use super::source::{Meta, SourceDir, join};
use super::walk::{Visitor, WalkStop, walk};

/// Refuses parts if one has a directory where an earlier one has another file, or the other way round.
pub(super) fn refuse_conflicts(parts: &[RootdirPart]) -> Result<()> {
    for index in 1..parts.len() {
        let mut above = Above { part: &parts[index], below: &parts[..index] };
        match above.target().and_then(|()| walk(SourceDir::root(&above.part.source)?, &mut above)) {
            Ok(()) | Err(WalkStop::Enough) => {}
            Err(WalkStop::Failed(error)) => return Err(error),
        }
    }
    Ok(())
}

/// A part, and the parts below it.
struct Above<'a> {
    part: &'a RootdirPart,
    below: &'a [RootdirPart],
}

impl Above<'_> {
    /// Compares the directories on the path to the part's target.
    fn target(&self) -> Result<(), WalkStop> {
        let target = &self.part.target[..];
        let slashes = target.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        slashes.chain([target.len()]).try_for_each(|end| self.compare(&target[..end], true))
    }

    /// Compares the part's file at `path`, from the root of the filesystem, with those of the earlier parts. The directories above were
    /// compared before, so no symbolic link is on the path.
    fn compare(&self, path: &[u8], is_directory: bool) -> Result<(), WalkStop> {
        let differs =
            |below: &&RootdirPart| is_directory_in(below, path).is_some_and(|has| has != is_directory);
        let Some(below) = self.below.iter().find(differs) else { return Ok(()) };
        let (with, without) = if is_directory { (self.part, below) } else { (below, self.part) };
        let path = String::from_utf8_lossy(path);
        let what = format!("/{path} is a directory in {}, but not in {}", shown(with), shown(without));
        let advice = "remove one of them, or give one of them another target (--rootdir DIR:/TARGET)";
        Err(Error::invalid(what).advise(advice).into())
    }

    fn path(&self, below: &[u8]) -> Vec<u8> {
        if below.is_empty() { self.part.target.clone() } else { join(&self.part.target, below) }
    }
}

impl Visitor for Above<'_> {
    fn enter(&mut self, _: &[u8], dir: &SourceDir, _: Meta) -> Result<(), WalkStop> {
        self.compare(&self.path(&dir.path), true)
    }

    fn leave(&mut self) -> Result<(), WalkStop> {
        Ok(())
    }

    /// An unreadable file stops the walk that fills the filesystem, or is left out there.
    fn unread(&mut self, _: &[u8], _: Error) -> Result<(), WalkStop> {
        Ok(())
    }

    fn file(&mut self, name: &CStr, _: FileType, dir: &Arc<SourceDir>) -> Result<(), WalkStop> {
        self.compare(&self.path(&join(&dir.path, name.to_bytes())), false)
    }
}

/// The part as the user types it.
fn shown(part: &RootdirPart) -> String {
    let source = part.source.display();
    match &part.target[..] {
        b"" => source.to_string(),
        target => format!("{source}:/{}", String::from_utf8_lossy(target)),
    }
}

/// Whether `part` has a directory at `path`; `None` if it has nothing there.
fn is_directory_in(part: &RootdirPart, path: &[u8]) -> Option<bool> {
    if part.goes_through(path) {
        return Some(true);
    }
    let below = match &part.target[..] {
        b"" => path,
        target => path.strip_prefix(target)?.strip_prefix(b"/")?,
    };
    let found = part.source.join(Path::new(OsStr::from_bytes(below))).symlink_metadata();
    found.ok().map(|meta| meta.is_dir())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_directory_above_a_file_is_refused_and_all_else_is_merged() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for dir in ["base/srv", "base/usr/lib", "more/lib", "site/www", "file"] {
            fs::create_dir_all(at(dir)).unwrap();
        }
        symlink("usr/lib", at("base/lib")).unwrap();
        for file in ["base/usr/lib/x", "base/srv/www", "file/usr", "site/x"] {
            fs::write(at(file), "").unwrap();
        }
        let part = |text: &str| {
            let (source, target) = text.split_once(':').unwrap_or((text, ""));
            RootdirPart { source: at(source), target: target.as_bytes().to_vec() }
        };
        for (parts, wanted) in [
            (&["base", "site"][..], None),
            (&["base", "site:usr/lib"], None),
            (&["site", "site:www"], None),
            (&["base", "more"], Some("/lib is a directory")),
            (&["more", "base"], Some("/lib is a directory")),
            (&["base", "site:srv"], Some("/srv/www is a directory")),
            (&["base", "site:srv/www/deep"], Some("/srv/www is a directory")),
            (&["site:srv/www", "base"], Some("/srv/www is a directory")),
            (&["site", "base", "file"], Some("/usr is a directory")),
        ] {
            let parts: Vec<RootdirPart> = parts.iter().map(|text| part(text)).collect();
            let said = refuse_conflicts(&parts).err().map(|error| error.to_string());
            match (said, wanted) {
                (None, None) => {}
                (Some(said), Some(wanted)) => assert!(said.contains(wanted), "{parts:?}: {said}"),
                (said, _) => panic!("{parts:?}: {said:?}"),
            }
        }
    }
}
