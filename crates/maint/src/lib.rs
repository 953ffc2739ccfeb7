//! Maintenance: walks over whole filesystems that keep them healthy.
//!
//! A walker here reads the trees of a durable commit ([`creamery_txn::DurableTrees`]) and takes no lock on them. Its findings go to a sink
//! that the caller gives. See [`scrub`].

pub mod scrub;
