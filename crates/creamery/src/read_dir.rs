//! Listing a directory.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use creamery_base::{ErrorKind, InodeId, Result, Wait};

use crate::fs;
use crate::metadata::file_type;
use crate::path::at;
use crate::{FileType, Metadata};

/// Entries fetched at a time.
const BATCH: usize = 256;

/// The entries of a directory, without "." and "..".
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write(true).open(&image)?;
/// fs.create_dir("/milk")?;
/// let names: Result<Vec<_>, _> = fs.read_dir("/")?.map(|entry| entry.map(|e| e.file_name().to_owned())).collect();
/// assert_eq!(names?, ["milk"]);
/// # Ok::<(), creamery::Error>(())
/// ```
pub struct ReadDir {
    fs: Arc<fs::Filesystem>,
    id: InodeId,
    path: PathBuf,
    offset: u64,
    ready: VecDeque<DirEntry>,
    done: bool,
}

/// One of them.
///
/// ```no_run
/// # fn example(fs: &creamery::Filesystem) -> creamery::Result<()> {
/// for entry in fs.read_dir("/")? {
///     let entry = entry?;
///     println!("{} {}", entry.metadata()?.len(), entry.path().display());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DirEntry {
    fs: Arc<fs::Filesystem>,
    dir: PathBuf,
    dir_id: InodeId,
    name: OsString,
    pub(crate) id: InodeId,
    kind: FileType,
}

impl DirEntry {
    /// Its name.
    #[must_use]
    pub fn file_name(&self) -> &OsStr {
        &self.name
    }

    /// The path of the directory as it was given, with the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }

    /// What it is; symbolic links are not followed.
    #[must_use]
    pub const fn file_type(&self) -> FileType {
        self.kind
    }

    /// Lists it, if it is a directory and still has its name. Looking it up again is what keeps a walk from going in
    /// circles in a damaged filesystem.
    pub(crate) fn read_dir(&self) -> Result<ReadDir> {
        let path = self.path();
        let found = self.fs.lookup(self.dir_id, self.name.as_bytes(), Wait::Yes).map_err(at(&path))?;
        if found != self.id {
            return Err(at(&path)(ErrorKind::NotFound.into()));
        }
        ReadDir::new(Arc::clone(&self.fs), self.id, path)
    }

    /// What is known about it; symbolic links are not followed.
    ///
    /// # Errors
    /// When it is gone by now.
    pub fn metadata(&self) -> Result<Metadata> {
        self.fs.stat(self.id, Wait::Yes).map(Metadata::new).map_err(at(&self.path()))
    }
}

impl ReadDir {
    pub(crate) fn new(fs: Arc<fs::Filesystem>, id: InodeId, path: PathBuf) -> Result<Self> {
        let kind = fs.stat(id, Wait::Yes).map_err(at(&path))?.kind;
        if kind != fs::FileType::Directory {
            return Err(at(&path)(ErrorKind::NotADirectory.into()));
        }
        Ok(Self { fs, id, path, offset: 0, ready: VecDeque::new(), done: false })
    }

    /// The directory that is listed.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn fetch(&mut self) -> Result<()> {
        let (fs, dir, ready, offset) = (&self.fs, &self.path, &mut self.ready, &mut self.offset);
        let (mut taken, dir_id) = (0, self.id);
        fs.read_dir(self.id, *offset, Wait::Yes, &mut |entry| {
            if taken == BATCH {
                return ControlFlow::Break(());
            }
            taken += 1;
            *offset = entry.next_offset;
            if entry.name != b"." && entry.name != b".." {
                ready.push_back(DirEntry {
                    fs: Arc::clone(fs),
                    dir: dir.clone(),
                    dir_id,
                    name: OsString::from_vec(entry.name.to_vec()),
                    id: entry.id,
                    kind: file_type(entry.kind),
                });
            }
            ControlFlow::Continue(())
        })
        .map_err(at(&self.path))?;
        self.done = taken < BATCH;
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.done {
            if let Err(error) = self.fetch() {
                self.done = true;
                return Some(Err(error));
            }
        }
        self.ready.pop_front().map(Ok)
    }
}
