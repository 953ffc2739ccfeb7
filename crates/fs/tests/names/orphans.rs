//! Inodes without a name.

use anyhow::{Result, ensure};
use creamery_base::{ErrorKind, InodeId, ObjectId, TreeId, Wait};
use creamery_format::{Key, KeyType};
use creamery_fs::{Cleaning, NewInode, OpenFile, RenameMode, XattrMode};
use creamery_testkit::Judge::{BtrfsProgs, KernelBtrfs, LoopDevices, Root};
use creamery_testkit::harness::{Bench, Case};

use crate::support::{ImageFixture, kind};

pub(crate) fn cases() -> Vec<Case> {
    let kernel = &[BtrfsProgs, KernelBtrfs, LoopDevices, Root];
    vec![
        Case::new("orphans/an_open_file_outlives_its_name", &[BtrfsProgs], outlives),
        Case::new("orphans/what_a_crash_left_is_deleted_after_opening", &[BtrfsProgs], after_a_crash),
        Case::new("orphans/the_kernel_deletes_what_we_left", kernel, kernel_deletes),
        Case::new("orphans/a_file_without_a_name_can_be_given_one", kernel, tmpfile),
        Case::new("orphans/large_inodes_go_in_steps", &[BtrfsProgs], large),
        Case::new("orphans/a_stranger_pays_for_one_step", &[BtrfsProgs], stranger),
        Case::new("orphans/a_whole_inode_deleted_for_others_is_noticed", &[BtrfsProgs], canary),
        Case::new("orphans/deleting_goes_on_after_a_crash", kernel, interrupted),
        Case::new("orphans/a_small_file_of_many_extents_goes", &[BtrfsProgs], many_extents),
        Case::new("orphans/what_is_freed_shows_before_the_commit", &[BtrfsProgs], shown_at_once),
        Case::new("orphans/a_removed_directory_takes_no_names", &[BtrfsProgs], removed_directory),
        Case::new("orphans/what_is_replaced_while_open_lives_on", &[BtrfsProgs], replaced),
        Case::new("orphans/a_snapshot_has_none", &[BtrfsProgs], snapshots),
    ]
}

/// Items of an inode that one step deletes at most.
const ITEMS_OF_A_STEP: usize = 16;

fn orphans(fs: &ImageFixture) -> Result<usize> {
    orphans_of(fs, TreeId::FS)
}

fn orphans_of(fs: &ImageFixture, subvolume: TreeId) -> Result<usize> {
    let tree = fs.engine().tree(subvolume)?;
    let mut cursor = tree.cursor(&Key::new(ObjectId::ORPHAN, KeyType::ORPHAN_ITEM, 0), Wait::Yes)?;
    let mut count = 0;
    while cursor.item().is_some_and(|(key, _)| key.kind == KeyType::ORPHAN_ITEM) {
        count += 1;
        cursor.advance()?;
    }
    Ok(count)
}

fn items_of(fs: &ImageFixture, id: InodeId) -> Result<usize> {
    let tree = fs.engine().tree(id.subvolume)?;
    let mut cursor = tree.cursor(&Key::new(id.ino, KeyType::UNTYPED, 0), Wait::Yes)?;
    let mut count = 0;
    while cursor.item().is_some_and(|(key, _)| key.objectid == id.ino) {
        count += 1;
        cursor.advance()?;
    }
    Ok(count)
}

