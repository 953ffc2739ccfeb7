//! Images made by mkfs.btrfs, in memory, and helpers to read and to damage them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use creamery_base::{Generation, Logical, Result, TreeId, Wait};
use creamery_device::{Access, AlignedBuffer, BlockDevice, FileDevice, MemoryDevice};
use creamery_format::{BlockRef, Expected, KeyType, RawSuperblock, SUPERBLOCK_OFFSETS, Superblock};
use creamery_volume::{Chunk, Mode, Volume};

pub(crate) const FIRST: u64 = 64 << 10;
pub(crate) const SECOND: u64 = 64 << 20;

/// Reports that a test stops here because `what` is missing. Panics if everything must be there.
pub(crate) fn skipped(what: &str) {
    let required = std::env::var_os("CREAMERY_REQUIRE_JUDGES").is_some_and(|value| value == "1");
    assert!(!required, "{what} missing");
    println!("skipped: {what} missing");
}

/// Runs a mkfs program on files of `sizes` and returns their bytes. `None` if there is no such program.
pub(crate) fn made_by(program: &str, options: &[&str], sizes: &[u64]) -> Option<Vec<Arc<MemoryDevice>>> {
    let dir = tempfile::tempdir().unwrap();
    let paths = new_files(dir.path(), sizes);
    let Ok(output) = Command::new(program).args(options).args(&paths).output() else {
        skipped(program);
        return None;
    };
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Some(paths.iter().map(|path| load(path)).collect())
}

/// Empty files of `sizes`.
pub(crate) fn new_files(dir: &Path, sizes: &[u64]) -> Vec<PathBuf> {
    let path = |(number, &size): (usize, &u64)| {
        let path = dir.join(format!("disk{number}.img"));
        drop(FileDevice::create(&path, size).unwrap());
        path
    };
    sizes.iter().enumerate().map(path).collect()
}

/// The bytes of a file as a device in memory.
pub(crate) fn load(path: &Path) -> Arc<MemoryDevice> {
    let file = FileDevice::open(path, Access::ReadOnly).unwrap();
    Arc::new(MemoryDevice::copy_of(&file).unwrap())
}

/// A filesystem on one device of 256 MiB, so that it has two superblock copies.
pub(crate) fn btrfs(options: &[&str]) -> Option<Arc<MemoryDevice>> {
    made_by("mkfs.btrfs", &[&["-q"], options].concat(), &[256 << 20])?.pop()
}

pub(crate) fn open(device: &Arc<MemoryDevice>, mode: Mode) -> Result<Volume> {
    Volume::open(vec![Arc::clone(device) as Arc<dyn BlockDevice>], mode)
}

/// Opens for writing, by a copy if the first superblock is damaged.
pub(crate) fn open_by_copy(device: &Arc<MemoryDevice>) -> Result<Volume> {
    Volume::open_by_copy(vec![Arc::clone(device) as Arc<dyn BlockDevice>])
}

/// Returns the single line of the error.
pub(crate) fn refusal(device: &Arc<MemoryDevice>, mode: Mode) -> (creamery_base::ErrorKind, String) {
    let error = open(device, mode).err().unwrap_or_else(|| panic!("{mode:?} was let in"));
    let text = match error.advice() {
        Some(advice) => format!("{error}; {advice}"),
        None => error.to_string(),
    };
    assert!(!text.contains('\n'), "one line: {text}");
    assert!(text.contains(&device.describe()), "names the device: {text}");
    (error.kind(), text)
}

/// Makes the device and its filesystem larger, with all superblock copies that fit then.
pub(crate) fn grow(device: &MemoryDevice, len: u64) {
    device.resize(len).unwrap();
    edit_superblock(device, &[FIRST, SECOND], |raw| {
        raw.total_bytes = len.into();
        raw.dev_item.total_bytes = len.into();
    });
    let first = Superblock::from_bytes(&bytes_at(device, FIRST, 4096), FIRST).unwrap();
    for &offset in SUPERBLOCK_OFFSETS.iter().filter(|&&offset| offset + 4096 <= len) {
        device.write_at(offset, &first.to_bytes(offset)).unwrap();
    }
}

