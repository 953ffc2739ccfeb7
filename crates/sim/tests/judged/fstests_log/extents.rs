//! Data, holes, and space behind the end around an fsync.

use super::run::{LogCase, Row};

pub(crate) fn cases() -> Vec<LogCase> {
    DATA.iter()
        .chain(HOLES)
        .chain(AHEAD)
        .chain(CLONES)
        .map(LogCase::from)
        .chain(holes_between_leaves())
        .collect()
}

/// What is written and cut off.
const DATA: &[Row] = &[
    (
        "generic/043",
        "a file has a length and no data",
        "for 1 60: create %
        for 1 60: write % 0 64K ff
        sync",
        "for 1 60: ever % begins 64K:ff
        for 1 60: % data 64K:ff",
    ),
    (
        "generic/044",
        "the same, where its length was set to what it was",
        "for 1 60: create %
        for 1 60: write % 0 64K ff
        for 1 60: truncate % 64K
        sync",
        "for 1 60: ever % begins 64K:ff
        for 1 60: % data 64K:ff",
    ),
    (
        "generic/045",
        "the same, where it was cut off",
        "for 1 60: create %
        for 1 60: write % 0 64K ff
        for 1 60: truncate % 32K
        sync",
        "for 1 60: ever % begins 64K:ff
        for 1 60: % data 32K:ff",
    ),
    (
        "generic/046",
        "the same, where a hole came behind the data",
        "for 1 60: create %
        for 1 60: write % 0 32K ff
        for 1 60: truncate % 64K
        sync",
        "for 1 60: ever % begins 32K:ff 32K:00
        for 1 60: % data 32K:ff 32K:00",
    ),
    (
        "generic/090",
        "a file gets a name, a commit has it, and what is appended and synced then is not seen",
        "create foo; write foo 0 32K aa; fsync foo; sync; link foo bar; sync; write foo 32K 32K bb
        fsync foo",
        "foo data 32K:aa 32K:bb; bar is foo",
    ),
    (
        "generic/101",
        "a file is cut off and grows again, and has the old data there",
        "create foo; write foo 0 64K aa; write foo 64K 61K bb; create bar; write bar 0 64K ee
        write bar 64K 61K ff
        sync; truncate foo 64K; truncate foo 125K; fsync foo; truncate bar 0; truncate bar 253K; fsync bar",
        "foo data 64K:aa 61K:00; foo maps 0..64K; bar data 253K:00; bar maps; bar takes 0",
    ),
    (
        "generic/325",
        "of two places of a file that are synced one after the other the second one is lost",
        "create foo; write foo 0 256K ff; sync; write foo 0 4K aa; write foo 252K 4K bb; fsync foo
        fsync foo",
        "foo data 4K:aa 248K:ff 4K:bb",
    ),
    (
        "btrfs/172",
        "without items for holes missing, a length is committed behind data that is not",
        "create foo; write foo 0 5M cd; write foo 4M 1M ce; sync",
        "ever foo begins 4M:cd 1M:ce; foo data 4M:cd 1M:ce",
    ),
    (
        "btrfs/209",
        "a part of what was appended is synced, and between that and the rest no hole has an item",
        "create foo; write foo 0 256K ab; fsync foo; sync; write foo 256K 768K cd; fsync foo
        write foo 768K 256K ef; fsync foo",
        "foo data 256K:ab 512K:cd 256K:ef",
    ),
    (
        "btrfs/236",
        "another file is synced after one was moved, which has its data no more",
        "create bar; create baz; write baz 0 1M ab; fsync baz; rename baz foo; write foo 0 1M cd
        fsync bar; fsync foo",
        "foo data 1M:cd; foo times; baz gone; bar data",
    ),
    (
        "btrfs/236",
        "the same of one that got a name",
        "create bar; create baz; write baz 0 1M ab; fsync baz; link baz foo; write foo 0 1M cd
        fsync bar; fsync foo",
        "foo data 1M:cd; foo times; baz is foo; bar data",
    ),
    (
        "btrfs/236",
        "the same of one that was moved and is overwritten in place",
        "create bar; create baz; in-place baz; write baz 0 1M ab; fsync baz; rename baz foo
        write foo 0 1M cd
        fsync bar; fsync foo",
        "foo data 1M:cd; foo times; baz gone; bar data",
    ),
    (
        "btrfs/236",
        "the same of one that got a name and is overwritten in place",
        "create bar; create baz; in-place baz; write baz 0 1M ab; fsync baz; link baz foo; write foo 0 1M cd
        fsync bar; fsync foo",
        "foo data 1M:cd; foo times; baz is foo; bar data",
    ),
];

