//! The host's services for a filesystem: the clock, randomness, memory and threads.

pub use creamery_base::{Env, FixedEnv, SystemEnv};

pub use crate::tuning::Tuning;
