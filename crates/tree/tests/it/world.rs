//! A tree with nothing around it: a volume of one device in memory, made by hand, and a transaction that only
//! hands out addresses.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use creamery_base::{DevId, ErrorKind, Generation, Logical, ObjectId, Result, TreeId, Uuid, Wait};
use creamery_device::{AlignedBuffer, BlockDevice, MemoryDevice};
use creamery_format::{
    BlockGroupFlags, BlockRef, Expected, Incompat, Key, KeyType, MAGIC, RawDevItem, RawKey, RawSuperblock,
    SUPERBLOCK_OFFSETS, SuperFlags, Superblock, seal,
};
use creamery_tree::{BlockReferences, BufferStore, CowHost, FreedBlock, RootPointer, Tree};
use creamery_volume::{Chunk, Mode, Stripe, Volume, WriteBatch};
use zerocopy::IntoBytes;

pub(crate) const NODE: u32 = 4096;
const DEVICE: u64 = 4 << 30;
/// The only chunk: its addresses are those on the device, behind the superblock's second copy.
const CHUNK: u64 = 128 << 20;
const TREE: TreeId = TreeId::FS;

/// A transaction, as far as a tree needs one.
pub(crate) struct Host {
    generation: AtomicU64,
    next: AtomicU64,
    /// Addresses that no block on the device or in the cache has any more.
    free: Mutex<Vec<Logical>>,
    /// Freed by this transaction. Not handed out again while a reader may read an earlier state.
    pinned: Mutex<Vec<(Generation, Logical)>>,
    used: Mutex<BTreeSet<Logical>>,
    fault: Mutex<Option<(u64, Fault)>>,
}

/// A fault in place of an address.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    NoSpace,
    Panic,
}

impl Host {
    /// Sets a fault that comes once, after `after` more addresses.
    pub(crate) fn set_fault(&self, after: u64, fault: Fault) {
        *self.fault.lock().unwrap() = Some((after, fault));
    }

    /// Clears the fault. Returns whether it came.
    pub(crate) fn fault_came(&self) -> bool {
        self.fault.lock().unwrap().take().is_none()
    }

    /// Counts a block that a test put on the device as one of the tree's.
    pub(crate) fn adopt(&self, at: Logical) {
        assert!(self.used.lock().unwrap().insert(at), "{at} is in use");
    }

    fn due_fault(&self) -> Option<Fault> {
        let mut fault = self.fault.lock().unwrap();
        let (after, what) = (*fault)?;
        *fault = after.checked_sub(1).map(|after| (after, what));
        fault.is_none().then_some(what)
    }

    /// The number of addresses given out and not given back.
    pub(crate) fn blocks_in_use(&self) -> u64 {
        self.used.lock().unwrap().len() as u64
    }
}

impl CowHost for Host {
    fn generation(&self) -> Generation {
        Generation::new(self.generation.load(Ordering::Relaxed))
    }

    fn allocate(&self, _tree: TreeId, _level: u8, _hint: Logical) -> Result<Logical> {
        match self.due_fault() {
            Some(Fault::NoSpace) => return Err(ErrorKind::NoSpace.into()),
            Some(Fault::Panic) => panic!("a thread dies while it changes a tree"),
            None => {}
        }
        let at = self
            .free
            .lock()
            .unwrap()
            .pop()
            .unwrap_or_else(|| Logical::new(self.next.fetch_add(u64::from(NODE), Ordering::Relaxed)));
        assert!(at.get() + u64::from(NODE) <= DEVICE, "the device is full");
        assert!(self.used.lock().unwrap().insert(at), "{at} is in use");
        Ok(at)
    }

    fn free(&self, block: FreedBlock) -> Result<()> {
        assert!(block.last_reference, "nothing is shared here");
        assert!(self.used.lock().unwrap().remove(&block.logical), "{} is not in use", block.logical);
        self.pinned.lock().unwrap().push((self.generation(), block.logical));
        Ok(())
    }

