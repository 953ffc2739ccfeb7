//! The content of a device before we write to it.

use creamery_base::Result;
use creamery_device::BlockDevice;
use creamery_format::SIGNATURES_END;

/// Bytes of a file that must be zeros if it counts as empty.
const LOOKED_AT: u64 = 1 << 20;

fn read_head(device: &dyn BlockDevice, len: u64) -> Result<Vec<u8>> {
    let mut head = vec![0; usize::try_from(len.min(device.len())).expect("a head is small")];
    device.read_at(0, &mut head)?;
    Ok(head)
}

/// The name of the content of `device`; `None` if nothing known is found.
///
/// # Errors
/// The device cannot be read.
pub fn find_signature(device: &dyn BlockDevice) -> Result<Option<&'static str>> {
    let head = read_head(device, SIGNATURES_END as u64)?;
    Ok(creamery_format::find_signature(&head).map(|found| found.name))
}

/// The offset of the first byte that is not zero, within the bytes that decide whether a file is in use.
pub(crate) fn first_content(device: &dyn BlockDevice) -> Result<Option<u64>> {
    let head = read_head(device, LOOKED_AT)?;
    Ok(head.iter().position(|byte| *byte != 0).map(|at| at as u64))
}
