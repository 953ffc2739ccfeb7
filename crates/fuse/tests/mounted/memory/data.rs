//! Sparse file data in blocks of 4 KiB.

use std::collections::BTreeMap;

use creamery_fuse::{Errno, Result, SeekTo};

const BLOCK: u64 = 4096;

#[derive(Default)]
pub struct Data {
    blocks: BTreeMap<u64, Box<[u8]>>,
    len: u64,
}

impl Data {
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let len = self.len.saturating_sub(offset).min(out.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let inside = (at % BLOCK) as usize;
            let piece = (BLOCK as usize - inside).min(len - done);
            let place = &mut out[done..done + piece];
            match self.blocks.get(&(at / BLOCK)) {
                Some(block) => place.copy_from_slice(&block[inside..inside + piece]),
                None => place.fill(0),
            }
            done += piece;
        }
        len
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let inside = (at % BLOCK) as usize;
            let piece = (BLOCK as usize - inside).min(data.len() - done);
            let block = self.blocks.entry(at / BLOCK).or_insert_with(|| vec![0; BLOCK as usize].into());
            block[inside..inside + piece].copy_from_slice(&data[done..done + piece]);
            done += piece;
        }
        self.len = self.len.max(offset + data.len() as u64);
    }

    pub fn truncate(&mut self, len: u64) {
        if len < self.len {
            self.punch(len, self.len - len);
        }
        self.len = len;
    }

    /// Zeroes a range; whole blocks become holes.
    pub fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        for (&index, block) in self.blocks.range_mut(offset / BLOCK..=end / BLOCK) {
            let start = index * BLOCK;
            let from = offset.clamp(start, start + BLOCK) - start;
            let to = end.clamp(start, start + BLOCK) - start;
            block[from as usize..to as usize].fill(0);
        }
        self.blocks.retain(|&index, _| index * BLOCK < offset || (index + 1) * BLOCK > end);
    }

    pub fn extend(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    pub fn seek(&self, offset: u64, to: SeekTo) -> Result<u64> {
        if offset >= self.len {
            return Err(Errno::ENXIO);
        }
        let first = offset / BLOCK;
        let found = match to {
            SeekTo::Data => {
                let (&index, _) = self.blocks.range(first..).next().ok_or(Errno::ENXIO)?;
                index * BLOCK
            }
            SeekTo::Hole => (first..).find(|index| !self.blocks.contains_key(index)).expect("finite") * BLOCK,
            _ => return Err(Errno::EINVAL),
        };
        match to {
            SeekTo::Data if found >= self.len => Err(Errno::ENXIO),
            _ => Ok(found.max(offset).min(self.len)),
        }
    }
}
