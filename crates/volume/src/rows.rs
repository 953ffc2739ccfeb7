//! The rows of a chunk with parity.
//!
//! A chunk of RAID5 or RAID6 is cut into elements of `stripe_len` bytes. One element for each data column makes a row with its parity,
//! and from row to row everything moves on by one stripe:
//!
//! ```text
//! RAID6 on five devices     stripe 0   1   2   3   4
//!                  row 0       D0  D1  D2  P   Q
//!                  row 1       Q   D0  D1  D2  P
//!                  row 2       P   Q   D0  D1  D2
//! ```
//! An element has the same place within each stripe of its row.

use creamery_base::Physical;
use creamery_codec::parity::{Parity, Row};

use crate::Chunk;
use crate::device_range::DeviceRange;
use crate::index::index;

/// The geometry of a chunk with parity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'c> {
    chunk: &'c Chunk,
    row: Row,
}

/// Bytes within one element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Element {
    pub(crate) row: u64,
    /// A data column of that row.
    pub(crate) column: usize,
    /// The offset in the element, and the length.
    pub(crate) within: u64,
    pub(crate) len: u64,
}

impl<'c> Rows<'c> {
    /// Returns the rows of a chunk. `None` for a chunk without parity.
    pub(crate) fn of(chunk: &'c Chunk) -> Option<Self> {
        let layout = chunk.layout();
        let parity = match layout.parity {
            0 => return None,
            1 => Parity::P,
            _ => Parity::PAndQ,
        };
        let row =
            Row::new(layout.columns.into(), parity).expect("a layout has no more columns than Q tells apart");
        Some(Self { chunk, row })
    }

    pub(crate) const fn row(&self) -> Row {
        self.row
    }

    /// Returns the elements that the range `[from, from + len)` of the chunk touches, in order.
    pub(crate) fn elements(self, from: u64, len: u64) -> impl Iterator<Item = Element> {
        let (size, columns) = (self.chunk.stripe_len, self.row.data_columns() as u64);
        let mut done = 0;
        std::iter::from_fn(move || {
            if done >= len {
                return None;
            }
            let (number, within) = ((from + done) / size, (from + done) % size);
            let step = (size - within).min(len - done);
            done += step;
            Some(Element { row: number / columns, column: index(number % columns), within, len: step })
        })
    }

    /// Returns the stripe of the chunk that has a column of a row; columns are numbered as in [`Row`].
    pub(crate) fn stripe_of(&self, row: u64, column: usize) -> usize {
        let stripes = self.row.columns() as u64;
        index((row % stripes + column as u64) % stripes)
    }

    /// Returns the column of a row that a stripe has.
    pub(crate) fn column_of(&self, row: u64, stripe: usize) -> usize {
        let stripes = self.row.columns() as u64;
        index((stripe as u64 + stripes - row % stripes) % stripes)
    }

    /// Returns the place of bytes of a column.
    pub(crate) fn piece(&self, row: u64, column: usize, within: u64, len: u64) -> DeviceRange {
        let stripe = &self.chunk.stripes[self.stripe_of(row, column)];
        // Chunk::from_item has checked that the stripe's end does not wrap.
        let offset = stripe.offset + row * self.chunk.stripe_len + within;
        DeviceRange { at: Physical { dev: stripe.dev, offset }, len }
    }

    /// Returns the place of an element itself.
    pub(crate) fn place(&self, element: &Element) -> DeviceRange {
        self.piece(element.row, element.column, element.within, element.len)
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::{DevId, Logical, Uuid};
    use creamery_format::BlockGroupFlags;

    use super::*;
    use crate::Stripe;

    fn chunk(profile: BlockGroupFlags, stripes: u64) -> Chunk {
        let stripe = |dev| Stripe { dev: DevId::new(dev), offset: 1 << 20, dev_uuid: Uuid::nil() };
        let stripes = (1..=stripes).map(stripe).collect();
        Chunk::new(Logical::new(1 << 30), 12 << 20, BlockGroupFlags::DATA | profile, 4096, stripes)
    }

    #[test]
    fn columns_move_on_by_one_stripe_in_each_row() {
        let chunk = chunk(BlockGroupFlags::RAID6, 5);
        let rows = Rows::of(&chunk).unwrap();
        let seen = |row: u64| (0..5).map(|stripe| rows.column_of(row, stripe)).collect::<Vec<_>>();
        assert_eq!(seen(0), [0, 1, 2, 3, 4]);
        assert_eq!(seen(1), [4, 0, 1, 2, 3]);
        assert_eq!(seen(2), [3, 4, 0, 1, 2]);
        assert_eq!(seen(5), seen(0));
        for (row, column) in (0..7).flat_map(|row| (0..5).map(move |column| (row, column))) {
            assert_eq!(rows.column_of(row, rows.stripe_of(row, column)), column);
        }
    }

    #[test]
    fn a_range_is_cut_at_elements() {
        let chunk = chunk(BlockGroupFlags::RAID5, 4);
        let rows = Rows::of(&chunk).unwrap();
        let cut: Vec<_> = rows.elements(120 << 10, 136 << 10).collect();
        let element = |row, column, within: u64, len: u64| Element {
            row,
            column,
            within: within << 10,
            len: len << 10,
        };
        assert_eq!(cut, [element(0, 1, 56, 8), element(0, 2, 0, 64), element(1, 0, 0, 64)]);
        let places: Vec<_> =
            cut.iter().map(|element| rows.place(element).at).map(|at| (at.dev.get(), at.offset)).collect();
        let base = 1 << 20;
        assert_eq!(places, [(2, base + (56 << 10)), (3, base), (2, base + (64 << 10))]);
        assert!(Rows::of(&self::chunk(BlockGroupFlags::RAID0, 4)).is_none());
    }
}
