//! A filesystem to test on, and checks that hold for any file in it.

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use creamery_base::panics;
use creamery_base::sync::Mutex;
use creamery_base::{Env, InodeId, ObjectId, Result, TreeId, Wait};
use creamery_device::{Access, BlockDevice, FileDevice, Hook, Hooked, MemoryDevice};
use creamery_format::file_extent::FileExtentItem;
use creamery_format::{Compression, Incompat, Key, KeyType};
use creamery_tree::Tree;
use creamery_txn::{Engine, Options, ReserveItems};
use creamery_volume::{Mode, Volume};

use crate::context::Context;
use crate::data::extent_map::ExtentItems;
use crate::inode::{FileType, Inode, InodeFlags, InodeItem, Inodes};
use crate::keys;
use crate::keys::extent_data;
use crate::open_file::OpenFile;
use crate::operation::in_handle;
use crate::options::FsOptions;
use crate::seek::SeekTarget;
use crate::subvolume::{Subvolume, SubvolumeRef, Subvolumes};

pub(crate) const SECTOR: u64 = 4096;

/// The splitmix64 sequence.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// The kind of filesystem under test: options of mkfs.btrfs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Kind(pub(crate) &'static str);

impl Kind {
    pub(crate) const DEFAULT: Self = Self("--nodesize 16384");
    pub(crate) const OLD: Self = Self("--nodesize 4096 -O ^no-holes");
}

/// Empty files that every filesystem under test has in its root directory.
pub(super) const NAMED: u64 = 4;

/// An open filesystem in memory.
pub(crate) struct Fixture {
    pub(crate) engine: Arc<Engine>,
    device: Arc<MemoryDevice>,
}

impl std::ops::Deref for Fixture {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
        &self.engine
    }
}

/// Runs a program that must succeed; returns what it printed.
pub(crate) fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = [&out.stdout[..], &out.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(out.status.success(), "{program} {args:?}: {text}");
    text
}

/// Whether the programs are there; names the missing ones, because the test is then skipped.
pub(crate) fn has(programs: &[&str]) -> bool {
    let lacking = programs.iter().find(|name| Command::new(name).arg("--version").output().is_err());
    if let Some(name) = lacking {
        println!("skipped: this host has no {name}");
    }
    lacking.is_none()
}

/// A copy of a filesystem that mkfs.btrfs made, open for writing; `None`, with a message, where there is no mkfs.btrfs.
pub(crate) fn fixture(kind: Kind) -> Option<Fixture> {
    static MADE: Mutex<Vec<(Kind, Arc<MemoryDevice>)>> = Mutex::new(Vec::new());
    if !has(&["mkfs.btrfs"]) {
        return None;
    }
    let mut made = MADE.lock();
    let template = match made.iter().find(|(known, _)| *known == kind) {
        Some((_, template)) => Arc::clone(template),
        None => {
            let template = Arc::new(make(kind));
            made.push((kind, Arc::clone(&template)));
            template
        }
    };
    drop(made);
    let device = Arc::new(MemoryDevice::copy_of(&*template).expect("a copy"));
    Some(Fixture { engine: open_device(Arc::clone(&device) as _), device })
}

/// Breaks `rule` on purpose, on a filesystem that mkfs.btrfs made, and expects an assert to name it. Skipped where there is no
/// mkfs.btrfs.
pub(crate) fn assert_noticed(rule: &str, breaking: impl FnOnce(Fixture)) {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    match panics::catch(|| breaking(fixture)) {
        Ok(()) => panic!("{rule} was broken, and nobody noticed"),
        Err(panic) => {
            assert!(panic.message.contains(rule), "{rule} was broken, and this came of it: {panic}")
        }
    }
}

fn make(kind: Kind) -> MemoryDevice {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("root");
    std::fs::create_dir(&root).expect("a directory");
    for number in 0..NAMED {
        std::fs::write(root.join(format!("f{number}")), b"").expect("an empty file");
    }
    let image = dir.path().join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("room");
    let mut args: Vec<&str> = vec!["-q", "--rootdir", root.to_str().expect("a plain name")];
    args.extend(kind.0.split_whitespace());
    args.push(image.to_str().expect("a plain name"));
    run("mkfs.btrfs", &args);
    let file = FileDevice::open(&image, Access::ReadOnly).expect("the image");
    MemoryDevice::copy_of(&file).expect("a copy")
}

/// Opens the committed state of a device.
pub(crate) fn open_device(device: Arc<dyn BlockDevice>) -> Arc<Engine> {
    let volume = Volume::open(vec![device], Mode::ReadWrite).expect("a filesystem");
    Engine::open(volume, Options::default()).expect("writable")
}

