//! Direct reads and writes: data goes between a device and the caller's buffer.

use creamery_base::Result;
use creamery_device::AlignedBuffer;

use super::{File, check_position, denied};
use crate::fs::{DirectAt, DirectDone};

impl File {
    /// Reads at `offset` into `buffer` itself, for programs with a cache of their own: from a device, or from memory what was not
    /// written back yet. The buffer is given away and comes back with the answer: how many bytes there were before the
    /// end of the file. Data is compared with its checksums, and mended, as by any read. Best are offsets and lengths, in bytes, that are multiples of the sector size, mostly
    /// 4096.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::device::AlignedBuffer;
    /// fs.write("/table", vec![7; 10_000])?;
    /// let (page, read) = fs.open("/table")?.read_direct(AlignedBuffer::zeroed(4096), 8192);
    /// assert_eq!(read?, 10_000 - 8192);
    /// assert_eq!(page[0], 7);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When it was not opened for reading, or the data cannot be read or is damaged; the buffer has zeros, or what it had, then.
    pub fn read_direct(&self, buffer: AlignedBuffer, offset: u64) -> (AlignedBuffer, Result<usize>) {
        if !self.rights.read {
            return (buffer, Err(denied("the file was not opened for reading")));
        }
        if let Err(error) = check_position(offset) {
            return (buffer, Err(error));
        }
        let DirectDone { buffer, outcome } = self.open.read_direct(offset, buffer);
        (buffer, outcome.map(|part| part.len))
    }

    /// Writes `data` at `offset`, out of the buffer itself: when this returns the data is on a device, in no memory, and in the file for
    /// everybody. It is durable as any write is, after [`sync_all`](Self::sync_all). The buffer is given away, so that nobody changes it between its checksums
    /// and its way to the device, and comes back with the answer: how many bytes were written, less than all only when space ran
    /// out on the way. What is no multiple of the sector size, mostly 4096 bytes, and what goes over compressed data or a small file that is stored in the tree itself, goes
    /// through memory, takes longer, and is compressed as any write. Nothing else is.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::device::AlignedBuffer;
    /// let table = fs.create("/table")?;
    /// let mut page = AlignedBuffer::zeroed(16384);
    /// for number in 0..4_u64 {
    ///     page[..8].copy_from_slice(&number.to_le_bytes());
    ///     let (back, written) = table.write_direct(page, number * 16384);
    ///     assert_eq!(written?, 16384);
    ///     page = back;
    /// }
    /// table.sync_data()?;
    /// assert_eq!(fs.statistics().direct.to_new_space_bytes, 65536);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When it was not opened for writing, or there is no space, or the device fails. The error is that of this write: no later
    /// sync returns it. Only a write that goes through memory is written back with all that others have written to the file, and has
    /// their errors, too: then a sync of another `File` tells of it once more.
    pub fn write_direct(&self, data: AlignedBuffer, offset: u64) -> (AlignedBuffer, Result<usize>) {
        if let Err(error) = self.check_write() {
            return (data, Err(error));
        }
        let DirectDone { buffer, outcome } = self.open.write_direct(DirectAt::Offset(offset), data);
        (buffer, outcome.map(|part| part.len))
    }

    /// Writes `data` behind the end of the file, as [`write_direct`](Self::write_direct) does at an offset. Others may append meanwhile.
    /// Returns where in the file the data begins, in bytes, and how much was written.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::device::AlignedBuffer;
    /// let log = fs.create("/log")?;
    /// let (record, first) = log.append_direct(AlignedBuffer::zeroed(4096));
    /// let (_, second) = log.append_direct(record);
    /// assert_eq!((first?, second?), ((0, 4096), (4096, 4096)));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`write_direct`](Self::write_direct).
    pub fn append_direct(&self, data: AlignedBuffer) -> (AlignedBuffer, Result<(u64, usize)>) {
        if let Err(error) = self.check_write() {
            return (data, Err(error));
        }
        let DirectDone { buffer, outcome } = self.open.write_direct(DirectAt::End, data);
        (buffer, outcome.map(|part| (part.offset, part.len)))
    }
}
