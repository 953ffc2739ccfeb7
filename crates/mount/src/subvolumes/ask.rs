//! The asking end: what `creamery subvolume` does on a live mount.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use creamery_base::{DevId, Error, ErrorKind, Generation, InodeId, QgroupId, Result, TreeId};
use creamery_fs::{ExtentPart, NewExtent, NewSize, QuotaChange, QuotaReport, Resized, SubvolumeTable};

use super::orders::{DeletedSubvolume, Order, Outcome};
use super::{
    CREATE, DELETE, NEW_EXTENTS, QUOTAS, SET_DEFAULT, SNAPSHOT, SOURCE, TABLE, TOLD, USERS, WAITING, WHOLE,
};
use crate::control::{Channel, KEY, O_DIRECTORY, new_key, with_way_out};
use crate::facts::LiveFacts;
use crate::table::is_ours;

/// Time between two questions whether the kernel was told.
const TOLD_AGAIN: Duration = Duration::from_millis(1);
/// Questions after which it is no matter of time; each waits for a while at the mount's end.
const TOLD_MAX: usize = 1000;

/// A directory of a live mount, whose subvolumes are made, deleted and changed there. It keeps the mount busy.
///
/// What an operation did is to be seen on the mount when it returns, and is durable as what mkdir(2) does is: with the next commit. A
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
    /// Opens the directory `dir`; none if it is not on a live mount of an image.
    /// Errors: those of opening it; the server is gone.
    pub fn at(dir: &Path) -> Result<Option<Self>> {
        let failed = |error: std::io::Error| with_way_out(Error::from(error).context(dir.display()), dir);
        let file = File::options().read(true).custom_flags(O_DIRECTORY).open(dir).map_err(failed)?;
        let device = file.metadata().map_err(failed)?.dev();
        let channel = Channel::of(file, dir.to_owned());
        match is_ours(device)? {
            Some(true) => {}
            // The mounter may have chosen another type for the table to show.
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

    /// Makes a subvolume in the directory, in the quota groups `groups`; it belongs to who asks.
    /// Errors: permission denied, for who may not make directories there; the name is taken; a group is not there, or a subvolume's;
    /// read-only; no space.
    pub fn create_subvolume(&self, name: &OsStr, groups: &[QgroupId]) -> Result<()> {
        let order = Order { name: name.as_bytes().to_vec(), groups: groups.to_vec(), ..Order::default() };
        self.order::<CREATE>(new_key(), &order).map(drop)
    }

    /// Takes a snapshot, called `name` in this directory and in the quota groups `groups`, of the subvolume whose root is `source`. It
    /// is durable then.
    /// Errors: permission denied, for who may not make directories here or does not own the source; the source is no root of
    /// a subvolume, or on another mount; the name is taken; a group is not there, or a subvolume's; read-only; no space.
    pub fn create_snapshot(
        &self,
        source: &Self,
        name: &OsStr,
        read_only: bool,
        groups: &[QgroupId],
    ) -> Result<()> {
        if !self.is_beside(source) {
            return Err(Error::new(ErrorKind::CrossDevice, "a snapshot on another mount than its source"));
        }
        let key = new_key();
        source.order::<SOURCE>(key, &Order::default())?;
        let (name, groups) = (name.as_bytes().to_vec(), groups.to_vec());
        let order = Order { name, read_only, groups, ..Order::default() };
        self.order::<SNAPSHOT>(key, &order).map(drop)
    }

    /// Deletes the subvolume `name` of this directory with all that is in it, other subvolumes only if it is `recursive`. Who
    /// has files of it open may go on. Its space comes back in the background ([`Live::sync_subvolumes`]).
    /// Errors: permission denied, for all but root and the mounter; not found; no subvolume; it has others in it; it is what
    /// is mounted. Of several some may be deleted then.
    pub fn delete_subvolume(&self, name: &OsStr, recursive: bool) -> Result<Vec<DeletedSubvolume>> {
        let order = Order { name: name.as_bytes().to_vec(), recursive, ..Order::default() };
        self.order::<DELETE>(new_key(), &order).map(|outcome| outcome.deleted)
    }

    /// As [`Live::delete_subvolume`], by its number, wherever it is.
    pub fn delete_subvolume_by_id(&self, id: u64, recursive: bool) -> Result<Vec<DeletedSubvolume>> {
        let order = Order { id: Some(id), recursive, ..Order::default() };
        self.order::<DELETE>(new_key(), &order).map(|outcome| outcome.deleted)
    }

    /// Makes `id`, or the subvolume whose root this is, the one that is mounted when none is named.
    /// Errors: permission denied, for all but root and the mounter; not found.
    pub fn set_default_subvolume(&self, id: Option<u64>) -> Result<()> {
        self.order::<SET_DEFAULT>(new_key(), &Order { id, ..Order::default() }).map(drop)
    }

    /// Waits until nothing is left of the subvolumes `ids`, or of all that are deleted by now, and their space is free. It looks
    /// again after `every`, and calls `progress` with how many are left.
    /// Errors: one of `ids` is not deleted; what was written before is not durable.
    pub fn sync_subvolumes(
        &self,
        ids: &[u64],
        every: Duration,
        mut progress: impl FnMut(usize),
    ) -> Result<()> {
        let waiting = |id| {
            let order = Order { id, ..Order::default() };
            self.order::<WAITING>(new_key(), &order).map(|outcome| outcome.waiting)
        };
        for id in ids {
            waiting(Some(*id))?;
        }
        let wanted = if ids.is_empty() { waiting(None)? } else { ids.to_vec() };
        // A crash before the next commit would bring them back, so nothing of them is dropped before.
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

    /// What is known of all subvolumes, the subvolume that this directory is in, and whether it is the root of that.
    /// Errors: permission denied, for all but root and the mounter; damage.
    pub fn subvolume_table(&self) -> Result<(SubvolumeTable, TreeId, bool)> {
        let outcome = self.order::<TABLE>(new_key(), &Order::default())?;
        match (outcome.table, outcome.here) {
            (Some(table), Some((here, is_root))) => Ok((table, here, is_root)),
            _ => Err(ErrorKind::Io.into()),
        }
    }

    /// Reports the extents of the files of the subvolume whose root this is that transaction `since` or a later one made, until
    /// `each` breaks. Returns the last transaction that changed it, to ask from the next time. What was written before
    /// is made durable first.
    /// Errors: permission denied, for all but root and the mounter; it is no root of a subvolume; damage.
    pub fn find_new(
        &self,
        since: Generation,
        mut each: impl FnMut(NewExtent) -> ControlFlow<()>,
    ) -> Result<Generation> {
        self.channel.sync()?;
        let (mut from, mut marker) = (None, None);
        loop {
            let order = Order { since: since.get(), from, ..Order::default() };
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

    /// Changes the quotas of the filesystem; the subvolume that this directory is in is meant where no group is named. Durable
    /// when it returns. A rescan goes on in the background.
    /// Errors: permission denied, for all but root and the mounter; as [`creamery_fs::Filesystem::change_quotas`].
    pub fn change_quotas(&self, change: QuotaChange) -> Result<()> {
        self.order::<QUOTAS>(new_key(), &Order { quotas: Some(change), ..Order::default() }).map(drop)
    }

    /// The quotas there are, and the subvolume that this directory is in.
    /// Errors: permission denied, for all but root and the mounter; damage.
    pub fn quota_report(&self) -> Result<(QuotaReport, TreeId)> {
        let outcome = self.order::<QUOTAS>(new_key(), &Order::default())?;
        match (outcome.quotas, outcome.here) {
            (Some(report), Some((here, _))) => Ok((report, here)),
            _ => Err(ErrorKind::Io.into()),
        }
    }

    /// Has the filesystem take more of a device ([`creamery_fs::Filesystem::resize`]). Durable when it returns.
    /// Errors: permission denied, for all but root and the mounter; as there.
    pub fn resize(&self, device: DevId, size: NewSize) -> Result<Resized> {
        let order = Order { resize: Some((device.get(), size)), ..Order::default() };
        self.order::<WHOLE>(new_key(), &order)?.resized.ok_or_else(|| ErrorKind::Io.into())
    }

    /// What the filesystem is called.
    /// Errors: the mount does not answer.
    pub fn label(&self) -> Result<Vec<u8>> {
        Ok(self.order::<WHOLE>(new_key(), &Order::default())?.label)
    }

    /// What the server tells of itself and its filesystem.
    /// Errors: the mount does not answer; its server is of an earlier version.
    pub fn facts(&self) -> Result<LiveFacts> {
        self.order::<WHOLE>(new_key(), &Order::default())?.facts.ok_or_else(|| {
            Error::unsupported("the server is of a version that does not tell this")
                .advise("unmount the image and mount it again")
        })
    }

    /// Flags, bytes and used bytes of its block groups, those of one kind and profile together.
    /// Errors: the mount does not answer.
    pub(crate) fn spaces(&self) -> Result<Vec<[u64; 3]>> {
        Ok(self.order::<WHOLE>(new_key(), &Order::default())?.space)
    }

    /// Gives the filesystem another label; an empty one is none. Durable when it returns.
    /// Errors: permission denied, for all but root and the mounter; as [`creamery_fs::Filesystem::set_label`].
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        let order = Order { label: Some(label.to_vec()), ..Order::default() };
        self.order::<WHOLE>(new_key(), &order).map(drop)
    }

    /// The files that refer to the data at the logical address `at`, as the last commit left them: their inodes, and where in them.
    /// Errors: permission denied, for all but root and the mounter; as [`creamery_fs::Filesystem::resolve_logical`].
    pub fn resolve_logical(&self, at: u64, part: ExtentPart) -> Result<Vec<(InodeId, u64)>> {
        let order = Order { logical: Some((at, part == ExtentPart::Whole)), ..Order::default() };
        let users = self.order::<USERS>(new_key(), &order)?.users.into_iter();
        Ok(users.map(|(subvolume, ino, offset)| (InodeId::new(subvolume, ino), offset)).collect())
    }

    /// Makes durable what was done on the mount, as [`sync`](crate::sync).
    /// Errors: why it is not.
    pub fn sync(&self) -> Result<()> {
        self.channel.sync()
    }

    /// Sends an order and waits until the kernel knows what it has changed.
    fn order<const NUMBER: u32>(&self, key: [u8; KEY], order: &Order) -> Result<Outcome> {
        let mut outcome: Outcome = self.channel.ask_with::<NUMBER, _>(key, order)?;
        for _ in 0..TOLD_MAX {
            if outcome.told {
                break;
            }
            std::thread::sleep(TOLD_AGAIN);
            outcome.told = self.channel.ask_with::<TOLD, Outcome>(new_key(), &Order::default())?.told;
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
