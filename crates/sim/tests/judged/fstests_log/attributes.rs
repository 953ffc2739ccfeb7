//! Attributes, modes, and more around an fsync: subvolumes, and what is committed without one.

use super::run::{LogCase, Row};

pub(crate) fn cases() -> Vec<LogCase> {
    ATTRIBUTES.iter().chain(SUBVOLUMES).chain(COMMITS).map(LogCase::from).collect()
}

const ATTRIBUTES: &[Row] = &[
    (
        "generic/066",
        "an attribute that was removed is back, where the file was synced before and got a name",
        "create foo; set foo user.attr1 val1; set foo user.attr3 val3; sync; write foo 0 13 61; fsync foo
        unset foo user.attr1; link foo foo_link; create qwerty; fsync qwerty",
        "foo xattrs user.attr3; foo data 13:61; qwerty data",
    ),
    (
        "generic/066",
        "an attribute that was removed is back",
        "create foo; set foo user.attr1 val1; set foo user.attr2 val2; set foo user.attr3 val3; sync
        unset foo user.attr2; fsync foo",
        "foo xattrs user.attr1 user.attr3; foo xattr user.attr1 val1; foo xattr user.attr3 val3",
    ),
    (
        "generic/489",
        "attributes are lost where a commit comes between two calls of fsync",
        "create foo; set foo user.xa1 qwerty; set foo user.xa2 hello; set foo user.xa3 test; fsync foo; sync
        write foo 0 64K ea; fsync foo",
        "foo xattrs user.xa1 user.xa2 user.xa3; foo xattr user.xa2 hello; foo data 64K:ea",
    ),
    (
        "generic/535",
        "a mode is not synced",
        "create foo; chmod foo 777; sync; chmod foo 755; fsync foo",
        "foo mode 755",
    ),
    (
        "generic/535",
        "the same of a directory",
        "mkdir d; chmod d 777; sync; chmod d 755; fsync d",
        "d mode 755",
    ),
    (
        "generic/745",
        "of attributes in several leaves some are lost when the data is synced",
        "create foo; write foo 0 32K aa; sync; for 1 1000: set foo user.attr_% val_%
        sync; write foo 8K 16K bb; fsync foo",
        "foo data 8K:aa 16K:bb 8K:aa; for 1 1000: foo xattr user.attr_% val_%",
    ),
];

const SUBVOLUMES: &[Row] = &[
    (
        "btrfs/118",
        "a snapshot is deleted, the root synced, and the replay stops at the snapshot's name",
        "snapshot snap1; delete-subvolume snap1; fsync /",
        "/ names",
    ),
    (
        "btrfs/118",
        "the same in a directory",
        "mkdir d; snapshot d/snap2; delete-subvolume d/snap2; fsync d",
        "/ names d; d names",
    ),
    (
        "btrfs/119",
        "a snapshot is on its way out when a file that it shared is replayed",
        "mkdir a; mkdir b; create a/f; sync; create foo; write foo 0 8K aa; fsync foo; snapshot snap
        delete-subvolume snap; write foo 4K 8K bb; rename a/f a/b; fsync a; fsync foo",
        "/ names a b foo; a names b; foo data 4K:aa 8K:bb",
    ),
    (
        "btrfs/120",
        "a directory in which a snapshot was deleted is removed, and a new one of that name synced",
        "mkdir d; snapshot d/snap; delete-subvolume d/snap; rmdir d; mkdir d; fsync d",
        "/ names d; d names",
    ),
    (
        "btrfs/120",
        "the same, and a file in it is synced",
        "mkdir d; snapshot d/snap; delete-subvolume d/snap; rmdir d; mkdir d; create d/foo; fsync d/foo",
        "/ names d; d names foo; d/foo data",
    ),
    (
        "btrfs/196",
        "files of many subvolumes are synced, and the tree of logs leads to a block that was not written",
        "for 0 9: subvolume %
        for 0 9: create %/file
        sync
        for 0 9: write %/file 0 4K 01
        for 0 9: fsync %/file
        for 0 9: write %/file 4K 4K 02
        for 0 9: fsync %/file
        for 0 9: write %/file 8K 4K 03
        for 0 9: fsync %/file",
        "for 0 9: ever %/file begins 4K:01 4K:02 4K:03
        for 0 9: %/file data 4K:01 4K:02 4K:03",
    ),
];

/// What whole commits have.
const COMMITS: &[Row] = &[
    (
        "generic/052",
        "new files are lost though they were synced, all of them",
        "for 1 100: create %
        sync",
        "for 1 100: % data",
    ),
    (
        "generic/054",
        "the same, where each was synced on its own",
        "create 1; sync; create 2; sync; create 3; sync; create 4; sync; create 5; sync; create 6; sync",
        "/ names 1 2 3 4 5 6",
    ),
];
