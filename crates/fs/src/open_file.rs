//! Open files: an open file reads and writes the data of its inode, and keeps that alive.

mod nowait;
#[cfg(feature = "faults")]
mod traces;

use std::sync::Arc;

use creamery_base::{ErrorKind, InodeId, Result, Wait};
use creamery_device::{AlignedBuffer, SharedBytes};
use creamery_txn::DelallocReservation;

use crate::counters::Direct;
use crate::data::{self, reserve};
use crate::delalloc::{ErrSeq, WriteErrors};
use crate::direct::{
    self, Answer, AttemptFailure, Buffered, DirectAt, DirectCompletion, DirectDone, DirectPart,
    DirectRequest, DirectRoute, DirectWaiter, Started,
};
use crate::fault::Fault;
use crate::file;
use crate::fsync::fsync;
use crate::inode::FILE_SIZE_MAX;
use crate::inode::attributes::Attributes;
use crate::inode::lock::ExclusiveInode;
use crate::inode::permission::{check_appends, check_overwrites};
use crate::inode::{FileInode, Inode, InodeItem, Inodes};
use crate::ops::{self, WritingUser};
use crate::seek::{self, SeekCursor, SeekTarget};
use crate::verity::{self, VerityInfo};

/// The access for which a file is opened.
///
/// ```
/// assert_ne!(creamery_fs::Access::Append, creamery_fs::Access::Write);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read only.
    Read,
    /// Append, and maybe read.
    Append,
    /// Write anywhere, and maybe read.
    Write,
}

/// An open file. Its inode lives until the last one is closed, even without a name.
///
/// ```
/// fn inode_number(file: &creamery_fs::OpenFile) -> u64 {
///     file.id().ino.get()
/// }
/// ```
pub struct OpenFile {
    inodes: Arc<Inodes>,
    inode: Arc<Inode>,
    /// The writeback errors that this opener has seen.
    errors_seen: ErrSeq,
    /// The memory of the last search for data or a hole.
    seek_cursor: SeekCursor,
}

impl OpenFile {
    /// Opens an inode that was just made: no thread can have deleted it.
    pub(crate) fn new(inodes: Arc<Inodes>, inode: Arc<Inode>) -> Self {
        let behind_all = inode.context().has(Fault::OpenedBehindErrors);
        let place = |errors: &WriteErrors| if behind_all { errors.behind_all() } else { errors.opened() };
        let errors_seen = inode.as_file().map_or_else(ErrSeq::default, |file| place(file.write_errors()));
        Self { inodes, inode, errors_seen, seek_cursor: SeekCursor::default() }
    }

    /// Opens an inode for `access`. Errors: it was deleted meanwhile; it is marked immutable, or append-only and is to be written
    /// elsewhere; it has fs-verity and is to be written; its subvolume is read-only.
    pub(crate) fn open(inodes: Arc<Inodes>, id: InodeId, access: Access) -> Result<Self> {
        let inode = inodes.get(id, Wait::Yes)?;
        if access != Access::Read {
            inode.check_writable()?;
        }
        let item = inode.item(Wait::Yes)?;
        match access {
            Access::Read => {}
            Access::Append => check_appends(&item, item.size)?,
            Access::Write => check_overwrites(&item)?,
        }
        Ok(Self::new(inodes, inode))
    }

    /// The inode.
    #[must_use]
    pub fn id(&self) -> InodeId {
        self.inode.id
    }

    /// The inode's object.
    #[must_use]
    pub const fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// The attributes of the inode, also when it has no name any more.
    pub fn stat(&self, wait: Wait) -> Result<Attributes> {
        self.inode.stat(wait)
    }

    /// Reads from `offset` into `out`; returns the number of bytes before the end of the file.
    pub fn read_at(&self, offset: u64, out: &mut [u8], wait: Wait) -> Result<usize> {
        self.read_and(|_, _| (), offset, out, wait)
    }

