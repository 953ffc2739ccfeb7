//! Extents of one sector each, side by side, so that one checksum item stands for many: every other one is kept and read,
//! those between are freed.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};

use creamery_base::{ErrorKind, InodeId, Logical, ObjectId, TreeId, Wait};
use creamery_device::{Access, BlockDevice, Completion, DeviceId, FileDevice, MemoryDevice, Reply, Request};
use creamery_testkit::{Judge, Judges, Scratch};
use creamery_txn::{DataCsums, DataExtent, Engine, Handle, Options, ReserveItems};
use creamery_volume::{Mode, Volume, Written};

pub(crate) const SECTOR: usize = 4096;
const OWNER: InodeId = InodeId { subvolume: TreeId::FS, ino: ObjectId::new(1000) };

/// An image made by mkfs.btrfs; `None`, and a printed line, without that program.
pub(crate) fn empty_image() -> Option<Arc<MemoryDevice>> {
    if !Judges::here().have(&[Judge::BtrfsProgs]) {
        println!("skipped: btrfs-progs missing");
        return None;
    }
    let scratch = Scratch::new("neighbours").expect("a scratch folder");
    let image = scratch.file("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(128 << 20)).expect("an image");
    let options = ["-q", "-n", "4096", "-m", "single"];
    let made = Command::new("mkfs.btrfs").args(options).arg(&image).status().expect("mkfs.btrfs");
    assert!(made.success());
    let file = FileDevice::open(&image, Access::ReadWrite).expect("the image opens");
    Some(Arc::new(MemoryDevice::copy_of(&file).expect("it is read")))
}

/// A device whose writes go into memory of its own; the device below stays unchanged.
struct Overlay {
    below: Arc<MemoryDevice>,
    written: Mutex<BTreeMap<u64, [u8; SECTOR]>>, // innermost: nothing is called while it is held but `below`
}

impl Overlay {
    fn read(&self, sector: u64) -> [u8; SECTOR] {
        if let Some(bytes) = self.written.lock().expect("not poisoned").get(&sector) {
            return *bytes;
        }
        let mut bytes = [0; SECTOR];
        self.below.read_at(sector * SECTOR as u64, &mut bytes).expect("memory gives it");
        bytes
    }

    fn write(&self, sector: u64, bytes: [u8; SECTOR]) {
        self.written.lock().expect("not poisoned").insert(sector, bytes);
    }
}

impl BlockDevice for Overlay {
    fn submit(&self, request: Request, done: Completion) {
        let each = |offset: u64, len: usize| {
            let (first, end) = (offset / SECTOR as u64, (offset + len as u64).div_ceil(SECTOR as u64));
            assert_eq!(
                (offset, offset + len as u64),
                (first * SECTOR as u64, end * SECTOR as u64),
                "whole sectors"
            );
            (first..end).enumerate().map(|(index, sector)| (sector, index * SECTOR..(index + 1) * SECTOR))
        };
        done(Ok(match request {
            Request::Read { offset, mut buffer } => {
                for (sector, range) in each(offset, buffer.len()) {
                    buffer[range].copy_from_slice(&self.read(sector));
                }
                Reply::Read(buffer)
            }
            Request::Write { offset, data } => {
                let data = data.contiguous();
                for (sector, range) in each(offset, data.len()) {
                    self.write(sector, data[range].try_into().expect("a sector"));
                }
                Reply::Done
            }
            Request::Flush | Request::Discard { .. } => Reply::Done,
        }));
    }

    fn len(&self) -> u64 {
        self.below.len()
    }

    fn id(&self) -> DeviceId {
        self.below.id()
    }

    fn describe(&self) -> String {
        "memory".to_owned()
    }
}

/// The content of the sector at `at`.
fn content(at: Logical) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&at.get().to_le_bytes()));
    bytes
}

/// An engine on an image of its own.
pub(crate) struct World {
    pub(crate) engine: Arc<Engine>,
    device: Arc<Overlay>,
}