impl Fixture {
    /// The last committed filesystem, opened behind `hook`.
    pub(crate) fn behind<H: Hook + 'static>(self, hook: H) -> (Arc<Engine>, Arc<Hooked<H>>) {
        drop(self.engine);
        let device = Arc::new(Hooked::new(self.device, hook));
        (open_device(Arc::clone(&device) as _), device)
    }

    /// The last committed filesystem, opened on a device that `made` makes of its own.
    pub(crate) fn on<D: BlockDevice + 'static>(
        self,
        made: impl FnOnce(Arc<MemoryDevice>) -> D,
    ) -> (Arc<Engine>, Arc<D>) {
        drop(self.engine);
        let device = Arc::new(made(self.device));
        (open_device(Arc::clone(&device) as _), device)
    }

    /// The last committed filesystem, opened with the clock of `env`.
    pub(crate) fn with_env(self, env: Arc<dyn Env>) -> Arc<Engine> {
        drop(self.engine);
        let volume = Volume::open(vec![self.device], Mode::ReadWrite).expect("a filesystem");
        Engine::open(volume, Options { env, ..Options::default() }).expect("writable")
    }

    /// Commits, and opens the filesystem behind `hook`.
    pub(crate) fn again<H: Hook + 'static>(self, hook: H) -> (Arc<Engine>, Arc<Hooked<H>>) {
        self.engine.commit().expect("a commit");
        self.behind(hook)
    }

    /// Commits, closes and opens again.
    pub(crate) fn reopen(&mut self) {
        self.engine.commit().expect("a commit");
        self.engine = open_device(Arc::clone(&self.device) as _);
    }

    /// Commits, closes and opens again for reading.
    pub(crate) fn reopen_for_reading(&mut self) {
        self.engine.commit().expect("a commit");
        let device = Arc::clone(&self.device) as Arc<dyn BlockDevice>;
        let volume = Volume::open(vec![device], Mode::ReadOnly).expect("a filesystem");
        self.engine =
            Engine::open(volume, Options { read_only: true, ..Options::default() }).expect("readable");
    }

    /// The inode of the file `name` in the root directory.
    pub(crate) fn named(&self, name: &str) -> Inode {
        self.named_delayed(name, 0)
    }

    /// The inode of the file `name` in the root directory, where so many bytes of data may be delayed.
    pub(crate) fn named_delayed(&self, name: &str, delayed_bytes: u64) -> Inode {
        named_in(&self.engine, name, delayed_bytes)
    }

    /// Commits, and lets `btrfs check` judge every item and every checksum; then lets the kernel mount it and calls `look` with the
    /// mounted directory. Names the judges that the host lacks.
    pub(crate) fn judge(&self, look: impl FnOnce(&Path)) {
        self.engine.commit().expect("a commit");
        if !has(&["btrfs"]) {
            return;
        }
        let (dir, image) = self.save();
        let text = run("btrfs", &["check", "--check-data-csum", &image]);
        assert!(text.contains("no error found"), "{text}");
        mounted(dir.path(), &image, "ro", look);
    }

    /// Commits, lets the kernel mount it with `options` for `work`, and goes on with the result. False where the host cannot.
    pub(crate) fn with_kernel(&mut self, options: &str, work: impl FnOnce(&Path)) -> bool {
        self.engine.commit().expect("a commit");
        let (dir, image) = self.save();
        let done = mounted(dir.path(), &image, options, work);
        let file = FileDevice::open(Path::new(&image), Access::ReadOnly).expect("the image");
        self.device = Arc::new(MemoryDevice::copy_of(&file).expect("a copy"));
        self.engine = open_device(Arc::clone(&self.device) as _);
        done
    }

    /// Writes the image to a file.
    fn save(&self) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().expect("a directory");
        let image = dir.path().join("image");
        let mut file = std::fs::File::create(&image).expect("an image");
        let mut chunk = vec![0; 1 << 20];
        for at in (0..self.device.len()).step_by(1 << 20) {
            self.device.read_at(at, &mut chunk).expect("a read");
            if chunk.iter().any(|byte| *byte != 0) {
                file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(&chunk)).expect("room");
            }
        }
        file.set_len(self.device.len()).expect("room");
        (dir, image.to_str().expect("a plain name").to_owned())
    }
}

