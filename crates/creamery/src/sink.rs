//! Copying out of an image: one driver that reads, and sinks that make files somewhere else.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use creamery_base::{InodeId, Result, Wait};

use crate::fs::Attributes;
use crate::path::at;
use crate::read_dir::ReadDir;
use crate::{File, Filesystem, Progress};

/// Everything about a source file but its data.
pub(crate) struct Source {
    pub(crate) attributes: Attributes,
    /// Empty unless they are kept.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Of a symbolic link.
    pub(crate) target: Vec<u8>,
}

/// Where copies are made. A name that is taken is replaced; directories are merged.
pub(crate) trait Sink {
    /// A directory of the sink.
    type Dir;

    /// Makes a directory, or goes into the one that is there.
    fn enter(&mut self, parent: &Self::Dir, name: &[u8], source: &Source) -> Result<Self::Dir>;

    /// Everything is in `dir`: gives it its attributes.
    fn leave(&mut self, dir: Self::Dir, source: &Source) -> Result<()>;

    /// Makes a regular file with the content of `data`.
    fn file(&mut self, parent: &Self::Dir, name: &[u8], source: &Source, data: &File) -> Result<()>;

    /// Makes what has no data: symbolic links, fifos, sockets, devices.
    fn node(&mut self, parent: &Self::Dir, name: &[u8], source: &Source) -> Result<()>;

    /// Makes another name of a source file that was copied before. False when it was not.
    fn link(&mut self, parent: &Self::Dir, name: &[u8], source: &Source) -> Result<bool>;
}

/// Copies from `from`, reading with all attributes (`archive`) or only what the data needs.
pub(crate) struct Driver<'a> {
    pub(crate) from: &'a Filesystem,
    pub(crate) archive: bool,
    pub(crate) progress: &'a dyn Progress,
}

struct Level<D> {
    entries: ReadDir,
    dir: D,
    source: Source,
    path: PathBuf,
}

impl Driver<'_> {
    fn source(&self, id: InodeId) -> Result<Source> {
        let fs = &self.from.fs;
        let attributes = fs.stat(id, Wait::Yes)?;
        let mut xattrs = Vec::new();
        if self.archive {
            for name in fs.list_xattrs(id, Wait::Yes)? {
                let value = fs.get_xattr(id, &name, Wait::Yes)?;
                xattrs.push((name, value));
            }
        }
        let target = match attributes.kind {
            crate::fs::FileType::Symlink => fs.read_link(id, Wait::Yes)?,
            _ => Vec::new(),
        };
        Ok(Source { attributes, xattrs, target })
    }

    /// Copies the file or tree `id` to `name` in `parent`; without a name, the content of the directory `id` goes into
    /// `parent` itself, which also gets its attributes.
    pub(crate) fn copy<S: Sink>(
        &self,
        sink: &mut S,
        id: InodeId,
        parent: S::Dir,
        name: Option<&[u8]>,
        path: &Path,
    ) -> Result<()> {
        let source = self.source(id).map_err(at(path))?;
        let directory = source.attributes.kind == crate::fs::FileType::Directory;
        let dir = match name {
            Some(name) if !directory => return self.leaf(sink, &parent, name, &source, path),
            Some(name) => sink.enter(&parent, name, &source).map_err(at(path))?,
            None => parent,
        };
        let entries = ReadDir::new(Arc::clone(&self.from.fs), id, path.to_owned())?;
        self.progress.entry(path.as_os_str().as_encoded_bytes(), 0);
        let mut levels = vec![Level { entries, dir, source, path: path.to_owned() }];
        while let Some(level) = levels.last_mut() {
            let Some(entry) = level.entries.next().transpose()? else {
                let Level { dir, source, path, .. } = levels.pop().expect("the level at hand");
                sink.leave(dir, &source).map_err(at(&path))?;
                continue;
            };
            let (path, name) = (entry.path(), entry.file_name().as_encoded_bytes());
            let source = self.source(entry.id()).map_err(at(&path))?;
            if entry.file_type().is_dir() {
                let entries = entry.read_dir()?;
                let dir = sink.enter(&level.dir, name, &source).map_err(at(&path))?;
                self.progress.entry(path.as_os_str().as_encoded_bytes(), 0);
                levels.push(Level { entries, dir, source, path });
            } else {
                self.leaf(sink, &level.dir, name, &source, &path)?;
            }
        }
        Ok(())
    }

    fn leaf<S: Sink>(
        &self,
        sink: &mut S,
        parent: &S::Dir,
        name: &[u8],
        source: &Source,
        path: &Path,
    ) -> Result<()> {
        let mut make = || -> Result<u64> {
            let attributes = &source.attributes;
            if self.archive && attributes.nlink > 1 && sink.link(parent, name, source)? {
                return Ok(0);
            }
            if !crate::metadata::file_type(attributes.kind).is_file() {
                sink.node(parent, name, source)?;
                return Ok(0);
            }
            let fs = &self.from.fs;
            let data = File::for_reading(self.from.near(), fs.open_file(attributes.id)?);
            sink.file(parent, name, source, &data)?;
            Ok(attributes.size)
        };
        let bytes = make().map_err(at(path))?;
        self.progress.entry(path.as_os_str().as_encoded_bytes(), bytes);
        Ok(())
    }
}

/// Shows `each` piece of data of `file` with its offset, and passes over holes.
pub(crate) fn for_each_piece(
    file: &File,
    len: u64,
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    const PIECE: u64 = 1 << 20;
    let mut buffer = Vec::new();
    let mut at = 0;
    while at < len
        && let Some(start) = file.seek_data(at)?
    {
        let end = file.seek_hole(start)?.unwrap_or(len).min(len);
        at = start;
        while at < end {
            let want = usize::try_from((end - at).min(PIECE)).expect("a piece fits in memory");
            buffer.resize(want, 0);
            let count = file.read_at(&mut buffer, at)?;
            if count == 0 {
                return Ok(()); // it became shorter meanwhile
            }
            each(at, &buffer[..count])?;
            at += count as u64;
        }
        at = at.max(end);
    }
    Ok(())
}
