//! Names that return to the state of the last commit while the log differs, names that go to a third file, and sequences that users
//! reported of Linux: no test of the group has them.

use super::run::{LogCase, Row};

pub(crate) fn cases() -> Vec<LogCase> {
    BACK.iter().chain(REPLACED).chain(REPORTED).map(LogCase::from).collect()
}

const BACK: &[Row] = &[
    (
        "back",
        "exchanged with a new file, and back",
        "create a; write a 0 3 61; sync; create b; write b 0 4 62; exchange a b; fsync a; exchange a b; fsync a",
        "a data 3:61",
    ),
    (
        "back",
        "exchanged with another, and back",
        "create a; write a 0 3 61; create b; write b 0 4 62; sync
        exchange a b; fsync /; exchange a b; write a 0 3 63; fsync a",
        "a data 3:63; b data 4:62",
    ),
    (
        "back",
        "the same, with the other one synced first",
        "create a; write a 0 3 61; sync; create b; write b 0 4 62; exchange a b; fsync /; exchange a b
        fsync b; fsync a",
        "a data 3:61; b data 4:62",
    ),
    (
        "back",
        "exchanged with a file of another directory, and back",
        "mkdir d; mkdir e; create d/a; write d/a 0 3 61; create e/b; write e/b 0 4 62; sync
        exchange d/a e/b; fsync d; exchange d/a e/b; write d/a 0 3 63; fsync d/a",
        "d names a; e names b; d/a data 3:63; e/b data 4:62",
    ),
    (
        "back",
        "moved away from a whiteout, and back over it",
        "create a; write a 0 3 61; sync; whiteout a z; fsync z; rename z a; fsync a",
        "/ names a; a data 3:61",
    ),
    (
        "back",
        "moved away from a whiteout, the directory synced, and back over it",
        "create a; write a 0 3 61; create z; sync; whiteout a n; fsync /; rename n a; write a 0 3 63; fsync a",
        "/ names a z; a data 3:63",
    ),
    (
        "back",
        "directories that are exchanged, and back",
        "mkdir a; create a/f; write a/f 0 3 61; sync; mkdir b; exchange a b; fsync a; exchange a b; fsync a",
        "a/f data 3:61",
    ),
    (
        "back",
        "directories that are exchanged, all synced, and back, with a file in one",
        "mkdir d; mkdir e; create d/f; write d/f 0 3 61; sync
        exchange d e; fsync /; exchange d e; write d/f 0 3 62; fsync d/f; create d/g; fsync d/g",
        "d names f g; e names; d/f data 3:62",
    ),
    (
        "back",
        "a new file takes one of two names, is synced, and gives it back to the other name",
        "mkdir d; mkdir e; create d/a; write d/a 0 3 61; link d/a e/z; sync
        create b; write b 0 4 62; rename b d/a; fsync d/a; rename e/z d/a; fsync d/a",
        "d names a; e names; d/a data 3:61",
    ),
    (
        "back",
        "kept by a second name while a new version is in its place, and put back",
        "create a; write a 0 3 61; sync; link a old; create new; write new 0 3 62; fsync new; rename new a; fsync /
        rename old a; write a 0 3 63; fsync a",
        "/ names a; a data 3:63",
    ),
    (
        "back",
        "moved away and back, with the same number, since the directory left memory between",
        "mkdir d; create d/a; create d/x; write d/x 0 3 61; mkdir e; for 1 200: mkdir e%
        sync; rename d/x e/x; for 1 200: create e%/f
        for 1 200: create e%/g
        fsync e/x; rename e/x d/x; fsync d/x",
        "d names a x; d/x data 3:61",
    ),
];

