//! Block devices: bytes that can be read, written, flushed and discarded.
//!
//! # One primitive
//! A device takes a [`Request`] and calls a [`Completion`] when it is done: [`BlockDevice::submit`]. A flush is
//! a request of its own, because the caller decides the order against the platter; it is not a property of
//! a write. A write carries [`Parts`]: buffers anywhere in memory that lie one after another on the device. The blocking
//! calls ([`BlockDevice::read_at`] and the others) submit and wait; a back end with a shorter way goes straight to
//! the system call. Every blocking call passes the waiting gate ([`creamery_base::gate`]), so that tests can check a caller's promise
//! not to wait by counting. So does a `submit` that makes its system call before it returns.
//!
//! # Back ends
//! [`FileDevice`] is an image file or a block device node. [`MemoryDevice`] lives in memory and holds only pages
//! that were written, so that a large one costs nothing. [`StreamDevice`] works over any stream with read, write and seek.
//! [`HeldDevice`] keeps writes to another device in memory until they are released. [`DelayedDevice`] delays the answers of another
//! device by a fixed time.
//!
//! A [`FileDevice`] has a pool of threads for submitted requests, so that these outlive the call: requests to two devices, or to two places
//! of one, run at once. A caller that waits for its requests anyway can run them on its own thread
//! ([`BlockDevice::carry_out`]), without a switch of threads.
//!
//! With [`DeviceIo::Direct`] a [`FileDevice`] bypasses the page cache of the host (O_DIRECT). The head of `file/direct.rs` explains which
//! requests do, and why both ways may be mixed.
//!
//! # Other users of an image
//! Two writers, or one writer and a reader that trusts its cache, destroy a filesystem. [`FileDevice::open`]
//! therefore takes a lock (exclusive for writing, shared for reading) and looks for the users that take no lock:
//! the kernel's mounts, device mapper, swap, and loop devices that have the file as backing file. The error
//! names the user.
//!
//! # Parts
//! A disk image has partitions, and an [`ImageName`] selects one. [`PartitionTable`] reads the partitions. A
//! [`FileDevice`] of a partition begins at its start and ends at its end, and cannot reach the rest of the file.
//!
//! # New files
//! [`NewFile`] is a file of the host that has no name until it is complete: if its process is killed, no file is left.
//!
//! # Invariants
//! - DEV-1: a request that ends beyond the device's length fails and changes nothing.
//!   Shown by `a_file_keeps_the_rules`, `memory_keeps_the_rules`.
//! - DEV-2: a flush that failed once fails for ever on that open device. The host may have dropped the pages it
//!   could not write and marked them clean, so a later success would be a lie.
//! - DEV-3: when a completion runs, the device holds nothing for that request any more.
//! - DEV-4: after its close no request touches a device, even if there are more references to it: requests under way have ended,
//!   and new ones fail. Shown by `what_was_submitted_ends_before_the_device_is_closed`, `what_was_closed_is_not_touched`.
//! - DEV-5: a device that is a part of a file never reads, writes, discards or zeroes a byte outside it, and never changes the file's
//!   length. Shown by `nothing_outside_of_a_part_is_reached`.
//! - DEV-6: a request that was submitted to a file ends before the device is closed. If the queue is full, the submitter runs its request
//!   itself, which bounds the memory. Submitters that must not wait ask for room before instead. Shown by `what_was_submitted_ends_before_the_device_is_closed`.
#![allow(unsafe_code)] // aligned allocation, two ioctls and locks of ranges; each block gives its reason

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
mod pool;
mod pooled_memory;
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
