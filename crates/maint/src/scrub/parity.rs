//! Rows of RAID5 and RAID6: parity against the data that it is of.
//!
//! Parity is rewritten where all that is in use of its place is verified, or was rebuilt and then verified; what is in use for nothing counts as it
//! lies. Where data in use has no checksum nobody knows which of the two is right, and both are left (I-E6).

use creamery_base::Physical;
use creamery_codec::parity;
use creamery_device::AlignedBuffer;
use creamery_volume::{Chunk, FullStripe};

use super::Counts;
use super::finding::{Finding, Outcome, What};
use super::group::{Content, InUse, ParityRow};
use super::mend::Mending;
use super::sums::index;

/// What is known of each sector of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Unused,
    Good,
    /// It has no checksum.
    Unsummed,
    /// There is nothing good.
    Lost,
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
        let volume = self.judge.volume;
        let Some(stripe) = volume.read_full_stripe(chunk, row.row) else { return };
        let Some(own) = (0..stripe.columns()).find(|column| stripe.place(*column).at == row.at) else {
            return;
        };
        let lost = |why: String| Finding {
            what: What::Parity,
            at: row.at,
            logical: Some(stripe.start()),
            why,
            outcome: Outcome::Lost,
        };
        let len = index(chunk.stripe_len);
        let sectors = (len / self.judge.sector) as u64;
        if let Some(why) = (0..stripe.data_columns()).find_map(|column| stripe.why_not(column)) {
            counts.uncorrectable_errors += sectors;
            return found(lost(format!("its data cannot be read: {why}")));
        }
        let mut data: Vec<AlignedBuffer> = (0..stripe.data_columns())
            .map(|column| AlignedBuffer::from_slice(stripe.column(column).expect("it was read")))
            .collect();
        let known = self.known(&row.used, &mut data);
        let right = right_parity(&stripe, own, &data);
        let Some(read) = stripe.column(own) else {
            counts.read_errors += sectors;
            let why = stripe.why_not(own).map_or_else(String::new, ToString::to_string);
            let outcome = self.write_parity((row.at, &known), (&right, &vec![false; known.len()]));
            count(outcome, sectors, counts);
            return found(Finding { outcome, ..lost(why) });
        };
        counts.parity_bytes_scrubbed += read.len() as u64;
        let equal: Vec<bool> = read
            .chunks(self.judge.sector)
            .zip(right.chunks(self.judge.sector))
            .map(|(one, other)| one == other)
            .collect();
        // Where nothing is in use, parity may be anything.
        let wrong = (0..equal.len()).filter(|place| !equal[*place] && known[*place] != Known::Unused).count();
        if wrong == 0 {
            return;
        }
        counts.verify_errors += wrong as u64;
        let outcome = self.write_parity((row.at, &known), (&right, &equal));
        count(outcome, wrong as u64, counts);
        let why = format!("{wrong} of {} sectors of parity are not that of their data", equal.len());
        found(Finding { outcome, ..lost(why) });
    }

    /// What is known of each place of the row, all of its data together. Data that is bad is replaced by what it should be.
    fn known(&self, used: &InUse, data: &mut [AlignedBuffer]) -> Vec<Known> {
        let (len, sector) = (data[0].len(), self.judge.sector);
        let mut known = vec![Known::Unused; len / sector];
        let mut note = |bytes: std::ops::Range<usize>, is: Known| {
            for place in bytes.step_by(sector) {
                let known = &mut known[place % len / sector];
                *known = match (*known, is) {
                    (Known::Lost, _) | (_, Known::Lost) => Known::Lost,
                    (Known::Unsummed, _) | (_, Known::Unsummed) => Known::Unsummed,
                    _ => Known::Good,
                };
            }
        };
        let mut all = vec![0; len * data.len()];
        for (column, bytes) in data.iter().enumerate() {
            all[column * len..(column + 1) * len].copy_from_slice(bytes);
        }
        let bad = self.judge.judge(used, &all, &mut Counts::default());
        for run in &used.runs {
            let is = if run.content == Content::Data(None) { Known::Unsummed } else { Known::Good };
            note(run.bytes.clone(), is);
        }
        for bad in bad {
            // It is mended, and counted, by the scrub of its own device.
            match self.good(used, &bad).ok().filter(|good| good.len() == bad.bytes.len()) {
                Some(good) => {
                    let (column, within) = (bad.bytes.start / len, bad.bytes.start % len);
                    data[column][within..within + good.len()].copy_from_slice(&good);
                }
                None => note(bad.bytes, Known::Lost),
            }
        }
        known
    }

    /// Writes parity where it is not equal and all is known to be good.
    fn write_parity(&self, (at, known): (Physical, &[Known]), (right, equal): (&[u8], &[bool])) -> Outcome {
        let sector = self.judge.sector;
        let wrong = || (0..known.len()).filter(|place| !equal[*place] && known[*place] != Known::Unused);
        if wrong().any(|place| known[place] == Known::Lost) {
            return Outcome::Lost;
        }
        if wrong().any(|place| known[place] == Known::Unsummed) {
            return Outcome::Undecided;
        }
        let Some(mender) = self.mender else { return Outcome::Mendable };
        for place in wrong() {
            let good = &right[place * sector..(place + 1) * sector];
            let at = Physical { offset: at.offset + (place * sector) as u64, ..at };
            if mender.rewrite(at, good, &|now| now == good).is_err() {
                return Outcome::Lost;
            }
        }
        Outcome::Mended
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
