//! The filesystems that fuzzing damages: small, made by our own mkfs, and equal in every process.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use creamery::mkfs::Profile;
use creamery_base::{Generation, InodeId, Logical, QgroupId, TreeId, Wait};
use creamery_device::BlockDevice;
use creamery_format::{
    BlockRef, Expected, Key, KeyType, RawRootItem, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, Superblock,
};
use creamery_fs::{DeviceNumber, Filesystem, NewInode, NewKind, QuotaChange, SetAttributes, XattrMode};
use creamery_sim::{Image, MadeBy, SimDevice, fresh_image, open, with_log};
use creamery_volume::{Chunk, Mode, Volume};

/// Bytes of a node: small nodes make trees of several levels from few files.
pub(crate) const NODE: usize = 4096;

/// A tree block of a base image.
#[derive(Clone)]
pub(crate) struct Block {
    /// Device offsets of its copies.
    pub(crate) copies: Vec<u64>,
    pub(crate) logical: Logical,
    /// The block that points to it, as a position in [`Base::blocks`].
    pub(crate) parent: Option<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// A filesystem, and its tree blocks.
pub(crate) struct Base {
    pub(crate) image: Image,
    /// The blocks, parents before their children.
    pub(crate) blocks: Vec<Block>,
    /// Offsets of superblock copies, and the bytes of the first one.
    pub(crate) superblocks: Vec<u64>,
    pub(crate) superblock: Vec<u8>,
}

/// Base images, made on first use.
pub(crate) fn base(number: usize) -> &'static Base {
    static BASES: [OnceLock<Base>; 2] = [OnceLock::new(), OnceLock::new()];
    let number = number % BASES.len();
    BASES[number].get_or_init(|| {
        let metadata = if number == 0 { Profile::Single } else { Profile::Dup };
        Base::new(&MadeBy { node_size: NODE as u32, metadata, ..MadeBy::default() })
    })
}

/// The first base image with a log; its blocks are those of the log.
pub(crate) fn base_with_log() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let logged = with_log(&base(0).image, SEED_OF_LOG).expect("our own trees can be walked");
        Base::of(logged, |blocks| {
            let superblock = blocks.superblock.clone();
            let (root, level) = superblock.log_root().expect("a log was made");
            blocks.tree(TreeId::TREE_LOG, (root, level, superblock.generation().next()))
        })
    })
}

/// A filesystem with full quotas, a few groups, and a snapshot; its blocks are those of the quota tree.
pub(crate) fn base_with_quotas() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let made_by = MadeBy { node_size: NODE as u32, metadata: Profile::Single, ..MadeBy::default() };
        let device =
            Arc::new(SimDevice::new(fresh_image(&made_by).expect("mkfs of a device that never fails")));
        fill(&device).and_then(|()| add_quotas(&device)).expect("a filesystem of our own has quotas");
        let mut image = device.image();
        image.freeze();
        let mut base = Base::of(image, Blocks::all);
        base.blocks.retain(|block| BlockRef::new(&block.bytes).owner() == TreeId::QUOTA);
        assert_eq!(base.blocks.len(), 1, "so few groups are in one block");
        base
    })
}

fn add_quotas(device: &Arc<SimDevice>) -> creamery_base::Result<()> {
    let fs = open(device)?;
    let group = |level, number| QgroupId::new(level, number).expect("small");
    fs.change_quotas(&QuotaChange::Enable { simple: false }, TreeId::FS)?;
    while fs.quota_rescan_step()? {}
    for (level, number) in [(1, 0), (1, 1), (2, 0)] {
        fs.change_quotas(&QuotaChange::Create(group(level, number)), TreeId::FS)?;
    }
    fs.change_quotas(&QuotaChange::Assign { member: group(1, 0), group: group(2, 0) }, TreeId::FS)?;
    let root = fs.root(TreeId::FS)?;
    let home = fs.lookup(root, b"home", Wait::Yes)?;
    fs.create_snapshot_in_groups(home.subvolume, root, b"before", false, &[group(1, 0)])?;
    put(&fs, home, "more", &plain(20_000))?;
    fs.sync()?;
    fs.engine().volume().close()
}

