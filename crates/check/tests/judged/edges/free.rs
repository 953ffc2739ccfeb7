//! The values that a field may have: with them the filesystem is another one, or shows other values to users, but it is valid.

use creamery_edges::Edge;
use creamery_format::InodeFlags;

/// Whether the field may have the value; `newest` is the last transaction.
type May = fn(edge: &Edge, newest: u64) -> bool;

/// Whether the number may be at its edge.
pub(super) fn is_free(edge: &Edge, newest: u64) -> bool {
    let field = edge.field.split('+').next().unwrap_or_default();
    let known = |(part, fields, may): &(&str, &[&str], May)| {
        *part == edge.part && fields.contains(&field) && may(edge, newest)
    };
    // In the key of a subvolume: when it was made, if it is a snapshot.
    let of_subvolume = edge.place.contains("(FS_TREE ROOT_ITEM") || !edge.place.contains("_TREE ROOT_ITEM");
    let of_subvolume = of_subvolume && edge.place.contains(" ROOT_ITEM ");
    let snapshot = of_subvolume && (&*edge.part, field) == ("key", "offset");
    // The entry that names the default subvolume may name another one.
    let default = edge.place.contains("(ROOT_TREE_DIR DIR_ITEM") && edge.field.starts_with("location");
    let default = default && offset(edge) == 0 && SUBVOLUMES.contains(&edge.value);
    nobody_looks(edge) || snapshot || default || FREE.iter().any(known)
}

/// The subvolumes of the image whose fields are changed.
const SUBVOLUMES: [u64; 5] = [5, 256, 257, 258, 260];

