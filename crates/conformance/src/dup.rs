//! DUP: a bad copy is read from the other one, and mended when the image is open for writing.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, LoopMount, Run};

use crate::support::{JUDGED, MOUNTED, inside, mkfs_from, torture_source};

const SUPERBLOCK_COPIES: [u64; 3] = [65_536, 64 << 20, 256 << 30];

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("dup/read-from-the-other-copy", &JUDGED, read_other_copy),
        Case::new("dup/repair-when-writable", &MOUNTED, repair),
    ]
}

fn read_other_copy(bench: &Bench) -> Result<()> {
    for bad in [0, 1] {
        let image = bench.scratch.file(&format!("disk-{bad}.img"));
        let source = bench.scratch.file("source");
        let want = if source.exists() { Walk::take(&source)? } else { torture_source(bench)?.1 };
        mkfs_from(bench.creamery(), &["-m", "dup", "-d", "dup"], &source, &image)?;
        damage(&image, bad, &["SYSTEM", "METADATA", "DATA"])?;
        let out = bench.scratch.file(&format!("out-{bad}"));
        bench.creamery().run(["cp", "-a"]).arg(inside(&image, "/")).arg(&out).ok()?;
        expect_same("a tree read past bad copies", &want, &Walk::take(&out)?, &Compare::default())?;
        std::fs::remove_dir_all(&out)?;
    }
    Ok(())
}

fn repair(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("disk.img");
    let (source, want) = torture_source(bench)?;
    mkfs_from(bench.creamery(), &["-m", "dup", "-d", "dup"], &source, &image)?;
    damage(&image, 0, &["DATA"])?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("fuse"), "")?;
    expect_same("a mount of bad copies", &want, &Walk::take(mount.dir())?, &Compare::default())?;
    // The copies are mended with the first change.
    std::fs::write(mount.dir().join("change"), "a change")?;
    std::fs::remove_file(mount.dir().join("change"))?;
    mount.unmount()?;
    // Now the first copies must be whole: without the second ones the kernel has nothing else to read.
    damage(&image, 1, &["DATA"])?;
    let mount = LoopMount::mount(&image, &bench.scratch.file("kernel"), "ro")?;
    let loose = Compare { mtime: false, root: false, ..Compare::default() };
    expect_same("the mended copies", &want, &Walk::take(mount.dir())?, &loose)?;
    mount.unmount()
}

/// Overwrites copy `copy` of every chunk whose type contains one of `types`.
pub(crate) fn damage(image: &Path, copy: usize, types: &[&str]) -> Result<()> {
    let said = Run::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "chunk"]).arg(image).ok()?;
    let said = said.stdout_text();
    let file = File::options().write(true).open(image)?;
    let end = file.metadata()?.len();
    let mut damaged = 0;
    let (mut length, mut wanted) = (0, false);
    for line in said.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["length", bytes, "owner", .., kind] => {
                length = bytes.parse().context("the length of a chunk")?;
                wanted = types.iter().any(|name| kind.starts_with(name)) && kind.contains("DUP");
            }
            ["stripe", number, "devid", _, "offset", offset] if wanted && number.parse() == Ok(copy) => {
                scribble(&file, offset.parse().context("the offset of a stripe")?, length, end)?;
                damaged += 1;
            }
            _ => {}
        }
    }
    ensure!(damaged > 0, "found no DUP chunk of {types:?} to damage");
    Ok(())
}

fn scribble(file: &File, start: u64, length: u64, end: u64) -> Result<()> {
    if start + length > end {
        bail!("a chunk ends at {}, past the image's end at {end}", start + length);
    }
    let junk = [0xa5; 65_536];
    let mut at = start;
    while at < start + length {
        let len = (start + length - at).min(junk.len() as u64);
        let hits_superblock = SUPERBLOCK_COPIES.iter().any(|copy| at < copy + 65_536 && *copy < at + len);
        if !hits_superblock {
            file.write_all_at(&junk[..len as usize], at)?;
        }
        at += len;
    }
    Ok(())
}
