//! Creates the members of an archive in a filesystem.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, InodeId, Result, Timespec, Wait};
use tar::EntryType;

use super::acl;
use super::facts::MemberHeader;
use super::keys::BLOCK;
use super::names::{components, path_of};
use super::read::{Archive, ReadMember};
use super::way::{Missing, way};
use super::whiteouts::is_marked;
use crate::error::Escaped;
use crate::fs::{self, Inherit, NewInode, NewKind, SetAttributes, Time, Times, XattrMode};
use crate::path::{Last, resolve_within};
use crate::progress::Progress;
use crate::{FileType, Filesystem, ReadDir};

/// Bytes of one write.
const PIECE: usize = 1 << 20;
/// Bytes of a leaf with one extended attribute beside name and value: the header, an item, an entry.
const LEAF_OF_ONE_XATTR: usize = 101 + 25 + 30;

/// Changes to members on the way.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Rules {
    /// The archive is a layer above the existing files. Its directories have the attributes that it says and no others. Every other member
    /// replaces whatever has its name. Whiteouts, which have been applied before, are not files.
    pub(super) is_layer: bool,
    /// User and group that own every member.
    pub(super) owner: Option<(u32, u32)>,
    /// The access time of every member, and the upper limit of modification times.
    pub(super) clamp: Option<Timespec>,
}

impl Rules {
    fn apply(self, facts: &mut MemberHeader) {
        if let Some(owner) = self.owner {
            (facts.uid, facts.gid) = (owner.0.into(), owner.1.into());
        }
        if let Some(clamp) = self.clamp {
            facts.atime = Some(clamp);
            facts.mtime = facts.mtime.min(clamp);
        }
    }
}

/// Creates members below one directory, which is the root of all paths.
pub(super) struct Extractor<'a> {
    pub(super) to: &'a Filesystem,
    pub(super) root: InodeId,
    pub(super) progress: &'a dyn Progress,
    /// Called for a member that cannot be created; its error ends the extraction.
    pub(super) failed: &'a dyn Fn(&[u8], Error) -> Result<()>,
    pub(super) rules: Rules,
    /// Files of lower layers that a layer replaces with directories.
    pub(super) gives_way: BTreeSet<InodeId>,
}

/// A directory gets its attributes after all its members: those that the archive says last.
/// Sorted by inode, so that equal archives make equal images.
type Pending = BTreeMap<InodeId, SetAttributes>;

