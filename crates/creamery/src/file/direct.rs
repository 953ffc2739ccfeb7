//! Direct reads and writes: data goes between a device and the caller's buffer.

use creamery_base::Result;
use creamery_device::AlignedBuffer;

use super::{File, check_position, denied};
use crate::device::direct::{DirectAt, DirectDone, DirectRequest, Refused, Started};

impl File {
    /// Reads at `offset` straight into `buffer`, for programs with a cache of their own: from a device, or from memory if the data is not
    /// written back yet. The call takes the buffer and returns it with the answer: the number of bytes read before the end of the file. As
    /// by any read, data is verified against its checksums and repaired. Offsets and lengths in bytes should be multiples of the sector
    /// size, mostly 4096.
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
    /// When the file was not opened for reading, or the data cannot be read or is damaged. Then the buffer has zeros or its old content.
    pub fn read_direct(&self, buffer: AlignedBuffer, offset: u64) -> (AlignedBuffer, Result<usize>) {
        if let Err(error) = self.check_read_from(offset) {
            return (buffer, Err(error));
        }
        let DirectDone { buffer, outcome } = self.open.read_direct(offset, buffer);
        (buffer, outcome.map(|part| part.len))
    }

    /// Writes `data` at `offset`, straight from the buffer. When the call returns, the data is on a device and in no cache, and every
    /// reader sees it. It is durable, like any write, after [`sync_all`](Self::sync_all). The call takes the buffer, so that nothing
    /// changes it between its checksums and its way to the device, and returns it with the answer: the number of bytes written, less than
    /// all only when space runs out on the way. Two kinds of writes go through memory, take longer, and are compressed like any write; no
    /// other data is:
    /// - parts that are not multiples of the sector size, mostly 4096 bytes;
    /// - writes over compressed data or over a small file that is stored in the tree itself.
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
    /// When the file was not opened for writing, or there is no space, or the device fails. The error belongs to this write: no later
    /// sync returns it. A write that goes through memory is written back together with all other writes to the file, and also returns
    /// their errors; then a sync of another `File` reports the error once more.
    pub fn write_direct(&self, data: AlignedBuffer, offset: u64) -> (AlignedBuffer, Result<usize>) {
        if let Err(error) = self.check_write() {
            return (data, Err(error));
        }
        let DirectDone { buffer, outcome } = self.open.write_direct(DirectAt::Offset(offset), data);
        (buffer, outcome.map(|part| part.len))
    }

    /// Appends `data` to the file, like [`write_direct`](Self::write_direct) does at an offset. Other threads may append meanwhile.
    /// Returns the offset in the file where the data begins, in bytes, and the number of bytes written.
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
    /// Those of [`write_direct`](Self::write_direct).
    pub fn append_direct(&self, data: AlignedBuffer) -> (AlignedBuffer, Result<(u64, usize)>) {
        if let Err(error) = self.check_write() {
            return (data, Err(error));
        }
        let DirectDone { buffer, outcome } = self.open.write_direct(DirectAt::End, data);
        (buffer, outcome.map(|part| (part.offset, part.len)))
    }

    /// Starts a direct read or write and returns while it is in flight. Wait for the answer with [`Started::wait`], or await it. So one
    /// thread can have many requests at the device at once. The call itself may take as long as any operation: it looks up where the data
    /// lies, and waits if more than [`Tuning::direct_bytes`](crate::env::Tuning::direct_bytes) would be in flight.
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

    /// Starts a direct read or write like [`start`](Self::start), and calls `completion` once with the answer, whether the request succeeds
    /// or fails. The call happens on any thread, also on this one before `submit` returns, and on a thread in the midst of an operation. So
    /// `completion` must be short, must not wait, and must not call the filesystem. It must not own the filesystem or a file of it, which
    /// would stay open until the answer comes. A panic in it ends all writing to the filesystem.
    ///
    /// The device's own thread ends a request that waits for nothing. Background threads complete the others. A filesystem that was opened
    /// for reading has no background threads unless [`Tuning::background_threads`](crate::env::Tuning::background_threads) sets a number.
    /// There the answer comes when a thread waits for a lock that the request holds or for an answer of this file ([`Started::wait`]), or
    /// closes the filesystem.
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

    /// Starts a direct read or write like [`submit`](Self::submit), for a thread that must not wait because it has other requests to serve.
    /// The request begins at once, or comes back with `completion` and without effect. The call does not wait for locks that are held for
    /// long, for a device, for space or for a commit, and does not read tree blocks that are not in memory.
    ///
    /// A write begins if it goes over one extent of a file that is overwritten in place (`docs/use/nocow.md`), or into preallocated space
    /// of a file without checksums, and that extent is not shared. A read begins if its location and checksums are in memory. A thread that
    /// may wait passes a returned request to [`submit`](Self::submit), which carries it out or returns the true error; after that more is
    /// in memory.
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
    /// The request and its completion, with the reason why it would wait. Any other error is in the answer, like that of
    /// [`submit`](Self::submit).
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

    /// Fails unless the file was opened for the request.
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
