//! The open filesystem: the operations of its parts, under one roof. `subvolumes` has the operations on subvolumes.

mod quotas;
mod subvolumes;
mod xattrs;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use creamery_base::lock::{RankedGuard, RankedMutex, rank};
use creamery_base::{Error, ErrorKind, InodeId, Result, TreeId, Wait};
use creamery_txn::{CommitParticipant, Engine, Trimmed};

use crate::access_time::{self, Atime, AtimeOptions};
use crate::background;
use crate::cleaner::{Cleaner, Cleaning};
use crate::compression::Compress;
use crate::context::Context;
use crate::data::{self, FileContent, PackedAhead};
use crate::delalloc::ErrSeq;
use crate::delalloc::writeback::FlushOnCommit;
use crate::fault::Fault;
use crate::inode::attributes::Attributes;
use crate::inode::{FileType, Inode, InodeToChange, Inodes};
use crate::keys;
use crate::memory::MemoryReport;
use crate::names::{DirEntry, Names, NewInode, RenameMode};
use crate::open_file::{Access, OpenFile};
use crate::ops::{self, SetAttributes};
use crate::options::FsOptions;
use crate::overwrite_times;
use crate::statfs::FsStatistics;
use crate::statistics::Statistics;
use crate::subvolume::{SubvolumeRef, Subvolumes};
use crate::tree_log::{self, Replayed};

/// An open filesystem. See the crate's head for its rules.
///
/// ```no_run
/// # fn example(engine: std::sync::Arc<creamery_txn::Engine>) -> creamery_base::Result<()> {
/// use creamery_base::Wait;
/// use creamery_fs::{Filesystem, FsOptions, NewInode};
/// let fs = Filesystem::open(engine, FsOptions::default())?;
/// let root = fs.root(fs.default_subvolume())?;
/// fs.create(root, b"hello", &NewInode::file(0o644))?;
/// assert_eq!(fs.stat(fs.lookup(root, b"hello", Wait::Yes)?, Wait::Yes)?.size, 0);
/// fs.sync()
/// # }
/// ```
pub struct Filesystem {
    engine: Arc<Engine>,
    inodes: Arc<Inodes>,
    names: Names,
    cleaner: Arc<Cleaner>,
    /// The default caller of [`Filesystem::sync`].
    caller: SyncCaller,
    resizing: RankedMutex<(), { rank::RESIZE }>,
    counting: RankedMutex<(), { rank::DEVICE_ERRORS }>,
    replayed: Option<Replayed>,
}

/// A caller of [`Filesystem::sync_as`]: it gets each loss of written data reported once, whatever other callers have got.
///
/// ```no_run
/// # fn example(fs: &creamery_fs::Filesystem) -> creamery_base::Result<()> {
/// use creamery_fs::SyncCaller;
/// let (alice, root) = (SyncCaller::default(), SyncCaller::default());
/// let _ = fs.sync_as(&alice);
/// fs.sync_as(&root) // fails if Alice's failed because data was lost
/// # }
/// ```
#[derive(Default)]
pub struct SyncCaller(ErrSeq);

/// Opening and closing.
impl Filesystem {
    /// Opens the files of `engine`. If it may write, inodes that were unlinked but not deleted at the last crash or shutdown are
    /// for the cleaner ([`Filesystem::clean_step`]), subvolume by subvolume as they are first used. Before that the log of synced
    /// changes since the last commit is replayed and committed. The devices get none of that before the first change
    /// ([`creamery_volume::Volume::is_untouched`]).
    pub fn open(engine: Arc<Engine>, options: FsOptions) -> Result<Arc<Self>> {
        let replayed = {
            let _hold = engine.volume().hold_writes();
            let replayed = tree_log::replay(&engine)?;
            engine.drop_space_caches()?;
            engine.commit()?;
            replayed
        };
        let context = Context::new(Arc::clone(&engine), &options);
        let subvolumes = Subvolumes::new(Arc::clone(&context))?;
        let inodes = Arc::new(Inodes::new(subvolumes, options.inodes_cached));
        engine.register(Arc::clone(context.delayed()) as Arc<dyn CommitParticipant>);
        // After the delayed items, which a snapshot has.
        engine.register(Arc::clone(inodes.subvolumes().at_close()) as Arc<dyn CommitParticipant>);
        let cleaner = Arc::new(Cleaner::new(Arc::clone(&inodes), options.cleaning_steps));
        engine.register_reclaimer(&cleaner);
        engine.register_reclaimer(context.writeback());
        engine.register_reclaimer(context.in_flight());
        if options.flush_on_commit {
            engine.register(Arc::new(FlushOnCommit(Arc::clone(context.writeback()))));
        }
        background::register(&engine, &cleaner, &context);
        context.access_times().set_options(options.atime);
        access_time::register(&engine, context.access_times());
        overwrite_times::register(&engine, context.overwrite_times());
        if engine.read_only().is_none() {
            inodes.subvolumes().find_dead()?;
            inodes.subvolumes().get(inodes.subvolumes().default(), Wait::Yes)?;
        }
        // A reader asks for the subvolume that it wants; the state of another one does not matter.
        let names = Names::new(Arc::clone(&inodes), Arc::clone(&cleaner));
        let (caller, resizing, counting) =
            (SyncCaller::default(), RankedMutex::default(), RankedMutex::default());
        Ok(Arc::new(Self { engine, inodes, names, cleaner, caller, resizing, counting, replayed }))
    }

