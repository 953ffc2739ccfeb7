//! Operations as values, and random sequences of them.

use creamery_fs::{Fallocate, FileType, RenameMode, XattrMode};
use creamery_testkit::Random;
use creamery_txn::Conversion;

use crate::mark::Mark;
use crate::model::{Content, Model, ROOT};

/// One call of the library. Inodes are the model's numbers.
///
/// ```
/// use creamery_sim::{Operation, ROOT};
/// let unlink = Operation::Unlink { dir: ROOT, name: b"a".to_vec() };
/// assert_eq!(format!("{unlink:?}"), "Unlink { dir: 0, name: [97] }");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the fields are the arguments of the call")]
pub enum Operation {
    /// A file, a directory or something special.
    Create { dir: u64, name: Vec<u8>, kind: FileType, mode: u32 },
    /// A symbolic link.
    Symlink { dir: u64, name: Vec<u8>, target: Vec<u8> },
    /// An empty subvolume.
    CreateSubvolume { dir: u64, name: Vec<u8> },
    /// A snapshot of the subvolume with this root.
    Snapshot { source: u64, dir: u64, name: Vec<u8> },
    /// A subvolume with all that is in it, of which nothing is open.
    DeleteSubvolume { dir: u64, name: Vec<u8> },
    /// An open file without a name.
    Tmpfile { dir: u64 },
    /// Takes a name away.
    Unlink { dir: u64, name: Vec<u8> },
    /// Removes an empty directory.
    Rmdir { dir: u64, name: Vec<u8> },
    /// One more name.
    Link { target: u64, dir: u64, name: Vec<u8> },
    /// Another name.
    Rename { from: u64, name: Vec<u8>, to: u64, new_name: Vec<u8>, mode: RenameMode },
    /// Keeps an inode alive.
    Open { inode: u64 },
    /// Lets go of one that was opened.
    Close { inode: u64 },
    /// Writes bytes that follow from the seed.
    Write { inode: u64, offset: u64, len: usize, seed: u64 },
    /// Reads.
    Read { inode: u64, offset: u64, len: usize },
    /// Sets the size.
    Truncate { inode: u64, size: u64 },
    /// Sets space aside, makes a hole, or zeros.
    Fallocate { inode: u64, mode: Fallocate, offset: u64, len: u64 },
    /// Puts a file's data together, from `offset` on.
    Defragment { inode: u64, offset: u64 },
    /// Has `inode` share what `source` has; a `len` of 0 is all there is.
    Clone { inode: u64, source: u64, from: u64, len: u64, to: u64 },
    /// Sets an attribute.
    SetXattr { inode: u64, name: Vec<u8>, value: Vec<u8>, mode: XattrMode },
    /// Removes one.
    RemoveXattr { inode: u64, name: Vec<u8> },
    /// Sets the permission bits.
    Chmod { inode: u64, mode: u32 },
    /// Sets owner and group.
    Chown { inode: u64, uid: u32, gid: u32 },
    /// Sets access and modification time, to a second before 2001, when nothing in a test happens by itself.
    SetTimes { inode: u64, second: u32 },
    /// Writes behind the end of a file.
    Append { inode: u64, len: usize, seed: u64 },
    /// Marks an inode, or takes its mark.
    Mark { inode: u64, mark: Option<Mark> },
    /// Forbids or allows changes in the subvolume with this root, durably.
    SetReadOnly { subvolume: u64, read_only: bool },
    /// Makes a file durable.
    Fsync { inode: u64 },
    /// Has the filesystem take so many bytes more of its device, or all that there is, and commits.
    Grow { more: u64 },
    /// Has the filesystem tell of its space in another tree, if it can be and is not so yet, and commits.
    Convert(Conversion),
    /// Commits.
    Sync,
}

impl Operation {
    /// Whether it commits.
    pub(crate) fn commits(&self) -> bool {
        matches!(self, Self::Sync | Self::Grow { .. } | Self::Convert(_) | Self::Snapshot { .. })
    }
}

/// Nothing that happens in a test happens before this second (in 2001), so an earlier time is one that was set.
pub(crate) const TIMES_SET_BEFORE: u32 = 1_000_000_000;

/// A modification time as [`Entry::mtime`](crate::Entry::mtime) holds it.
pub(crate) fn time_set(seconds: i64) -> Option<u32> {
    u32::try_from(seconds).ok().filter(|second| *second < TIMES_SET_BEFORE)
}

/// What an operation gives back.
///
/// ```
/// assert_ne!(creamery_sim::Outcome::Done, creamery_sim::Outcome::Count(0));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing but success.
    Done,
    /// A new inode, by the model's number.
    Made(u64),
    /// How much was written.
    Count(usize),
    /// What was read.
    Data(Vec<u8>),
}

