//! The extent tree: who refers to which extent, as it will be when everything queued has run.
//!
//! | file | |
//! |---|---|
//! | `backref` | who refers |
//! | `ref_head`, `delayed_refs` | changes that wait |
//! | `item`, `apply`, `run` | the extent item, and putting changes into the tree |
//! | `owners` | who has an extent, as far as its item tells |
//! | `gaps` | what is free, where no free space tree says so |
//! | `references`, `sole_user` | asking how often a block is referred to, and whether data is by one file alone |
//!
//! Allocating and freeing only queue; `RefRunner` has the queue applied, one head at a time, while others go on.

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
