//! Several names of one inode, until they spill.

use std::os::unix::fs::MetadataExt;

use anyhow::{Result, ensure};
use creamery_base::{ErrorKind, TreeId, Wait};
use creamery_format::{InodeExtrefs, Key, KeyType};
use creamery_fs::{NewInode, RenameMode};
use creamery_testkit::Judge::{BtrfsProgs, KernelBtrfs, LoopDevices, Root};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::tree::colliding_names;

use crate::support::{ImageFixture, kind};

pub(crate) fn cases() -> Vec<Case> {
    let kernel = &[BtrfsProgs, KernelBtrfs, LoopDevices, Root];
    vec![
        Case::new("links/names_spill_into_extended_references_and_come_back", kernel, spill),
        Case::new("links/without_extended_references_there_is_a_limit", &[BtrfsProgs], no_extrefs),
        Case::new("links/without_extended_references_linux_refuses_the_same", kernel, no_extrefs_on_linux),
        Case::new("links/the_count_has_a_limit", &[BtrfsProgs], count_limit),
        Case::new("links/what_cannot_be_linked_is_refused", &[BtrfsProgs], refusals),
        Case::new("links/the_kernels_extended_references_are_found", kernel, kernel_links),
        Case::new("links/extended_references_of_one_hash_share_an_item", kernel, one_hash),
    ]
}

fn name(number: usize) -> Vec<u8> {
    format!("{number:x>100}").into_bytes()
}

fn spill(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &["--nodesize", "4096"])?;
    let top = fs.top();
    let file = fs.create(top, &name(0), &NewInode::file(0o644))?.id;
    // About 35 names of this length fit into one item.
    for number in 1..300 {
        ensure!(fs.link(file, top, &name(number))?.nlink == u32::try_from(number + 1)?);
    }
    fs.with_kernel("rw", |dir| {
        for number in 0..300 {
            let seen = std::fs::metadata(dir.join(std::str::from_utf8(&name(number))?))?;
            ensure!(seen.nlink() == 300);
        }
        std::fs::remove_file(dir.join(std::str::from_utf8(&name(299))?))?;
        Ok(())
    })?;
    // Names in either kind of item are moved, exchanged and removed.
    let dir = fs.dir(top, "dir")?;
    fs.rename(top, &name(298), dir, b"moved from an extended reference", RenameMode::Replace)?;
    fs.rename(top, &name(3), top, b"renamed in the packed one", RenameMode::Replace)?;
    fs.rename(top, &name(297), top, &name(296), RenameMode::Replace)?; // both are names of the file: nothing happens
    let other = fs.file(top, "other")?;
    fs.rename(top, &name(297), top, b"other", RenameMode::Exchange)?;
    ensure!(fs.find(top, "other")? == file && fs.lookup(top, &name(297), Wait::Yes)? == other);
    ensure!(fs.stat(file, Wait::Yes)?.nlink == 299);
    fs.with_kernel("ro", |_| Ok(()))?;
    for name in fs.names(top)? {
        if name != b"dir" {
            fs.unlink(top, &name)?;
        }
    }
    ensure!(fs.stat(file, Wait::Yes)?.nlink == 1);
    fs.unlink(dir, b"moved from an extended reference")?;
    ensure!(kind(fs.stat(file, Wait::Yes)) == Some(ErrorKind::Stale));
    fs.judge()
}

fn no_extrefs(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &["--nodesize", "4096", "-O", "^extref"])?;
    let top = fs.top();
    let file = fs.create(top, &name(0), &NewInode::file(0o644))?.id;
    let mut number = 1;
    let refused = loop {
        match fs.link(file, top, &name(number)) {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
    };
    ensure!(refused.kind() == ErrorKind::TooManyLinks, "{refused}");
    ensure!(number == (4096 - 101 - 25) / 110);
    fs.file(top, "other")?;
    let long = [b'l'; 255];
    ensure!(kind(fs.rename(top, &name(0), top, &long, RenameMode::Replace)) == Some(ErrorKind::TooManyLinks));
    // Nor does a shorter one: for a moment there are both.
    ensure!(
        kind(fs.rename(top, &name(0), top, b"shorter", RenameMode::Replace)) == Some(ErrorKind::TooManyLinks)
    );
    for (name, new_name) in [(&name(0)[..], &b"other"[..]), (b"other", &name(0))] {
        let refused = kind(fs.rename(top, name, top, new_name, RenameMode::Exchange));
        ensure!(refused == Some(ErrorKind::TooManyLinks), "{refused:?}");
    }
    ensure!(fs.find(top, "other")? != file && fs.lookup(top, &name(0), Wait::Yes)? == file);
    fs.unlink(top, &name(1))?;
    fs.rename(top, &name(0), top, b"shorter", RenameMode::Replace)?;
    fs.rename(top, b"shorter", top, b"other", RenameMode::Exchange)?;
    ensure!(fs.find(top, "other")? == file);
    ensure!(fs.engine().read_only().is_none());
    fs.judge()
}

/// What [`no_extrefs`] does, done by the kernel.
fn no_extrefs_on_linux(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &["--nodesize", "4096", "-O", "^extref"])?;
    fs.with_kernel("rw", |dir| {
        let path = |number| -> Result<_> { Ok(dir.join(std::str::from_utf8(&name(number))?)) };
        let is_refused = |result: rustix::io::Result<()>| result == Err(rustix::io::Errno::MLINK);
        std::fs::write(path(0)?, "")?;
        let full = (4096 - 101 - 25) / 110;
        for number in 1..full {
            std::fs::hard_link(path(0)?, path(number)?)?;
        }
        let other = dir.join("other");
        std::fs::write(&other, "")?;
        for new in [dir.join("l".repeat(255)), dir.join("shorter"), other.clone()] {
            ensure!(is_refused(rustix::fs::rename(path(0)?, &new)), "{}", new.display());
        }
        std::fs::remove_file(path(1)?)?;
        std::fs::rename(path(0)?, dir.join("shorter"))?;
        Ok(())
    })?;
    fs.judge()
}

