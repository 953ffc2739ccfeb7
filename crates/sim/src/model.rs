//! The model: what the files are after a sequence of operations, kept in memory in the plainest way.
//!
//! It is the judge of results and kinds of error, so it says what POSIX and Linux say and borrows nothing from the
//! engine. Inodes are numbers of its own; a driver knows which is which.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use creamery_base::ErrorKind;
use creamery_fs::{FileType, RenameMode};

use crate::mark::Mark;
use crate::operation::{Operation, Outcome};
use crate::snapshot::{Entry, Snapshot, hash_of, join};
use crate::unread::Unread;

/// The root directory's number.
pub const ROOT: u64 = 0;
/// Bytes of a name at most.
const NAME_MAX: usize = 255;

#[derive(Clone, Debug)]
pub(crate) enum Content {
    Directory(BTreeMap<Vec<u8>, u64>),
    File(Arc<Vec<u8>>),
    Symlink(Vec<u8>),
    Special(FileType),
}

/// What a file was.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) content: Arc<Vec<u8>>,
    /// The modification time if it was set since the last change.
    pub(crate) mtime: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) content: Content,
    pub(crate) subvolume: u64,
    /// Of directories.
    pub(crate) parent: u64,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    pub(crate) opens: u32,
    /// The modification time if it was set since the last change.
    pub(crate) mtime: Option<u32>,
    /// Made without a name and never given one that it lost.
    pub(crate) linkable: bool,
    pub(crate) mark: Option<Mark>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What the file was since its data was synced, and may be after a power cut.
    pub(crate) versions: Vec<Version>,
    /// Data of it was lost, and not all of it could be read since.
    pub(crate) unread: Option<Unread>,
}

impl Node {
    pub(crate) fn new(content: Content, subvolume: u64, parent: u64, mode: u32) -> Self {
        Self {
            content,
            subvolume,
            parent,
            mode,
            uid: 0,
            gid: 0,
            nlink: 1,
            opens: 0,
            mtime: None,
            linkable: false,
            mark: None,
            xattrs: BTreeMap::new(),
            versions: Vec::new(),
            unread: None,
        }
    }

    pub(crate) fn kind(&self) -> FileType {
        match &self.content {
            Content::Directory(_) => FileType::Directory,
            Content::File(_) => FileType::File,
            Content::Symlink(_) => FileType::Symlink,
            Content::Special(kind) => *kind,
        }
    }
}

/// Files in memory.
///
/// ```
/// use creamery_sim::{Model, Operation, ROOT};
/// let mut model = Model::new();
/// let make = Operation::Create { dir: ROOT, name: b"a".to_vec(), kind: creamery_fs::FileType::File, mode: 0o644 };
/// assert!(model.apply(&make).is_ok());
/// assert_eq!(model.apply(&make).unwrap_err(), creamery_base::ErrorKind::AlreadyExists);
/// assert_eq!(model.snapshot().entries.len(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) nodes: BTreeMap<u64, Node>,
    /// Subvolumes of all inodes that ever were: an engine tells from the number alone.
    subvolumes: BTreeMap<u64, u64>,
    next: u64,
    /// What the last snapshot made of what.
    pub(crate) copies: BTreeMap<u64, u64>,
    /// Delayed data may be lost: the device fails.
    pub(crate) lossy: bool,
    /// The roots of the subvolumes that may not be changed.
    pub(crate) read_only: BTreeSet<u64>,
}

pub(crate) type Effect = Result<Outcome, ErrorKind>;

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

fn check_name(name: &[u8], to_make: bool) -> Result<(), ErrorKind> {
    match name {
        b"" => Err(ErrorKind::NotFound),
        b"." | b".." if to_make => Err(ErrorKind::AlreadyExists),
        b"." | b".." => Err(ErrorKind::InvalidInput),
        _ if name.len() > NAME_MAX => Err(ErrorKind::NameTooLong),
        _ if name.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(ErrorKind::InvalidInput),
        _ => Ok(()),
    }
}

impl Model {
    /// An empty filesystem.
    #[must_use]
    pub fn new() -> Self {
        let root = Node::new(Content::Directory(BTreeMap::new()), 0, ROOT, 0o755);
        Self {
            nodes: BTreeMap::from([(ROOT, root)]),
            subvolumes: BTreeMap::new(),
            next: 1,
            copies: BTreeMap::new(),
            lossy: false,
            read_only: BTreeSet::new(),
        }
    }

