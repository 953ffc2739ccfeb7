//! Rewriting in place what is bad, in a volume that is otherwise only read: what scrub writes, and nothing else.
//!
//! # Invariants
//! - MEND-1: nothing is written but verified bytes, over bytes that a second look, at the device itself, finds bad; never over a superblock.
//! - MEND-2: a set is mended only where all of its members are there and have the last commit.

use creamery_base::{Error, ErrorKind, Physical, Result};
use creamery_device::AlignedBuffer;
use creamery_format::{SUPERBLOCK_OFFSETS, Superblock};

use crate::members::MemberState;
use crate::open::find_all;
use crate::piece::Piece;
use crate::write::check_beside_superblocks;
use crate::{DeviceSet, Mode, Rescue, Volume, copies};

/// The right to rewrite what is bad, in a volume that was opened for that ([`Volume::open_for_mending`]).
///
/// ```no_run
/// # fn example(volume: &creamery_volume::Volume, at: creamery_base::Physical, good: &[u8]) -> creamery_base::Result<()> {
/// if let Some(mender) = volume.mender() {
///     mender.rewrite(at, good, &|now| now == good)?;
///     mender.flush()?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Mender<'v>(&'v Volume);

impl Volume {
    /// Opens the filesystem on devices that can be written, for reading and for rewriting in place what is bad. Nothing is committed.
    ///
    /// # Errors
    /// As [`open`](Self::open) for reading.
    pub fn open_for_mending(devices: impl Into<DeviceSet>) -> Result<Self> {
        let found = find_all(&devices.into(), copies::Want::Reading)?;
        let volume = Self::open_found(found, Mode::ReadOnly, Rescue::default())?;
        Ok(volume.that_mends())
    }

    /// The right to mend it; none if it was not opened for that.
    #[must_use]
    pub fn mender(&self) -> Option<Mender<'_>> {
        self.is_mended().then_some(Mender(self))
    }

    /// Errors: a member is missing, or is not what it was at the last commit (MEND-2). All chunks have to be known.
    pub fn check_members_whole(&self) -> Result<()> {
        let (found, counted) = (self.members().all().len() as u64, self.superblock().device_count());
        let fsid = self.fsid();
        if found < counted {
            let what = format!("filesystem {fsid} has {counted} devices, and {found} are there");
            return Err(Error::new(ErrorKind::DeviceMissing, what));
        }
        for member in self.members().all() {
            let state = member.state();
            if state != MemberState::Present {
                return Err(Error::unsupported(format!("{}: {state}", member.device.describe())));
            }
        }
        Ok(())
    }

    /// Fills `out` with what lies at `at`, as it is.
    ///
    /// # Errors
    /// The device is missing, or fails.
    pub fn read_physical(&self, at: Physical, out: &mut [u8]) -> Result<()> {
        self.read_pieces(&[Piece { at, len: out.len() as u64 }], out)
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
        let _alone = volume.repairing.lock();
        let mut now = AlignedBuffer::zeroed(good.len());
        if volume.read_physical(at, &mut now).is_ok() && is_good(&now) {
            return Ok(());
        }
        let written = volume.member(at.dev)?.device.write_at(at.offset, good);
        written.inspect_err(|_| volume.counters.repair_failures.add(1))?;
        volume.read_physical(at, &mut now)?;
        if !is_good(&now) {
            return Err(Error::new(ErrorKind::Io, format!("{at}: what was written is not there")));
        }
        volume.counters.repaired.add(1);
        Ok(())
    }

    /// Writes a copy of a superblock, behind the first one of the same device, which it is taken from.
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
        let _alone = volume.repairing.lock();
        volume.member(at.dev)?.device.write_at(at.offset, &Volume::superblock_bytes(first, at.offset)?)
    }

    /// Makes durable what was rewritten.
    ///
    /// # Errors
    /// When a device cannot promise it.
    pub fn flush(self) -> Result<()> {
        self.0.flush_devices()
    }
}
