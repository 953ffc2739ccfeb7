//! Reading and writing past the host's page cache, by O_DIRECT.
//!
//! A device that is opened with [`DeviceIo::Direct`](crate::DeviceIo::Direct) has a second descriptor of its file. It is opened through
//! the first one (`/proc/self/fd`), so that both are the same file wherever its path leads by now. Locks are on the first one alone.
//!
//! # The way of each request
//! The file has requirements for a direct request ([`Alignment`]).
//!
//! | offset and length | memory | way |
//! |---|---|---|
//! | aligned | aligned, in each part of a vector | straight between the caller's memory and the storage |
//! | aligned | not | by way of a buffer of at most [`BOUNCE`] bytes |
//! | not | any | through the page cache, by the first descriptor |
//!
//! Btrfs reads and writes sectors of at least 4096 bytes, so a filesystem uses the last row only if a device's length is
//! not aligned. An unaligned range is not read, changed and written back: two such requests for one block at once
//! would lose one of the changes, and the page cache does that right.
//! A request that the file refuses (EINVAL), or answers short of an aligned length, goes through the cache as well, and is counted:
//! a file on a network or in a FUSE mount may require more than it reports.
//!
//! # Why both ways may be mixed
//! Before a direct read the kernel writes back the dirty cached pages of its range. Before a direct write it does that, too, and drops the
//! pages; after the write it drops those that a read has brought back meanwhile. So each way sees the writes of the other one.
//! One thing goes wrong: the kernel cannot drop a page that becomes dirty *while* a direct write of it is on its way. It then notes an I/O error
//! for the next flush, which would fail for ever (DEV-2). Several pages may be one (large folios), so the two requests need not even overlap. Filesystems lock
//! the inode against that; block devices do not, and a flush of a loop device fails so within milliseconds. Hence ODIRECT-2.
//!
//! # Flushing
//! A direct write is in the storage when it returns, and not yet durable: the storage has a cache of its own, and the host's filesystem
//! may have noted only in memory where the bytes are. A flush is fdatasync(2) of the first descriptor, like without O_DIRECT, and covers
//! both ways: it writes the dirty pages, commits the metadata that leads to the bytes, and empties the cache of the storage.
//!
//! # Holes, discards, length
//! fallocate(2), BLKDISCARD and ftruncate(2) drop the pages of their range and wait for direct requests themselves. If a file is made
//! longer, its last page may become dirty, so no other request runs meanwhile.
//!
//! # Invariants
//! - ODIRECT-1: a request goes past the cache only if its offset, its length and its memory are multiples of the file's alignment.
//! - ODIRECT-2: while a request of this device is on its way past the cache, no write goes into the cache. Held by `Descriptors`: a write
//!   into the cache beside a direct descriptor borrows them mutably, so it has exclusively the lock that all other requests share. Shown by
//!   `requests_beside_each_other_go_both_ways_without_a_failed_flush`.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::lock::{ProcessMutex, rank};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;

use super::opening::Kind;
use super::vectors::write_parts;
use crate::{Access, AlignedBuffer, BUFFER_ALIGNMENT, DirectRequests};

/// The largest size of an intermediate buffer, bytes.
const BOUNCE: usize = 1 << 20;

/// Up to this size, buffers come from memory that is constantly reused anyway (`slab`).
const SMALL: usize = 64 << 10;

/// Larger buffers that are kept for the next requests: the system takes longer to supply one than the copy takes.
const SPARE_MAX: usize = 4;

/// The largest offset alignment that is accepted.
const ALIGNMENT_MAX: u64 = 65536;

/// The alignment of a file that opens with O_DIRECT and does not report its requirements.
const ASSUMED: u64 = 4096;

/// Filesystems in memory, which accept O_DIRECT but have no storage to bypass the cache for.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6]; // tmpfs, ramfs

/// The requirements of a file for requests past the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Alignment {
    /// Of addresses in memory.
    memory: usize,
    /// Of offsets, and of lengths, including the length of each part.
    offset: u64,
}

/// The way of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DirectRoute {
    Straight,
    Bounced,
    Cached,
}

/// The result of opening a file with O_DIRECT.
pub(super) enum Opened {
    Direct(DirectFile),
    /// The file does not support it, for this reason.
    Refused(String),
}