    /// The logs that were replayed when the filesystem was opened, if there were any: changes synced after the last commit, which
    /// are now part of the next one.
    #[must_use]
    pub const fn replayed(&self) -> Option<Replayed> {
        self.replayed
    }

    /// The engine below.
    #[must_use]
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Makes all operations that ended before durable, by a whole commit. Direct writes that began before end first. Errors: those of the
    /// commit; data that was written before could not be written back, reported once. Where several callers need that report, each one
    /// calls [`Filesystem::sync_as`].
    pub fn sync(&self) -> Result<()> {
        self.sync_as(&self.caller)
    }

    /// Does the work of [`Filesystem::sync`], for `caller`.
    /// Errors: those of `sync`; each loss is reported to `caller` once.
    pub fn sync_as(&self, caller: &SyncCaller) -> Result<()> {
        self.make_durable().and_then(|()| self.report_losses(caller))
    }

    /// Does the work of [`Filesystem::sync`] as part of an operation that reports its own outcome. A loss of data that others wrote
    /// stays to be reported by `sync`.
    /// Errors: those of the commit.
    pub fn make_durable(&self) -> Result<()> {
        self.end_requests();
        self.write_back();
        self.cleaner.help();
        self.write_times();
        self.engine.commit()
    }

    /// Writes back the data that is delayed now. Open files and sync report the errors.
    fn write_back(&self) {
        let _ = self.context().writeback().flush_all();
    }

    /// Waits for the direct writes that began before. Each answer reports its own error.
    fn end_requests(&self) {
        if !self.context().has(Fault::SyncedBesideDirect) {
            self.context().in_flight().wait_for_those_begun(|_| true);
        }
    }

    fn report_losses(&self, caller: &SyncCaller) -> Result<()> {
        self.context().writeback().report_losses(&caller.0)
    }

    /// Brings all changes into the trees of the last commit, for a walk of references there: queued references are in no tree yet,
    /// and delayed data has no extent. A loss of data stays to be reported by sync.
    /// Errors: those of the commit.
    pub(crate) fn commit_before_walk(&self) -> Result<()> {
        if self.engine.read_only().is_some() {
            return Ok(());
        }
        self.write_back();
        self.engine.commit()
    }

    /// A subvolume, which stays undropped as long as this value is kept. Errors: not found; device errors; damage.
    pub(crate) fn subvolume(&self, id: TreeId) -> Result<SubvolumeRef> {
        self.inodes.subvolumes().get(id, Wait::Yes)
    }

