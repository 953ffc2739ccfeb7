//! The content of one stripe of a chunk: which addresses, or which row's parity, lie where on its device.

use creamery_base::{Logical, Physical};

use crate::Chunk;
use crate::index::index;
use crate::rows::Rows;

/// The content of a span of a stripe.
///
/// ```
/// use creamery_base::Logical;
/// use creamery_volume::SpanContent;
/// assert_ne!(SpanContent::Data(Logical::new(1 << 30)), SpanContent::Parity(0));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpanContent {
    /// Data from this address on.
    Data(Logical),
    /// Parity of the row with this number.
    Parity(u64),
}

/// Bytes that are contiguous both in a stripe and in their content.
///
/// ```
/// use creamery_base::{DevId, Logical, Uuid};
/// use creamery_format::BlockGroupFlags;
/// use creamery_volume::{Chunk, SpanContent, Stripe};
/// let stripe = |dev| Stripe { dev: DevId::new(dev), offset: 1 << 20, dev_uuid: Uuid::nil() };
/// let flags = BlockGroupFlags::DATA | BlockGroupFlags::RAID0;
/// let chunk = Chunk::new(Logical::new(1 << 30), 2 << 20, flags, 4096, (1..=2).map(stripe).collect());
/// // The second stripe has the second 64 KiB, the fourth, and so on.
/// let span = chunk.span_from(1, Logical::new(1 << 30)).unwrap();
/// assert_eq!((span.holds, span.len), (SpanContent::Data(Logical::new((1 << 30) + 65536)), 65536));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripeSpan {
    /// The place on the device.
    pub at: Physical,
    /// The length in bytes.
    pub len: u64,
    /// The content.
    pub holds: SpanContent,
}

impl Chunk {
    /// Returns the first span of a stripe with content at or behind the address `from`: parity of a row counts for all of its row. `None`
    /// behind the last.
    ///
    /// # Panics
    /// If there is no such stripe.
    #[must_use]
    pub fn span_from(&self, stripe: usize, from: Logical) -> Option<StripeSpan> {
        let from = from.checked_sub(self.start).unwrap_or(0);
        if from >= self.len {
            return None;
        }
        let layout = self.layout();
        let Some(rows) = Rows::of(self) else {
            let (columns, copies) = (u64::from(layout.columns), usize::from(layout.copies));
            if columns == 1 {
                return Some(self.span(stripe, 0, self.len, SpanContent::Data(self.start)));
            }
            let (size, column) = (self.stripe_len, (stripe / copies) as u64);
            let first = from / size;
            // The first element of this column at or behind that one.
            let number = first + (column + columns - first % columns) % columns;
            return self.element(stripe, number / columns, number * size);
        };
        let row = from / self.full_stripe_bytes();
        self.in_row(rows, stripe, row, from).or_else(|| self.in_row(rows, stripe, row + 1, from))
    }

    /// Returns the part of a row in a stripe, if some of it lies at or behind `from`.
    fn in_row(&self, rows: Rows<'_>, stripe: usize, row: u64, from: u64) -> Option<StripeSpan> {
        let start = row.checked_mul(self.full_stripe_bytes()).filter(|start| *start < self.len)?;
        let column = rows.column_of(row, stripe);
        if column >= rows.row().data_columns() {
            return Some(self.span(stripe, row * self.stripe_len, self.stripe_len, SpanContent::Parity(row)));
        }
        let at = start + column as u64 * self.stripe_len;
        if at + self.stripe_len <= from { None } else { self.element(stripe, row, at) }
    }

    /// Returns the element of a stripe at `at` of the chunk, clipped to the chunk.
    fn element(&self, stripe: usize, row: u64, at: u64) -> Option<StripeSpan> {
        let len = self.len.checked_sub(at).filter(|left| *left > 0)?.min(self.stripe_len);
        Some(self.span(stripe, row * self.stripe_len, len, SpanContent::Data(self.start + at)))
    }

    fn span(&self, stripe: usize, offset: u64, len: u64, holds: SpanContent) -> StripeSpan {
        let stripe = &self.stripes[stripe];
        // Chunk::from_item has checked that the stripe's end does not wrap.
        StripeSpan { at: Physical { dev: stripe.dev, offset: stripe.offset + offset }, len, holds }
    }

    /// Returns the first address that a stripe holds at or behind `offset` bytes from its beginning; in a chunk with parity the first one
    /// of that row. Behind the last one, returns the end of the chunk.
    ///
    /// # Panics
    /// If there is no such stripe.
    #[must_use]
    pub fn address_from(&self, stripe: usize, offset: u64) -> Logical {
        let layout = self.layout();
        let (row, within) = (offset / self.stripe_len, offset % self.stripe_len);
        let address = match Rows::of(self) {
            Some(_) => row.checked_mul(self.full_stripe_bytes()),
            None if layout.columns == 1 => Some(offset),
            None => {
                let column = (stripe / usize::from(layout.copies)) as u64;
                let number =
                    row.checked_mul(u64::from(layout.columns)).and_then(|first| first.checked_add(column));
                number.and_then(|number| number.checked_mul(self.stripe_len)?.checked_add(within))
            }
        };
        self.start + address.unwrap_or(self.len).min(self.len)
    }

    /// Returns the addresses of a row of a chunk with parity; `None` if it has no such row.
    #[must_use]
    pub fn row_range(&self, row: u64) -> Option<(Logical, Logical)> {
        let rows = Rows::of(self)?;
        let size = self.stripe_len * rows.row().data_columns() as u64;
        let start = row.checked_mul(size).filter(|start| *start < self.len)?;
        Some((self.start + start, self.start + (start + size).min(self.len)))
    }

