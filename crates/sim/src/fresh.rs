//! New images for the workloads.

use std::sync::Arc;

use anyhow::Result;
use creamery_base::{FixedEnv, Timespec};
use creamery_mkfs::{MkfsOptions, Profile, make_filesystem};

use creamery_fs::FileType;

use crate::device::SimDevice;
use crate::driver::Driver;
use crate::image::Image;
use crate::model::{Model, ROOT};
use crate::operation::Operation;

/// The parameters of a new image.
///
/// ```
/// use creamery_sim::MadeBy;
/// let deep = MadeBy { node_size: 4096, ..MadeBy::default() };
/// # assert_eq!(deep.len, 128 << 20);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MadeBy {
    /// Bytes of the device. From 64 MiB and a page on it has two superblock copies.
    pub len: u64,
    /// Bytes of a tree block; small ones make deep trees.
    pub node_size: u32,
    /// The profile of data.
    pub data: Profile,
    /// The profile of metadata.
    pub metadata: Profile,
    /// Whether data and metadata share their chunks, in blocks of 4096 bytes.
    pub mixed: bool,
    /// Whether holes in files go without items.
    pub no_holes: bool,
}

impl Default for MadeBy {
    fn default() -> Self {
        let (data, metadata) = (Profile::Single, Profile::Dup);
        Self { len: 128 << 20, node_size: 16384, data, metadata, mixed: false, no_holes: true }
    }
}

/// Makes an empty filesystem with our own mkfs.
///
/// # Errors
/// mkfs refuses the parameters.
pub fn fresh_image(how: &MadeBy) -> Result<Image> {
    let device = SimDevice::new(Image::new(how.len));
    let env = FixedEnv::new(Timespec { sec: 1_700_000_000, nsec: 0 }, 42);
    let mut options = MkfsOptions { node_size: Some(how.node_size), ..MkfsOptions::default() };
    (options.data, options.metadata) = (Some(how.data), Some(how.metadata));
    options.features.mixed_groups = how.mixed;
    options.features.no_holes = how.no_holes;
    // The block group tree requires no-holes.
    options.features.block_group_tree &= how.no_holes;
    make_filesystem(&device, &options, &env)?;
    let mut image = device.image();
    image.freeze();
    Ok(image)
}

/// Makes a filesystem with `files` durable files in the root, and its model; `len` gives the length of each file.
///
/// # Errors
/// The engine fails.
pub fn image_with_files(how: &MadeBy, files: u64, len: impl Fn(u64) -> usize) -> Result<(Image, Model)> {
    let device = Arc::new(SimDevice::new(fresh_image(how)?));
    let mut driver = Driver::open_fresh(&device)?;
    for number in 0..files {
        let name = format!("name{number}").into_bytes();
        driver.apply(&Operation::Create { dir: ROOT, name, kind: FileType::File, mode: 0o644 })?;
        let write = Operation::Write { inode: number + 1, offset: 0, len: len(number), seed: number };
        driver.apply(&write)?;
    }
    let driver = driver.restart(&device)?;
    let model = driver.model().clone();
    drop(driver);
    let mut image = device.image();
    image.freeze();
    Ok((image, model))
}
