//! How the profiles lay bytes out.

use creamery_format::BlockGroupFlags;

/// More columns Q does not tell apart. No device of Linux has room for an item of so many stripes.
const DATA_COLUMNS_MAX: u16 = 255;

/// How a profile lays bytes out over a chunk's stripes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    /// Copies of each byte.
    pub(crate) copies: u16,
    /// Over how many devices, or groups of devices, the stripes go round.
    pub(crate) columns: u16,
    /// Parity stripes of each row: 1 of RAID5, 2 of RAID6. Columns are those with data, and the place of parity goes round, too.
    pub(crate) parity: u16,
}

impl Layout {
    /// The layout of a chunk of `stripes` stripes, if that number suits its profile.
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
