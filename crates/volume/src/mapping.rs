//! From a logical range to the places of its copies.
//!
//! A chunk's profile says two things: how many copies there are of each byte, and whether the chunk is cut into
//! stripes that go round the devices.
//!
//! ```text
//! single, DUP, RAID1*   every device holds the whole chunk                       copies = stripes, columns = 1
//! RAID0                 stripe n lies on device n mod columns                    copies = 1, columns = stripes
//! RAID10                the devices form groups of two, each as one RAID0 column copies = 2, columns = stripes / 2
//! RAID5, RAID6          the data columns of rows (`rows`)                        copies = 1, columns = stripes - parity
//! ```

use creamery_base::{DevId, Error, ErrorKind, Logical, Physical, Result};
use smallvec::SmallVec;

use crate::Chunk;
use crate::device_range::DeviceRange;
use crate::layout::Layout;
use crate::rows::Rows;

/// One copy of a logical range: its pieces in logical order.
pub type Mirror = SmallVec<[DeviceRange; 1]>;

/// All copies of a logical range, in the order in which they are tried.
///
/// ```
/// use creamery_volume::MirrorSet;
/// assert_eq!(MirrorSet::default().copies(), 0);
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct MirrorSet {
    mirrors: SmallVec<[Mirror; 2]>,
}

impl MirrorSet {
    #[cfg(test)]
    pub(crate) fn new(mirrors: Vec<Mirror>) -> Self {
        Self { mirrors: mirrors.into() }
    }

    /// Returns the copies.
    #[must_use]
    pub fn mirrors(&self) -> &[Mirror] {
        &self.mirrors
    }

    /// Sorts the copies of each piece by the `rank` of their devices, the lowest first.
    pub(crate) fn in_order(mut self, rank: impl Fn(DevId) -> u8) -> Self {
        for piece in 0..self.mirrors.first().map_or(0, |mirror| mirror.len()) {
            let mut copies: SmallVec<[DeviceRange; 4]> =
                self.mirrors.iter().map(|mirror| mirror[piece]).collect();
            copies.sort_by_key(|copy| rank(copy.at.dev));
            self.mirrors.iter_mut().zip(copies).for_each(|(mirror, copy)| mirror[piece] = copy);
        }
        self
    }

    /// Returns the number of copies.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.mirrors.len()
    }
}

/// Returns the copies of `[at, at + len)`, which must lie inside `chunk`.
pub(crate) fn map(chunk: &Chunk, at: Logical, len: u64) -> Result<MirrorSet> {
    let inside =
        at.checked_sub(chunk.start).filter(|&from| from.checked_add(len).is_some_and(|to| to <= chunk.len));
    let Some(from) = inside else {
        let end = chunk.start.get() + chunk.len;
        let what = format!("{len} bytes at logical {at} leave their chunk [{}, {end})", chunk.start);
        return Err(Error::new(ErrorKind::Corrupt, what));
    };
    if let Some(rows) = Rows::of(chunk) {
        let direct = rows.elements(from, len).map(|element| rows.place(&element)).collect();
        return Ok(MirrorSet { mirrors: SmallVec::from_elem(direct, 1) });
    }
    let layout = chunk.layout();
    let mirrors =
        (0..usize::from(layout.copies)).map(|copy| mirror(chunk, layout, copy, from, len)).collect();
    Ok(MirrorSet { mirrors })
}

