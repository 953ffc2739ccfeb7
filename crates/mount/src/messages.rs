//! Offsets and sizes in the messages of `linux/btrfs.h`, bytes: for the asker (`linux`) and for the server (`subvolumes/ioctl`).

/// `struct btrfs_ioctl_get_subvol_info_args`.
pub(crate) const SUBVOL_INFO: usize = 504;
/// `struct btrfs_ioctl_received_subvol_args`, and the offsets of the transaction and the time of receiving in the answer.
pub(crate) const RECEIVED: usize = 200;
pub(crate) const RECEIVED_TRANSID: usize = 24;
pub(crate) const RECEIVED_TIME: usize = 48;
/// `struct btrfs_ioctl_fs_info_args`.
pub(crate) const FS_INFO: usize = 1024;
/// Offset of the path of a device in `struct btrfs_ioctl_dev_info_args`.
pub(crate) const DEVICE_PATH: usize = 3072;
/// `struct btrfs_ioctl_get_dev_stats`, its flag that resets the counters (`BTRFS_DEV_STATS_RESET`), and the offset of the counters.
pub(crate) const DEV_STATS: usize = 1032;
pub(crate) const DEV_STATS_RESET: u64 = 1;
pub(crate) const DEV_STATS_COUNTS: usize = 24;
/// Offset of the path in `struct btrfs_ioctl_ino_lookup_args`.
pub(crate) const LOOKUP_PATH: usize = 16;
/// `struct btrfs_ioctl_search_key`; the items follow it.
pub(crate) const SEARCH_KEY: usize = 104;
/// `struct btrfs_ioctl_search_header`, in front of each item.
pub(crate) const SEARCH_HEADER: usize = 32;
