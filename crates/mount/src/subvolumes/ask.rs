//! The asker's end: the work of `creamery subvolume` on a live mount.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use creamery_base::{DevId, Error, ErrorKind, Generation, InodeId, QgroupId, Result, TreeId};
use creamery_fs::{ExtentPart, NewExtent, NewSize, QuotaChange, QuotaReport, Resized, SubvolumeTable};

use super::orders::{DeletedSubvolume, Outcome, SubvolumeOrder};
use super::{
    CREATE, DELETE, NEW_EXTENTS, QUOTAS, SET_DEFAULT, SNAPSHOT, SOURCE, TABLE, TOLD, USERS, WAITING, WHOLE,
};
use crate::control::{Channel, KEY, O_DIRECTORY, new_key, with_way_out};
use crate::facts::LiveFacts;
use crate::table::is_ours;

/// Time between two checks whether the kernel was notified.
const TOLD_AGAIN: Duration = Duration::from_millis(1);
/// Checks before it counts as failed; each waits for a while at the mount's end.
const TOLD_MAX: usize = 1000;

/// A directory of a live mount, to make, delete and change subvolumes in. It keeps the mount busy.
///
/// When an operation returns, its effect is visible on the mount. It is durable with the next commit, like that of mkdir(2). A
/// snapshot is durable at once.
///
/// ```no_run
/// # fn main() -> creamery_base::Result<()> {
/// use creamery_mount::Live;
/// let dir = Live::at("/mnt".as_ref())?.expect("a mount of an image");
/// dir.create_subvolume("home".as_ref(), &[])?;
/// let home = Live::at("/mnt/home".as_ref())?.expect("it is there");
/// dir.create_snapshot(&home, "before".as_ref(), true, &[])?;
/// dir.delete_subvolume("before".as_ref(), false)?;
/// # Ok(())
/// # }
/// ```
pub struct Live {
    channel: Channel,
    device: u64,
}

impl Live {
    /// Opens the directory `dir`; `None` if it is not on a live mount of an image.
    /// Errors: those of opening it; the server is gone.
    pub fn at(dir: &Path) -> Result<Option<Self>> {
        let failed = |error: std::io::Error| with_way_out(Error::from(error).context(dir.display()), dir);
        let file = File::options().read(true).custom_flags(O_DIRECTORY).open(dir).map_err(failed)?;
        let device = file.metadata().map_err(failed)?.dev();
        let channel = Channel::of(file, dir.to_owned());
        match is_ours(device)? {
            Some(true) => {}
            // The mounter may have chosen another type for the mount table.
            Some(false) if channel.statistics().is_ok() => {}
            _ => return Ok(None),
        }
        Ok(Some(Self { channel, device }))
    }

    /// The channel to its server.
    pub(crate) const fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Whether both are on the same mount.
    #[must_use]
    pub const fn is_beside(&self, other: &Self) -> bool {
        self.device == other.device
    }

    /// Makes a subvolume in the directory, in the quota groups `groups`; it belongs to the caller's user.
    /// Errors: permission denied, without the right to make directories there; the name is taken; a group does not exist, or belongs to a subvolume;
    /// read-only; no space.
    pub fn create_subvolume(&self, name: &OsStr, groups: &[QgroupId]) -> Result<()> {
        let order = SubvolumeOrder {
            name: name.as_bytes().to_vec(),
            groups: groups.to_vec(),
            ..SubvolumeOrder::default()
        };
        self.order::<CREATE>(new_key(), &order).map(drop)
    }

    /// Takes a snapshot of the subvolume whose root is `source`, with the name `name` in this directory, in the quota groups `groups`. It
    /// is durable when this returns.
    /// Errors: permission denied, without the right to make directories here or if another user owns the source; the source is not the root of
    /// a subvolume, or is on another mount; the name is taken; a group does not exist, or belongs to a subvolume; read-only; no space.
    pub fn create_snapshot(
        &self,
        source: &Self,
        name: &OsStr,
        read_only: bool,
        groups: &[QgroupId],
    ) -> Result<()> {
        if !self.is_beside(source) {
            return Err(Error::new(
                ErrorKind::CrossDevice,
                "the snapshot and its source are on different mounts",
            ));
        }
        let key = new_key();
        source.order::<SOURCE>(key, &SubvolumeOrder::default())?;
        let (name, groups) = (name.as_bytes().to_vec(), groups.to_vec());
        let order = SubvolumeOrder { name, read_only, groups, ..SubvolumeOrder::default() };
        self.order::<SNAPSHOT>(key, &order).map(drop)
    }

