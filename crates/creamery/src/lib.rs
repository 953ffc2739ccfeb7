//! Btrfs in userspace: filesystems in image files and on block devices, without root and without the kernel.
//!
//! Linux mounts filesystems that this library writes, and `btrfs check` accepts them. The library reads and
//! writes filesystems that Linux writes. It is modelled on [`std::fs`], with a [`Filesystem`] in front of every path.
//!
//! # Make
//! ```
//! use creamery::Image;
//! # let dir = tempfile::tempdir()?;
//! # std::fs::create_dir(dir.path().join("rootfs"))?;
//! # std::fs::write(dir.path().join("rootfs/hello"), "world")?;
//! # let (empty, filled, rootfs) =
//! #     (dir.path().join("empty.img"), dir.path().join("filled.img"), dir.path().join("rootfs"));
//! // An empty filesystem of 256 MiB, and one filled from a directory.
//! Image::make(empty).size(256 << 20).label("backup").run()?;
//! Image::make(filled).rootdir(rootfs).run()?;
//! # Ok::<(), creamery::Error>(())
//! ```
//!
//! # Open, walk, read
//! ```
//! use creamery::Image;
//! use std::io::Read;
//! # let dir = tempfile::tempdir()?;
//! # std::fs::create_dir(dir.path().join("rootfs"))?;
//! # std::fs::write(dir.path().join("rootfs/hello"), "world")?;
//! # let image = dir.path().join("disk.img");
//! # Image::make(&image).rootdir(dir.path().join("rootfs")).run()?;
//! let fs = Image::open(&image)?;
//! for entry in fs.walk("/")? {
//!     let entry = entry?;
//!     println!("{} {}", entry.metadata()?.len(), entry.path().display());
//! }
//! assert_eq!(fs.read_to_string("/hello")?, "world");
//! let mut first = [0; 3];
//! fs.open("/hello")?.read_exact(&mut first)?;
//! assert_eq!(&first, b"wor");
//! # Ok::<(), creamery::Error>(())
//! ```
//!
//! # Write
//! ```
//! use creamery::Image;
//! use std::io::Write;
//! # let dir = tempfile::tempdir()?;
//! # let image = dir.path().join("disk.img");
//! # Image::make(&image).size(256 << 20).run()?;
//! let fs = Image::options().write().open(&image)?;
//! fs.create_dir_all("/etc/conf.d")?;
//! fs.write("/etc/hostname", "dairy\n")?;
//! fs.create("/etc/motd")?.write_all(b"welcome\n")?;
//! fs.symlink("hostname", "/etc/name")?;
//! fs.rename("/etc/motd", "/etc/issue")?;
//! fs.close()?; // durable from here on
//! # Ok::<(), creamery::Error>(())
//! ```

/// The lines of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

pub mod attributes;
mod attributes_by_path;
mod beginning;
mod canonical;
pub mod check;
pub mod compression;
pub mod copy;
mod copy_options;
mod copy_out;
mod copying;
mod dedupe;
mod default_subvolume;
pub mod device;
pub mod diff;
mod disk_usage;
pub mod env;
pub mod error;
pub mod extents;
mod file;
mod file_times;
mod filesystem;
pub mod history;
mod host_filesystems;
mod host_path;
pub mod id;
mod image;
mod image_sink;
pub mod inspect;
#[cfg(test)]
mod interrupt_tests;
mod lost_names;
mod make;
mod metadata;
pub mod mkfs;
mod mode_change;
mod moving;
mod names;
mod opaque;
mod open_options;
mod owner;
pub mod partitions;
mod path;
mod permissions;
pub mod progress;
pub mod quota;
mod read_dir;
pub mod report;
pub mod rescue;
mod resolve;
mod salvage;
mod selection;
mod sink;
pub mod statistics;
pub mod subvolume;
mod subvolumes;
mod survey;
pub mod tar;
mod tuning;
mod uuid_change;
pub mod volume;
mod walk;

pub use creamery_base::{Error, ErrorKind, Result, Uuid};
/// A filesystem of several devices is opened by their names:
///
/// ```no_run
/// use creamery::{Image, NamedSet};
/// let all = Image::open("a.img")?; // others are found beside it
/// let left = Image::open(NamedSet::new("a.img").degraded())?; // one of two mirrors is gone
/// let named = Image::open(NamedSet::new("a.img").device("/backup/b.img"))?;
/// # Ok::<(), creamery::Error>(())
/// ```
pub use creamery_volume::NamedSet;
pub use file::File;
pub use filesystem::Filesystem;
pub use image::{Image, ImageOptions};
pub use make::Make;
pub use metadata::{FileType, Metadata};
pub use open_options::OpenOptions;
pub use permissions::Permissions;
pub use read_dir::{DirEntry, ReadDir};
pub use walk::{Walk, WalkEntry};

pub(crate) use creamery_fs as fs;
