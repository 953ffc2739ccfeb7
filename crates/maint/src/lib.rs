//! Maintenance: what walks over a whole filesystem to keep it well.
//!
//! A walker here reads the trees of a durable commit ([`creamery_txn::DurableTrees`]) and takes no lock on them. What it finds goes to a sink that
//! the caller gives. See [`scrub`].

pub mod scrub;
