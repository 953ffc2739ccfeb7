//! Free space of one block group in memory: the space that may be handed out right now.
//!
//! It starts with the contents of the free space tree and differs from it afterwards in two ways on purpose: space handed
//! out in the running transaction is already gone here, and space freed in it (pinned) is not here yet.
//!
//! # Memory
//! Few extents are kept as [`FreeExtents`], of which the shortest that fits is handed out; when they would take more memory than a
//! [`Bitmap`], they become one, of which the first run that fits is handed out. So a group takes the memory of the cheaper form. At
//! worst, with sectors of 4 KiB, that is 48 KiB for each GiB of the group and 1 KiB besides (FREE-SPACE-1), and never
//! much more than the free space tree takes on disk, which has a bit for each sector or 25 bytes for each extent.
//!
//! # Invariants
//! - FREE-SPACE-1: memory is at most that of a bitmap of the group.

mod bitmap;
mod extents;
#[cfg(test)]
mod tests;

use bitmap::Bitmap;
use extents::FreeExtents;

/// Bytes of an extent in the two indexes, reckoned with half-filled nodes.
const EXTENT_BYTES: u64 = 80;
/// A bitmap goes back to extents below this part of its threshold, so that few changes do not go back and forth.
const BACK: u64 = 2;
/// A bitmap's first sector is a multiple of so many, so that alignment of addresses is alignment of bits.
const ALIGNMENT: u64 = 64;

/// The free space of a block group.
#[derive(Debug)]
pub(crate) struct FreeSpace {
    sector: u64,
    /// Start of a bitmap, bytes.
    origin: u64,
    /// Sectors from there to the group's end.
    sectors: u64,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Extents(FreeExtents),
    Bitmap(Bitmap),
}

impl FreeSpace {
    /// Creates the free space of a group of `len` bytes, none of them free. All addresses and lengths are multiples of `sector`.
    pub(crate) fn new(start: u64, len: u64, sector: u64) -> Self {
        let origin = start / sector / ALIGNMENT * ALIGNMENT * sector;
        let sectors = (start + len - origin) / sector;
        Self { sector, origin, sectors, form: Form::Extents(FreeExtents::default()) }
    }

    /// Free bytes.
    pub(crate) fn total(&self) -> u64 {
        match &self.form {
            Form::Extents(extents) => extents.total(),
            Form::Bitmap(bitmap) => bitmap.free() * self.sector,
        }
    }

    /// The longest free extent's length.
    pub(crate) fn longest(&mut self) -> u64 {
        match &mut self.form {
            Form::Extents(extents) => extents.longest(),
            Form::Bitmap(bitmap) => bitmap.longest() * self.sector,
        }
    }

    /// Gives space of the group back; joins it with its neighbours. Returns false, and does nothing, when a part of it is free
    /// already: in a damaged filesystem two extents may claim the same space.
    #[must_use]
    pub(crate) fn add(&mut self, start: u64, len: u64) -> bool {
        if self.overlaps(start, len) {
            return false;
        }
        let (first, count) = self.sectors_of(start, len);
        match &mut self.form {
            Form::Extents(extents) => assert!(extents.add(start, len), "{start} was not free a moment ago"),
            Form::Bitmap(bitmap) => bitmap.set(first, count, true),
        }
        self.choose_form();
        true
    }

    /// Whether any of it is free.
    pub(crate) fn overlaps(&self, start: u64, len: u64) -> bool {
        let (first, count) = self.sectors_of(start, len);
        match &self.form {
            Form::Extents(extents) => extents.overlaps(start, len),
            Form::Bitmap(bitmap) => bitmap.any_free(first, count),
        }
    }

    /// Hands out `len` bytes aligned to `len`, the first such place at or behind `cursor`, else from the start. `len` is a
    /// tree block's: a power of two of up to 64 sectors.
    pub(crate) fn allocate_aligned(&mut self, len: u64, cursor: u64) -> Option<u64> {
        let (origin, sector) = (self.origin, self.sector);
        let at = match &mut self.form {
            Form::Extents(extents) => extents.allocate_aligned(len, cursor)?,
            Form::Bitmap(bitmap) => {
                let (count, from) = (len / sector, cursor.saturating_sub(origin).div_ceil(sector));
                let first = bitmap.first_aligned(count, from).or_else(|| bitmap.first_aligned(count, 0))?;
                bitmap.set(first, count, false);
                origin + first * sector
            }
        };
        self.choose_form();
        Some(at)
    }

