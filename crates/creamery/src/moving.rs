//! Moves and links files, with the additions of mv(1) and ln(1) to rename(2) and link(2).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use creamery_base::{Error, ErrorKind, Result};

use crate::Filesystem;
use crate::copy::CopyOptions;
use crate::path::{Last, at};

/// Options for moving and linking onto an existing name.
///
/// ```
/// assert!(!creamery::copy::NameOptions::default().exact);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NameOptions {
    /// The new name is exactly the given one, even if a directory has it: the file does not go into that directory.
    pub exact: bool,
    /// A symbolic link to a directory is not followed: the file does not go into its target.
    pub no_dereference: bool,
    /// A file that has the new name stays, and the operation has no effect.
    pub keep: bool,
    /// A link replaces a file that has the new name, unless that is a directory. (A move replaces it in any case.)
    pub replace: bool,
}

fn same_file(from: &Path, to: &Path) -> Error {
    at(from)(Error::invalid(format!("same file as {}", to.display())))
}

impl NameOptions {
    /// Moves or renames like mv(1): into `to`, if that is a directory, also from one subvolume to another. Returns whether
    /// the file was moved.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.create_dir("/old")?;
    /// fs.write("/notes", "milk")?;
    /// creamery::copy::NameOptions::default().rename(&fs, "/notes", "/old")?;
    /// assert_eq!(fs.read("/old/notes")?, b"milk");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of rename(2), and an error when both names are the same file. A move between subvolumes copies the file beside its new name,
    /// gives the complete copy that name, and then removes the source; if the removal fails, both exist.
    pub fn rename(self, fs: &Filesystem, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<bool> {
        fs.move_to(from.as_ref(), to.as_ref(), self)
    }

    /// Gives the file `original` one more name, like ln(1): inside `link`, if that is a directory. A symbolic link `original` is not
    /// followed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.create_dir("/dir")?;
    /// creamery::copy::NameOptions::default().hard_link(&fs, "/file", "/dir")?;
    /// assert!(fs.exists("/dir/file"));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the file is a directory or lies in another subvolume, or the name is taken.
    pub fn hard_link(
        self,
        fs: &Filesystem,
        original: impl AsRef<Path>,
        link: impl AsRef<Path>,
    ) -> Result<()> {
        fs.hard_link_to(original.as_ref(), link.as_ref(), self)
    }

    /// Makes a symbolic link to `target`, like `ln -s`: inside `link`, if that is a directory.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::copy::NameOptions;
    /// fs.create_dir("/bin")?;
    /// NameOptions::default().symlink(&fs, "../usr/bin/vi", "/bin")?;
    /// assert_eq!(fs.read_link("/bin/vi")?, std::path::Path::new("../usr/bin/vi"));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the name is taken or the target is longer than the filesystem's nodes allow.
    pub fn symlink(self, fs: &Filesystem, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        fs.symlink_to(target.as_ref(), link.as_ref(), self)
    }
}

impl Filesystem {
    /// Returns the new path of a file called `name` that is moved to `to`.
    fn name_for(&self, name: Option<&OsStr>, to: &Path, options: NameOptions) -> Result<PathBuf> {
        let is_link = || self.symlink_metadata(to).is_ok_and(|meta| meta.is_symlink());
        let goes_into = !options.exact
            && self.metadata(to).is_ok_and(|meta| meta.is_dir())
            && !(options.no_dereference && is_link());
        match name {
            Some(name) if goes_into => Ok(to.join(name)),
            None if goes_into => Err(at(to)(Error::invalid("the source path has no file name"))),
            _ => Ok(to.to_owned()),
        }
    }

    /// See [`NameOptions::rename`].
    pub(crate) fn move_to(&self, from: &Path, to: &Path, options: NameOptions) -> Result<bool> {
        let to = self.name_for(from.file_name(), to, options)?;
        let moved = self.symlink_metadata(from)?;
        if let Ok(there) = self.symlink_metadata(&to) {
            if options.keep {
                return Ok(false);
            }
            if (there.ino(), there.subvolume()) == (moved.ino(), moved.subvolume()) {
                return Err(same_file(from, &to));
            }
            if there.is_dir() && !moved.is_dir() {
                let what = format!("cannot replace directory {} with a non-directory", to.display());
                return Err(at(from)(Error::new(ErrorKind::IsADirectory, what)));
            }
        }
        match self.rename(from, &to) {
            Err(error) if error.kind() == ErrorKind::CrossDevice => self.move_by_copying(from, &to)?,
            outcome => outcome?,
        }
        Ok(true)
    }

