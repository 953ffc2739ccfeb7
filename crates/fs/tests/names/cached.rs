//! Which inodes stay in memory when many are made.

use std::sync::Arc;

use anyhow::{Result, ensure};
use creamery_base::Wait;
use creamery_fs::NewInode;
use creamery_testkit::Judge::BtrfsProgs;
use creamery_testkit::harness::{Bench, Case};

use crate::support::ImageFixture;

const CAPACITY: usize = 4096;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("cached/making_many_files_does_not_drive_out_what_is_needed", &[BtrfsProgs], needed),
        Case::new("cached/a_new_file_that_is_asked_for_stays", &[BtrfsProgs], asked_for),
        Case::new("cached/a_file_is_open_as_soon_as_it_is_made", &[BtrfsProgs], open),
    ]
}

fn fixture(bench: &Bench) -> Result<ImageFixture> {
    let mut fs = ImageFixture::new(bench, &[])?;
    fs.options.inodes_cached = CAPACITY;
    fs.reopen()?;
    Ok(fs)
}

fn make_many(fs: &ImageFixture) -> Result<()> {
    let dir = fs.dir(fs.top(), "many")?;
    (0..4 * CAPACITY).try_for_each(|number| fs.file(dir, &format!("file {number}")).map(drop))
}

fn needed(bench: &Bench) -> Result<()> {
    let mut fs = fixture(bench)?;
    let files =
        (0..1000).map(|number| fs.file(fs.top(), &format!("{number}"))).collect::<Result<Vec<_>>>()?;
    fs.reopen()?;
    // Read from the tree, and let go.
    let read = files.iter().map(|id| fs.inode(*id, Wait::Yes)).collect::<creamery_base::Result<Vec<_>>>()?;
    let weak: Vec<_> = read.iter().map(Arc::downgrade).collect();
    drop(read);
    make_many(&fs)?;
    let kept = weak.iter().filter(|inode| inode.upgrade().is_some()).count();
    ensure!(kept == weak.len(), "{kept} of {} inodes are left", weak.len());
    // Of the new ones, which nobody asked for, only those are that came last.
    let cached = fs.statistics().inodes_cached as usize;
    ensure!(cached < weak.len() + CAPACITY / 4, "{cached} inodes are cached");
    fs.judge()
}

fn asked_for(bench: &Bench) -> Result<()> {
    let fs = fixture(bench)?;
    let id = fs.file(fs.top(), "asked for")?;
    let weak = Arc::downgrade(&fs.inode(id, Wait::Yes)?);
    make_many(&fs)?;
    ensure!(weak.upgrade().is_some(), "it was asked for after it was made");
    fs.judge()
}

fn open(bench: &Bench) -> Result<()> {
    let fs = fixture(bench)?;
    let (attributes, file) = fs.create_open(fs.top(), b"file", &NewInode::file(0o640))?;
    fs.unlink(fs.top(), b"file")?;
    ensure!(file.write_at(0, b"content")? == 7);
    ensure!(file.stat(Wait::Yes)?.id == attributes.id);
    let directory = fs.create_open(fs.top(), b"dir", &NewInode::directory(0o755));
    ensure!(directory.is_err_and(|error| error.kind() == creamery_base::ErrorKind::InvalidInput));
    fs.close(file);
    fs.judge()
}
