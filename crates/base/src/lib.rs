//! The ground floor: types that every other room uses, and no mechanism of its own.
//!
//! Addresses and ids are newtypes ([`Logical`], [`Generation`], [`TreeId`], ...), so that a device offset can
//! never be passed instead of a logical address. [`Error`] names a failure and its place. [`Wait`] and
//! [`gate`] carry the rule that a caller may forbid waiting. [`lock`] holds locks that know their rank, [`sync`]
//! their primitives. [`Env`] brings the clock and randomness in from outside, so that a seed replays a run.
//! [`Escaped`] shows names from outside, [`HumanSize`] sizes. [`Histogram`] counts durations, [`PerThread`] counts from many threads without a
//! shared cache line. [`memory`] estimates the memory of collections. [`is_same`] compares content. [`panics`] makes a panic a value.

mod address;
mod damaged_block;
mod env;
mod error;
mod escape;
mod found_taken;
pub mod gate;
mod histogram;
mod id_hasher;
pub mod lock;
pub mod memory;
pub mod panics;
mod per_thread;
mod piece_buffer;
mod qgroup_id;
mod same;
mod sharded_arc;
mod size;
pub mod sync;
mod time;

/// A value that shares no cache line with others.
pub use crossbeam_utils::CachePadded;

pub use address::{DevId, Generation, InodeId, Logical, ObjectId, Physical, TreeId};
pub use damaged_block::DamagedBlock;
pub use env::{Env, FixedEnv, SystemEnv};
pub use error::{Error, ErrorKind, Result};
pub use escape::{Escaped, is_drawn};
pub use gate::Wait;
pub use histogram::{Histogram, HistogramSnapshot};
pub use id_hasher::IdHasher;
pub use per_thread::PerThread;
pub use piece_buffer::PieceBuffer;
pub use qgroup_id::QgroupId;
pub use same::is_same;
pub use sharded_arc::ShardedArc;
pub use size::{HumanSize, parse_size};
pub use time::Timespec;
pub use uuid::Uuid;
