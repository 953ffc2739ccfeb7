//! Progress reports of long operations, and their handling of errors.

pub use creamery_mkfs::{Lost, NoProgress, OnError, Progress, Skipped};
