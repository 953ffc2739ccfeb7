//! Btrfs in userspace.
