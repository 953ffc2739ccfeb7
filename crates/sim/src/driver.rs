//! Runs operations on the engine and the model, and compares both.

mod losses;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use creamery_base::{Error, ErrorKind, FixedEnv, InodeId, ObjectId, Timespec, TreeId, Wait};
use creamery_device::BlockDevice;
use creamery_fs::{
    Defragment, FileType, Filesystem, FsOptions, NewInode, NewKind, OpenFile, SetAttributes, Time,
};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

use crate::delayed_data::Loss;
use crate::device::SimDevice;
use crate::mark::flags_of;
use crate::model::{Content, Model, Node, ROOT};
use crate::operation::{Operation, Outcome, content};
use crate::power_cut::Class;
use crate::room_watch::RoomWatch;
use crate::seen_errors::{Around, SeenErrors};
use crate::shape::{convert, grow};
use crate::snapshot::walk;
use crate::subvolumes;

/// An inode number that no test reaches.
const NEVER: ObjectId = ObjectId::new(1 << 40);
/// A subvolume that no test reaches, for inodes of a deleted subvolume.
const GONE: TreeId = TreeId::new(1 << 40);

/// A filesystem on a simulated device, and the model of it.
///
/// ```
/// use creamery_sim::{Driver, MadeBy, Operation, SimDevice, ROOT, fresh_image};
/// use std::sync::Arc;
/// let device = Arc::new(SimDevice::new(fresh_image(&MadeBy::default())?));
/// let mut driver = Driver::open_fresh(&device)?;
/// driver.apply(&Operation::CreateSubvolume { dir: ROOT, name: b"home".to_vec() })?;
/// driver.apply(&Operation::Sync)?;
/// driver.compare()?;
/// # Ok::<(), anyhow::Error>(())
/// ```
pub struct Driver {
    fs: Arc<Filesystem>,
    model: Model,
    ids: HashMap<u64, InodeId>,
    open: Vec<Opener>,
    /// The number of runs of delayed data that were lost so far.
    lost: u64,
    /// Losses that `take_losses` has not returned yet.
    losses: Vec<Loss>,
    /// The errors that each opener and caller has seen.
    errors: SeenErrors,
    room: RoomWatch,
}

/// An open file.
struct Opener {
    inode: u64,
    file: Arc<OpenFile>,
    /// The place of its last fsync in the sequence of errors, or that of another opener before it was opened.
    place: Around,
}

/// Opens the filesystem on `device` for writing, with a stopped clock.
///
/// # Errors
/// Those of the engine.
pub fn open(device: &Arc<SimDevice>) -> creamery_base::Result<Arc<Filesystem>> {
    open_with(device, Options::default(), FsOptions::default())
}

/// Opens the filesystem after a power cut; if the cut may have torn the first superblock, by a copy of it.
pub(crate) fn open_after(class: Class, device: &Arc<SimDevice>) -> creamery_base::Result<Arc<Filesystem>> {
    if class != Class::TornSuperblock {
        return open(device);
    }
    let volume = Volume::open_by_copy(vec![Arc::<SimDevice>::clone(device) as Arc<dyn BlockDevice>])?;
    open_volume(volume, Options::default(), FsOptions::default())
}

/// Opens the filesystem like [`open`], with the given budgets.
pub(crate) fn open_with(
    device: &Arc<SimDevice>,
    options: Options,
    fs_options: FsOptions,
) -> creamery_base::Result<Arc<Filesystem>> {
    let device: Arc<dyn BlockDevice> = Arc::<SimDevice>::clone(device);
    open_volume(Volume::open(vec![device], Mode::ReadWrite)?, options, fs_options)
}

fn open_volume(
    volume: Volume,
    options: Options,
    fs_options: FsOptions,
) -> creamery_base::Result<Arc<Filesystem>> {
    let env = Arc::new(FixedEnv::new(Timespec { sec: 1_700_000_000, nsec: 0 }, 1));
    let options = Options { cache_bytes: 4 << 20, env, ..options };
    Filesystem::open(Engine::open(volume, options)?, fs_options)
}

