//! What the tests want and is not so here: that an fsync of one file makes durable what became of others before it.
//!
//! An fsync promises the file that is synced. Linux puts more into its log: with a file that has a new name all that is new in that
//! directory, with a name that a logged inode gets all of that inode. The tests ask for that. A log of ours has only what was
//! synced; of the rest nothing is lost that the last commit has, and nothing is in two places.

use crate::run::Row;

/// Cases whose wants do not hold, and what holds instead.
pub(crate) const KNOWN: &[(Row, &str)] = &[
    (
        (
            "generic/104",
            "two files get names in one directory, and one of them is synced",
            "mkdir d; create d/foo; create d/bar; sync; link d/bar d/bar_link; link d/foo d/foo_link
        fsync d/bar",
            "d names bar bar_link foo foo_link; d/bar links 2; d/foo links 2",
        ),
        "d/bar links 2; d/bar_link is d/bar",
    ),
    (
        (
            "generic/343",
            "a file gets a name in a directory to which others are moved, which have two places then",
            "mkdir x; mkdir y; create x/foo; mkdir y/z; create y/foo2; sync
        link x/foo x/bar; rename y/z x/z; rename y/foo2 x/foo2; fsync x/bar",
            "x names bar foo foo2 z; y names; x/bar is x/foo",
        ),
        "x/bar is x/foo; x/foo links 2; either x/foo2 y/foo2 data; either x/z y/z mode 755",
    ),
    (
        (
            "btrfs/239",
            "a directory is moved out of a large one that was synced, and has two parents",
            "mkdir d; for 1 1200: create d/file%
        mkdir d/dira; fsync /; sync; chmod d 700; fsync d; rename d/dira dira; write d/file1 0 64K ab
        fsync d/file1",
            "d/dira gone; / names d dira; d mode 700; d/file1 data 64K:ab; for 2 1200: d/file% data",
        ),
        "either d/dira dira mode 755; d mode 700; d/file1 data 64K:ab; for 2 1200: d/file% data",
    ),
    (
        (
            "generic/066",
            "an attribute that was removed is back, where the file was synced before and got a name",
            "create foo; set foo user.attr1 val1; set foo user.attr3 val3; sync; write foo 0 13 61; fsync foo
        unset foo user.attr1; link foo foo_link; create qwerty; fsync qwerty",
            "foo xattrs user.attr3; foo data 13:61; qwerty data",
        ),
        "foo data 13:61; foo xattr user.attr3 val3; qwerty data",
    ),
];
