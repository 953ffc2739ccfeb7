//! Subvolumes and snapshots.

use std::path::{Path, PathBuf};

use creamery_base::{Error, ObjectId, QgroupId, Result, TreeId, Uuid};
use creamery_fs::{ListedSubvolume, SnapshotOptions, SubvolumeInfo, SubvolumeTable};

use crate::filesystem::{Filesystem, new_directory};
use crate::path::{Last, at};

/// The reason why the open subvolume is not deleted.
const IS_OPEN: &str = "paths begin in this subvolume; open the image at another one";

/// The subvolumes of a filesystem; [`Filesystem::subvolumes`] returns it. Its methods are the commands of `btrfs subvolume`
/// (btrfs-subvolume(8)).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// fs.subvolumes().create("/project")?;
/// fs.write("/project/file", "first")?;
/// fs.subvolumes().snapshot("/project", "/before").read_only().run()?;
/// fs.write("/project/file", "second")?;
/// assert_eq!(fs.read_to_string("/before/file")?, "first");
/// fs.subvolumes().delete("/before")?;
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Subvolumes<'a>(pub(crate) &'a Filesystem);

impl Filesystem {
    /// Returns the subvolumes, to make, list and delete them (btrfs-subvolume(8)).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.subvolumes().create("/home")?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn subvolumes(&self) -> Subvolumes<'_> {
        Subvolumes(self)
    }
}

impl<'a> Subvolumes<'a> {
    /// Makes a subvolume, as `btrfs subvolume create` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.subvolumes().create("/home")?;
    /// assert!(fs.metadata("/home")?.is_dir());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the name is taken.
    pub fn create(self, path: impl AsRef<Path>) -> Result<()> {
        self.create_in_groups(path, &[])
    }

    /// Makes a subvolume in quota groups, as `btrfs subvolume create -i` does. With simple quotas the new subvolume is then
    /// not in the groups of the subvolume around it. Without quotas `groups` has no effect.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::quota::QuotaChange;
    /// let group = "1/100".parse()?;
    /// fs.quotas().change(&QuotaChange::Enable { simple: false }, "/")?;
    /// fs.quotas().change(&QuotaChange::Create(group), "/")?;
    /// fs.subvolumes().create_in_groups("/home", &[group])?;
    /// assert!(fs.subvolumes().create_in_groups("/work", &["1/7".parse()?]).is_err());
    /// assert_eq!(fs.quotas().report()?.groups[1].parents, [group]);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the name is taken; when a group does not exist, or belongs to a subvolume.
    pub fn create_in_groups(self, path: impl AsRef<Path>, groups: &[QgroupId]) -> Result<()> {
        let (dir, name) = self.0.resolve_parent_to_make(path.as_ref())?;
        let made = self.0.fs.create_subvolume_in_groups(dir, name, &new_directory(), groups);
        made.map(drop).map_err(at(path.as_ref()))
    }