/// The seed of a log with a little of everything.
const SEED_OF_LOG: u64 = 3;

impl Base {
    fn new(how: &MadeBy) -> Self {
        let device = Arc::new(SimDevice::new(fresh_image(how).expect("mkfs of a device that never fails")));
        fill(&device).expect("a filesystem of our own takes files");
        let mut image = device.image();
        image.freeze();
        Self::of(image, Blocks::all)
    }

    /// An image with the blocks that `find` finds.
    fn of(image: Image, find: impl FnOnce(&mut Blocks) -> creamery_base::Result<()>) -> Self {
        let superblocks: Vec<u64> =
            SUPERBLOCK_OFFSETS.into_iter().filter(|at| at + (SUPERBLOCK_LEN as u64) <= image.len()).collect();
        let mut superblock = vec![0; SUPERBLOCK_LEN];
        image.read(SUPERBLOCK_OFFSETS[0], &mut superblock);
        let device: Arc<dyn BlockDevice> = Arc::new(SimDevice::new(image.clone()));
        let blocks = Blocks::of(device, find).expect("our own trees can be walked");
        Self { image, blocks, superblocks, superblock }
    }

    /// A device with the unchanged image.
    pub(crate) fn device(&self) -> Arc<SimDevice> {
        Arc::new(SimDevice::new(self.image.clone()))
    }
}

/// Bytes that compress, and the source of compressed data.
pub(crate) fn plain(len: usize) -> Vec<u8> {
    b"the cream rises, ".iter().copied().cycle().take(len).collect()
}

fn put(fs: &Filesystem, dir: InodeId, name: &str, content: &[u8]) -> creamery_base::Result<InodeId> {
    let id = fs.create(dir, name.as_bytes(), &NewInode::file(0o644))?.id;
    let file = fs.open_file(id)?;
    let mut done = 0;
    while done < content.len() {
        done += file.write_at(done as u64, &content[done..])?;
    }
    fs.close(file);
    Ok(id)
}

/// Makes one file of every kind.
fn fill(device: &Arc<SimDevice>) -> creamery_base::Result<()> {
    let fs = open(device)?;
    let root = fs.root(fs.default_subvolume())?;
    let directory = NewInode::directory(0o755);
    let mut deep = root;
    for level in 0..6 {
        deep = fs.create(deep, format!("level{level}").as_bytes(), &directory)?.id;
        put(&fs, deep, "inline", &plain(40 + level))?;
    }
    let many = fs.create(root, b"many", &directory)?.id;
    for number in 0..60_usize {
        put(&fs, many, &format!("file-{number:03}"), &plain(number * number * 3))?;
    }
    let large = put(&fs, root, "large", &plain(300_000))?;
    for (kind, packed) in crate::codec::packed(&plain(16_384)) {
        // It becomes compressed data once the fuzzer changes its type.
        put(&fs, root, &kind.to_string(), &[packed, vec![0; 4096]].concat()[..4096])?;
    }
    let sparse = put(&fs, root, "sparse", &plain(5000))?;
    fs.set_attributes(sparse, &SetAttributes { size: Some(1 << 30), ..SetAttributes::default() })?;
    for number in 0..5 {
        fs.link(large, many, format!("link-{number}").as_bytes())?;
    }
    let special = [
        ("symlink", NewKind::Symlink(b"level0/level1/inline")),
        ("circle", NewKind::Symlink(b"circle")),
        ("fifo", NewKind::Fifo),
        ("socket", NewKind::Socket),
        ("device", NewKind::CharDevice(DeviceNumber { major: 1, minor: 3 })),
    ];
    for (name, kind) in special {
        fs.create(root, name.as_bytes(), &NewInode { kind, ..NewInode::file(0o777) })?;
    }
    for number in 0..4 {
        let name = format!("user.name{number}");
        fs.set_xattr(large, name.as_bytes(), &plain(30 * number), XattrMode::Any)?;
    }
    let home = fs.create_subvolume(root, b"home", &directory)?;
    put(&fs, home, "letter", &plain(9000))?;
    fs.sync()?;
    for number in (0..60).step_by(7) {
        fs.unlink(many, format!("file-{number:03}").as_bytes())?;
    }
    fs.sync()?;
    fs.engine().volume().close()
}

