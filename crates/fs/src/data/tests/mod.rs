//! Tests of the data room over an engine.

mod aborts;
mod beside;
mod clones;
mod content;
mod drop_extents;
mod hostile;
pub(crate) mod model;
mod nocow;
mod packing;
mod prealloc;
mod rewrite;
pub(crate) mod support;
mod write;
