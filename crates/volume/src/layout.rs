//! The layout of bytes in each profile.

use creamery_format::BlockGroupFlags;

/// The largest number of data columns: Q does not tell more apart. No device of Linux has room for an item of so many stripes.
const DATA_COLUMNS_MAX: u16 = 255;

/// The layout of a profile's bytes over a chunk's stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// Copies of each byte.
    pub(crate) copies: u16,
    /// The number of devices, or groups of devices, over which the stripes go round.
    pub(crate) columns: u16,
    /// Parity stripes of each row: 1 for RAID5, 2 for RAID6. Columns are the data columns, and the place of parity goes round, too.
    pub(crate) parity: u16,
}

impl Layout {
    /// Returns the layout of a chunk of `stripes` stripes, if that number suits its profile.
    pub(crate) fn of(flags: BlockGroupFlags, stripes: u16, sub_stripes: u16) -> Option<Self> {
        let profile = flags.profile();
        let mirrored = |copies: u16| (stripes == copies).then_some(Self { copies, columns: 1, parity: 0 });
        let parity = |parity: u16| {
            let columns = stripes.checked_sub(parity)?;
            (1..=DATA_COLUMNS_MAX).contains(&columns).then_some(Self { copies: 1, columns, parity })
        };
        if profile.is_empty() {
            mirrored(1)
        } else if profile == BlockGroupFlags::DUP || profile == BlockGroupFlags::RAID1 {
            mirrored(2)
        } else if profile == BlockGroupFlags::RAID1C3 {
            mirrored(3)
        } else if profile == BlockGroupFlags::RAID1C4 {
            mirrored(4)
        } else if profile == BlockGroupFlags::RAID0 {
            (stripes >= 1).then_some(Self { copies: 1, columns: stripes, parity: 0 })
        } else if profile == BlockGroupFlags::RAID10 {
            let fits = stripes >= 2 && stripes.is_multiple_of(2) && sub_stripes == 2;
            fits.then_some(Self { copies: 2, columns: stripes / 2, parity: 0 })
        } else if profile == BlockGroupFlags::RAID5 {
            parity(1)
        } else if profile == BlockGroupFlags::RAID6 {
            parity(2)
        } else {
            None // two profiles at once
        }
    }
}
