//! Names that come and go around an fsync.

use super::run::{LogCase, Row};

pub(crate) fn cases() -> Vec<LogCase> {
    LINKS.iter().chain(MOVES).chain(DIRECTORIES).map(LogCase::from).chain(links_and_who_is_synced()).collect()
}

/// Names that are added and taken away.
const LINKS: &[Row] = &[
    (
        "generic/104",
        "two files get names in one directory, and one of them is synced",
        "mkdir d; create d/foo; create d/bar; sync; link d/bar d/bar_link; link d/foo d/foo_link
        fsync d/bar",
        "d names bar bar_link foo foo_link; d/bar links 2; d/foo links 2",
    ),
    (
        "generic/343",
        "a file gets a name in a directory to which others are moved, which have two places then",
        "mkdir x; mkdir y; create x/foo; mkdir y/z; create y/foo2; sync
        link x/foo x/bar; rename y/z x/z; rename y/foo2 x/foo2; fsync x/bar",
        "x names bar foo foo2 z; y names; x/bar is x/foo",
    ),
    (
        "generic/034",
        "a directory counts a name twice that the commit and the log have, and is never empty again",
        "mkdir d; create d/foo; sync; create d/bar; fsync d; fsync d/bar",
        "d names bar foo",
    ),
    (
        "generic/039",
        "a name that was removed stays, and leads nowhere once the file is gone",
        "mkdir a; mkdir a/b; create a/b/foo; write a/b/foo 0 12 61; link a/b/foo a/b/bar; sync
        unlink a/b/bar; fsync a/b/foo",
        "a/b names foo; a/b/foo links 1; a/b/foo data 12:61",
    ),
    (
        "generic/040",
        "of a file with so many names that they need a second kind of item, the replay counts too few",
        "create foo; write foo 0 12 61; for 1 1000: link foo foo_link_%
        sync; link foo foo_link_1001; fsync foo",
        "foo links 1002; for 1 1001: foo_link_% is foo; foo data 12:61",
    ),
    (
        "generic/041",
        "names in both kinds of items that were removed, and given again, are counted wrong",
        "create foo; write foo 0 12 61; for 1 1000: link foo foo_link_%
        sync; unlink foo_link_1; link foo foo_link_1001; link foo foo_link_1
        unlink foo_link_2; link foo foo_link_1002; link foo foo_link_1003; fsync foo",
        "foo links 1003; foo_link_2 gone; foo_link_1 is foo; for 3 1003: foo_link_% is foo; foo data 12:61",
    ),
    (
        "generic/056",
        "a name that a synced file gets takes its data out of the log",
        "create foo; write foo 0 4K aa; fsync foo; link foo foo_link; create bar; fsync bar",
        "foo data 4K:aa; bar data",
    ),
    (
        "generic/057",
        "the same, of a file that a commit has",
        "create foo; write foo 0 8K aa; sync; write foo 8K 4K cc; fsync foo
        link foo foo_link; create bar; fsync bar",
        "foo data 8K:aa 4K:cc; bar data",
    ),
    (
        "generic/065",
        "a directory is synced with new names of old files, whose links are not counted",
        "create foo; write foo 0 8K aa; mkdir d; sync; link foo d/foo_2; link foo d/foo_3
        create hello; write hello 0 64K ff; link hello d/hello_2; mkdir d/x; mkdir d/x/y; mkdir d/x/y/z
        link foo d/x/y/foo_y; link foo d/x/y/z/foo_z; create d/x/y/z/qwerty; fsync d; fsync hello",
        "foo data 8K:aa; foo links 5; hello data 64K:ff; hello links 2; d names foo_2 foo_3 hello_2 x
        d/x/y names foo_y z; d/x/y/z names foo_z qwerty; d/x/y/z/foo_z is foo; d/hello_2 is hello",
    ),
    (
        "generic/106",
        "a name was removed, the inode forgotten, and what is synced then is not that",
        "mkdir d; create d/foo; link d/foo d/bar; sync; unlink d/bar; fsync d/foo",
        "d names foo; d/foo links 1",
    ),
    (
        "generic/107",
        "a name was removed from a directory, and the file is synced by its name in another one",
        "mkdir d; create foo; link foo d/foo2; link foo d/foo3; sync; unlink d/foo3; fsync foo",
        "d names foo2; foo links 2; d/foo2 is foo",
    ),
    (
        "generic/336",
        "a name was removed from a directory, from which another file was moved away, which is lost",
        "mkdir a; mkdir b; mkdir c; create a/foo; link a/foo b/foo_link; create b/bar; sync
        unlink b/foo_link; rename b/bar c/bar; fsync a/foo",
        "a names foo; b names; c names bar; a/foo links 1",
    ),
    (
        "generic/480",
        "a new file has the name that another one has lost",
        "mkdir d; create d/foo; link d/foo d/bar; sync; unlink d/bar; create d/bar; fsync d/bar",
        "d names bar foo; d/foo links 1; d/bar links 1",
    ),
    (
        "generic/481",
        "behind a replay the number of a replayed file is given to a new one",
        "create foo; fsync foo",
        "foo data; foo links 1",
    ),
    (
        "generic/498",
        "a synced file gets a name below new directories, of which the upper one is synced and lost",
        "mkdir A; mkdir B; mkdir A/C; create B/foo; fsync B/foo; link B/foo A/C/foo; fsync A",
        "/ names A B; B names foo",
    ),
    (
        "generic/557",
        "a synced file is forgotten and removed, its directory synced, and the file is back",
        "mkdir d; create d/foo; fsync d/foo; unlink d/foo; fsync d",
        "d names",
    ),
    (
        "generic/764",
        "a file is synced that has no name any more, and is back with one",
        "mkdir d; create d/foo; open d/foo; fsync d/foo; unlink d/foo; fsync d/foo",
        "d names",
    ),
    (
        "generic/771",
        "a file with data is synced without a name, and the replay gives its extents to the next file",
        "mkdir d; create d/foo; write d/foo 0 64K cd; open d/foo; unlink d/foo; fsync d/foo
        create d/bar; fsync d/bar",
        "d names bar; d/bar data",
    ),
    (
        "generic/509",
        "a file that never had a name is synced, and the replay does not expect that",
        "tmpfile foo; write foo 0 64K ab; fsync foo",
        "/ names",
    ),
    (
        "generic/417",
        "files that were open and removed when power failed stay behind",
        "for 1 200: create foo%
        for 1 200: open foo%
        for 1 200: set foo% user.a v*512
        sync
        for 1 200: unlink foo%
        sync; create bar; fsync bar",
        "/ names bar",
    ),
];