    /// Hands out `len` bytes from an extent that has them, else the longest extent if it has `min`.
    pub(crate) fn allocate_best(&mut self, len: u64, min: u64) -> Option<(u64, u64)> {
        let (origin, sector) = (self.origin, self.sector);
        let found = match &mut self.form {
            Form::Extents(extents) => extents.allocate_best(len, min)?,
            Form::Bitmap(bitmap) => {
                let count = bitmap.longest().min(len / sector);
                if count == 0 || count * sector < min {
                    return None;
                }
                let first = bitmap.first_fit(count)?;
                bitmap.set(first, count, false);
                (origin + first * sector, count * sector)
            }
        };
        self.choose_form();
        Some(found)
    }

    /// Hands out `len` bytes at `near`, which lies in the group, if they are free, else from an extent that has all of them.
    pub(crate) fn allocate_near(&mut self, near: u64, len: u64) -> Option<(u64, u64)> {
        let end = self.origin + self.sectors * self.sector;
        let there = near.is_multiple_of(self.sector) && near.checked_add(len).is_some_and(|to| to <= end);
        let taken = if there { self.take_part((near, near + len), len, len) } else { None };
        taken.map(|(at, got, _)| (at, got)).or_else(|| self.allocate_best(len, len))
    }

    /// Takes the first free part of `[from, to)` that has `min` bytes, and at most `most` of it. Returns its start, the length
    /// taken, and how much more of the part there is.
    pub(crate) fn take_part(
        &mut self,
        (from, to): (u64, u64),
        min: u64,
        most: u64,
    ) -> Option<(u64, u64, u64)> {
        let mut from = from;
        while from < to && most > 0 {
            let (start, found) = self.first_part(from, to)?;
            if found >= min {
                let len = found.min(most);
                let (first, count) = self.sectors_of(start, len);
                match &mut self.form {
                    Form::Extents(extents) => extents.take(start, len),
                    Form::Bitmap(bitmap) => bitmap.set(first, count, false),
                }
                self.choose_form();
                return Some((start, len, found - len));
            }
            from = start + found;
        }
        None
    }

    fn first_part(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let (first, count) = self.sectors_of(from, to - from);
        match &self.form {
            Form::Extents(extents) => extents.first_part(from, to),
            Form::Bitmap(bitmap) => {
                let (found, sectors) = bitmap.first_part(first, first + count)?;
                Some((self.origin + found * self.sector, sectors * self.sector))
            }
        }
    }

    /// Memory on the heap, bytes.
    pub(crate) fn memory(&self) -> u64 {
        match &self.form {
            Form::Extents(extents) => extents.memory(),
            Form::Bitmap(bitmap) => bitmap.memory(),
        }
    }

    fn sectors_of(&self, start: u64, len: u64) -> (u64, u64) {
        let inside = start >= self.origin && start + len <= self.origin + self.sectors * self.sector;
        let whole = start.is_multiple_of(self.sector) && len.is_multiple_of(self.sector) && len > 0;
        assert!(inside && whole, "{start} of {len} bytes are not sectors of the group");
        ((start - self.origin) / self.sector, len / self.sector)
    }

    /// Switches between extents and bitmap, to the form that takes less memory. Without free space it takes no heap.
    fn choose_form(&mut self) {
        self.change_form();
        self.check_form();
    }

    fn check_form(&self) {
        let Form::Extents(extents) = &self.form else { return };
        let (bytes, most) = (extents.count() as u64 * EXTENT_BYTES, Bitmap::bytes(self.sectors));
        assert!(bytes <= most, "FREE-SPACE-1: extents of {bytes} bytes instead of a bitmap of {most}");
    }

    fn change_form(&mut self) {
        let extents_max = Bitmap::bytes(self.sectors) / EXTENT_BYTES;
        let form = match &self.form {
            Form::Extents(extents) if extents.count() as u64 > extents_max => {
                let mut bitmap = Bitmap::new(self.sectors);
                for (start, len) in extents.iter() {
                    let (first, count) = self.sectors_of(start, len);
                    bitmap.set(first, count, true);
                }
                Form::Bitmap(bitmap)
            }
            Form::Bitmap(bitmap) if bitmap.runs() <= extents_max / BACK => {
                let mut extents = FreeExtents::default();
                for (first, count) in bitmap.iter() {
                    let added = extents.add(self.origin + first * self.sector, count * self.sector);
                    assert!(added, "two runs of a bitmap overlap");
                }
                Form::Extents(extents)
            }
            Form::Extents(extents) if extents.count() == 0 => Form::Extents(FreeExtents::default()),
            _ => return,
        };
        self.form = form;
    }
}
