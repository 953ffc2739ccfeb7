//! A row of a chunk with parity, read whole: for those that judge parity.

use creamery_base::{Error, Logical, Result};
use creamery_codec::parity;
use creamery_device::AlignedBuffer;

use crate::Chunk;
use crate::index::index;
use crate::piece::Piece;
use crate::rows::Rows;
use crate::volume::Volume;

/// The columns of a row of RAID5 or RAID6: its data in order, then P, then Q.
///
/// ```no_run
/// # fn example(volume: &creamery_volume::Volume, chunk: &creamery_volume::Chunk) {
/// let stripe = volume.read_full_stripe(chunk, 0).expect("a chunk with parity");
/// if let Some(parity) = stripe.parity_of_data() {
///     assert_eq!(parity.first().map(|p| &p[..]), stripe.column(stripe.data_columns()));
/// }
/// # }
/// ```
pub struct FullStripe {
    start: Logical,
    data_columns: usize,
    columns: Vec<Column>,
}

struct Column {
    place: Piece,
    read: Result<AlignedBuffer>,
}

impl Volume {
    /// Reads a row of `chunk` from all of its members; none if the chunk has no parity or no such row. What cannot be read is none in it.
    #[must_use]
    pub fn read_full_stripe(&self, chunk: &Chunk, row: u64) -> Option<FullStripe> {
        let rows = Rows::of(chunk)?;
        let data_columns = rows.row().data_columns();
        let offset = row.checked_mul(chunk.full_stripe_bytes()).filter(|offset| *offset < chunk.len)?;
        let read = |column: usize| {
            let place = rows.piece(row, column, 0, chunk.stripe_len);
            let mut buffer = AlignedBuffer::zeroed(index(chunk.stripe_len));
            let read = self.read_pieces(&[place], &mut buffer).map(|()| buffer);
            Column { place, read }
        };
        let columns: Vec<Column> = (0..rows.row().columns()).map(read).collect();
        let parity = columns[data_columns..].iter().filter(|column| column.read.is_ok()).count() as u64;
        self.counters.parity_read_bytes.add(parity * chunk.stripe_len);
        Some(FullStripe { start: chunk.start + offset, data_columns, columns })
    }
}

impl FullStripe {
    /// The first address of its data.
    #[must_use]
    pub const fn start(&self) -> Logical {
        self.start
    }

    /// Columns of data; those behind them are parity.
    #[must_use]
    pub const fn data_columns(&self) -> usize {
        self.data_columns
    }

    /// Columns of data and parity.
    #[must_use]
    pub const fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Where a column lies.
    ///
    /// # Panics
    /// There is no such column.
    #[must_use]
    pub fn place(&self, column: usize) -> Piece {
        self.columns[column].place
    }

    /// What a column has, if it could be read.
    ///
    /// # Panics
    /// There is no such column.
    #[must_use]
    pub fn column(&self, column: usize) -> Option<&[u8]> {
        self.columns[column].read.as_ref().ok().map(|bytes| &bytes[..])
    }

    /// Why a column could not be read.
    ///
    /// # Panics
    /// There is no such column.
    #[must_use]
    pub fn why_not(&self, column: usize) -> Option<&Error> {
        self.columns[column].read.as_ref().err()
    }

    /// What its data has as P, and as Q at RAID6, if all of the data could be read.
    #[must_use]
    pub fn parity_of_data(&self) -> Option<Vec<AlignedBuffer>> {
        let data: Vec<&[u8]> =
            (0..self.data_columns).map(|column| self.column(column)).collect::<Option<_>>()?;
        let zeroed = || AlignedBuffer::zeroed(data[0].len());
        Some(match self.columns.len() - self.data_columns {
            1 => {
                let mut p = zeroed();
                parity::p(&data, &mut p);
                vec![p]
            }
            _ => {
                let (mut p, mut q) = (zeroed(), zeroed());
                parity::pq(&data, &mut p, &mut q);
                vec![p, q]
            }
        })
    }
}
