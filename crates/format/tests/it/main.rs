//! Blocks, items and superblocks, compared with the output of btrfs-progs.

mod common;
mod crafted;
mod dump_tree;