/// Finds all tree blocks.
struct Blocks {
    volume: Volume,
    superblock: Superblock,
    seen: HashSet<Logical>,
    found: Vec<Block>,
    roots: Vec<(TreeId, RawRootItem)>,
}

impl Blocks {
    /// The blocks that `find` finds. All chunks are known by then.
    fn of(
        device: Arc<dyn BlockDevice>,
        find: impl FnOnce(&mut Self) -> creamery_base::Result<()>,
    ) -> creamery_base::Result<Vec<Block>> {
        let volume = Volume::open(vec![device], Mode::ReadOnly)?;
        let superblock = volume.superblock();
        let (found, roots) = (Vec::new(), Vec::new());
        let mut blocks = Self { volume, superblock, seen: HashSet::new(), found, roots };
        let chunk_root = blocks.superblock.chunk_root();
        blocks.tree(TreeId::CHUNK, chunk_root)?;
        blocks.found.clear();
        blocks.seen.clear();
        find(&mut blocks)?;
        while let Some((tree, item)) = blocks.roots.pop() {
            blocks.tree(tree, (item.root(), item.level, item.root_generation()))?;
        }
        Ok(blocks.found)
    }

    /// Finds the blocks of all trees but logs.
    fn all(&mut self) -> creamery_base::Result<()> {
        let (chunk_root, (root, level)) = (self.superblock.chunk_root(), self.superblock.root());
        self.tree(TreeId::CHUNK, chunk_root)?;
        self.tree(TreeId::ROOT, (root, level, self.superblock.generation()))
    }

    fn tree(&mut self, tree: TreeId, root: (Logical, u8, Generation)) -> creamery_base::Result<()> {
        let mut waiting = vec![(root, None)];
        while let Some(((logical, level, generation), parent)) = waiting.pop() {
            if !self.seen.insert(logical) {
                continue;
            }
            let want = Expected {
                logical,
                level: Some(level),
                generation: Some(generation),
                owner: Some(tree),
                first_key: None,
                fsid: self.superblock.metadata_uuid(),
                checksum: self.superblock.checksum_type(),
            };
            let bytes = self.volume.read_tree_block(logical, &want, Wait::Yes)?.to_vec();
            let copies = self.volume.map(logical, bytes.len() as u64)?;
            let copies = copies.mirrors().iter().map(|mirror| mirror[0].at.offset).collect();
            let block = BlockRef::new(&bytes);
            let here = Some(self.found.len());
            for slot in 0..block.count() {
                if block.is_leaf() {
                    self.item(block.key(slot), block.data(slot))?;
                } else {
                    let (child, generation) = block.child(slot);
                    waiting.push(((child, level - 1, generation), here));
                }
            }
            self.found.push(Block { copies, logical, parent, bytes });
        }
        Ok(())
    }

    fn item(&mut self, key: Key, data: &[u8]) -> creamery_base::Result<()> {
        if key.kind == KeyType::CHUNK_ITEM {
            let chunk = Chunk::from_item(Logical::new(key.offset), data, self.superblock.sector_size())?;
            self.volume.push_chunk(chunk)?;
        } else if key.kind == KeyType::ROOT_ITEM {
            let item = RawRootItem::from_item(data).expect("root items of our own");
            self.roots.push((TreeId::from(key.objectid), item));
        }
        Ok(())
    }
}
