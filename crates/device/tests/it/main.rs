//! Files, block devices, and parts of both.

mod direct_io;
mod file;
mod in_use;
mod part;
mod short_locks;
mod support;
