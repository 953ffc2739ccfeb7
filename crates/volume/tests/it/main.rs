//! The volume on devices in memory, with images that mkfs.btrfs made and with devices that fail.

mod batch;
mod commit;
mod damage;
mod faulty;
mod fetched;
mod images;
mod named_set;
mod open;
mod parity;
mod profiles;
mod submit_read;
mod untouched;
mod write;