    /// Begins a snapshot of the subvolume whose root is `source`, with the name `path`; [`Snapshot::run`] takes it, as
    /// `btrfs subvolume snapshot` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "first")?;
    /// fs.subvolumes().snapshot("/", "/before").run()?;
    /// fs.write("/file", "second")?;
    /// assert_eq!(fs.read_to_string("/before/file")?, "first");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn snapshot(self, source: impl AsRef<Path>, path: impl AsRef<Path>) -> Snapshot<'a> {
        let (source, path) = (source.as_ref().to_owned(), path.as_ref().to_owned());
        Snapshot { fs: self.0, source, path, is_read_only: false, groups: Vec::new() }
    }

    /// Returns the number of the subvolume whose root is at `path`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::id::TreeId;
    /// assert_eq!(fs.subvolumes().id_at("/")?, TreeId::FS);
    /// fs.create_dir("/plain")?;
    /// assert!(fs.subvolumes().id_at("/plain").is_err());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When `path` does not exist or is not the root of a subvolume.
    pub fn id_at(self, path: impl AsRef<Path>) -> Result<TreeId> {
        let path = path.as_ref();
        let found = self.0.resolve(path, Last::Follow)?;
        if found.ino != ObjectId::FIRST_FREE {
            return Err(at(path)(Error::invalid("not the root of a subvolume")));
        }
        Ok(found.subvolume)
    }

    /// Returns the subvolume where paths begin: the chosen one, or the default one.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// assert_eq!(fs.subvolumes().opened(), fs.subvolumes().default_id());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn opened(self) -> TreeId {
        self.0.root.subvolume
    }

    /// Lists all subvolumes except the top level, by their numbers, including those that are being deleted, as `btrfs subvolume list` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.subvolumes().create("/home")?;
    /// fs.subvolumes().create("/home/kim")?;
    /// fs.sync()?;
    /// let paths: Vec<_> = fs.subvolumes().list()?.into_iter().filter_map(|subvolume| subvolume.path).collect();
    /// assert_eq!(paths, [&b"home"[..], b"home/kim"]);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the filesystem is damaged.
    pub fn list(self) -> Result<Vec<ListedSubvolume>> {
        self.0.fs.subvolumes()
    }

    /// Returns a consistent table of all subvolumes, with the top level.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.subvolumes().create("/home")?;
    /// let table = fs.subvolumes().table()?;
    /// println!("{table:?}");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the filesystem is damaged.
    pub fn table(self) -> Result<SubvolumeTable> {
        self.0.fs.subvolume_table()
    }

    /// Returns information about a subvolume, as of the last commit, also about one that is being deleted, as
    /// `btrfs subvolume show` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.subvolumes().create("/home")?;
    /// fs.sync()?;
    /// let home = fs.subvolumes().info(fs.subvolumes().id_at("/home")?)?;
    /// assert!(!home.is_read_only());
    /// assert_eq!(fs.subvolumes().info_by_uuid(home.uuid.unwrap())?, home);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such subvolume, or the filesystem is damaged.
    pub fn info(self, id: TreeId) -> Result<SubvolumeInfo> {
        self.0.fs.subvolume_info(id)
    }

    /// Returns information about the subvolume with this UUID, as `btrfs subvolume show -u` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// assert!(fs.subvolumes().info_by_uuid(creamery::Uuid::from_u128(1)).is_err());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such subvolume, or the filesystem is damaged.
    pub fn info_by_uuid(self, uuid: Uuid) -> Result<SubvolumeInfo> {
        self.0.fs.subvolume_info_by_uuid(uuid)
    }

    /// Returns the subvolume that is mounted or opened by default, as `btrfs subvolume get-default` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// assert_eq!(fs.subvolumes().default_id(), creamery::id::TreeId::FS);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn default_id(self) -> TreeId {
        self.0.fs.default_subvolume()
    }

    /// Makes `id` the subvolume that is mounted or opened by default, as `btrfs subvolume set-default` does. Number 0
    /// stands for the top level, as on Linux.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.subvolumes().create("/@")?;
    /// let id = fs.subvolumes().id_at("/@")?;
    /// fs.subvolumes().set_default(id)?;
    /// assert_eq!(fs.subvolumes().default_id(), id);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such subvolume.
    pub fn set_default(self, id: TreeId) -> Result<()> {
        self.0.fs.set_default_subvolume(id)
    }

    /// Forbids changes in a subvolume, as `btrfs property set SUBVOLUME ro true` does. It is durable when this returns.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.subvolumes().create("/kept")?;
    /// fs.subvolumes().set_read_only(fs.subvolumes().id_at("/kept")?)?;
    /// assert!(fs.write("/kept/file", "no").is_err());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such subvolume.
    pub fn set_read_only(self, id: TreeId) -> Result<()> {
        self.0.fs.set_subvolume_read_only(id, true)
    }

    /// Allows changes in a subvolume, as `btrfs property set SUBVOLUME ro false` does. It is durable when this returns.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.subvolumes().snapshot("/", "/copy").read_only().run()?;
    /// fs.subvolumes().set_writable(fs.subvolumes().id_at("/copy")?)?;
    /// fs.write("/copy/file", "yes")?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such subvolume, or it was received ([`set_writable_by_force`](Self::set_writable_by_force)).
    pub fn set_writable(self, id: TreeId) -> Result<()> {
        self.0.fs.set_subvolume_read_only(id, false)
    }

    /// Allows changes in a received subvolume, as `btrfs property set -f SUBVOLUME ro false` does, and clears its received UUID.
    /// Incremental sends that use this subvolume as their parent no longer work. It is durable when this returns.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.subvolumes().snapshot("/", "/received").read_only().run()?;
    /// fs.subvolumes().set_writable_by_force(fs.subvolumes().id_at("/received")?)?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such subvolume.
    pub fn set_writable_by_force(self, id: TreeId) -> Result<()> {
        self.0.fs.set_writable_by_force(id)
    }

    /// Deletes a subvolume with everything in it, as `btrfs subvolume delete` does. Its name is gone at once; an open file of it
    /// stays readable. The space comes back in the background, or with [`sync_deleted`](Self::sync_deleted).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.subvolumes().create("/scratch")?;
    /// fs.write("/scratch/file", "text")?;
    /// fs.subvolumes().delete("/scratch")?;
    /// assert!(!fs.exists("/scratch"));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When it is not a subvolume, is the open one, the top level or the default, or has subvolumes in it.
    pub fn delete(self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let (dir, name) = self.0.resolve_parent(path)?;
        let found = self.0.resolve(path, Last::Keep)?;
        if found.ino == ObjectId::FIRST_FREE {
            self.check_may_go(found.subvolume).map_err(at(path))?;
        }
        self.0.fs.delete_subvolume(dir, name).map(drop).map_err(at(path))
    }

    fn check_may_go(self, id: TreeId) -> Result<()> {
        self.0.fs.check_may_go(id)?;
        if id == self.opened() {
            return Err(Error::invalid(IS_OPEN).context(format_args!("subvolume {id}")));
        }
        Ok(())
    }

    /// Deletes a subvolume by its number, as `btrfs subvolume delete -i` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.subvolumes().create("/scratch")?;
    /// fs.subvolumes().delete_by_id(fs.subvolumes().id_at("/scratch")?)?;
    /// assert!(!fs.exists("/scratch"));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`delete`](Self::delete); when there is no such subvolume.
    pub fn delete_by_id(self, id: TreeId) -> Result<()> {
        let failed = |error: Error| error.context(format_args!("subvolume {id}"));
        self.check_may_go(id)?;
        let (dir, name) = self.0.fs.subvolume_entry(id)?;
        self.0.fs.delete_subvolume(dir, &name).map(drop).map_err(failed)
    }

    /// Lists the subvolumes in `id`, and the nested ones in these, each before the one around it: the order in which
    /// `btrfs subvolume delete -R` deletes them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// let subvolumes = fs.subvolumes();
    /// for path in ["/home", "/home/kim", "/home/kim/work"] {
    ///     subvolumes.create(path)?;
    /// }
    /// let home = subvolumes.id_at("/home")?;
    /// for id in subvolumes.nested(home)?.into_iter().chain([home]) {
    ///     subvolumes.delete_by_id(id)?;
    /// }
    /// assert!(fs.symlink_metadata("/home").is_err());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the filesystem is damaged.
    pub fn nested(self, id: TreeId) -> Result<Vec<TreeId>> {
        self.0.fs.nested_subvolumes(id)
    }

    /// Frees the space of deleted subvolumes and returns when it is done, as `btrfs subvolume sync` does. After
    /// each step `progress` gets the number of subvolumes that are left. An error from it ends the work; freed space stays
    /// free. A subvolume with an open file stays.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.subvolumes().create("/scratch")?;
    /// fs.subvolumes().delete("/scratch")?;
    /// fs.subvolumes().sync_deleted(|left| {
    ///     println!("{left} subvolumes are left");
    ///     Ok(())
    /// })?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// No space; errors of the devices; damage.
    pub fn sync_deleted(self, mut progress: impl FnMut(usize) -> Result<()>) -> Result<()> {
        self.0.fs.sync()?;
        loop {
            let cleaning = self.0.fs.clean_step()?;
            if cleaning == creamery_fs::Cleaning::Idle {
                return self.0.fs.sync();
            }
            progress(self.0.fs.dead_subvolumes().len())?;
        }
    }
}

