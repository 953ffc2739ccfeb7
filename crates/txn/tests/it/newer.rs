//! Trees that are newer than the superblock that leads to them: a transaction could take their blocks for its own and change
//! them in place.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use creamery_base::{ErrorKind, Logical, ObjectId, Result, TreeId};
use creamery_device::{Access, FileDevice};
use creamery_format::{BlockMut, BlockRef, HEADER_FLAG_WRITTEN, Key, KeyType, RawRootItem, seal};
use creamery_testkit::{Judge, Judges, Scratch};
use creamery_txn::{Engine, Options, ReserveItems};
use creamery_volume::{Mode, Volume};
use zerocopy::{FromBytes, IntoBytes};

fn open(image: &Path) -> Result<Arc<Engine>> {
    let device = Arc::new(FileDevice::open(image, Access::ReadWrite)?);
    Engine::open(Volume::open(vec![device], Mode::ReadWrite)?, Options::default())
}

/// Changes a block in all its copies.
fn edit(image: &Path, engine: &Engine, at: Logical, change: impl FnOnce(&mut [u8])) {
    let volume = engine.volume();
    let copies = volume.map(at, volume.node_size().into()).expect("a place");
    let places: Vec<u64> = copies.mirrors().iter().map(|copy| copy[0].at.offset).collect();
    let file = std::fs::File::options().read(true).write(true).open(image).expect("the image opens");
    let mut bytes = vec![0; volume.node_size() as usize];
    file.read_exact_at(&mut bytes, places[0]).expect("the block");
    change(&mut bytes);
    seal(&mut bytes, volume.checksum_type());
    places.iter().for_each(|&place| file.write_all_at(&bytes, place).expect("a write"));
}

/// Gives the root of tree `id`, a leaf, the generation of the next engine's transaction: in its header and in its item. Returns
/// its address.
fn disown(image: &Path, id: TreeId) -> Logical {
    let engine = open(image).expect("it opens");
    let running = engine.generation();
    let root = engine.root_item(id).expect("a root item").root();
    let (items, level) = engine.volume().superblock().root();
    assert_eq!(level, 0, "the root tree is a leaf");
    edit(image, &engine, root, |bytes| {
        let mut block = BlockMut::new(bytes);
        assert!(block.as_ref().is_leaf());
        block.set_generation(running);
        let flags = block.as_ref().flags() & !HEADER_FLAG_WRITTEN;
        block.set_flags(flags);
    });
    edit(image, &engine, items, |bytes| {
        let block = BlockRef::new(bytes);
        let wanted = |key: Key| key.objectid == id.objectid() && key.kind == KeyType::ROOT_ITEM;
        let slot = (0..block.count()).find(|&slot| wanted(block.key(slot))).expect("its item");
        let mut item = RawRootItem::read_from_bytes(block.data(slot)).expect("its size");
        item.set_root(root, 0, running);
        BlockMut::new(bytes).data_mut(slot).copy_from_slice(item.as_bytes());
    });
    root
}

#[test]
fn roots_that_are_newer_than_the_superblock_are_refused() {
    if !Judges::here().have(&[Judge::BtrfsProgs]) {
        println!("skipped: btrfs-progs missing");
        return;
    }
    let scratch = Scratch::new("newer").expect("a scratch folder");
    for id in [TreeId::FS, TreeId::EXTENT, TreeId::CSUM, TreeId::FREE_SPACE, TreeId::DEV] {
        let image = scratch.file(&format!("image-{id}"));
        std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
        let made = Command::new("mkfs.btrfs").arg("-q").arg(&image).status().expect("mkfs.btrfs runs");
        assert!(made.success());
        let root = disown(&image, id);
        let before = std::fs::read(&image).expect("the image");
        let error = open(&image).and_then(|engine| {
            let tree = engine.tree(id)?;
            let handle = engine.start(ReserveItems::items(1))?;
            let key = Key::new(ObjectId::new(1_000_000), KeyType::new(100), 0);
            let inserted = tree.insert(&handle, &key, b"in place");
            handle.end();
            inserted
        });
        let error = error.expect_err("it is newer than the superblock");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        let text = error.to_string();
        let words = [format!("tree {id}"), root.to_string(), "newer than the filesystem".to_owned()];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(before == std::fs::read(&image).expect("the image"), "tree {id}: the image changed");
    }
}
