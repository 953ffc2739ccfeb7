//! What a filesystem takes from its host: the clock, randomness, memory and threads.

pub use creamery_base::{Env, FixedEnv, SystemEnv};

pub use crate::tuning::Tuning;
