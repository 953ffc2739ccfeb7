//! Opening devices by name.

use std::path::Path;

use creamery_base::Result;
use creamery_device::{Access, DeviceIo, FileDevice};

/// The parameters for opening devices.
#[derive(Clone, Copy)]
pub(super) struct Opening {
    pub(super) access: Access,
    pub(super) io: DeviceIo,
}

impl Opening {
    pub(super) fn open(self, path: &Path) -> Result<FileDevice> {
        FileDevice::open_with(path, self.access, self.io)
    }
}
