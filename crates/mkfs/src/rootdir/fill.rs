//! The one writer: takes the steps of the walk in order and makes each file through the operations that a mount uses. It is the only writer
//! and the order of steps is fixed, so equal trees make equal filesystems.
//!
//! # Order of copying
//! A directory gets its attributes when the walk enters it. Its times are set again when the walk leaves it, because every new name in it
//! changes them. A file is made, written, and given its times last. A file of several names is made at the first of them in the order of
//! the walk; the others become links to it.

mod left_out;

use std::cell::Cell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::mpsc::Receiver;

use creamery_base::{Error, ErrorKind, InodeId, Result, Timespec, TreeId, Wait};
use creamery_fs::{
    Attributes, DeviceNumber, FileContent, Filesystem, Inherit, NewInode, NewKind, OpenFile, PackedAhead,
    Replacing, SetAttributes, Time, Times, XattrMode,
};
use rustix::fs::FileType;

use super::progress::{OnError, Progress};
use super::queue::Step;
use super::reader::{LinkKey, Part, Shared};
use super::source::{Meta, join};
use super::writing::writing;
use crate::SubvolumeKind;

/// Maximum bytes of a file that are written in the call that makes it.
const GATHER_MAX: u64 = 8 << 20;

/// A piece of a file's data.
struct FilePart {
    offset: u64,
    bytes: Vec<u8>,
    /// The compressed data, if the piece is all of a small file.
    packed: Option<PackedAhead>,
}

impl FilePart {
    const fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    const fn end(&self) -> u64 {
        self.offset + self.len()
    }
}

/// The changes on the way.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) owner: Option<(u32, u32)>,
    /// Access, change and birth time, and the latest modification time.
    pub(crate) clamp: Option<Timespec>,
    pub(crate) now: Timespec,
    pub(crate) keep: Keep,
    pub(crate) on_error: OnError,
}

/// The attributes of a source file that the copy keeps besides the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    /// All attributes.
    Everything,
    /// Permission bits only. Times are now, and each name is a file of its own.
    Permissions,
}

/// The place of the walk's root.
pub(crate) enum WalkRoot<'a> {
    /// The root is this existing directory.
    Onto(InodeId),
    /// The root gets this name in this directory. An existing file of that name is written over, as by cp(1).
    In(InodeId, &'a [u8]),
}

/// A directory on the path of the walk.
struct Open {
    id: InodeId,
    /// The times to restore, as new names in the directory change them.
    restore: SetAttributes,
    path: Vec<u8>,
    /// The number of its subvolume: links do not reach from one into another.
    subvolume: u32,
}

/// A subvolume that becomes read-only or the default when everything is copied.
struct Pending {
    tree: TreeId,
    kind: SubvolumeKind,
}

pub(crate) struct Filler<'a> {
    fs: &'a Filesystem,
    shared: &'a Shared<'a>,
    progress: &'a dyn Progress,
    rules: Rules,
    place: WalkRoot<'a>,
    open: Vec<Open>,
    /// Files with further names to come, and the number of these names.
    links: HashMap<LinkKey, (InodeId, u64)>,
    /// Files of several names whose data was not stored: readers send it only once.
    missed: HashSet<LinkKey>,
    pending: Vec<Pending>,
    subvolume_count: u32,
    /// The depth of the walk below a directory that could not be made.
    left_out: usize,
}

impl<'a> Filler<'a> {
    pub(crate) fn new(
        fs: &'a Filesystem,
        shared: &'a Shared<'a>,
        progress: &'a dyn Progress,
        rules: Rules,
        place: WalkRoot<'a>,
    ) -> Self {
        Self {
            fs,
            shared,
            progress,
            rules,
            place,
            open: Vec::new(),
            links: HashMap::new(),
            missed: HashSet::new(),
            pending: Vec::new(),
            subvolume_count: 0,
            left_out: 0,
        }
    }