/// Holes that are punched.
const HOLES: &[Row] = &[
    (
        "generic/059",
        "a hole in a part of a page is not synced",
        "create foo; write foo 0 16K 22; fsync foo; create old; sync; punch foo 8000 4K
        punch foo 15000 100; fsync foo",
        "foo data 8000:22 4K:00 2904:22 100:00 1284:22; foo newer old; foo times",
    ),
    (
        "generic/177",
        "of holes that overlap the last one is not synced",
        "create foo; write foo 0 32*4K aa; fsync foo; punch foo 24*4K 8*4K; punch foo 16*4K 32*4K
        punch foo 8*4K 24*4K
        fsync foo",
        "foo data 8*4K:aa 24*4K:00; foo maps 0..8*4K; foo takes 8*4K",
    ),
    (
        "generic/695",
        "a hole beside another one is not synced",
        "create foo; truncate foo 12M; write foo 2M 8M ab; sync; punch foo 2M 2M; punch foo 8M 2M
        fsync foo",
        "foo data 4M:00 4M:ab 4M:00; foo maps 4M..8M; foo takes 4M",
    ),
    (
        "btrfs/206",
        "a hole behind the end has an item, and a length is committed that no items lead to",
        "create foo; allocate-keep foo 4K 8K; punch foo 4K 4K; write foo 0 4K cd; write foo 0 8K cd
        truncate foo 12K
        sync",
        "ever foo begins 8K:cd 4K:00; foo data 8K:cd 4K:00",
    ),
];

/// Space that files have before they have data, in them and behind their end.
const AHEAD: &[Row] = &[
    (
        "generic/483",
        "space behind the end is lost in an fsync",
        "create foo; write foo 0 256K ea; create bar; for 0 199: write bar %*4K 4K cf
        create baz; write baz 0 256K f1; allocate-keep baz 256K 768K; fsync baz; sync
        allocate-keep foo 256K 1M; fsync foo; truncate bar 256K; allocate-keep bar 256K 1M; fsync bar
        allocate-keep baz 1M 2M; fsync baz",
        "foo data 256K:ea; foo takes 256K+1M; bar data 256K:cf; bar takes 256K+1M; baz data 256K:f1
        baz takes 3M",
    ),
    (
        "generic/512",
        "a file of some bytes grows in its first sector, and its length is lost",
        "create foo; write foo 0 21 b6; allocate foo 40 40; fsync foo",
        "foo data 21:b6 59:00",
    ),
    (
        "generic/546",
        "where no space is left, data in space that was taken before is not written",
        "create foo; allocate foo 8K 4M; create padding; fill padding; sync; write foo 1M 1M cd
        clone foo 8K 4K foo 0
        fsync foo",
        "foo data 1M:00 1M:cd 2M+8K:00",
    ),
    (
        "generic/677",
        "space behind the end of a file in many extents is lost when one of them is synced",
        "create foo; for 0 255: write foo %*4K 4K cd
        allocate-keep foo 1M 64K; allocate-keep foo 2M 64K; sync; write foo 0 4K ce; fsync foo",
        "foo data 4K:ce 1020K:cd; foo takes 1M+128K",
    ),
    (
        "generic/748",
        "a file grows over space that it has, while that is synced with an attribute",
        "create foo; allocate-keep foo 0 12K; write foo 0 4K cd; fsync foo; set foo user.a a
        write foo 4K 4K ce; fsync foo",
        "foo data 4K:cd 4K:ce; foo takes 12K; foo xattr user.a a",
    ),
    (
        "btrfs/211",
        "of space that begins before the end and goes on behind it a part is lost",
        "create foo; allocate-keep foo 0 128K; allocate-keep foo 128K 128K; fsync foo
        allocate foo 0 64K; fsync foo
        truncate foo 256K; fsync foo",
        "foo data 256K:00; foo takes 256K",
    ),
    (
        "btrfs/211",
        "the same, written over behind the replay",
        "create foo; allocate-keep foo 0 256K; allocate foo 0 64K; fsync foo; truncate foo 256K; fsync foo
        write foo 0 128K ab; fsync foo",
        "foo data 128K:ab 128K:00; foo takes 256K",
    ),
    (
        "btrfs/240",
        "space is written in parts over two commits, and the checksums of its parts overlap in the log",
        "create foo; allocate foo 0 1M; allocate foo 3M 3M; write foo 3M 1M ab; write foo 5M 1M ef
        fsync foo; sync
        write foo 4M 1M cd; fsync foo; write foo 0 1M ff; truncate foo 5M; fsync foo",
        "foo data 1M:ff 2M:00 1M:ab 1M:cd",
    ),
];

