//! Prints the structures on disk, superblocks and trees, in the format of btrfs-progs.
//!
//! These functions open an image even if it is open elsewhere, and read blocks straight from the devices. They print as much of a damaged
//! block as they can, go on with the blocks beside it, and return an error at the end. The output is for people, not for programs to parse.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use creamery_base::{DevId, Error, ErrorKind, Generation, Logical, ObjectId, Result, TreeId, Wait};
use creamery_device::{Access, BlockDevice, FileDevice};
use creamery_format::dump::{self, BadBlock, DumpContext, WalkError};
use creamery_format::{
    BlockRef, Expected, Key, KeyType, RawDevItem, RawRootItem, RawSuperblock, SUPERBLOCK_LEN,
    SUPERBLOCK_OFFSETS, Superblock,
};
use creamery_volume::{Chunk, DeviceSet, NamedSet, Rescue, Volume};
use zerocopy::FromBytes;

/// How much of a superblock is printed.
///
/// ```
/// use creamery::inspect::SuperDump;
/// let everything = SuperDump { full: true, all: true };
/// # assert_ne!(everything, SuperDump::default());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SuperDump {
    /// Also prints the system chunk array and the backup roots.
    pub full: bool,
    /// Prints all copies on the device.
    pub all: bool,
}

/// Prints the superblock of an image, and of each other device that is named with it.
///
/// ```
/// use creamery::inspect::{dump_super, SuperDump};
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).label("dairy").run()?;
/// let mut text = Vec::new();
/// dump_super(&image, SuperDump::default(), &mut text)?;
/// assert!(String::from_utf8_lossy(&text).contains("dairy"));
/// # Ok::<(), creamery::Error>(())
/// ```
///
/// # Errors
/// When there is no superblock, the image cannot be read, or `out` cannot be written.
pub fn dump_super(image: impl Into<NamedSet>, what: SuperDump, out: &mut dyn io::Write) -> Result<()> {
    image.into().named().try_for_each(|path| {
        let device = FileDevice::open(path, Access::ReadOnlyForced)?;
        dump_super_of(&device, &path.display().to_string(), what, out)
    })
}

/// Prints the superblock of a device that is open already. For tests of this project; not part of the stability promise.
///
/// # Errors
/// Those of [`dump_super`].
#[doc(hidden)]
pub fn dump_super_of(
    device: &dyn BlockDevice,
    name: &str,
    what: SuperDump,
    out: &mut dyn io::Write,
) -> Result<()> {
    let copies = if what.all { &SUPERBLOCK_OFFSETS[..] } else { &SUPERBLOCK_OFFSETS[..1] };
    let mut any = false;
    for &at in copies {
        if at + SUPERBLOCK_LEN as u64 > device.len() {
            break;
        }
        let mut bytes = vec![0; SUPERBLOCK_LEN];
        device.read_at(at, &mut bytes)?;
        let raw = RawSuperblock::ref_from_bytes(&bytes).expect("the buffer has a superblock's length");
        // A damaged superblock is printed as it is; without the magic number it is not a superblock.
        if raw.magic != creamery_format::MAGIC {
            continue;
        }
        any = true;
        let mut text = Text::new(out);
        let printed = dump::superblock(&mut text, raw, at, name, what.full);
        text.finish(printed)?;
    }
    if any {
        return Ok(());
    }
    Err(Error::invalid(format!("{name}: no Btrfs superblock")))
}

/// The trees to print.
///
/// ```
/// use creamery::inspect::TreeDump;
/// let of: TreeDump = "csum".parse()?;
/// assert_eq!(of, TreeDump::Tree(creamery::id::TreeId::CSUM));
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeDump {
    /// All trees.
    Everything,
    /// One tree.
    Tree(TreeId),
    /// The one block at this logical address.
    Block(Logical),
}

impl FromStr for TreeDump {
    type Err = Error;

