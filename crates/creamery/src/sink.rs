//! Copies out of an image: one driver reads, and sinks make the files.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, InodeId, Result, Wait};
use creamery_mkfs::Skipped;

use crate::fs::Attributes;
use crate::metadata::xattrs_of;
use crate::path::at;
use crate::progress::{Lost, OnError, Progress};
use crate::read_dir::{DirEntry, ReadDir};
use crate::salvage::{Data, Salvage};
use crate::selection::Selection;
use crate::{File, FileType, Filesystem};

/// All of a source file except its data.
pub(crate) struct Source {
    pub(crate) attributes: Attributes,
    /// Empty unless the copy keeps them.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The target of a symbolic link.
    pub(crate) target: Vec<u8>,
}

impl Source {
    fn is_empty_link(&self) -> bool {
        self.attributes.kind == crate::fs::FileType::Symlink && self.target.is_empty()
    }
}

/// Attributes that copies keep beside data, names and permission bits.
#[derive(Clone, Copy)]
pub(crate) struct KeptAttributes {
    /// Owners, modes and times.
    pub(crate) metadata: bool,
    pub(crate) xattrs: bool,
    /// Hard links.
    pub(crate) links: bool,
}

impl KeptAttributes {
    /// Keeps everything, or nothing.
    pub(crate) const fn all(all: bool) -> Self {
        Self { metadata: all, xattrs: all, links: all }
    }
}

/// The destination of copies. A copy replaces an existing file; directories are merged.
pub(crate) trait Sink {
    /// A directory of the sink.
    type Dir;

    /// Whether the sink notices that a name exists.
    const KNOWS_NAMES: bool = true;

    /// Whether a symbolic link with an empty target can be made.
    const TAKES_EMPTY_LINKS: bool = false;

    /// Whether an existing entry `name` stays, so that a source which is not a directory is not copied.
    fn keeps(&self, parent: &Self::Dir, name: &[u8]) -> Result<bool> {
        let _ = (parent, name);
        Ok(false)
    }

    /// Makes a directory, or enters an existing one.
    fn enter(&mut self, parent: &Self::Dir, name: &[u8], source: &Source) -> Result<Self::Dir>;

    /// Sets the attributes of `dir`, which has its complete content.
    fn leave(&mut self, dir: Self::Dir, source: &Source) -> Result<()>;

    /// Makes a regular file with the content of `data`.
    fn file(&mut self, parent: &Self::Dir, name: &[u8], source: &Source, data: &Data<'_>) -> Result<()>;

    /// Makes a file without data: a symbolic link, fifo, socket or device.
    fn node(&mut self, parent: &Self::Dir, name: &[u8], source: &Source) -> Result<()>;

    /// The extended attributes that the last copy did not get, and why.
    fn take_left_out(&mut self) -> Vec<(Vec<u8>, Error)> {
        Vec::new()
    }

    /// Makes another name of an earlier copy of the source file. False when there is no earlier copy.
    fn link(&mut self, parent: &Self::Dir, name: &[u8], source: &Source) -> Result<bool>;
}

/// Copies the selected files from `from`; all files by default.
pub(crate) struct Driver<'a> {
    pub(crate) from: &'a Filesystem,
    pub(crate) keeps: KeptAttributes,
    pub(crate) on_error: OnError,
    pub(crate) selection: Option<&'a Selection>,
    pub(crate) progress: &'a dyn Progress,
}

struct SinkLevel<D> {
    entries: ReadDir,
    /// Hashes of the names so far, for a sink that does not know names. A damaged directory may have a name twice, and a program that
    /// unpacks the archive may follow the first one on the way to the second.
    names: HashSet<u64>,
    dir: D,
    source: Source,
    path: PathBuf,
}

