//! Data that its checksums do not vouch for, judged by what the kernel says to the same image.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use creamery_base::{ErrorKind, InodeId, Logical, ObjectId, TreeId, Wait};
use creamery_format::{FileExtent, Key, KeyType};
use creamery_testkit::Judge::{BtrfsProgs, KernelBtrfs, LoopDevices, Root};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{LoopMount, Run};
use creamery_tree::SeenItem;
use creamery_txn::ReserveItems;

use crate::support::{ImageFixture, kind, make_image};

const LEN: usize = 128 << 10;

pub(crate) fn cases() -> Vec<Case> {
    let kernel = &[BtrfsProgs, KernelBtrfs, LoopDevices, Root];
    vec![
        Case::new("checksums/a_sector_without_one_is_unreadable", kernel, missing),
        Case::new("checksums/compressed_extents_of_zeros_are_unreadable", kernel, zeroed),
    ]
}

/// Where a file's first extent is, and how long on disk.
fn first_extent(fs: &ImageFixture, id: InodeId) -> Result<(Logical, u64)> {
    let key = Key::new(id.ino, KeyType::EXTENT_DATA, 0);
    let item = fs.engine().tree(TreeId::FS)?.get(&key, Wait::Yes, <[u8]>::to_vec)?;
    match FileExtent::parse(&item.context("no extent")?)? {
        FileExtent::Regular(extent) => {
            Ok((Logical::new(extent.disk_bytenr.get()), extent.disk_num_bytes.get()))
        }
        _ => anyhow::bail!("the first extent is none with data"),
    }
}

fn read(fs: &ImageFixture, id: InodeId, at: u64) -> creamery_base::Result<Vec<u8>> {
    let file = fs.open_file(id)?;
    let mut bytes = vec![0; 4096];
    let read = file.read_at(at, &mut bytes, Wait::Yes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// The kernel's errno for reading a sector, none when it succeeds.
fn kernel_read(path: &Path, at: u64) -> Option<i32> {
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut [0; 4096], at));
    read.err().and_then(|error| error.raw_os_error())
}

fn missing(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("image");
    make_image(&image, &[])?;
    let dir = bench.scratch.dir("filled")?;
    for (options, name) in [("rw", "summed"), ("nodatasum", "unsummed")] {
        let mounted = LoopMount::mount(&image, &dir, options)?;
        std::fs::write(dir.join(name), vec![b'x'; LEN])?;
        let script = "fallocate -l 65536 prealloc; truncate -s 65536 hole";
        Run::new("sh").args(["-c", script]).within(&dir).ok()?;
        mounted.unmount()?;
    }
    let mut fs = ImageFixture::open(bench, image)?;
    let summed = fs.find(fs.top(), "summed")?;
    let (at, _) = first_extent(&fs, summed)?;
    // The sums of the second half go.
    let key = Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, at.get());
    let handle = fs.engine().start(ReserveItems::items(1))?;
    let keep = LEN / 4096 / 2 * 4;
    let seen = SeenItem { key, len: LEN / 4096 * 4 };
    ensure!(fs.engine().tree(TreeId::CSUM)?.truncate_item(&handle, &seen, keep)?);
    handle.end();
    fs.reopen()?;
    let half = LEN as u64 / 2;
    ensure!(read(&fs, summed, half - 4096)? == [b'x'; 4096]);
    let error = read(&fs, summed, half).err().context("a sector without a checksum was believed")?;
    ensure!(error.kind() == ErrorKind::Unreadable, "{error}");
    let text = error.to_string();
    for word in [summed.to_string(), half.to_string(), (at + half).to_string()] {
        ensure!(text.contains(&word), "{word} is not in {text:?}");
    }
    for name in ["unsummed", "prealloc", "hole"] {
        ensure!(read(&fs, fs.find(fs.top(), name)?, 0)?.len() == 4096, "{name}");
    }
    // What is left of a sector that is written in part would be believed from then on.
    let file = fs.open_file(summed)?;
    ensure!(kind(file.write_at(half + 100, b"part")) == Some(ErrorKind::Unreadable));
    ensure!(fs.engine().read_only().is_none());
    drop(file);
    fs.sync()?;
    let mut log = Vec::new();
    fs.kernel_tells(&mut log, |dir| {
        let file = dir.join("summed");
        ensure!(kernel_read(&file, half - 4096).is_none());
        ensure!(kernel_read(&file, half) == Some(5), "the kernel: {:?}", kernel_read(&file, half));
        ensure!(kernel_read(&dir.join("unsummed"), 0).is_none());
        Ok(())
    })?;
    ensure!(log.iter().any(|line| line.contains("csum")), "the kernel does not complain: {log:?}");
    Ok(())
}

fn zeroed(bench: &Bench) -> Result<()> {
    for algorithm in ["lzo", "zlib", "zstd"] {
        let image = bench.scratch.file(algorithm);
        make_image(&image, &[])?;
        let dir = bench.scratch.dir("filled")?;
        let mounted = LoopMount::mount(&image, &dir, &format!("compress-force={algorithm}"))?;
        std::fs::write(dir.join("file"), b"some text ".repeat(20_000))?;
        mounted.unmount()?;
        let mut fs = ImageFixture::open(bench, image)?;
        let file = fs.find(fs.top(), "file")?;
        ensure!(read(&fs, file, 0)?.starts_with(b"some text"));
        let (at, len) = first_extent(&fs, file)?;
        let _written = fs.engine().volume().write_data(at, &vec![0; usize::try_from(len)?])?;
        let key = Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, at.get());
        let handle = fs.engine().start(ReserveItems::items(1))?;
        let sum = creamery_codec::checksum(fs.engine().checksum_type(), &[0; 4096]);
        let sums = sum.as_bytes(fs.engine().checksum_type()).repeat(usize::try_from(len)? / 4096);
        let update = |item: &mut [u8]| item[..sums.len()].copy_from_slice(&sums);
        fs.engine().tree(TreeId::CSUM)?.update(&handle, &key, update)?.context("no sums")?;
        handle.end();
        fs.reopen()?;
        let found = read(&fs, file, 0);
        ensure!(kind(found) == Some(ErrorKind::Unreadable), "{algorithm}: zeros were unpacked");
        fs.kernel_tells(&mut Vec::new(), |dir| {
            ensure!(kernel_read(&dir.join("file"), 0) == Some(5), "{algorithm}: the kernel reads it");
            Ok(())
        })?;
    }
    Ok(())
}
