//! Details of an [`Error`](crate::Error).

pub use creamery_base::{DamagedBlock, Escaped};
pub use creamery_fs::Aborted;
