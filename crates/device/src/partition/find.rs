//! Finding the valid table.

use creamery_base::Result;

use super::gpt::{self, Copy, Found};
use super::mbr::{Mbr, SECTOR_LEN};
use super::table::PartitionTable;
use crate::BlockDevice;

/// Sector sizes of disks, bytes.
const SECTORS: [u64; 2] = [512, 4096];

impl PartitionTable {
    /// Reads the table of `device`; `None` if it has none.
    ///
    /// # Errors
    /// [`InvalidInput`](creamery_base::ErrorKind::InvalidInput) if there is a table without a good copy; and the device's errors.
    pub fn read(device: &dyn BlockDevice) -> Result<Option<Self>> {
        let mut sector = [0; SECTOR_LEN];
        if device.len() < SECTOR_LEN as u64 {
            return Ok(None);
        }
        device.read_at(0, &mut sector)?;
        let mbr = Mbr::parse(&sector);
        match &mbr {
            Some(mbr) if !mbr.is_protective() => mbr.read(device, device.sector_size()).map(Some),
            _ => Self::read_gpt(device, mbr.is_some(), sector == [0; SECTOR_LEN]),
        }
    }

    /// Reads a GPT. `is_said`: the first sector declares one. `is_wiped`: the first sector is all zeros.
    fn read_gpt(device: &dyn BlockDevice, is_said: bool, is_wiped: bool) -> Result<Option<Self>> {
        // A device knows its sector size; a file may be a copy of any device.
        let own = device.sector_size();
        let others = SECTORS.into_iter().filter(|size| *size != own);
        let sizes: Vec<u64> = std::iter::once(own).chain(others).collect();
        let mut damage = None;
        for &size in &sizes {
            match gpt::read(device, size, Copy::First)? {
                Found::Whole(mut table) => {
                    if !is_said {
                        table.note(
                            "no protective MBR is in the first sector: other programs may see no table",
                        );
                    }
                    return Ok(Some(table));
                }
                Found::Damaged(why) => damage = damage.or(Some(why)),
                Found::Nothing => {}
            }
        }
        if !is_said && !is_wiped && damage.is_none() {
            return Ok(None);
        }
        let mut last = None;
        for &size in &sizes {
            match gpt::read(device, size, Copy::Last)? {
                Found::Whole(mut table) => {
                    let why = damage.as_deref().unwrap_or("it is gone");
                    table.note(format!("the first GPT is damaged ({why}); the one at the end was used"));
                    return Ok(Some(table));
                }
                Found::Damaged(why) => last = last.or(Some(why)),
                Found::Nothing => {}
            }
        }
        match (damage.is_some() || is_said, damage.or(last)) {
            (true, why) => Err(gpt::damaged(device, why.as_deref())),
            (false, _) => Ok(None),
        }
    }
}