/// Files that are moved.
const MOVES: &[Row] = &[
    (
        "generic/073",
        "what a file has got is lost where a directory was synced before, from which another was moved",
        "create foo; write foo 0 8K aa; fsync foo; mkdir d1; create d1/bar; mkdir d2; sync
        write foo 8K 8K bb; rename d1/bar d2/bar; fsync d1; fsync foo",
        "foo data 8K:aa 8K:bb",
    ),
    (
        "generic/321",
        "a new directory is synced, and lost",
        "mkdir bar; fsync bar",
        "/ names bar
        bar names",
    ),
    (
        "generic/321",
        "a file is moved into a new directory, and is where it was",
        "create foo; mkdir bar; fsync foo; rename foo bar/foo; fsync bar; fsync bar/foo",
        "/ names bar; bar names foo",
    ),
    (
        "generic/321",
        "the same, with an attribute that brings all of the inode into the log again",
        "create foo; mkdir bar; fsync foo; rename foo bar/foo; fsync bar; set bar/foo user.foo blah
        fsync bar/foo",
        "/ names bar; bar names foo; bar/foo xattr user.foo blah",
    ),
    (
        "generic/322",
        "a file is moved, and lost",
        "create foo; write foo 0 1M cd; fsync foo; rename foo bar; fsync bar",
        "/ names bar; bar data 1M:cd",
    ),
    (
        "generic/322",
        "what was written before a file was moved is lost",
        "create foo; write foo 0 1M cd; fsync foo; write foo 2M 1M cd; rename foo bar; fsync bar",
        "/ names bar; bar data 1M:cd 1M:00 1M:cd",
    ),
    (
        "generic/335",
        "a file is moved, the directory above the old one synced, and the file is lost",
        "mkdir a; mkdir a/b; mkdir c; create a/b/foo; sync; rename a/b/foo c/foo; create a/bar; fsync a
        fsync c/foo",
        "a names b bar; a/b names; c names foo",
    ),
    (
        "generic/342",
        "a new file has the name that another had, which is lost",
        "mkdir a; create a/foo; write a/foo 0 16K f1; sync
        rename a/foo a/bar; create a/foo; write a/foo 0 16K ba; fsync a/foo",
        "a names bar foo; a/foo data 16K:ba; a/bar data 16K:f1",
    ),
    (
        "generic/376",
        "the same, and the one that was moved is synced",
        "mkdir d; create d/foo; write d/foo 0 3 61; sync; rename d/foo d/bar; create d/foo; fsync d/bar",
        "d/bar data 3:61; d names bar foo",
    ),
    (
        "generic/502",
        "names of a file change places, and a new file has one of them",
        "mkdir d; create d/foo; link d/foo d/bar; sync
        rename d/foo d/qwerty; rename d/bar d/foo; create d/bar; write d/bar 0 3 61; fsync d/bar",
        "d names bar foo qwerty; d/foo is d/qwerty; d/foo links 2; d/bar data 3:61; d/bar links 1",
    ),
    (
        "generic/526",
        "files change names in a circle, into which a new one comes",
        "mkdir d; create d/1; write d/1 0 3 f0; create d/2; write d/2 0 5 e1; sync
        rename d/1 d/3; rename d/2 d/4; link d/3 d/2; create d/1; write d/1 0 3 ba; fsync d/1",
        "d names 1 2 3 4; d/1 data 3:ba; d/2 is d/3; d/3 data 3:f0; d/4 data 5:e1",
    ),
    (
        "generic/527",
        "a name was removed, given to one that was moved, and the old name to a new file",
        "mkdir d; create d/1; write d/1 0 3 f0; create d/2; write d/2 0 5 e1; sync
        rename d/1 d/3; unlink d/2; link d/3 d/2; create d/1; write d/1 0 3 ba; fsync d/1",
        "d names 1 2 3; d/1 data 3:ba; d/2 is d/3; d/3 data 3:f0",
    ),
    (
        "generic/527",
        "names change places by way of a third one, and a new file has one that was moved",
        "mkdir d; create d/zz; write d/zz 0 3 f0; link d/zz d/zz_link; create d/a; write d/a 0 5 e1; sync
        rename d/a d/tmp; rename d/zz_link d/a; rename d/tmp d/zz_link
        rename d/zz d/a2; create d/zz; write d/zz 0 3 ba; fsync d/zz",
        "d names a a2 zz zz_link; d/a is d/a2; d/a data 3:f0; d/zz data 3:ba; d/zz_link data 5:e1",
    ),
    (
        "generic/534",
        "a file is cut off, moved and synced, and has its old length",
        "create foo; write foo 0 8000 ab; fsync foo; truncate foo 3000; rename foo bar; fsync bar",
        "/ names bar; bar data 3000:ab",
    ),
    (
        "generic/552",
        "what was written to a file before it was forgotten and moved is lost",
        "mkdir d; create d/foo; create d/bar; write d/bar 0 4K d3; fsync d/foo; rename d/bar d/baz
        fsync d/baz",
        "d names baz foo; d/baz data 4K:d3",
    ),
    (
        "generic/640",
        "a file is moved out of a directory that was synced and forgotten, and is nowhere",
        "mkdir A; mkdir B; create A/foo; write A/foo 0 11 61; sync; create A/bar; fsync A
        rename A/foo B/foo; create baz; fsync baz",
        "either A/foo B/foo data 11:61; A/bar data; baz data",
    ),
    (
        "btrfs/243",
        "two files are moved, the first one synced, and what became of the second one's length is lost",
        "create foo; create bar; write bar 0 1M ab; sync; fsync bar
        rename bar bar2; rename foo foo2; truncate bar2 2M; fsync foo2; fsync bar2",
        "/ names bar2 foo2; bar2 data 1M:ab 1M:00",
    ),
];