    fn references(&self, _at: Logical, _level: u8, _wait: Wait) -> Result<BlockReferences> {
        Ok(BlockReferences { count: 1, full_backref: false })
    }

    fn add_references(&self, _tree: TreeId, _block: BlockRef<'_>, _by_parent: bool) -> Result<()> {
        panic!("nothing is shared here")
    }

    fn drop_references(&self, _tree: TreeId, _block: BlockRef<'_>, _by_parent: bool) -> Result<()> {
        panic!("nothing is shared here")
    }

    fn set_full_backref(&self, _at: Logical, _level: u8) -> Result<()> {
        panic!("nothing is shared here")
    }
}

/// A tree, its buffers and its transaction.
pub(crate) struct World {
    pub(crate) volume: Arc<Volume>,
    pub(crate) store: Arc<BufferStore>,
    pub(crate) host: Host,
    pub(crate) tree: Tree,
}

impl World {
    /// An empty tree in nodes of [`NODE`] bytes, with a cache of about `cache_bytes` for clean blocks.
    pub(crate) fn new(cache_bytes: u64) -> Self {
        let volume = Arc::new(volume());
        let store = Arc::new(BufferStore::new(Arc::clone(&volume), cache_bytes, Uuid::from_bytes([3; 16])));
        let host = Host {
            generation: AtomicU64::new(7),
            next: AtomicU64::new(CHUNK),
            free: Mutex::default(),
            pinned: Mutex::default(),
            used: Mutex::default(),
            fault: Mutex::default(),
        };
        let tree = Tree::create(Arc::clone(&store), TREE, &host).expect("a new tree");
        Self { volume, store, host, tree }
    }

    /// Writes all changed blocks and begins the next generation. No other thread may change the tree meanwhile.
    pub(crate) fn commit(&self) {
        assert!(!self.store.is_poisoned(), "a half-edited block must not be written");
        for batch in self.store.take_dirty().expect("no damage").chunks(64) {
            let mut blocks = WriteBatch::default();
            for buffer in batch {
                let mut guard = Arc::clone(buffer).write();
                guard.seal(self.volume.checksum_type());
                let copy = AlignedBuffer::from_slice(guard.block().bytes());
                blocks.add_tree_block(buffer.logical(), copy.into());
            }
            let written = self.volume.write(blocks).expect("every block passes the check");
            assert!(written.failures().is_empty());
            self.store.written(batch);
        }
        assert_eq!(self.store.dirty_bytes(), 0);
        self.store.readers().advance(self.host.generation());
        self.host.generation.fetch_add(1, Ordering::Relaxed);
        let unread = self.store.readers().unread();
        let mut pinned = self.host.pinned.lock().unwrap();
        let is_unread = |freed: &mut (Generation, Logical)| freed.0 <= unread;
        self.host.free.lock().unwrap().extend(pinned.extract_if(.., is_unread).map(|(_, at)| at));
    }

    /// Seals a block that the test made, and writes it to its place on the device.
    pub(crate) fn write_block(&self, at: Logical, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        seal(&mut bytes, self.volume.checksum_type());
        let device = self.volume.device(DevId::new(1)).expect("the device");
        device.write_at(at.get(), &bytes).expect("memory takes it");
    }

    /// Expects any whole block at an address.
    pub(crate) fn anything_at(&self, logical: Logical) -> Expected {
        Expected {
            logical,
            level: None,
            generation: None,
            owner: None,
            first_key: None,
            fsid: self.volume.metadata_uuid(),
            checksum: self.volume.checksum_type(),
        }
    }

    /// The bytes of a committed block.
    pub(crate) fn block_on_device(&self, at: Logical) -> Vec<u8> {
        let device = self.volume.device(DevId::new(1)).expect("the device");
        let mut bytes = vec![0; NODE as usize];
        device.read_at(at.get(), &mut bytes).expect("memory gives it");
        bytes
    }

    /// Opens the tree as it is on the device after a commit, with an empty cache.
    pub(crate) fn reopen(&mut self) {
        let (root, blocks) = (self.tree.root_pointer().expect("the root"), self.tree.blocks());
        self.reopen_at(root, blocks);
    }