    /// Reads from `offset` into `buffer` itself, which comes back with the answer. Data comes from a device; only delayed data comes
    /// from memory. A read is short only where the file ends.
    ///
    /// ```no_run
    /// use creamery_device::AlignedBuffer;
    /// use creamery_fs::{DirectDone, OpenFile};
    /// fn first_page(file: &OpenFile) -> creamery_base::Result<AlignedBuffer> {
    ///     let DirectDone { buffer, outcome } = file.read_direct(0, AlignedBuffer::zeroed(4096));
    ///     outcome.map(|_| buffer)
    /// }
    /// ```
    ///
    /// # Errors
    /// The `outcome` of the answer has them: the inode is no file; device errors; damage that no copy repairs. The buffer has no bytes of
    /// the file then.
    #[must_use = "it has what was read"]
    pub fn read_direct(&self, offset: u64, mut buffer: AlignedBuffer) -> DirectDone {
        let outcome = self.read_direct_into(offset, &mut buffer);
        if outcome.is_err() {
            // It may have bytes that no checksum covers.
            buffer.fill(0);
        }
        DirectDone { buffer, outcome }
    }

    /// Reads directly, like [`read_direct`](Self::read_direct), into borrowed bytes. After an error their content has no meaning.
    /// The device reads into them without a copy where they begin at a page.
    ///
    /// # Errors
    /// Those of [`read_direct`](Self::read_direct).
    pub fn read_direct_into(&self, offset: u64, out: &mut [u8]) -> Result<DirectPart> {
        let counters = &self.inode.context().counters().direct;
        let wanted = (offset, out.len());
        let count = |file: &FileInode<'_>, item: &InodeItem| {
            Direct::count(&counters.reads);
            if let Some(why) = Buffered::of_read(file, item, wanted) {
                why.count(counters);
            }
        };
        let len = self.read_and(count, offset, out, Wait::Yes)?;
        Direct::add(&counters.read_bytes, len as u64);
        Ok(DirectPart { offset, len })
    }

    /// Reads, and passes the file in its present state to `note`.
    fn read_and(
        &self,
        note: impl FnOnce(&FileInode<'_>, &InodeItem),
        offset: u64,
        out: &mut [u8],
        wait: Wait,
    ) -> Result<usize> {
        let inode = &self.inode;
        inode.engine().check_open()?;
        let inode = &inode.regular()?;
        let range = inode.lock_range_shared(offset, offset.saturating_add(out.len() as u64), wait)?;
        // Truncation locks the part that it cuts: so the present size holds for this range.
        let item = inode.item(wait)?;
        note(inode, &item);
        let read = file::read(inode, &item, offset, out, wait)?;
        drop(range);
        Ok(read)
    }

    /// Notes that the file was read, as [`Filesystem::accessed`](crate::Filesystem::accessed) does.
    pub fn accessed(&self) {
        self.inode.accessed();
    }

    /// Writes `data` at `offset`. Returns the number of bytes written: less than all only when space ran out on the way. All
    /// readers of the file see the data then. It is in memory, and on a device after writeback.
    /// Errors: no space; too large; the inode is marked immutable or append-only, or has fs-verity.
    pub fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_if(offset, data, |item, _| check_overwrites(item))
    }

    /// Writes like [`write_at`](Self::write_at), for a caller that appends and takes `offset` for the end: this is allowed on an
    /// append-only file. Errors: those of `write_at`; the file is marked append-only and ends elsewhere.
    pub fn append_at(&self, offset: u64, data: &[u8]) -> Result<usize> {
        self.write_if(offset, data, check_appends)
    }

    /// Writes `data` at the end, wherever that is by then: other writers may append meanwhile. Returns its position, and the number
    /// of bytes written: less than all only when space ran out on the way.
    /// Errors: no space; too large; the inode is marked immutable, or has fs-verity.
    pub fn append(&self, data: &[u8]) -> Result<(u64, usize)> {
        if self.inode.context().has(Fault::EndLookedUpBefore) {
            let end = self.inode.item(Wait::Yes)?.size;
            return Ok((end, self.write_at(end, data)?));
        }
        let file = &self.inode.regular()?;
        let room = room_for(file, data)?;
        let change = file.begin_change()?;
        let mut locked = file.lock_exclusive()?;
        let end = locked.size;
        check_appends(&locked, end)?;
        let written = self.write_alone(file, &mut locked, end, data, room)?;
        drop((locked, change));
        self.written(file)?;
        Ok((end, written))
    }

    /// Writes whole sectors out of `data` itself, which comes back with the answer. The data is then on a device, and all readers
    /// of the file see it. It is as durable as any write: [`sync`](Self::sync) makes it so. Two kinds of writes go through memory,
    /// and are written back before the answer: those that do not begin and end with sectors, and those over data that is compressed
    /// or inline.
    ///
    /// ```no_run
    /// use creamery_device::AlignedBuffer;
    /// use creamery_fs::{DirectAt, DirectDone, OpenFile};
    /// fn append(file: &OpenFile, page: &[u8; 4096]) -> creamery_base::Result<u64> {
    ///     let DirectDone { outcome, .. } = file.write_direct(DirectAt::End, AlignedBuffer::from_slice(page));
    ///     Ok(outcome?.offset)
    /// }
    /// ```
    ///
    /// # Errors
    /// The `outcome` of the answer has them. They are those of this write, and no other opener gets them. Only a write through memory
    /// has the errors of writing the file back, and so of other writers' data, too: every opener gets those, this one with the answer.
    /// No space for any of it; too large; the inode is no file, is marked immutable or append-only, or has fs-verity; the subvolume or
    /// the filesystem is read-only; device errors; damage.
    #[must_use = "it tells whether it was written"]
    pub fn write_direct(&self, at: DirectAt, data: AlignedBuffer) -> DirectDone {
        let data = Arc::new(data);
        let outcome = self.write_direct_shared(at, &SharedBytes::from(Arc::clone(&data)));
        // A device that still holds it, against the rules, makes this a copy.
        DirectDone { buffer: Arc::unwrap_or_clone(data), outcome }
    }

    /// Submits a [`read_direct`](Self::read_direct) or [`write_direct`](Self::write_direct) for a caller that does not wait: `done`
    /// is called with the answer. The call itself may take as long as any operation. It waits for locks, and for other requests
    /// where too much is in flight ([`FsOptions::direct_bytes`](crate::FsOptions::direct_bytes)), and it carries out a write that
    /// goes through memory.
    ///
    /// A request ends on a device's thread, where that waits for nothing, or in the background. Without background threads it ends
    /// in one of these calls:
    /// - a wait or a poll of a [`DirectWaiter`];
    /// - [`sync`](Self::sync), if it is a write;
    /// - [`Filesystem::shut_down`](crate::Filesystem::shut_down);
    /// - a call that waits for something that the request has locked.
    ///
    /// If the last user of the filesystem goes without a shutdown, the answer is an error.
    ///
    /// ```no_run
    /// use std::sync::mpsc::channel;
    /// use creamery_device::AlignedBuffer;
    /// use creamery_fs::{DirectAt, DirectRequest, OpenFile};
    /// fn write_two(file: &OpenFile) -> creamery_base::Result<()> {
    ///     let (send, receive) = channel();
    ///     for offset in [0, 4096] {
    ///         let (at, send) = (DirectAt::Offset(offset), send.clone());
    ///         let request = DirectRequest::Write { at, data: AlignedBuffer::zeroed(4096) };
    ///         file.submit_direct(request, Box::new(move |done| drop(send.send(done))));
    ///     }
    ///     drop(send);
    ///     receive.iter().try_for_each(|done| done.outcome.map(drop))
    /// }
    /// ```
    pub fn submit_direct(&self, request: DirectRequest, done: DirectCompletion) {
        let context = self.inode.context();
        Direct::count(&context.counters().direct.submitted);
        match request {
            DirectRequest::Read { offset, buffer } => {
                let bytes = context.in_flight().make_room(buffer.len() as u64);
                let answer = Answer::of_read(buffer, done, bytes);
                match self.inode.regular() {
                    Ok(file) => {
                        let ended = direct::submit_read((&self.inode, &file), offset, Wait::Yes, answer);
                        if let Some((answer, outcome)) = ended {
                            answer.give(outcome.map_err(AttemptFailure::into_error));
                        }
                    }
                    Err(error) => answer.give(Err(error)),
                }
            }
            DirectRequest::Write { at, data } => self.submit_write(at, data, None, done),
            DirectRequest::WriteDurably { at, data } => {
                self.submit_write(at, data, Some(&self.inodes), done);
            }
        }
    }

    /// Submits a write, which `durable`, if given, makes durable before it is answered.
    fn submit_write(
        &self,
        at: DirectAt,
        data: AlignedBuffer,
        durable: Option<&Arc<Inodes>>,
        done: DirectCompletion,
    ) {
        let data = Arc::new(data);
        let bytes = self.inode.context().in_flight().make_room(data.len() as u64);
        // Before any possible panic: the answer is owed from now on.
        let answer = Answer::of_write(Arc::clone(&data), done, bytes).when_durable(durable);
        let started = self.begin_direct(at, &SharedBytes::from(Arc::clone(&data)));
        drop(data);
        match started {
            Ok(Started::Flight(flight, batch)) => flight.submit(batch, Wait::Yes, answer),
            Ok(Started::Done(part)) => {
                let synced =
                    durable.filter(|_| part.len > 0).map_or(Ok(()), |inodes| fsync(inodes, &self.inode));
                answer.give(synced.map(|()| part));
            }
            Err(error) => answer.give(Err(error)),
        }
    }

    /// Makes a waiter for answers to requests that were submitted to this file; it can also poll for them.
    pub fn direct_waiter(&self) -> DirectWaiter {
        DirectWaiter::new(&self.inode)
    }

    /// Writes directly, like [`write_direct`](Self::write_direct), from shared bytes that stay unchanged until this returns. The
    /// device gets them without a copy where they begin at a page.
    ///
    /// # Errors
    /// Those of [`write_direct`](Self::write_direct).
    pub fn write_direct_shared(&self, at: DirectAt, data: &SharedBytes) -> Result<DirectPart> {
        match self.begin_direct(at, data)? {
            Started::Done(part) => Ok(part),
            Started::Flight(flight, batch) => flight.carry_out(batch),
        }
    }

    /// Begins a direct write. A write that cannot be direct goes through memory, and has ended then.
    fn begin_direct(&self, at: DirectAt, data: &SharedBytes) -> Result<Started> {
        let file = &self.inode.regular()?;
        let counters = &file.context().counters().direct;
        Direct::count(&counters.writes);
        match begin_within_limits((&self.inode, file), at, data)? {
            DirectRoute::Direct(started) => Ok(started),
            DirectRoute::Buffered(why) => {
                why.count(counters);
                self.write_through_memory(file, at, data).map(Started::Done)
            }
        }
    }

    /// Writes through memory, and waits until the data is on a device.
    fn write_through_memory(&self, file: &FileInode<'_>, at: DirectAt, data: &[u8]) -> Result<DirectPart> {
        let errors = file.write_errors().so_far();
        let (offset, len) = match at {
            DirectAt::Offset(offset) => (offset, self.write_at(offset, data)?),
            DirectAt::End => self.append(data)?,
        };
        // Another thread may have had it in flight before.
        let _ = file.flush();
        file.write_errors().since(errors).inspect_err(|_| {
            // The caller has the error by that, so this opener's next sync does not report it again.
            let _ = file.write_errors().report(&self.errors_seen);
        })?;
        Ok(DirectPart { offset, len })
    }

    /// Writes the file back before a write returns, if the filesystem is closing: the close may have missed its delayed data.
    fn written(&self, file: &FileInode<'_>) -> Result<()> {
        if !file.context().writeback().is_closing() {
            return Ok(());
        }
        file.flush().and(file.write_errors().report(&self.errors_seen))
    }

    /// Writes if `check` passes: shared with others where the write does not grow the file.
    fn write_if(
        &self,
        offset: u64,
        data: &[u8],
        check: impl Fn(&InodeItem, u64) -> Result<()>,
    ) -> Result<usize> {
        let file = &self.inode.regular()?;
        let written = self.write_where_possible(file, offset, data, check)?;
        self.written(file)?;
        Ok(written)
    }

    fn write_where_possible(
        &self,
        file: &FileInode<'_>,
        offset: u64,
        data: &[u8],
        check: impl Fn(&InodeItem, u64) -> Result<()>,
    ) -> Result<usize> {
        let end = offset.saturating_add(data.len() as u64);
        let mut room = room_for(file, data)?;
        let _change = file.begin_change()?;
        let is_delayed = room.is_some();
        let may_share = |size: u64| end <= size && (is_delayed || data::is_overwrite(file, size, end));
        if may_share(file.size()) && (is_delayed || !file.context().writeback().is_on()) {
            let _shared = file.lock_shared(Wait::Yes)?;
            let mut item = file.item(Wait::Yes)?;
            if may_share(item.size) {
                check(&item, offset)?;
                return self.write_locked(file, &mut item, offset, data, room.take());
            }
        }
        let mut locked = file.lock_exclusive()?;
        check(&locked, offset)?;
        self.write_alone(file, &mut locked, offset, data, room)
    }

    /// Writes to an inode that is locked alone.
    fn write_alone(
        &self,
        file: &FileInode<'_>,
        locked: &mut ExclusiveInode<'_>,
        offset: u64,
        data: &[u8],
        room: Option<DelallocReservation>,
    ) -> Result<usize> {
        if room.is_none() && !data.is_empty() {
            file.settle(locked)?;
        }
        self.write_locked(file, locked.item_mut(), offset, data, room)
    }

    /// Writes to an inode that is locked: alone, or shared where that will do. Into memory, where there is `room` for that.
    fn write_locked(
        &self,
        inode: &FileInode<'_>,
        item: &mut InodeItem,
        offset: u64,
        data: &[u8],
        room: Option<DelallocReservation>,
    ) -> Result<usize> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_SIZE_MAX);
        let end = end.ok_or(ErrorKind::FileTooLarge)?;
        if data.is_empty() {
            return Ok(0);
        }
        // Growing over a gap changes the bytes between the old end and the new data.
        let range = inode.lock_range(offset.min(item.size), end, Wait::Yes)?;
        let written = match room {
            Some(room) => file::write((inode, &self.inode), item, offset, data, room).map(|()| data.len()),
            None => data::write(inode, item, offset, data),
        };
        drop(range);
        written
    }

    /// The first byte at or after `offset` that is data; [`ErrorKind::NotFound`] when only a hole follows.
    pub fn seek_data(&self, offset: u64) -> Result<u64> {
        self.seek(offset, SeekTarget::Data, &|| false)
    }

    /// The first byte at or after `offset` that lies in a hole; the end of the file is one.
    /// [`ErrorKind::NotFound`] when the offset is not in the file.
    pub fn seek_hole(&self, offset: u64) -> Result<u64> {
        self.seek(offset, SeekTarget::Hole, &|| false)
    }

    /// Searches for `want`, for a caller that may give up: `is_interrupted` is called again and again while a long search runs.
    /// Errors: [`ErrorKind::NotFound`], like [`seek_data`](Self::seek_data) and [`seek_hole`](Self::seek_hole);
    /// [`ErrorKind::Interrupted`]; device errors; damage.
    pub fn seek(&self, offset: u64, want: SeekTarget, is_interrupted: &dyn Fn() -> bool) -> Result<u64> {
        let inode = &self.inode;
        inode.engine().check_open()?;
        let inode = &inode.regular()?;
        let range = inode.lock_range_shared(offset, u64::MAX, Wait::Yes)?;
        let cursor = Some(&self.seek_cursor).filter(|_| inode.context().policy().seek_cursors);
        let found = seek::seek(inode, (offset, want), cursor, is_interrupted)?;
        drop(range);
        found.ok_or_else(|| ErrorKind::NotFound.into())
    }

    #[cfg(test)]
    pub(crate) const fn seek_cursor(&self) -> &SeekCursor {
        &self.seek_cursor
    }

    /// The digest of a file with fs-verity; `None` for any other. It takes as long whatever the file's size: reading verifies the
    /// data.
    /// Errors: it is no file; items are missing or make no sense; device errors; damage.
    pub fn verity(&self) -> Result<Option<VerityInfo>> {
        let inode = &self.inode;
        inode.engine().check_open()?;
        let inode = &inode.regular()?;
        let item = inode.item(Wait::Yes)?;
        verity::info(inode.context().kept_verity(), inode.tree(), inode.id, &item, Wait::Yes)
    }

    /// Clears set-user-id and set-group-id because of a write to the file. `writer` is called with its group, if it has any of
    /// these bits. Returns whether there was a bit to clear: most of the time there is not, and nothing is changed.
    pub fn kill_privileges(&self, writer: impl FnOnce(u32) -> WritingUser) -> Result<bool> {
        ops::kill_privileges(&self.inode, writer)
    }

    /// Makes all earlier changes of the file durable, as fsync(2): by the log where the log can express them, else by a commit.
    /// Direct writes to the file that began before end first. fdatasync(2) is the same: the log has one item for the attributes,
    /// with the size among them.
    /// Errors: those of the devices or of the commit; data could not be written back, while this was open, or before and not
    /// reported to any opener yet. Each opener gets such an error once.
    pub fn sync(&self) -> Result<()> {
        let inode = &self.inode;
        inode.engine().check_open()?;
        if !inode.context().has(Fault::SyncedBesideDirect) {
            inode.context().in_flight().wait_for_those_begun(|id| id == inode.id);
        }
        if !inode.context().has(Fault::SyncedWithoutData) {
            // Failures are reported below.
            let _ = inode.flush();
        }
        let synced = fsync(&self.inodes, inode);
        let written = inode.as_file().map_or(Ok(()), |file| file.write_errors().report(&self.errors_seen));
        written.and(synced)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.seek_cursor.tell(&self.inode.context().counters().seeks);
        if self.inode.as_file().is_some_and(|file| file.take_flush_on_close()) {
            self.inode.start_writeback();
        }
    }
}

