//! Blocks, items and superblocks as btrfs-progs print them.

mod common;
mod crafted;
mod dump_tree;