    pub(crate) fn add(&mut self, node: Node) -> u64 {
        let id = self.next;
        self.next += 1;
        self.place(id, node.subvolume);
        self.nodes.insert(id, node);
        id
    }

    /// Notes which subvolume an inode lies in.
    pub(crate) fn place(&mut self, id: u64, subvolume: u64) {
        self.subvolumes.insert(id, subvolume);
    }

    pub(crate) fn node(&self, id: u64) -> Result<&Node, ErrorKind> {
        self.nodes.get(&id).ok_or(ErrorKind::Stale)
    }

    pub(crate) fn node_mut(&mut self, id: u64) -> &mut Node {
        self.nodes.get_mut(&id).expect("the caller looked")
    }

    pub(crate) fn names(&self, dir: u64) -> Result<&BTreeMap<Vec<u8>, u64>, ErrorKind> {
        match &self.node(dir)?.content {
            Content::Directory(names) => Ok(names),
            _ => Err(ErrorKind::NotADirectory),
        }
    }

    /// To be changed: the modification time is that of the change.
    pub(crate) fn names_mut(&mut self, dir: u64) -> &mut BTreeMap<Vec<u8>, u64> {
        let node = self.node_mut(dir);
        node.mtime = None;
        match &mut node.content {
            Content::Directory(names) => names,
            _ => unreachable!("the caller looked"),
        }
    }

    /// The inode called `name` in `dir`.
    #[must_use]
    pub fn child(&self, dir: u64, name: &[u8]) -> Option<u64> {
        self.names(dir).ok()?.get(name).copied()
    }

    /// The number of the root of the subvolume that an inode lies in, or lay in.
    pub(crate) fn subvolume_of(&self, id: u64) -> u64 {
        self.subvolumes.get(&id).copied().unwrap_or(ROOT)
    }

    /// Bytes of a file.
    pub(crate) fn size(&self, id: u64) -> Option<u64> {
        self.file(id).ok().map(|data| data.len() as u64)
    }

    /// What a power cut and a new start leave: nothing is open, so nothing without a name stays.
    pub fn restart(&mut self) {
        self.nodes.values_mut().for_each(|node| {
            node.opens = 0;
            node.linkable = false;
        });
        self.nodes.retain(|_, node| node.nlink > 0);
    }

    /// Applies one operation.
    ///
    /// # Errors
    /// The kind that the operation has to fail with; nothing is changed then.
    pub fn apply(&mut self, operation: &Operation) -> Effect {
        match self.refusals(operation).first() {
            // Another reason to fail comes first, if there is one.
            Some(refusal) => self.clone().apply_freely(operation).and(Err(*refusal)),
            None => self.apply_freely(operation),
        }
    }