    /// Moves between subvolumes by a copy with shared data. The complete copy takes the name like in rename(2); until then
    /// an existing file keeps it.
    fn move_by_copying(&self, from: &Path, to: &Path) -> Result<()> {
        // Errors at the end of the move are better reported before the copy.
        let (parent, _) = self.resolve_parent(from)?;
        if self.fs.subvolume_info(parent.subvolume)?.is_read_only() {
            let error = Error::new(ErrorKind::ReadOnly, "its subvolume is read-only");
            return Err(at(from)(error.advise("`creamery property set PATH ro false` makes it writable")));
        }
        self.refuse_full_directory(to)?;
        let beside = self.free_name_beside(to);
        let everything = CopyOptions { recursive: true, archive: true, ..CopyOptions::default() };
        let copied = self.copy_between(from, self, &beside).options(everything).run();
        if let Err(error) = copied.and_then(|()| self.rename(&beside, to)) {
            // The copy may not exist yet; a further error adds nothing.
            let _ = self.remove_whatever(&beside);
            return Err(error);
        }
        self.remove_whatever(from)
    }

    /// Rejects a target that is a directory with entries.
    fn refuse_full_directory(&self, to: &Path) -> Result<()> {
        let Ok(there) = self.symlink_metadata(to) else { return Ok(()) };
        match there.is_dir() && self.read_dir(to)?.next().is_some() {
            true => Err(at(to)(ErrorKind::DirectoryNotEmpty.into())),
            false => Ok(()),
        }
    }

    /// An unused name in the directory of `to`.
    fn free_name_beside(&self, to: &Path) -> PathBuf {
        let names = (0_u64..).map(|number| to.with_file_name(format!(".moving-{number}")));
        let mut free = names.filter(|name| self.symlink_metadata(name).is_err());
        free.next().expect("no directory has so many entries")
    }

    fn remove_whatever(&self, path: &Path) -> Result<()> {
        if self.symlink_metadata(path)?.is_dir() { self.remove_dir_all(path) } else { self.remove_file(path) }
    }

    /// See [`NameOptions::hard_link`].
    pub(crate) fn hard_link_to(&self, original: &Path, link: &Path, options: NameOptions) -> Result<()> {
        let link = self.name_for(original.file_name(), link, options)?;
        let id = self.resolve(original, Last::Keep)?;
        if self.symlink_metadata(original)?.is_dir() {
            return Err(at(original)(Error::new(
                ErrorKind::IsADirectory,
                "hard link not allowed for directory",
            )));
        }
        if options.replace && self.resolve(&link, Last::Keep).is_ok_and(|there| there == id) {
            return Err(same_file(original, &link));
        }
        self.link_replacing(&link, options, |link| self.hard_link(original, link))
    }

    /// See [`NameOptions::symlink`].
    pub(crate) fn symlink_to(&self, target: &Path, link: &Path, options: NameOptions) -> Result<()> {
        let link = self.name_for(target.file_name(), link, options)?;
        self.link_replacing(&link, options, |link| self.symlink(target, link))
    }

    /// Makes a link, in place of an existing file if the options say so.
    fn link_replacing(
        &self,
        link: &Path,
        options: NameOptions,
        make: impl Fn(&Path) -> Result<()>,
    ) -> Result<()> {
        if !options.replace {
            return make(link);
        }
        let (dir, name) = self.resolve_parent(link)?;
        let called = |name: &[u8]| make(&link.with_file_name(OsStr::from_bytes(name)));
        let ((), replacing) = self.fs.make_or_replace(dir, name, 0, called)?;
        replacing.finish().map_err(at(link))
    }
}