fn count_limit(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let file = fs.file(top, "0")?;
    for number in 1..65_535 {
        fs.link(file, top, format!("{number}").as_bytes())?;
    }
    ensure!(kind(fs.link(file, top, b"one too many")) == Some(ErrorKind::TooManyLinks));
    fs.unlink(top, b"0")?;
    ensure!(fs.link(file, top, b"again")?.nlink == 65_535);
    // `btrfs check` takes time that grows with the square of the names of one inode.
    fs.reopen()?;
    ensure!(fs.stat(file, Wait::Yes)?.nlink == 65_535 && fs.names(top)?.len() == 65_535);
    Ok(())
}

fn refusals(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let file = fs.file(top, "file")?;
    let dir = fs.dir(top, "dir")?;
    let inner = fs.create_subvolume(top, b"subvolume", &NewInode::directory(0o755))?;
    let rows = [
        ("a directory", kind(fs.link(dir, top, b"x")), ErrorKind::PermissionDenied),
        ("a taken name", kind(fs.link(file, top, b"dir")), ErrorKind::AlreadyExists),
        ("another subvolume", kind(fs.link(file, inner, b"x")), ErrorKind::CrossDevice),
        ("into a file", kind(fs.link(file, file, b"x")), ErrorKind::NotADirectory),
    ];
    for (what, found, wanted) in rows {
        ensure!(found == Some(wanted), "{what}: {found:?}");
    }
    ensure!(fs.stat(file, Wait::Yes)?.nlink == 1);
    fs.judge()
}

fn kernel_links(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &["--nodesize", "4096"])?;
    fs.with_kernel("rw", |dir| {
        std::fs::create_dir(dir.join("dir"))?;
        std::fs::write(dir.join("dir/file"), b"content")?;
        for number in 0..200 {
            std::fs::hard_link(
                dir.join("dir/file"),
                dir.join("dir").join(std::str::from_utf8(&name(number))?),
            )?;
        }
        Ok(())
    })?;
    let dir = fs.find(fs.root(TreeId::FS)?, "dir")?;
    let file = fs.find(dir, "file")?;
    ensure!(fs.stat(file, Wait::Yes)?.nlink == 201);
    for number in (0..200).step_by(2) {
        fs.unlink(dir, &name(number))?;
    }
    fs.unlink(dir, b"file")?;
    ensure!(fs.parent(file, Wait::Yes)? == dir);
    fs.judge()
}

/// How many names each item of extended references has, where it has several.
fn shared(fs: &ImageFixture) -> Result<Vec<usize>> {
    let tree = fs.engine().tree(TreeId::FS)?;
    let mut cursor = tree.cursor(&Key::MIN, Wait::Yes)?;
    let mut counts = Vec::new();
    while let Some((key, data)) = cursor.item() {
        if key.kind == KeyType::INODE_EXTREF {
            counts.extend(Some(InodeExtrefs::new(data).count()).filter(|count| *count > 1));
        }
        cursor.advance()?;
    }
    Ok(counts)
}

fn one_hash(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &["--nodesize", "4096"])?;
    let top = fs.top();
    let file = fs.create(top, &name(0), &NewInode::file(0o644))?.id;
    // No room is left in the packed item, for short names neither.
    let fillers = (1..40).map(name).chain((0..40).map(|number| format!("short{number}").into_bytes()));
    fillers.into_iter().try_for_each(|name| fs.link(file, top, &name).map(drop))?;
    let names = colliding_names(13);
    let path = |at: usize| std::str::from_utf8(&names[at]);
    for name in &names[..10] {
        fs.link(file, top, name)?;
    }
    fs.sync()?;
    ensure!(shared(&fs)? == [10], "{:?}", shared(&fs)?);
    ensure!(kind(fs.link(file, top, &names[3])) == Some(ErrorKind::AlreadyExists));
    fs.with_kernel("rw", |dir| {
        for at in 0..10 {
            ensure!(std::fs::metadata(dir.join(path(at)?))?.nlink() == 90);
        }
        std::fs::remove_file(dir.join(path(0)?))?;
        std::fs::remove_file(dir.join(path(5)?))?;
        std::fs::rename(dir.join(path(9)?), dir.join(path(10)?))?;
        Ok(std::fs::hard_link(dir.join(path(1)?), dir.join(path(11)?))?)
    })?;
    ensure!(shared(&fs)? == [9], "{:?}", shared(&fs)?);
    // The first, one in the middle and the last of those that are left; one gets another name of the same hash.
    for at in [1, 6, 11] {
        fs.unlink(top, &names[at])?;
    }
    fs.rename(top, &names[4], top, &names[12], RenameMode::Replace)?;
    fs.reopen()?;
    ensure!(shared(&fs)? == [6], "{:?}", shared(&fs)?);
    for (at, name) in names.iter().enumerate() {
        let there = [2, 3, 7, 8, 10, 12].contains(&at);
        ensure!(fs.lookup(top, name, Wait::Yes).is_ok() == there, "name {at}");
    }
    ensure!(fs.stat(file, Wait::Yes)?.nlink == 86);
    fs.with_kernel("ro", |dir| {
        ensure!(std::fs::metadata(dir.join(path(12)?))?.nlink() == 86);
        Ok(())
    })?;
    names.iter().for_each(|name| drop(fs.unlink(top, name)));
    fs.sync()?;
    ensure!(shared(&fs)?.is_empty() && fs.stat(file, Wait::Yes)?.nlink == 80);
    fs.judge()
}