impl Driver {
    /// Opens an empty filesystem.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open_fresh(device: &Arc<SimDevice>) -> Result<Self> {
        Self::with_model(open(device)?, Model::new())
    }

    /// Opens an empty filesystem with the given budgets and options.
    pub(crate) fn open_fresh_with(
        device: &Arc<SimDevice>,
        options: Options,
        fs_options: FsOptions,
    ) -> Result<Self> {
        Self::with_model(open_with(device, options, fs_options)?, Model::new())
    }

    /// Opens an empty filesystem in which every write is an extent: nothing is delayed.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open_fresh_undelayed(device: &Arc<SimDevice>) -> Result<Self> {
        let fs_options = FsOptions { delayed_bytes: 0, ..FsOptions::default() };
        Self::with_model(open_with(device, Options::default(), fs_options)?, Model::new())
    }

    /// Takes a filesystem whose content is that of `model`, and compares both.
    ///
    /// # Errors
    /// The content differs.
    pub fn with_model(fs: Arc<Filesystem>, model: Model) -> Result<Self> {
        let walked = walk(&fs, false)?;
        if let Some(difference) = model.snapshot().difference(&walked.snapshot) {
            bail!("{difference}");
        }
        let ids = model.paths().into_iter().map(|(id, path)| (id, walked.ids[&path])).collect();
        let mut model = model;
        model.is_synced();
        let room = RoomWatch(Arc::clone(&fs));
        Ok(Self {
            fs,
            model,
            ids,
            open: Vec::new(),
            lost: 0,
            losses: Vec::new(),
            errors: SeenErrors::default(),
            room,
        })
    }

    /// Opens a filesystem that another program made: the model is the result of a walk.
    ///
    /// # Errors
    /// It cannot be opened or walked.
    pub fn open_foreign(device: &Arc<SimDevice>) -> Result<Self> {
        let fs = open(device)?;
        let walked = walk(&fs, true)?;
        let mut model = Model::new();
        let mut known: BTreeMap<InodeId, u64> = BTreeMap::new();
        let mut subvolumes: BTreeMap<TreeId, u64> = BTreeMap::new();
        for (path, id) in &walked.ids {
            let entry = &walked.snapshot.entries[path];
            let cut = path.iter().rposition(|byte| *byte == b'/');
            let (dir, name) =
                (cut.map_or(&[][..], |cut| &path[..cut]), cut.map_or(&path[..], |cut| &path[cut + 1..]));
            let parent = if path.is_empty() { ROOT } else { known[&walked.ids[dir]] };
            let number = if path.is_empty() {
                ROOT
            } else if let Some(number) = known.get(id) {
                *number
            } else {
                let data = walked.contents.get(path).cloned().unwrap_or_default();
                let content = match entry.kind {
                    FileType::Directory => Content::Directory(BTreeMap::new()),
                    FileType::File => Content::File(Arc::new(data)),
                    FileType::Symlink => Content::Symlink(data),
                    other => Content::Special(other),
                };
                model.add(Node::new(content, 0, parent, entry.mode))
            };
            known.insert(*id, number);
            if id.ino == ObjectId::FIRST_FREE {
                subvolumes.insert(id.subvolume, number);
            }
            let subvolume = subvolumes[&id.subvolume];
            model.place(number, subvolume);
            let node = model.nodes.get_mut(&number).context("just made")?;
            (node.subvolume, node.mode, node.uid, node.gid) = (subvolume, entry.mode, entry.uid, entry.gid);
            (node.nlink, node.xattrs) = (entry.nlink, entry.xattrs.clone());
            if !path.is_empty()
                && let Content::Directory(names) =
                    &mut model.nodes.get_mut(&parent).context("a parent")?.content
            {
                names.insert(name.to_vec(), number);
            }
        }
        Self::with_model(fs, model)
    }

    /// Drives an empty directory as the root of a separate model.
    #[must_use]
    pub fn within(fs: Arc<Filesystem>, dir: InodeId) -> Self {
        let room = RoomWatch(Arc::clone(&fs));
        Self {
            fs,
            room,
            model: Model::new(),
            ids: HashMap::from([(ROOT, dir)]),
            open: Vec::new(),
            lost: 0,
            losses: Vec::new(),
            errors: SeenErrors::default(),
        }
    }

    /// The current model.
    #[must_use]
    pub const fn model(&self) -> &Model {
        &self.model
    }

    /// The model at the end; closes open files.
    #[must_use]
    pub fn into_model(self) -> Model {
        let mut model = self.model;
        model.restart();
        model
    }

    /// The filesystem.
    #[must_use]
    pub const fn filesystem(&self) -> &Arc<Filesystem> {
        &self.fs
    }

    /// Runs `operation` on both.
    ///
    /// # Errors
    /// Their answers differ.
    pub fn apply(&mut self, operation: &Operation) -> Result<()> {
        let found = self.run(operation);
        self.judge(operation, found)
    }

    /// Runs `operation` like [`apply`](Self::apply), and returns the model's answer if it succeeds.
    pub(crate) fn apply_for(&mut self, operation: &Operation) -> Result<Outcome> {
        let mut ahead = self.model.clone();
        self.apply(operation)?;
        ahead.apply(operation).map_err(|kind| anyhow::anyhow!("{operation:?} fails with {kind:?}"))
    }

    /// Runs `operation` like [`apply`](Self::apply) on a device that may fail or be full. Returns the engine's error if the device or lack
    /// of space caused it.
    ///
    /// # Errors
    /// The answers differ otherwise.
    pub fn try_apply(&mut self, operation: &Operation) -> Result<Option<Error>> {
        let error = self.try_once(operation)?;
        if self.model.lossy {
            self.accept_losses()?;
        }
        Ok(error)
    }

    fn try_once(&mut self, operation: &Operation) -> Result<Option<Error>> {
        let found = match operation {
            Operation::Fsync { inode } if self.model.lossy => self.fsync_by_all(*inode)?,
            Operation::Sync if self.model.lossy => self.sync_that_reports()?,
            _ => self.run(operation),
        };
        match found {
            Err(error) if error.kind() == ErrorKind::NoSpace => match self.fs.engine().read_only() {
                Some(reason) => bail!("{operation:?}: no space, and it is read-only: {reason}"),
                None => self.accept_part(operation).map(|()| Some(error)),
            },
            Err(error) if is_of_the_device(error.kind()) && !self.is_refused(operation, &error) => {
                if let Operation::Truncate { inode, size } = operation {
                    self.accept_size(*inode, *size)?;
                }
                self.accept_part(operation)?;
                Ok(Some(error))
            }
            Ok((Outcome::Count(count), _)) => {
                // If space runs out on the way, the first part is written.
                let mut written = operation.clone();
                if let Operation::Write { len, .. } = &mut written {
                    ensure!(count <= *len, "{operation:?}: {count} bytes were written");
                    *len = count;
                }
                self.judge(&written, Ok((Outcome::Count(count), None))).map(|()| None)
            }
            found => self.judge(operation, found).map(|()| None),
        }
    }

    /// Accepts a truncation that stopped on the way, at a size between the old and the new one.
    fn accept_size(&mut self, inode: u64, wanted: u64) -> Result<()> {
        let (Some(before), Ok(found)) = (self.model.size(inode), self.fs.stat(self.id(inode), Wait::Yes))
        else {
            return Ok(());
        };
        if found.size != before {
            ensure!(
                (wanted..before).contains(&found.size),
                "cut off to {wanted}, {before} became {}",
                found.size
            );
            let cut = self.model.apply(&Operation::Truncate { inode, size: found.size });
            ensure!(cut.is_ok(), "the model cuts {inode} off");
        }
        Ok(())
    }

    /// Accepts punching a hole, zeroing, preallocating and cloning that stopped on the way: every byte is the old or the new one.
    fn accept_part(&mut self, operation: &Operation) -> Result<()> {
        let (Operation::Fallocate { inode, .. } | Operation::Clone { inode, .. }) = operation else {
            return Ok(());
        };
        let mut whole = self.model.clone();
        let done = whole.apply(operation);
        let (Ok(before), Ok(after), true) = (self.model.file(*inode), whole.file(*inode), done.is_ok())
        else {
            return Ok(());
        };
        let mut found = vec![0; after.len() + 1];
        // An unreadable file is compared when it can be read.
        let read = self.handle(*inode).and_then(|file| file.read_at(0, &mut found, Wait::Yes));
        let Ok(size) = read else { return Ok(()) };
        found.truncate(size);
        // A clone begins at the front.
        let most = if let Operation::Clone { .. } = operation { after.len() } else { before.len() };
        ensure!((before.len()..=most).contains(&size), "{operation:?}: the size became {size}");
        let byte = |data: &[u8], at: usize| data.get(at).copied().unwrap_or(0);
        let wrong = (0..size).find(|&at| found[at] != byte(before, at) && found[at] != byte(after, at));
        ensure!(wrong.is_none(), "{operation:?} failed and left something else at {wrong:?}");
        if found != **before {
            self.model.set_content(*inode, found);
        }
        Ok(())
    }

    fn judge(
        &mut self,
        operation: &Operation,
        found: creamery_base::Result<(Outcome, Option<InodeId>)>,
    ) -> Result<()> {
        let wanted = self.model.apply(operation);
        match (wanted, found) {
            (Ok(Outcome::Made(number)), Ok((Outcome::Made(_), Some(id)))) => {
                self.ids.insert(number, id);
                if let Operation::Snapshot { .. } = operation {
                    if !self.model.lossy {
                        subvolumes::ensure_no_orphans(&self.fs, id.subvolume)?;
                    }
                    for (of, copy) in &self.model.copies {
                        let ino = self.ids[of].ino;
                        self.ids.insert(*copy, InodeId::new(id.subvolume, ino));
                    }
                }
                if let Operation::Tmpfile { .. } = operation {
                    self.open.last_mut().context("a file that was just opened")?.inode = number;
                }
            }
            (Ok(Outcome::Made(whiteout)), Ok((Outcome::Done, None))) => {
                let Operation::Rename { from, name, .. } = operation else {
                    bail!("{operation:?} made something")
                };
                let found = self.fs.lookup(self.id(*from), name, Wait::Yes).context("the whiteout")?;
                self.ids.insert(whiteout, found);
            }
            (Ok(wanted), Ok((found, _))) => {
                ensure!(wanted == found, "{operation:?}: wanted {wanted:?}, got {found:?}");
            }
            (Err(wanted), Err(found)) => {
                // An inode without a name is about to go: whether it still exists depends on the moment.
                let gone = matches!(found.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
                let is_leaving = wanted == ErrorKind::Stale && gone;
                let is_renumbered = (wanted, found.kind()) == (ErrorKind::CrossDevice, ErrorKind::Stale)
                    && subvolumes::are_one_by_number(&self.model, operation, |inode| self.id(inode));
                let is_refused = self.is_refused(operation, &found);
                let is_expected = wanted == found.kind() || is_leaving || is_renumbered || is_refused;
                ensure!(is_expected, "{operation:?}: wanted {wanted:?}, got {found:?}");
            }
            (Err(_), Ok((Outcome::Done, None))) if self.model.renames_nothing(operation) => {}
            // The effect on it is not visible, either.
            (Err(ErrorKind::Stale), Ok((Outcome::Done | Outcome::Count(_), None))) => {}
            (wanted, Err(found)) => bail!("{operation:?}: wanted {wanted:?}, got {found:?}"),
            (wanted, Ok((found, _))) => bail!("{operation:?}: wanted {wanted:?}, got {found:?}"),
        }
        Ok(())
    }

    /// Whether missing permissions explain this error.
    fn is_refused(&self, operation: &Operation, error: &Error) -> bool {
        self.model.refusals(operation).contains(&error.kind())
    }

    fn id(&self, number: u64) -> InodeId {
        if let Some(id) = self.ids.get(&number) {
            return *id;
        }
        // An inode that is gone, or never existed, still names its subvolume.
        let root = self.ids.get(&self.model.subvolume_of(number));
        InodeId::new(root.map_or(GONE, |id| id.subvolume), NEVER)
    }

    /// The number of each inode in the model.
    pub(crate) fn numbers(&self) -> HashMap<InodeId, u64> {
        self.ids.iter().map(|(number, id)| (*id, *number)).collect()
    }

    fn handle(&self, inode: u64) -> creamery_base::Result<Arc<OpenFile>> {
        match self.open.iter().find(|opener| opener.inode == inode) {
            Some(opener) => Ok(Arc::clone(&opener.file)),
            None => self.fs.open_file(self.id(inode)),
        }
    }

    fn run(&mut self, operation: &Operation) -> creamery_base::Result<(Outcome, Option<InodeId>)> {
        let fs = Arc::clone(&self.fs);
        let done = |()| (Outcome::Done, None);
        let made = |id: InodeId| (Outcome::Made(0), Some(id));
        match operation {
            Operation::Create { dir, name, kind, mode } => {
                let kind = match kind {
                    FileType::Directory => NewKind::Directory,
                    FileType::Fifo => NewKind::Fifo,
                    FileType::Socket => NewKind::Socket,
                    _ => NewKind::File,
                };
                let new = NewInode { kind, ..NewInode::file(*mode) };
                fs.create(self.id(*dir), name, &new).map(|attributes| made(attributes.id))
            }
            Operation::Symlink { dir, name, target } => {
                let new = NewInode { kind: NewKind::Symlink(target), ..NewInode::file(0o777) };
                fs.create(self.id(*dir), name, &new).map(|attributes| made(attributes.id))
            }
            Operation::CreateSubvolume { dir, name } => {
                fs.create_subvolume(self.id(*dir), name, &NewInode::directory(0o755)).map(made)
            }
            Operation::Snapshot { source, dir, name } => {
                fs.create_snapshot(self.id(*source).subvolume, self.id(*dir), name, false).map(made)
            }
            Operation::DeleteSubvolume { dir, name } => {
                fs.delete_subvolume(self.id(*dir), name).map(|_| done(()))
            }
            Operation::Tmpfile { dir } => {
                let (attributes, file) = fs.tmpfile(self.id(*dir), &NewInode::file(0o600))?;
                self.open.push(Opener { inode: u64::MAX, file, place: Around::default() });
                Ok(made(attributes.id))
            }
            Operation::Unlink { dir, name } => fs.unlink(self.id(*dir), name).map(done),
            Operation::Rmdir { dir, name } => fs.rmdir(self.id(*dir), name).map(done),
            Operation::Link { target, dir, name } => {
                fs.link(self.id(*target), self.id(*dir), name).map(|_| done(()))
            }
            Operation::Rename { from, name, to, new_name, mode } => {
                fs.rename(self.id(*from), name, self.id(*to), new_name, *mode).map(done)
            }
            Operation::Open { inode } => {
                let file = fs.open_file(self.id(*inode))?;
                self.open.push(Opener { inode: *inode, file, place: self.errors.opened(*inode) });
                Ok(done(()))
            }
            Operation::Close { inode } => {
                let at = self.open.iter().position(|opener| opener.inode == *inode);
                // As on a mount, closing does not delete a file without names; the cleaner does.
                drop(self.open.swap_remove(at.expect("closing what was opened")));
                Ok(done(()))
            }
            Operation::Write { inode, offset, len, seed } => {
                let file = self.handle(*inode)?;
                file.write_at(*offset, &content(*len, *seed)).map(|count| (Outcome::Count(count), None))
            }
            Operation::Append { inode, len, seed } => {
                let file = self.handle(*inode)?;
                file.append(&content(*len, *seed)).map(|(_, count)| (Outcome::Count(count), None))
            }
            Operation::Read { inode, offset, len } => {
                let file = self.handle(*inode)?;
                let mut data = vec![0; *len];
                let count = file.read_at(*offset, &mut data, Wait::Yes)?;
                data.truncate(count);
                Ok((Outcome::Data(data), None))
            }
            other => self.run_on_inode(&fs, other).map(done),
        }
    }

    fn run_on_inode(&self, fs: &Filesystem, operation: &Operation) -> creamery_base::Result<()> {
        let set = |inode: u64, set: SetAttributes| fs.set_attributes(self.id(inode), &set).map(drop);
        match operation {
            Operation::Truncate { inode, size } => set(*inode, SetAttributes::truncate(*size)),
            Operation::Fallocate { inode, mode, offset, len } => {
                self.handle(*inode)?.fallocate(*mode, *offset, *len)
            }
            Operation::Defragment { inode, offset } => {
                let wanted = Defragment { offset: *offset, ..Defragment::default() };
                self.handle(*inode)?.defragment(&wanted, &|| false).map(drop)
            }
            Operation::Clone { inode, source, from, len, to } => {
                let source = self.handle(*source)?;
                self.handle(*inode)?.clone_range(&source, *from, *len, *to)
            }
            Operation::Chmod { inode, mode } => {
                set(*inode, SetAttributes { mode: Some(*mode), ..Default::default() })
            }
            Operation::Chown { inode, uid, gid } => {
                set(*inode, SetAttributes { uid: Some(*uid), gid: Some(*gid), ..Default::default() })
            }
            Operation::SetTimes { inode, second } => {
                let time = Some(Time::At(Timespec { sec: i64::from(*second), nsec: 0 }));
                set(*inode, SetAttributes { atime: time, mtime: time, ..Default::default() })
            }
            Operation::SetXattr { inode, name, value, mode } => {
                fs.set_xattr(self.id(*inode), name, value, *mode)
            }
            Operation::RemoveXattr { inode, name } => fs.remove_xattr(self.id(*inode), name),
            Operation::Mark { inode, mark } => {
                set(*inode, SetAttributes { flags: Some(flags_of(*mark)), ..Default::default() })
            }
            Operation::SetReadOnly { subvolume, read_only } => {
                fs.set_subvolume_read_only(self.id(*subvolume).subvolume, *read_only)
            }
            Operation::Fsync { inode } => self.handle(*inode)?.sync(),
            Operation::Grow { more } => grow(fs, *more),
            Operation::Convert(conversion) => convert(fs, *conversion),
            Operation::Sync => fs.sync(),
            other => unreachable!("{other:?} is done elsewhere"),
        }
    }

    /// Compares everything except open inodes without a name.
    ///
    /// # Errors
    /// The filesystem differs from the model.
    pub fn compare(&mut self) -> Result<()> {
        let walked = crate::snapshot::walk_only(&self.fs, self.ids[&ROOT])?;
        match self.model.snapshot().difference(&walked) {
            Some(difference) => bail!("{difference}"),
            None => Ok(()),
        }
    }

    /// Closes everything, makes it durable and opens it again.
    ///
    /// # Errors
    /// That fails, or the content differs afterwards.
    pub fn restart(self, device: &Arc<SimDevice>) -> Result<Self> {
        self.restart_after(device, || Ok(()))
    }

    /// Restarts like [`restart`](Self::restart), and calls `between` with the closed device.
    ///
    /// # Errors
    /// Those of [`restart`](Self::restart), and that of `between`.
    pub fn restart_after(
        self,
        device: &Arc<SimDevice>,
        between: impl FnOnce() -> creamery_base::Result<()>,
    ) -> Result<Self> {
        let Self { fs, mut model, open: files, ids, room, .. } = self;
        drop(files);
        fs.sync()?;
        drop(room);
        let engine = fs.engine();
        let kept = (engine.delalloc_bytes(), engine.delalloc_metadata_bytes());
        let delayed = fs.statistics().writeback.delayed_bytes;
        ensure!(kept == (0, 0) && delayed == 0, "{kept:?} bytes of room are kept for {delayed} bytes");
        engine.volume().close()?;
        drop(fs);
        between()?;
        model.restart();
        let mut driver = Self::with_model(open(device)?, model)?;
        // Operations still name inodes that are gone, and their numbers may be in use again.
        for (number, id) in ids {
            driver.ids.entry(number).or_insert(InodeId::new(id.subvolume, NEVER));
        }
        Ok(driver)
    }
}

/// Whether the device or its size can be the cause of such an error, directly or by an earlier failure.
pub(crate) const fn is_of_the_device(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Io
            | ErrorKind::NoSpace
            | ErrorKind::ReadOnly
            | ErrorKind::Aborted
            | ErrorKind::Corrupt
            | ErrorKind::Unreadable
    )
}