    /// Returns the number of the copy that a stripe holds, from 0. Parity is no copy.
    #[must_use]
    pub fn copy_of_stripe(&self, stripe: usize) -> usize {
        stripe % index(u64::from(self.layout().copies))
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::{DevId, Uuid};
    use creamery_format::BlockGroupFlags;

    use super::*;
    use crate::Stripe;
    use crate::mapping::map;

    const START: u64 = 1 << 30;

    fn chunk(profile: BlockGroupFlags, stripes: u64) -> Chunk {
        let stripe = |dev| Stripe { dev: DevId::new(dev), offset: 1 << 20, dev_uuid: Uuid::nil() };
        let stripes = (1..=stripes).map(stripe).collect();
        Chunk::new(Logical::new(START), 12 << 20, BlockGroupFlags::DATA | profile, 4096, stripes)
    }

    /// Returns all spans of a stripe, each found from the end of the content of the one before.
    fn all_spans(chunk: &Chunk, stripe: usize) -> Vec<StripeSpan> {
        let mut spans = Vec::new();
        let mut from = chunk.start;
        while let Some(span) = chunk.span_from(stripe, from) {
            from = match span.holds {
                SpanContent::Data(at) => at + span.len,
                SpanContent::Parity(row) => chunk.row_range(row).unwrap().1,
            };
            spans.push(span);
        }
        spans
    }

    #[test]
    fn a_place_of_a_stripe_leads_to_the_address_that_it_holds() {
        let table = [
            (BlockGroupFlags::empty(), 1),
            (BlockGroupFlags::DUP, 2),
            (BlockGroupFlags::RAID0, 3),
            (BlockGroupFlags::RAID10, 4),
            (BlockGroupFlags::RAID5, 4),
            (BlockGroupFlags::RAID6, 4),
        ];
        for (profile, stripes) in table {
            let chunk = chunk(profile, stripes);
            for stripe in 0..chunk.stripes.len() {
                for span in all_spans(&chunk, stripe) {
                    let offset = span.at.offset - chunk.stripes[stripe].offset;
                    for within in [0, 4096, span.len - 4096] {
                        let address = match span.holds {
                            SpanContent::Data(at) if !chunk.has_parity() => at + within,
                            SpanContent::Data(_) => chunk.row_range(offset / chunk.stripe_len).unwrap().0,
                            SpanContent::Parity(row) => chunk.row_range(row).unwrap().0,
                        };
                        assert_eq!(chunk.address_from(stripe, offset + within), address, "{profile:?}");
                    }
                }
                assert_eq!(chunk.address_from(stripe, u64::MAX), chunk.end());
            }
        }
    }

    #[test]
    fn the_spans_of_all_stripes_are_what_the_map_says() {
        let table = [
            (BlockGroupFlags::empty(), 1),
            (BlockGroupFlags::DUP, 2),
            (BlockGroupFlags::RAID1C3, 3),
            (BlockGroupFlags::RAID0, 3),
            (BlockGroupFlags::RAID10, 4),
            (BlockGroupFlags::RAID5, 4),
            (BlockGroupFlags::RAID5, 2),
            (BlockGroupFlags::RAID6, 5),
        ];
        for (profile, stripes) in table {
            let chunk = chunk(profile, stripes);
            let mut held = 0;
            let mut parity = 0;
            for stripe in 0..chunk.stripes.len() {
                let mut end = chunk.stripes[stripe].offset;
                for span in all_spans(&chunk, stripe) {
                    assert_eq!(span.at.offset, end, "{profile}: a stripe is used from end to end");
                    end += span.len;
                    match span.holds {
                        SpanContent::Parity(_) => parity += span.len,
                        SpanContent::Data(at) => {
                            held += span.len;
                            let copies = map(&chunk, at, span.len).unwrap();
                            let own = &copies.mirrors()[chunk.copy_of_stripe(stripe)];
                            assert_eq!(own[0].at, span.at, "{profile}, stripe {stripe}, at {at}");
                        }
                    }
                }
                assert_eq!(end, chunk.stripes[stripe].offset + chunk.stripe_bytes(), "{profile}");
            }
            let copies = u64::from(chunk.layout().copies);
            assert_eq!(held, chunk.len * copies, "{profile}");
            assert_eq!(held + parity, chunk.stripe_bytes() * stripes, "{profile}");
        }
    }

    #[test]
    fn a_search_begins_in_the_midst() {
        let raid0 = chunk(BlockGroupFlags::RAID0, 3);
        let from = |chunk: &Chunk, stripe, at: u64| {
            let span = chunk.span_from(stripe, Logical::new(START + at * 1024));
            span.map(|span| match span.holds {
                SpanContent::Data(at) => (at.get() - START) / 1024,
                SpanContent::Parity(row) => 1000 + row,
            })
        };
        assert_eq!(
            [0, 63, 64, 65, 191, 192].map(|at| from(&raid0, 0, at)),
            [0, 0, 192, 192, 192, 192].map(Some)
        );
        assert_eq!(from(&raid0, 2, (12 << 10) - 1), Some((12 << 10) - 64));
        assert_eq!(from(&raid0, 0, (12 << 10) - 1), None);
        // Row 0: data, data, P; row 1: P, data, data.
        let raid5 = chunk(BlockGroupFlags::RAID5, 3);
        assert_eq!([0, 63, 64, 128].map(|at| from(&raid5, 0, at)), [0, 0, 1001, 1001].map(Some));
        assert_eq!([0, 127, 128, 200].map(|at| from(&raid5, 2, at)), [1000, 1000, 192, 192].map(Some));
        assert_eq!(
            raid5.row_range(1),
            Some((Logical::new(START + (128 << 10)), Logical::new(START + (256 << 10))))
        );
    }
}
