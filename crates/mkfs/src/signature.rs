//! What a device holds before we write to it.

use creamery_base::Result;
use creamery_device::BlockDevice;
use creamery_format::SIGNATURES_END;

/// How much of a file has to be zeros for it to hold nothing.
const LOOKED_AT: u64 = 1 << 20;

fn read_head(device: &dyn BlockDevice, len: u64) -> Result<Vec<u8>> {
    let mut head = vec![0; usize::try_from(len.min(device.len())).expect("a head is small")];
    device.read_at(0, &mut head)?;
    Ok(head)
}

/// The name of what `device` holds, none when nothing known is found.
///
/// # Errors
/// When the device cannot be read.
pub fn find_signature(device: &dyn BlockDevice) -> Result<Option<&'static str>> {
    let head = read_head(device, SIGNATURES_END as u64)?;
    Ok(creamery_format::find_signature(&head).map(|found| found.name))
}

/// Where the first byte is that is not zero, of those that tell whether a file is in use.
pub(crate) fn first_content(device: &dyn BlockDevice) -> Result<Option<u64>> {
    let head = read_head(device, LOOKED_AT)?;
    Ok(head.iter().position(|byte| *byte != 0).map(|at| at as u64))
}