/// Mounts `image` below `dir` for `work`. False, with a message, where the host cannot.
fn mounted(dir: &Path, image: &str, options: &str, work: impl FnOnce(&Path)) -> bool {
    let mounted = dir.join("mounted");
    std::fs::create_dir(&mounted).expect("a directory");
    let at = mounted.to_str().expect("a plain name");
    let options = format!("loop,{options}");
    let mount = Command::new("mount").args(["-o", &options, "-t", "btrfs", image, at]).output();
    if !mount.is_ok_and(|out| out.status.success()) {
        println!("skipped: this host cannot mount btrfs images");
        return false;
    }
    let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&mounted)));
    creamery_testkit::Run::new("umount").arg(at).again_while_busy().ok().expect("unmounts");
    // Another process that looks at the loop device at that moment keeps it for as long.
    let is_free = || {
        let users = creamery_testkit::Run::new("losetup").args(["--associated", image]).ok()?;
        Ok(users.stdout.is_empty())
    };
    creamery_testkit::until("the kernel to let go of the image", is_free).expect("losetup tells");
    if let Err(panic) = worked {
        std::panic::resume_unwind(panic);
    }
    true
}

/// The inode of the file `name` in the root directory, where so many bytes of data may be delayed.
pub(crate) fn named_in(engine: &Arc<Engine>, name: &str, delayed_bytes: u64) -> Inode {
    let tree = engine.tree(TreeId::FS).expect("the top level");
    let is_it = |ino: &ObjectId| {
        let reference = Key::new(*ino, KeyType::INODE_REF, 256);
        let found = tree.get(&reference, Wait::Yes, |data| &data[10..] == name.as_bytes());
        found.expect("a readable tree") == Some(true)
    };
    let ino = (257..300).map(ObjectId::new).find(is_it).expect("somebody made it");
    let item = tree.get(&keys::inode_item(ino), Wait::Yes, InodeItem::decode);
    let item = item.expect("a readable tree").expect("an inode").expect("a valid item");
    Inode::new(InodeId::new(TreeId::FS, ino), alone(engine, tree, &delayed(delayed_bytes)), item)
}

/// An inode without a name that the tree has.
pub(crate) fn stored(engine: &Arc<Engine>, ino: u64, item: InodeItem) -> Inode {
    stored_with(engine, ino, item, &delayed(0))
}

/// An inode without a name that the tree has, in a filesystem with these options.
pub(crate) fn stored_with(engine: &Arc<Engine>, ino: u64, item: InodeItem, options: &FsOptions) -> Inode {
    let tree = engine.tree(TreeId::FS).expect("the top level");
    Inode::new(InodeId::new(TreeId::FS, ObjectId::new(ino)), alone(engine, tree, options), item)
}

/// Options: so many bytes of data may be delayed, and each answered direct request waits until the test completes it.
fn delayed(delayed_bytes: u64) -> FsOptions {
    FsOptions { delayed_bytes, direct_ends_at_once: false, ..FsOptions::default() }
}

/// The top level without a filesystem around it.
fn alone(engine: &Arc<Engine>, tree: Arc<Tree>, options: &FsOptions) -> SubvolumeRef {
    let context = Context::new(Arc::clone(engine), options);
    SubvolumeRef::new(Arc::new(Subvolume::new(tree, context, ObjectId::FIRST_FREE, false)))
}

/// A new, empty file without a name.
pub(crate) fn new_file(engine: &Arc<Engine>, ino: u64, flags: InodeFlags) -> Inode {
    new_delayed_file(engine, ino, flags, 0)
}

/// A new, empty file without a name, where so many bytes of data may be delayed.
pub(crate) fn new_delayed_file(
    engine: &Arc<Engine>,
    ino: u64,
    flags: InodeFlags,
    delayed_bytes: u64,
) -> Inode {
    new_file_with(engine, ino, flags, &delayed(delayed_bytes))
}

/// A new, empty file without a name, of a filesystem with these options.
pub(crate) fn new_file_with(engine: &Arc<Engine>, ino: u64, flags: InodeFlags, options: &FsOptions) -> Inode {
    new_inode(engine, ino, InodeItem { flags, ..InodeItem::default() }, options)
}

/// A new, empty directory without a name.
pub(crate) fn new_directory(engine: &Arc<Engine>, ino: u64) -> Inode {
    let mode = FileType::Directory.mode_bits();
    new_inode(engine, ino, InodeItem { mode, ..InodeItem::default() }, &delayed(0))
}

fn new_inode(engine: &Arc<Engine>, ino: u64, item: InodeItem, options: &FsOptions) -> Inode {
    let id = InodeId::new(TreeId::FS, ObjectId::new(ino));
    let tree = engine.tree(TreeId::FS).expect("the top level");
    in_handle(engine, ReserveItems::items(1), |handle| {
        tree.insert(handle, &keys::inode_item(id.ino), &item.encode())
    })
    .expect("a new inode");
    Inode::new(id, alone(engine, tree, options), item)
}