impl Driver<'_> {
    /// Reads a source. Its directory's entry decides how an unreadable inode is handled.
    fn source(&self, salvage: &Salvage<'_>, id: InodeId, kind: FileType, path: &Path) -> Result<Source> {
        let fs = &self.from.fs;
        let (attributes, are_its_own) = salvage.attributes(fs, id, kind, path)?;
        let keeps_xattrs = self.keeps.xattrs && are_its_own;
        let xattrs = if keeps_xattrs { salvage.settle(path, Lost::Xattrs, xattrs_of(fs, id))? } else { None };
        let target = match attributes.kind {
            crate::fs::FileType::Symlink => fs.read_link(id, Wait::Yes)?,
            _ => Vec::new(),
        };
        Ok(Source { attributes, xattrs: xattrs.unwrap_or_default(), target })
    }

    /// Copies the file or tree `id` to `name` in `parent`; without a name, the content of the directory `id` goes into
    /// `parent` itself, which also gets its attributes. `kind` is the type that the directory entry records.
    pub(crate) fn copy<S: Sink>(
        &self,
        sink: &mut S,
        id: InodeId,
        kind: FileType,
        parent: S::Dir,
        name: Option<&[u8]>,
        path: &Path,
    ) -> Result<()> {
        let mut salvage = Salvage::new(self.on_error, self.progress);
        let source = self.source(&salvage, id, kind, path).map_err(at(path))?;
        let directory = source.attributes.kind == crate::fs::FileType::Directory;
        let dir = match name {
            Some(name) if !directory => {
                let made = self.leaf(sink, &salvage, &parent, name, &source, path);
                // The error of a single file is the whole result.
                return if salvage.passes_damage() {
                    salvage.settle(path, self.all_of(id), made).map(drop)
                } else {
                    made.map_err(at(path))
                };
            }
            Some(name) => sink.enter(&parent, name, &source).map_err(at(path))?,
            None => parent,
        };
        let entries = ReadDir::new(Arc::clone(&self.from.fs), id, path.to_owned())?;
        salvage.enters(id)?;
        self.progress.entry(path.as_os_str().as_encoded_bytes(), 0);
        let entries = if self.on_error == OnError::Stop { entries } else { entries.past_damage() };
        let mut levels =
            vec![SinkLevel { entries, names: HashSet::new(), dir, source, path: path.to_owned() }];
        let hashes = RandomState::new();
        while let Some(level) = levels.last_mut() {
            self.progress.go_on()?;
            let Some(entry) = level.entries.next() else {
                if salvage.finds_more(&mut level.entries) {
                    continue;
                }
                let SinkLevel { dir, source, path, .. } = levels.pop().expect("the level at hand");
                salvage.settle(&path, Lost::Xattrs, sink.leave(dir, &source))?;
                self.tell_left_out(sink, &path);
                continue;
            };
            let Some(entry) = salvage.settle(&level.path, Lost::Entries, entry)? else { continue };
            let path = entry.path();
            let is_new = S::KNOWS_NAMES || level.names.insert(hashes.hash_one(entry.file_name()));
            let outcome =
                match is_new {
                    true => self.entry(sink, &mut salvage, level, &entry, &path),
                    false => Err(Error::new(ErrorKind::Corrupt, "duplicate name in the directory")
                        .context(path.display())),
                };
            let lost =
                if outcome.is_err() { self.all_of(entry.id()) } else { Lost::Everything { size: None } };
            if let Some(Some(below)) = salvage.settle(&path, lost, outcome)? {
                levels.push(below);
            }
        }
        Ok(())
    }

    /// The loss of an inode that is not copied at all.
    fn all_of(&self, id: InodeId) -> Lost {
        let attributes = self.from.fs.stat(id, Wait::Yes).ok();
        let file = attributes.filter(|attributes| attributes.kind == crate::fs::FileType::File);
        Lost::Everything { size: file.map(|file| file.size) }
    }

    /// Copies an entry of a directory; the content of a directory comes later.
    fn entry<S: Sink>(
        &self,
        sink: &mut S,
        salvage: &mut Salvage<'_>,
        level: &SinkLevel<S::Dir>,
        entry: &DirEntry,
        path: &Path,
    ) -> Result<Option<SinkLevel<S::Dir>>> {
        let name = entry.file_name().as_encoded_bytes();
        if let Some(why) = self.selection.map_or(Ok(None), |only| only.skips(&self.from.fs, entry, path))? {
            self.progress.skipped(path.as_os_str().as_encoded_bytes(), why);
            return Ok(None);
        }
        let source = self.source(salvage, entry.id(), entry.file_type(), path)?;
        if !entry.file_type().is_dir() {
            self.leaf(sink, salvage, &level.dir, name, &source, path)?;
            return Ok(None);
        }
        let entries = match self.on_error {
            OnError::Stop => entry.read_dir(),
            OnError::NextFile => entry.read_dir().map(ReadDir::past_damage),
            OnError::PastDamage => entry.read_dir_past_damage(),
        }?;
        salvage.enters(entry.id())?;
        let dir = sink.enter(&level.dir, name, &source)?;
        self.progress.entry(path.as_os_str().as_encoded_bytes(), 0);
        Ok(Some(SinkLevel { entries, names: HashSet::new(), dir, source, path: path.to_owned() }))
    }

    /// Reports the extended attributes that the copy of `path` does not get.
    fn tell_left_out<S: Sink>(&self, sink: &mut S, path: &Path) {
        for (name, error) in sink.take_left_out() {
            self.progress.xattr_left_out(path.as_os_str().as_encoded_bytes(), &name, &error);
        }
    }

    /// Copies a file that is not a directory.
    fn leaf<S: Sink>(
        &self,
        sink: &mut S,
        salvage: &Salvage<'_>,
        parent: &S::Dir,
        name: &[u8],
        source: &Source,
        path: &Path,
    ) -> Result<()> {
        if sink.keeps(parent, name)? {
            self.progress.skipped(path.as_os_str().as_encoded_bytes(), Skipped::Taken);
            return Ok(());
        }
        let attributes = &source.attributes;
        let mut bytes = 0;
        if self.keeps.links && attributes.nlink > 1 && sink.link(parent, name, source)? {
            // A hard link has its data already.
        } else if crate::metadata::file_type(attributes.kind).is_file() {
            let file = File::for_reading(self.from.near(), self.from.fs.open_file(attributes.id)?);
            bytes = attributes.size;
            sink.file(parent, name, source, &Data { file: &file, path, size: bytes, salvage })?;
        } else if !S::TAKES_EMPTY_LINKS && source.is_empty_link() {
            // No system can make one. The others are copied, as by cp(1).
            let error = Error::unsupported("symbolic link with an empty target");
            self.progress.lost(path.as_os_str().as_encoded_bytes(), Lost::Everything { size: None }, &error);
            return Ok(());
        } else {
            match sink.node(parent, name, source) {
                // Only root makes devices. The others are copied, as by cp(1).
                Err(error) if error.is_on_host() && error.kind() == ErrorKind::PermissionDenied => {
                    self.progress.lost(
                        path.as_os_str().as_encoded_bytes(),
                        Lost::Everything { size: None },
                        &error,
                    );
                    return Ok(());
                }
                outcome => outcome?,
            }
        }
        self.tell_left_out(sink, path);
        self.progress.entry(path.as_os_str().as_encoded_bytes(), bytes);
        Ok(())
    }
}
