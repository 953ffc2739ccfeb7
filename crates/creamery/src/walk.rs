//! Walks a directory and everything below it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use creamery_base::{InodeId, Result, TreeId, Wait};

use crate::fs;
use crate::metadata::file_type;
use crate::path::at;
use crate::{FileType, Metadata, ReadDir};

/// An iterator over a directory and everything below it, parents before their children, the directory itself first. It goes on
/// after an error: one directory or entry is left out.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// fs.create_dir_all("/a/b")?;
/// fs.write("/a/b/c", "deep")?;
/// let paths: Result<Vec<_>, _> = fs.walk("/")?.map(|entry| entry.map(|e| e.path().to_owned())).collect();
/// assert_eq!(paths?, ["/", "/a", "/a/b", "/a/b/c"].map(std::path::PathBuf::from));
/// # Ok::<(), creamery::Error>(())
/// ```
pub struct Walk {
    fs: Arc<fs::Filesystem>,
    first: Option<WalkEntry>,
    levels: Vec<ReadDir>,
    /// Only entries of this subvolume are listed.
    within: Option<TreeId>,
    /// Deeper entries are left out.
    depth_max: usize,
}

/// An entry of a walk.
///
/// ```no_run
/// # fn example(fs: &creamery::Filesystem) -> creamery::Result<()> {
/// for entry in fs.walk("/")? {
///     let entry = entry?;
///     println!("{:indent$}{}", "", entry.path().display(), indent = entry.depth());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct WalkEntry {
    fs: Arc<fs::Filesystem>,
    path: PathBuf,
    pub(crate) id: InodeId,
    kind: FileType,
    depth: usize,
}

impl WalkEntry {
    /// The path where the walk began, and the names from there.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The type of the entry; symbolic links are not followed.
    #[must_use]
    pub const fn file_type(&self) -> FileType {
        self.kind
    }

    /// The depth of the entry: its levels below the beginning of the walk.
    #[must_use]
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// The metadata of the entry.
    ///
    /// # Errors
    /// When the entry no longer exists.
    pub fn metadata(&self) -> Result<Metadata> {
        self.fs.stat(self.id, Wait::Yes).map(Metadata::new).map_err(at(&self.path))
    }

    /// Lists the directory itself, even if another file has its path by now.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// let root = fs.walk("/")?.next().expect("it begins with the directory itself")?;
    /// assert!(root.read_dir()?.next().is_none());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the entry is not a directory, or no longer exists.
    pub fn read_dir(&self) -> Result<ReadDir> {
        ReadDir::new(Arc::clone(&self.fs), self.id, self.path.clone())
    }
}

impl Walk {
    pub(crate) fn new(fs: Arc<fs::Filesystem>, id: InodeId, path: PathBuf) -> Result<Self> {
        let kind = file_type(fs.stat(id, Wait::Yes).map_err(at(&path))?.kind);
        let first = WalkEntry { fs: Arc::clone(&fs), path, id, kind, depth: 0 };
        Ok(Self { fs, first: Some(first), levels: Vec::new(), within: None, depth_max: usize::MAX })
    }

    /// Leaves out the content of other subvolumes, including snapshots; their root directories are listed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.subvolumes().create("/home")?;
    /// fs.write("/home/file", "x")?;
    /// assert_eq!((fs.walk("/")?.count(), fs.walk("/")?.within_subvolume().count()), (3, 2));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn within_subvolume(mut self) -> Self {
        self.within = self.first.as_ref().map(|first| first.id.subvolume);
        self
    }

    /// Leaves out entries more than `depth` levels below the beginning, which has a depth of 0.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.create_dir_all("/a/b/c")?;
    /// assert_eq!(fs.walk("/")?.at_most(2).count(), 3);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn at_most(mut self, depth: usize) -> Self {
        self.depth_max = depth;
        self
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(first) = self.first.take() {
            if first.kind.is_dir() && self.depth_max > 0 {
                match ReadDir::new(Arc::clone(&self.fs), first.id, first.path.clone()) {
                    Ok(entries) => self.levels.push(entries),
                    Err(error) => return Some(Err(error)),
                }
            }
            return Some(Ok(first));
        }
        loop {
            let depth = self.levels.len();
            match self.levels.last_mut()?.next() {
                None => drop(self.levels.pop()),
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(entry)) => {
                    let is_left_out = self.within.is_some_and(|home| entry.id().subvolume != home);
                    if entry.file_type().is_dir() && !is_left_out && depth < self.depth_max {
                        match entry.read_dir() {
                            Ok(below) => self.levels.push(below),
                            Err(error) => return Some(Err(error)),
                        }
                    }
                    return Some(Ok(WalkEntry {
                        fs: Arc::clone(&self.fs),
                        path: entry.path(),
                        id: entry.id(),
                        kind: entry.file_type(),
                        depth,
                    }));
                }
            }
        }
    }
}