/// Begins to write directly, and tries once more where a limit of quota groups refused all of it: data that delayed writes replace
/// may be all that exceeds the limit.
fn begin_within_limits(
    (inode, file): (&Arc<Inode>, &FileInode<'_>),
    at: DirectAt,
    data: &SharedBytes,
) -> Result<DirectRoute> {
    match direct::begin((inode, file), at, data) {
        Err(error) if error.kind() == ErrorKind::QuotaExceeded => {
            // Open files report the losses of those writes.
            let _ = file.context().writeback().flush_subvolume(file.id.subvolume);
            direct::begin((inode, file), at, data)
        }
        way => way,
    }
}

/// Keeps room for delaying a write of `data`; `None` when it has to be written at once: nothing may be delayed, or there is no
/// room. It may write back other files' data, so nothing is locked yet.
fn room_for(file: &FileInode<'_>, data: &[u8]) -> Result<Option<DelallocReservation>> {
    file.engine().check_open()?;
    file.check_writable()?;
    file.engine().check_writable()?;
    if data.is_empty() {
        Ok(None)
    } else {
        let (writeback, subvolume) = (file.context().writeback(), file.id.subvolume);
        let reserve = || reserve::keep(file.engine(), subvolume, data.len() as u64);
        match writeback.make_room(data.len(), reserve) {
            // Writeback and a commit show how much of the kept room is needed, and how much overwritten data frees.
            Err(error) if error.kind() == ErrorKind::QuotaExceeded => {
                // Open files report the losses of those writes.
                let _ = writeback.flush_subvolume(subvolume);
                file.engine().count_what_is_freed()?;
                match writeback.make_room(data.len(), reserve) {
                    // It may take no new space at all, or less.
                    Err(error) if error.kind() == ErrorKind::QuotaExceeded => Ok(None),
                    room => room,
                }
            }
            room => room,
        }
    }
}
