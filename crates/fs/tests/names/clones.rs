//! Clones whose references have one hash: the kernel makes them, and each side drops some.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_base::{TreeId, Wait};
use creamery_format::{Key, KeyType};
use creamery_testkit::Judge::{BtrfsProgs, KernelBtrfs, LoopDevices, Root};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::tree::colliding_offsets;
use creamery_testkit::{clone_range, sync_filesystem};

use crate::support::ImageFixture;

const EXTENT: u64 = 12 << 10;
const COLLIDING: usize = 8;
/// More than fit into an extent item beside others.
const FILLERS: u64 = 60;

pub(crate) fn cases() -> Vec<Case> {
    let kernel = &[BtrfsProgs, KernelBtrfs, LoopDevices, Root];
    vec![
        Case::new("clones/references_behind_a_gap_are_found", kernel, behind_a_gap),
        Case::new("clones/a_file_of_references_with_one_hash_is_deleted", kernel, delete_at_once),
    ]
}

/// Has the kernel fill an extent's item with references and put those with one hash behind it.
fn make(fs: &mut ImageFixture) -> Result<()> {
    fs.with_kernel("rw", |dir| {
        let (base, clones) = (dir.join("base"), dir.join("clones"));
        std::fs::write(&base, vec![b'x'; usize::try_from(EXTENT)?])?;
        File::create(&clones)?;
        sync_filesystem(dir)?;
        for at in 1..=FILLERS {
            clone_range(&base, EXTENT, &clones, at << 16)?;
        }
        sync_filesystem(dir)?;
        for at in colliding_offsets(COLLIDING) {
            clone_range(&base, EXTENT, &clones, at)?;
            sync_filesystem(dir)?;
        }
        Ok(())
    })?;
    ensure!(runs(fs)?.contains(&COLLIDING), "no references stand side by side: {:?}", runs(fs)?);
    Ok(())
}

/// How many reference items stand at neighbouring offsets, for each such group.
fn runs(fs: &ImageFixture) -> Result<Vec<usize>> {
    let tree = fs.engine().tree(TreeId::EXTENT)?;
    let mut cursor = tree.cursor(&Key::MIN, Wait::Yes)?;
    let (mut lengths, mut before) = (Vec::new(), Key::MIN);
    while let Some((key, _)) = cursor.item() {
        if key.kind == KeyType::EXTENT_DATA_REF {
            let follows = key == Key { offset: before.offset.wrapping_add(1), ..before };
            match lengths.last_mut() {
                Some(length) if follows => *length += 1,
                _ => lengths.push(1),
            }
            before = key;
        }
        cursor.advance()?;
    }
    Ok(lengths)
}

fn content(path: &Path, at: u64) -> Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; usize::try_from(EXTENT)?];
    File::open(path)?.read_exact_at(&mut bytes, at).context("reading a clone")?;
    Ok(bytes)
}

fn overwrite(fs: &ImageFixture, data: &[u8], at: u64) -> Result<()> {
    let file = fs.open_file(fs.find(fs.top(), "clones")?)?;
    ensure!(file.write_at(at, data)? == data.len());
    Ok(())
}

fn behind_a_gap(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    make(&mut fs)?;
    let offsets = colliding_offsets(COLLIDING);
    // The first goes and leaves a gap. The third gets one file extent item more, the fourth goes.
    overwrite(&fs, &vec![b'a'; usize::try_from(EXTENT)?], offsets[0])?;
    fs.reopen()?;
    overwrite(&fs, &[b'b'; 4096], offsets[2] + 4096)?;
    fs.reopen()?;
    ensure!(runs(&fs)?.contains(&(COLLIDING - 1)), "it did not stay one item: {:?}", runs(&fs)?);
    overwrite(&fs, &vec![b'c'; usize::try_from(EXTENT)?], offsets[3])?;
    fs.with_kernel("rw", |dir| {
        let file = dir.join("clones");
        for (index, at) in offsets.iter().enumerate() {
            let bytes = content(&file, *at)?;
            let wanted = [b"aaa", b"xxx", b"xbx", b"ccc"].get(index).copied().unwrap_or(b"xxx");
            let found = [bytes[0], bytes[4096], bytes[8192]];
            ensure!(found == *wanted, "clone {index}: {found:?}");
        }
        // The kernel fills the gap and makes another.
        clone_range(&dir.join("base"), EXTENT, &file, offsets[0])?;
        sync_filesystem(dir)?;
        clone_range(&dir.join("base"), EXTENT, &file, offsets[3])?;
        File::options().write(true).open(&file)?.set_len(*offsets.iter().max().context("some")?)?;
        Ok(())
    })?;
    fs.unlink(fs.top(), b"clones")?;
    fs.clean();
    fs.reopen()?;
    ensure!(runs(&fs)?.is_empty(), "references of a file that is gone: {:?}", runs(&fs)?);
    fs.judge()
}

fn delete_at_once(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &["--nodesize", "4096"])?;
    make(&mut fs)?;
    fs.unlink(fs.top(), b"clones")?;
    fs.clean();
    fs.reopen()?;
    ensure!(runs(&fs)?.is_empty(), "references of a file that is gone: {:?}", runs(&fs)?);
    fs.unlink(fs.top(), b"base")?;
    fs.judge()
}
