//! `Debug` for types without printable fields: prints their name, so that structs that contain them can derive `Debug`.

use std::fmt;

macro_rules! opaque {
    ($($type:ty: $name:literal),* $(,)?) => {
        $(impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct($name).finish_non_exhaustive()
            }
        })*
    };
}

opaque! {
    crate::Filesystem: "Filesystem",
    crate::File: "File",
    crate::ImageOptions: "ImageOptions",
    crate::Make: "Make",
    crate::copy::Copying<'_>: "Copying",
    crate::tar::WriteTar<'_>: "WriteTar",
    crate::tar::ReadTar<'_>: "ReadTar",
    crate::diff::Diff<'_>: "Diff",
    crate::device::direct::Started: "Started",
    crate::report::Overview: "Overview",
}

impl fmt::Debug for crate::ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadDir").field(&self.path()).finish()
    }
}

impl fmt::Debug for crate::DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirEntry").field(&self.path()).finish()
    }
}

impl fmt::Debug for crate::Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").finish_non_exhaustive()
    }
}

impl fmt::Debug for crate::WalkEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WalkEntry").field(&self.path()).finish()
    }
}