    /// Opens a committed tree with this root and number of blocks, with an empty cache.
    pub(crate) fn reopen_at(&mut self, root: RootPointer, blocks: u64) {
        self.store = Arc::new(BufferStore::new(Arc::clone(&self.volume), 1 << 20, Uuid::from_bytes([3; 16])));
        let open = |blocks| {
            Tree::open(Arc::clone(&self.store), TREE, root, blocks, Generation::new(0)).expect("it opens")
        };
        let reckoned = open(0).blocks();
        let near = if root.level <= 1 { reckoned == blocks } else { 2 * reckoned >= blocks };
        assert!(near, "{reckoned} blocks below a root of level {}, which are {blocks}", root.level);
        self.tree = open(blocks);
        assert_eq!((self.tree.blocks_to_copy(), self.tree.own_blocks()), (blocks, 0));
    }
}

/// A key of a type that no format defines, so that its data is free.
pub(crate) fn key(object: u64, offset: u64) -> Key {
    Key::new(ObjectId::new(object), KeyType::new(100), offset)
}

/// A sequence of numbers that follows from its seed (xorshift).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Up to `end` bytes that repeat one value.
    pub(crate) fn bytes(&mut self, end: usize) -> Vec<u8> {
        let len = usize::try_from(self.below(end as u64)).expect("small");
        vec![u8::try_from(self.next() & 255).expect("a byte"); len]
    }
}

fn volume() -> Volume {
    let device = MemoryDevice::new(DEVICE);
    let (fsid, dev_uuid) = ([1; 16], Uuid::from_bytes([2; 16]));
    let dev_item = RawDevItem {
        devid: 1.into(),
        total_bytes: DEVICE.into(),
        bytes_used: (DEVICE - CHUNK).into(),
        sector_size: 4096.into(),
        io_align: 4096.into(),
        io_width: 4096.into(),
        uuid: dev_uuid.into_bytes(),
        fsid,
        ..Default::default()
    };
    let raw = RawSuperblock {
        fsid,
        flags: SuperFlags::WRITTEN.bits().into(),
        magic: MAGIC,
        generation: 7.into(),
        root: CHUNK.into(),
        chunk_root: CHUNK.into(),
        total_bytes: DEVICE.into(),
        root_dir_objectid: ObjectId::ROOT_TREE_DIR.get().into(),
        num_devices: 1.into(),
        sectorsize: 4096.into(),
        nodesize: NODE.into(),
        leafsize: NODE.into(),
        stripesize: 4096.into(),
        chunk_root_generation: 7.into(),
        incompat_flags: (Incompat::MIXED_BACKREF | Incompat::EXTENDED_IREF | Incompat::SKINNY_METADATA)
            .bits()
            .into(),
        dev_item,
        ..Default::default()
    };
    let stripe = Stripe { dev: DevId::new(1), offset: CHUNK, dev_uuid };
    let flags = BlockGroupFlags::SYSTEM;
    let chunk = Chunk::new(Logical::new(CHUNK), DEVICE - CHUNK, flags, 4096, vec![stripe]);
    let chunk_key = Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, CHUNK);
    let raw = with_sys_chunk(raw, &chunk_key, &chunk.to_item());
    let superblock = Superblock::from_raw(raw).expect("a superblock");
    let at = SUPERBLOCK_OFFSETS[0];
    device.write_at(at, &superblock.to_bytes(at)).expect("memory takes it");
    Volume::open(vec![Arc::new(device)], Mode::ReadWrite).expect("a volume")
}

fn with_sys_chunk(mut raw: RawSuperblock, key: &Key, item: &[u8]) -> RawSuperblock {
    let entry = [RawKey::from(*key).as_bytes(), item].concat();
    raw.sys_chunk_array[..entry.len()].copy_from_slice(&entry);
    raw.sys_chunk_array_size = u32::try_from(entry.len()).expect("one chunk").into();
    raw
}
