//! Consecutive whole rows of a chunk with parity, for checks of parity.

use std::collections::BTreeMap;
use std::ops::Range;

use creamery_base::{DevId, Error, ErrorKind, Logical, Physical};
use creamery_codec::parity;
use creamery_device::{AlignedBuffer, Reply, Request};

use crate::Chunk;
use crate::ask::ask_all;
use crate::device_range::DeviceRange;
use crate::index::index;
use crate::members::MemberState;
use crate::rows::Rows;
use crate::volume::Volume;

/// Consecutive rows of RAID5 or RAID6: their data in the order of its addresses, and their parity. The columns of a row are its data in
/// order, then P, then Q.
///
/// ```no_run
/// # fn example(volume: &creamery_volume::Volume, chunk: &creamery_volume::Chunk) {
/// let mut stripes = creamery_volume::FullStripes::default();
/// if volume.read_full_stripes(chunk, 0..1, &mut stripes) && stripes.is_data_read(0) {
///     let mut right = Vec::new();
///     stripes.parity_of_data(0, &mut right);
///     assert_eq!(right.first().map(|p| &p[..]), stripes.element(0, stripes.data_columns()));
/// }
/// # }
/// ```
#[derive(Default)]
pub struct FullStripes {
    rows: Range<u64>,
    start: Logical,
    /// Bytes of an element.
    len: usize,
    data_columns: usize,
    columns: usize,
    /// The places of the elements, row after row.
    places: Vec<DeviceRange>,
    data: AlignedBuffer,
    parity: AlignedBuffer,
    /// Elements that could not be read, by row and column.
    unread: BTreeMap<(u64, usize), Error>,
}

impl Volume {
    /// Reads `rows` of `chunk` into `stripes`, from members that have the last commit, and from one that counts as failed. Notes an element
    /// that cannot be read in `stripes`. Returns false if the chunk has no parity, or lacks some of these rows.
    #[must_use]
    pub fn read_full_stripes(&self, chunk: &Chunk, rows: Range<u64>, stripes: &mut FullStripes) -> bool {
        let Some(geometry) = Rows::of(chunk) else { return false };
        let is_there = |row: u64| row.checked_mul(chunk.full_stripe_bytes()).is_some_and(|at| at < chunk.len);
        if rows.is_empty() || !is_there(rows.end - 1) {
            return false;
        }
        stripes.begin(chunk, geometry, rows);
        // Devices that read ahead by themselves all begin before one is read.
        let in_place = self.will_read_full_stripes(chunk, &stripes.rows);
        if !in_place {
            self.read_by_device(chunk, geometry, stripes);
        }
        for row in stripes.rows.clone() {
            for column in 0..stripes.columns {
                if in_place || stripes.unread.contains_key(&(row, column)) {
                    self.read_element(row, column, stripes);
                }
            }
        }
        let parity = (stripes.columns - stripes.data_columns) as u64;
        self.counters
            .parity_read_bytes
            .add(parity * chunk.stripe_len * (stripes.rows.end - stripes.rows.start));
        true
    }

    /// Makes all devices of a chunk read ahead their parts of the rows. Returns true if rows are then best read one after the other: each
    /// is then still in the processor's caches when it is checked.
    #[must_use]
    pub fn will_read_full_stripes(&self, chunk: &Chunk, rows: &Range<u64>) -> bool {
        let all: Vec<bool> =
            (0..chunk.stripes.len()).map(|stripe| self.will_read_rows(chunk, stripe, rows)).collect();
        all.into_iter().all(|is| is)
    }

    /// Makes a device read ahead its part of the rows. Returns true if a read is then best made in place.
    fn will_read_rows(&self, chunk: &Chunk, stripe: usize, rows: &Range<u64>) -> bool {
        let (at, len) = of_stripe(chunk, stripe, rows);
        self.member(at.dev).is_ok_and(|member| member.device.will_read(at.offset, len))
    }

    /// Sends requests to all devices at once. Elements without an answer are unread.
    fn read_by_device(&self, chunk: &Chunk, geometry: Rows<'_>, stripes: &mut FullStripes) {
        let mut asked = Vec::new();
        let mut requests = Vec::new();
        for stripe in 0..stripes.columns {
            let (at, len) = of_stripe(chunk, stripe, &stripes.rows);
            let member = self.member(at.dev).ok().filter(|_| self.may_be_asked(at.dev));
            if let Some(member) = member {
                asked.push(stripe);
                requests.push((
                    member,
                    Request::Read { offset: at.offset, buffer: AlignedBuffer::zeroed(index(len)) },
                ));
            }
        }
        let answers = ask_all(requests).into_iter().map(|(_, answer)| answer);
        let mut read: Vec<Option<AlignedBuffer>> = (0..stripes.columns).map(|_| None).collect();
        for (stripe, answer) in asked.into_iter().zip(answers) {
            if let Ok(Reply::Read(buffer)) = answer {
                read[stripe] = Some(buffer);
            }
        }
        let len = stripes.len;
        for (number, row) in stripes.rows.clone().enumerate() {
            for column in 0..stripes.columns {
                match &read[geometry.stripe_of(row, column)] {
                    Some(bytes) => {
                        stripes.element_mut(row, column).copy_from_slice(&bytes[number * len..][..len]);
                    }
                    None => drop(stripes.unread.insert((row, column), ErrorKind::Io.into())),
                }
            }
        }
    }

