//! Names that somebody has again as the last commit has them, while the log says otherwise, and names that come to the third one: no test
//! of the group has them.

use super::run::{Case, Row};

pub(crate) fn cases() -> Vec<Case> {
    BACK.iter().chain(REPLACED).map(Case::from).collect()
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