    fn apply_freely(&mut self, operation: &Operation) -> Effect {
        match operation {
            Operation::Create { dir, name, kind, mode } => {
                let content = match kind {
                    FileType::Directory => Content::Directory(BTreeMap::new()),
                    FileType::File => Content::File(Arc::default()),
                    other => Content::Special(*other),
                };
                self.create(*dir, name, content, *mode)
            }
            Operation::Symlink { dir, name, target } => {
                self.create(*dir, name, Content::Symlink(target.clone()), 0o777)
            }
            Operation::CreateSubvolume { dir, name } => self.create_subvolume(*dir, name).map(Outcome::Made),
            Operation::Snapshot { source, dir, name } => self.take_snapshot(*source, *dir, name),
            Operation::DeleteSubvolume { dir, name } => self.delete_subvolume(*dir, name),
            Operation::Tmpfile { dir } => self.tmpfile(*dir),
            Operation::Unlink { dir, name } => self.remove(*dir, name, false),
            Operation::Rmdir { dir, name } => self.remove(*dir, name, true),
            Operation::Link { target, dir, name } => self.link(*target, *dir, name),
            Operation::Rename { from, name, to, new_name, mode } => {
                self.rename(*from, name, *to, new_name, *mode)
            }
            Operation::Open { inode } => {
                self.node(*inode)?;
                self.node_mut(*inode).opens += 1;
                Ok(Outcome::Done)
            }
            Operation::Close { inode } => {
                self.node_mut(*inode).opens -= 1;
                self.drop_if_unused(*inode);
                Ok(Outcome::Done)
            }
            Operation::Write { inode, offset, len, seed } => self.write(*inode, *offset, *len, *seed),
            Operation::Append { inode, len, seed } => {
                let end = self.file(*inode)?.len() as u64;
                self.write(*inode, end, *len, *seed)
            }
            Operation::SetReadOnly { subvolume, read_only } => {
                self.set_read_only(*subvolume, *read_only).map(|()| Outcome::Done)
            }
            Operation::Read { inode, offset, len } => self.read(*inode, *offset, *len),
            Operation::Truncate { inode, size } => self.truncate(*inode, *size),
            Operation::Fallocate { inode, mode, offset, len } => self.fallocate(*inode, *mode, *offset, *len),
            // Nothing of it shows.
            Operation::Defragment { inode, .. } => self.read(*inode, 0, 0).map(|_| Outcome::Done),
            Operation::Clone { inode, source, from, len, to } => {
                self.clone_range(*inode, (*source, *from), *len, *to)
            }
            Operation::SetXattr { .. }
            | Operation::RemoveXattr { .. }
            | Operation::Chmod { .. }
            | Operation::Chown { .. }
            | Operation::SetTimes { .. }
            | Operation::Mark { .. } => self.change_attributes(operation),
            Operation::Fsync { inode } if matches!(self.node(*inode)?.content, Content::Directory(_)) => {
                Ok(Outcome::Done)
            }
            Operation::Fsync { inode } => self.file_is_synced(*inode),
            Operation::Grow { .. } | Operation::Convert(_) | Operation::Sync => Ok(self.is_synced()),
        }
    }

    pub(crate) fn create(&mut self, dir: u64, name: &[u8], content: Content, mode: u32) -> Effect {
        check_name(name, true)?;
        self.check_not_removed(dir)?;
        if self.names(dir)?.contains_key(name) {
            return Err(ErrorKind::AlreadyExists);
        }
        let node = self.inheriting(dir, Node::new(content, self.node(dir)?.subvolume, dir, mode));
        let id = self.add(node);
        self.names_mut(dir).insert(name.to_vec(), id);
        Ok(Outcome::Made(id))
    }

    /// What a set-group-id directory hands down.
    fn inheriting(&self, dir: u64, mut node: Node) -> Node {
        let dir = &self.nodes[&dir];
        if dir.mode & 0o2000 != 0 {
            node.gid = dir.gid;
            if let Content::Directory(_) = node.content {
                node.mode |= 0o2000;
            }
        }
        node
    }

    fn tmpfile(&mut self, dir: u64) -> Effect {
        self.check_not_removed(dir)?;
        let subvolume = self.node(dir)?.subvolume;
        let mut node = self.inheriting(dir, Node::new(Content::File(Arc::default()), subvolume, dir, 0o600));
        (node.nlink, node.opens, node.linkable) = (0, 1, true);
        Ok(Outcome::Made(self.add(node)))
    }

    fn drop_if_unused(&mut self, id: u64) {
        let node = &self.nodes[&id];
        if node.nlink == 0 && node.opens == 0 {
            self.nodes.remove(&id);
        }
    }

    fn lose_name(&mut self, id: u64) {
        let node = self.node_mut(id);
        node.nlink -= 1;
        if node.nlink == 0 {
            node.linkable = false;
        }
        self.drop_if_unused(id);
    }

    fn is_subvolume(&self, id: u64) -> bool {
        self.nodes[&id].subvolume == id && id != ROOT
    }

    fn remove(&mut self, dir: u64, name: &[u8], directory: bool) -> Effect {
        check_name(name, false)?;
        let id = *self.names(dir)?.get(name).ok_or(ErrorKind::NotFound)?;
        match (&self.nodes[&id].content, directory) {
            (Content::Directory(_), false) => return Err(ErrorKind::IsADirectory),
            (Content::Directory(names), true) if !names.is_empty() => {
                return Err(ErrorKind::DirectoryNotEmpty);
            }
            (Content::Directory(_), true) | (_, false) => {}
            (_, true) => return Err(ErrorKind::NotADirectory),
        }
        self.names_mut(dir).remove(name);
        self.lose_name(id);
        Ok(Outcome::Done)
    }