    /// Parses the number or the name of a tree.
    fn from_str(text: &str) -> Result<Self> {
        let name = text.to_ascii_lowercase().replace('_', "-");
        let name = name.strip_suffix("-tree").unwrap_or(&name);
        let id = match name {
            "root" => TreeId::ROOT,
            "extent" => TreeId::EXTENT,
            "chunk" => TreeId::CHUNK,
            "dev" | "device" => TreeId::DEV,
            "fs" => TreeId::FS,
            "csum" | "checksum" => TreeId::CSUM,
            "quota" => TreeId::QUOTA,
            "uuid" => TreeId::UUID,
            "free-space" => TreeId::FREE_SPACE,
            "block-group" => TreeId::BLOCK_GROUP,
            "raid-stripe" => TreeId::RAID_STRIPE,
            "tree-log" | "log" => TreeId::TREE_LOG,
            "tree-reloc" => TreeId::TREE_RELOC,
            "data-reloc" => TreeId::DATA_RELOC,
            _ => match name.parse::<i64>() {
                Ok(number) => TreeId::new(number.cast_unsigned()),
                Err(_) => return Err(Error::invalid(format!("unknown tree '{text}'"))),
            },
        };
        Ok(Self::Tree(id))
    }
}

/// Prints trees of an image, which may have several devices.
///
/// ```
/// use creamery::inspect::{dump_tree, TreeDump};
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// let mut text = Vec::new();
/// dump_tree(&image, TreeDump::Everything, &mut text)?;
/// assert!(String::from_utf8_lossy(&text).contains("FS_TREE ROOT_ITEM"));
/// # Ok::<(), creamery::Error>(())
/// ```
///
/// # Errors
/// A damaged block, after everything else was printed, and the errors of `out`.
pub fn dump_tree(image: impl Into<NamedSet>, what: TreeDump, out: &mut dyn io::Write) -> Result<()> {
    let image = image.into();
    let name = image.first().display().to_string();
    let opened = image.open(Access::ReadOnlyForced, |devices| open_mapped(devices, Rescue::default()));
    let (volume, unmapped) = opened.map_err(|error| match error.to_string().contains(&name) {
        true => error,
        false => error.context(&name),
    })?;
    print_trees(&volume, unmapped, &name, what, out)
}

/// Prints trees of a device that is open already. For tests of this project; not part of the stability promise.
///
/// # Errors
/// Those of [`dump_tree`].
#[doc(hidden)]
pub fn dump_tree_of(
    device: Arc<dyn BlockDevice>,
    name: &str,
    what: TreeDump,
    out: &mut dyn io::Write,
) -> Result<()> {
    let (volume, unmapped) =
        open_mapped(device.into(), Rescue::default()).map_err(|error| error.context(name))?;
    print_trees(&volume, unmapped, name, what, out)
}

fn print_trees(
    volume: &Volume,
    unmapped: Option<Error>,
    name: &str,
    what: TreeDump,
    out: &mut dyn io::Write,
) -> Result<()> {
    let mut text = Text::new(out);
    let printed = print(volume, &volume.superblock(), what, &mut text);
    let damage = match printed {
        Ok(()) => None,
        Err(WalkError::Write(error)) => return text.finish(Err(error)),
        Err(WalkError::Damaged { first, blocks: 0 | 1 }) => Some(first),
        Err(WalkError::Damaged { first, blocks }) => {
            let what = format!("{blocks} tree blocks are damaged, the first one");
            Some(first.context(what))
        }
    };
    text.finish(Ok(()))?;
    match damage.or(unmapped) {
        Some(error) => Err(error.context(name)),
        None => Ok(()),
    }
}

