//! The crate against the kernel: a filesystem in memory, mounted through `/dev/fuse` and used through system
//! calls. Where mounting is not possible the tests say so by name.
#![allow(unreachable_pub, reason = "a test program has no callers")]
#![allow(unsafe_code, reason = "mapping a file is unsafe by nature")]

mod attributes;
mod data;
mod directories;
mod harness;
mod lifecycle;
mod memory;
mod names;
mod pinned;
mod unprivileged;

/// Looking up this name waits for a signal.
pub const STUCK: &[u8] = b"stuck";