/// `len` bytes that follow from `seed` and do not compress.
pub(crate) fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = Random::new(seed).bytes(len);
    if seed.is_multiple_of(2) {
        // Such as gets shorter when it is compressed.
        bytes.iter_mut().for_each(|byte| *byte = b'a' + *byte % 4);
    }
    bytes
}

/// What sort of sequences to make.
///
/// ```
/// let calm = creamery_sim::Taste { mistakes: 0, ..Default::default() };
/// # assert!(calm.names > 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taste {
    /// Of a hundred operations, those that take an inode or name without looking whether it fits.
    pub mistakes: u64,
    /// Different names in use.
    pub names: u64,
    /// Longest write.
    pub write_max: u64,
    /// Longest file.
    pub size_max: u64,
    /// Whether times are set.
    pub times: bool,
    /// Whether subvolumes are made.
    pub subvolumes: bool,
    /// Whether the model's root is that of a subvolume, so that snapshots of it may be taken.
    pub root_is_subvolume: bool,
    /// Whether inodes are marked, subvolumes made read-only, and files appended to.
    pub rights: bool,
    /// Directories that are made first, and stay. With more than 64 of them at work, what one thread puts off others write.
    pub directories: u64,
}

impl Default for Taste {
    fn default() -> Self {
        Self {
            mistakes: 10,
            names: 40,
            write_max: 20_000,
            size_max: 300_000,
            times: false,
            subvolumes: true,
            root_is_subvolume: true,
            rights: false,
            directories: 0,
        }
    }
}

/// Makes operations that suit a model.
pub(crate) struct Generator {
    pub(crate) random: Random,
    pub(crate) taste: Taste,
}

impl Generator {
    pub(crate) const fn new(seed: u64, taste: Taste) -> Self {
        Self { random: Random::new(seed), taste }
    }