/// A snapshot about to be taken; begin with [`Subvolumes::snapshot`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// fs.write("/file", "first")?;
/// fs.subvolumes().snapshot("/", "/before").read_only().run()?;
/// assert!(fs.write("/before/file", "second").is_err());
/// # Ok::<(), creamery::Error>(())
/// ```
#[must_use]
pub struct Snapshot<'a> {
    fs: &'a Filesystem,
    source: PathBuf,
    path: PathBuf,
    is_read_only: bool,
    groups: Vec<QgroupId>,
}

impl Snapshot<'_> {
    /// Forbids changes in the snapshot, as `btrfs subvolume snapshot -r` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.subvolumes().snapshot("/", "/before").read_only().run()?;
    /// assert!(fs.create("/before/new").is_err());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub const fn read_only(mut self) -> Self {
        self.is_read_only = true;
        self
    }

    /// Puts the snapshot into quota groups at its creation, as `btrfs subvolume snapshot -i` does. If a group has
    /// data that the source does not have, its numbers may be wrong until a rescan
    /// ([`QuotaReport::inconsistent`](crate::quota::QuotaReport::inconsistent)).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::quota::QuotaChange;
    /// let group = "1/100".parse()?;
    /// fs.quotas().change(&QuotaChange::Enable { simple: false }, "/")?;
    /// fs.quotas().change(&QuotaChange::Create(group), "/")?;
    /// fs.subvolumes().snapshot("/", "/before").in_groups(&[group]).run()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    pub fn in_groups(mut self, groups: &[QgroupId]) -> Self {
        self.groups = groups.to_vec();
        self
    }

    /// Takes the snapshot, at the price of a commit, independent of the size of the source. It is durable when this returns.
    /// Subvolumes in the source are empty directories in the snapshot.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.subvolumes().create("/project")?;
    /// fs.subvolumes().snapshot("/project", "/copy").run()?;
    /// assert!(fs.metadata("/copy")?.is_dir());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the source is not the root of a subvolume, the name is taken, or earlier writes cannot be written back; when a
    /// group does not exist, or belongs to a subvolume.
    pub fn run(self) -> Result<()> {
        let of = Subvolumes(self.fs).id_at(&self.source)?;
        let (dir, name) = self.fs.resolve_parent_to_make(&self.path)?;
        let made = self.fs.fs.create_snapshot_in_groups(of, dir, name, self.is_read_only, &self.groups);
        made.map(drop).map_err(at(&self.path))
    }

    /// Does the work of [`run`](Self::run), for a caller that may give up. A snapshot waits until in-place writes to its
    /// source have ended, and a device may never answer. Meanwhile the call polls `is_interrupted`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// let stop = AtomicBool::new(false); // set by another thread
    /// fs.subvolumes().snapshot("/", "/before").run_unless(|| stop.load(Ordering::Relaxed))?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`run`](Self::run), and [`Interrupted`](crate::ErrorKind::Interrupted), with an inode that is written to; then the call has
    /// had no effect.
    pub fn run_unless(self, is_interrupted: impl Fn() -> bool) -> Result<()> {
        let of = Subvolumes(self.fs).id_at(&self.source)?;
        let place = self.fs.resolve_parent_to_make(&self.path)?;
        let options = SnapshotOptions { read_only: self.is_read_only, groups: &self.groups };
        let made = self.fs.fs.create_snapshot_unless(of, place, options, &is_interrupted);
        made.map(drop).map_err(at(&self.path))
    }
}