/// A file and a directory are open, and have no name, when snapshots of their subvolume are taken.
fn snapshots(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let source = fs.create_subvolume(top, b"source", &NewInode::directory(0o755))?;
    let file = fs.file(source, "file")?;
    let open = fs.open_file(file)?;
    open.write_at(0, &vec![7; 5_000_000])?;
    let dir = fs.create(source, b"dir", &NewInode::directory(0o755))?.id;
    let open_dir = fs.inode(dir, Wait::Yes)?;
    fs.unlink(source, b"file")?;
    fs.rmdir(source, b"dir")?;
    let mut made = Vec::new();
    for (name, read_only) in [("writable", false), ("read-only", true)] {
        let snapshot = fs.create_snapshot(source.subvolume, top, name.as_bytes(), read_only)?.subvolume;
        ensure!(orphans_of(&fs, snapshot)? == 0, "{name} has orphans");
        made.push((snapshot, fs.subvolume_info(snapshot)?.generation));
    }
    ensure!(orphans_of(&fs, source.subvolume)? == 2 && open.stat(Wait::Yes)?.size == 5_000_000);
    drop(open);
    drop(open_dir);
    fs.settle()?;
    ensure!(fs.engine().space().data_used < 1_000_000, "the snapshots keep what has no name");
    // What was made is durable: the first visit after a crash changes nothing.
    fs.crash_and_check()?;
    for (snapshot, generation) in made {
        fs.root(snapshot)?;
        fs.clean();
        fs.sync()?;
        ensure!(fs.subvolume_info(snapshot)?.generation == generation, "a visit changed {snapshot}");
    }
    fs.judge()
}

fn outlives(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let file = fs.file(top, "file")?;
    let open = fs.open_file(file)?;
    let again = fs.open_file(file)?;
    open.write_at(0, b"before")?;
    fs.unlink(top, b"file")?;
    open.write_at(6, b" and after")?;
    let mut out = [0; 20];
    ensure!(again.read_at(0, &mut out, Wait::Yes)? == 16 && &out[..16] == b"before and after");
    ensure!(open.stat(Wait::Yes)?.nlink == 0 && orphans(&fs)? == 1);
    ensure!(kind(fs.link(file, top, b"back")) == Some(ErrorKind::NotFound));
    fs.close(open);
    ensure!(orphans(&fs)? == 1);
    fs.close(again);
    ensure!(orphans(&fs)? == 0 && items_of(&fs, file)? == 0);
    ensure!(kind(fs.stat(file, Wait::Yes)) == Some(ErrorKind::Stale));
    // Nobody had this one open: it goes at once.
    let other = fs.file(top, "other")?;
    fs.unlink(top, b"other")?;
    ensure!(items_of(&fs, other)? == 0 && orphans(&fs)? == 0);
    fs.judge()
}

fn after_a_crash(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let file = fs.file(top, "file")?;
    let dir = fs.dir(top, "dir")?;
    let open = fs.open_file(file)?;
    open.write_at(0, &[b'd'; 100_000])?;
    let open_dir = fs.inode(dir, Wait::Yes)?;
    fs.unlink(top, b"file")?;
    fs.rmdir(top, b"dir")?;
    let (_, nameless) = fs.tmpfile(top, &NewInode::file(0o600))?;
    ensure!(orphans(&fs)? == 3);
    fs.sync()?;
    // Their last users go, but nothing is committed after that: the inodes are there when it is opened again.
    drop((open, open_dir, nameless));
    fs.crash()?;
    ensure!(orphans(&fs)? == 3, "opening leaves deleting to others");
    for id in [file, dir] {
        ensure!(kind(fs.stat(id, Wait::Yes)) == Some(ErrorKind::Stale));
    }
    fs.clean();
    ensure!(orphans(&fs)? == 0);
    for id in [file, dir] {
        ensure!(items_of(&fs, id)? == 0);
    }
    fs.judge()
}

fn kernel_deletes(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let file = fs.file(top, "file")?;
    let open = fs.open_file(file)?;
    open.write_at(0, &[b'd'; 100_000])?;
    fs.unlink(top, b"file")?;
    fs.sync()?;
    drop(open);
    fs.kernel_goes_on("rw", |dir| Ok(std::fs::write(dir.join("new"), b"")?))?;
    ensure!(orphans(&fs)? == 0 && items_of(&fs, file)? == 0);
    fs.judge()
}