/// Directories, and what is neither a file nor one of those.
const DIRECTORIES: &[Row] = &[
    (
        "btrfs/239",
        "a directory is moved out of a large one that was synced, and has two parents",
        "mkdir d; for 1 1200: create d/file%
        mkdir d/dira; fsync /; sync; chmod d 700; fsync d; rename d/dira dira; write d/file1 0 64K ab
        fsync d/file1",
        "d/dira gone; / names d dira; d mode 700; d/file1 data 64K:ab; for 2 1200: d/file% data",
    ),
    (
        "generic/341",
        "a new directory has the name that another had, whose files are lost",
        "mkdir a; mkdir a/x; create a/x/foo; write a/x/foo 0 32K af; create a/x/bar
        write a/x/bar 0 32K ba; sync
        rename a/x a/y; mkdir a/x; fsync a/x",
        "a names x y; a/x names; a/y names bar foo; a/y/foo data 32K:af; a/y/bar data 32K:ba",
    ),
    (
        "generic/479",
        "a symbolic link is moved and gets its old name for a second one, and the replay stops there",
        "mkdir d; symlink d/foo xxx; sync; create d/f1; fsync d/f1
        rename d/foo d/bar; link d/bar d/foo; create f2; fsync f2",
        "f2 data; d/f1 data; d/foo target xxx",
    ),
    (
        "generic/479",
        "the same of a fifo",
        "mkdir d; fifo d/foo; sync; create d/f1; fsync d/f1
        rename d/foo d/bar; link d/bar d/foo; create f2; fsync f2",
        "f2 data; d/f1 data; d/foo fifo",
    ),
    (
        "generic/479",
        "the same of a device",
        "mkdir d; chardev d/foo; sync; create d/f1; fsync d/f1
        rename d/foo d/bar; link d/bar d/foo; create f2; fsync f2",
        "f2 data; d/f1 data; d/foo chardev",
    ),
    (
        "generic/510",
        "a file is moved into a directory that then takes the place of the old one, and has two parents",
        "mkdir d; mkdir d/A; mkdir d/B; create d/B/bar; sync; rename d/B/bar d/A/bar; rename d/A d/B
        fsync d/B/bar",
        "d names B; d/B names bar; d/B/bar links 1",
    ),
    (
        "generic/690",
        "a new symbolic link is moved in a directory that was synced, and has no target",
        "mkdir d; sync; create d/foo; fsync d; symlink d/bar /d/foo; rename d/bar d/baz; fsync d",
        "d names baz foo; d/baz target /d/foo",
    ),
    (
        "generic/779",
        "a symbolic link is synced with its directory, moved, synced again, and has its old name",
        "mkdir d; symlink d/old foobar; fsync d; rename d/old d/new; fsync d",
        "d names new; d/new target foobar",
    ),
    (
        "generic/782",
        "a synced file gets a name in a new directory, whose own name is lost though the root is synced",
        "create foo; sync; mkdir d; write foo 0 64K ab; fsync foo; link foo d/bar; fsync /",
        "/ names d foo; foo data 64K:ab",
    ),
    (
        "generic/784",
        "a directory is moved, a file has its name, is moved too, and the replay stops at the directory",
        "mkdir d1; mkdir d2; sync; rename d1 d2/d1; create d1; fsync d1; rename d1 d2/foo; fsync d2/foo",
        "/ names d2; d2 names d1 foo; d2/d1 names; d2/foo data",
    ),
    (
        "generic/785",
        "a synced file is moved beside a new directory, which is lost though the root is synced",
        "create 1; sync; write 1 0 1000 ab; fsync 1; mkdir d; create d/foo; rename 1 2; fsync /",
        "/ names 2 d; 2 data 1000:ab; d names foo; d/foo data",
    ),
    (
        "generic/789",
        "a file that is cut off to nothing and synced stays empty where it gets a name and the directory is synced",
        "mkdir d; create d/foo; write d/foo 0 64K ab; sync; truncate d/foo 0; fsync d/foo
        link d/foo d/bar; fsync d",
        "d names bar foo; d/foo data; d/foo takes 0; d/foo links 2; d/bar is d/foo",
    ),
    (
        "generic/790",
        "a new directory is there where a link to a file with a removed directory's name was synced before",
        "mkdir foo; sync; rmdir foo; mkdir dir1; mkdir dir2; create foo; link foo dir2/link
        fsync dir2; fsync /",
        "/ names dir1 dir2 foo; dir1 names; dir2 names link; foo data; foo links 2; dir2/link is foo",
    ),
    (
        "generic/792",
        "a synced directory from which another was moved is removed, synced, and the replay stops there",
        "mkdir d1; chmod d1 777; mkdir d1/d2; mkdir d3; sync; chmod d1 770; fsync d1; rename d1/d2 d3/d2
        open d1; rmdir d1; fsync d1",
        "/ names d3; d3 names d2; d3/d2 names",
    ),
    (
        "btrfs/341",
        "directories change places, one with a subvolume in it, a moved file is synced, and the replay stops there",
        "mkdir d1; create d1/foo; mkdir d2; subvolume d2/s; create d2/s/f; sync
        rename d1/foo d1/bar; exchange d1 d2; fsync d2/bar",
        "/ names d1 d2; d1 names s; d1/s names f; d2 names bar",
    ),
];

