//! Paths that begin in a default subvolume that the caller did not choose.
//!
//! A filesystem whose default subvolume is not the top level usually has its subvolumes side by side at the top level (`@`, `@home`). A
//! path that means one of those and begins in the default subvolume would make a directory of that name inside it. Such a name is rejected.

use std::ffi::OsString;
use std::path::Path;

use creamery_base::{Error, ErrorKind, Escaped, InodeId, ObjectId, Result, TreeId, Wait};

use crate::Filesystem;
use crate::beginning::TOP_LEVEL;
use crate::path::{Last, at};
use crate::subvolumes::Subvolumes;

impl Subvolumes<'_> {
    /// Returns a sentence for a list of subvolumes that says where paths begin, if no subvolume was chosen and the default one is
    /// not the top level.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::Image;
    /// use creamery::subvolume::TOP_LEVEL;
    /// fs.subvolumes().create("/@")?;
    /// fs.subvolumes().create("/@home")?;
    /// fs.subvolumes().set_default(fs.subvolumes().id_at("/@")?)?;
    /// assert_eq!(fs.subvolumes().why_paths_begin_below(), None);
    /// fs.close()?;
    /// let fs = Image::options().write().open(&image)?;
    /// assert!(fs.subvolumes().why_paths_begin_below().is_some_and(|note| note.contains(TOP_LEVEL)));
    /// assert!(!fs.exists("/@home") && fs.exists("<FS_TREE>/@home"));
    /// assert!(fs.create_dir("/@home").is_err());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn why_paths_begin_below(self) -> Option<String> {
        let default = self.opened();
        self.0.begins_by_default().then(|| {
            format!(
                "paths begin in the default subvolume {default}; {TOP_LEVEL}/PATH begins at the top level"
            )
        })
    }
}

impl Filesystem {
    /// Whether paths begin in the default subvolume without the caller's choice, and it is not the top level.
    fn begins_by_default(&self) -> bool {
        self.is_default && self.root.subvolume != TreeId::FS
    }

    /// Adds to the error of a path without a target where the path began.
    pub(crate) fn with_beginning(&self, path: &Path, error: Error) -> Error {
        if error.kind() != ErrorKind::NotFound || !self.begins_by_default() || path.starts_with(TOP_LEVEL) {
            return error;
        }
        let (default, rest) = (self.root.subvolume, path.strip_prefix("/").unwrap_or(path));
        let what = format!(
            "paths begin in the default subvolume {default}; {TOP_LEVEL}/{} begins at the top level",
            rest.display()
        );
        Error::new(ErrorKind::NotFound, what).context(path.display())
    }

    /// Rejects a new name in the default subvolume that a subvolume of the top level has.
    ///
    /// # Errors
    /// `AlreadyExists`
    pub(crate) fn refuse_name_of_top_level(&self, dir: InodeId, name: &[u8]) -> Result<()> {
        if !self.begins_by_default() || dir != self.root || self.fs.lookup(dir, name, Wait::Yes).is_ok() {
            return Ok(());
        }
        let top_level = InodeId::new(TreeId::FS, ObjectId::FIRST_FREE);
        match self.fs.lookup(top_level, name, Wait::Yes) {
            Ok(found) if found.ino == ObjectId::FIRST_FREE && found.subvolume != TreeId::FS => {
                let (default, name) = (self.root.subvolume, Escaped(name));
                let what = format!(
                    "'{name}' is a subvolume of the top level, and paths begin in the default subvolume {default}"
                );
                let advice = format!(
                    "{TOP_LEVEL}/{name} is that one; with --subvolid {default} a new '{name}' is made"
                );
                Err(Error::new(ErrorKind::AlreadyExists, what).advise(advice))
            }
            _ => Ok(()),
        }
    }

    /// Rejects each of `names`, the content of a directory, in the same way. The copy itself reports the names that cannot be listed.
    pub(crate) fn refuse_names_of_top_level(
        &self,
        dir: InodeId,
        mut names: impl Iterator<Item = OsString>,
    ) -> Result<()> {
        if !self.begins_by_default() {
            return Ok(());
        }
        names.try_for_each(|name| self.refuse_name_of_top_level(dir, name.as_encoded_bytes()))
    }

    /// The directory and the name of a file or directory about to be made.
    pub(crate) fn resolve_parent_to_make<'p>(&self, path: &'p Path) -> Result<(InodeId, &'p [u8])> {
        let (dir, name) = self.resolve_parent(path).map_err(|error| match error.kind() {
            // The path is the root directory, or ends in dots.
            ErrorKind::InvalidInput => match self.resolve(path, Last::Follow) {
                Ok(_) => error.with_kind(ErrorKind::AlreadyExists),
                Err(error) => error,
            },
            _ => error,
        })?;
        self.refuse_name_of_top_level(dir, name).map_err(at(path))?;
        Ok((dir, name))
    }
}
