//! The subvolumes of an image that is not mounted, or of a live mount.

use std::ffi::OsStr;
use std::path::Path;

use creamery::Error;
use creamery::id::TreeId;
use creamery::subvolume::SubvolumeTable;

use super::target::{OnMount, failed_at};
use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::path_in_image::PathInImage;

/// All subvolumes, and the one that the operand names.
pub(in crate::commands) struct NamedSubvolumes {
    pub(in crate::commands) table: SubvolumeTable,
    /// The subvolume that the path is in.
    pub(in crate::commands) here: TreeId,
    /// Whether the path is the root of that subvolume.
    pub(in crate::commands) is_root: bool,
}

impl NamedSubvolumes {
    /// Lists the subvolumes of the image or mount that `text` names. A mounted image is asked through its mount.
    /// Errors: the place does not exist or cannot be read; a mount answers only root and its mounter.
    pub(in crate::commands) fn of(images: &mut Images<'_>, text: &OsStr) -> Result<Self, Failure> {
        let of_mount = |images: &mut Images<'_>, point: &Path| Self::of_named(images, point.as_os_str());
        images.image_or_mount(text, |images| Self::of_named(images, text), of_mount)
    }

    fn of_named(images: &mut Images<'_>, text: &OsStr) -> Result<Self, Failure> {
        if let Some(on_mount) = OnMount::of(images.command(), text)? {
            return Self::of_mount(images.command(), on_mount);
        }
        let PathInImage { image, path } = images.place(text)?;
        let failed = images.failed(&image);
        let fs = images.open(&image, Purpose::Read)?;
        let told = || -> Result<Self, Error> {
            let here = fs.metadata(&path)?.subvolume();
            Ok(Self { table: fs.subvolumes().table()?, here, is_root: fs.subvolumes().id_at(&path).is_ok() })
        };
        told().map_err(failed)
    }

    /// Lists the subvolumes of a mount.
    /// Errors: as for [`NamedSubvolumes::of`].
    pub(in crate::commands) fn of_mount(command: &'static str, on_mount: OnMount) -> Result<Self, Failure> {
        let OnMount { path, dir, is_dir } = on_mount;
        let (table, here, is_root) = dir.subvolume_table().map_err(failed_at(command, &path))?;
        Ok(Self { table, here, is_root: is_root && is_dir })
    }
}