/// The second descriptor.
pub(super) struct DirectFile {
    file: File,
    alignment: Alignment,
    /// Spare buffers of [`BOUNCE`] bytes each, with any content.
    spare: ProcessMutex<Vec<AlignedBuffer>, { rank::LEAF }>,
}

/// How many requests went each way.
#[derive(Default)]
pub(super) struct Counts {
    straight: AtomicU64,
    bounced: AtomicU64,
    cached: AtomicU64,
}

impl Counts {
    /// Counts a request that went through the cache, at least in part.
    pub(super) fn cached(&self) {
        self.cached.fetch_add(1, Ordering::Relaxed);
    }

    fn went(&self, way: DirectRoute) {
        match way {
            DirectRoute::Straight => _ = self.straight.fetch_add(1, Ordering::Relaxed),
            DirectRoute::Bounced => _ = self.bounced.fetch_add(1, Ordering::Relaxed),
            DirectRoute::Cached => {} // counted by the caller that sends it through the cache
        }
    }

    pub(super) fn snapshot(&self) -> DirectRequests {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        DirectRequests { straight: of(&self.straight), bounced: of(&self.bounced), cached: of(&self.cached) }
    }
}

impl Alignment {
    /// Returns the alignment that `file` reports, or else a likely one: a block device takes its sectors. `None` if it reports no direct I/O.
    fn of(file: &File, kind: Kind, sector_size: u64) -> Result<Option<Self>> {
        let assumed = match kind {
            Kind::Block => sector_size,
            Kind::File => ASSUMED,
        };
        let (memory, offset) = match rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
            Ok(said) if said.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
                (said.stx_dio_mem_align.into(), said.stx_dio_offset_align.into())
            }
            Ok(_) | Err(Errno::NOSYS) => (assumed, assumed),
            Err(error) => return Err(error.into()),
        };
        Ok(Self::believed(memory, offset))
    }

    /// Checks reported alignments. `None` means no direct I/O: 0, or values that no buffer or no sector of Btrfs is a multiple of.
    fn believed(memory: u64, offset: u64) -> Option<Self> {
        let memory = usize::try_from(memory).ok().filter(|memory| *memory <= BUFFER_ALIGNMENT)?;
        let is_believed = memory.is_power_of_two() && offset.is_power_of_two() && offset <= ALIGNMENT_MAX;
        is_believed.then_some(Self { memory, offset })
    }

    const fn fits(self, number: u64) -> bool {
        number.is_multiple_of(self.offset)
    }

    /// Returns the unit of a partial result, so that the rest of the request stays aligned.
    fn unit(self) -> u64 {
        self.offset.max(self.memory as u64)
    }

    /// Returns the reason if a device that begins at `start` cannot use direct I/O: nothing in it would be aligned.
    fn refuses(self, start: u64) -> Option<String> {
        let why =
            || format!("it begins at byte {start}, expected a multiple of {} for direct I/O", self.offset);
        (!self.fits(start)).then(why)
    }

    fn has_memory(self, part: &[u8]) -> bool {
        self.fits(part.len() as u64) && part.as_ptr().addr().is_multiple_of(self.memory)
    }

    /// Returns the way of a request whose first byte is at `at` in the file.
    fn way<P: AsRef<[u8]>>(self, at: u64, parts: &[P]) -> DirectRoute {
        let len: u64 = parts.iter().map(|part| part.as_ref().len() as u64).sum();
        if !self.fits(at) || !self.fits(len) || len == 0 {
            return DirectRoute::Cached;
        }
        let mut filled = parts.iter().map(AsRef::as_ref).filter(|part| !part.is_empty());
        if filled.all(|part| self.has_memory(part)) { DirectRoute::Straight } else { DirectRoute::Bounced }
    }
}