    /// Lets one thread at a time make a device longer, and shorter again where that fails.
    pub(crate) fn resize_alone(&self) -> RankedGuard<'_, (), { rank::RESIZE }> {
        self.resizing.lock()
    }

    /// Lets one thread at a time change the error counts of devices: the value written depends on the value read.
    pub(crate) fn count_alone(&self) -> RankedGuard<'_, (), { rank::DEVICE_ERRORS }> {
        self.counting.lock()
    }

    pub(crate) fn context(&self) -> &Context {
        self.inodes.context()
    }

    /// Writes the delayed times. Access times for which there is no room are lost; the commit reports any other error.
    fn write_times(&self) {
        let context = self.inodes.context();
        let _ = context.access_times().write_all(&self.engine);
        // This fails when writing has ended; the commit reports that.
        let _ = context.overwrite_times().write_all();
    }

    /// Does the work of [`Filesystem::sync`], and deletes all inodes that have lost their last user.
    /// Errors: those of `sync`. An inode that cannot be deleted stays an orphan, and is deleted when the filesystem is opened
    /// again.
    pub fn settle(&self) -> Result<()> {
        self.settle_as(&self.caller)
    }

    /// Does the work of [`Filesystem::settle`], for `caller`.
    /// Errors: those of `settle`; each loss is reported to `caller` once.
    pub fn settle_as(&self, caller: &SyncCaller) -> Result<()> {
        self.clean_what_changed();
        self.end_requests();
        self.write_back();
        self.write_times();
        self.engine.commit()?;
        self.report_losses(caller)
    }

    /// Starts the work that opening found, as the first change does: deleting inodes without names, dropping deleted subvolumes,
    /// counting for quotas. For callers that wait for one of these. Does nothing on a read-only filesystem.
    /// Errors: device errors.
    pub fn begin_changes(&self) -> Result<()> {
        if self.engine.read_only().is_none() {
            self.engine.volume().begin_writing()?;
            self.engine.background().wake();
        }
        Ok(())
    }

    /// Cleans, if there are changes. Until then the work that opening found waits for the first change.
    fn clean_what_changed(&self) {
        if self.engine.has_changes() {
            self.clean();
        }
    }

    /// Discards free space in pieces of at least `min` bytes, between two logical addresses. It first deletes inodes that have no
    /// name any more. Errors: those of [`Engine::trim`].
    pub fn trim(&self, range: (u64, u64), min: u64) -> Result<Trimmed> {
        self.clean();
        self.engine.trim(range, min)
    }

    /// Makes everything durable and gives the devices back, whatever references and open files remain: each later operation on
    /// these fails. Direct requests in flight are completed and answered before.
    /// Errors: those of the commit and of the devices; data was lost since the filesystem was opened, even if that was reported
    /// before. The filesystem is closed all the same.
    pub fn shut_down(&self) -> Result<()> {
        self.context().in_flight().close();
        self.clean_what_changed();
        self.context().writeback().close();
        self.write_back();
        self.write_times();
        // Includes losses that were reported before, for this answer is about the content of the devices. A write from now on
        // reports its own outcome.
        let written = self.report_losses(&SyncCaller::default());
        self.engine.shut_down().and(written)
    }

    /// The inodes that have direct requests in flight, each once: their devices have not answered, or no thread has completed them yet.
    /// [`Filesystem::shut_down`] waits for these.
    ///
    /// ```no_run
    /// # fn example(fs: &creamery_fs::Filesystem) {
    /// for id in fs.direct_in_flight() {
    ///     println!("waiting for inode {id}");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn direct_in_flight(&self) -> Vec<InodeId> {
        self.context().in_flight().inodes()
    }

    /// Registers `tell`, which is called with each file of which delayed data was lost. A cache of the file's data, such as the
    /// kernel's, has to read it again. The call comes once the file has its earlier content again, from any thread that writes
    /// back, and must not wait.
    ///
    /// # Panics
    /// When a function is registered already.
    pub fn tell_loss(&self, tell: impl Fn(InodeId) + Send + Sync + 'static) {
        self.context().writeback().tell_losses_to(tell);
    }

    /// The space of the filesystem, used and free. As on Linux, the figures are in terms of data: where data has two copies, half
    /// of the devices counts, and metadata counts for all its copies. Data counts as soon as it is written. It counts no more as
    /// soon as the last user of an inode without names is gone; a device that is still writing its data is such a user. Its space
    /// can be used again after a commit; an operation that needs the space commits.
    #[must_use]
    pub fn statfs(&self) -> FsStatistics {
        FsStatistics::of(self.inodes.context())
    }

    /// Counts of the operations since the filesystem was opened. The numbers are read one after the other while work goes on, so
    /// two of them may be of slightly different moments.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics::of(&self.inodes, self.memory())
    }

    /// The memory that the filesystem uses, by purpose. Counting it may take some milliseconds.
    #[must_use]
    pub fn memory(&self) -> MemoryReport {
        MemoryReport::of(&self.inodes, &self.names)
    }

    /// Plants a fault, once.
    ///
    /// # Panics
    /// When there is one already.
    #[cfg(any(feature = "shuttle", feature = "faults"))]
    pub fn plant(&self, fault: Fault) {
        self.inodes.context().plant(fault);
    }
}

/// Names.
impl Filesystem {
    /// The inode called `name` in `dir`. Crosses into subvolumes, and knows `.` and `..`.
    ///
    /// If the entry leads to a directory, that one's inode has to refer back to `dir` and `name`. Each directory has one such
    /// reference, so a walk along names meets no directory twice and walks in no circle, whatever the entries of a damaged
    /// filesystem say.
    pub fn lookup(&self, dir: InodeId, name: &[u8], wait: Wait) -> Result<InodeId> {
        self.names.lookup(dir, name, wait)
    }

