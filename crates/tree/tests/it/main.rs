//! Tests of trees as their callers see them, over a volume in memory.

mod model;
mod verify;
mod world;