const FREE: &[(&str, &[&str], May)] = &[
    ("superblock", &["flags"], |edge, _| edge.value & !(3 << 32 | 7) == 0),
    ("superblock", &["log_root_transid", "log_root_level", "root_dir_objectid", "compat_flags"], any),
    // Fields for features that the filesystem does not have, or old forms of other data.
    ("superblock", &["cache_generation", "uuid_tree_generation", "metadata_uuid", "nr_global_roots"], any),
    // Readers ignore unknown flags, and, without its flags, the free space tree.
    ("superblock", &["compat_ro_flags"], any),
    ("superblock", &["dev_item"], |edge, _| (24..66).contains(&offset(edge))),
    ("header", &["flags"], |edge, _| edge.value | 1 == edge.now | 1),
    ("INODE_ITEM", &["uid", "gid", "rdev", "block_group", "sequence", "reserved"], any),
    ("INODE_ITEM", &["atime", "ctime", "mtime", "otime"], any),
    ("INODE_ITEM", &["generation", "transid"], past),
    ("INODE_ITEM", &["mode"], |edge, _| edge.value & !0o7777 == edge.now & !0o7777),
    ("INODE_ITEM", &["size"], |edge, _| i64::try_from(edge.value).is_ok()),
    // The field of a directory.
    ("INODE_ITEM", &["nbytes"], |edge, _| edge.place.contains("(256 ")),
    // The upper half has flags that readers ignore.
    ("INODE_ITEM", &["flags"], |edge, _| {
        InodeFlags::from_bits_retain(edge.value & 0xffff_ffff).iter_names().count() as u32
            == (edge.value & 0xffff_ffff).count_ones()
    }),
    ("DIR_ITEM", &["transid"], any),
    ("DIR_INDEX", &["transid"], any),
    // The last part of the key of an inode. The type comes before it.
    ("DIR_ITEM", &["location"], |edge, _| offset(edge) == 16 || offset(edge) == 8 && edge.value & 0xff == 1),
    ("DIR_INDEX", &["location"], |edge, _| offset(edge) == 16 || offset(edge) == 8 && edge.value & 0xff == 1),
    ("XATTR_ITEM", &["transid", "location"], any),
    ("EXTENT_DATA", &["generation"], past),
    ("EXTENT_DATA", &["ram_bytes"], any),
    // Preallocated instead of written, for data that a snapshot or a clone has, too: it may be written through that one.
    ("EXTENT_DATA", &["kind"], |edge, _| edge.place.contains("tree 5 ") && (edge.now, edge.value) == (1, 2)),
    ("EXTENT_ITEM", &["generation"], past),
    // All flags except the kind of extent, and full backrefs.
    ("EXTENT_ITEM", &["flags"], |edge, _| edge.value & 0x103 == edge.now & 0x103),
    // A block that was shared once may keep full backrefs, and to a leaf without data they make no difference.
    ("METADATA_ITEM", &["flags"], |edge, _| {
        edge.value & 3 == edge.now & 3 && edge.value & 0x100 >= edge.now & 0x100
    }),
    ("ROOT_ITEM", &["inode", "byte_limit", "bytes_used", "reserved", "root_dirid"], any),
    ("ROOT_ITEM", &["otime", "ctime", "stime", "rtime"], any),
    ("ROOT_ITEM", &["ctransid", "otransid", "stransid", "rtransid"], any),
    ("ROOT_ITEM", &["uuid", "parent_uuid", "received_uuid"], any),
    ("ROOT_ITEM", &["last_snapshot", "generation_v2"], past),
    ("ROOT_ITEM", &["drop_progress", "drop_level"], any),
    // Linux reads those of subvolumes and of the data relocation tree only, and mkfs.btrfs makes quota trees without refs.
    ("ROOT_ITEM", &["refs"], |edge, _| {
        edge.value > 0
            || edge.place.contains("_TREE ROOT_ITEM")
                && !["(FS_TREE ", "(DATA_RELOC_TREE "].iter().any(|tree| edge.place.contains(tree))
    }),
    ("ROOT_ITEM", &["flags"], |edge, _| edge.value <= 1),
    ("FREE_SPACE_INFO", &["flags"], |edge, _| edge.value & 1 == edge.now & 1),
    ("DEV_EXTENT", &["chunk_tree", "chunk_objectid", "chunk_tree_uuid"], any),
    ("CHUNK_ITEM", &["owner", "io_align", "io_width", "sub_stripes"], any),
    ("DEV_ITEM", &["kind", "generation", "start_offset", "dev_group", "seek_speed", "bandwidth"], any),
    ("DEV_ITEM", &["io_align", "io_width", "sector_size"], any),
    ("PERSISTENT_ITEM", &["write_errs", "read_errs", "flush_errs", "corruption_errs", "generation"], any),
    ("QGROUP_STATUS", &["version", "generation", "flags", "rescan"], any),
    ("QGROUP_INFO", &["generation", "referenced_compressed", "exclusive_compressed"], any),
    ("QGROUP_LIMIT", &["flags", "max_referenced", "max_exclusive", "rsv_referenced", "rsv_exclusive"], any),
];

fn any(_: &Edge, _: u64) -> bool {
    true
}

fn past(edge: &Edge, newest: u64) -> bool {
    edge.value <= newest + 1
}

/// Returns the offset of the number in a field of several numbers.
fn offset(edge: &Edge) -> usize {
    edge.field.split_once('+').and_then(|(_, at)| at.parse().ok()).unwrap_or(0)
}

/// Whether the number lies in an item that no reader uses, or that belongs to no object.
fn nobody_looks(edge: &Edge) -> bool {
    let places = [
        // The directory that the root tree has for one entry: everything except that entry.
        "(ROOT_TREE_DIR INODE_",
        "(FS_TREE INODE_REF 6)",
        // Counters of a device and limits of a group, which then belong to another one.
        "PERSISTENT_ITEM",
        "QGROUP_LIMIT",
        // Leftovers of mkfs.btrfs below the first block group.
        "(1048576 FREE_SPACE_",
        "(5242880 FREE_SPACE_",
    ];
    places.iter().any(|place| edge.place.contains(place))
}