    /// The inode called `name` in `dir` ([`Filesystem::lookup`]), and its type by the entry (by the inode, where the entry has
    /// none).
    pub fn lookup_kind(&self, dir: InodeId, name: &[u8], wait: Wait) -> Result<(InodeId, FileType)> {
        self.names.lookup_kind(dir, name, wait)
    }

    /// The directory that `id` is in, or one of them; the root of the top level is its own parent.
    pub fn parent(&self, id: InodeId, wait: Wait) -> Result<InodeId> {
        self.names.parent(id, wait)
    }

    /// Reports the entries of `dir` from the position `offset` on, until `each` breaks or there are no more. An
    /// entry at which `each` breaks counts as not taken: continue at the `next_offset` of the one before.
    pub fn read_dir(
        &self,
        dir: InodeId,
        offset: u64,
        wait: Wait,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.names.read_dir(dir, offset, wait, each)
    }

    /// Reports the entries of `dir` ([`Filesystem::read_dir`]) up to the position where `range` ends. With the
    /// [end](Self::end_of_dir) that the directory had when its listing began, the listing ends even if another process keeps
    /// renaming the reported entries.
    pub fn read_dir_range(
        &self,
        dir: InodeId,
        range: Range<u64>,
        wait: Wait,
        each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.names.read_dir_range(dir, range, wait, each)
    }

    /// The position after the last entry that a directory has now.
    pub fn end_of_dir(&self, dir: InodeId, wait: Wait) -> Result<u64> {
        self.names.end_of_dir(dir, wait)
    }

    /// Makes a new inode called `name` in `dir`.
    pub fn create(&self, dir: InodeId, name: &[u8], new: &NewInode<'_>) -> Result<Attributes> {
        self.names.create(dir, name, new)
    }

    /// Makes a new file called `name` in `dir`, and opens it: no other thread can remove it in between.
    pub fn create_open(
        &self,
        dir: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
    ) -> Result<(Attributes, Arc<OpenFile>)> {
        self.names.create_open(dir, name, new)
    }

    /// Makes a new file called `name` in `dir` that has `content` from the beginning. This costs less than making it and writing to
    /// it, and a crash shows both or none. The returned size is less than asked for when free space is in very many pieces;
    /// [`OpenFile::write_at`] takes the rest.
    pub fn create_file_with(
        &self,
        dir: InodeId,
        name: &[u8],
        new: &NewInode<'_>,
        content: &FileContent<'_>,
    ) -> Result<Attributes> {
        self.names.create_file_with(dir, name, new, content)
    }

    /// Compresses the `bytes` of a small file that is still to be [made](Filesystem::create_file_with), by any thread and in any
    /// order, so that making the file skips this slow part. `None` when nothing is compressed, or the file is too long for that.
    #[must_use]
    pub fn pack_ahead(&self, bytes: &[u8]) -> Option<PackedAhead> {
        data::pack_ahead(self.context(), self.subvolume(TreeId::FS).ok()?.tree(), bytes)
    }

    /// Makes a file without a name in the subvolume of `dir`, open. The file is deleted when it is closed, unless it gets a name
    /// before.
    pub fn tmpfile(&self, dir: InodeId, new: &NewInode<'_>) -> Result<(Attributes, Arc<OpenFile>)> {
        self.names.tmpfile(dir, new)
    }

    /// Gives the inode `target` the name `name` in `dir`.
    pub fn link(&self, target: InodeId, dir: InodeId, name: &[u8]) -> Result<Attributes> {
        self.names.link(target, dir, name)
    }

    /// Removes the name `name` of an inode that is no directory.
    pub fn unlink(&self, dir: InodeId, name: &[u8]) -> Result<()> {
        self.names.unlink(dir, name)
    }

    /// Removes the empty directory `name`.
    pub fn rmdir(&self, dir: InodeId, name: &[u8]) -> Result<()> {
        self.names.rmdir(dir, name)
    }

    /// Renames the entry `name` in `from` to `new_name` in `to`: [`std::fs::rename`], `rename(2)`.
    pub fn rename(
        &self,
        from: InodeId,
        name: &[u8],
        to: InodeId,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        self.names.rename(from, name, to, new_name, mode)
    }
}

/// Inodes.
impl Filesystem {
    /// The object of an inode; it stays alive while the caller holds it.
    /// [`Stale`](creamery_base::ErrorKind::Stale) when there is no such inode, or it has no name left and was not open.
    pub fn inode(&self, id: InodeId, wait: Wait) -> Result<Arc<Inode>> {
        self.inodes.get(id, wait)
    }

    /// Lets go of an inode. One that has neither a name nor a user any more is left to the cleaner, which deletes a small one at
    /// once. (Dropping the object alone takes no step of the cleaner.)
    pub fn release(&self, inode: Arc<Inode>) {
        drop(inode);
        self.cleaner.help();
    }