fn print(
    volume: &Volume,
    superblock: &Superblock,
    what: TreeDump,
    text: &mut Text<'_>,
) -> Result<(), WalkError<Error>> {
    use fmt::Write as _;
    let context = DumpContext::of(superblock);
    let mut read = |want: &Expected| read(volume, want);
    let generation = superblock.generation();
    let id = match what {
        TreeDump::Everything => return dump::filesystem(text, superblock, &context, &mut read),
        TreeDump::Block(at) => {
            let sector = superblock.sector_size();
            if !at.get().is_multiple_of(sector.into()) {
                let what = format!("invalid tree block address {at}: expected a multiple of {sector}");
                return Err(WalkError::Damaged { first: Error::invalid(what), blocks: 1 });
            }
            let want = Expected::anything(at, superblock);
            let (bytes, why) = match read(&want) {
                Ok(bytes) => (Some(bytes), None),
                Err(bad) => (bad.bytes, Some(bad.why)),
            };
            if let Some(why) = &why {
                writeln!(text, "damaged: {why}")?;
            }
            if let Some(bytes) = bytes {
                dump::block(text, BlockRef::new(&bytes), &context)?;
            }
            return why.map_or(Ok(()), |first| Err(WalkError::Damaged { first, blocks: 1 }));
        }
        TreeDump::Tree(id) => id,
    };
    let root = match id {
        TreeId::ROOT => {
            writeln!(text, "root tree")?;
            let (logical, level) = superblock.root();
            return dump::tree(text, id, (logical, level, generation), superblock, &context, &mut read);
        }
        TreeId::CHUNK => {
            writeln!(text, "chunk tree")?;
            return dump::tree(text, id, superblock.chunk_root(), superblock, &context, &mut read);
        }
        // The tree's blocks are not found; they are not damaged.
        id => find_root(volume, superblock, id).map_err(|first| WalkError::Damaged { first, blocks: 0 })?,
    };
    let (key, at) = root;
    dump::tree_heading(text, &key)?;
    let printed = dump::tree(text, id, at, superblock, &context, &mut read);
    if matches!(printed, Err(WalkError::Write(_))) {
        return printed;
    }
    writeln!(text, "total bytes {}", superblock.total_bytes())?;
    writeln!(text, "bytes used {}", superblock.bytes_used())?;
    writeln!(text, "uuid {}", superblock.fsid())?;
    printed
}

fn read(volume: &Volume, want: &Expected) -> Result<Vec<u8>, BadBlock<Error>> {
    let read = volume.read_tree_block(want.logical, want, Wait::Yes);
    read.map(|block| block.to_vec()).map_err(|why| BadBlock { why, bytes: as_it_is(volume, want.logical) })
}

/// Reads the first copy of a block that can be read, without verification.
fn as_it_is(volume: &Volume, at: Logical) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(volume.node_size()).ok()?];
    let mut ways = volume.ways(at, bytes.len() as u64).ok()?;
    ways.any(|way| volume.read_way(&way, at, &mut bytes).is_ok()).then_some(bytes)
}

