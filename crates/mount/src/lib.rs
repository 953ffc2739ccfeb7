//! Serves a filesystem on a mount point: the adapter between [`creamery_fs`] and the FUSE transport. It translates names
//! and numbers; the filesystem implements the operations.
//!
//! # Node ids
//! The kernel names inodes by node ids. Here they are computed and need no table. An inode of the mounted subvolume has
//! its inode number, one of another subvolume has that number with the subvolume's id in the upper 16 bits, and the
//! mount's root has 1, as the protocol requires. The same number is `st_ino`, so it is unique in the mount
//! and the same after every remount. Subvolume ids from 65536 on and inode numbers from 2^48 on get numbers at first
//! use, which hold for one mount. The kernel's references are counted, because an unlinked inode must
//! stay alive until the kernel forgets it (`nodes`).
//!
//! # Caches
//! Only this server changes the filesystem while it is mounted, so the kernel may cache attributes and names for a
//! while and a file's pages across opens. The writeback cache stays off: with it, data that only the kernel has
//! would be reported as holes.

mod access_times;
mod adapter;
mod asker;
mod attributes;
mod capabilities;
mod closing;
mod control;
mod defragment;
mod facts;
mod fiemap;
mod fitrim;
mod flags;
mod foreign_options;
mod handles;
mod in_person;
mod kept_listings;
mod kept_pages;
mod linux;
mod live_file;
mod live_mounts;
mod lost_writes;
mod mapped_pages;
mod messages;
mod mounter;
mod nodes;
mod open;
mod options;
mod ranges;
mod remount;
mod rescue;
mod rights;
mod scrub;
mod serve;
mod subvolumes;
mod sync_callers;
mod table;
mod telling;
mod unmount;
mod users;
mod verity;
mod way;
mod why;

pub use adapter::Adapter;
pub use control::{MountStatistics, Requests, statistics, sync, trim};
pub use facts::LiveFacts;
pub use linux::{LiveBtrfs, LiveDevice, LiveShare, LiveSpace, LiveUsage, is_on_linux};
pub use live_file::LiveFile;
pub use live_mounts::{LiveMount, ServerState, image_at, is_dead, live_mounts, mount_point_of};
pub use mounter::why_mounter_makes_nothing;
pub use nodes::begins_subvolume;
pub use open::open;
pub use options::{Compression, Options, Owner, Writing};
pub use remount::remount;
pub use scrub::{LiveFinding, LiveFindingFile, LiveScrub};
pub use serve::{Mounted, Unmounter, mount};
pub use subvolumes::{DeletedSubvolume, Live};
pub use table::is_fuse_mount;
pub use unmount::{How, Unmounted, clear_dead, unmount};