/// What of it is synced, for each pair of names that a new file gets.
const LINKED: [(&str, &str, &[&str]); 6] = [
    ("foo", "bar", &["/", "foo", "bar"]),
    ("foo", "A/bar", &["/", "foo", "bar", "A", "A/bar", "A/foo"]),
    ("A/foo", "bar", &["/", "foo", "bar", "A", "A/bar", "A/foo"]),
    ("A/foo", "A/bar", &["/", "A", "A/bar", "A/foo"]),
    ("bar", "A/bar", &["/", "foo", "bar", "A", "A/bar", "A/foo"]),
    ("A/bar", "bar", &["/", "foo", "bar", "A", "A/bar", "A/foo"]),
];

/// A new file gets a second name, and one of them, a directory, or another new file is synced.
fn links_and_who_is_synced() -> impl Iterator<Item = LogCase> {
    let synced = |(first, second, synced): &(&'static str, &'static str, &'static [&'static str])| {
        let (first, second) = (*first, *second);
        synced.iter().map(Some).chain([None]).map(move |synced| link_of(first, second, synced.copied()))
    };
    LINKED.iter().flat_map(synced)
}

fn link_of(first: &str, second: &str, synced: Option<&str>) -> LogCase {
    let other = synced.filter(|path| ![first, second, "/", "A"].contains(path));
    let make = if [first, second].iter().any(|path| path.starts_with("A/")) || other == Some("A/foo") {
        "mkdir A;"
    } else {
        ""
    };
    let create = other.map_or(String::new(), |path| format!("create {path};"));
    let sync = synced.map_or("sync".to_owned(), |path| format!("fsync {path}"));
    let wants = match other {
        Some(other) => format!("{other} links 1"),
        None => format!("{first} links 2; {second} is {first}"),
    };
    LogCase {
        test: "generic/520",
        what: "a new file has two names, of which one is lost",
        steps: format!("{make} create {first}; link {first} {second}; {create} {sync}"),
        wants,
    }
}
