//! What a long operation reports while it runs, and what it does about errors.

pub use creamery_mkfs::{Lost, NoProgress, OnError, Progress, Skipped};