const REPLACED: &[Row] = &[
    (
        "replaced",
        "who replaced an old file is moved on, and the old one is there again",
        "create a; write a 0 3 61; sync; create t; write t 0 3 62; fsync t; rename t a; fsync a; rename a b; fsync b",
        "/ names b; b data 3:62",
    ),
    (
        "replaced",
        "the same to another directory",
        "mkdir d; create a; write a 0 3 61; sync; create t; write t 0 3 62; rename t a; fsync a; rename a d/b; fsync d/b",
        "/ names d; d names b; d/b data 3:62",
    ),
    (
        "replaced",
        "what replaces a file that the log has, when a third one takes the name that that had before",
        "create g; write g 0 3 61; create t; write t 0 3 62; sync; rename g u; fsync /
        rename t u; create g; write g 0 3 63; fsync g",
        "g data 3:63; u links 1",
    ),
    (
        "replaced",
        "the same with a new file in the place, that was synced",
        "create g; write g 0 3 61; sync; rename g u; create g; write g 0 3 62; fsync g; fsync u
        create new; write new 0 3 64; fsync new; rename new u; write g 0 3 63; fsync g",
        "g data 3:63; u links 1",
    ),
    (
        "replaced",
        "two that change places again and again, the newer one written and synced",
        "create a; write a 0 3 61; create b; write b 0 3 62; sync
        write b 0 3 63; fsync b; exchange a b; fsync a; write b 0 3 64; fsync b; exchange a b; fsync a",
        "a data 3:64; b data 3:63",
    ),
    (
        "replaced",
        "a file has a second name in a new directory",
        "create a; write a 0 3 61; sync; mkdir e; link a e/c; fsync a",
        "a is e/c; e names c; a data 3:61",
    ),
    (
        "replaced",
        "its new directory took the place of an old one by exchange",
        "mkdir d; create d/old; sync; mkdir e; create e/new; exchange d e; fsync d/new",
        "d names new; e names old",
    ),
    (
        "replaced",
        "moved on with a whiteout left behind where it was synced",
        "mkdir d; create d/f; write d/f 0 3 61; sync; whiteout d/f b; fsync b; whiteout b d/g; fsync d",
        "d names f g; d/g data 3:61; b links 1",
    ),
];

/// Sequences after which Linux' log lost data or was refused, as its users reported them from October 2025 to March 2026.
const REPORTED: &[Row] = &[
    (
        "reported",
        "a symbolic link has its new name where the directory of its directory was synced first",
        "mkdir d; fsync /; symlink d/old foobar; fsync d; rename d/old d/new; fsync d",
        "/ names d; d names new; d/new target foobar",
    ),
    (
        "reported",
        "a new directory is there, and the name in it, where a synced file of a few bytes got that name",
        "create foo; sync; mkdir d; write foo 0 10 61; fsync foo; link foo d/bar; fsync /",
        "/ names d foo; foo data 10:61; d names bar; d/bar is foo",
    ),
    (
        "reported",
        "a moved directory has one place where a file had its name, was synced, and was moved into it",
        "mkdir d1; mkdir d2; sync; rename d1 d2/d3; create d1; open d1; fsync d1
        rename d1 d2/d3/foo; fsync d1",
        "/ names d2; d2 names d3; d2/d3 names foo; d2/d3/foo data",
    ),
    (
        "reported",
        "a new directory of many files is there where a synced file beside it was moved",
        "create 1; sync; mkdir d; write 1 0 1024 ab; fsync 1
        for 0 255: create d/%
        rename 1 2; fsync /",
        "/ names 2 d; 2 data 1024:ab; for 0 255: d/% data",
    ),
    (
        "reported",
        "a cut to the length that a file has changes its times, which are synced",
        "create foo; create old; sync; truncate foo 0; fsync foo",
        "/ names foo old; foo data; foo newer old; foo times",
    ),
    (
        "reported",
        "a file that is cut off to nothing and synced stays empty where it gets a name and the directory is synced",
        "create foo; truncate foo 1000; sync; truncate foo 0; fsync foo; link foo bar; fsync /",
        "/ names bar foo; foo data; foo links 2; bar is foo",
    ),
    (
        "reported",
        "the same of a file that is moved",
        "create foo; write foo 0 64K ab; sync; truncate foo 0; fsync foo; rename foo bar; fsync /",
        "/ names bar; bar data; bar links 1",
    ),
    (
        "reported",
        "a new directory is there where a link to a symbolic link with a removed directory's name was synced before",
        "mkdir foo; sync; rmdir foo; mkdir dir1; mkdir dir2; symlink foo bar; link foo dir2/link
        fsync dir2; fsync /",
        "/ names dir1 dir2 foo; dir1 names; dir2 names link; foo target bar; foo links 2; dir2/link is foo",
    ),
    (
        "reported",
        "a mode that was synced stays where the file gets a name and the directory is synced",
        "create foo; chmod foo 751; sync; chmod foo 777; fsync foo; link foo bar; fsync /",
        "/ names bar foo; foo mode 777; foo links 2; bar is foo",
    ),
    (
        "reported",
        "the same of a mode where the file is moved",
        "create foo; chmod foo 751; sync; chmod foo 777; fsync foo; rename foo bar; fsync /",
        "/ names bar; bar mode 777; bar links 1",
    ),
];