    fn link(&mut self, target: u64, dir: u64, name: &[u8]) -> Effect {
        check_name(name, true)?;
        self.check_same_subvolume(dir, target)?;
        self.check_not_removed(dir)?;
        if self.names(dir)?.contains_key(name) {
            return Err(ErrorKind::AlreadyExists);
        }
        let node = self.node(target)?;
        if matches!(node.content, Content::Directory(_)) {
            return Err(ErrorKind::PermissionDenied);
        }
        if node.nlink == 0 && !node.linkable {
            return Err(ErrorKind::NotFound);
        }
        let node = self.node_mut(target);
        node.nlink += 1;
        node.linkable = false;
        self.names_mut(dir).insert(name.to_vec(), target);
        Ok(Outcome::Done)
    }

    /// A directory that was removed while it was open takes no names.
    fn check_not_removed(&self, dir: u64) -> Result<(), ErrorKind> {
        self.names(dir)?;
        if self.node(dir)?.nlink == 0 { Err(ErrorKind::NotFound) } else { Ok(()) }
    }

    /// Both must exist and lie in one subvolume.
    fn check_same_subvolume(&self, a: u64, b: u64) -> Result<(), ErrorKind> {
        if self.subvolume_of(a) != self.subvolume_of(b) {
            return Err(ErrorKind::CrossDevice);
        }
        self.node(a).and(self.node(b)).map(drop)
    }

    fn rename(&mut self, from: u64, name: &[u8], to: u64, new_name: &[u8], mode: RenameMode) -> Effect {
        check_name(name, false)?;
        check_name(new_name, false)?;
        let moved = self.names(from).ok().and_then(|names| names.get(name).copied());
        let is_plain = matches!(mode, RenameMode::Replace | RenameMode::NoReplace);
        if !is_plain || !moved.is_some_and(|moved| self.is_subvolume(moved)) {
            self.check_same_subvolume(from, to)?;
        }
        let is_apart = self.subvolume_of(from) != self.subvolume_of(to);
        let (old_names, new_names) = (self.names(from)?, self.names(to)?);
        let id = *old_names.get(name).ok_or(ErrorKind::NotFound)?;
        self.check_not_removed(to)?;
        let other = new_names.get(new_name).copied();
        match (other, mode) {
            (Some(_), RenameMode::NoReplace) => return Err(ErrorKind::AlreadyExists),
            (None, RenameMode::Exchange) => return Err(ErrorKind::NotFound),
            (Some(other), _) if other == id => return Ok(Outcome::Done),
            _ => {}
        }
        let is_dir = |id: u64| matches!(self.nodes[&id].content, Content::Directory(_));
        if is_apart {
            self.check_not_inside(to, id, true)?;
        }
        if other.is_some_and(|other| self.is_subvolume(other)) {
            return Err(match (mode, is_dir(id)) {
                (RenameMode::Exchange, _) => ErrorKind::Unsupported,
                (_, true) => ErrorKind::DirectoryNotEmpty,
                (_, false) => ErrorKind::IsADirectory,
            });
        }
        self.check_not_inside(to, id, from != to)?;
        if mode == RenameMode::Exchange {
            let other = other.expect("looked at above");
            self.check_not_inside(from, other, from != to)?;
            if self.is_subvolume(id) {
                return Err(ErrorKind::Unsupported);
            }
            self.put(from, name, other);
            self.put(to, new_name, id);
            return Ok(Outcome::Done);
        }
        if let Some(other) = other {
            if is_apart {
                return Err(self.refusal_to_replace(other));
            }
            if self.check_not_inside(from, other, from != to).is_err() {
                return Err(ErrorKind::DirectoryNotEmpty);
            }
            match (is_dir(id), is_dir(other)) {
                (true, false) => return Err(ErrorKind::NotADirectory),
                (false, true) => return Err(ErrorKind::IsADirectory),
                (true, true) if !self.names(other)?.is_empty() => return Err(ErrorKind::DirectoryNotEmpty),
                _ => {}
            }
        }
        self.names_mut(from).remove(name);
        self.put(to, new_name, id);
        if let Some(other) = other {
            self.lose_name(other);
        }
        if mode == RenameMode::Whiteout {
            let subvolume = self.nodes[&from].subvolume;
            let node = Node::new(Content::Special(FileType::CharDevice), subvolume, from, 0);
            let whiteout = self.add(self.inheriting(from, node));
            self.names_mut(from).insert(name.to_vec(), whiteout);
            return Ok(Outcome::Made(whiteout));
        }
        Ok(Outcome::Done)
    }