fn tmpfile(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let (made, open) = fs.tmpfile(top, &NewInode::file(0o640))?;
    ensure!(made.nlink == 0 && orphans(&fs)? == 1 && fs.names(top)?.is_empty());
    open.write_at(0, b"content")?;
    ensure!(fs.link(made.id, top, b"named")?.nlink == 1 && orphans(&fs)? == 0);
    // As on Linux: what has lost the name that it was given gets no other one.
    let (again, still_open) = fs.tmpfile(top, &NewInode::file(0o640))?;
    fs.link(again.id, top, b"for a while")?;
    fs.unlink(top, b"for a while")?;
    ensure!(fs.link(again.id, top, b"later").err().map(|error| error.kind()) == Some(ErrorKind::NotFound));
    fs.close(still_open);
    fs.close(open);
    let (lost, open) = fs.tmpfile(top, &NewInode::file(0o640))?;
    fs.close(open);
    ensure!(items_of(&fs, lost.id)? == 0 && orphans(&fs)? == 0);
    fs.with_kernel("ro", |dir| {
        ensure!(std::fs::read(dir.join("named"))? == b"content");
        Ok(())
    })?;
    fs.judge()
}

/// A file of 400 extents and 100 extended attributes that is open and has no name any more.
fn large_and_doomed(fs: &ImageFixture) -> Result<(InodeId, std::sync::Arc<OpenFile>)> {
    let top = fs.top();
    let file = fs.file(top, "file")?;
    let open = fs.open_file(file)?;
    for number in 0..400 {
        open.write_at(number * 8192, &[b'd'; 4096])?;
    }
    for number in 0..100 {
        fs.set_xattr(file, format!("user.{number}").as_bytes(), &[b'v'; 500], XattrMode::Any)?;
    }
    fs.sync()?;
    ensure!(items_of(fs, file)? > 500);
    fs.unlink(top, b"file")?;
    ensure!(orphans(fs)? == 1);
    Ok((file, open))
}

/// Items that operations of others delete, one after the other, while a large inode is to go: each does not more than a step.
fn pays_for_one_step(fs: &ImageFixture) -> Result<()> {
    let (file, open) = large_and_doomed(fs)?;
    drop(open);
    let mut before = items_of(fs, file)?;
    for number in 0..5 {
        fs.dir(fs.top(), &format!("dir{number}"))?;
        let after = items_of(fs, file)?;
        ensure!(after < before, "a mkdir took no step");
        ensure!(before - after <= ITEMS_OF_A_STEP, "a mkdir deleted {} items of a stranger", before - after);
        before = after;
    }
    Ok(())
}

fn stranger(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &["--nodesize", "4096"])?;
    pays_for_one_step(&fs)?;
    fs.judge()
}

/// A file's few items lie in few leaves, and each of them may give up an extent: who removes it reckons with both.
fn many_extents(bench: &Bench) -> Result<()> {
    const EXTENTS: usize = ITEMS_OF_A_STEP - 3;
    let fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let free = fs.statfs().blocks_free;
    for extents in [3, EXTENTS / 2, EXTENTS] {
        let file = fs.file(top, "file")?;
        let open = fs.open_file(file)?;
        for number in 0..extents {
            open.write_at((2 * number * 4096) as u64, &[b'd'; 4096])?;
        }
        fs.close(open);
        ensure!(items_of(&fs, file)? <= ITEMS_OF_A_STEP, "few enough to go at once");
        fs.unlink(top, b"file")?;
        while fs.clean_step()? == Cleaning::More {}
        ensure!(items_of(&fs, file)? == 0, "it is gone");
    }
    fs.sync()?;
    ensure!(fs.statfs().blocks_free == free, "all of it");
    fs.judge()
}

fn shown_at_once(bench: &Bench) -> Result<()> {
    const LEN: u64 = 8 << 20;
    let fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let free = || fs.statfs().blocks_free * u64::from(fs.statfs().block_size);
    for committed in [true, false] {
        let empty = free();
        let open = fs.open_file(fs.file(top, "file")?)?;
        open.write_at(0, &vec![b'd'; LEN as usize])?;
        if committed {
            fs.sync()?;
        }
        let full = free();
        ensure!(full + LEN <= empty, "{LEN} bytes were written: {empty} bytes free, then {full}");
        fs.close(open);
        fs.unlink(top, b"file")?;
        ensure!(free() >= full + LEN, "{LEN} bytes were freed: {full} bytes free, then {}", free());
        fs.sync()?;
    }
    fs.judge()
}

