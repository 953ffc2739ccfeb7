//! Puts a layer above lower layers: first removals, then additions.

use std::io::Read;

use creamery_base::{ErrorKind, Result, Wait};

use super::extract::Extractor;
use super::names::components;
use super::read::{Archive, ReadMember};
use super::stored::TarArchive;
use super::way::{Missing, way};
use super::whiteouts::{Whiteout, is_marked, parse};
use crate::FileType;
use crate::fs;

fn is_directory(member: &ReadMember) -> bool {
    member.file_type() == FileType::Directory
}

/// Whether a layer has whiteouts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whiteouts {
    None,
    Some,
}

impl Extractor<'_> {
    /// Adds a layer to the existing files, or unpacks an archive that is not a layer.
    pub(super) fn add(&mut self, archive: &TarArchive) -> Result<()> {
        if self.rules.is_layer && self.make_way(&mut archive.members()?)? == Whiteouts::Some {
            self.apply_whiteouts(&mut archive.members()?)?;
        }
        self.run(&mut archive.members()?)
    }

    /// Removes links if the layer has a directory at their place. Otherwise members before the directory would follow the link, and so
    /// would whiteouts in it. Other files stay until the directory comes, because a hard link to them may come before.
    fn make_way<R: Read>(&mut self, archive: &mut Archive<R>) -> Result<Whiteouts> {
        let mut found = Whiteouts::None;
        while let Some(member) = archive.next()? {
            let name = &member.facts.name;
            if is_marked(name) {
                found = Whiteouts::Some;
                continue;
            }
            // Nothing is removed for a member that cannot be made.
            if member.facts.check().is_err() {
                continue;
            }
            match components(name).and_then(|names| self.clear(&names, is_directory(&member))) {
                Err(error) if error.kind().ends_all() => return Err(error),
                // Creating the member reports the error.
                _ => {}
            }
        }
        Ok(found)
    }

    fn apply_whiteouts<R: Read>(&self, archive: &mut Archive<R>) -> Result<()> {
        while let Some(member) = archive.next()? {
            let name = &member.facts.name;
            if is_marked(name) {
                let outcome = parse(name).and_then(|whiteout| self.whiteout(&whiteout));
                self.tell(name, 0, outcome)?;
            }
        }
        Ok(())
    }

    /// Removes the link with these names, if a directory must take its place, and records a file that a directory must replace. Links on
    /// the way stay and are followed.
    fn clear(&mut self, names: &[&[u8]], is_directory: bool) -> Result<()> {
        let mut dir = self.root;
        for (at, name) in names.iter().enumerate() {
            let (there, kind) = self.to.fs.lookup_kind(dir, name, Wait::Yes)?;
            let is_last = at + 1 == names.len();
            match kind {
                fs::FileType::Directory => dir = there,
                _ if is_last && !is_directory => return Ok(()),
                fs::FileType::Symlink if is_last => return self.to.fs.unlink(dir, name),
                fs::FileType::Symlink => return Ok(()),
                _ => {
                    self.gives_way.insert(there);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn whiteout(&self, whiteout: &Whiteout<'_>) -> Result<()> {
        let outcome = match whiteout {
            Whiteout::All(dir) => {
                way(&self.to.fs, self.root, dir, Missing::NotFound).and_then(|dir| self.empty(dir))
            }
            Whiteout::Name(dir, name) => {
                way(&self.to.fs, self.root, dir, Missing::NotFound).and_then(|dir| self.remove(dir, name))
            }
        };
        match outcome {
            // There is no file with this name.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::TooManySymlinks
                ) =>
            {
                Ok(())
            }
            outcome => outcome,
        }
    }
}
