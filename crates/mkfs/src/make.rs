//! Writes an empty filesystem.
//!
//! All trees are built in memory (a dozen blocks), written to every copy of their chunks, and made durable before the first superblock is
//! written. The former content of the device is gone by then: old superblocks are wiped first, so a run that dies in between leaves no
//! filesystem rather than a mixture of two.

use creamery_base::{Env, Error, ErrorKind, Generation, Result, TreeId, Uuid};
use creamery_codec::ChecksumType;
use creamery_device::{BlockDevice, PartitionTable};
use creamery_format::{Expected, SUPERBLOCK_OFFSETS, verify_block};

use crate::bulk::{Block, Item, Stamp, build, shape};
use crate::layout::{Layout, PlannedChunk};
use crate::options::Profile;
use crate::signature::find_signature;
use crate::superblock;
use crate::trees::{Placed, Plan, RootAt, root_of};
use crate::{Features, MkfsOptions};

/// The generation of a new filesystem.
const FIRST_GENERATION: Generation = Generation::new(1);
/// Bytes that are wiped at either end of the device: every known signature lies there.
const WIPE: u64 = 2 << 20;

/// The result of making a filesystem.
///
/// ```
/// use creamery_base::{FixedEnv, Timespec};
/// use creamery_device::MemoryDevice;
/// use creamery_mkfs::{make_filesystem, MkfsOptions};
/// let device = MemoryDevice::new(256 << 20);
/// let env = FixedEnv::new(Timespec { sec: 1_700_000_000, nsec: 0 }, 1);
/// let made = make_filesystem(&device, &MkfsOptions::default(), &env)?;
/// assert_eq!((made.total_bytes, made.node_size), (256 << 20, 16384));
/// // A second run refuses to overwrite it.
/// assert!(make_filesystem(&device, &MkfsOptions::default(), &env).is_err());
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Made {
    /// The filesystem's UUID.
    pub uuid: Uuid,
    /// Its label.
    pub label: Vec<u8>,
    /// Its size, bytes.
    pub total_bytes: u64,
    /// Bytes of a tree block.
    pub node_size: u32,
    /// Bytes of a data block.
    pub sector_size: u32,
    /// The checksum of tree blocks and data.
    pub checksum: ChecksumType,
    /// The features it has.
    pub features: Features,
    /// Profiles of data and of metadata.
    pub profiles: (Profile, Profile),
}

/// Writes an empty filesystem to `device`. Equal options, UUID and environment give equal bytes.
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) for invalid options, and for a size beyond the device; [`NoSpace`](ErrorKind::NoSpace) for a
/// device that is too small; [`AlreadyExists`](ErrorKind::AlreadyExists) if the device has content and [`MkfsOptions::force`] is not set.
/// In these cases nothing is changed. Also the device's errors.
pub fn make_filesystem(device: &dyn BlockDevice, options: &MkfsOptions, env: &dyn Env) -> Result<Made> {
    let plan = check(device, options, env)?;
    write(device, options, &plan)
}

/// Writes the filesystem of a plan. The former content is gone, also if this fails.
pub(crate) fn write(device: &dyn BlockDevice, options: &MkfsOptions, plan: &Plan) -> Result<Made> {
    wipe(device, options)?;
    let trees = build_trees(plan, options);
    for block in &trees.blocks {
        write_block(device, plan, options, block)?;
    }
    device.flush()?;
    let superblock = superblock::build(plan, options, &trees);
    superblock::write(device, &superblock)?;
    device.flush()?;
    Ok(Made {
        uuid: plan.fsid,
        label: options.label.clone(),
        total_bytes: plan.total_bytes,
        node_size: plan.geometry.node_size,
        sector_size: plan.geometry.sector_size,
        checksum: options.checksum,
        features: options.features,
        profiles: (options.data_profile(), options.metadata_profile()),
    })
}

