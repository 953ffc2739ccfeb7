//! Filesystems that Linux does not mount, or of which it refuses a leaf: nobody writes to them. Reading stays possible.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Random};

use crate::hostile::Victim;
use crate::item_types::{
    CHUNK_ITEM, EXTENT_CSUM, EXTENT_DATA, EXTENT_ITEM, INODE_ITEM, METADATA_ITEM, ROOT_ITEM,
};
use crate::support::{MOUNTED, expect_refusal, expect_untouched, inside, mkfs_from};

pub(crate) fn cases() -> Vec<Case> {
    let refused = what_linux_does_not_mount_is_not_written;
    vec![
        Case::new("hostile/what-linux-does-not-mount-is-not-written", &MOUNTED, refused),
        Case::new(
            "hostile/checksums-of-no-extent-are-replaced",
            &MOUNTED,
            checksums_of_no_extent_are_replaced,
        ),
    ]
}

const TOP_LEVEL: u64 = 5;
const DATA_RELOC: u64 = 9_u64.wrapping_neg();
const ROOT_DIRECTORY: u64 = 256;
/// A transaction.
const NEVER: u64 = 1 << 40;
/// In a key.
const KIND: usize = 8;
const OFFSET: usize = 9;
/// In a superblock.
const STRIPE_SIZE: usize = 156;
const FLAGS: usize = 56;
const TOTAL: usize = 112;
const DEVICE_TOTAL: usize = 209;
/// In an inode item, and in the data of an extent item.
const TRANSID: usize = 8;
const EXTENT_GENERATION: usize = 8;
/// In a root item.
const LAST_SNAPSHOT: usize = 200;
const REFS: usize = 216;
const SECOND_GENERATION: usize = 239;
/// In a chunk item: its type, and that of data.
const CHUNK_TYPE: usize = 24;
const DATA: u64 = 1;
/// Of an extent item with two references to data that are in it.
const TWO_REFS: usize = 24 + 2 * REF;
const REF: usize = 29;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn put(bytes: &mut [u8], at: usize, value: u64) -> bool {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    true
}

fn of(key: &[u8], objectid: u64) -> bool {
    word(key, 0) == objectid
}

/// A type that there is not.
fn no_type(key: &mut [u8]) -> bool {
    key[KIND] += 1;
    true
}

fn swap_refs(_: &mut [u8], data: &mut [u8]) -> bool {
    let has_two = data.len() == TWO_REFS;
    if has_two {
        let (one, other) = data[TWO_REFS - 2 * REF..].split_at_mut(REF);
        one.swap_with_slice(other);
    }
    has_two
}

type HostileEdit = fn(&mut [u8], &mut [u8]) -> bool;

struct HostileDamage {
    what: &'static str,
    /// Type of the items, and what is done to them.
    kind: u8,
    change: HostileEdit,
    /// Words of the refusal.
    said: &'static str,
    /// Whether all can be read that was written.
    is_readable: bool,
}

const fn damage(what: &'static str, kind: u8, change: HostileEdit, said: &'static str) -> HostileDamage {
    HostileDamage { what, kind, change, said, is_readable: true }
}