    /// Deletes the subvolume `name` of this directory with everything in it, other subvolumes only if `recursive`. Open
    /// files in it stay usable. Its space comes back in the background ([`Live::sync_subvolumes`]).
    /// Errors: permission denied, for all but root and the mounter; not found; it is not a subvolume; it has others in it; it is
    /// mounted. Of several subvolumes some may be deleted then.
    pub fn delete_subvolume(&self, name: &OsStr, recursive: bool) -> Result<Vec<DeletedSubvolume>> {
        let order = SubvolumeOrder { name: name.as_bytes().to_vec(), recursive, ..SubvolumeOrder::default() };
        self.order::<DELETE>(new_key(), &order).map(|outcome| outcome.deleted)
    }

    /// Deletes a subvolume by its number, like [`Live::delete_subvolume`].
    pub fn delete_subvolume_by_id(&self, id: u64, recursive: bool) -> Result<Vec<DeletedSubvolume>> {
        let order = SubvolumeOrder { id: Some(id), recursive, ..SubvolumeOrder::default() };
        self.order::<DELETE>(new_key(), &order).map(|outcome| outcome.deleted)
    }

    /// Makes `id`, or the subvolume whose root this is, the one that is mounted by default.
    /// Errors: permission denied, for all but root and the mounter; not found.
    pub fn set_default_subvolume(&self, id: Option<u64>) -> Result<()> {
        self.order::<SET_DEFAULT>(new_key(), &SubvolumeOrder { id, ..SubvolumeOrder::default() }).map(drop)
    }

    /// Waits until the subvolumes `ids`, or all that are deleted by now, are dropped and their space is free. Checks
    /// again after `every`, and calls `progress` with the number that is left.
    /// Errors: one of `ids` is not deleted; earlier writes cannot be made durable.
    pub fn sync_subvolumes(
        &self,
        ids: &[u64],
        every: Duration,
        mut progress: impl FnMut(usize),
    ) -> Result<()> {
        let waiting = |id| {
            let order = SubvolumeOrder { id, ..SubvolumeOrder::default() };
            self.order::<WAITING>(new_key(), &order).map(|outcome| outcome.waiting)
        };
        for id in ids {
            waiting(Some(*id))?;
        }
        let wanted = if ids.is_empty() { waiting(None)? } else { ids.to_vec() };
        // A crash before the next commit would bring them back, so they are dropped only after it.
        self.channel.sync()?;
        loop {
            let left = waiting(None)?.iter().filter(|id| wanted.contains(id)).count();
            progress(left);
            if left == 0 {
                return self.channel.sync();
            }
            std::thread::sleep(every);
        }
    }

    /// Returns a table of all subvolumes, the subvolume of this directory, and whether it is the root of that subvolume.
    /// Errors: permission denied, for all but root and the mounter; damage.
    pub fn subvolume_table(&self) -> Result<(SubvolumeTable, TreeId, bool)> {
        let outcome = self.order::<TABLE>(new_key(), &SubvolumeOrder::default())?;
        match (outcome.table, outcome.here) {
            (Some(table), Some((here, is_root))) => Ok((table, here, is_root)),
            _ => Err(ErrorKind::Io.into()),
        }
    }

    /// Reports the extents of this subvolume's files that transaction `since` or a later one made, until
    /// `each` breaks. This must be the root of the subvolume. Returns the last transaction that changed it, for the next call. Earlier writes
    /// are made durable first.
    /// Errors: permission denied, for all but root and the mounter; it is not the root of a subvolume; damage.
    pub fn find_new(
        &self,
        since: Generation,
        mut each: impl FnMut(NewExtent) -> ControlFlow<()>,
    ) -> Result<Generation> {
        self.channel.sync()?;
        let (mut from, mut marker) = (None, None);
        loop {
            let order = SubvolumeOrder { since: since.get(), from, ..SubvolumeOrder::default() };
            let outcome = self.order::<NEW_EXTENTS>(new_key(), &order)?;
            let found = outcome.extents.ok_or(ErrorKind::Io)?;
            let marker = *marker.get_or_insert(found.generation);
            for extent in found.extents {
                if each(extent).is_break() {
                    return Ok(marker);
                }
            }
            from = found.next;
            if from.is_none() {
                return Ok(marker);
            }
        }
    }

