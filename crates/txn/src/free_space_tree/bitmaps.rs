//! Groups with so many free extents that a bit for each sector takes less room.

use creamery_base::{ObjectId, Result, Wait};
use creamery_format::{FREE_SPACE_USING_BITMAPS, Key, KeyType};
use creamery_tree::CowHost;

use super::bits::{bit_at, set_bit};
use super::group::{GroupFreeSpace, Info, damaged, extent_key};
use super::plan::SpaceRun;

impl GroupFreeSpace {
    /// Rewrites the free space as bitmaps.
    pub(super) fn convert_to_bitmaps(&self, host: &dyn CowHost, info: Info) -> Result<()> {
        let free = self.extents()?;
        self.delete(host)?;
        self.insert_bitmaps(host, info, &free)
    }

    /// Writes the bitmaps of a group without items.
    pub(super) fn insert_bitmaps(&self, host: &dyn CowHost, info: Info, free: &[(u64, u64)]) -> Result<()> {
        self.set_info(host, Info { flags: info.flags | FREE_SPACE_USING_BITMAPS, ..info })?;
        let mut extents = free.iter().peekable();
        let mut at = self.group.start.get();
        while at < self.group.end().get() {
            let span = self.bitmap_span().min(self.group.end().get() - at);
            let bits = span / self.sector;
            let mut bitmap = vec![0; usize::try_from(bits.div_ceil(8)).expect("at most 256")];
            while let Some(&&(start, len)) = extents.peek() {
                if start >= at + span {
                    break;
                }
                let first = start.max(at) - at;
                let last = (start + len).min(at + span) - at;
                for bit in first / self.sector..last / self.sector {
                    set_bit(&mut bitmap, bit, true);
                }
                if start + len > at + span {
                    break;
                }
                extents.next();
            }
            let key = Key::new(ObjectId::new(at), KeyType::FREE_SPACE_BITMAP, span);
            self.tree.insert(host, &key, &bitmap)?;
            at += span;
        }
        Ok(())
    }

    /// Rewrites the free space as extents.
    pub(super) fn convert_to_extents(&self, host: &dyn CowHost, info: Info) -> Result<()> {
        let free = self.extents()?;
        self.delete(host)?;
        self.set_info(host, Info { flags: info.flags & !FREE_SPACE_USING_BITMAPS, ..info })?;
        for (start, len) in free {
            self.tree.insert(host, &extent_key(start, len), &[])?;
        }
        Ok(())
    }

    fn bitmap_key(&self, at: u64) -> Key {
        let index = (at - self.group.start.get()) / self.bitmap_span();
        let start = self.group.start.get() + index * self.bitmap_span();
        let span = self.bitmap_span().min(self.group.end().get() - start);
        Key::new(ObjectId::new(start), KeyType::FREE_SPACE_BITMAP, span)
    }

    /// Whether the sector at `at` is free; false outside the group.
    fn is_free(&self, at: Option<u64>) -> Result<bool> {
        let Some(at) = at.filter(|&at| at >= self.group.start.get() && at < self.group.end().get()) else {
            return Ok(false);
        };
        let key = self.bitmap_key(at);
        let bit = (at - key.objectid.get()) / self.sector;
        let found = self
            .tree
            .get(&key, Wait::Yes, |data| ((bit / 8) < data.len() as u64).then(|| bit_at(data, bit)))?;
        found.flatten().ok_or_else(|| damaged(self.group, "a bitmap is missing"))
    }

    /// Sets or clears the bits of a run, all of which change.
    pub(super) fn change_bits(&self, host: &dyn CowHost, info: &mut Info, run: &SpaceRun) -> Result<()> {
        let (start, len, free) = (run.start.get(), run.len, run.freed);
        let before = self.is_free(start.checked_sub(self.sector))?;
        let behind = self.is_free(start.checked_add(len))?;
        let mut at = start;
        while at < start + len {
            let key = self.bitmap_key(at);
            let item_end = key.objectid.get() + key.offset;
            let end = item_end.min(start + len);
            let range = (at - key.objectid.get()) / self.sector..(end - key.objectid.get()) / self.sector;
            let changed = self.tree.update(host, &key, |data| {
                let fits = range.end.div_ceil(8) <= data.len() as u64;
                let expected = fits && range.clone().all(|bit| bit_at(data, bit) != free);
                if expected {
                    range.clone().for_each(|bit| set_bit(data, bit, free));
                }
                expected
            })?;
            if changed != Some(true) {
                let want = if free { "freed and is free already" } else { "to be used and is not free" };
                return Err(damaged(self.group, &format!("{at} is {want}")));
            }
            at = end;
        }
        // A range that becomes free joins the runs beside it; one that becomes used cuts a run apart.
        let neighbours = u32::from(before) + u32::from(behind);
        info.extents = match free {
            true => self.counted(info.extents.saturating_add(1), neighbours)?,
            false => self.counted(info.extents.saturating_add(neighbours), 1)?,
        };
        Ok(())
    }
}
