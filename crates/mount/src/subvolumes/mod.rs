//! Subvolumes of a live mount: making, deleting and changing them, which no request of FUSE's does.
//!
//! `creamery subvolume` sends controls of ours to the directory that has the name (`server` has the mount's end, `ask` the
//! other one); other programs send those of Linux' Btrfs (`ioctl`). Both come to the same, and who asks is judged as
//! Linux would (`crate::rights`).
//!
//! A control carries a page as all of the channel do (`control`), with an [`Order`](orders::Order) in JSON behind the number of who
//! asks; the answer is the JSON of an [`Outcome`](orders::Outcome).
//!
//! | number | sent to | |
//! |---|---|---|
//! | 5 | a directory | make a subvolume there |
//! | 6 | the root of a subvolume | it is the source of the snapshot that who asks will ask for: who sends this could open it |
//! | 7 | a directory | take the snapshot |
//! | 8 | a directory | delete a subvolume: the one with this name, or any by its number; with those in it, if wanted |
//! | 9 | the root of a subvolume, or any directory with a number | make it the default |
//! | 10 | the root of a subvolume | make it read-only, or writable |
//! | 11 | any directory | which wait for being dropped? |
//! | 12 | any directory | has the kernel been told of all that changed? |
//! | 13 | any directory | what is known of all subvolumes? |
//! | 14 | the root of a subvolume | which extents are new? |
//! | 18 | any directory | change the quotas, or tell what they are |
//! | 19 | any directory | change how large the filesystem is, or what it is called; or tell that |
//! | 20 | any directory | who refers to data? |
//!
//! The kernel learns of changed names from a thread (`told`), and none of those that answer may wait for it long. So an answer says
//! whether it was told, and who asked asks again until it was: what his next command sees is what he has done. Waiting until
//! deleted subvolumes are dropped is done like that too, so it keeps nobody, and ends when who waits does.

mod ask;
mod ioctl;
mod lingering;
mod orders;
mod server;
mod told;

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

/// Which control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Control {
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

impl Control {
    /// The one with this number; none if it is not of this room.
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
    /// Carries out the order in a page that the thread `asker` sent to the directory `at`, who may give up. Returns the answer's text.
    pub(crate) fn answer(
        &self,
        what: Control,
        (asker, is_interrupted): (u32, &dyn Fn() -> bool),
        at: InodeId,
        page: &[u8],
    ) -> creamery_fuse::Result<Vec<u8>> {
        use creamery_fuse::Errno;
        let key = *page.get(HEAD..).and_then(|rest| rest.first_chunk()).ok_or(Errno::EINVAL)?;
        let order: orders::Order = order_in(page)?.unwrap_or_default();
        let outcome = self.carry_out((&Asker::of(asker), is_interrupted), at, key, (what, &order));
        serde_json::to_vec(&outcome).map_err(|_| Errno::EIO)
    }
}
