//! Rewriting bad blocks in place, in a volume that is otherwise only read: the writes of scrub, and no others.
//!
//! # Invariants
//! - MEND-1: only verified bytes are written, over bytes that a second look, at the device itself, finds bad. Over superblocks only a copy
//!   of the first one is written, at the place of a copy.
//! - MEND-2: a set is mended only if all of its members are there and have the last commit.

use std::sync::atomic::Ordering;

use creamery_base::{DevId, Error, ErrorKind, Logical, Physical, Result};
use creamery_device::AlignedBuffer;
use creamery_format::{SUPERBLOCK_OFFSETS, Superblock};

use crate::Volume;
use crate::device_range::DeviceRange;
use crate::members::MemberState;
use crate::open::cut_short;
use crate::write::check_beside_superblocks;

/// Advice for bringing a device up to date.
const UP_TO_DATE: &str = "mount the set with Linux: its scrub writes what the device missed";

/// The right to rewrite bad bytes, in a volume that was opened for that ([`Volume::open_for_mending`]) or for writing.
///
/// ```no_run
/// # fn example(volume: &creamery_volume::Volume, at: creamery_base::Physical, good: &[u8]) -> creamery_base::Result<()> {
/// let mender = volume.mender()?;
/// mender.rewrite(at, good, &|now| now == good)?;
/// mender.flush()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Mender<'v>(&'v Volume);

impl Volume {
    /// Returns the right to mend the volume. The devices that the filesystem lists must be known. In a volume that is open for writing, the
    /// caller must keep the space that it rewrites from being used again.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`]: it was not opened for that. [`ErrorKind::DeviceMissing`], [`ErrorKind::Unsupported`]: a member is missing,
    /// ends before the filesystem, or is not in the state of the last commit (MEND-2).
    pub fn mender(&self) -> Result<Mender<'_>> {
        if !self.is_mended() && self.check_writable().is_err() {
            return Err(Error::new(ErrorKind::ReadOnly, format!("{} is open read-only", self.fsid())));
        }
        self.check_mendable().map(|()| Mender(self))
    }

    /// Checks that its devices may be mended (MEND-2), however it was opened.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMissing`], [`ErrorKind::Unsupported`]: a member is missing, ends before the filesystem, or is not in the state of
    /// the last commit.
    pub fn check_mendable(&self) -> Result<()> {
        let (found, counted) = (self.members().all().len() as u64, self.superblock().device_count());
        if self.members().are_some_missing() || found < counted {
            let what = format!("filesystem {} has devices that are missing", self.fsid());
            return Err(Error::new(ErrorKind::DeviceMissing, what).advise("connect them first"));
        }
        for member in self.members().all() {
            let (name, state) = (member.device.describe(), member.state());
            if state != MemberState::Present {
                let error = Error::unsupported(format!("{name}: {state}"));
                return Err(match state {
                    MemberState::Stale(_) => error.advise(UP_TO_DATE),
                    _ => error,
                });
            }
            if cut_short(member).is_some() {
                return Err(Error::unsupported(format!("{name}: the device ends before the filesystem")));
            }
        }
        Ok(())
    }

    /// Fills `out` with the device's own bytes at `at`, without held repairs. An error does not change the member's state.
    ///
    /// # Errors
    /// The device is missing, or fails.
    pub fn read_physical(&self, at: Physical, out: &mut [u8]) -> Result<()> {
        let member = self.member(at.dev)?;
        match self.held.device(at.dev) {
            Ok(held) => held.read_unrepaired_at(at.offset, out),
            Err(_) => member.device.read_at(at.offset, out),
        }
    }
}

impl Mender<'_> {
    /// Writes `good`, which the caller has verified, to `at`, unless the bytes there satisfy `is_good` by now; and reads it back.
    ///
    /// # Errors
    /// The device fails, or returns other bytes afterwards; the range overlaps a superblock.
    pub fn rewrite(self, at: Physical, good: &[u8], is_good: &dyn Fn(&[u8]) -> bool) -> Result<()> {
        let Self(volume) = self;
        let piece = DeviceRange { at, len: good.len() as u64 };
        check_beside_superblocks(&[piece])?;
        assert!(is_good(good), "MEND-1: bytes that are not good for {at}");
        if volume.check_writable().is_ok() {
            volume.begin_writing()?; // held writes go before it
        }
        let _alone = volume.repairing.lock();
        let mut now = AlignedBuffer::zeroed(good.len());
        if volume.read_physical(at, &mut now).is_ok() && is_good(&now) {
            return Ok(());
        }
        let member = volume.member(at.dev)?;
        member.is_rewritten.store(true, Ordering::Relaxed);
        let written = member.device.write_at(at.offset, good);
        written.inspect_err(|_| volume.counters.repair_failures.add(1))?;
        volume.read_physical(at, &mut now)?;
        if !is_good(&now) {
            return Err(Error::new(ErrorKind::Io, format!("{at}: reads back other bytes than written")));
        }
        volume.counters.repaired.add(1);
        Ok(())
    }

    /// Writes a copy of a superblock from `first`, the first superblock of the same device. Like after a commit, the copy leads to no log.
    ///
    /// # Errors
    /// The device fails.
    ///
    /// # Panics
    /// If it is no copy's place, or the first one's; if the superblock is another device's (MEND-1).
    pub fn rewrite_superblock(self, at: Physical, first: &Superblock) -> Result<()> {
        assert!(SUPERBLOCK_OFFSETS[1..].contains(&at.offset), "MEND-1: {at} is no place of a copy");
        assert_eq!(first.dev_item().dev_id(), at.dev, "MEND-1: a superblock of another device");
        let Self(volume) = self;
        let mut copy = first.clone();
        copy.set_log_root(Logical::new(0), 0);
        copy.raw_mut().log_root_transid = 0.into();
        let bytes = Volume::superblock_bytes(&copy, at.offset)?;
        let _alone = volume.repairing.lock();
        let mut now = vec![0; bytes.len()];
        if volume.read_physical(at, &mut now).is_ok() && now == bytes {
            return Ok(());
        }
        let member = volume.member(at.dev)?;
        member.is_rewritten.store(true, Ordering::Relaxed);
        member.device.write_at(at.offset, &bytes)?;
        volume.read_physical(at, &mut now)?;
        match now == bytes {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Io, format!("{at}: reads back other bytes than written"))),
        }
    }

    /// Makes the rewritten bytes durable on all devices.
    ///
    /// # Errors
    /// A device cannot promise it.
    pub fn flush(self) -> Result<()> {
        self.0.flush_devices()
    }

    /// Whether any bytes on a device were rewritten since the volume was opened.
    #[must_use]
    pub fn has_rewritten(self, dev: DevId) -> bool {
        self.0.member(dev).is_ok_and(|member| member.is_rewritten.load(Ordering::Relaxed))
    }

    /// Makes the rewritten bytes durable on one device.
    ///
    /// # Errors
    /// The device cannot promise it, or is missing.
    pub fn flush_device(self, dev: DevId) -> Result<()> {
        self.0.member(dev)?.device.flush()
    }
}