/// Makes all refusals, before a byte is written.
pub(crate) fn check(device: &dyn BlockDevice, options: &MkfsOptions, env: &dyn Env) -> Result<Plan> {
    let geometry = options.geometry()?;
    let wanted = options.total_bytes.unwrap_or_else(|| device.len());
    let sector = u64::from(geometry.sector_size);
    // A new file has the requested size in whole sectors.
    let total_bytes = wanted / sector * sector;
    if total_bytes > device.len() {
        let context = format!("{} has {} bytes, expected {wanted}", device.describe(), device.len());
        return Err(Error::invalid(context));
    }
    let layout = Layout::plan(total_bytes, options).map_err(|error| error.context(device.describe()))?;
    refuse_foreign(device, options)?;
    Ok(Plan {
        generation: FIRST_GENERATION,
        now: env.now(),
        owner: options.owner,
        fsid: options.uuid.unwrap_or_else(|| env.uuid()),
        device_uuid: options.device_uuid.unwrap_or_else(|| env.uuid()),
        chunk_tree_uuid: env.uuid(),
        fs_tree_uuid: env.uuid(),
        geometry,
        total_bytes,
        layout,
    })
}

/// Refuses a device with content, unless that is to be overwritten.
pub(crate) fn refuse_foreign(device: &dyn BlockDevice, options: &MkfsOptions) -> Result<()> {
    if options.force {
        return Ok(());
    }
    let found = match find_signature(device)? {
        Some(found) => found.to_owned(),
        // A partition table of which only the copy at the end is left.
        None => match PartitionTable::read(device) {
            Ok(None) => return Ok(()),
            Ok(Some(table)) => format!("a disk with a {} partition table", table.kind),
            Err(error) => error.without_kind(),
        },
    };
    let context = format!("{} holds {found}", device.describe());
    Err(Error::new(ErrorKind::AlreadyExists, context))
}

/// Removes the former content: superblocks first, then everything (by discarding) or at least both ends.
fn wipe(device: &dyn BlockDevice, options: &MkfsOptions) -> Result<()> {
    let len = device.len();
    for at in SUPERBLOCK_OFFSETS {
        if let Some(left) = len.checked_sub(at) {
            device.zero(at, left.min(4096))?;
        }
    }
    device.flush()?;
    if !options.keep_content {
        match device.discard(0, len) {
            Err(error) if error.kind() != ErrorKind::Unsupported => return Err(error),
            _ => {} // a device without discards keeps its content, which does no harm
        }
    }
    device.zero(0, len.min(WIPE))?;
    let tail = len.saturating_sub(WIPE);
    device.zero(tail, len - tail)
}

/// The finished blocks of all trees, and the root of each.
pub(crate) struct Trees {
    pub(crate) blocks: Vec<Block>,
    pub(crate) roots: Vec<RootAt>,
}

impl Trees {
    pub(crate) fn root(&self, tree: TreeId) -> RootAt {
        *self.roots.iter().find(|root| root.tree == tree).expect("every tree was built")
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.bytes.len() as u64).sum()
    }
}

/// The items of all trees, for blocks at the places in `placed`, in the order in which the trees get addresses. The bytes of a tree's items
/// depend on the number of blocks, never on their places.
fn all_items(plan: &Plan, options: &MkfsOptions, placed: &[Placed]) -> Vec<(TreeId, Vec<Item>)> {
    let mut extents = plan.extent_items(placed);
    let groups = plan.block_group_items(placed);
    let mut trees = vec![
        (TreeId::CHUNK, plan.chunk_tree()),
        (TreeId::DEV, plan.dev_tree()),
        (TreeId::FS, plan.subvolume_tree()),
        (TreeId::CSUM, Vec::new()),
        (TreeId::UUID, plan.uuid_tree()),
        (TreeId::DATA_RELOC, plan.subvolume_tree()),
        (TreeId::FREE_SPACE, plan.free_space_tree(placed)),
    ];
    if options.features.quota || options.features.simple_quota {
        trees.push((TreeId::QUOTA, plan.quota_tree(options.features.simple_quota)));
    }
    if options.features.block_group_tree {
        trees.push((TreeId::BLOCK_GROUP, groups));
    } else {
        extents.extend(groups);
        extents.sort_by_key(|item| item.0);
    }
    trees.push((TreeId::EXTENT, extents));
    let ids: Vec<_> = trees.iter().map(|tree| tree.0).collect();
    let roots: Vec<_> = ids.into_iter().map(|tree| root_of(tree, placed, plan.geometry)).collect();
    trees.push((TreeId::ROOT, plan.root_tree(&roots)));
    trees
}

