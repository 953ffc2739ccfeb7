//! All visible content of a filesystem's files, as a value that can be compared.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};
use std::ops::ControlFlow;

use anyhow::{Context, Result, bail, ensure};
use creamery_base::{InodeId, TreeId, Wait};
use creamery_fs::{FileType, Filesystem};

use crate::operation::time_set;

/// The depth of directories in tests; a deeper one means a cycle.
const DEPTH_MAX: usize = 64;

/// The visible content of one path.
///
/// ```
/// use creamery_sim::Entry;
/// fn is_empty(entry: &Entry) -> bool {
///     entry.size == 0
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The kind of file.
    pub kind: FileType,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The number of names.
    pub nlink: u32,
    /// Bytes of the data or the target; for a directory twice the bytes of its names.
    pub size: u64,
    /// The second of the last modification if it was set; `None` if a change set it.
    pub mtime: Option<u32>,
    /// Hash of the data or target.
    pub content: u64,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path of the same inode.
    pub first: Vec<u8>,
}

/// All paths from the root of the default subvolume, with their content.
///
/// ```
/// let snapshot = creamery_sim::Snapshot::default();
/// assert!(snapshot.entries.is_empty());
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// Entries by path; the root's path is empty.
    pub entries: BTreeMap<Vec<u8>, Entry>,
}

/// The hash of file content, as in [`Entry::content`].
#[must_use]
pub fn hash_of(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, b"/", name].concat() }
}

/// The result of a walk, and the inode of each path.
pub(crate) struct Walked {
    pub(crate) snapshot: Snapshot,
    pub(crate) ids: BTreeMap<Vec<u8>, InodeId>,
    /// Contents by path, if the caller asks for them.
    pub(crate) contents: BTreeMap<Vec<u8>, Vec<u8>>,
}

struct Walker<'a> {
    fs: &'a Filesystem,
    keep: bool,
    found: Walked,
}

/// The visible content of `fs` from the root of the default subvolume. No file may be open: an inode without a path is an error.
///
/// # Errors
/// A file cannot be read, or an inode has no path.
pub fn snapshot(fs: &Filesystem) -> Result<Snapshot> {
    walk(fs, false).map(|walked| walked.snapshot)
}

/// Walks everything below a directory, and allows inodes without a path: they may be open.
pub(crate) fn walk_only(fs: &Filesystem, root: InodeId) -> Result<Snapshot> {
    visit_all(fs, root, false).map(|found| found.snapshot)
}

/// Walks everything from the root of the default subvolume, by listing and by looking up, and reads all data. No file may be open: once the
/// cleaner is done, an inode without a path is an error.
pub(crate) fn walk(fs: &Filesystem, keep: bool) -> Result<Walked> {
    let root = fs.root(fs.default_subvolume()).context("the root")?;
    let found = visit_all(fs, root, keep)?;
    fs.clean();
    let subvolumes: BTreeSet<TreeId> = found.ids.values().map(|id| id.subvolume).collect();
    subvolumes.into_iter().try_for_each(|id| check_inode_count(fs, id, &found))?;
    Ok(found)
}

fn visit_all(fs: &Filesystem, root: InodeId, keep: bool) -> Result<Walked> {
    let found = Walked { snapshot: Snapshot::default(), ids: BTreeMap::new(), contents: BTreeMap::new() };
    let mut walker = Walker { fs, keep, found };
    walker.visit(&[], root, 0)?;
    let mut firsts = HashMap::new();
    for (path, id) in &walker.found.ids {
        let first = firsts.entry(*id).or_insert(path);
        walker.found.snapshot.entries.get_mut(path).expect("visited").first.clone_from(first);
    }
    Ok(walker.found)
}

impl Walker<'_> {
    fn visit(&mut self, path: &[u8], id: InodeId, depth: usize) -> Result<()> {
        let shown = || format!("/{}", String::from_utf8_lossy(path));
        let entry = self.entry(path, id).with_context(shown)?;
        ensure!(depth < DEPTH_MAX, "{} is too deep", shown());
        let is_dir = entry.kind == FileType::Directory;
        self.found.ids.insert(path.to_vec(), id);
        self.found.snapshot.entries.insert(path.to_vec(), entry);
        if !is_dir {
            return Ok(());
        }
        let mut names = Vec::new();
        let listed = self.fs.read_dir(id, 0, Wait::Yes, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                names.push((entry.name.to_vec(), entry.id, entry.kind));
            }
            ControlFlow::Continue(())
        });
        listed.with_context(shown)?;
        for (name, child, kind) in names {
            let full = join(path, &name);
            let shown = || format!("/{}", String::from_utf8_lossy(&full));
            let found = self.fs.lookup(id, &name, Wait::Yes).with_context(shown)?;
            ensure!(found == child, "{}: listed as {child}, looked up as {found}", shown());
            self.visit(&full, child, depth + 1)?;
            let visited = self.found.snapshot.entries[&full].kind;
            ensure!(visited == kind, "{}: listed as {kind:?}, it is {visited:?}", shown());
        }
        Ok(())
    }

    fn entry(&mut self, path: &[u8], id: InodeId) -> Result<Entry> {
        let attributes = self.fs.stat(id, Wait::Yes)?;
        let mut xattrs = BTreeMap::new();
        for name in self.fs.list_xattrs(id, Wait::Yes)? {
            let value = self.fs.get_xattr(id, &name, Wait::Yes)?;
            ensure!(xattrs.insert(name, value).is_none(), "an attribute is listed twice");
        }
        let content = match attributes.kind {
            FileType::File => {
                let data = read_all(self.fs, id, attributes.size)?;
                let hash = hash_of(&[&data]);
                if self.keep {
                    self.found.contents.insert(path.to_vec(), data);
                }
                hash
            }
            FileType::Symlink => {
                let target = self.fs.read_link(id, Wait::Yes)?;
                let hash = hash_of(&[&target]);
                if self.keep {
                    self.found.contents.insert(path.to_vec(), target);
                }
                hash
            }
            _ => 0,
        };
        Ok(Entry {
            kind: attributes.kind,
            mode: attributes.mode & 0o7777,
            uid: attributes.uid,
            gid: attributes.gid,
            nlink: attributes.nlink,
            size: attributes.size,
            mtime: time_set(attributes.times.modification.sec),
            content,
            xattrs,
            first: Vec::new(),
        })
    }
}

