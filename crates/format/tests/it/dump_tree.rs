//! Our output equals that of btrfs-progs 6.14, on images made by btrfs-progs and the kernel. Walking them
//! also proves that every block and item in them passes our checks.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;

use creamery_base::Logical;
use creamery_codec::checksum_blocks;
use creamery_format::{BlockRef, KeyType};

use crate::common::{Image, Scratch, can_mount, has_progs};

/// A directory tree that mkfs can copy without root.
const FILES: &str = r"
    mkdir -p src/dir/sub; cd src
    echo inline > inline; seq 1 30000 > regular; : > empty; ln inline hard; ln -s inline symlink; mkfifo fifo
    truncate -s 5M sparse; echo x >> sparse
    for i in $(seq 1 300); do echo $i > dir/file-$i; done
    touch $'new\nline' $'sp ace' $'bad\xff\x01\\' ";

/// Everything that a mount can do to a filesystem.
const CHANGES: &str = r#"
    echo inline > inline; setfattr -n user.a -v "some value" inline; setfattr -n user.b -v 0x000102ff0a0d inline
    dd if=/dev/urandom of=regular bs=4k count=20 status=none; fallocate -l 1M prealloc
    truncate -s 10M hole; echo x | dd of=hole bs=1 seek=5M conv=notrunc status=none
    mknod char c 5 1; mknod block b 259 70000; mkfifo fifo; ln -s target symlink; ln inline hard; mkdir dir
    touch $'new\nline' $'tab\there' $'uni\xc3\xa9' $'bad\xff\x01\\back' $'sp ace'; touch -d 1901-02-03 old
    touch nocow; chattr +C nocow; echo data > nocow; touch flags; chattr +iaAd flags; chattr +c dir; echo z > dir/z
    yes | head -c 300000 > zstd; yes | head -c 3000 > lzo
    btrfs -q filesystem defragment -czstd zstd; btrfs -q filesystem defragment -clzo lzo
    for i in $(seq 1 150); do dd if=/dev/urandom of=f$i bs=1k count=8 status=none; done
    for i in $(seq 1 20); do ln inline "$(printf 'hl-%0250d' $i)"; done; sync -f .
    btrfs -q subvolume create sub; cp --reflink=always regular sub/regular
    for i in $(seq 1 60); do dd if=/dev/urandom of=sub/f$i bs=1k count=8 status=none; done; sync -f .
    for i in $(seq 1 120); do cp --reflink=always regular sub/ref$i; done; sync -f .
    btrfs -q subvolume snapshot sub snap1; btrfs -q subvolume snapshot -r sub snap2
    btrfs -q subvolume snapshot snap1 snap3; sync -f .
    for i in $(seq 1 3 60); do echo more >> snap1/f$i; rm snap3/f$i; touch sub/f$i; done; touch sub/*; sync -f .
    btrfs -q subvolume delete snap1
    btrfs -q subvolume set-default "$(btrfs inspect-internal rootid sub)" .
"#;

const QUOTAS: &str = "btrfs quota enable .; btrfs quota rescan -W . >/dev/null; btrfs qgroup create 1/100 .
    btrfs qgroup assign --no-rescan 0/5 1/100 . >/dev/null; btrfs qgroup limit 10M 0/5 .; sync -f .";

/// Kinds of items that a filesystem with [`CHANGES`] has, whatever its options.
const OF_LINUX: &[KeyType] = &[
    KeyType::INODE_ITEM,
    KeyType::INODE_REF,
    KeyType::XATTR_ITEM,
    KeyType::DIR_ITEM,
    KeyType::DIR_INDEX,
    KeyType::EXTENT_DATA,
    KeyType::EXTENT_CSUM,
    KeyType::ROOT_ITEM,
    KeyType::ROOT_BACKREF,
    KeyType::ROOT_REF,
    KeyType::EXTENT_ITEM,
    KeyType::EXTENT_DATA_REF,
    KeyType::BLOCK_GROUP_ITEM,
    KeyType::DEV_EXTENT,
    KeyType::DEV_ITEM,
    KeyType::CHUNK_ITEM,
    KeyType::PERSISTENT_ITEM,
    KeyType::UUID_SUBVOL,
];

/// Kinds of items that [`QUOTAS`] adds.
const OF_QUOTAS: &[KeyType] =
    &[KeyType::QGROUP_STATUS, KeyType::QGROUP_INFO, KeyType::QGROUP_LIMIT, KeyType::QGROUP_RELATION];

/// Asserts that the comparison was useful: these kinds of items were there.
fn assert_kinds(image: &Image, kinds: &[KeyType]) {
    let blocks = image.blocks();
    let found: BTreeSet<KeyType> = blocks
        .iter()
        .map(|(_, bytes)| BlockRef::new(bytes))
        .filter(|block| block.is_leaf())
        .flat_map(|leaf| (0..leaf.count()).map(move |slot| leaf.key(slot).kind))
        .collect();
    for kind in kinds {
        assert!(found.contains(kind), "{}: no {kind}", image.path.display());
    }
}

fn compare(image: &Image) {
    image.compare_trees();
    image.compare_superblocks();
}

#[test]
fn images_of_mkfs_print_equally() {
    if !has_progs() {
        return;
    }
    let scratch = Scratch::new("mkfs");
    scratch.run(FILES);
    for (i, options) in [
        "--rootdir src",
        "--rootdir src --csum xxhash -n 4096",
        "--rootdir src --csum sha256 -n 65536 -O block-group-tree",
        "--rootdir src --csum blake2 -m single -L 'some label'",
        "--rootdir src -M",
        "--rootdir src -O ^no-holes,^skinny-metadata,^extref,^free-space-tree",
        "-O quota -U 01234567-89ab-cdef-0123-456789abcdef",
        "-O squota --rootdir src",
    ]
    .into_iter()
    .enumerate()
    {
        let image = scratch.mkfs(&format!("{i}.img"), "256M", options);
        compare(&image);
        compare_data_sums(&image);
    }
}

/// Asserts that every checksum item equals our checksums of the data.
fn compare_data_sums(image: &Image) {
    let sector = image.superblock.sector_size() as usize;
    let kind = image.superblock.checksum_type();
    for (_, bytes) in image.blocks() {
        let block = BlockRef::new(&bytes);
        for slot in (0..block.count()).filter(|slot| block.key(*slot).kind == KeyType::EXTENT_CSUM) {
            let sums = if block.is_leaf() { block.data(slot) } else { continue };
            let mut data = vec![0; sums.len() / kind.size() * sector];
            let at = image.physical(Logical::new(block.key(slot).offset));
            image.file.read_exact_at(&mut data, at).expect("the image is long enough");
            let mut ours = Vec::new();
            checksum_blocks(kind, &data, sector, &mut ours);
            assert_eq!(ours, sums, "{kind}");
        }
    }
}

#[test]
fn images_of_linux_print_equally() {
    if !can_mount() {
        return;
    }
    let in_small_nodes = [KeyType::SHARED_DATA_REF, KeyType::INODE_EXTREF, KeyType::METADATA_ITEM];
    let in_free_space_tree = [KeyType::FREE_SPACE_INFO, KeyType::FREE_SPACE_EXTENT, KeyType::METADATA_ITEM];
    for (name, mkfs, mount, kinds) in [
        ("fst", "-n 4096 -O block-group-tree", "space_cache=v2", &in_small_nodes[..]),
        ("v1", "-O ^free-space-tree,^no-holes,^skinny-metadata", "space_cache=v1", &[KeyType::UNTYPED]),
        ("mixed", "-M --csum sha256", "space_cache=v2", &in_free_space_tree),
    ] {
        let scratch = Scratch::new(name);
        scratch.mkfs("image", "1G", mkfs);
        scratch.with_mount("image", mount, CHANGES);
        compare(&scratch.open("image"));
        assert_kinds(&scratch.open("image"), OF_LINUX);
        assert_kinds(&scratch.open("image"), kinds);
        scratch.with_mount("image", mount, QUOTAS);
        compare(&scratch.open("image"));
        assert_kinds(&scratch.open("image"), OF_QUOTAS);
    }
}

#[test]
fn a_filesystem_with_a_log_and_orphans_prints_equally() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("log");
    scratch.mkfs("image", "256M", "");
    scratch.with_mount(
        "image",
        "commit=300",
        "for i in $(seq 1 50); do echo $i > f$i; done; exec 5> orphan; echo x >&5; rm orphan; sync -f .
         mkdir dir; echo y > dir/new; mv f1 dir/f1; dd if=/dev/zero of=f2 bs=5k count=1 conv=fsync status=none
         sync dir/new; cp ../image ../copy",
    );
    let copy = scratch.open("copy");
    assert!(copy.superblock.log_root().is_some(), "the copy was made between fsync and commit");
    compare(&copy);
}

#[test]
fn relocated_and_shared_blocks_pass_and_print_equally() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new("balance");
    scratch.mkfs("image", "1G", "-n 4096 -m single");
    scratch.with_mount(
        "image",
        "noatime",
        "btrfs -q subvolume create sub
         for i in $(seq 1 400); do dd if=/dev/urandom of=sub/f$i bs=1k count=5 status=none; done
         btrfs -q subvolume snapshot sub snap; sync -f .; for i in $(seq 1 7 400); do echo x >> snap/f$i; done; sync -f .
         btrfs -q balance start --full-balance . >/dev/null; sync -f .",
    );
    compare(&scratch.open("image"));
}
