//! What may not wait does not.

use std::ops::ControlFlow;

use anyhow::{Result, ensure};
use creamery_base::gate::waits_of_this_thread;
use creamery_base::{ErrorKind, InodeId, Wait};
use creamery_fs::{NewInode, NewKind, XattrMode};
use creamery_testkit::Judge::BtrfsProgs;
use creamery_testkit::harness::{Bench, Case};

use crate::support::{ImageFixture, kind};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("waiting/a_cold_cache_would_block_and_a_warm_one_does_not", &[BtrfsProgs], cold),
        Case::new("waiting/a_locked_inode_would_block", &[BtrfsProgs], locked),
    ]
}

type Read<'a> = (&'static str, Box<dyn Fn(&ImageFixture, Wait) -> creamery_base::Result<()> + 'a>);

fn reads(dir: InodeId, file: InodeId, link: InodeId) -> Vec<Read<'static>> {
    vec![
        ("lookup", Box::new(move |fs, wait| fs.lookup(dir, b"file", wait).map(drop))),
        ("lookup ..", Box::new(move |fs, wait| fs.lookup(dir, b"..", wait).map(drop))),
        ("stat", Box::new(move |fs, wait| fs.stat(file, wait).map(drop))),
        ("inode", Box::new(move |fs, wait| fs.inode(file, wait).map(drop))),
        ("get_xattr", Box::new(move |fs, wait| fs.get_xattr(file, b"user.a", wait).map(drop))),
        ("list_xattrs", Box::new(move |fs, wait| fs.list_xattrs(file, wait).map(drop))),
        ("read_link", Box::new(move |fs, wait| fs.read_link(link, wait).map(drop))),
        ("end_of_dir", Box::new(move |fs, wait| fs.end_of_dir(dir, wait).map(drop))),
        ("read_dir", Box::new(move |fs, wait| fs.read_dir(dir, 0, wait, &mut |_| ControlFlow::Continue(())))),
    ]
}

fn fill(fs: &ImageFixture) -> Result<(InodeId, InodeId, InodeId)> {
    // Opening reads the first leaf, which has the root directory's inode.
    for number in 0..60 {
        fs.file(fs.top(), &format!("before {number}"))?;
    }
    let dir = fs.dir(fs.top(), "dir")?;
    let file = fs.file(dir, "file")?;
    fs.set_xattr(file, b"user.a", b"1", XattrMode::Any)?;
    let link = fs.create(dir, b"link", &NewInode { kind: NewKind::Symlink(b"t"), ..NewInode::file(0) })?.id;
    // Enough for the tree to have more than a root, so that opening does not read all of it.
    for number in 0..2000 {
        fs.file(dir, &format!("file {number}"))?;
    }
    Ok((dir, file, link))
}

fn cold(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &["--nodesize", "4096"])?;
    let (dir, file, link) = fill(&fs)?;
    for (what, read) in reads(dir, file, link) {
        fs.reopen()?;
        let waits = waits_of_this_thread();
        let found = kind(read(&fs, Wait::No));
        ensure!(found == Some(ErrorKind::WouldBlock), "{what}, cold: {found:?}");
        ensure!(waits_of_this_thread() == waits, "{what} waited");
        read(&fs, Wait::Yes)?;
        ensure!(waits_of_this_thread() > waits, "{what} came from nowhere");
        let waits = waits_of_this_thread();
        read(&fs, Wait::No)?;
        ensure!(waits_of_this_thread() == waits, "{what}, warm, waited");
    }
    fs.judge()
}

fn locked(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &[])?;
    let (dir, file, link) = fill(&fs)?;
    for (what, read) in reads(dir, file, link) {
        read(&fs, Wait::No)?;
        let inodes = [dir, file, link].map(|id| fs.inode(id, Wait::Yes));
        let inodes = inodes.into_iter().collect::<creamery_base::Result<Vec<_>>>()?;
        let locked: Vec<_> = inodes.iter().map(|inode| inode.lock_exclusive().expect("it lives")).collect();
        let waits = waits_of_this_thread();
        let found = kind(read(&fs, Wait::No));
        // Naming an inode takes no lock of it, and what its item says is told beside any operation.
        let told = ["inode", "stat", "read_link"].contains(&what);
        let wanted = (!told).then_some(ErrorKind::WouldBlock);
        ensure!(found == wanted, "{what}: {found:?}");
        ensure!(waits_of_this_thread() == waits, "{what} waited");
        drop(locked);
        read(&fs, Wait::No)?;
    }
    fs.judge()
}