impl DirectFile {
    /// Opens `file` for the second time. The device begins at `start` in it.
    pub(super) fn open(
        file: &File,
        (kind, access): (Kind, Access),
        sector_size: u64,
        start: u64,
    ) -> Result<Opened> {
        if kind == Kind::File && IN_MEMORY.contains(&type_of(file)?) {
            return Ok(Opened::Refused(
                "it is in memory (tmpfs), where there is nothing but the cache".to_owned(),
            ));
        }
        let Some(alignment) = Alignment::of(file, kind, sector_size)? else {
            return Ok(Opened::Refused("it has no direct I/O".to_owned()));
        };
        if let Some(why) = alignment.refuses(start) {
            return Ok(Opened::Refused(why));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::ReadWrite).custom_flags(libc::O_DIRECT);
        match options.open(format!("/proc/self/fd/{}", file.as_raw_fd())) {
            Ok(file) => Ok(Opened::Direct(Self { file, alignment, spare: ProcessMutex::default() })),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                Ok(Opened::Refused("its filesystem has no direct I/O".to_owned()))
            }
            Err(error) => Err(error),
        }
    }

    /// Fills `out` from `at` on as far as possible past the cache. Returns the number of bytes.
    pub(super) fn read(&self, out: &mut [u8], at: u64, counts: &Counts) -> Result<usize> {
        let way = self.alignment.way(at, &[&*out]);
        counts.went(way);
        match way {
            DirectRoute::Straight => self.read_aligned(out, at),
            DirectRoute::Bounced => self.each_step(out.len(), |done, buffer| {
                let read = self.read_aligned(buffer, at + done as u64)?;
                out[done..done + read].copy_from_slice(&buffer[..read]);
                Ok(read)
            }),
            DirectRoute::Cached => Ok(0),
        }
    }

    /// Writes `parts` to `at` as far as possible past the cache. Returns the number of bytes.
    pub(super) fn write(&self, parts: &[&[u8]], at: u64, counts: &Counts) -> Result<usize> {
        let way = self.alignment.way(at, parts);
        counts.went(way);
        match way {
            DirectRoute::Straight => self.write_aligned(parts, at),
            DirectRoute::Bounced => {
                let len = parts.iter().map(|part| part.len()).sum();
                let mut bytes = Bytes(parts, 0);
                self.each_step(len, |done, buffer| {
                    bytes.fill(buffer);
                    self.write_aligned(&[&*buffer], at + done as u64)
                })
            }
            DirectRoute::Cached => Ok(0),
        }
    }

    /// Calls `step` for `len` bytes in pieces of a buffer, from the first, until it does less than asked. Returns the number of bytes done.
    fn each_step(
        &self,
        len: usize,
        mut step: impl FnMut(usize, &mut [u8]) -> Result<usize>,
    ) -> Result<usize> {
        let mut buffer = self.buffer(len);
        let mut done = 0;
        while done < len {
            let wanted = buffer.len().min(len - done);
            let moved = step(done, &mut buffer[..wanted])?;
            done += moved;
            if moved < wanted {
                break;
            }
        }
        self.keep(buffer);
        Ok(done)
    }

    /// Returns a buffer of `len` bytes, or of the largest size for one request.
    fn buffer(&self, len: usize) -> AlignedBuffer {
        if len <= SMALL {
            return AlignedBuffer::zeroed(len);
        }
        let spare = self.spare.lock().pop();
        spare.unwrap_or_else(|| AlignedBuffer::zeroed(BOUNCE))
    }

    /// Keeps a buffer for the next request.
    fn keep(&self, buffer: AlignedBuffer) {
        if buffer.len() == BOUNCE {
            let mut spare = self.spare.lock();
            if spare.len() < SPARE_MAX {
                spare.push(buffer);
            }
        }
    }

    fn check(&self, part: &[u8], at: u64) {
        let alignment = self.alignment;
        assert!(
            alignment.fits(at) && (part.is_empty() || alignment.has_memory(part)),
            "ODIRECT-1: {alignment:?}"
        );
    }

    /// Fills `out`, or its beginning if the file refuses the rest or returns a part that is not aligned.
    fn read_aligned(&self, out: &mut [u8], at: u64) -> Result<usize> {
        let mut done = 0;
        while done < out.len() && (done as u64).is_multiple_of(self.alignment.unit()) {
            self.check(&out[done..], at + done as u64);
            match self.file.read_at(&mut out[done..], at + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes all parts, or their beginning, like [`read_aligned`](Self::read_aligned). Returns the number of bytes written; 0 if the file
    /// refuses a part.
    fn write_aligned(&self, parts: &[&[u8]], at: u64) -> Result<usize> {
        parts.iter().for_each(|part| self.check(part, at));
        match write_parts(&self.file, parts, at, self.alignment.unit()) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(0),
            written => written,
        }
    }
}

/// The bytes of parts, one after the other, and the number of bytes taken from the first part.
struct Bytes<'p>(&'p [&'p [u8]], usize);

impl Bytes<'_> {
    /// Fills `out` with the next bytes; there must be enough.
    fn fill(&mut self, mut out: &mut [u8]) {
        while !out.is_empty() {
            let rest = &self.0[0][self.1..];
            let len = rest.len().min(out.len());
            let (filled, behind) = out.split_at_mut(len);
            filled.copy_from_slice(&rest[..len]);
            out = behind;
            match len == rest.len() {
                true => *self = Self(&self.0[1..], 0),
                false => self.1 += len,
            }
        }
    }
}

/// Returns the type number of the filesystem that the file is on.
fn type_of(file: &File) -> Result<u32> {
    let said = rustix::fs::fstatfs(file)?.f_type;
    // The field has another width and signedness on each architecture; the number has 32 bits.
    Ok(said as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alignment(memory: u64, offset: u64) -> Alignment {
        Alignment::believed(memory, offset).unwrap()
    }

    #[test]
    fn only_alignments_that_buffers_and_sectors_have_are_believed() {
        for (memory, offset) in [(0, 0), (0, 512), (512, 0), (3, 512), (4, 513), (8192, 4096), (512, 131_072)]
        {
            assert_eq!(Alignment::believed(memory, offset), None, "{memory} {offset}");
        }
        for (memory, offset) in [(1, 1), (4, 512), (512, 512), (4096, 4096), (512, 65536)] {
            assert!(Alignment::believed(memory, offset).is_some(), "{memory} {offset}");
        }
    }

    #[test]
    fn a_request_goes_straight_only_where_all_of_it_is_aligned() {
        let buffer = AlignedBuffer::zeroed(8192);
        let part = |from: usize, len: usize| &buffer[from..from + len];
        let asked = alignment(512, 1024);
        for (at, parts, way) in [
            (0, vec![part(0, 1024)], DirectRoute::Straight),
            (1024, vec![part(512, 1024), part(0, 2048)], DirectRoute::Straight),
            (1024, vec![part(512, 1024), part(7, 0), part(0, 2048)], DirectRoute::Straight),
            (0, vec![part(256, 1024)], DirectRoute::Bounced),
            (0, vec![part(0, 512), part(512, 512)], DirectRoute::Bounced),
            (0, vec![part(0, 1000), part(0, 24)], DirectRoute::Bounced),
            (512, vec![part(0, 1024)], DirectRoute::Cached),
            (0, vec![part(0, 512)], DirectRoute::Cached),
            (0, vec![part(0, 1024), part(0, 1)], DirectRoute::Cached),
            (0, vec![], DirectRoute::Cached),
        ] {
            let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
            assert_eq!(asked.way(at, &parts), way, "{at} {lengths:?}");
        }
    }

    #[test]
    fn a_device_begins_at_a_multiple_of_what_is_asked() {
        assert_eq!(alignment(512, 512).refuses(63 * 512), None);
        let why = alignment(512, 4096).refuses(63 * 512).unwrap();
        assert!(why.contains("32256") && why.contains("4096"), "{why}");
    }

    #[test]
    fn bytes_of_parts_fill_buffers_one_after_the_other() {
        let parts: [&[u8]; 4] = [b"ab", b"", b"cde", b"f"];
        let (mut bytes, mut first, mut second) = (Bytes(&parts, 0), [0; 3], [0; 3]);
        bytes.fill(&mut first);
        bytes.fill(&mut second);
        assert_eq!((&first, &second), (b"abc", b"def"));
    }

    /// A file that asks for 512 bytes, whatever filesystem it is on.
    fn direct(len: u64) -> DirectFile {
        let file = tempfile::tempfile().unwrap();
        file.set_len(len).unwrap();
        DirectFile { file, alignment: alignment(512, 512), spare: ProcessMutex::default() }
    }

    #[test]
    #[should_panic(expected = "ODIRECT-1")]
    fn a_range_that_is_not_aligned_is_never_handed_to_the_file() {
        let _ = direct(4096).write_aligned(&[&[1; 3]], 0);
    }

    #[test]
    fn a_read_that_ends_before_its_range_says_how_far_it_came() {
        let direct = direct(4096 + 100);
        let mut buffer = AlignedBuffer::zeroed(8192);
        assert_eq!(direct.read(&mut buffer, 0, &Counts::default()).unwrap(), 4096 + 100);
        assert_eq!(direct.read(&mut buffer, 65536, &Counts::default()).unwrap(), 0);
    }
}
