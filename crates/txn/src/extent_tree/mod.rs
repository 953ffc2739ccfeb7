//! The extent tree: the references to each extent, in the state after all queued changes have run.
//!
//! | file | |
//! |---|---|
//! | `backref` | one reference to an extent |
//! | `ref_head`, `delayed_refs` | queued changes |
//! | `item`, `apply`, `run` | the extent item, and putting changes into the tree |
//! | `owners` | the trees that refer to an extent, as far as its item shows |
//! | `gaps` | free space, where there is no free space tree |
//! | `references`, `sole_user` | the number of references to a block, and whether data has one file as its only user |
//!
//! Allocating and freeing only queue changes; `RefRunner` applies the queue, one head at a time, beside working threads.

mod apply;
mod backref;
mod delayed_refs;
mod gaps;
mod item;
mod lost_references;
mod outcome;
mod owners;
mod ref_head;
mod references;
mod run;
mod sole_user;
mod tree;

pub(crate) use backref::{Backref, ExtentKind, file_extent_address};
pub(crate) use item::ExtentItem;
pub(crate) use outcome::Outcome;
pub(crate) use owners::Owners;
pub(crate) use run::Ran;
pub(crate) use tree::ExtentTree;
