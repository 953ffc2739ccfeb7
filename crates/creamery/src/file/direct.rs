//! Direct reads and writes: data goes between a device and the caller's buffer.

use creamery_base::Result;
use creamery_device::AlignedBuffer;

use super::{File, check_position, denied};
use crate::device::direct::{DirectAt, DirectDone, DirectRequest, Refused, Started};

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
        if let Err(error) = self.check_read_from(offset) {
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

    /// Starts a direct read or write, and returns while it is in flight: what comes of it is waited for with [`Started::wait`], or
    /// awaited. Of a program with one thread many requests are with the device at once. The call itself may take as long as any operation: it looks where the data
    /// lies, and waits where more than [`Tuning::direct_bytes`](crate::env::Tuning::direct_bytes) would be in flight.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::device::AlignedBuffer;
    /// use creamery::device::direct::{DirectAt, DirectRequest};
    /// let table = fs.create("/table")?;
    /// table.set_len(8 << 16)?;
    /// let pages = (0..8_u8).map(|number| {
    ///     let at = DirectAt::Offset(u64::from(number) << 16);
    ///     table.start(DirectRequest::Write { at, data: AlignedBuffer::from_slice(&[number; 1 << 16]) })
    /// });
    /// // All are in flight before the first is waited for.
    /// let pages: Vec<_> = pages.collect();
    /// for page in pages {
    ///     assert_eq!(page.wait().outcome?.len, 1 << 16);
    /// }
    /// table.sync_data()?;
    /// assert_eq!(fs.read("/table")?[7 << 16], 7);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// In the answer: those of [`read_direct`](Self::read_direct) and [`write_direct`](Self::write_direct).
    pub fn start(&self, request: DirectRequest) -> Started {
        let (started, completion) = Started::new(self.open.direct_waiter());
        self.submit(request, completion);
        started
    }

    /// Starts a direct read or write as [`start`](Self::start) does, and has `completion` called with the answer, once, whatever comes of it. That happens on any thread, also on
    /// this one before the call returns, and on one that is in the midst of an operation. So it must be short, must wait for nothing, and
    /// must ask the filesystem for nothing, and it has neither the filesystem nor a file of it: it would keep them open until the answer comes. A panic of it ends
    /// all writing to the filesystem.
    ///
    /// A device ends what waits for nothing, on its own thread. Threads of the background complete what else devices have answered. Where there are none, as in a filesystem that was opened for
    /// reading unless [`Tuning::background_threads`](crate::env::Tuning::background_threads) says how many, the answer comes when somebody waits for what the request has locked, or for an answer of this file ([`Started::wait`]), or closes the filesystem.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use std::sync::mpsc::channel;
    /// use creamery::device::AlignedBuffer;
    /// use creamery::device::direct::DirectRequest;
    /// fs.write("/table", vec![7; 1 << 20])?;
    /// let (table, (send, answers)) = (fs.open("/table")?, channel());
    /// for number in 0..16_u64 {
    ///     let (offset, send) = (number << 16, send.clone());
    ///     let request = DirectRequest::Read { offset, buffer: AlignedBuffer::zeroed(1 << 16) };
    ///     table.submit(request, move |done| drop(send.send((number, done))));
    /// }
    /// drop(send);
    /// for (number, done) in answers {
    ///     println!("page {number}: {} bytes", done.outcome?.len);
    ///     assert!(done.buffer.iter().all(|byte| *byte == 7));
    /// }
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// In the answer: those of [`read_direct`](Self::read_direct) and [`write_direct`](Self::write_direct).
    pub fn submit(&self, request: DirectRequest, completion: impl FnOnce(DirectDone) + Send + 'static) {
        match self.check_direct(&request) {
            Ok(()) => self.open.submit_direct(request, Box::new(completion)),
            Err(error) => completion(request.refuse(error)),
        }
    }

    /// As [`submit`](Self::submit), for a thread that must not wait, such as one that has other requests to serve: the request
    /// begins at once, or it comes back with `completion`, and nothing has happened. No lock that others have for long is waited for, and neither a
    /// device nor space nor a commit, and no tree block is read that is not in memory.
    ///
    /// A write begins where it goes over one extent of a file that is overwritten in place (`docs/use/nocow.md`), or into space that was set
    /// aside in a file without checksums, if nobody shares that extent. A read begins whose place and checksums are in memory. A thread that may
    /// wait passes what comes back to [`submit`](Self::submit), which carries it out or has the true error; after that more is in memory.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().nodatacow().open(&image)?;
    /// use std::sync::mpsc::channel;
    /// use creamery::device::AlignedBuffer;
    /// use creamery::device::direct::{DirectAt, DirectRequest};
    /// let table = fs.create("/table")?;
    /// table.write_all_at(&vec![0; 1 << 20], 0)?;
    /// table.sync_data()?;
    /// let (send, answers) = channel();
    /// let page = DirectRequest::Write { at: DirectAt::Offset(4096), data: AlignedBuffer::from_slice(&[7; 4096]) };
    /// if let Err(refused) = table.try_submit(page, move |done| drop(send.send(done))) {
    ///     println!("it would wait: {}", refused.why.name());
    ///     table.submit(refused.request, refused.done);
    /// }
    /// assert_eq!(answers.recv().expect("an answer").outcome?.len, 4096);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// The request and its completion, with why it would have to wait. All else that is wrong with it is in the answer, as of [`submit`](Self::submit).
    pub fn try_submit(
        &self,
        request: DirectRequest,
        completion: impl FnOnce(DirectDone) + Send + 'static,
    ) -> std::result::Result<(), Box<Refused>> {
        match self.check_direct(&request) {
            Ok(()) => self.open.try_submit_direct(request, Box::new(completion)),
            Err(error) => {
                completion(request.refuse(error));
                Ok(())
            }
        }
    }

    /// Whether the file was opened for that.
    fn check_direct(&self, request: &DirectRequest) -> Result<()> {
        match request {
            DirectRequest::Read { offset, .. } => self.check_read_from(*offset),
            _ => self.check_write(),
        }
    }

    fn check_read_from(&self, offset: u64) -> Result<()> {
        if !self.rights.read {
            return Err(denied("the file was not opened for reading"));
        }
        check_position(offset)
    }
}