fn large(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &["--nodesize", "4096"])?;
    let (file, open) = large_and_doomed(&fs)?;
    fs.close(open);
    // The close took the first step, and the last one says that nothing is left.
    let (mut before, mut steps) = (items_of(&fs, file)?, 2);
    while fs.clean_step()? == Cleaning::More {
        let after = items_of(&fs, file)?;
        ensure!(after < before && before - after <= ITEMS_OF_A_STEP, "{before} items, then {after}");
        (before, steps) = (after, steps + 1);
    }
    ensure!(steps >= 500 / ITEMS_OF_A_STEP && items_of(&fs, file)? == 0 && orphans(&fs)? == 0);
    fs.judge()
}

/// Wherever deleting was interrupted, it is gone on with, and the file is whole meanwhile.
fn interrupted(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &["--nodesize", "4096"])?;
    let (file, open) = large_and_doomed(&fs)?;
    drop(open);
    let mut before = items_of(&fs, file)?;
    for steps in [1, 0, 20, 8] {
        for _ in 0..steps {
            ensure!(fs.clean_step()? == Cleaning::More);
        }
        fs.engine().commit()?;
        fs.crash_and_check()?;
        let after = items_of(&fs, file)?;
        ensure!(orphans(&fs)? == 1 && (after < before) == (steps > 0), "{before} items, then {after}");
        before = after;
    }
    fs.kernel_goes_on("rw", |dir| Ok(std::fs::write(dir.join("new"), b"")?))?;
    ensure!(items_of(&fs, file)? == 0 && orphans(&fs)? == 0);
    fs.judge()
}

/// The canary: with steps enough for a whole inode, the test of what a stranger pays fails.
fn canary(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &["--nodesize", "4096"])?;
    fs.options.cleaning_steps = 1000;
    fs.reopen()?;
    let told = pays_for_one_step(&fs);
    ensure!(told.is_err(), "deleting a whole inode on behalf of others was not noticed");
    fs.judge()
}

fn removed_directory(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let dir = fs.dir(top, "dir")?;
    let file = fs.file(top, "file")?;
    let open = fs.inode(dir, Wait::Yes)?;
    fs.rmdir(top, b"dir")?;
    ensure!(kind(fs.create(dir, b"x", &NewInode::file(0))) == Some(ErrorKind::NotFound));
    ensure!(kind(fs.link(file, dir, b"x")) == Some(ErrorKind::NotFound));
    ensure!(kind(fs.rename(top, b"file", dir, b"x", RenameMode::Replace)) == Some(ErrorKind::NotFound));
    ensure!(fs.names(dir)?.is_empty());
    let mut listed = 0;
    fs.read_dir(dir, 0, Wait::Yes, &mut |_| {
        listed += 1;
        std::ops::ControlFlow::Continue(())
    })?;
    ensure!(listed == 2);
    fs.release(open);
    ensure!(items_of(&fs, dir)? == 0 && orphans(&fs)? == 0);
    fs.judge()
}

fn replaced(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let old = fs.file(top, "old")?;
    let open = fs.open_file(old)?;
    open.write_at(0, b"old")?;
    let new = fs.file(top, "new")?;
    fs.rename(top, b"new", top, b"old", RenameMode::Replace)?;
    ensure!(fs.find(top, "old")? == new && orphans(&fs)? == 1);
    let mut out = [0; 3];
    ensure!(open.read_at(0, &mut out, Wait::Yes)? == 3 && &out == b"old");
    fs.close(open);
    ensure!(items_of(&fs, old)? == 0 && orphans(&fs)? == 0);
    fs.judge()
}