/// Changes the superblock copies at `offsets` and gives them the right checksum again.
pub(crate) fn edit_superblock(device: &MemoryDevice, offsets: &[u64], edit: impl Fn(&mut RawSuperblock)) {
    for &offset in offsets {
        let mut bytes = vec![0; 4096];
        device.read_at(offset, &mut bytes).unwrap();
        let mut superblock = Superblock::from_bytes(&bytes, offset).unwrap();
        edit(superblock.raw_mut());
        device.write_at(offset, &superblock.to_bytes(offset)).unwrap();
    }
}

/// Makes a member go on by a commit from `earlier`, which its backups remember. The new roots do not exist.
pub(crate) fn go_on(device: &MemoryDevice, earlier: &Superblock) {
    let (generation, (root, level)) = (earlier.generation().get(), earlier.root());
    let (chunk_root, chunk_level, chunk_generation) = earlier.chunk_root();
    edit_superblock(device, &[FIRST, SECOND], |raw| {
        raw.generation = (generation + 1).into();
        raw.root = (root.get() + (1 << 20)).into();
        let backup = &mut raw.super_roots[0];
        (backup.tree_root, backup.tree_root_level, backup.tree_root_gen) =
            (root.get().into(), level, generation.into());
        (backup.chunk_root, backup.chunk_root_level, backup.chunk_root_gen) =
            (chunk_root.get().into(), chunk_level, chunk_generation.get().into());
        let backup = *backup;
        raw.super_roots.fill(backup);
    });
}

/// Inverts one byte.
pub(crate) fn damage(device: &dyn BlockDevice, offset: u64) {
    let mut byte = [0];
    device.read_at(offset, &mut byte).unwrap();
    device.write_at(offset, &[!byte[0]]).unwrap();
}

pub(crate) fn bytes_at(device: &dyn BlockDevice, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.read_at(offset, &mut bytes).unwrap();
    bytes
}

/// The expectation for the chunk tree's root.
pub(crate) fn chunk_root(volume: &Volume) -> Expected {
    let (logical, level, generation) = volume.superblock().chunk_root();
    expected(volume, logical, level, generation, TreeId::CHUNK)
}

pub(crate) fn root_root(volume: &Volume) -> Expected {
    let (logical, level) = volume.superblock().root();
    expected(volume, logical, level, volume.generation(), TreeId::ROOT)
}

fn expected(volume: &Volume, logical: Logical, level: u8, generation: Generation, tree: TreeId) -> Expected {
    Expected {
        logical,
        level: Some(level),
        generation: Some(generation),
        owner: Some(tree),
        first_key: None,
        fsid: volume.metadata_uuid(),
        checksum: volume.checksum_type(),
    }
}

pub(crate) fn read(volume: &Volume, want: &Expected) -> Result<AlignedBuffer> {
    volume.read_tree_block(want.logical, want, Wait::Yes)
}

/// Calls `visit` with every leaf of a tree.
pub(crate) fn for_each_leaf(volume: &Volume, root: &Expected, visit: &mut dyn FnMut(BlockRef<'_>)) {
    let bytes = read(volume, root).unwrap();
    let block = BlockRef::new(&bytes);
    if block.is_leaf() {
        return visit(block);
    }
    for slot in 0..block.count() {
        let (child, generation) = block.child(slot);
        let mut want = *root;
        want.logical = child;
        want.level = Some(block.level() - 1);
        want.generation = Some(generation);
        want.first_key = Some(block.key(slot));
        for_each_leaf(volume, &want, visit);
    }
}

/// Pushes all chunks of the chunk tree, like a mount does.
pub(crate) fn push_all_chunks(volume: &Volume) {
    let mut chunks = Vec::new();
    for_each_leaf(volume, &chunk_root(volume), &mut |leaf| {
        for slot in (0..leaf.count()).filter(|&slot| leaf.key(slot).kind == KeyType::CHUNK_ITEM) {
            let start = Logical::new(leaf.key(slot).offset);
            chunks.push(Chunk::from_item(start, leaf.data(slot), volume.sector_size()).unwrap());
        }
    });
    volume.push_chunks(chunks).unwrap();
}

/// An image that is opened and fully mapped.
pub(crate) fn mapped(device: &Arc<MemoryDevice>, mode: Mode) -> Volume {
    let volume = open(device, mode).unwrap();
    push_all_chunks(&volume);
    volume
}

/// The first chunk with one of these flags.
pub(crate) fn chunk_of(volume: &Volume, flags: creamery_format::BlockGroupFlags) -> Arc<Chunk> {
    volume.chunks().into_iter().find(|chunk| chunk.flags.contains(flags)).unwrap()
}
