//! A filesystem to test on, and what must be true of any file in it.

use std::sync::Arc;

use creamery_base::{InodeId, ObjectId, TreeId, Wait};
use creamery_codec::ChecksumType;
use creamery_format::Compression;
use creamery_txn::{Engine, Incompat, Units};

use crate::data::file_extent::FileExtent;
use crate::data::map::Items;
use crate::data::{extent_key, in_handle};
use crate::inode::{Doomed, Inode, InodeFlags, InodeItem};
use crate::keys;

pub(super) const SECTOR: u64 = 4096;

/// The splitmix64 sequence.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// What the filesystem under test is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) no_holes: bool,
    pub(super) checksum: ChecksumType,
}

impl Kind {
    pub(super) const DEFAULT: Self = Self { no_holes: true, checksum: ChecksumType::Crc32c };
    pub(super) const OLD: Self = Self { no_holes: false, checksum: ChecksumType::Crc32c };
}

/// An empty filesystem.
pub(super) fn engine(kind: Kind) -> Arc<Engine> {
    Engine::stub(kind.no_holes, kind.checksum, 64 << 20)
}

/// A new, empty file without a name.
pub(super) fn new_file(engine: &Engine, ino: u64, flags: InodeFlags) -> Inode {
    let id = InodeId::new(TreeId::FS, ObjectId::new(ino));
    let tree = engine.tree(TreeId::FS).expect("the top level");
    let item = InodeItem { flags, ..InodeItem::default() };
    in_handle(engine, Units::items(1), |handle| {
        tree.insert(handle, &keys::inode_item(id.ino), &item.encode())
    })
    .expect("a new inode");
    Inode::new(id, tree, item, Arc::new(Doomed::default()))
}

/// Puts an item of any bytes into a file.
pub(super) fn put(engine: &Engine, inode: &Inode, at: u64, bytes: &[u8]) {
    in_handle(engine, Units::items(1), |handle| {
        inode.tree.upsert(handle, &extent_key(inode.id.ino, at), bytes)
    })
    .expect("an item");
}

/// The items of a file as text: `start+len` and what they show, extents by letters in order of appearance.
pub(super) fn items(inode: &Inode) -> String {
    let mut items =
        Items::new(&inode.tree, inode.id.ino, (0, u64::MAX), SECTOR, Wait::Yes).expect("a readable tree");
    let mut text = Vec::new();
    let mut extents = Vec::new();
    while let Some(item) = items.next().expect("a readable tree") {
        let place = format!("{}+{}", item.start / SECTOR, (item.end - item.start) / SECTOR);
        text.push(match item.extent {
            FileExtent::Inline { ram_bytes, .. } => format!("{place} inline {ram_bytes}"),
            FileExtent::Hole { .. } => format!("{place} hole"),
            FileExtent::Regular(extent) | FileExtent::Prealloc(extent) => {
                let known = extents.iter().position(|start| *start == extent.disk_bytenr);
                let index = known.unwrap_or_else(|| {
                    extents.push(extent.disk_bytenr);
                    extents.len() - 1
                });
                let letter = char::from(b'a' + u8::try_from(index % 26).expect("below 26"));
                let prealloc = if matches!(item.extent, FileExtent::Prealloc(_)) { "~" } else { "" };
                let packed = if extent.compression == Compression::None { "" } else { "z" };
                format!("{place} {prealloc}{letter}{packed}@{}", extent.offset / SECTOR)
            }
        });
    }
    text.join(", ")
}

/// DATA-1 and the counts: no overlap, no gap without NO_HOLES, nbytes and size right, the stored item equal to the
/// one in memory.
pub(super) fn audit(engine: &Engine, inode: &Inode, item: &InodeItem) {
    let sector = u64::from(engine.sector_size());
    let mut items =
        Items::new(&inode.tree, inode.id.ino, (0, u64::MAX), sector, Wait::Yes).expect("a readable tree");
    let (mut nbytes, mut end, mut gap, mut count, mut inline) = (0, 0, false, 0, false);
    while let Some(found) = items.next().expect("a readable tree") {
        gap |= found.start > end;
        end = found.end;
        nbytes += found.extent.counted_bytes();
        count += 1;
        if let FileExtent::Inline { ram_bytes, .. } = found.extent {
            inline = true;
            assert_eq!(ram_bytes, item.size, "an inline file is all inline");
        }
    }
    drop(items);
    assert!(!inline || count == 1, "an inline extent is alone");
    assert!(end <= item.size.next_multiple_of(sector), "nothing lies behind the end");
    if !engine.incompat().contains(Incompat::NO_HOLES) {
        assert!(!gap && end == item.size.next_multiple_of(sector), "every hole is an item");
    }
    assert_eq!(nbytes, item.nbytes);
    let stored = inode.tree.get(&keys::inode_item(inode.id.ino), Wait::Yes, InodeItem::decode);
    assert_eq!(&stored.expect("a readable tree").expect("an inode").expect("a valid item"), item);
}