/// Extents that files share.
const CLONES: &[Row] = &[
    (
        "generic/501",
        "what a synced file shares with another over its end is not synced",
        "create foo; write foo 0 256K 18; create bar; write bar 0 2M 20; fsync bar
        clone foo 0 256K bar 1920K; fsync bar",
        "bar data 1920K:20 256K:18",
    ),
    (
        "generic/588",
        "a part of an extent is shared in a file, and another part of it written",
        "create foo; write foo 0 256K a3; fsync foo; write foo 256K 256K c7; clone foo 320K 64K foo 0
        fsync foo
        write foo 256K 64K e5; fsync foo",
        "foo data 64K:c7 192K:a3 64K:e5 192K:c7",
    ),
    (
        "btrfs/056",
        "what is cloned over synced data is not synced, nor the hole in it",
        "create foo; write foo 0 8K 01; fsync foo; write foo 8K 8K 02; fsync foo; write foo 24K 8K 04
        fsync foo
        write foo 32K 8K 05; fsync foo; create bar; write bar 0 96K ff; fsync bar
        clone foo 12K 24K bar 0; fsync bar",
        "bar data 4K:02 8K:00 8K:04 4K:05 72K:ff",
    ),
    (
        "btrfs/056",
        "the same of small files, whose data lies in their items",
        "create foo; write foo 0 2000 00; fsync foo; create bar; write bar 0 1000 cc; fsync bar
        clone foo 0 0 bar 0; fsync bar",
        "bar data 2000:00",
    ),
    (
        "btrfs/095",
        "an extent loses as many references as it gets, in the wrong order",
        "create foo; allocate foo 40*4K 115*4K; write foo 135*4K 30*4K aa; sync
        clone foo 40*4K 0 foo 512*4K
        write foo 768*4K 25*4K bb; clone foo 768*4K 25*4K foo 150*4K; fsync foo",
        "foo data 135*4K:00 15*4K:aa 25*4K:bb 432*4K:00 30*4K:aa 131*4K:00 25*4K:bb",
    ),
    (
        "btrfs/098",
        "the checksums of an extent and those of a part of it are both brought back, and hide one another",
        "create foo; write foo 200*4K 25*4K aa; fsync foo; clone foo 205*4K 5*4K foo 100*4K; fsync foo",
        "foo data 100*4K:00 5*4K:aa 95*4K:00 25*4K:aa",
    ),
    (
        "btrfs/231",
        "a hole is cloned behind the end of a file that was cut off, and the old data is back",
        "create foo; write foo 0 256K ab; write foo 512K 256K cd; write foo 768K 256K ef
        write foo 1024K 256K 73; sync
        truncate foo 800K; fsync foo; clone foo 256K 256K foo 1024K; fsync foo",
        "foo data 256K:ab 256K:00 256K:cd 32K:ef 480K:00",
    ),
];

/// Files of many extents, and holes that are punched where one leaf ends and the next one begins: about there, for where it is no row
/// knows.
fn holes_between_leaves() -> impl Iterator<Item = LogCase> {
    const EXTENTS: usize = 120;
    let make = format!("create foo; for 0 {}: write foo %*16K 8K ab;", EXTENTS - 1);
    let punched = [(1, 2), (30, 1), (38, 9), (47, 3), (90, 20)].into_iter().map(move |(first, count)| {
        let len = count * (16 << 10);
        // From within an extent into another one.
        let mut data = vec![0; EXTENTS * (16 << 10) - (8 << 10)];
        data.chunks_mut(16 << 10).for_each(|chunk| chunk[..8 << 10].fill(0xab));
        let at = first * (16 << 10) + 96;
        data[at..at + len].fill(0);
        LogCase {
            test: "btrfs/159",
            what: "a hole that goes over the end of a leaf is synced in part",
            steps: format!("{make} sync; punch foo {at} {len}; fsync foo"),
            wants: format!("foo data {}", as_runs(&data)),
        }
    });
    let ahead = [2400, 3000, 3400, 3600].into_iter().flat_map(|pad| {
        let one = |punch: &str, wants: &str| LogCase {
            test: "btrfs/201",
            what: "a hole with which a leaf would begin is not synced",
            steps: format!(
                "create aside; set aside user.x1 X*{pad}; create foo; for 0 99: write foo %*4K 4K ab
                sync; {punch}; fsync foo"
            ),
            wants: wants.to_owned(),
        };
        [
            one("punch foo 0 4K", "foo data 4K:00 396K:ab"),
            one("punch foo 40K 200K; write foo 392K 4K f1", "foo data 40K:ab 200K:00 152K:ab 4K:f1 4K:ab"),
            one("punch foo 36K 200K; write foo 392K 4K f1", "foo data 36K:ab 200K:00 156K:ab 4K:f1 4K:ab"),
        ]
    });
    punched.chain(ahead).collect::<Vec<_>>().into_iter()
}

fn as_runs(data: &[u8]) -> String {
    let runs = data.chunk_by(|one, other| one == other);
    runs.map(|run| format!("{}:{:02x}", run.len(), run[0])).collect::<Vec<_>>().join(" ")
}