impl World {
    pub(crate) fn new(image: &Arc<MemoryDevice>) -> Self {
        Self::with(image, Options::default())
    }

    /// A world with `options`.
    pub(crate) fn with(image: &Arc<MemoryDevice>, options: Options) -> Self {
        let device = Arc::new(Overlay { below: Arc::clone(image), written: Mutex::default() });
        let volume =
            Volume::open(vec![Arc::<Overlay>::clone(&device)], Mode::ReadWrite).expect("a filesystem");
        let options = Options { cache_bytes: 1 << 20, ..options };
        Self { engine: Engine::open(volume, options).expect("writable"), device }
    }

    fn allocate(&self) -> (DataExtent, Written) {
        let extent =
            self.engine.allocate_data(TreeId::FS, SECTOR as u64, SECTOR as u64, None).expect("space");
        let written = self.engine.data().write(&extent, &content(extent.start())).expect("memory takes it");
        (extent, written)
    }

    /// Writes `sectors` extents and commits. They lie side by side where that much is free.
    pub(crate) fn fill(&self, sectors: usize) -> Vec<Logical> {
        let kind = self.engine.checksum_type();
        let all: Vec<Logical> = (0..sectors)
            .map(|_| {
                let (extent, written) = self.allocate();
                let at = extent.start();
                let csum = creamery_codec::checksum(kind, &content(at));
                self.complete(extent, written, Some(csum.as_bytes(kind)));
                at
            })
            .collect();
        self.engine.commit().expect("a commit");
        all
    }

    fn complete(&self, extent: DataExtent, written: Written, csums: Option<&[u8]>) {
        let at = extent.start().get();
        let handle = self.engine.start(ReserveItems::items(2)).expect("room");
        handle.complete_data(extent, written, OWNER, at, csums).expect("room");
        handle.end();
    }

    /// An extent without a checksum.
    #[allow(dead_code)] // not in every test
    pub(crate) fn without_csum(&self) -> Logical {
        let (extent, written) = self.allocate();
        let at = extent.start();
        self.complete(extent, written, None);
        at
    }

    /// Drops the only reference to the extent at `at`, when `handle` ends.
    pub(crate) fn give_up(&self, handle: &Handle<'_>, at: Logical) {
        handle.drop_data_ref(at, SECTOR as u64, OWNER, at.get());
    }

    /// Drops the only reference to the extent at `at`; the next commit frees it.
    pub(crate) fn free(&self, at: Logical) {
        let handle = self.engine.start(ReserveItems::freeing(1)).expect("room");
        self.give_up(&handle, at);
        handle.end();
    }

    /// Changes a bit of the sector at `at` on the device.
    pub(crate) fn rot(&self, at: Logical) {
        let chunk = self.engine.volume().chunk_at(at).expect("a chunk");
        let physical = chunk.stripes[0].offset + (at.get() - chunk.start.get());
        let mut bytes = self.device.read(physical / SECTOR as u64);
        assert_eq!(bytes, content(at), "data has one copy");
        bytes[100] ^= 1;
        self.device.write(physical / SECTOR as u64, bytes);
    }

    /// Reads the extent at `at`, which is in use: the data is as written.
    pub(crate) fn read_good(&self, at: Logical) {
        let mut bytes = [0; SECTOR];
        self.engine.data().read(at, &mut bytes, DataCsums::Present, Wait::Yes).expect("good data");
        assert_eq!(bytes, content(at));
    }

    /// Reads the extent at `at`, which is in use and rotten: the read fails.
    pub(crate) fn read_rotten(&self, at: Logical) {
        let error = self
            .engine
            .data()
            .read(at, &mut [0; SECTOR], DataCsums::Present, Wait::Yes)
            .expect_err("it is rotten");
        assert_eq!(error.kind(), ErrorKind::Unreadable, "{error}");
    }
}
