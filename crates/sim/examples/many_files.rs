//! Makes an image with many small files for the benches: `many_files IMAGE FILES`.
//!
//! Folders of 100 files; of 16 files one has an extent of a page and the others lie in the tree. Not from a folder of the
//! host's: ten million files in one would take more memory than the image takes on disk.
use std::sync::Arc;

use anyhow::{Context, Result};
use creamery_base::{InodeId, SystemEnv};
use creamery_device::{BlockDevice, FileDevice};
use creamery_fs::{FileContent, Filesystem, FsOptions, NewInode};
use creamery_mkfs::{MkfsOptions, make_filesystem};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

const FILES_PER_DIR: u64 = 100;
const DIRS_PER_DIR: u64 = 1000;
const ONE_IN: u64 = 16;
/// What a file takes at most, on the average, with metadata in two copies.
const BYTES_PER_FILE: u64 = 2048;
const BYTES_MIN: u64 = 1 << 30;

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let path = words.next().context("many_files IMAGE FILES")?;
    let files: u64 = words.next().context("many_files IMAGE FILES")?.parse()?;
    let len = (files * BYTES_PER_FILE).max(BYTES_MIN).next_multiple_of(1 << 20);
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::create(&path, len)?);
    make_filesystem(&*device, &MkfsOptions::default(), &SystemEnv)?;
    let engine = Engine::open(Volume::open(vec![device], Mode::ReadWrite)?, Options::default())?;
    let fs = Filesystem::open(engine, FsOptions::default())?;
    plant(&fs, files)?;
    fs.sync()?;
    fs.engine().volume().close()?;
    Ok(())
}

fn plant(fs: &Filesystem, files: u64) -> Result<()> {
    let root = fs.root(fs.default_subvolume())?;
    let (mut outer, mut dir) = (root, root);
    let page = [b'x'; 4096];
    for index in 0..files {
        if index % (FILES_PER_DIR * DIRS_PER_DIR) == 0 {
            outer = folder(fs, root, index)?;
        }
        if index % FILES_PER_DIR == 0 {
            dir = folder(fs, outer, index)?;
        }
        let text = format!("content of {index}");
        let bytes = if index % ONE_IN == 0 { &page[..] } else { text.as_bytes() };
        let content = FileContent { size: bytes.len() as u64, stretches: &[(0, bytes)], packed: None };
        let name = format!("file-{index}");
        fs.create_file_with(dir, name.as_bytes(), &NewInode::file(0o644), &content)?;
    }
    Ok(())
}

fn folder(fs: &Filesystem, dir: InodeId, index: u64) -> Result<InodeId> {
    let name = format!("dir-{index}");
    Ok(fs.create(dir, name.as_bytes(), &NewInode::directory(0o755))?.id)
}
