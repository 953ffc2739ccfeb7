//! The primitives of the program.

pub(super) use parking_lot::RawRwLock;
pub use parking_lot::{Mutex, MutexGuard};