    /// Opens an inode.
    pub fn open_file(&self, id: InodeId) -> Result<Arc<OpenFile>> {
        self.open_file_for(id, Access::Read)
    }

    /// Opens an inode for the given `access`. Errors: it is marked immutable, or append-only and is to be written elsewhere.
    pub fn open_file_for(&self, id: InodeId, access: Access) -> Result<Arc<OpenFile>> {
        Ok(Arc::new(OpenFile::open(Arc::clone(&self.inodes), id, access)?))
    }

    /// Closes a file. If this was the last use of an inode without a name, the cleaner deletes it, at once if it is small.
    /// (Dropping the object alone takes no step of the cleaner.)
    pub fn close(&self, file: Arc<OpenFile>) {
        drop(file);
        self.cleaner.help();
    }

    /// Presents the inode `id`, as long as its item cannot be read, as a directory of root's from 1970 that no other user may
    /// enter: its owner and its mode are lost.
    ///
    /// # Errors
    /// The filesystem is writable: an inode without an item must not be changed.
    pub fn take_for_directory(&self, id: InodeId) -> Result<()> {
        if self.engine.read_only().is_none() {
            return Err(Error::invalid("a directory without an inode can only be read"));
        }
        self.inodes.take_for_directory(id);
        Ok(())
    }

    /// The attributes of an inode.
    pub fn stat(&self, id: InodeId, wait: Wait) -> Result<Attributes> {
        self.inodes.attributes(id, wait)
    }

    /// Notes that an inode was read, listed or followed, which moves its access time where that is wanted ([`FsOptions::atime`]).
    /// Reading alone does not: a program that reads on behalf of another one calls this. It waits for nothing that reading does not
    /// wait for. An access time that cannot be noted is lost without an error.
    pub fn accessed(&self, id: InodeId) {
        if self.inodes.context().access_times().options().atime != Atime::Off
            && let Ok(inode) = self.inodes.get(id, Wait::Yes)
        {
            inode.accessed();
        }
    }

    /// Which accesses move access times.
    #[must_use]
    pub fn atime(&self) -> AtimeOptions {
        self.inodes.context().access_times().options()
    }

    /// Sets which accesses move access times from now on.
    pub fn set_atime(&self, options: AtimeOptions) {
        self.inodes.context().access_times().set_options(options);
    }

    /// Changes attributes, all or (if an error is returned before the size was changed) none of them.
    pub fn set_attributes(&self, id: InodeId, set: &SetAttributes) -> Result<Attributes> {
        let inode = self.inode_to_change(id)?;
        ops::set_attributes(&inode, set)
    }

    /// The target of a symbolic link.
    pub fn read_link(&self, id: InodeId, wait: Wait) -> Result<Vec<u8>> {
        let inode = self.inodes.get(id, wait)?;
        ops::read_link(&inode, wait)
    }

    /// The object of an inode that is about to be changed, in a subvolume that may be.
    fn inode_to_change(&self, id: InodeId) -> Result<InodeToChange> {
        if id.ino == keys::EMPTY_SUBVOLUME_DIR {
            return Err(ErrorKind::PermissionDenied.into());
        }
        self.cleaner.help();
        self.inodes.get_to_change(id)
    }
}

/// Compression.
impl Filesystem {
    /// The compression of new data, where a file has no setting of its own.
    #[must_use]
    pub fn compress(&self) -> Option<Compress> {
        self.inodes.context().compression().option()
    }

    /// Sets the compression of all data that is written to the image from now on, delayed data included.
    pub fn set_compress(&self, compress: Option<Compress>) {
        self.inodes.context().compression().set_option(compress);
    }
}

/// Cleaning up after inodes that have neither a name nor a user.
impl Filesystem {
    /// Takes one step of the cleaner: deletes a bounded number of items of one inode that has neither a name nor a user.
    /// If another thread takes a step, this waits for it.
    /// Errors: no space, and the inode is tried again later; aborted; damage, and then the inode is left to the next time the
    /// filesystem is opened.
    pub fn clean_step(&self) -> Result<Cleaning> {
        self.cleaner.step()
    }

    /// Takes steps until the inodes that waited at the beginning are gone, as an unmount does: unlinks meanwhile do not prolong it.
    /// An inode that cannot be deleted is left to the next time the filesystem is opened.
    pub fn clean(&self) {
        self.cleaner.clean();
    }

    /// Whether an inode waits for the cleaner.
    #[must_use]
    pub fn has_cleaning(&self) -> bool {
        !self.inodes.context().dead().is_empty()
    }
}
