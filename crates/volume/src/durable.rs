//! The four tokens of a commit, and the steps between them. The crate's head has the argument.

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::{AlignedBuffer, Request};
use creamery_format::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, Superblock};

use crate::ask::ask_all;
use crate::device_range::DeviceRange;
use crate::members::Member;
use crate::volume::Volume;

/// A copy that a write did not reach, while another copy was written.
///
/// ```
/// # use creamery_volume::{CopyFailure, DeviceRange};
/// # use creamery_base::{DevId, ErrorKind, Physical};
/// let piece = DeviceRange { at: Physical { dev: DevId::new(2), offset: 4096 }, len: 16384 };
/// let failure = CopyFailure { piece, error: ErrorKind::Io.into() };
/// assert_eq!(failure.piece.at.dev, DevId::new(2));
/// ```
#[derive(Debug)]
pub struct CopyFailure {
    /// The place of the copy that was not written.
    pub piece: DeviceRange,
    /// The reason.
    pub error: Error,
}

/// Proof that blocks were handed to the devices, which may still hold them in a cache.
///
/// ```compile_fail
/// # fn publish(volume: &creamery_volume::Volume, superblock: &mut creamery_format::Superblock) {
/// let written = volume.nothing_written();
/// volume.publish(superblock, written); // wants Durable
/// # }
/// ```
#[must_use = "what was written is not durable before it is flushed"]
#[derive(Debug)]
pub struct Written {
    volume: u64,
    failures: Vec<CopyFailure>,
}

/// Proof that everything written before is on the platter.
///
/// ```compile_fail
/// let forged = creamery_volume::Durable { volume: 1 }; // only a flush makes one
/// ```
#[must_use = "durable blocks mean nothing before a superblock points at them"]
#[derive(Debug)]
pub struct Durable {
    volume: u64,
}

/// Proof that the superblock was sent to every device after what it points to was durable.
///
/// ```compile_fail
/// fn twice(volume: &creamery_volume::Volume, published: creamery_volume::Published) {
///     let _ = volume.finish(published);
///     let _ = volume.finish(published); // it was used up
/// }
/// ```
#[must_use = "a published superblock is not on the platter before finish"]
#[derive(Debug)]
pub struct Published {
    volume: u64,
    superblock: Box<Superblock>,
}

/// Proof that the superblock is on the platter: a crash from now on finds this commit or a later one.
///
/// ```
/// fn unpin(proof: &creamery_volume::Committed) {
///     let _freed_space_may_be_reused = proof;
/// }
/// ```
#[must_use = "freed space and waiting callers want to see this"]
#[derive(Debug)]
pub struct Committed {
    _private: (),
}

/// Proof that a superblock with logs is on the platter: a crash from now on finds the last commit and these logs, or later ones,
/// or the next commit.
///
/// ```
/// fn go_home(proof: &creamery_volume::Logged) {
///     let _synced = proof;
/// }
/// ```
#[must_use = "waiting callers want to see this"]
#[derive(Debug)]
pub struct Logged {
    _private: (),
}

impl Written {
    pub(crate) const fn new(volume: u64, failures: Vec<CopyFailure>) -> Self {
        Self { volume, failures }
    }

    /// Returns this and another write as one token.
    pub fn and(mut self, other: Self) -> Self {
        self.add(other);
        self
    }

    /// Adds another write to this token.
    pub fn add(&mut self, other: Self) {
        assert_eq!(self.volume, other.volume, "tokens of one volume");
        self.failures.extend(other.failures);
    }

    /// Returns the copies that could not be written. Every block has reached at least one.
    #[must_use]
    pub fn failures(&self) -> &[CopyFailure] {
        &self.failures
    }
}

impl Volume {
    /// Returns the token of a commit that has no blocks to write.
    pub fn nothing_written(&self) -> Written {
        Written::new(self.number(), Vec::new())
    }

    /// Makes every write so far durable, including data, on all devices.
    ///
    /// # Errors
    /// A device cannot promise it. There is no second try: the transaction is lost.
    pub fn flush(&self, written: Written) -> Result<Durable> {
        assert_eq!(written.volume, self.number(), "a token of this volume");
        self.flush_devices()?;
        Ok(Durable { volume: written.volume })
    }