const DAMAGES: [HostileDamage; 11] = [
    damage(
        "an inode that is not yet",
        INODE_ITEM,
        |key, data| of(key, ROOT_DIRECTORY + 1) && put(data, TRANSID, NEVER),
        "transid of an inode",
    ),
    damage("data that is not yet", EXTENT_DATA, |_, data| put(data, 0, NEVER), "generation of a file extent"),
    damage(
        "a root that is not yet",
        ROOT_ITEM,
        |key, data| of(key, TOP_LEVEL) && put(data, SECOND_GENERATION, NEVER),
        "second generation of a root",
    ),
    damage(
        "a snapshot that is not yet",
        ROOT_ITEM,
        |key, data| of(key, DATA_RELOC) && put(data, LAST_SNAPSHOT, NEVER),
        "last snapshot of a root",
    ),
    damage(
        "no data relocation tree",
        ROOT_ITEM,
        |key, _| of(key, DATA_RELOC) && no_type(key),
        "has no root item",
    ),
    damage(
        "a data relocation tree without a reference",
        ROOT_ITEM,
        |key, data| {
            data[REFS..REFS + 4].fill(if of(key, DATA_RELOC) { 0 } else { 1 });
            of(key, DATA_RELOC)
        },
        "has no reference",
    ),
    damage(
        "an extent that is not yet",
        EXTENT_ITEM,
        |_, data| put(data, EXTENT_GENERATION, NEVER),
        "generation of an extent",
    ),
    damage(
        "a tree block that is not yet",
        METADATA_ITEM,
        |_, data| put(data, EXTENT_GENERATION, NEVER),
        "generation of an extent",
    ),
    damage("references out of order", EXTENT_ITEM, swap_refs, "references out of order"),
    HostileDamage {
        what: "no root directory",
        kind: INODE_ITEM,
        change: |key, _| of(key, ROOT_DIRECTORY) && no_type(key),
        said: "root directory",
        is_readable: false,
    },
    HostileDamage {
        what: "a device extent without a chunk",
        kind: CHUNK_ITEM,
        // That of data is the first one, and is so with a smaller type.
        change: |key, data| {
            let is_data = word(data, CHUNK_TYPE) & DATA != 0;
            key[KIND] -= u8::from(is_data);
            is_data
        },
        said: "belongs to no chunk",
        is_readable: false,
    },
];

/// A file whose extent has two references, and checksums in two items.
fn made(bench: &Bench, image: &Path) -> Result<Vec<u8>> {
    let source = bench.scratch.dir("source")?;
    let content = Random::new(7).bytes(300_000);
    for name in ["a", "b", "c"] {
        std::fs::write(source.join(name), &content)?;
    }
    mkfs_from(bench.creamery(), &["-b", "256M"], &source, image)?;
    bench.creamery().run(["rm"]).arg(inside(image, "/b")).ok()?;
    let clone = bench.creamery().run(["cp", "--reflink=always"]);
    clone.arg(inside(image, "/a")).arg(inside(image, "/clone")).ok()?;
    Ok(content)
}

/// Nobody writes, whatever there is to be read can be read, and `check` calls it damage.
fn judge(bench: &Bench, image: &Path, said: &str, content: Option<&[u8]>) -> Result<()> {
    let (point, rw) = (bench.scratch.dir("point")?, bench.scratch.dir("rw")?);
    expect_untouched(image, || {
        expect_refusal(bench.creamery().run(["mkdir"]).arg(inside(image, "/new")), &["disk.img", said])?;
        expect_refusal(bench.creamery().run(["mount"]).arg(image).arg(&rw), &[said])?;
        if let Some(content) = content {
            let listed = bench.creamery().run(["ls", "-l"]).arg(inside(image, "/")).ok()?.stdout_text();
            ensure!(listed.lines().count() == 3, "{listed}");
            ensure!(bench.creamery().run(["cat"]).arg(inside(image, "/c")).ok()?.stdout == content);
            let mount = FuseMount::mount(bench.creamery(), image, &point, "ro")?;
            ensure!(std::fs::read(mount.dir().join("clone"))? == content);
            mount.unmount()?;
        }
        let checked = bench.creamery().run(["check"]).arg(image).output()?;
        ensure!(checked.code == Some(4), "{checked}");
        Ok(())
    })
}