    /// Reads one element, or notes the reason why it could not.
    fn read_element(&self, row: u64, column: usize, stripes: &mut FullStripes) {
        let place = stripes.place(row, column);
        let read = match self.may_be_asked(place.at.dev) {
            true => self.read_physical(place.at, stripes.element_mut(row, column)),
            false => {
                let what = format!("device {}: {}", place.at.dev, self.member_state(place.at.dev));
                Err(Error::new(ErrorKind::DeviceMissing, what))
            }
        };
        match read {
            Ok(()) => drop(stripes.unread.remove(&(row, column))),
            Err(error) => drop(stripes.unread.insert((row, column), error)),
        }
    }

    /// Whether a member may be read. One that has failed may still return other places.
    fn may_be_asked(&self, dev: DevId) -> bool {
        matches!(self.member_state(dev), MemberState::Present | MemberState::Seed | MemberState::Failed)
    }
}

impl FullStripes {
    fn begin(&mut self, chunk: &Chunk, geometry: Rows<'_>, rows: Range<u64>) {
        let Self { data, parity, places, unread, .. } = self;
        let (data_columns, columns) = (geometry.row().data_columns(), geometry.row().columns());
        let (len, count) = (index(chunk.stripe_len), index(rows.end - rows.start));
        let resize = |buffer: &mut AlignedBuffer, len: usize| {
            if buffer.len() != len {
                *buffer = AlignedBuffer::zeroed(len);
            }
        };
        resize(data, count * data_columns * len);
        resize(parity, count * (columns - data_columns) * len);
        unread.clear();
        places.clear();
        for row in rows.clone() {
            places.extend((0..columns).map(|column| geometry.piece(row, column, 0, chunk.stripe_len)));
        }
        let start = chunk.start + rows.start * chunk.full_stripe_bytes();
        *self = Self { rows, start, len, data_columns, columns, ..std::mem::take(self) };
    }

    /// Returns the rows that were read.
    #[must_use]
    pub fn rows(&self) -> Range<u64> {
        self.rows.clone()
    }

    /// Returns the first address of a row's data.
    #[must_use]
    pub fn start_of(&self, row: u64) -> Logical {
        self.start + (row - self.rows.start) * (self.data_columns * self.len) as u64
    }

    /// Returns the number of data columns; the columns behind them are parity.
    #[must_use]
    pub const fn data_columns(&self) -> usize {
        self.data_columns
    }

    /// Returns the number of columns of data and parity.
    #[must_use]
    pub const fn columns(&self) -> usize {
        self.columns
    }

    /// Returns the place of an element.
    ///
    /// # Panics
    /// If there is no such row or column.
    #[must_use]
    pub fn place(&self, row: u64, column: usize) -> DeviceRange {
        assert!(column < self.columns, "column {column} of {}", self.columns);
        self.places[self.number(row) * self.columns + column]
    }

    /// Returns the bytes of an element, if it could be read.
    ///
    /// # Panics
    /// If there is no such row or column.
    #[must_use]
    pub fn element(&self, row: u64, column: usize) -> Option<&[u8]> {
        let (is_data, bytes) = self.bytes_of(row, column);
        let all = if is_data { &self.data } else { &self.parity };
        (!self.unread.contains_key(&(row, column))).then(|| &all[bytes])
    }

    /// Returns the bytes of an element, for the caller to correct.
    ///
    /// # Panics
    /// If there is no such row or column.
    #[must_use]
    pub fn element_mut(&mut self, row: u64, column: usize) -> &mut [u8] {
        let (is_data, bytes) = self.bytes_of(row, column);
        let all = if is_data { &mut self.data } else { &mut self.parity };
        &mut all[bytes]
    }

    /// Returns the reason why an element could not be read.
    #[must_use]
    pub fn why_not(&self, row: u64, column: usize) -> Option<&Error> {
        self.unread.get(&(row, column))
    }

    /// Whether all data of a row could be read.
    #[must_use]
    pub fn is_data_read(&self, row: u64) -> bool {
        (0..self.data_columns).all(|column| !self.unread.contains_key(&(row, column)))
    }

    /// Computes the parity of a row's data, in its present state, into `right`: P, and Q for RAID6.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn parity_of_data(&self, row: u64, right: &mut Vec<AlignedBuffer>) {
        let (_, first) = self.bytes_of(row, 0);
        let all = &self.data[first.start..first.start + self.data_columns * self.len];
        let data: Vec<&[u8]> = all.chunks_exact(self.len).collect();
        if right.iter().any(|buffer| buffer.len() != self.len) {
            right.clear();
        }
        right.resize_with(self.columns - self.data_columns, || AlignedBuffer::zeroed(self.len));
        match &mut right[..] {
            [p, q] => parity::pq(&data, p, q),
            [p] => parity::p(&data, p),
            _ => unreachable!("there is P, or P and Q"),
        }
    }

    /// Returns the index of a row among those that were read.
    fn number(&self, row: u64) -> usize {
        assert!(self.rows.contains(&row), "row {row} of {:?}", self.rows);
        index(row - self.rows.start)
    }

    /// Whether an element is data, and the place of its bytes among those of its kind.
    fn bytes_of(&self, row: u64, column: usize) -> (bool, Range<usize>) {
        assert!(column < self.columns, "column {column} of {}", self.columns);
        let is_data = column < self.data_columns;
        let (in_row, column) = match is_data {
            true => (self.data_columns, column),
            false => (self.columns - self.data_columns, column - self.data_columns),
        };
        let from = (self.number(row) * in_row + column) * self.len;
        (is_data, from..from + self.len)
    }
}

/// Returns the part of a chunk's stripe that belongs to some rows.
fn of_stripe(chunk: &Chunk, stripe: usize, rows: &Range<u64>) -> (Physical, u64) {
    let chunk_stripe = &chunk.stripes[stripe];
    let offset = chunk_stripe.offset + rows.start * chunk.stripe_len;
    (Physical { dev: chunk_stripe.dev, offset }, (rows.end - rows.start) * chunk.stripe_len)
}
