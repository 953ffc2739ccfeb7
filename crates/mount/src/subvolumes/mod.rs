//! Makes, deletes and changes subvolumes of a live mount. FUSE has no requests for that.
//!
//! `creamery subvolume` sends controls of ours to the directory of the name (`server` has the mount's end, `ask` the
//! asker's); other programs send those of Linux' Btrfs (`ioctl`). Both have the same effect, and both check the asker's rights
//! like Linux (`crate::rights`).
//!
//! A control carries a page like every control of the channel (`control`), with an [`SubvolumeOrder`](orders::SubvolumeOrder) in JSON behind the key of
//! the asker; the answer is the JSON of an [`Outcome`](orders::Outcome).
//!
//! | number | sent to | |
//! |---|---|---|
//! | 5 | a directory | make a subvolume there |
//! | 6 | the root of a subvolume | name the source of the asker's next snapshot: the asker could open it |
//! | 7 | a directory | take the snapshot |
//! | 8 | a directory | delete a subvolume: the one with this name, or any by its number; with nested ones, if wanted |
//! | 9 | the root of a subvolume, or any directory with a number | make it the default |
//! | 10 | the root of a subvolume | make it read-only, or writable |
//! | 11 | any directory | list deleted subvolumes that are not yet dropped |
//! | 12 | any directory | ask whether the kernel was notified of all changes |
//! | 13 | any directory | list all subvolumes |
//! | 14 | the root of a subvolume | list new extents |
//! | 18 | any directory | change the quotas, or return them |
//! | 19 | any directory | change the size or the label of the filesystem, or return them |
//! | 20 | any directory | list the files that refer to data |
//!
//! A thread (`told`) notifies the kernel of changed names, and the threads that answer must not wait for it long. So an answer says
//! whether the kernel was notified, and the asker repeats the question until it was: then its next command sees its changes. Waiting until
//! deleted subvolumes are dropped works in the same way, so it blocks no thread, and ends with the asker.

mod ask;
mod ioctl;
mod lingering;
mod notifications;
mod orders;
mod server;

use creamery_base::InodeId;
use creamery_fuse::control_number;

use crate::asker::Asker;
use crate::control::{GROUP, HEAD, PAGE, order_in};

pub use ask::Live;
pub(crate) use lingering::Lingering;
pub use orders::DeletedSubvolume;
pub(crate) use server::{Server, Subvolumes};

pub(crate) const CREATE: u32 = control_number::<PAGE>(GROUP, 5);
pub(crate) const SOURCE: u32 = control_number::<PAGE>(GROUP, 6);
pub(crate) const SNAPSHOT: u32 = control_number::<PAGE>(GROUP, 7);
pub(crate) const DELETE: u32 = control_number::<PAGE>(GROUP, 8);
pub(crate) const SET_DEFAULT: u32 = control_number::<PAGE>(GROUP, 9);
pub(crate) const WAITING: u32 = control_number::<PAGE>(GROUP, 11);
pub(crate) const TOLD: u32 = control_number::<PAGE>(GROUP, 12);
pub(crate) const TABLE: u32 = control_number::<PAGE>(GROUP, 13);
pub(crate) const NEW_EXTENTS: u32 = control_number::<PAGE>(GROUP, 14);
pub(crate) const QUOTAS: u32 = control_number::<PAGE>(GROUP, 18);
pub(crate) const WHOLE: u32 = control_number::<PAGE>(GROUP, 19);
pub(crate) const USERS: u32 = control_number::<PAGE>(GROUP, 20);

/// The controls of this module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SubvolumeControl {
    Create,
    Source,
    Snapshot,
    Delete,
    SetDefault,
    Waiting,
    Told,
    Table,
    NewExtents,
    Quotas,
    Whole,
    Users,
}

impl SubvolumeControl {
    /// The control with this number; `None` if it does not belong to this module.
    pub(crate) const fn of(number: u32) -> Option<Self> {
        Some(match number {
            CREATE => Self::Create,
            SOURCE => Self::Source,
            SNAPSHOT => Self::Snapshot,
            DELETE => Self::Delete,
            SET_DEFAULT => Self::SetDefault,
            WAITING => Self::Waiting,
            TOLD => Self::Told,
            TABLE => Self::Table,
            NEW_EXTENTS => Self::NewExtents,
            QUOTAS => Self::Quotas,
            WHOLE => Self::Whole,
            USERS => Self::Users,
            _ => return None,
        })
    }
}

impl Server<'_> {
    /// Carries out the order in a page that the thread `asker` sent to the directory `at`. The asker may give up. Returns the answer's text.
    pub(crate) fn answer(
        &self,
        what: SubvolumeControl,
        (asker, is_interrupted): (u32, &dyn Fn() -> bool),
        at: InodeId,
        page: &[u8],
    ) -> creamery_fuse::Result<Vec<u8>> {
        use creamery_fuse::Errno;
        let key = *page.get(HEAD..).and_then(|rest| rest.first_chunk()).ok_or(Errno::EINVAL)?;
        let order: orders::SubvolumeOrder = order_in(page)?.unwrap_or_default();
        let outcome = self.carry_out((&Asker::of(asker), is_interrupted), at, key, (what, &order));
        serde_json::to_vec(&outcome).map_err(|_| Errno::EIO)
    }
}
