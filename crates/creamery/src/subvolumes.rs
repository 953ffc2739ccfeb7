//! Subvolumes and snapshots.

use std::ops::ControlFlow;
use std::path::Path;

use creamery_base::{Error, Generation, ObjectId, QgroupId, Result, TreeId, Uuid};
use creamery_fs::{ListedSubvolume, NewExtent, SubvolumeInfo, SubvolumeTable};

use crate::filesystem::{Filesystem, new_directory};
use crate::path::{Last, at};

/// Why the subvolume that is worked in is not deleted.
const IS_OPEN: &str = "paths begin in this subvolume; open the image at another one";

/// Subvolumes.
impl Filesystem {
    /// Makes a subvolume.
    ///
    /// # Errors
    /// When the name is taken.
    pub fn create_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        self.create_subvolume_in_groups(path, &[])
    }

    /// Makes a subvolume that is in quota groups from its beginning. With simple quotas it is not in those, then, that the subvolume
    /// is in that it is made in. Without quotas nothing comes of `groups`.
    ///
    /// # Errors
    /// When the name is taken; when a group is not there, or is that of a subvolume.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// use creamery::quota::QuotaChange;
    /// let fs = creamery::Image::options().write(true).open(&image)?;
    /// let group = "1/100".parse()?;
    /// fs.change_quotas(&QuotaChange::Enable { simple: false }, "/")?;
    /// fs.change_quotas(&QuotaChange::Create(group), "/")?;
    /// fs.create_subvolume_in_groups("/home", &[group])?;
    /// assert!(fs.create_subvolume_in_groups("/work", &["1/7".parse()?]).is_err());
    /// assert_eq!(fs.quota_report()?.groups[1].parents, [group.get()]);
    /// # fs.close()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn create_subvolume_in_groups(&self, path: impl AsRef<Path>, groups: &[QgroupId]) -> Result<()> {
        let (dir, name) = self.resolve_parent_to_make(path.as_ref())?;
        let made = self.fs.create_subvolume_in_groups(dir, name, &new_directory(), groups);
        made.map(drop).map_err(at(path.as_ref()))
    }

    /// The subvolume whose root is at `path`.
    ///
    /// # Errors
    /// When something else is there, or nothing.
    pub fn subvolume_at(&self, path: impl AsRef<Path>) -> Result<TreeId> {
        let path = path.as_ref();
        let found = self.resolve(path, Last::Follow)?;
        if found.ino != ObjectId::FIRST_FREE {
            return Err(at(path)(Error::invalid("not the root of a subvolume")));
        }
        Ok(found.subvolume)
    }

    /// The subvolume that paths begin in.
    #[must_use]
    pub const fn root_subvolume(&self) -> TreeId {
        self.root.subvolume
    }

    /// All subvolumes but the top level, by their numbers, with those that are being deleted.
    ///
    /// # Errors
    /// When the filesystem is damaged.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// let fs = creamery::Image::options().write(true).open(&image)?;
    /// fs.create_subvolume("/home")?;
    /// fs.create_subvolume("/home/kim")?;
    /// fs.sync()?;
    /// let paths: Vec<_> = fs.subvolumes()?.into_iter().filter_map(|subvolume| subvolume.path).collect();
    /// assert_eq!(paths, [&b"home"[..], b"home/kim"]);
    /// let home = fs.subvolume_info(fs.subvolume_at("/home")?)?;
    /// assert_eq!(fs.subvolume_info_by_uuid(home.uuid.unwrap())?, home);
    /// # fs.close()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn subvolumes(&self) -> Result<Vec<ListedSubvolume>> {
        self.fs.subvolumes()
    }

    /// What is known about a subvolume, as of the last commit; also about one that is being deleted.
    ///
    /// # Errors
    /// When there is none, or the filesystem is damaged.
    pub fn subvolume_info(&self, id: TreeId) -> Result<SubvolumeInfo> {
        self.fs.subvolume_info(id)
    }

    /// The same about the subvolume that has this UUID.
    ///
    /// # Errors
    /// When there is none, or the filesystem is damaged.
    pub fn subvolume_info_by_uuid(&self, uuid: Uuid) -> Result<SubvolumeInfo> {
        self.fs.subvolume_info_by_uuid(uuid)
    }

    /// The subvolume that is mounted, or opened, when none is named.
    #[must_use]
    pub fn default_subvolume(&self) -> TreeId {
        self.fs.default_subvolume()
    }

    /// Makes `id` the one that is mounted, or opened, when none is named. Number 0 stands for the top level, as on Linux.
    ///
    /// # Errors
    /// When there is no such subvolume.
    pub fn set_default_subvolume(&self, id: TreeId) -> Result<()> {
        self.fs.set_default_subvolume(id)
    }

    /// Forbids or allows changes in a subvolume. It is durable when this returns.
    ///
    /// # Errors
    /// When there is no such subvolume.
    pub fn set_subvolume_read_only(&self, id: TreeId, read_only: bool) -> Result<()> {
        self.fs.set_subvolume_read_only(id, read_only)
    }

    /// Makes of a received subvolume one that may be changed. It is none that was received from then on: nothing can be sent that relies on
    /// it, and without being asked for by force that is refused by who offers it, as by btrfs-progs. It is durable when this returns.
    ///
    /// # Errors
    /// When there is no such subvolume.
    pub fn set_writable_by_force(&self, id: TreeId) -> Result<()> {
        self.fs.set_writable_by_force(id)
    }

    /// All that is known about all subvolumes at this moment, with the top level.
    ///
    /// # Errors
    /// When the filesystem is damaged.
    pub fn subvolume_table(&self) -> Result<SubvolumeTable> {
        self.fs.subvolume_table()
    }

    /// Reports the extents of a subvolume's files that transaction `since` or a later one made, until `each` breaks. Returns the
    /// last transaction that changed the subvolume, to ask from the next time. What was written before is made durable first.
    ///
    /// # Errors
    /// When there is no such subvolume, or the filesystem is damaged.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// use std::ops::ControlFlow;
    /// let fs = creamery::Image::options().write(true).open(&image)?;
    /// fs.write("/old", "milk")?;
    /// let id = fs.root_subvolume();
    /// let marker = fs.find_new(id, creamery::id::Generation::new(0), |_| ControlFlow::Continue(()))?;
    /// fs.write("/new", "cream")?;
    /// let mut new = Vec::new();
    /// fs.find_new(id, marker.next(), |extent| {
    ///     new.push(extent.path);
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(new, [b"new"]);
    /// # fs.close()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn find_new(
        &self,
        id: TreeId,
        since: Generation,
        mut each: impl FnMut(NewExtent) -> ControlFlow<()>,
    ) -> Result<Generation> {
        self.fs.find_new(id, since, &mut each)
    }

    /// Takes a snapshot, called `path`, of the subvolume whose root is `source`: all that it has at the moment, at the price of
    /// a commit, however much that is. With `read_only` nothing in it can be changed. It is durable when this returns.
    ///
    /// Subvolumes in the source are empty directories in the snapshot.
    ///
    /// # Errors
    /// When `source` is not the root of a subvolume, the name is taken, or what was written before cannot be written back.
    ///
    /// ```no_run
    /// # fn main() -> creamery::Result<()> {
    /// let fs = creamery::Image::options().write(true).open("disk.img")?;
    /// fs.create_subvolume("/project")?;
    /// fs.write("/project/file", "first")?;
    /// fs.create_snapshot("/project", "/before", true)?;
    /// fs.write("/project/file", "second")?;
    /// assert_eq!(fs.read_to_string("/before/file")?, "first");
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_snapshot(
        &self,
        source: impl AsRef<Path>,
        path: impl AsRef<Path>,
        read_only: bool,
    ) -> Result<()> {
        self.create_snapshot_in_groups(source, path, read_only, &[])
    }

    /// Takes a snapshot that is in quota groups from its beginning, as [`Filesystem::create_subvolume_in_groups`]. Where a group has
    /// something already and not the source, its numbers may be wrong until a rescan ([`QuotaReport::inconsistent`]).
    ///
    /// # Errors
    /// As [`Filesystem::create_snapshot`]; when a group is not there, or is that of a subvolume.
    ///
    /// [`QuotaReport::inconsistent`]: crate::quota::QuotaReport::inconsistent
    pub fn create_snapshot_in_groups(
        &self,
        source: impl AsRef<Path>,
        path: impl AsRef<Path>,
        read_only: bool,
        groups: &[QgroupId],
    ) -> Result<()> {
        let of = self.subvolume_at(source.as_ref())?;
        let (dir, name) = self.resolve_parent_to_make(path.as_ref())?;
        let made = self.fs.create_snapshot_in_groups(of, dir, name, read_only, groups);
        made.map(drop).map_err(at(path.as_ref()))
    }

    /// Deletes a subvolume with all that is in it. Nobody finds it any more; who has a file of it open may read that. The space
    /// comes back in the background, or when somebody asks for that ([`Filesystem::sync_subvolumes`]).
    ///
    /// # Errors
    /// When it is not a subvolume, is the one that is open, the top level or the default, or has subvolumes in it.
    pub fn delete_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (dir, name) = self.resolve_parent(path)?;
        let found = self.resolve(path, Last::Keep)?;
        if found.ino == ObjectId::FIRST_FREE {
            self.check_may_go(found.subvolume).map_err(at(path))?;
        }
        self.fs.delete_subvolume(dir, name).map(drop).map_err(at(path))
    }

    fn check_may_go(&self, id: TreeId) -> Result<()> {
        self.fs.check_may_go(id)?;
        if id == self.root.subvolume {
            return Err(Error::invalid(IS_OPEN).context(format_args!("subvolume {id}")));
        }
        Ok(())
    }

    /// As [`Filesystem::delete_subvolume`], by its number, wherever it is.
    ///
    /// # Errors
    /// The same; when there is no such subvolume.
    pub fn delete_subvolume_by_id(&self, id: TreeId) -> Result<()> {
        let failed = |error: Error| error.context(format_args!("subvolume {id}"));
        self.check_may_go(id)?;
        let (dir, name) = self.fs.subvolume_entry(id)?;
        self.fs.delete_subvolume(dir, &name).map(drop).map_err(failed)
    }

    /// The subvolumes that are in `id`, and those in these, each before the one that it is in: the order in which they can be deleted.
    ///
    /// # Errors
    /// When the filesystem is damaged.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// let fs = creamery::Image::options().write(true).open(&image)?;
    /// for path in ["/home", "/home/kim", "/home/kim/work"] {
    ///     fs.create_subvolume(path)?;
    /// }
    /// let home = fs.subvolume_at("/home")?;
    /// for id in fs.nested_subvolumes(home)?.into_iter().chain([home]) {
    ///     fs.delete_subvolume_by_id(id)?;
    /// }
    /// assert!(fs.symlink_metadata("/home").is_err());
    /// # fs.close()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn nested_subvolumes(&self, id: TreeId) -> Result<Vec<TreeId>> {
        self.fs.nested_subvolumes(id)
    }

    /// Waits until nothing is left of the subvolumes that were deleted, and helps. `progress` is called after each step with how
    /// many there are still; an error of its ends the work, of which what is done stays. What somebody has open stays.
    ///
    /// # Errors
    /// No space; those of the devices; damage.
    pub fn sync_subvolumes(&self, mut progress: impl FnMut(usize) -> Result<()>) -> Result<()> {
        self.fs.sync()?;
        loop {
            let cleaning = self.fs.clean_step()?;
            if cleaning == creamery_fs::Cleaning::Idle {
                return self.fs.sync();
            }
            progress(self.fs.dead_subvolumes().len())?;
        }
    }
}