/// Searches for data or a hole in a file that is not open.
pub(crate) fn seek(inode: &Inode, item: &InodeItem, offset: u64, want: SeekTarget) -> Result<Option<u64>> {
    let held = inode.hold_extents(Wait::Yes)?;
    crate::seek::seek_within(&inode.file(), &held, item.size, (offset, want), None, &|| false)
}

/// Opens an inode.
pub(crate) fn opened(inode: Arc<Inode>) -> OpenFile {
    let subvolumes = Subvolumes::new(Arc::clone(inode.subvolume().context())).expect("the root tree");
    OpenFile::new(Arc::new(Inodes::new(subvolumes, 64)), inode)
}

/// Gives a file flags, whatever data it has.
pub(crate) fn set_flags(inode: &Inode, flags: InodeFlags) {
    in_handle(inode.engine(), ReserveItems::items(1), |handle| {
        inode.update(handle, |item| item.flags |= flags).map(drop)
    })
    .expect("room");
}

/// Puts an item of any bytes into a file.
pub(crate) fn put(engine: &Engine, inode: &Inode, at: u64, bytes: &[u8]) {
    in_handle(engine, ReserveItems::items(1), |handle| {
        inode.tree().upsert(handle, &extent_data(inode.id.ino, at), bytes)
    })
    .expect("an item");
}

/// The items of a file as text: `start+len` and their data, extents by letters in order of appearance.
pub(crate) fn items(inode: &Inode) -> String {
    let mut items = ExtentItems::new(inode.tree(), inode.id.ino, (0, u64::MAX), SECTOR, Wait::Yes)
        .expect("a readable tree");
    let mut text = Vec::new();
    let mut extents = Vec::new();
    while let Some(item) = items.next().expect("a readable tree") {
        let place = format!("{}+{}", item.start / SECTOR, (item.end - item.start) / SECTOR);
        text.push(match item.extent {
            FileExtentItem::Inline { ram_bytes, .. } => format!("{place} inline {ram_bytes}"),
            FileExtentItem::Hole { .. } => format!("{place} hole"),
            FileExtentItem::Regular(extent) | FileExtentItem::Prealloc(extent) => {
                let known = extents.iter().position(|start| *start == extent.disk_bytenr);
                let index = known.unwrap_or_else(|| {
                    extents.push(extent.disk_bytenr);
                    extents.len() - 1
                });
                let letter = char::from(b'a' + u8::try_from(index % 26).expect("below 26"));
                let prealloc = if matches!(item.extent, FileExtentItem::Prealloc(_)) { "~" } else { "" };
                let packed = if extent.compression == Compression::None { "" } else { "z" };
                format!("{place} {prealloc}{letter}{packed}@{}", extent.offset / SECTOR)
            }
        });
    }
    text.join(", ")
}

/// DATA-1 and the counts: no overlap, no gap without NO_HOLES, nbytes and size right, the stored item equal to the
/// one in memory.
pub(crate) fn audit(engine: &Engine, inode: &Inode, item: &InodeItem) {
    let sector = u64::from(engine.sector_size());
    let mut items = ExtentItems::new(inode.tree(), inode.id.ino, (0, u64::MAX), sector, Wait::Yes)
        .expect("a readable tree");
    let whole = item.size.next_multiple_of(sector);
    // Linux leaves an inline extent where it is when it preallocates behind it.
    let preallocated = item.flags.contains(InodeFlags::PREALLOC);
    let (mut nbytes, mut end, mut gap, mut count, mut inline) = (0, 0, false, 0, false);
    while let Some(found) = items.next().expect("a readable tree") {
        gap |= found.start > end && end < whole;
        end = found.end;
        count += 1;
        nbytes += match found.extent {
            FileExtentItem::Regular(_) | FileExtentItem::Prealloc(_) => found.end - found.start,
            FileExtentItem::Hole { .. } => 0,
            FileExtentItem::Inline { ram_bytes, .. } => {
                inline = true;
                assert!(preallocated || ram_bytes == item.size, "an inline file is all inline");
                ram_bytes
            }
        };
    }
    drop(items);
    assert!(!inline || count == 1 || preallocated, "an inline extent is alone");
    assert!(preallocated || end <= whole, "nothing lies behind the end");
    if !engine.incompat().contains(Incompat::NO_HOLES) {
        assert!(!gap && end >= whole, "every hole is an item");
    }
    assert_eq!(nbytes, item.nbytes);
    let stored = inode.tree().get(&keys::inode_item(inode.id.ino), Wait::Yes, InodeItem::decode);
    assert_eq!(&stored.expect("a readable tree").expect("an inode").expect("a valid item"), item);
}
