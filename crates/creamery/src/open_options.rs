//! Options for opening files.

use std::path::Path;
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, InodeId, Result, Wait};

use crate::Filesystem;
use crate::file::{File, Rights};
use crate::filesystem::new_file;
use crate::fs::{self, Access, NewInode, OpenFile, SetAttributes};
use crate::path::{Last, at, means_directory, resolve_parent_of_target};

/// Options for opening a file, as [`std::fs::OpenOptions`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// use creamery::OpenOptions;
/// let log = OpenOptions::new().append(true).create(true).mode(0o600).open(&fs, "/log")?;
/// assert_eq!(log.metadata()?.permissions().mode(), 0o600);
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    /// Permission bits of a new file; the default ones if `None`.
    mode: Option<u32>,
    /// Whether the file is found even if its name is lost.
    past_damage: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

macro_rules! switches {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        $($(#[$doc])*
        pub const fn $name(&mut self, $name: bool) -> &mut Self {
            self.$name = $name;
            self
        })*
    };
}

impl OpenOptions {
    /// Options that allow nothing yet, as [`std::fs::OpenOptions::new`].
    ///
    /// ```
    /// let mut options = creamery::OpenOptions::new();
    /// options.read(true);
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: None,
            past_damage: false,
        }
    }

    switches! {
        /// Opens the file for reading, as [`std::fs::OpenOptions::read`].
        ///
        /// ```
        /// # let dir = tempfile::tempdir()?;
        /// # let image = dir.path().join("disk.img");
        /// # creamery::Image::make(&image).size(256 << 20).run()?;
        /// # let fs = creamery::Image::options().write().open(&image)?;
        /// use creamery::OpenOptions;
        /// fs.write("/file", "text")?;
        /// OpenOptions::new().read(true).open(&fs, "/file")?;
        /// # Ok::<(), creamery::Error>(())
        /// ```
        read,
        /// Opens the file for writing, as [`std::fs::OpenOptions::write`].
        ///
        /// ```
        /// # let dir = tempfile::tempdir()?;
        /// # let image = dir.path().join("disk.img");
        /// # creamery::Image::make(&image).size(256 << 20).run()?;
        /// # let fs = creamery::Image::options().write().open(&image)?;
        /// use creamery::OpenOptions;
        /// fs.write("/file", "text")?;
        /// OpenOptions::new().write(true).open(&fs, "/file")?.write_all_at(b"T", 0)?;
        /// assert_eq!(fs.read("/file")?, b"Text");
        /// # Ok::<(), creamery::Error>(())
        /// ```
        write,
        /// Opens the file for writing, with each [`Write::write`](std::io::Write::write) at the end, as [`std::fs::OpenOptions::append`].
        ///
        /// ```
        /// # let dir = tempfile::tempdir()?;
        /// # let image = dir.path().join("disk.img");
        /// # creamery::Image::make(&image).size(256 << 20).run()?;
        /// # let fs = creamery::Image::options().write().open(&image)?;
        /// use creamery::OpenOptions;
        /// use std::io::Write;
        /// fs.write("/log", "one ")?;
        /// OpenOptions::new().append(true).open(&fs, "/log")?.write_all(b"two")?;
        /// assert_eq!(fs.read("/log")?, b"one two");
        /// # Ok::<(), creamery::Error>(())
        /// ```
        append,
        /// Truncates an existing file to length 0, as [`std::fs::OpenOptions::truncate`].
        ///
        /// ```
        /// # let dir = tempfile::tempdir()?;
        /// # let image = dir.path().join("disk.img");
        /// # creamery::Image::make(&image).size(256 << 20).run()?;
        /// # let fs = creamery::Image::options().write().open(&image)?;
        /// use creamery::OpenOptions;
        /// fs.write("/file", "text")?;
        /// OpenOptions::new().write(true).truncate(true).open(&fs, "/file")?;
        /// assert!(fs.read("/file")?.is_empty());
        /// # Ok::<(), creamery::Error>(())
        /// ```
        truncate,
        /// Creates the file if it does not exist, as [`std::fs::OpenOptions::create`].
        ///
        /// ```
        /// # let dir = tempfile::tempdir()?;
        /// # let image = dir.path().join("disk.img");
        /// # creamery::Image::make(&image).size(256 << 20).run()?;
        /// # let fs = creamery::Image::options().write().open(&image)?;
        /// use creamery::OpenOptions;
        /// OpenOptions::new().write(true).create(true).open(&fs, "/file")?;
        /// assert!(fs.exists("/file"));
        /// # Ok::<(), creamery::Error>(())
        /// ```
        create,
        /// Creates the file, which must not exist, as [`std::fs::OpenOptions::create_new`].
        ///
        /// ```
        /// # let dir = tempfile::tempdir()?;
        /// # let image = dir.path().join("disk.img");
        /// # creamery::Image::make(&image).size(256 << 20).run()?;
        /// # let fs = creamery::Image::options().write().open(&image)?;
        /// use creamery::OpenOptions;
        /// fs.write("/file", "text")?;
        /// assert!(OpenOptions::new().write(true).create_new(true).open(&fs, "/file").is_err());
        /// # Ok::<(), creamery::Error>(())
        /// ```
        create_new,
    }

    /// Permission bits of a new file, as [`std::os::unix::fs::OpenOptionsExt::mode`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::OpenOptions;
    /// OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fs, "/secret")?;
    /// assert_eq!(fs.metadata("/secret")?.permissions().mode(), 0o600);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub const fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = Some(mode);
        self
    }

    pub(crate) const fn past_damage(&mut self) -> &mut Self {
        self.past_damage = true;
        self
    }

    /// Opens `path` in `fs`, as [`std::fs::OpenOptions::open`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::OpenOptions;
    /// let file = OpenOptions::new().append(true).create(true).open(&fs, "/log")?;
    /// # assert_eq!(file.metadata()?.len(), 0);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such file and `create` is off, when it is not a regular file, or when `create_new` finds the name taken.
    pub fn open(&self, fs: &Filesystem, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        let writes = self.write || self.append;
        if !self.read && !writes {
            return Err(at(path)(Error::invalid("opened for neither reading nor writing")));
        }
        if self.append && self.truncate && !self.create_new {
            return Err(at(path)(Error::invalid("append and truncate exclude each other")));
        }
        if (self.truncate || self.create || self.create_new) && !writes {
            return Err(Error::invalid(format!(
                "{}: creating or truncating needs write access",
                path.display()
            )));
        }
        if writes && fs.fs.engine().is_opened_for_reading() {
            fs.fs.engine().check_writable().map_err(at(path))?;
        }
        let open = match (self.create_new, self.create) {
            (true, _) => self.make(fs, path),
            // Creation comes first: usually the file does not exist yet. If creation fails, even because the filesystem is full, an
            // existing file can still be opened. For a link without a target, creation makes the target.
            (false, true) => self.make(fs, path).or_else(|refused| match self.find(fs, path) {
                _ if means_directory(path) => Err(refused),
                Err(error) if error.kind() == ErrorKind::NotFound => match refused.kind() {
                    ErrorKind::AlreadyExists => self.make_target(fs, path),
                    _ => Err(refused),
                },
                found => found,
            }),
            (false, false) => self.find(fs, path),
        }?;
        let (read, write, append) = (self.read, writes, self.append);
        Ok(File::new(fs.near(), open, Rights { read, write, append }))
    }

    fn find(&self, fs: &Filesystem, path: &Path) -> Result<Arc<OpenFile>> {
        let id = match self.past_damage {
            true => fs.resolve_past_damage(path, Last::Follow)?.0,
            false => fs.resolve(path, Last::Follow)?,
        };
        let open = || -> Result<Arc<OpenFile>> {
            match fs.fs.stat(id, Wait::Yes)?.kind {
                fs::FileType::Directory => return Err(ErrorKind::IsADirectory.into()),
                kind if crate::metadata::file_type(kind).is_file() => {}
                _ => return Err(Error::invalid("not a regular file")),
            }
            let access = match (self.write, self.append) {
                (_, true) => Access::Append,
                (true, false) => Access::Write,
                (false, false) => Access::Read,
            };
            let file = fs.fs.open_file_for(id, access)?;
            if self.truncate {
                fs.fs.set_attributes(id, &SetAttributes::truncate(0))?;
                fs.fs.remove_capabilities(id)?;
            }
            Ok(file)
        };
        open().map_err(at(path))
    }

    fn make(&self, fs: &Filesystem, path: &Path) -> Result<Arc<OpenFile>> {
        let (dir, name) = fs.resolve_parent_of_file(path, || ErrorKind::IsADirectory)?;
        fs.refuse_name_of_top_level(dir, name).map_err(at(path))?;
        self.make_in(fs, dir, name).map_err(at(path))
    }

    fn make_target(&self, fs: &Filesystem, path: &Path) -> Result<Arc<OpenFile>> {
        let (dir, name) = resolve_parent_of_target(&fs.fs, fs.root, path)?;
        fs.refuse_name_of_top_level(dir, &name).map_err(at(path))?;
        self.make_in(fs, dir, &name).map_err(at(path))
    }

    fn make_in(&self, fs: &Filesystem, dir: InodeId, name: &[u8]) -> Result<Arc<OpenFile>> {
        let new = self.mode.map_or_else(new_file, |mode| NewInode::file(mode & 0o7777));
        fs.fs.create_open(dir, name, &new).map(|(_, file)| file)
    }
}
