//! One file per command.

pub(crate) mod cat;
pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod cp;
pub(crate) mod dedupe;
pub(crate) mod defragment;
pub(crate) mod df;
pub(crate) mod du;
pub(crate) mod fallocate;
pub(crate) mod fiemap;
pub(crate) mod filesystem;
pub(crate) mod generate;
pub(crate) mod helper;
pub(crate) mod inspect;
pub(crate) mod ls;
pub(crate) mod mkfs;
pub(crate) mod mount;
pub(crate) mod partitions;
pub(crate) mod property;
pub(crate) mod quota;
pub(crate) mod resolve;
pub(crate) mod stat;
pub(crate) mod stats;
pub(crate) mod subvolume;
pub(crate) mod sync;