/// The visible content of a damaged filesystem, and the errors met on the way. Links are not followed up.
///
/// # Errors
/// Not even the root can be read.
pub fn walk_damaged(fs: &Filesystem) -> creamery_base::Result<(Snapshot, Vec<creamery_base::Error>)> {
    let root = fs.root(fs.default_subvolume())?;
    let found = Walked { snapshot: Snapshot::default(), ids: BTreeMap::new(), contents: BTreeMap::new() };
    let mut walker = Walker { fs, keep: false, found };
    let mut errors = Vec::new();
    let mut left = vec![(Vec::new(), root)];
    while let Some((path, id)) = left.pop() {
        match walker.entry(&path, id) {
            Ok(entry) => {
                walker.found.snapshot.entries.insert(path.clone(), entry);
            }
            Err(error) => errors.push(into_engine_error(error)),
        }
        let listed = fs.read_dir(id, 0, Wait::Yes, &mut |entry| {
            if entry.name != b"." && entry.name != b".." {
                left.push((join(&path, entry.name), entry.id));
            }
            ControlFlow::Continue(())
        });
        match listed {
            Err(error) if error.kind() != creamery_base::ErrorKind::NotADirectory => errors.push(error),
            _ => {}
        }
    }
    Ok((walker.found.snapshot, errors))
}

fn into_engine_error(error: anyhow::Error) -> creamery_base::Error {
    match error.downcast::<creamery_base::Error>() {
        Ok(error) => error,
        Err(other) => panic!("no error of the engine: {other:#}"),
    }
}

fn read_all(fs: &Filesystem, id: InodeId, size: u64) -> Result<Vec<u8>> {
    const SIZE_MAX: u64 = 64 << 20;
    ensure!(size <= SIZE_MAX, "{size} bytes are more than any test writes");
    let file = fs.open_file(id)?;
    let mut data = vec![0; usize::try_from(size)? + 1];
    let read = file.read_at(0, &mut data, Wait::Yes)?;
    ensure!(read as u64 == size, "{read} bytes can be read, the size is {size}");
    data.truncate(read);
    Ok(data)
}

/// Checks that no inode without a path and no orphan item exists, once the cleaner is done with a subvolume.
fn check_inode_count(fs: &Filesystem, subvolume: TreeId, found: &Walked) -> Result<()> {
    use creamery_format::{Key, KeyType};
    let named: BTreeSet<_> =
        found.ids.values().filter(|id| id.subvolume == subvolume).map(|id| id.ino).collect();
    let tree = fs.engine().tree(subvolume)?;
    let mut cursor = tree.cursor(&Key::new(0.into(), KeyType::new(0), 0), Wait::Yes)?;
    let mut inodes = 0;
    while let Some((key, _)) = cursor.item() {
        if key.kind == KeyType::ORPHAN_ITEM {
            bail!("subvolume {subvolume}: the orphan {} was left behind", key.offset);
        }
        if key.kind == KeyType::INODE_ITEM {
            ensure!(
                named.contains(&key.objectid),
                "subvolume {subvolume}: no path leads to inode {}",
                key.objectid
            );
            inodes += 1;
        }
        cursor.advance()?;
    }
    ensure!(inodes == named.len(), "subvolume {subvolume}: {inodes} inode items, {} inodes", named.len());
    Ok(())
}

fn shown(entry: Option<&Entry>) -> String {
    const LONGEST: usize = 400;
    format!("{entry:?}").chars().take(LONGEST).collect()
}

impl Snapshot {
    /// This snapshot with every path as the first of its inode: for files without other names.
    #[must_use]
    pub fn with_firsts(mut self) -> Self {
        self.entries.iter_mut().for_each(|(path, entry)| entry.first.clone_from(path));
        self
    }

    /// The first difference to `other`, in words; `None` if they are equal.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        const SHOWN: usize = 5;
        let mut text = String::new();
        let mut count = 0;
        let paths: BTreeSet<&Vec<u8>> = self.entries.keys().chain(other.entries.keys()).collect();
        for path in paths {
            let (mine, theirs) = (self.entries.get(path), other.entries.get(path));
            if mine == theirs {
                continue;
            }
            count += 1;
            if count <= SHOWN {
                let name = String::from_utf8_lossy(path);
                let _ = match (mine, theirs) {
                    (Some(_), None) => writeln!(text, "  /{name} is missing"),
                    (None, Some(found)) => writeln!(text, "  /{name} should not be there: {found:?}"),
                    _ => {
                        writeln!(text, "  /{name}\n    wanted {}\n    found  {}", shown(mine), shown(theirs))
                    }
                };
            }
        }
        (count > 0).then(|| format!("{count} differences:\n{text}"))
    }
}