/// Places every block of these trees: the chunk tree's in the SYSTEM chunk, all others in the metadata chunk, both from its start without
/// gaps.
fn place(plan: &Plan, trees: &[(TreeId, Vec<Item>)]) -> Vec<Placed> {
    let node_size = plan.geometry.node_size;
    let (system, metadata) = plan.layout.homes();
    let row = |chunk: &PlannedChunk| {
        let (start, end) = (chunk.logical, chunk.logical + chunk.len);
        (0..).map(move |n| start + n * u64::from(node_size)).take_while(move |&at| at < end)
    };
    let (mut system, mut metadata) = (row(system), row(metadata));
    let mut placed = Vec::new();
    for (owner, items) in trees {
        let sizes = items.iter().map(|item| item.1.len());
        for (level, count) in (0_u8..).zip(shape(sizes, node_size as usize)) {
            for _ in 0..count {
                let next = if *owner == TreeId::CHUNK { system.next() } else { metadata.next() };
                let logical = next.expect("the first chunks have room for a few blocks");
                placed.push(Placed { logical, level, owner: *owner });
            }
        }
    }
    placed
}

fn build_trees(plan: &Plan, options: &MkfsOptions) -> Trees {
    // The extent tree has an item for every block, also for its own: repeat until their number is stable. It grows by one block per
    // hundreds of items, so that happens at once.
    const ROUNDS_MAX: u32 = 10;
    let mut placed = place(plan, &all_items(plan, options, &[]));
    let mut rounds = 0;
    let trees = loop {
        rounds += 1;
        assert!(rounds < ROUNDS_MAX);
        let trees = all_items(plan, options, &placed);
        let again = place(plan, &trees);
        if again == placed {
            break trees;
        }
        placed = again;
    };
    let stamp = Stamp {
        node_size: plan.geometry.node_size as usize,
        generation: plan.generation,
        fsid: plan.fsid,
        chunk_tree_uuid: plan.chunk_tree_uuid,
        checksum: options.checksum,
    };
    let mut blocks = Vec::new();
    let mut roots = Vec::new();
    for (tree, items) in trees {
        let mut addresses = placed.iter().filter(|block| block.owner == tree).map(|block| block.logical);
        blocks.extend(build(tree, &items, &mut addresses, &stamp));
        roots.push(root_of(tree, &placed, plan.geometry));
    }
    Trees { blocks, roots }
}

/// Writes `block` to every copy of its chunk, after the checks that every reader makes.
fn write_block(device: &dyn BlockDevice, plan: &Plan, options: &MkfsOptions, block: &Block) -> Result<()> {
    let expected = Expected {
        logical: block.logical,
        level: Some(block.level),
        generation: Some(plan.generation),
        owner: Some(block.owner),
        first_key: None,
        fsid: plan.fsid,
        checksum: options.checksum,
    };
    verify_block(&block.bytes, &expected).expect("a block of ours passes the door");
    let holds = |chunk: &&PlannedChunk| {
        block.logical.checked_sub(chunk.logical).is_some_and(|offset| offset < chunk.len)
    };
    let chunk = plan.layout.chunks.iter().find(holds).expect("blocks are placed in chunks");
    let offset = block.logical.checked_sub(chunk.logical).expect("the block lies in the chunk");
    for stripe in &chunk.stripes {
        device.write_at(stripe + offset, &block.bytes)?;
    }
    Ok(())
}
