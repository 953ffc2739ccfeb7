//! New images for the workloads.

use anyhow::Result;
use creamery_base::{FixedEnv, Timespec};
use creamery_mkfs::{MkfsOptions, Profile, make_filesystem};

use crate::device::SimDevice;
use crate::image::Image;

/// How an image is made.
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
    /// Copies of data.
    pub data: Profile,
    /// Copies of metadata.
    pub metadata: Profile,
    /// Whether data and metadata share their chunks, in blocks of 4096 bytes.
    pub mixed: bool,
}

impl Default for MadeBy {
    fn default() -> Self {
        Self { len: 128 << 20, node_size: 16384, data: Profile::Single, metadata: Profile::Dup, mixed: false }
    }
}

/// An empty filesystem of our own making.
///
/// # Errors
/// When mkfs refuses.
pub fn fresh_image(how: &MadeBy) -> Result<Image> {
    let device = SimDevice::new(Image::new(how.len));
    let env = FixedEnv::new(Timespec { sec: 1_700_000_000, nsec: 0 }, 42);
    let mut options = MkfsOptions { node_size: Some(how.node_size), ..MkfsOptions::default() };
    (options.data, options.metadata) = (Some(how.data), Some(how.metadata));
    options.features.mixed_groups = how.mixed;
    make_filesystem(&device, &options, &env)?;
    let mut image = device.image();
    image.freeze();
    Ok(image)
}