    /// Why a subvolume does not take the place of something in another one.
    fn refusal_to_replace(&self, other: u64) -> ErrorKind {
        match &self.nodes[&other].content {
            Content::Directory(names) if names.is_empty() => ErrorKind::CrossDevice,
            Content::Directory(_) => ErrorKind::DirectoryNotEmpty,
            _ => ErrorKind::NotADirectory,
        }
    }

    fn put(&mut self, dir: u64, name: &[u8], id: u64) {
        self.names_mut(dir).insert(name.to_vec(), id);
        self.node_mut(id).parent = dir;
    }

    /// A directory does not move below itself.
    fn check_not_inside(&self, dir: u64, moved: u64, moves: bool) -> Result<(), ErrorKind> {
        if !moves || !matches!(self.nodes[&moved].content, Content::Directory(_)) {
            return Ok(());
        }
        let mut at = dir;
        loop {
            if at == moved {
                return Err(ErrorKind::InvalidInput);
            }
            if at == ROOT {
                return Ok(());
            }
            at = self.nodes[&at].parent;
        }
    }

    pub(crate) fn file(&self, id: u64) -> Result<&Arc<Vec<u8>>, ErrorKind> {
        match &self.node(id)?.content {
            Content::File(data) => Ok(data),
            Content::Directory(_) => Err(ErrorKind::IsADirectory),
            _ => Err(ErrorKind::InvalidInput),
        }
    }

    /// To be changed: the modification time is that of the change.
    pub(crate) fn file_mut(&mut self, id: u64) -> &mut Vec<u8> {
        let node = self.node_mut(id);
        node.mtime = None;
        match &mut node.content {
            Content::File(data) => Arc::make_mut(data),
            _ => unreachable!("the caller looked"),
        }
    }

    /// What a walk must find.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let firsts = self.paths();
        for (path, id) in self.all_paths() {
            let entry = self.entry(&self.nodes[&id], &firsts[&id]);
            snapshot.entries.insert(path, entry);
        }
        snapshot
    }

    fn entry(&self, node: &Node, first: &[u8]) -> Entry {
        let (size, content) = match &node.content {
            Content::Directory(names) => (names.keys().map(|name| name.len() as u64 * 2).sum(), 0),
            Content::File(data) => (data.len() as u64, hash_of(&[data])),
            Content::Symlink(target) => (target.len() as u64, hash_of(&[target])),
            Content::Special(_) => (0, 0),
        };
        Entry {
            kind: node.kind(),
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            nlink: node.nlink,
            size,
            mtime: node.mtime,
            content,
            xattrs: node.xattrs.clone(),
            first: first.to_vec(),
        }
    }

    pub(crate) fn all_paths(&self) -> BTreeMap<Vec<u8>, u64> {
        let mut paths = BTreeMap::new();
        let mut left = vec![(Vec::new(), ROOT)];
        while let Some((path, id)) = left.pop() {
            if let Content::Directory(names) = &self.nodes[&id].content {
                left.extend(names.iter().map(|(name, child)| (join(&path, name), *child)));
            }
            paths.insert(path, id);
        }
        paths
    }

    /// A path of an inode that has one.
    pub(crate) fn path_of(&self, id: u64) -> Option<Vec<u8>> {
        if id == ROOT { Some(Vec::new()) } else { self.paths().remove(&id) }
    }

    /// The first path of every inode that has one.
    pub(crate) fn paths(&self) -> BTreeMap<u64, Vec<u8>> {
        let mut firsts = BTreeMap::new();
        for (path, id) in self.all_paths() {
            firsts.entry(id).or_insert(path);
        }
        firsts
    }
}