    /// Takes all steps of the walk.
    pub(crate) fn run(mut self, steps: &Receiver<Step>) -> Result<()> {
        for step in steps {
            self.progress.go_on()?;
            self.step(step)?;
        }
        if !self.open.is_empty() {
            return Err(Error::new(ErrorKind::Interrupted, "the walk over the source tree ended early"));
        }
        let made = self.pending.iter().map(|pending| pending.tree);
        self.fs.renew_uuids(&std::iter::once(TreeId::FS).chain(made).collect::<Vec<_>>())?;
        for Pending { tree, kind } in &self.pending {
            if kind.is_default() {
                self.fs.set_default_subvolume(*tree)?;
            }
            if kind.is_read_only() {
                self.fs.set_subvolume_read_only(*tree, true)?;
            }
        }
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Enter { number, name, path, mut meta, subvolume } => {
                self.shared.budget.advance(number);
                if self.left_out > 0 {
                    self.left_out += 1;
                    return Ok(());
                }
                self.leave_out_large_xattrs(&mut meta, &path)?;
                match self.enter(&name, &path, &meta, subvolume).map_err(writing(&path)) {
                    Ok(()) => self.progress.entry(&path, 0),
                    Err(error) if self.open.is_empty() => return Err(error),
                    Err(error) => {
                        self.settle(&path, error)?;
                        self.left_out = 1;
                    }
                }
                Ok(())
            }
            Step::Leave { number } => {
                self.shared.budget.advance(number);
                if self.left_out > 0 {
                    self.left_out -= 1;
                    return Ok(());
                }
                let left = self.open.pop().expect("the walk leaves what it entered");
                self.fs.set_attributes(left.id, &left.restore).map_err(writing(&left.path)).map(drop)
            }
            Step::File { number, name, parts } => {
                self.shared.budget.advance(number);
                let (dir, path) = match self.open.last() {
                    Some(open) => ((open.id, open.subvolume), join(&open.path, &name)),
                    None => (self.lone_place(), name.clone()),
                };
                if self.left_out > 0 {
                    return self.drain(&parts, dir.1);
                }
                match self.file(dir, &name, &parts, &path) {
                    Ok(bytes) => self.progress.entry(&path, bytes),
                    // If the source is a single file, its error is the whole outcome.
                    Err(error) if self.open.is_empty() => return Err(error),
                    Err(error) => {
                        self.settle(&path, error)?;
                        self.drain(&parts, dir.1)?;
                    }
                }
                Ok(())
            }
            Step::Unread { path, error } if self.left_out == 0 => self.settle(&path, error),
            Step::Unread { .. } => Ok(()),
            Step::Failed(error) => Err(error),
        }
    }

    /// The directory and subvolume of a source that is a single file.
    fn lone_place(&self) -> (InodeId, u32) {
        let (WalkRoot::Onto(dir) | WalkRoot::In(dir, _)) = self.place;
        (dir, 0)
    }

    fn times(&self, meta: &Meta) -> Times {
        if self.rules.keep == Keep::Permissions {
            return Times::all(self.rules.now);
        }
        match self.rules.clamp {
            Some(epoch) => {
                Times { access: epoch, modification: meta.mtime.min(epoch), change: epoch, birth: epoch }
            }
            None => Times {
                access: meta.atime,
                modification: meta.mtime,
                change: self.rules.now,
                birth: self.rules.now,
            },
        }
    }

    /// The times to set after writing has changed them.
    fn restore(&self, meta: &Meta) -> SetAttributes {
        let times = self.times(meta);
        SetAttributes {
            atime: Some(Time::At(times.access)),
            mtime: Some(Time::At(times.modification)),
            ctime: Some(Time::At(times.change)),
            ..SetAttributes::default()
        }
    }

    fn owner(&self, meta: &Meta) -> (u32, u32) {
        self.rules.owner.unwrap_or((meta.uid, meta.gid))
    }

    /// Refuses attributes that fit into no leaf, regardless of the size of the filesystem.
    fn check_xattrs(&self, meta: &Meta) -> Result<()> {
        for (name, value) in &meta.xattrs {
            let most = self.fs.xattr_value_max(name)?;
            if self.rules.keep == Keep::Everything && value.len() > most {
                let (name, len) = (String::from_utf8_lossy(name), value.len());
                let what = format!(
                    "the extended attribute {name} has {len} bytes, expected at most {most} for this node size"
                );
                return Err(Error::invalid(what));
            }
        }
        Ok(())
    }

    /// Calls `make` with the new inode for `meta`.
    fn with_new<R>(
        &self,
        meta: &Meta,
        kind: NewKind<'_>,
        make: impl FnOnce(&NewInode<'_>) -> Result<R>,
    ) -> Result<R> {
        self.check_xattrs(meta)?;
        let (uid, gid) = self.owner(meta);
        let xattrs: Vec<(&[u8], &[u8])> = match self.rules.keep {
            Keep::Everything => meta.xattrs.iter().map(|(name, value)| (&name[..], &value[..])).collect(),
            Keep::Permissions => Vec::new(),
        };
        // If the owner is not kept, set-user-id bits go, and the inode inherits from its directory.
        let (mode, inherit) = match self.rules.keep {
            Keep::Everything => (meta.mode, Inherit::OnlyFlags),
            Keep::Permissions => (meta.mode & 0o777, Inherit::FromDirectory),
        };
        let times = Some(self.times(meta));
        make(&NewInode { kind, mode, umask: 0, uid, gid, times, xattrs: &xattrs, inherit })
    }

    fn enter(
        &mut self,
        name: &[u8],
        path: &[u8],
        meta: &Meta,
        subvolume: Option<SubvolumeKind>,
    ) -> Result<()> {
        let (dir, name, mut number) = match (self.open.last(), &self.place) {
            (Some(parent), _) => (parent.id, name, parent.subvolume),
            (None, WalkRoot::In(dir, name)) => (*dir, *name, 0),
            (None, WalkRoot::Onto(dir)) => return self.enter_existing(*dir, meta, Vec::new(), 0),
        };
        // Links do not reach into a subvolume, neither a new one nor one of an earlier part.
        if subvolume.is_some() {
            self.subvolume_count += 1;
            number = self.subvolume_count;
        }
        let made = self.with_new(meta, NewKind::Directory, |new| match subvolume {
            Some(_) => self.fs.create_subvolume(dir, name, new),
            None => self.fs.create(dir, name, new).map(|attributes| attributes.id),
        });
        let id = match made {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let id = self.fs.lookup(dir, name, Wait::Yes)?;
                return self.enter_existing(id, meta, path.to_vec(), number);
            }
            made => made?,
        };
        self.pending.extend(subvolume.map(|kind| Pending { tree: id.subvolume, kind }));
        let restore = self.restore(meta);
        self.open.push(Open { id, restore, path: path.to_vec(), subvolume: number });
        Ok(())
    }

    /// Sets the attributes of the source on an existing directory.
    fn enter_existing(&mut self, id: InodeId, meta: &Meta, path: Vec<u8>, subvolume: u32) -> Result<()> {
        if self.fs.stat(id, Wait::Yes)?.kind != creamery_fs::FileType::Directory {
            return Err(Error::new(ErrorKind::NotADirectory, "expected a directory"));
        }
        if self.rules.keep == Keep::Permissions {
            self.open.push(Open { id, restore: SetAttributes::default(), path, subvolume });
            return Ok(());
        }
        let (uid, gid) = self.owner(meta);
        let restore = self.restore(meta);
        let set = SetAttributes {
            mode: Some(meta.mode),
            uid: Some(uid),
            gid: Some(gid),
            btime: Some(Time::At(self.times(meta).birth)),
            ..restore
        };
        self.fs.set_attributes(id, &set)?;
        self.check_xattrs(meta)?;
        for (name, value) in &meta.xattrs {
            self.fs.set_xattr(id, name, value, XattrMode::Any)?;
        }
        // An ACL may have changed the mode; the source's mode is restored.
        let restore = SetAttributes { mode: Some(meta.mode), ..restore };
        self.open.push(Open { id, restore, path, subvolume });
        Ok(())
    }

    /// Makes an inode without data. In a copy into a filesystem in use it replaces an existing one of that name.
    fn node(&self, dir: InodeId, name: &[u8], new: &NewInode<'_>) -> Result<Attributes> {
        let (made, replacing) =
            self.fs.make_or_replace(dir, name, 0, |name| self.fs.create(dir, name, new))?;
        replacing.finish()?;
        Ok(made)
    }

    /// Makes `name` another name of `original`, and replaces an existing file of that name, as [`Self::node`].
    fn link(&self, original: InodeId, dir: InodeId, name: &[u8]) -> Result<()> {
        let link = |name: &[u8]| match self.fs.link(original, dir, name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let there = self.fs.lookup(dir, name, Wait::Yes)?;
                if there == original { Ok(()) } else { Err(error) }
            }
            linked => linked.map(drop),
        };
        let ((), replacing) = self.fs.make_or_replace(dir, name, 0, link)?;
        replacing.finish()
    }

    /// Makes a file that is no directory; returns the bytes of its data.
    fn file(
        &mut self,
        dir: (InodeId, u32),
        name: &[u8],
        parts: &Receiver<Result<Part>>,
        path: &[u8],
    ) -> Result<u64> {
        let mut meta = match next_part(parts)? {
            Part::Meta(meta) => meta,
            Part::Data { .. } | Part::End { .. } => unreachable!("a reader begins with what the file is"),
        };
        self.leave_out_large_xattrs(&mut meta, path)?;
        let made = self.file_like(&meta, dir, name, parts, path);
        if made.is_err() {
            self.miss(dir.1, &meta);
        }
        made
    }

    fn file_like(
        &mut self,
        meta: &Meta,
        (dir, subvolume): (InodeId, u32),
        name: &[u8],
        parts: &Receiver<Result<Part>>,
        path: &[u8],
    ) -> Result<u64> {
        let key = (subvolume, meta.dev, meta.ino);
        let has_links = self.has_links(meta);
        if has_links && let Some(original) = self.take_link(key) {
            self.discard(parts)?;
            self.link(original, dir, name).map_err(writing(path))?;
            return Ok(0);
        }
        if self.missed.contains(&key) {
            let what = "an earlier name of this file could not be copied";
            return Err(writing(path)(Error::new(ErrorKind::Stale, what)));
        }
        if meta.kind == FileType::RegularFile {
            let (id, bytes) = self.regular(dir, name, meta, parts, path)?;
            self.remember(has_links, key, id, meta);
            return Ok(bytes);
        }
        let kind = new_kind(meta).map_err(writing(path))?;
        let made = self.with_new(meta, kind, |new| self.node(dir, name, new)).map_err(writing(path))?;
        self.remember(has_links, key, made.id, meta);
        self.discard(parts)?;
        Ok(0)
    }

    fn remember(&mut self, has_links: bool, key: LinkKey, id: InodeId, meta: &Meta) {
        if has_links {
            self.links.insert(key, (id, meta.nlink - 1));
        }
    }

    /// The file to which this name is a link. The table drops a file at its last name.
    fn take_link(&mut self, key: LinkKey) -> Option<InodeId> {
        let Entry::Occupied(mut entry) = self.links.entry(key) else { return None };
        let (id, left) = entry.get_mut();
        let id = *id;
        *left -= 1;
        if *left == 0 {
            entry.remove();
            self.shared.forget(key);
        }
        Some(id)
    }

    /// Makes a regular file. The call that makes it also writes its first megabytes, which is all of most files.
    fn regular(
        &self,
        dir: InodeId,
        name: &[u8],
        meta: &Meta,
        parts: &Receiver<Result<Part>>,
        path: &[u8],
    ) -> Result<(InodeId, u64)> {
        let (pieces, complete) = self.gather(parts)?;
        let bytes: u64 = pieces.iter().map(FilePart::len).sum();
        let end = pieces.last().map_or(0, FilePart::end);
        let stretches: Vec<(u64, &[u8])> =
            pieces.iter().map(|piece| (piece.offset, &piece.bytes[..])).collect();
        let packed = pieces.first().and_then(|piece| piece.packed.as_ref());
        let content = FileContent { size: complete.unwrap_or(end), stretches: &stretches, packed };
        let made = self.with_new(meta, NewKind::File, |new| {
            // The second call is for a file in place of an existing one. With `Permissions` it keeps the properties of that file, which are
            // set before the data, so it is made empty.
            let is_first = Cell::new(true);
            let create = |name: &[u8]| match is_first.take() || self.rules.keep == Keep::Everything {
                true => self.fs.create_file_with(dir, name, new, &content),
                false => self.fs.create(dir, name, new),
            };
            self.fs.make_or_replace(dir, name, meta.size, create)
        });
        let made = made.and_then(|(made, replacing)| {
            if self.rules.keep == Keep::Permissions {
                replacing.begin_as_the_old(made.id)?;
            }
            // Free space is in very many pieces, or the file is empty so far: the rest is written as to any file.
            if made.size < content.size {
                self.write_rest(&made, &pieces)?;
            }
            Ok((made, replacing))
        });
        self.shared.budget.give_back(bytes);
        let (made, replacing) = made.map_err(writing(path))?;
        if complete == Some(made.size) {
            self.finish(replacing, made.id).map_err(writing(path))?;
            return Ok((made.id, bytes));
        }
        let (more, size) = match complete {
            Some(size) => (0, size),
            None => self.append(made.id, parts, path)?,
        };
        let set = SetAttributes { size: Some(size), ..self.restore(meta) };
        self.fs.set_attributes(made.id, &set).map_err(writing(path))?;
        self.finish(replacing, made.id).map_err(writing(path))?;
        Ok((made.id, bytes + more))
    }

    /// Gives a file its name, and the attributes that do not come from its source.
    fn finish(&self, replacing: Replacing<'_>, id: InodeId) -> Result<()> {
        match self.rules.keep {
            Keep::Everything => replacing.finish(),
            Keep::Permissions => replacing.finish_as_the_old(id),
        }
    }

    /// Takes pieces of data until there are enough for one call, or no more (then the size of the file is returned, too).
    fn gather(&self, parts: &Receiver<Result<Part>>) -> Result<(Vec<FilePart>, Option<u64>)> {
        let mut pieces: Vec<FilePart> = Vec::new();
        let mut taken = 0;
        while taken < GATHER_MAX {
            match next_part(parts) {
                Err(error) => {
                    self.shared.budget.give_back(taken);
                    return Err(error);
                }
                Ok(Part::Meta(_)) => unreachable!("a reader says once what a file is"),
                Ok(Part::End { size }) => return Ok((pieces, Some(size))),
                Ok(Part::Data { offset, bytes, packed }) => {
                    taken += bytes.len() as u64;
                    pieces.push(FilePart { offset, bytes, packed });
                }
            }
        }
        Ok((pieces, None))
    }

    fn write_rest(&self, made: &Attributes, pieces: &[FilePart]) -> Result<()> {
        let file = self.fs.open_file(made.id)?;
        for piece in pieces.iter().filter(|piece| piece.end() > made.size) {
            let skip = made.size.saturating_sub(piece.offset);
            let skip = usize::try_from(skip).expect("less than a piece");
            self.write_all(&file, piece.offset + skip as u64, &piece.bytes[skip..])?;
        }
        Ok(())
    }

    /// Writes the rest of a large file; returns its bytes, and the size of the file.
    fn append(&self, id: InodeId, parts: &Receiver<Result<Part>>, path: &[u8]) -> Result<(u64, u64)> {
        let file = self.fs.open_file(id).map_err(writing(path))?;
        let mut written = 0;
        loop {
            self.progress.go_on()?;
            match next_part(parts)? {
                Part::Meta(_) => unreachable!("a reader says once what a file is"),
                Part::End { size } => return Ok((written, size)),
                Part::Data { offset, bytes, .. } => {
                    let done = self.write_all(&file, offset, &bytes);
                    self.shared.budget.give_back(bytes.len() as u64);
                    done.map_err(writing(path))?;
                    written += bytes.len() as u64;
                }
            }
        }
    }

    fn write_all(&self, file: &OpenFile, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let count = file.write_at(offset + done as u64, &bytes[done..])?;
            assert!(count > 0); // lack of space is an error, not a write of 0 bytes
            done += count;
        }
        Ok(())
    }

    /// Takes and drops the rest of a file.
    fn discard(&self, parts: &Receiver<Result<Part>>) -> Result<()> {
        loop {
            match next_part(parts)? {
                Part::Meta(_) => unreachable!("a reader says once what a file is"),
                Part::Data { bytes, .. } => self.shared.budget.give_back(bytes.len() as u64),
                Part::End { .. } => return Ok(()),
            }
        }
    }
}

fn next_part(parts: &Receiver<Result<Part>>) -> Result<Part> {
    parts
        .recv()
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Interrupted, "a reader of the source tree ended")))
}

fn new_kind(meta: &Meta) -> Result<NewKind<'_>> {
    let device = || DeviceNumber { major: rustix::fs::major(meta.rdev), minor: rustix::fs::minor(meta.rdev) };
    Ok(match meta.kind {
        FileType::RegularFile => NewKind::File,
        FileType::Symlink => NewKind::Symlink(&meta.target),
        FileType::Fifo => NewKind::Fifo,
        FileType::Socket => NewKind::Socket,
        FileType::CharacterDevice => NewKind::CharDevice(device()),
        FileType::BlockDevice => NewKind::BlockDevice(device()),
        FileType::Directory | FileType::Unknown => {
            return Err(Error::unsupported("unknown file type"));
        }
    })
}