/// Calls `each` with each leaf of a tree, in order; returns the error of the first damaged block.
pub(crate) fn leaves(
    volume: &Volume,
    superblock: &Superblock,
    id: TreeId,
    root: (Logical, u8, Generation),
    each: &mut dyn FnMut(BlockRef<'_>) -> Result<()>,
) -> Option<Error> {
    let expected = |(logical, level, generation): (Logical, u8, Generation), first_key| Expected {
        logical,
        level: Some(level),
        generation: Some(generation),
        owner: Some(id),
        first_key,
        fsid: superblock.metadata_uuid(),
        checksum: superblock.checksum_type(),
    };
    // The levels bound the depth: verification checks that they decrease by one.
    let mut todo = vec![expected(root, None)];
    let (mut seen, mut first) = (HashSet::new(), None);
    while let Some(want) = todo.pop() {
        if !seen.insert(want.logical) {
            continue;
        }
        let bytes = match read(volume, &want) {
            Ok(bytes) => bytes,
            Err(bad) => {
                first.get_or_insert(bad.why);
                continue;
            }
        };
        let block = BlockRef::new(&bytes);
        if block.is_leaf() {
            first = first.or(each(block).err());
            continue;
        }
        let level = block.level() - 1;
        for slot in (0..block.count()).rev() {
            let (child, generation) = block.child(slot);
            todo.push(expected((child, level, generation), Some(block.key(slot))));
        }
    }
    first
}

/// Opens a volume for reading and maps all chunks that it can; returns the error of the first chunk that cannot be mapped.
///
/// # Errors
/// Those of opening; devices are missing, or belong to another filesystem.
pub(crate) fn open_mapped(devices: DeviceSet, rescue: Rescue) -> Result<(Volume, Option<Error>)> {
    let volume = Volume::open_for_rescue(devices, rescue)?;
    let unmapped = map_all(&volume)?;
    Ok((volume, unmapped))
}

/// Maps all chunks that it can, and compares the devices with those that the filesystem lists.
pub(crate) fn map_all(volume: &Volume) -> Result<Option<Error>> {
    let mut devices = Vec::new();
    let unmapped = push_chunks(volume, &volume.superblock(), &mut devices);
    match unmapped {
        None => volume.judge_devices(&devices)?,
        // An unreadable block may list a device.
        Some(_) => volume.expect_one_history()?,
    }
    Ok(unmapped)
}

/// Maps the chunks that the superblock does not map (it maps the chunk tree only), and lists the devices. Returns the error of the first
/// chunk that cannot be mapped: blocks in it cannot be read, and all others can.
pub(crate) fn push_chunks(
    volume: &Volume,
    superblock: &Superblock,
    devices: &mut Vec<DevId>,
) -> Option<Error> {
    leaves(volume, superblock, TreeId::CHUNK, superblock.chunk_root(), &mut |leaf| {
        let mut outcome = Ok(());
        for slot in 0..leaf.count() {
            let key = leaf.key(slot);
            if key.objectid == ObjectId::DEV_ITEMS && key.kind == KeyType::DEV_ITEM {
                // An item under another key belongs to another device, or is damaged.
                let item = RawDevItem::ref_from_bytes(leaf.data(slot)).ok();
                devices.extend(item.map(RawDevItem::dev_id).filter(|dev| dev.get() == key.offset));
            }
            if key.kind == KeyType::CHUNK_ITEM {
                let chunk =
                    Chunk::from_item(Logical::new(key.offset), leaf.data(slot), superblock.sector_size());
                outcome = outcome.and(chunk.and_then(|chunk| volume.push_chunk(chunk)));
            }
        }
        outcome
    })
}

/// Returns the root of a tree, from the root tree.
fn find_root(
    volume: &Volume,
    superblock: &Superblock,
    id: TreeId,
) -> Result<(Key, (Logical, u8, Generation))> {
    let (logical, level) = superblock.root();
    let mut found = None;
    let damage =
        leaves(volume, superblock, TreeId::ROOT, (logical, level, superblock.generation()), &mut |leaf| {
            for slot in 0..leaf.count() {
                let key = leaf.key(slot);
                if key.kind == KeyType::ROOT_ITEM && key.objectid == id.objectid() {
                    let item = RawRootItem::from_item(leaf.data(slot))
                        .map_err(|kind| Error::new(ErrorKind::Corrupt, format!("root item {key}: {kind}")))?;
                    found = Some((key, (item.root(), item.level, item.root_generation())));
                }
            }
            Ok(())
        });
    let missing = || damage.unwrap_or_else(|| Error::new(ErrorKind::NotFound, format!("tree {id}")));
    found.ok_or_else(missing)
}

/// Writes text to a byte writer; keeps the first error of the writer.
struct Text<'a> {
    out: &'a mut dyn io::Write,
    error: Option<io::Error>,
}

impl<'a> Text<'a> {
    fn new(out: &'a mut dyn io::Write) -> Self {
        Self { out, error: None }
    }

    fn finish(self, outcome: fmt::Result) -> Result<()> {
        match (self.error, outcome) {
            (Some(error), _) => Err(error.into()),
            (None, Ok(())) => Ok(()),
            (None, Err(_)) => Err(Error::new(ErrorKind::Io, "printing")),
        }
    }
}

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.out.write_all(text.as_bytes()).map_err(|error| {
            self.error = Some(error);
            fmt::Error
        })
    }
}