    /// Writes `superblock` to the first copy's place on every device. Sets its address and checksum fields.
    ///
    /// # Errors
    /// A device fails. It is then unknown whether the superblock arrived, and the transaction is lost; the
    /// filesystem on disk is consistent either way.
    pub fn publish(&self, superblock: &mut Superblock, durable: Durable) -> Result<Published> {
        assert_eq!(durable.volume, self.number(), "a token of this volume");
        self.check_writable()?;
        assert!(superblock.generation() >= self.generation(), "a superblock is not older than the last one");
        assert_eq!(superblock.fsid(), self.fsid());
        self.begin_writing()?;
        self.counters.publishes.add(1);
        let offset = SUPERBLOCK_OFFSETS[0];
        let writes = self.members().all().iter().map(|member| {
            let data = AlignedBuffer::from_slice(&Self::superblock_bytes(superblock, offset)?).into();
            Ok((member, Request::Write { offset, data }))
        });
        for (member, outcome) in ask_all(writes.collect::<Result<Vec<_>>>()?) {
            outcome.map_err(|error| unpublished(member, offset, error))?;
        }
        Ok(Published { volume: durable.volume, superblock: Box::new(superblock.clone()) })
    }

    /// Waits until the superblock is on the platter, then brings the other copies up to date. These are flushed
    /// by the next commit's first flush, or by [`close`](Self::close).
    ///
    /// # Errors
    /// A device cannot promise it; the transaction is lost then, like in [`publish`](Self::publish).
    pub fn finish(&self, published: Published) -> Result<Committed> {
        assert_eq!(published.volume, self.number(), "a token of this volume");
        self.flush_devices()?;
        for member in self.members().all() {
            for &offset in &SUPERBLOCK_OFFSETS[1..] {
                if self.has_superblock_at(member, &published.superblock, offset)
                    && self.write_superblock(member, &published.superblock, offset).is_err()
                {
                    // The commit stands without it.
                    self.counters.superblock_copy_failures.add(1);
                }
            }
        }
        self.set_superblock(*published.superblock);
        Ok(Committed { _private: () })
    }

    /// Waits until a superblock of the last commit that also leads to logs is on the platter. The other copies stay
    /// unchanged: a reader that needs one of them finds the last commit.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish): a device cannot promise it.
    pub fn finish_log(&self, published: Published) -> Result<Logged> {
        assert_eq!(published.volume, self.number(), "a token of this volume");
        assert_eq!(published.superblock.generation(), self.generation(), "logs are behind the last commit");
        self.flush_devices()?;
        Ok(Logged { _private: () })
    }

    /// Makes the other superblock copies of the last commit durable, too, and closes the devices, so that others can use them: the last
    /// operation of a volume. Later requests of this process fail.
    ///
    /// # Errors
    /// A device cannot promise it; it is closed all the same.
    pub fn close(&self) -> Result<()> {
        let flushed = if self.check_writable().is_ok() { self.flush_devices() } else { Ok(()) };
        for member in self.members().all() {
            member.device.close();
        }
        flushed
    }

    pub(crate) fn flush_devices(&self) -> Result<()> {
        self.counters.flushes.add(1);
        // All of them, even after a failure: the others are still made durable.
        let flushes = self.members().all().iter().map(|member| (member, Request::Flush));
        ask_all(flushes).into_iter().try_for_each(|(_, outcome)| outcome.map(drop))
    }

    fn has_superblock_at(&self, member: &Member, superblock: &Superblock, offset: u64) -> bool {
        let end = offset + SUPERBLOCK_LEN as u64;
        end <= member.device.len().min(superblock.dev_item().total_bytes.get())
    }

    /// Writes one copy.
    fn write_superblock(&self, member: &Member, superblock: &Superblock, offset: u64) -> Result<()> {
        let bytes = Self::superblock_bytes(superblock, offset)?;
        member.device.write_at(offset, &bytes).map_err(|error| unpublished(member, offset, error))
    }

    /// Returns the bytes of a copy, after the check that a reader makes.
    pub(crate) fn superblock_bytes(superblock: &Superblock, offset: u64) -> Result<Vec<u8>> {
        let bytes = superblock.to_bytes(offset);
        Superblock::from_bytes(&bytes, offset).map_err(|damage| {
            Error::from(damage).context(format!("about to write a superblock copy at {offset}"))
        })?;
        Ok(bytes)
    }
}

/// Returns the error for a superblock copy that could not be written.
fn unpublished(member: &Member, offset: u64, error: Error) -> Error {
    let kind = error.kind();
    Error::with_source(
        if kind == ErrorKind::ReadOnly { kind } else { ErrorKind::Io },
        format!("writing the superblock copy at {offset} of {}", member.device.describe()),
        error,
    )
}
