//! A device that holds back superblocks until the filesystem is finished.
//!
//! While a filesystem is being filled, transactions commit and write superblocks as usual. If these reached the device, a killed build
//! would leave an image that looks whole and is not. So the copies stay in memory, reads find them there, and nothing is flushed.
//! [`HeldSuperblocks::publish`] first makes the rest durable, then writes the superblocks.
//!
//! # Invariants
//! - HELDBACK-1: no superblock reaches the device before everything it leads to was flushed.

use std::collections::BTreeMap;
use std::sync::Arc;

use creamery_base::lock::{RankedGuard, RankedMutex, rank};
use creamery_base::{Error, ErrorKind, Result};
use creamery_device::{BlockDevice, Completion, DeviceId, Reply, Request};
use creamery_format::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, Superblock};

/// See the [module](self).
pub(crate) struct HeldSuperblocks {
    inner: Arc<dyn BlockDevice>,
    held: RankedMutex<Copies, { rank::LEAF }>,
}

/// Copies by their offset on the device.
type Copies = BTreeMap<u64, Vec<u8>>;

const LEN: u64 = SUPERBLOCK_LEN as u64;

/// The copies that a range touches.
fn touched(offset: u64, len: u64) -> impl Iterator<Item = u64> {
    SUPERBLOCK_OFFSETS.into_iter().filter(move |&at| at < offset.saturating_add(len) && offset < at + LEN)
}

impl HeldSuperblocks {
    pub(crate) const fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self { inner, held: RankedMutex::new(BTreeMap::new()) }
    }

    fn held(&self) -> RankedGuard<'_, Copies, { rank::LEAF }> {
        self.held.lock()
    }

    /// Takes `data` if it is a superblock copy.
    fn take(&self, offset: u64, data: &[u8]) -> Result<bool> {
        match touched(offset, data.len() as u64).next() {
            None => Ok(false),
            Some(at) if at == offset && data.len() as u64 == LEN => {
                self.held().insert(at, data.to_vec());
                Ok(true)
            }
            Some(at) => {
                let context =
                    format!("a write of {} bytes at {offset} runs over the superblock at {at}", data.len());
                Err(Error::new(ErrorKind::Io, context))
            }
        }
    }

    /// Copies the held superblocks over bytes that were read from the device.
    fn lay_over(&self, offset: u64, out: &mut [u8]) {
        let held = self.held();
        for at in touched(offset, out.len() as u64) {
            let Some(bytes) = held.get(&at) else { continue };
            let start = at.max(offset);
            let end = (at + LEN).min(offset + out.len() as u64);
            let index = |n: u64| usize::try_from(n).expect("a position in a slice fits");
            out[index(start - offset)..index(end - offset)]
                .copy_from_slice(&bytes[index(start - at)..index(end - at)]);
        }
    }

    /// Changes every held copy, and drops those beyond `total` bytes.
    pub(crate) fn edit_superblocks(&self, total: u64, edit: impl Fn(&mut Superblock)) -> Result<()> {
        let mut held = self.held();
        held.retain(|at, _| at + LEN <= total);
        for (at, bytes) in held.iter_mut() {
            let mut superblock = Superblock::from_bytes(bytes, *at)?;
            edit(&mut superblock);
            *bytes = superblock.to_bytes(*at);
        }
        Ok(())
    }

    /// Makes all other writes durable, then the superblocks. The first copy goes last: it alone decides whether a reader finds a
    /// filesystem.
    pub(crate) fn publish(&self) -> Result<()> {
        self.inner.flush()?;
        let held = std::mem::take(&mut *self.held());
        assert!(!held.is_empty()); // an empty device is never published
        for (offset, bytes) in held.iter().rev() {
            self.inner.write_at(*offset, bytes)?;
        }
        self.inner.flush()
    }
}

impl BlockDevice for HeldSuperblocks {
    fn submit(&self, request: Request, done: Completion) {
        match request {
            Request::Write { offset, ref data } => match self.take(offset, &data.contiguous()) {
                Ok(true) => done(Ok(Reply::Done)),
                Ok(false) => self.inner.submit(request, done),
                Err(error) => done(Err(error)),
            },
            Request::Flush => done(Ok(Reply::Done)),
            Request::Read { .. } | Request::Discard { .. } => self.inner.submit(request, done),
        }
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn id(&self) -> DeviceId {
        self.inner.id()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, out)?;
        self.lay_over(offset, out);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        if self.take(offset, data)? { Ok(()) } else { self.inner.write_at(offset, data) }
    }

    fn write_vectored_at(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        if touched(offset, len).next().is_some() {
            return self.write_at(offset, &parts.concat());
        }
        self.inner.write_vectored_at(offset, parts)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.zero(offset, len)
    }

    fn resize(&self, len: u64) -> Result<()> {
        self.inner.resize(len)
    }
}

#[cfg(test)]
mod tests {
    use creamery_device::MemoryDevice;

    use super::*;

    fn held() -> (Arc<MemoryDevice>, HeldSuperblocks) {
        let device = Arc::new(MemoryDevice::new(128 << 20));
        let held = HeldSuperblocks::new(Arc::<MemoryDevice>::clone(&device));
        (device, held)
    }

    fn read(device: &dyn BlockDevice, at: u64) -> u8 {
        let mut byte = [0];
        device.read_at(at, &mut byte).unwrap();
        byte[0]
    }

    #[test]
    fn superblocks_stay_back_until_they_are_published() {
        let (device, held) = held();
        held.write_at(1 << 20, &[1; 4096]).unwrap();
        for at in &SUPERBLOCK_OFFSETS[..2] {
            held.write_at(*at, &[7; SUPERBLOCK_LEN]).unwrap();
        }
        assert_eq!(read(&*device, 1 << 20), 1);
        for at in &SUPERBLOCK_OFFSETS[..2] {
            assert_eq!((read(&held, *at), read(&*device, *at)), (7, 0));
        }
        held.publish().unwrap();
        assert_eq!((read(&*device, SUPERBLOCK_OFFSETS[0]), read(&*device, SUPERBLOCK_OFFSETS[1])), (7, 7));
    }

    #[test]
    fn a_read_across_a_held_copy_shows_it_in_its_place() {
        let (_, held) = held();
        held.write_at(SUPERBLOCK_OFFSETS[0], &[7; SUPERBLOCK_LEN]).unwrap();
        let mut bytes = vec![9; 3 * SUPERBLOCK_LEN];
        held.read_at(SUPERBLOCK_OFFSETS[0] - LEN, &mut bytes).unwrap();
        let parts: Vec<u8> = bytes.chunks(SUPERBLOCK_LEN).map(|part| part[0]).collect();
        assert_eq!(parts, [0, 7, 0]);
    }

    #[test]
    fn a_write_that_runs_over_a_superblock_is_refused() {
        let (_, held) = held();
        assert!(held.write_at(SUPERBLOCK_OFFSETS[0] - 4096, &[1; 8192]).is_err());
        assert!(held.write_vectored_at(SUPERBLOCK_OFFSETS[0] + 512, &[&[1; 512]]).is_err());
    }
}
