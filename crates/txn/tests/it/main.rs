//! Transactions on real images and on devices in memory: models, threads, refusals, and data beside commits.

mod data;
mod devices;
mod discard;
mod model;
mod newer;
mod old_layouts;
mod panics;
mod reads;
mod refusals;
mod shared_blocks;
mod threads;
mod write_out;

#[path = "../support/neighbours.rs"]
mod neighbours;
#[path = "../support/remove.rs"]
mod remove;
