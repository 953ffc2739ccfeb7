//! Block devices: a row of bytes that can be read, written, flushed and discarded.
//!
//! # One primitive
//! A device takes a [`Request`] and calls a [`Completion`] when it is done: [`BlockDevice::submit`]. A flush is
//! a request of its own, because order against the platter is an argument the caller makes, not a property of
//! a write. A write carries [`Parts`]: buffers that lie anywhere in memory and one after another on the device. The blocking
//! calls ([`BlockDevice::read_at`] and the rest) are submit plus wait; a back end for which that is a detour goes straight to
//! the system call. Every blocking call passes the waiting gate ([`creamery_base::gate`]), so that a caller's promise not to
//! wait can be checked by counting; so does a `submit` that makes its system call before it returns.
//!
//! # Back ends
//! [`FileDevice`] is an image file or a block device node. [`MemoryDevice`] lives in memory and holds only pages
//! that were written, so that a large one costs nothing. [`StreamDevice`] is over anything that can be read, written and sought in.
//! [`HeldDevice`] keeps what is written to another device in memory until it is released. [`DelayedDevice`] answers for another device, each request a fixed
//! time after it came.
//!
//! A [`FileDevice`] has a pool of threads for requests that are submitted, so that these outlive the call: two devices, or two places
//! of one, are under way at once. A caller that waits for its requests anyway has them carried out on its own thread
//! ([`BlockDevice::carry_out`]), which costs no change of threads.
//!
//! With [`DeviceIo::Direct`] a [`FileDevice`] goes past the page cache of the host (O_DIRECT). Which requests do, and why both ways may be
//! mixed, says the head of `file/direct.rs`.
//!
//! # Who else has it
//! Two writers, or one writer and a reader that believes its cache, destroy a filesystem. [`FileDevice::open`]
//! therefore takes a lock (exclusive for writing, shared for reading) and looks for the users that take no lock:
//! the kernel's mounts, device mapper, swap, and loop devices that have the file as backing file. The refusal
//! names who it is.
//!
//! # Parts
//! A disk image has partitions, and a name says which one is meant: [`ImageName`]. [`PartitionTable`] reads what there are. A
//! [`FileDevice`] that is a part begins at its start and ends at its end, and nothing of the rest can be reached with it.
//!
//! # New files
//! [`NewFile`] is a file of the host that has no name until it is whole: whoever makes one is killed without a trace.
//!
//! # Invariants
//! - DEV-1: a request that ends beyond the device's length fails and changes nothing.
//! - DEV-2: a flush that failed once fails for ever on that open device. The host may have dropped the pages it
//!   could not write and marked them clean, so a later success would be a lie.
//! - DEV-3: when a completion runs, the device holds nothing for that request any more.
//! - DEV-4: a device that was closed is not touched any more, whoever still has it: what was under way has ended, what comes
//!   fails.
//! - DEV-5: a device that is a part of a file never reads, writes, discards or zeroes a byte outside it, and never changes the file's
//!   length. Shown by `nothing_outside_of_a_part_is_reached`.
//! - DEV-6: a request that was submitted to a file ends before the device is closed. Requests beyond those that may wait are carried
//!   out by their submitter, so they take no more memory than that; but for those of submitters that must not wait, which ask for room before. Shown by `what_was_submitted_ends_before_the_device_is_closed`.
#![allow(unsafe_code)] // aligned allocation and one ioctl; each block says why it is sound

mod access;
mod aligned;
mod delayed;
mod device;
mod device_io;
mod file;
mod held;
mod hooked;
mod image_name;
mod in_use;
mod lock_table;
mod loop_device;
mod memory;
mod new_file;
mod partition;
mod parts;
mod patience;
mod piece;
mod pool;
mod range_lock;
mod seen_locks;
mod served;
mod slab;
mod stream;

pub use access::Access;
pub use aligned::{AlignedBuffer, BUFFER_ALIGNMENT};
pub use delayed::DelayedDevice;
pub use device::{BlockDevice, Completion, DeviceId, Pending, Reply, Request};
pub use device_io::{DeviceIo, DirectRequests};
pub use file::FileDevice;
pub use held::{HeldDevice, Released};
pub use hooked::{Hook, Hooked};
pub use image_name::ImageName;
pub use in_use::{backing_files, check_unused, file_of, hold_unused, refuse_seen_use};
pub use memory::MemoryDevice;
pub use new_file::{NewFile, Taken};
pub use partition::{Partition, PartitionTable, PartitionType, TableKind};
pub use parts::{Parts, SharedBytes};
pub use patience::wait_for_users;
pub use seen_locks::{is_free, is_only_read, server_of};
pub use served::{connections_of, is_server};
pub use stream::StreamDevice;