    /// Changes the quotas of the filesystem. A change without a group applies to the subvolume of this directory. Durable
    /// when this returns. A rescan goes on in the background.
    /// Errors: permission denied, for all but root and the mounter; those of [`creamery_fs::Filesystem::change_quotas`].
    pub fn change_quotas(&self, change: QuotaChange) -> Result<()> {
        self.order::<QUOTAS>(new_key(), &SubvolumeOrder { quotas: Some(change), ..SubvolumeOrder::default() })
            .map(drop)
    }

    /// Returns the quotas, and the subvolume of this directory.
    /// Errors: permission denied, for all but root and the mounter; damage.
    pub fn quota_report(&self) -> Result<(QuotaReport, TreeId)> {
        let outcome = self.order::<QUOTAS>(new_key(), &SubvolumeOrder::default())?;
        match (outcome.quotas, outcome.here) {
            (Some(report), Some((here, _))) => Ok((report, here)),
            _ => Err(ErrorKind::Io.into()),
        }
    }

    /// Grows the filesystem on a device ([`creamery_fs::Filesystem::resize`]). Durable when this returns.
    /// Errors: permission denied, for all but root and the mounter; those of that function.
    pub fn resize(&self, device: DevId, size: NewSize) -> Result<Resized> {
        let order = SubvolumeOrder { resize: Some((device.get(), size)), ..SubvolumeOrder::default() };
        self.order::<WHOLE>(new_key(), &order)?.resized.ok_or_else(|| ErrorKind::Io.into())
    }

    /// Returns the label of the filesystem.
    /// Errors: the mount does not answer.
    pub fn label(&self) -> Result<Vec<u8>> {
        Ok(self.order::<WHOLE>(new_key(), &SubvolumeOrder::default())?.label)
    }

    /// Returns information about the server and its filesystem.
    /// Errors: the mount does not answer; its server is of an earlier version.
    pub fn facts(&self) -> Result<LiveFacts> {
        self.order::<WHOLE>(new_key(), &SubvolumeOrder::default())?.facts.ok_or_else(|| {
            Error::unsupported("the server is of an older version")
                .advise("unmount the image and mount it again")
        })
    }

    /// Flags, bytes and used bytes of the block groups, one entry for each kind and profile.
    /// Errors: the mount does not answer.
    pub(crate) fn spaces(&self) -> Result<Vec<[u64; 3]>> {
        Ok(self.order::<WHOLE>(new_key(), &SubvolumeOrder::default())?.space)
    }

    /// Sets the label; an empty one removes it. Durable when this returns.
    /// Errors: permission denied, for all but root and the mounter; those of [`creamery_fs::Filesystem::set_label`].
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        let order = SubvolumeOrder { label: Some(label.to_vec()), ..SubvolumeOrder::default() };
        self.order::<WHOLE>(new_key(), &order).map(drop)
    }

    /// Returns the files that refer to the data at the logical address `at`: inodes, and offsets in bytes. Commits earlier changes first.
    /// Errors: permission denied, for all but root and the mounter; those of [`creamery_fs::Filesystem::resolve_logical`].
    pub fn resolve_logical(&self, at: u64, part: ExtentPart) -> Result<Vec<(InodeId, u64)>> {
        let order =
            SubvolumeOrder { logical: Some((at, part == ExtentPart::Whole)), ..SubvolumeOrder::default() };
        let users = self.order::<USERS>(new_key(), &order)?.users.into_iter();
        Ok(users.map(|(subvolume, ino, offset)| (InodeId::new(subvolume, ino), offset)).collect())
    }

    /// Makes all changes on the mount durable, like [`sync`](crate::sync).
    /// Errors: the reason why they are not durable.
    pub fn sync(&self) -> Result<()> {
        self.channel.sync()
    }

    /// Sends an order and waits until the kernel knows the changes.
    fn order<const NUMBER: u32>(&self, key: [u8; KEY], order: &SubvolumeOrder) -> Result<Outcome> {
        let mut outcome: Outcome = self.channel.ask_with::<NUMBER, _>(key, order)?;
        for _ in 0..TOLD_MAX {
            if outcome.told {
                break;
            }
            std::thread::sleep(TOLD_AGAIN);
            outcome.told =
                self.channel.ask_with::<TOLD, Outcome>(new_key(), &SubvolumeOrder::default())?.told;
        }
        match outcome.failure {
            None => Ok(outcome),
            Some(failure) => Err(outcome.why.error(failure)),
        }
    }
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("device", &self.device).finish_non_exhaustive()
    }
}
