//! Tests of trees as their callers see them, over a volume in memory.

mod bookmarks;
mod commit_cursors;
mod damage;
mod faults;
mod fingers;
mod links;
mod low_keys;
mod model;
mod overlap;
mod read_ahead;
mod verify;
mod world;
