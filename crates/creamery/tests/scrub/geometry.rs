//! Profiles, and the places of a block group's bytes, from the on-disk format alone: nothing here uses the library.

use creamery_format::{BlockGroupFlags, RawChunk, RawStripe};
use zerocopy::IntoBytes;

/// Bytes of an element of a stripe.
pub(crate) const ELEMENT: u64 = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    flags: BlockGroupFlags,
    pub(crate) copies: usize,
    pub(crate) parity: usize,
    /// Whether it uses all members, in elements.
    is_striped: bool,
    /// The numbers of members of its sets: the minimum, and more.
    pub(crate) members: [usize; 2],
}

const fn profile(
    name: &'static str,
    flags: BlockGroupFlags,
    (copies, parity): (usize, usize),
    is_striped: bool,
    members: [usize; 2],
) -> Profile {
    Profile { name, flags, copies, parity, is_striped, members }
}

/// All profiles.
pub(crate) const PROFILES: [Profile; 9] = [
    profile("single", BlockGroupFlags::empty(), (1, 0), false, [1, 2]),
    profile("dup", BlockGroupFlags::DUP, (2, 0), false, [1, 2]),
    profile("raid0", BlockGroupFlags::RAID0, (1, 0), true, [2, 4]),
    profile("raid1", BlockGroupFlags::RAID1, (2, 0), false, [2, 3]),
    profile("raid1c3", BlockGroupFlags::RAID1C3, (3, 0), false, [3, 4]),
    profile("raid1c4", BlockGroupFlags::RAID1C4, (4, 0), false, [4, 5]),
    profile("raid10", BlockGroupFlags::RAID10, (2, 0), true, [4, 8]),
    profile("raid5", BlockGroupFlags::RAID5, (1, 1), true, [3, 5]),
    profile("raid6", BlockGroupFlags::RAID6, (1, 2), true, [4, 6]),
];

impl Profile {
    pub(crate) fn named(name: &str) -> Self {
        *PROFILES.iter().find(|profile| profile.name == name).expect("a profile of Btrfs")
    }

    /// Stripes of a group on this number of members.
    const fn stripes(&self, members: usize) -> usize {
        if self.is_striped { members } else { self.copies }
    }

    pub(crate) const fn is_striped(&self) -> bool {
        self.is_striped
    }
}

/// A place on a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct MemberSpot {
    pub(crate) member: usize,
    pub(crate) offset: u64,
}

/// A block group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) kind: BlockGroupFlags,
    pub(crate) profile: Profile,
    pub(crate) stripes: Vec<MemberSpot>,
}

impl Group {
    /// A group whose stripes lie on the members from `first` on, each at the end of the used area there.
    pub(crate) fn lay_out(
        (start, len): (u64, u64),
        kind: BlockGroupFlags,
        profile: Profile,
        first: usize,
        taken: &mut [u64],
    ) -> Self {
        let mut group = Self { start, len, kind, profile, stripes: Vec::new() };
        let count = profile.stripes(taken.len());
        let bytes = len / group.columns_of(count);
        for number in 0..count {
            // Both copies of DUP lie on one member.
            let member = (first + if profile.name == "dup" { 0 } else { number }) % taken.len();
            group.stripes.push(MemberSpot { member, offset: taken[member] });
            taken[member] += bytes.next_multiple_of(ELEMENT);
        }
        group
    }

    pub(crate) fn flags(&self) -> BlockGroupFlags {
        self.kind | self.profile.flags
    }

    fn columns_of(&self, stripes: usize) -> u64 {
        match self.profile.is_striped {
            true => ((stripes - self.profile.parity) / self.profile.copies) as u64,
            false => 1,
        }
    }

    /// Columns of data.
    pub(crate) fn columns(&self) -> u64 {
        self.columns_of(self.stripes.len())
    }

    pub(crate) fn stripe_bytes(&self) -> u64 {
        self.len / self.columns()
    }

    pub(crate) fn has(&self, logical: u64) -> bool {
        (self.start..self.start + self.len).contains(&logical)
    }

