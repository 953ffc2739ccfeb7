//! Rows of RAID5 and RAID6: parity against the data that it is of.
//!
//! A row is judged place by place: what lies at one place of all of its columns. Parity is rewritten where all that is in use of its place is verified, or
//! was rebuilt and then verified; what is in use for nothing counts as it lies. Where data in use has no checksum nobody knows which of the two is
//! right, and both are left (I-E6). So they are as long as a log waits: what it has is in no tree yet.

use std::ops::Range;

use creamery_base::Physical;
use creamery_codec::parity;
use creamery_device::AlignedBuffer;
use creamery_volume::{Chunk, FullStripe};

use super::Counts;
use super::finding::{Finding, Outcome, What};
use super::group::{Content, InUse, ParityRow};
use super::mend::Mending;
use super::sums::index;

/// What is known of a place of a row, all of its data together. The later ones win.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    Unused,
    Good,
    /// Some of it has no checksum.
    Unsummed,
    /// Some of it is in use for nothing and cannot be read, so that nobody knows its parity.
    Unread,
    /// There is nothing good for some of it.
    Lost,
}

/// The data of a row, and what is known of it.
struct Row {
    columns: Vec<AlignedBuffer>,
    known: Vec<Known>,
}

impl Row {
    fn len(&self) -> usize {
        self.columns[0].len()
    }

    /// Notes what is known of bytes of the row, which are counted through all columns.
    fn note(&mut self, bytes: Range<usize>, sector: usize, is: Known) {
        let len = self.len();
        for place in bytes.step_by(sector) {
            let known = &mut self.known[place % len / sector];
            *known = is.max(*known);
        }
    }

    fn replace(&mut self, from: usize, good: &[u8]) {
        let len = self.len();
        for (at, byte) in (from..).zip(good) {
            self.columns[at / len][at % len] = *byte;
        }
    }
}

impl Mending<'_> {
    /// Judges the parity of a row that one device has.
    pub(super) fn parity(
        &self,
        chunk: &Chunk,
        row: &ParityRow,
        counts: &mut Counts,
        found: &mut dyn FnMut(Finding),
    ) {
        let Some(stripe) = self.judge.volume.read_full_stripe(chunk, row.row) else { return };
        let Some(own) = (0..stripe.columns()).find(|column| stripe.place(*column).at == row.at) else {
            return;
        };
        let sector = self.judge.sector;
        let data = self.row(&row.used, &stripe, index(chunk.stripe_len));
        let right = right_parity(&stripe, own, &data.columns);
        let read = stripe.column(own);
        counts.parity_bytes_scrubbed += read.map_or(0, |read| read.len() as u64);
        let is_wrong = |place: &usize| {
            let bytes = place * sector..(place + 1) * sector;
            data.known[*place] != Known::Unused && read.is_none_or(|read| read[bytes.clone()] != right[bytes])
        };
        let wrong: Vec<usize> = (0..data.known.len()).filter(is_wrong).collect();
        let errors = if read.is_some() { &mut counts.verify_errors } else { &mut counts.read_errors };
        *errors += wrong.len() as u64;
        let mut worst = None;
        for &place in &wrong {
            let bytes = &right[place * sector..(place + 1) * sector];
            let at = Physical { offset: row.at.offset + (place * sector) as u64, ..row.at };
            let outcome = self.write_parity(at, data.known[place], bytes);
            count(outcome, 1, counts);
            worst = worst.max(Some(outcome));
        }
        let Some(outcome) = worst else { return };
        let why = match stripe.why_not(own) {
            Some(why) => why.to_string(),
            None => format!(
                "{} of {} sectors of parity are not that of their data",
                wrong.len(),
                data.known.len()
            ),
        };
        found(Finding { what: What::Parity, at: row.at, logical: Some(stripe.start()), why, outcome });
    }

    /// The data of a row as it should be, as far as that is known.
    fn row(&self, used: &InUse, stripe: &FullStripe, len: usize) -> Row {
        let sector = self.judge.sector;
        let columns = (0..stripe.data_columns()).map(|_| AlignedBuffer::zeroed(len)).collect();
        let mut row = Row { columns, known: vec![Known::Unused; len / sector] };
        let mut unread: Vec<Range<usize>> = Vec::new();
        for column in 0..stripe.data_columns() {
            if let Some(bytes) = stripe.column(column) {
                row.columns[column].copy_from_slice(bytes);
                continue;
            }
            for from in (0..len).step_by(sector) {
                let place = stripe.place(column).at;
                let at = Physical { offset: place.offset + from as u64, ..place };
                let bytes = &mut row.columns[column][from..from + sector];
                if self.judge.volume.read_physical(at, bytes).is_err() {
                    unread.push(column * len + from..column * len + from + sector);
                }
            }
        }
        let all = row.columns.iter().flat_map(|column| column.iter().copied()).collect::<Vec<u8>>();
        let bad = self.judge.judge(used, &all, &mut Counts::default());
        for run in &used.runs {
            let is = if run.content == Content::Data(None) { Known::Unsummed } else { Known::Good };
            row.note(run.bytes.clone(), sector, is);
        }
        for bad in bad {
            // It is mended, and counted, by the scrub of its own device.
            match self.good(used, &bad).ok().filter(|good| good.len() == bad.bytes.len()) {
                Some(good) => row.replace(bad.bytes.start, &good),
                None => row.note(bad.bytes, sector, Known::Lost),
            }
        }
        // What is in use was judged above; a place where nothing is in use has no parity that counts.
        let is_used = |bytes: &Range<usize>| {
            used.runs.iter().any(|run| run.bytes.start < bytes.end && bytes.start < run.bytes.end)
        };
        for bytes in unread.into_iter().filter(|bytes| !is_used(bytes)) {
            if row.known[bytes.start % len / sector] != Known::Unused {
                row.note(bytes, sector, Known::Unread);
            }
        }
        row
    }

    /// Writes the parity of one place, where it may be.
    fn write_parity(&self, at: Physical, known: Known, right: &[u8]) -> Outcome {
        let has_log = self.judge.volume.superblock().log_root().is_some();
        match (known, self.mender) {
            (Known::Lost, _) => Outcome::Lost,
            (Known::Unsummed | Known::Unread, _) => Outcome::Undecided,
            _ if has_log => Outcome::Undecided,
            (_, None) => Outcome::Mendable,
            (_, Some(mender)) => match mender.rewrite(at, right, &|now| now == right) {
                Ok(()) => Outcome::Mended,
                Err(_) => Outcome::Lost,
            },
        }
    }
}

/// What the data has as the parity of a column.
fn right_parity(stripe: &FullStripe, own: usize, data: &[AlignedBuffer]) -> AlignedBuffer {
    let columns: Vec<&[u8]> = data.iter().map(|column| &column[..]).collect();
    let mut p = AlignedBuffer::zeroed(columns[0].len());
    if own == stripe.data_columns() {
        parity::p(&columns, &mut p);
        return p;
    }
    let mut q = AlignedBuffer::zeroed(columns[0].len());
    parity::pq(&columns, &mut p, &mut q);
    q
}

/// Counts errors by what became of them.
pub(super) fn count(outcome: Outcome, errors: u64, counts: &mut Counts) {
    match outcome {
        Outcome::Mended => counts.corrected_errors += errors,
        Outcome::Mendable | Outcome::Undecided => counts.unverified_errors += errors,
        Outcome::Lost => counts.uncorrectable_errors += errors,
    }
}
