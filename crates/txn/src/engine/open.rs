//! Opening: reads the superblock and all fixed trees, and decides whether writing is possible.
//!
//! Not only feature bits decide. Write access is refused, by name, while the filesystem is in a state
//! that this version cannot continue. The volume has already refused states that the superblock shows, for example a seed
//! device; the others are in `refusal`.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Generation, ObjectId, Result, TreeId, Wait};
use creamery_format::{BlockRef, CompatRo, Expected, Key, KeyType};
use creamery_tree::{BufferStore, RootPointer, Tree};
use creamery_volume::{Chunk, Mode, Volume};

use super::left_out::LeftOut;
use super::refusal::{contradicted_skinny, refusal_to_write};
use super::{Engine, Options, Parts};
use crate::chunk_allocator::read_devices;
use crate::roots::{expect_one_history, find_root_item, open_by_item};

impl Engine {
    /// Opens the filesystem on `volume`. When it can only be read, [`Engine::read_only`] gives the reason; that is an
    /// error when writing was requested ([`Options::read_only`] is false).
    /// Errors: read-only, by name; unsupported; device errors; damage.
    pub fn open(volume: Volume, options: Options) -> Result<Arc<Self>> {
        let volume = Arc::new(volume);
        let superblock = volume.superblock();
        let (logical, level, generation) = superblock.chunk_root();
        let chunk_root = RootPointer { logical, generation, level };
        let store = Arc::new(open_store(&volume, chunk_root, &options)?);
        let chunk_tree = open_fixed(&store, TreeId::CHUNK, chunk_root)?;
        read_chunks(&volume, &chunk_tree)?;
        let named = |error: Error| error.context(volume.describe());
        let devices = read_devices(&volume, &chunk_tree).map_err(named)?; // before any other request
        let (logical, level) = superblock.root();
        let root = RootPointer { logical, generation: superblock.generation(), level };
        let root_tree = open_fixed(&store, TreeId::ROOT, root)?;
        expect_one_history(&volume, &root_tree)?;
        let by_id = |id: TreeId| {
            find_root_item(&root_tree, id)?.map(|(_, item)| open_by_item(&store, id, &item)).transpose()
        };
        let required = |id: TreeId| {
            by_id(id)?.ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("tree {id} has no root item")))
        };
        let left_out = LeftOut::new(&store);
        let (dev_tree, no_dev_tree) = left_out.unless(TreeId::DEV, required(TreeId::DEV))?;
        let (extent_tree, _) = left_out.unless(TreeId::EXTENT, required(TreeId::EXTENT))?;
        let (csum_tree, takes_unchecked_data) = left_out.unless_csums(required(TreeId::CSUM))?;
        let takes_unchecked_data =
            takes_unchecked_data && (!options.earlier_commit || volume.rescue().ignore_data_csums);
        let has_free_space_tree = superblock.compat_ro().contains(CompatRo::FREE_SPACE_TREE);
        let has_group_tree = superblock.compat_ro().contains(CompatRo::BLOCK_GROUP_TREE);
        let devices = left_out.devices(devices, (&dev_tree, no_dev_tree)).map_err(named)?;
        let refusal = match left_out.may_be() {
            true => None, // read-only
            false => refusal_to_write(&volume, &superblock, &root_tree, &dev_tree, &devices)?
                .or(contradicted_skinny(&superblock, &extent_tree)?),
        };
        let read_only = read_only(&volume, refusal, &options)?;
        let parts = Parts {
            extent_tree,
            csum_tree,
            takes_unchecked_data,
            free_space_tree: match has_free_space_tree {
                true if read_only.is_none() => {
                    let tree = required(TreeId::FREE_SPACE);
                    Some(tree.map_err(|error| error.context("the free space tree, which writing needs"))?)
                }
                // Reading does not need it.
                _ => None,
            },
            block_group_tree: match has_group_tree {
                // A conversion may lie between that root and the superblock.
                _ if volume.earlier_root().is_some() => by_id(TreeId::BLOCK_GROUP)
                    .or_else(|error| left_out.note(TreeId::BLOCK_GROUP, error).map(|()| None))?,
                true => Some(left_out.unless(TreeId::BLOCK_GROUP, required(TreeId::BLOCK_GROUP))?.0),
                false => None,
            },
            volume,
            store: Arc::clone(&store),
            chunk_tree,
            dev_tree,
            devices,
            read_only,
            root_tree,
        };
        let engine = Self::from_parts(parts, options);
        engine.group_loader().load(engine.read_only().is_none())?;
        engine.quotas().load().or_else(|error| left_out.note(TreeId::QUOTA, error))?;
        engine.volume().decide_repairs(engine.read_only().is_none());
        let engine = Arc::new(engine);
        engine.register_own_work();
        Ok(engine)
    }
}

/// The reason that the filesystem is opened read-only, if it is. Errors: read-only, when writing was requested and is refused.
fn read_only(volume: &Volume, refusal: Option<String>, options: &Options) -> Result<Option<String>> {
    match refusal {
        Some(reason) if !options.read_only => {
            let message = format!("{}: {reason}; open it read-only", volume.describe());
            Err(Error::new(ErrorKind::ReadOnly, message))
        }
        _ if options.read_only || volume.mode() == Mode::ReadOnly => Ok(Some("opened read-only".to_owned())),
        _ => Ok(None),
    }
}

/// Opens the buffer store with the chunk tree's UUID, which stands in every tree block: it reads the UUID from the first one.
fn open_store(volume: &Arc<Volume>, chunk_root: RootPointer, options: &Options) -> Result<BufferStore> {
    let want = Expected {
        logical: chunk_root.logical,
        level: Some(chunk_root.level),
        generation: Some(chunk_root.generation),
        owner: Some(TreeId::CHUNK),
        first_key: None,
        fsid: volume.metadata_uuid(),
        checksum: volume.checksum_type(),
    };
    let block = volume.read_tree_block(chunk_root.logical, &want, Wait::Yes)?;
    let uuid = BlockRef::new(&block).chunk_tree_uuid();
    Ok(BufferStore::new(Arc::clone(volume), options.cache_bytes, uuid))
}

fn open_fixed(store: &Arc<BufferStore>, id: TreeId, root: RootPointer) -> Result<Tree> {
    let tree = Tree::open(Arc::clone(store), id, root, 0, Generation::new(0))?;
    tree.switch_commit_root(root);
    Ok(tree)
}

/// Pushes all chunks of the chunk tree into the volume, which knew only those in the superblock.
fn read_chunks(volume: &Volume, chunk_tree: &Tree) -> Result<()> {
    let first = Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, 0);
    let mut chunks = Vec::new();
    let mut cursor = chunk_tree.cursor(&first, Wait::Yes)?;
    while let Some((key, data)) = cursor.item() {
        if key.objectid != ObjectId::FIRST_CHUNK_TREE || key.kind != KeyType::CHUNK_ITEM {
            break;
        }
        let chunk = Chunk::from_item(key.offset.into(), data, volume.sector_size())?;
        match volume.chunk_at(chunk.start) {
            Some(known) if known.is_as(&chunk) => {}
            Some(known) => {
                let message =
                    format!("chunk {} differs from the superblock's chunk {}", chunk.start, known.start);
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            None => chunks.push(chunk),
        }
        cursor.advance()?;
    }
    drop(cursor);
    volume.push_chunks(chunks)
}