/// Returns one copy of the range `len` bytes long at `from` within the chunk.
fn mirror(chunk: &Chunk, layout: Layout, copy: usize, from: u64, len: u64) -> Mirror {
    let (columns, copies) = (u64::from(layout.columns), usize::from(layout.copies));
    let piece = |column: u64, offset: u64, len: u64| {
        let column = usize::try_from(column).expect("a column number is a u16");
        let stripe = &chunk.stripes[column * copies + copy];
        // Chunk::from_item has checked that the stripe's end does not wrap.
        DeviceRange { at: Physical { dev: stripe.dev, offset: stripe.offset + offset }, len }
    };
    if columns == 1 {
        return SmallVec::from_elem(piece(0, from, len), 1);
    }
    let mut pieces = Mirror::new();
    let mut done = 0;
    while done < len {
        let (number, within) = ((from + done) / chunk.stripe_len, (from + done) % chunk.stripe_len);
        let step = (chunk.stripe_len - within).min(len - done);
        pieces.push(piece(number % columns, number / columns * chunk.stripe_len + within, step));
        done += step;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use creamery_base::Uuid;
    use creamery_format::BlockGroupFlags;

    use super::*;
    use crate::Stripe;

    const START: u64 = 1 << 30;
    const KIB: u64 = 1024;

    /// A metadata chunk with a stripe at 1 MiB on each of `devices`.
    fn chunk(profile: BlockGroupFlags, devices: u64) -> Chunk {
        let stripe = |dev| Stripe { dev: DevId::new(dev), offset: 1 << 20, dev_uuid: Uuid::nil() };
        let stripes = (1..=devices).map(stripe).collect();
        Chunk::new(Logical::new(START), 12 << 20, BlockGroupFlags::METADATA | profile, 4096, stripes)
    }

    /// Each copy as (device, offset from the stripe's start in KiB, length in KiB).
    fn mapped(chunk: &Chunk, from: u64, len: u64) -> Vec<Vec<(u64, u64, u64)>> {
        let set = map(chunk, Logical::new(START + from * KIB), len * KIB).unwrap();
        let show =
            |piece: &DeviceRange| (piece.at.dev.get(), (piece.at.offset - (1 << 20)) / KIB, piece.len / KIB);
        set.mirrors().iter().map(|mirror| mirror.iter().map(show).collect()).collect()
    }

    #[test]
    fn unstriped_profiles_have_the_range_whole_on_each_device() {
        assert_eq!(mapped(&chunk(BlockGroupFlags::empty(), 1), 100, 200), [[(1, 100, 200)]]);
        for (profile, copies) in [
            (BlockGroupFlags::DUP, 2),
            (BlockGroupFlags::RAID1, 2),
            (BlockGroupFlags::RAID1C3, 3),
            (BlockGroupFlags::RAID1C4, 4),
        ] {
            let expected: Vec<_> = (1..=copies).map(|dev| vec![(dev, 100, 200)]).collect();
            assert_eq!(mapped(&chunk(profile, copies), 100, 200), expected);
        }
    }

    #[test]
    fn raid0_goes_round_the_devices() {
        let chunk = chunk(BlockGroupFlags::RAID0, 3);
        assert_eq!(chunk.stripe_bytes(), 4 << 20);
        assert_eq!(mapped(&chunk, 0, 4), [[(1, 0, 4)]]);
        assert_eq!(mapped(&chunk, 60, 200), [[(1, 60, 4), (2, 0, 64), (3, 0, 64), (1, 64, 64), (2, 64, 4)]]);
        assert_eq!(mapped(&chunk, (12 << 10) - 4, 4), [[(3, (4 << 10) - 4, 4)]]);
    }

    #[test]
    fn raid10_goes_round_pairs_of_devices() {
        let chunk = chunk(BlockGroupFlags::RAID10, 4);
        assert_eq!(chunk.stripe_bytes(), 6 << 20);
        let pairs = mapped(&chunk, 60, 72);
        assert_eq!(pairs, [[(1, 60, 4), (3, 0, 64), (1, 64, 4)], [(2, 60, 4), (4, 0, 64), (2, 64, 4)]]);
    }

    #[test]
    fn each_piece_comes_first_from_the_device_of_the_lowest_rank() {
        let set = map(&chunk(BlockGroupFlags::RAID10, 4), Logical::new(START), 128 * KIB).unwrap();
        let devices = |set: &MirrorSet| -> Vec<Vec<u64>> {
            set.mirrors()
                .iter()
                .map(|mirror| mirror.iter().map(|piece| piece.at.dev.get()).collect())
                .collect()
        };
        assert_eq!(devices(&set), [[1, 3], [2, 4]]);
        let set = set.in_order(|dev| u8::from([1, 4].contains(&dev.get())));
        assert_eq!(devices(&set), [[2, 3], [1, 4]]);
    }

    #[test]
    fn raid5_and_raid6_have_one_copy_in_their_data_columns() {
        let five = chunk(BlockGroupFlags::RAID5, 3);
        assert_eq!(five.stripe_bytes(), 6 << 20);
        assert_eq!(mapped(&five, 60, 200), [[(1, 60, 4), (2, 0, 64), (2, 64, 64), (3, 64, 64), (3, 128, 4)]]);
        let six = chunk(BlockGroupFlags::RAID6, 4);
        assert_eq!(mapped(&six, 0, 256), [[(1, 0, 64), (2, 0, 64), (2, 64, 64), (3, 64, 64)]]);
        assert_eq!(Layout::of(BlockGroupFlags::RAID6, 258, 1), None);
        assert_eq!(Layout::of(BlockGroupFlags::RAID5, 1, 1), None);
    }

    #[test]
    fn a_range_that_leaves_its_chunk_is_refused() {
        let chunk = chunk(BlockGroupFlags::DUP, 2);
        for (at, len) in
            [(START - 4096, 4096), (START, (12 << 20) + 1), (START + (12 << 20), 1), (START, u64::MAX)]
        {
            assert_eq!(
                map(&chunk, Logical::new(at), len).unwrap_err().kind(),
                ErrorKind::Corrupt,
                "{at} {len}"
            );
        }
    }
}