    /// The operations that come before all others.
    pub(crate) fn first(&self) -> impl Iterator<Item = Operation> + use<> {
        (0..self.taste.directories).map(|number| Operation::Create {
            dir: ROOT,
            name: format!("dir{number}").into_bytes(),
            kind: FileType::Directory,
            mode: 0o755,
        })
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[self.random.below(from.len() as u64) as usize].clone()) }
    }

    fn mistaken(&mut self) -> bool {
        self.random.below(100) < self.taste.mistakes
    }

    /// Any inode, or one of those that `suits`.
    fn inode(&mut self, model: &Model, suits: impl Fn(&Content) -> bool) -> u64 {
        if self.mistaken() {
            // Of numbers that were once in use, some are gone.
            let ids: Vec<u64> = model.nodes.keys().copied().collect();
            let top = ids.last().copied().unwrap_or(ROOT) + 1;
            return if self.random.below(3) == 0 {
                self.random.below(top)
            } else {
                self.pick(&ids).unwrap_or(ROOT)
            };
        }
        let ids: Vec<u64> =
            model.nodes.iter().filter(|(_, node)| suits(&node.content)).map(|(id, _)| *id).collect();
        self.pick(&ids).unwrap_or(ROOT)
    }

    fn directory(&mut self, model: &Model) -> u64 {
        self.inode(model, |content| matches!(content, Content::Directory(_)))
    }

    fn file(&mut self, model: &Model) -> u64 {
        self.inode(model, |content| matches!(content, Content::File(_)))
    }

    fn name(&mut self) -> Vec<u8> {
        if self.mistaken() && self.random.below(4) == 0 {
            let odd: [&[u8]; 6] = [b"", b".", b"..", b"a/b", b"nul\0", &[b'l'; 256]];
            return self.pick(&odd).expect("some").to_vec();
        }
        let number = self.random.below(self.taste.names);
        let mut name = format!("name{number}").into_bytes();
        if number.is_multiple_of(7) {
            let pad = (number * 31 % 240) as usize;
            name.resize(name.len() + pad, b'x');
        }
        name
    }

    /// A name that a directory has and this generator gave, or any.
    fn taken(&mut self, model: &Model, dir: u64) -> Vec<u8> {
        let names: Vec<Vec<u8>> = match model.names(dir) {
            Ok(names) => names.keys().filter(|name| name.starts_with(b"name")).cloned().collect(),
            Err(_) => Vec::new(),
        };
        if self.mistaken() { self.name() } else { self.pick(&names).unwrap_or_else(|| self.name()) }
    }

    fn offset(&mut self, model: &Model, inode: u64) -> u64 {
        let size = match model.node(inode).map(|node| &node.content) {
            Ok(Content::File(data)) => data.len() as u64,
            _ => 0,
        };
        let any = self.random.below(self.taste.size_max);
        match self.random.below(5) {
            0 => size,
            1 => any / 4096 * 4096,
            2 => any,
            _ => any % (size + 1),
        }
    }

    /// The next operation.
    pub(crate) fn next(&mut self, model: &Model) -> Operation {
        if self.taste.rights && self.random.below(8) == 0 {
            return self.right(model);
        }
        let dir = self.directory(model);
        match self.random.below(100) {
            0..20 => self.creation(model, dir),
            20..32 => self.removal(model),
            32..42 => self.renaming(model),
            42..46 => {
                let target = self.inode(model, |content| !matches!(content, Content::Directory(_)));
                Operation::Link { target, dir, name: self.name() }
            }
            46..66 => {
                let inode = self.file(model);
                let offset = self.offset(model, inode);
                let len = match self.random.below(4) {
                    0 => self.random.below(200),
                    1 => self.random.below(self.taste.write_max) / 4096 * 4096,
                    _ => self.random.below(self.taste.write_max),
                };
                Operation::Write { inode, offset, len: len as usize, seed: self.random.next_u64() }
            }
            66..71 => {
                let inode = self.file(model);
                let offset = self.offset(model, inode);
                Operation::Read { inode, offset, len: self.random.below(50_000) as usize }
            }
            71..79 => {
                let inode = self.file(model);
                let offset = self.offset(model, inode);
                match self.random.below(4) {
                    0 => return Operation::Truncate { inode, size: offset },
                    1 => return self.cloning(model, inode),
                    2 if self.random.below(3) == 0 => return Operation::Defragment { inode, offset },
                    _ => {}
                }
                let len = 1 + self.random.below(self.taste.write_max);
                Operation::Fallocate { inode, mode: self.fallocation(), offset, len }
            }
            79..88 => self.attribute(model),
            88..91 => Operation::Chmod {
                inode: self.inode(model, |_| true),
                mode: self.random.below(0o10000) as u32,
            },
            91..93 => {
                let (uid, gid) = (self.random.below(2000) as u32, self.random.below(2000) as u32);
                Operation::Chown { inode: self.inode(model, |_| true), uid, gid }
            }
            93..96 if self.taste.times => {
                let second = self.random.below(u64::from(TIMES_SET_BEFORE)) as u32;
                Operation::SetTimes { inode: self.inode(model, |_| true), second }
            }
            _ => self.opening(model),
        }
    }

    /// Marks, and takes marks as often, so that there are few at a time; appends; read-only subvolumes.
    fn right(&mut self, model: &Model) -> Operation {
        let marked: Vec<u64> =
            model.nodes.iter().filter(|(_, node)| node.mark.is_some()).map(|(id, _)| *id).collect();
        let is_there = |id: &u64| model.node(*id).is_ok_and(|root| root.nlink > 0);
        let read_only: Vec<u64> = model.read_only.iter().copied().filter(is_there).collect();
        match self.random.below(6) {
            0 | 1 => {
                let inode = self.pick(&marked).unwrap_or(ROOT);
                Operation::Mark { inode, mark: None }
            }
            2 if marked.len() < 8 => {
                let mark = if self.random.below(2) == 0 { Mark::Immutable } else { Mark::AppendOnly };
                let plain = |content: &Content| matches!(content, Content::File(_) | Content::Directory(_));
                Operation::Mark { inode: self.inode(model, plain), mark: Some(mark) }
            }
            3 if !read_only.is_empty() => {
                let subvolume = self.pick(&read_only).expect("some");
                Operation::SetReadOnly { subvolume, read_only: false }
            }
            3 => {
                let roots: Vec<u64> = model
                    .nodes
                    .keys()
                    .copied()
                    .filter(|id| model.is_root_of_subvolume(*id) && is_there(id))
                    .collect();
                match self.pick(&roots) {
                    Some(subvolume) => Operation::SetReadOnly { subvolume, read_only: true },
                    None => self.appending(model),
                }
            }
            _ => self.appending(model),
        }
    }

    fn appending(&mut self, model: &Model) -> Operation {
        let len = 1 + self.random.below(self.taste.write_max) as usize;
        Operation::Append { inode: self.file(model), len, seed: self.random.next_u64() }
    }

    fn cloning(&mut self, model: &Model, inode: u64) -> Operation {
        let source = self.file(model);
        let (from, to) = (self.offset(model, source), self.offset(model, inode));
        let len = self.random.below(self.taste.write_max);
        if self.random.below(100) < self.taste.mistakes {
            return Operation::Clone { inode, source, from, len, to };
        }
        let whole = |at: u64| at - at % 4096;
        let (size, target) = (model.size(source).unwrap_or(0), model.size(inode).unwrap_or(0));
        let (from, to) = (whole(from.min(size)), whole(to));
        // What is left of the source may end within a sector if the target does not go on.
        let is_end = to + (size - from) >= target;
        let len = if is_end && self.random.below(2) == 0 { 0 } else { whole(len.min(size - from)) };
        Operation::Clone { inode, source, from, len, to }
    }

    fn fallocation(&mut self) -> Fallocate {
        let keep_size = self.random.below(2) == 0;
        match self.random.below(5) {
            // A hole that is punched where there is one changes no time. The model does not know.
            0 | 1 if !self.taste.times => Fallocate::PunchHole,
            2 => Fallocate::ZeroRange { keep_size },
            _ => Fallocate::Allocate { keep_size },
        }
    }

    fn creation(&mut self, model: &Model, dir: u64) -> Operation {
        let name = self.name();
        let mode = self.random.below(0o1000) as u32;
        let kind = match self.random.below(20) {
            0..4 => FileType::Directory,
            4 => FileType::Fifo,
            5 => FileType::Socket,
            6..8 => {
                let len = 1 + self.random.below(60) as usize;
                return Operation::Symlink { dir, name, target: vec![b't'; len] };
            }
            8 if self.taste.subvolumes => match (self.random.below(4), self.sources(model)) {
                (0, _) => return Operation::CreateSubvolume { dir, name },
                (1, sources) if !sources.is_empty() => {
                    let source = sources[self.random.below(sources.len() as u64) as usize];
                    return Operation::Snapshot { source, dir, name };
                }
                _ => FileType::File,
            },
            9 => return Operation::Tmpfile { dir },
            _ => FileType::File,
        };
        Operation::Create { dir, name, kind, mode }
    }

    /// The roots of subvolumes that snapshots may be taken of.
    fn sources(&self, model: &Model) -> Vec<u64> {
        let mut sources = model.sources();
        sources.retain(|id| self.taste.root_is_subvolume || *id != ROOT);
        sources
    }

    fn removal(&mut self, model: &Model) -> Operation {
        let dir = self.directory(model);
        let name = self.taken(model, dir);
        let id = model.names(dir).ok().and_then(|names| names.get(&name)).copied();
        let is_dir = id.is_some_and(|id| matches!(model.nodes[&id].content, Content::Directory(_)));
        let subvolume = id.filter(|id| model.nodes[id].subvolume == *id);
        if let Some(id) = subvolume
            && model.may_be_deleted(id)
            && self.random.below(3) > 0
        {
            return Operation::DeleteSubvolume { dir, name };
        }
        // An empty one may have open files that have no name any more.
        let stays = subvolume.is_some_and(|id| !model.may_be_deleted(id));
        if (is_dir != self.mistaken()) && !stays {
            Operation::Rmdir { dir, name }
        } else {
            Operation::Unlink { dir, name }
        }
    }

    fn renaming(&mut self, model: &Model) -> Operation {
        let (from, to) = (self.directory(model), self.directory(model));
        let to = if self.random.below(3) == 0 { from } else { to };
        let name = self.taken(model, from);
        let new_name = if self.random.below(2) == 0 { self.taken(model, to) } else { self.name() };
        let mode = match self.random.below(10) {
            0 => RenameMode::NoReplace,
            1..3 => RenameMode::Exchange,
            3 => RenameMode::Whiteout,
            _ => RenameMode::Replace,
        };
        Operation::Rename { from, name, to, new_name, mode }
    }

    fn attribute(&mut self, model: &Model) -> Operation {
        let inode = self.inode(model, |_| true);
        // Linux keeps user attributes from all but files and directories.
        let plain = model
            .node(inode)
            .is_ok_and(|node| matches!(node.content, Content::File(_) | Content::Directory(_)));
        let space = if plain { "user" } else { "trusted" };
        let mut name = format!("{space}.a{}", self.random.below(6)).into_bytes();
        if self.mistaken() && self.random.below(3) == 0 {
            name = b"odd.name".to_vec();
        }
        if self.random.below(4) == 0 && !name.starts_with(b"odd") {
            return Operation::RemoveXattr { inode, name };
        }
        let len = match self.random.below(6) {
            0 => 0,
            1 => 1500,
            _ => self.random.below(100) as usize,
        };
        let mode = match self.random.below(6) {
            0 => XattrMode::Create,
            1 => XattrMode::Replace,
            _ => XattrMode::Any,
        };
        Operation::SetXattr { inode, name, value: content(len, self.random.next_u64()), mode }
    }

    fn opening(&mut self, model: &Model) -> Operation {
        let open: Vec<u64> =
            model.nodes.iter().filter(|(_, node)| node.opens > 0).map(|(id, _)| *id).collect();
        match self.pick(&open) {
            Some(inode) if open.len() > 6 || self.random.below(2) == 0 => Operation::Close { inode },
            _ => Operation::Open { inode: self.file(model) },
        }
    }
}
