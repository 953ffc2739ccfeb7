//! Rewriting in place what is bad, in a volume that is otherwise only read: what scrub writes, and nothing else.
//!
//! # Invariants
//! - MEND-1: nothing is written but verified bytes, over bytes that a second look, at the device itself, finds bad; over superblocks nothing but a copy
//!   of the first one, at the place of a copy.
//! - MEND-2: a set is mended only where all of its members are there and have the last commit.

use std::sync::atomic::Ordering;

use creamery_base::{DevId, Error, ErrorKind, Logical, Physical, Result};
use creamery_device::AlignedBuffer;
use creamery_format::{SUPERBLOCK_OFFSETS, Superblock};

use crate::Volume;
use crate::members::MemberState;
use crate::open::cut_short;
use crate::piece::Piece;
use crate::write::check_beside_superblocks;

/// What brings a device up to date.
const UP_TO_DATE: &str = "mount the set with Linux: its scrub writes what the device missed";

/// The right to rewrite what is bad, in a volume that was opened for that ([`Volume::open_for_mending`]) or for writing.
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
    /// The right to mend it. The devices that the filesystem lists have to be known. In a volume that is written to, who mends keeps from being used again what he
    /// rewrites.
    ///
    /// # Errors
    /// [`ErrorKind::ReadOnly`]: it was not opened for that. [`ErrorKind::DeviceMissing`], [`ErrorKind::Unsupported`]: a member is missing, ends before the filesystem,
    /// or is not what it was at the last commit (MEND-2).
    pub fn mender(&self) -> Result<Mender<'_>> {
        if !self.is_mended() && self.check_writable().is_err() {
            return Err(Error::new(ErrorKind::ReadOnly, format!("{} is open for reading", self.fsid())));
        }
        self.check_mendable().map(|()| Mender(self))
    }

    /// Whether its devices may be mended (MEND-2), however it was opened.
    ///
    /// # Errors
    /// [`ErrorKind::DeviceMissing`], [`ErrorKind::Unsupported`]: a member is missing, ends before the filesystem, or is not what it was at the last commit.
    pub fn check_mendable(&self) -> Result<()> {
        let (found, counted) = (self.members().all().len() as u64, self.superblock().device_count());
        if self.members().are_some_missing() || found < counted {
            let what = format!("filesystem {} has devices that are missing", self.fsid());
            return Err(Error::new(ErrorKind::DeviceMissing, what).advise("bring them back first"));
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

    /// Fills `out` with what lies at `at`, as it is: a repair that is held until somebody writes is not there yet. That it fails says nothing of the member.
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
    /// Writes `good`, which the caller has verified, to `at`, unless what lies there `is_good` by now; and reads it back.
    ///
    /// # Errors
    /// The device fails, or does not have what was written; it would be over a superblock.
    pub fn rewrite(self, at: Physical, good: &[u8], is_good: &dyn Fn(&[u8]) -> bool) -> Result<()> {
        let Self(volume) = self;
        let piece = Piece { at, len: good.len() as u64 };
        check_beside_superblocks(&[piece])?;
        assert!(is_good(good), "MEND-1: bytes that are not good for {at}");
        if volume.check_writable().is_ok() {
            volume.begin_writing()?; // what is held until somebody writes goes before it
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
            return Err(Error::new(ErrorKind::Io, format!("{at}: what was written is not there")));
        }
        volume.counters.repaired.add(1);
        Ok(())
    }

    /// Writes a copy of a superblock, behind the first one of the same device, which it is taken from. As after a commit it leads to no log.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Panics
    /// There is no copy's place, or it is the first one's; the superblock is another device's (MEND-1).
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
            false => Err(Error::new(ErrorKind::Io, format!("{at}: what was written is not there"))),
        }
    }

    /// Makes durable what was rewritten on all devices.
    ///
    /// # Errors
    /// When a device cannot promise it.
    pub fn flush(self) -> Result<()> {
        self.0.flush_devices()
    }

    /// Whether something was rewritten on a device since the volume was opened.
    #[must_use]
    pub fn has_rewritten(self, dev: DevId) -> bool {
        self.0.member(dev).is_ok_and(|member| member.is_rewritten.load(Ordering::Relaxed))
    }

    /// Makes durable what was rewritten on one device.
    ///
    /// # Errors
    /// When it cannot promise it, or is missing.
    pub fn flush_device(self, dev: DevId) -> Result<()> {
        self.0.member(dev)?.device.flush()
    }
}
