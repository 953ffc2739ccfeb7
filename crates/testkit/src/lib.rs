//! What the tests, the demo and the benches share: judges that are not ours, and trees worth judging.
//!
//! Nothing here knows how Creamery works inside. The program is driven over its command line, the way a user
//! drives it, and what it wrote is judged by others: the host's kernel through a loop device ([`LoopMount`]),
//! `btrfs check` ([`btrfs_check`]), the kernel's log ([`KernelLog`]), and [`walk`], which reads two trees
//! through the host's own system calls and says in words where they differ.
//!
//! A host may lack a judge. [`Judges::missing`] finds out which; a test that needs a missing one is reported as
//! skipped, with the judge's name, and never as passed. With `CREAMERY_REQUIRE_JUDGES=1` in the environment (continuous integration sets it) it fails.
//!
//! Invariants:
//! 1. Everything taken from the host (loop devices, mounts, scratch folders) is given back when its owner is dropped.
//! 2. A child process that hangs is killed ([`HANG`]): a broken mount fails a test, it does not stop the run. Nothing else decides by the clock.
//! 3. Same seed, same tree.

mod blocked;
mod clone;
mod command;
mod cpu;
mod delalloc;
mod fuse_mount;
pub mod harness;
mod judges;
mod kernel_log;
mod loop_mount;
mod program;
mod random;
mod remap;
mod scratch;
mod seek;
mod share;
mod subvolumes;
pub mod tree;
mod tree_search;
mod until;
pub mod walk;

pub use blocked::{ThreadWatch, is_napping, is_reading};
pub use clone::{clone_range, sync_filesystem};
pub use command::{Finished, Run, Signal, signal};
pub use cpu::{CpuMeter, cpu_of, cpu_of_this_thread};
pub use delalloc::is_delalloc;
pub use fuse_mount::{FuseMount, daemon};
pub use judges::{Judge, Judges, btrfs_check, btrfs_progs_version, is_root};
pub use kernel_log::KernelLog;
pub use loop_mount::{LoopDevice, LoopMount};
pub use program::Program;
pub use random::Random;
pub use remap::{ficlonerange, fideduperange};
pub use scratch::{Scratch, free_bytes, scratch_root, unmount_below};
pub use seek::{seek_data, seek_hole};
pub use share::{asked_seed, one_in, rounds, schedules, schedules_seed, seed_of, share_or_whole};
pub use subvolumes::{
    allow_changes, commit_and_clean, create_snapshot, create_subvolume, delete_subvolume, has_subvolume,
    subvolume_id,
};
pub use tree_search::{TreeItem, tree_items};
pub use until::{HANG, ends_within, until, wait_until};
