//! Growing the filesystem on a device.

use creamery_base::{DevId, Error, ErrorKind, Result};

use super::Engine;
use crate::reserve_items::ReserveItems;

impl Engine {
    /// Makes the filesystem take `total` bytes of a device, with the running transaction: a multiple of the sector, and no
    /// more than the device has. It does nothing where it has as many already.
    /// Errors: not found; the device is shorter; read-only; no space; damage.
    pub fn grow_device(&self, dev: DevId, total: u64) -> Result<()> {
        let sector = u64::from(self.sector_size());
        let has = self.devices().into_iter().find(|device| device.id == dev);
        let has = has.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("device {dev}")))?.total_bytes;
        let most = self.volume().device(dev).map_or(0, |device| device.len());
        if total > most || !total.is_multiple_of(sector) {
            let what = format!(
                "device {dev}: the size is out of range, expected at most {most}, found {total}, in sectors"
            );
            return Err(Error::invalid(what));
        }
        // Another thread may have been faster, with more.
        if total <= has {
            return Ok(());
        }
        // It may use the reserve, like a deletion: it also has to work on a full filesystem.
        let handle = self.start(ReserveItems::freeing(1))?;
        match self.chunks.grow_device(&handle, dev, total) {
            Ok(more) => {
                handle.add_total_bytes(more);
                handle.end();
                Ok(())
            }
            Err(error) => Err(handle.abort(error)),
        }
    }
}
