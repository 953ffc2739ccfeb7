//! The visible content of a filesystem: through the kernel's mount, and through the library.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use creamery::{Filesystem, Metadata, WalkEntry};

/// The inode number of the directory in a snapshot in place of a subvolume: its times in the kernel are those of the lookup.
const STUB: u64 = 2;

/// The visible attributes of one name.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Entry {
    /// The first character of `ls -l`.
    kind: char,
    mode: u32,
    owner: (u32, u32),
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// The size; for directories it depends on the filesystem.
    size: u64,
    links: u64,
    /// Bytes of a file, or the target of a link. `None` if they cannot be read.
    content: Option<Vec<u8>>,
}

/// A tree by its paths.
pub(crate) struct Seen {
    entries: BTreeMap<PathBuf, Entry>,
}

impl Seen {
    /// The content of `root` through the kernel.
    pub(crate) fn by_kernel(root: &Path) -> Result<Self> {
        let (mut entries, mut waiting) = (BTreeMap::new(), vec![PathBuf::from("/")]);
        while let Some(path) = waiting.pop() {
            let host = root.join(path.strip_prefix("/")?);
            let Ok(stat) = host.symlink_metadata() else { continue };
            let kind = stat.file_type();
            let (kind, content) = match () {
                () if kind.is_dir() => {
                    let Ok(names) = std::fs::read_dir(&host) else { continue };
                    waiting.extend(names.filter_map(|name| Some(path.join(name.ok()?.file_name()))));
                    ('d', Some(Vec::new()))
                }
                () if kind.is_symlink() => {
                    ('l', std::fs::read_link(&host).ok().map(|to| to.as_os_str().as_bytes().to_vec()))
                }
                () if kind.is_file() => ('-', std::fs::read(&host).ok()),
                () => bail!("{} is of a kind that nobody made", host.display()),
            };
            let of_directory = kind == 'd';
            let entry = Entry {
                kind,
                mode: stat.mode() & 0o7777,
                owner: (stat.uid(), stat.gid()),
                modified: if stat.ino() == STUB { (0, 0) } else { (stat.mtime(), stat.mtime_nsec()) },
                size: if of_directory { 0 } else { stat.size() },
                links: if of_directory { 1 } else { stat.nlink() },
                content,
            };
            entries.insert(path, entry);
        }
        Ok(Self { entries })
    }

    /// The content through the library, without names that cannot be read.
    pub(crate) fn by_us(fs: &Filesystem) -> Result<Self> {
        let mut entries = BTreeMap::new();
        for entry in fs.walk("/")?.flatten() {
            let Ok(stat) = entry.metadata() else { continue };
            let seen = Entry::of(fs, &entry, &stat);
            entries.insert(entry.path().to_owned(), seen);
        }
        Ok(Self { entries })
    }

    /// Whether all content could be read.
    pub(crate) fn is_whole(&self) -> bool {
        self.entries.values().all(|entry| entry.content.is_some())
    }

    /// All files, with their bytes if they can be read.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, Option<&[u8]>)> {
        let files = self.entries.iter().filter(|(_, entry)| entry.kind == '-');
        files.map(|(path, entry)| (path.as_path(), entry.content.as_deref()))
    }

    /// The bytes of the file at `path`, if it exists and can be read.
    pub(crate) fn content(&self, path: &Path) -> Option<&[u8]> {
        self.entries.get(path)?.content.as_deref()
    }

    /// Replaces the bytes of one file.
    pub(crate) fn with_content(mut self, path: &Path, content: Vec<u8>) -> Result<Self> {
        let entry = self.entries.get_mut(path).with_context(|| format!("no {}", path.display()))?;
        entry.content = Some(content);
        Ok(self)
    }

    pub(crate) fn copy(&self) -> Self {
        Self { entries: self.entries.clone() }
    }

    /// The common part of both.
    pub(crate) fn shared_with(&self, other: &Self) -> Self {
        let is_shared = |(path, entry): &(&PathBuf, &Entry)| other.entries.get(*path) == Some(*entry);
        let shared = self.entries.iter().filter(is_shared);
        Self { entries: shared.map(|(path, entry)| (path.clone(), entry.clone())).collect() }
    }

    /// The readable part.
    pub(crate) fn readable(&self) -> Self {
        let is_readable = |(_, entry): &(&PathBuf, &Entry)| entry.content.is_some();
        let readable = self.entries.iter().filter(is_readable);
        Self { entries: readable.map(|(path, entry)| (path.clone(), entry.clone())).collect() }
    }

    /// Expects that `other` contains all of this, unchanged.
    pub(crate) fn expect_within(&self, other: &Self) -> Result<()> {
        for (path, entry) in &self.entries {
            let have = other.entries.get(path);
            ensure!(have == Some(entry), "{}", difference(path, Some(entry), have));
        }
        Ok(())
    }
}

impl Entry {
    fn of(fs: &Filesystem, entry: &WalkEntry, stat: &Metadata) -> Self {
        let kind = stat.file_type().letter();
        let content = match kind {
            'd' => Some(Vec::new()),
            'l' => fs.read_link(entry.path()).ok().map(|to| to.as_os_str().as_bytes().to_vec()),
            _ => fs.read(entry.path()).ok(),
        };
        let of_directory = kind == 'd';
        Self {
            kind,
            mode: stat.mode() & 0o7777,
            owner: (stat.uid(), stat.gid()),
            modified: (stat.mtime().sec, stat.mtime().nsec.into()),
            size: if of_directory { 0 } else { stat.len() },
            links: if of_directory { 1 } else { stat.nlink().into() },
            content,
        }
    }
}

/// Expects equal content.
pub(crate) fn expect_same(what: &str, want: &Seen, have: &Seen) -> Result<()> {
    let paths: BTreeSet<&PathBuf> = want.entries.keys().chain(have.entries.keys()).collect();
    let differing = paths.into_iter().map(|path| (path, want.entries.get(path), have.entries.get(path)));
    let told: Vec<String> = differing
        .filter(|(_, want, have)| want != have)
        .map(|(path, want, have)| difference(path, want, have))
        .collect();
    ensure!(
        told.is_empty(),
        "{what}: {} differences\n  {}",
        told.len(),
        told[..told.len().min(8)].join("\n  ")
    );
    Ok(())
}

fn difference(path: &Path, want: Option<&Entry>, have: Option<&Entry>) -> String {
    let path = path.display();
    let (Some(want), Some(have)) = (want, have) else {
        return format!("{path}: {}", if want.is_some() { "missing" } else { "not wanted" });
    };
    match (&want.content, &have.content) {
        (Some(one), Some(other)) if one != other => {
            let at = one.iter().zip(other).position(|(one, other)| one != other);
            format!("{path}: {} and {} bytes that differ from {at:?} on", one.len(), other.len())
        }
        (Some(_), None) => format!("{path}: cannot be read"),
        (None, Some(_)) => format!("{path}: can be read"),
        _ => {
            let told = |entry: &Entry| format!("{:?}", Entry { content: None, ..entry.clone() });
            format!("{path}: {} and not {}", told(have), told(want))
        }
    }
}