fn what_linux_does_not_mount_is_not_written(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let content = made(bench, &image)?;
    let mut victim = Victim::new(image.clone())?;
    for HostileDamage { what, kind, change, said, is_readable } in DAMAGES {
        let changed = victim.edit(kind, &mut |key, data| change(key, data))?;
        ensure!(changed > 0, "{what}: there is nothing to change");
        let content = is_readable.then_some(&content[..]);
        judge(bench, &image, said, content).with_context(|| what.to_owned())?;
        victim.restore()?;
    }
    victim.edit_superblock(&mut |bytes| bytes[STRIPE_SIZE] ^= 1)?;
    judge(bench, &image, "stripe size", Some(&content)).context("a stripe size that means nothing")?;
    victim.restore()?;
    victim.edit_superblock(&mut |bytes| bytes[FLAGS + 5] ^= 0x10)?;
    judge(bench, &image, "unknown flags", Some(&content)).context("a flag that nobody knows")?;
    victim.restore()?;
    // Linux believes the device item of the chunk tree, whatever the superblock's own one says.
    for fields in [&[TOTAL][..], &[TOTAL, DEVICE_TOTAL]] {
        victim.edit_superblock(&mut |bytes| {
            for at in fields {
                put(bytes, *at, word(bytes, *at) - (1 << 20));
            }
        })?;
        judge(bench, &image, "wrong total bytes", Some(&content))
            .context("a sum of bytes that is too small")?;
        victim.restore()?;
    }
    // The second item of the checksums begins within the first one.
    let mut first = u64::MAX;
    victim.edit(EXTENT_CSUM, &mut |key, _| {
        first = first.min(word(key, OFFSET));
        false
    })?;
    let moved = victim
        .edit(EXTENT_CSUM, &mut |key, _| word(key, OFFSET) > first && put(key, OFFSET, first + 4096))?;
    ensure!(moved > 0, "the checksums are in one item");
    judge(bench, &image, "checksum item begins", None).context("checksums that overlap")?;
    victim.restore()?;
    bench.creamery().run(["mkdir"]).arg(inside(&image, "/new")).ok()?;
    Ok(())
}

/// What is written where checksums were left has its own: where there is one item of them, and where there are more than one handle
/// may remove.
fn checksums_of_no_extent_are_replaced(bench: &Bench) -> Result<()> {
    const FURTHER: u64 = 1 << 20;
    /// Files of two sectors each.
    const FILES: usize = 24;
    let source = bench.scratch.dir("source")?;
    for number in 0..FILES {
        std::fs::write(source.join(format!("file {number}")), Random::new(1).bytes(8192))?;
    }
    for number in 0..20 {
        std::fs::create_dir(source.join(format!("dir {number}")))?;
    }
    let content = Random::new(2).bytes(4 << 20);
    std::fs::write(bench.scratch.file("new"), &content)?;
    for (name, is_cut) in [("one.img", false), ("many.img", true)] {
        let image = bench.scratch.file(name);
        mkfs_from(bench.creamery(), &["-b", "256M"], &source, &image)?;
        if is_cut {
            let every_second = (0..FILES).step_by(2).map(|number| inside(&image, &format!("/file {number}")));
            bench.creamery().run(["rm"]).args(every_second).ok()?;
        }
        let moved = Victim::new(image.clone())?
            .edit(EXTENT_CSUM, &mut |key, _| put(key, OFFSET, word(key, OFFSET) + FURTHER))?;
        ensure!(if is_cut { moved > 8 } else { moved > 0 }, "{name}: {moved} items of checksums");
        let checked = bench.creamery().run(["check"]).arg(&image).output()?.stdout_text();
        ensure!(checked.contains("error 603"), "{name}: {checked}");
        bench.creamery().run(["cp"]).arg(bench.scratch.file("new")).arg(inside(&image, "/new")).ok()?;
        ensure!(bench.creamery().run(["cat"]).arg(inside(&image, "/new")).ok()?.stdout == content);
        let checked =
            bench.creamery().run(["check", "--check-data-csum"]).arg(&image).output()?.stdout_text();
        let others = [" 603", " 604", " 605"].iter().any(|number| checked.contains(number));
        ensure!(!others && checked.contains("error 601"), "{name}: {checked}");
    }
    Ok(())
}