    fn spot(&self, stripe: usize, within: u64) -> MemberSpot {
        MemberSpot { offset: self.stripes[stripe].offset + within, ..self.stripes[stripe] }
    }

    /// The places of all copies of a byte.
    pub(crate) fn copies(&self, logical: u64) -> Vec<MemberSpot> {
        let from = logical - self.start;
        if !self.profile.is_striped {
            return (0..self.stripes.len()).map(|stripe| self.spot(stripe, from)).collect();
        }
        let (number, columns) = (from / ELEMENT, self.columns());
        let (row, column) = (number / columns, (number % columns) as usize);
        let within = row * ELEMENT + from % ELEMENT;
        if self.profile.parity > 0 {
            return vec![self.spot(self.stripe_of(row, column), within)];
        }
        let copies = self.profile.copies;
        (column * copies..(column + 1) * copies).map(|stripe| self.spot(stripe, within)).collect()
    }

    /// The stripe of a column of a row: the columns rotate by one from row to row.
    pub(crate) fn stripe_of(&self, row: u64, column: usize) -> usize {
        let stripes = self.stripes.len();
        ((row % stripes as u64) as usize + column) % stripes
    }

    /// The row of a byte.
    pub(crate) fn row_of(&self, logical: u64) -> u64 {
        (logical - self.start) / ELEMENT / self.columns()
    }

    /// The place of an element of a row: its data columns, then P, then Q.
    pub(crate) fn element(&self, row: u64, column: usize) -> MemberSpot {
        self.spot(self.stripe_of(row, column), row * ELEMENT)
    }

    /// The column of a byte in its row.
    pub(crate) fn column_of(&self, logical: u64) -> usize {
        ((logical - self.start) / ELEMENT % self.columns()) as usize
    }

    /// The offset of a byte in its element.
    pub(crate) const fn within(&self, logical: u64) -> u64 {
        (logical - self.start) % ELEMENT
    }

    /// One place of a row, in each of its columns.
    pub(crate) fn place(&self, row: u64, within: u64) -> Vec<MemberSpot> {
        let spots = (0..self.stripes.len()).map(|column| self.element(row, column));
        spots.map(|spot| MemberSpot { offset: spot.offset + within, ..spot }).collect()
    }

    /// The item of the group in the chunk tree.
    pub(crate) fn item(&self, uuids: &[[u8; 16]]) -> Vec<u8> {
        let unit = u32::try_from(ELEMENT).expect("64 KiB");
        let head = RawChunk {
            length: self.len.into(),
            owner: 2.into(),
            stripe_len: ELEMENT.into(),
            kind: self.flags().bits().into(),
            io_align: unit.into(),
            io_width: unit.into(),
            sector_size: 4096.into(),
            num_stripes: u16::try_from(self.stripes.len()).expect("few stripes").into(),
            sub_stripes: if self.profile.name == "raid10" { 2.into() } else { 1.into() },
        };
        let mut item = head.as_bytes().to_vec();
        for spot in &self.stripes {
            let devid = (spot.member as u64 + 1).into();
            let stripe = RawStripe { devid, offset: spot.offset.into(), dev_uuid: uuids[spot.member] };
            item.extend_from_slice(stripe.as_bytes());
        }
        item
    }
}

/// P and Q of the columns of a row, all of the same length.
pub(crate) fn parity_of(columns: &[Vec<u8>]) -> [Vec<u8>; 2] {
    let len = columns[0].len();
    let (mut p, mut q) = (vec![0; len], vec![0; len]);
    for column in columns.iter().rev() {
        for (at, byte) in column.iter().enumerate() {
            p[at] ^= byte;
            q[at] = twice(q[at]) ^ byte;
        }
    }
    [p, q]
}

/// Multiplication by x in GF(256), the field of Q.
const fn twice(value: u8) -> u8 {
    (value << 1) ^ if value & 0x80 > 0 { 0x1d } else { 0 }
}