impl Extractor<'_> {
    /// Creates all members. An error of one member is reported; an error that every member would meet ends the extraction.
    pub(super) fn run<R: Read>(&self, archive: &mut Archive<R>) -> Result<()> {
        let mut pending = Pending::new();
        let outcome = self.members(archive, &mut pending);
        // After a cancel the archive may have no more data either.
        let mut outcome = outcome.or_else(|error| self.progress.go_on().and(Err(error)));
        // Also after an archive that ends early; that error is then returned first.
        for (id, set) in pending {
            match self.to.fs.set_attributes(id, &set) {
                // A later member has replaced the directory.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => {}
                done => outcome = outcome.and(done.map(drop)),
            }
        }
        outcome
    }

    fn members<R: Read>(&self, archive: &mut Archive<R>, pending: &mut Pending) -> Result<()> {
        while let Some(mut member) = archive.next()? {
            self.progress.go_on()?;
            let name = member.facts.name.clone();
            if self.rules.is_layer && is_marked(&name) {
                continue;
            }
            self.rules.apply(&mut member.facts);
            let outcome = self.member(archive, &name, &member, pending);
            self.tell(&name, member.map.size, outcome)?;
        }
        Ok(())
    }

    /// Reports the result of a member, unless the error ends the extraction.
    pub(super) fn tell(&self, name: &[u8], size: u64, outcome: Result<()>) -> Result<()> {
        match outcome {
            Err(error) if error.kind().ends_all() || error.is_on_host() => Err(error),
            Err(error) => (self.failed)(name, error),
            Ok(()) => {
                self.progress.entry(name, size);
                Ok(())
            }
        }
    }

    fn member<R: Read>(
        &self,
        archive: &mut Archive<R>,
        name: &[u8],
        member: &ReadMember,
        pending: &mut Pending,
    ) -> Result<()> {
        let names = components(name)?;
        let facts = &member.facts;
        facts.check()?;
        let Some((last, parents)) = names.split_last() else {
            return match member.file_type() {
                FileType::Directory => self.directory(self.root, facts, pending),
                _ => Err(Error::invalid("it would replace the target directory, expected a directory")),
            };
        };
        self.to.refuse_name_of_top_level(self.root, names[0])?;
        let is_link = member.kind == EntryType::Link;
        if is_link && components(&facts.link).is_ok_and(|target| parents.starts_with(&target)) {
            return Err(Error::invalid("it links to its own parent directory"));
        }
        let missing = if self.rules.is_layer { Missing::Replaced(&self.gives_way) } else { Missing::Made };
        let dir = way(&self.to.fs, self.root, parents, missing)?;
        if is_link {
            return self.link(dir, &names, &facts.link);
        }
        let kind = match member.file_type() {
            FileType::Directory => NewKind::Directory,
            FileType::Symlink => NewKind::Symlink(&facts.link),
            FileType::CharDevice => NewKind::CharDevice(facts.device()?),
            FileType::BlockDevice => NewKind::BlockDevice(facts.device()?),
            FileType::Fifo => NewKind::Fifo,
            FileType::File | FileType::Socket => NewKind::File,
        };
        let id = self.make(dir, last, kind, facts)?;
        match kind {
            NewKind::Directory => return self.directory(id, facts, pending),
            NewKind::File => self.content(archive, id, member).or_else(|error| {
                // Half a file is not a copy.
                self.progress.go_on().or_else(|end| self.to.fs.unlink(dir, last).and(Err(end)))?;
                Err(error)
            })?,
            _ => {}
        }
        let attributes = self.attributes(id, facts);
        let set = SetAttributes { mode: mode_of(kind, facts), ..times(facts) };
        self.to.fs.set_attributes(id, &set)?;
        attributes
    }

    /// Creates `name` in `dir`, in place of whatever has the name; an existing directory stays.
    fn make(&self, dir: InodeId, name: &[u8], kind: NewKind<'_>, facts: &MemberHeader) -> Result<InodeId> {
        let fs = &self.to.fs;
        let (uid, gid) = facts.owner()?;
        let now = fs.engine().env().now();
        let access = facts.atime.unwrap_or(facts.mtime);
        let times = Times { access, modification: facts.mtime, change: now, birth: now };
        let new = NewInode {
            kind,
            mode: facts.mode,
            umask: 0,
            uid,
            gid,
            times: Some(times),
            xattrs: &[],
            inherit: Inherit::OnlyFlags,
        };
        match fs.create(dir, name, &new) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let (there, is) = fs.lookup_kind(dir, name, Wait::Yes)?;
                if is == fs::FileType::Directory && kind == NewKind::Directory {
                    if self.rules.is_layer {
                        self.forget_attributes(there)?;
                    }
                    return Ok(there);
                }
                self.give_way(dir, name)?;
                fs.create(dir, name, &new).map(|made| made.id)
            }
            made => made.map(|made| made.id),
        }
    }

    /// Removes an existing entry. A directory must be empty, except for a layer.
    fn give_way(&self, dir: InodeId, name: &[u8]) -> Result<()> {
        let (_, kind) = self.to.fs.lookup_kind(dir, name, Wait::Yes)?;
        match kind {
            fs::FileType::Directory if self.rules.is_layer => self.remove(dir, name),
            fs::FileType::Directory => self.to.fs.rmdir(dir, name),
            _ => self.to.fs.unlink(dir, name),
        }
    }

    /// Removes an entry with everything below it.
    pub(super) fn remove(&self, dir: InodeId, name: &[u8]) -> Result<()> {
        let fs = &self.to.fs;
        let (there, kind) = fs.lookup_kind(dir, name, Wait::Yes)?;
        if kind != fs::FileType::Directory {
            return fs.unlink(dir, name);
        }
        self.empty(there)?;
        fs.rmdir(dir, name)
    }

    /// Removes everything in a directory.
    pub(super) fn empty(&self, dir: InodeId) -> Result<()> {
        self.to.empty_dir(ReadDir::new(Arc::clone(&self.to.fs), dir, PathBuf::new())?)
    }

    /// Removes the attributes that a lower layer gave a directory.
    fn forget_attributes(&self, id: InodeId) -> Result<()> {
        let names = self.to.fs.list_xattrs(id, Wait::Yes)?;
        names.iter().try_for_each(|name| self.to.fs.remove_xattr(id, name))
    }

    /// Makes a hard link with these names, the last of which is in `dir`.
    fn link(&self, dir: InodeId, names: &[&[u8]], target: &[u8]) -> Result<()> {
        let fs = &self.to.fs;
        let leads_out = |_| Error::new(ErrorKind::InvalidData, "its link target is outside");
        let targets = components(target).map_err(leads_out)?;
        let shown = Escaped(target);
        let target = match resolve_within(fs, self.root, &path_of(&targets), Last::Keep) {
            Err(error) if error.kind() == ErrorKind::NotFound && self.rules.is_layer => {
                let what = format!(
                    "link target {shown} is missing: no lower layer has it, or this one removes it or adds it later"
                );
                return Err(Error::invalid(what));
            }
            found => found?,
        };
        if fs.stat(target, Wait::Yes)?.kind == fs::FileType::Directory {
            return Err(Error::invalid(format!("hard link to directory {shown}")));
        }
        let Some(name) = names.last() else { return Err(ErrorKind::IsADirectory.into()) };
        if targets.len() > names.len() && targets.starts_with(names) {
            return Err(Error::invalid("it links into the directory that it replaces"));
        }
        match fs.link(target, dir, name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if fs.lookup(dir, name, Wait::Yes)? == target {
                    return Ok(());
                }
                self.give_way(dir, name)?;
                fs.link(target, dir, name).map(drop)
            }
            outcome => outcome.map(drop),
        }
    }

    fn directory(&self, id: InodeId, facts: &MemberHeader, pending: &mut Pending) -> Result<()> {
        let (uid, gid) = facts.owner()?;
        let owner = SetAttributes { uid: Some(uid), gid: Some(gid), ..SetAttributes::default() };
        self.to.fs.set_attributes(id, &owner)?;
        let set = SetAttributes { mode: Some(facts.mode), ..times(facts) };
        pending.insert(id, set);
        self.attributes(id, facts)
    }

    /// Sets extended attributes, with textual ACLs if the archive has no binary ones. Sets all that it can; returns the first error.
    fn attributes(&self, id: InodeId, facts: &MemberHeader) -> Result<()> {
        let set = |name: &[u8], value: &[u8]| {
            let named = |error: Error| error.context(format!("the attribute {}", name.escape_ascii()));
            // This error concerns only one attribute.
            if name.len() + value.len()
                > (self.to.volume().node_size() as usize).saturating_sub(LEAF_OF_ONE_XATTR)
            {
                return Err(named(Error::invalid("it is larger than a node")));
            }
            self.to.fs.set_xattr(id, name, value, XattrMode::Any).map_err(named)
        };
        let mut outcome = Ok(());
        for (name, words) in &facts.acls {
            if facts.xattrs.iter().any(|(other, _)| other == name) {
                continue;
            }
            let value = acl::from_text(words, self.to);
            let unknown = || Error::invalid("invalid ACL, or unknown user or group");
            outcome = outcome.and(value.ok_or_else(unknown).and_then(|value| set(name, &value)));
        }
        for (name, value) in &facts.xattrs {
            outcome = outcome.and(set(name, value));
        }
        outcome
    }

    fn content<R: Read>(&self, archive: &mut Archive<R>, id: InodeId, member: &ReadMember) -> Result<()> {
        if member.map.size == 0 {
            return Ok(());
        }
        let file = self.to.fs.open_file(id)?;
        let mut buffer = vec![0; PIECE.min(usize::try_from(member.map.size).unwrap_or(PIECE).max(BLOCK))];
        let mut end = 0;
        for piece in &member.map.pieces {
            let mut at = piece.start;
            while at < piece.end {
                let want = usize::try_from(piece.end - at).unwrap_or(buffer.len()).min(buffer.len());
                // Whole pieces make long extents, even if a pipe delivers little at a time.
                let (mut filled, mut ended) = (0, self.progress.go_on());
                while filled < want && ended.is_ok() {
                    match archive.read(&mut buffer[filled..want]) {
                        Ok(0) => break,
                        Ok(count) => filled += count,
                        Err(error) => ended = Err(ending(error)),
                    }
                }
                let mut done = 0;
                while done < filled {
                    done += file.write_at(at + done as u64, &buffer[done..filled])?;
                }
                // The file has the data that came before the error.
                ended?;
                at += want as u64;
            }
            end = piece.end;
        }
        if end < member.map.size {
            let size = Some(member.map.size);
            self.to.fs.set_attributes(id, &SetAttributes { size, ..SetAttributes::default() })?;
        }
        Ok(())
    }
}

/// An archive that cannot be read on ends the extraction.
fn ending(error: Error) -> Error {
    if error.is_on_host() { error } else { error.on_host(Path::new("reading the archive")) }
}

fn times(facts: &MemberHeader) -> SetAttributes {
    SetAttributes {
        atime: Some(Time::At(facts.atime.unwrap_or(facts.mtime))),
        mtime: Some(Time::At(facts.mtime)),
        ..SetAttributes::default()
    }
}

/// The mode that an ACL may have changed. A symbolic link has none.
const fn mode_of(kind: NewKind<'_>, facts: &MemberHeader) -> Option<u32> {
    if matches!(kind, NewKind::Symlink(_)) { None } else { Some(facts.mode) }
}
