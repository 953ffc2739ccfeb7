//! Making, finding, listing and removing names.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use anyhow::{Result, ensure};
use creamery_base::{ErrorKind, InodeId, ObjectId, Timespec, Wait};
use creamery_codec::name_hash;
use creamery_format::{Key, KeyType};
use creamery_fs::{DeviceNumber, FileType, Filesystem, NewInode, NewKind, RenameMode, Times};
use creamery_testkit::Judge::{BtrfsProgs, KernelBtrfs, LoopDevices, Root};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::tree::colliding_names;
use creamery_txn::ReserveItems;

use crate::support::{ImageFixture, kind};

pub(crate) fn cases() -> Vec<Case> {
    let kernel = &[BtrfsProgs, KernelBtrfs, LoopDevices, Root];
    vec![
        Case::new("entries/every_kind_of_inode_is_what_the_kernel_sees", kernel, every_kind),
        Case::new("entries/what_is_refused_leaves_nothing_behind", &[BtrfsProgs], refusals),
        Case::new("entries/names_with_one_hash_live_beside_each_other", kernel, collisions),
        Case::new("entries/too_many_names_with_one_hash_are_refused", &[BtrfsProgs], too_many_collisions),
        Case::new("entries/a_listing_is_stable_while_entries_come_and_go", &[BtrfsProgs], stable_listing),
        Case::new(
            "entries/a_listing_ends_although_what_it_tells_is_renamed",
            &[BtrfsProgs],
            renaming_listing,
        ),
        Case::new("entries/entries_put_off_are_listed_moved_and_removed_like_written_ones", kernel, put_off),
        Case::new("entries/a_large_commit_is_written_by_several_threads", kernel, large_commit),
        Case::new("entries/an_entry_of_no_known_type_is_looked_up_by_its_inode", &[BtrfsProgs], no_type),
        Case::new("entries/numbers_go_on_after_reopening", &[BtrfsProgs], numbers_go_on),
        Case::new("entries/small_nodes_take_long_names", kernel, small_nodes),
        Case::new("entries/threads_make_and_remove_names_at_once", kernel, threads),
        Case::new("entries/a_full_filesystem_refuses_and_then_lets_delete", &[BtrfsProgs], full),
    ]
}

/// More blocks than one thread takes at a time.
fn large_commit(bench: &Bench) -> Result<()> {
    const FILES: usize = 20_000;
    let mut fs = ImageFixture::new(bench, &["-n", "4096"])?;
    let dir = fs.dir(fs.top(), "dir")?;
    fs.sync()?;
    let before = fs.engine().counters();
    for number in 0..FILES {
        fs.file(dir, &format!("file {number}"))?;
    }
    fs.sync()?;
    let after = fs.engine().counters();
    let blocks = after.blocks_written - before.blocks_written;
    ensure!(after.commits == before.commits + 1 && blocks > 1000, "{blocks} blocks in several commits");
    fs.crash()?;
    ensure!(fs.names(dir)?.len() == FILES);
    fs.with_kernel("ro", |mounted| {
        let seen = std::fs::read_dir(mounted.join("dir"))?.count();
        ensure!(seen == FILES, "the kernel lists {seen} names");
        Ok(())
    })?;
    fs.judge()
}

/// The type in an entry may be unknown on disk; what a path leads to is then what the inode says.
fn no_type(bench: &Bench) -> Result<()> {
    const TYPE_AT: usize = 29;
    let mut fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let dir = fs.dir(top, "dir")?;
    let entry = Key::new(top.ino, KeyType::DIR_ITEM, u64::from(name_hash(b"dir")));
    let tree = fs.engine().tree(top.subvolume)?;
    let handle = fs.engine().start(ReserveItems::items(1))?;
    let done = tree.update(&handle, &entry, |item| std::mem::replace(&mut item[TYPE_AT], 0))?;
    handle.end();
    ensure!(done == Some(FileType::Directory.to_disk()), "the type was {done:?}");
    drop(tree);
    fs.reopen()?;
    ensure!(fs.lookup_kind(top, b"dir", Wait::Yes)? == (dir, FileType::Directory));
    Ok(())
}

/// More directories than are put off at once, and in the first one more entries than fit into a batch.
fn put_off(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &["-n", "4096"])?;
    let top = fs.top();
    let dirs: Vec<InodeId> = (0..150).map(|n| fs.dir(top, &format!("dir {n}"))).collect::<Result<_>>()?;
    for name in 0..100 {
        fs.file(dirs[0], &format!("one of many {name}"))?;
    }
    for (n, dir) in dirs.iter().enumerate() {
        for name in ["stays", "goes", "moves", "swaps"] {
            fs.file(*dir, name)?;
        }
        fs.unlink(*dir, b"goes")?;
        let next = dirs[(n + 1) % dirs.len()];
        fs.rename(*dir, b"moves", next, format!("moved from {n}").as_bytes(), RenameMode::Replace)?;
        if n > 0 {
            fs.rename(*dir, b"swaps", dirs[n - 1], b"swaps", RenameMode::Exchange)?;
        }
    }
    fs.unlink(dirs[0], b"one of many 98")?;
    let list =
        |fs: &ImageFixture| -> Result<Vec<Vec<Vec<u8>>>> { dirs.iter().map(|dir| fs.names(*dir)).collect() };
    let before = list(&fs)?;
    ensure!(
        before[0].len() == 99 + 3 && before[5].len() == 3,
        "{} and {} names",
        before[0].len(),
        before[5].len()
    );
    fs.sync()?;
    ensure!(list(&fs)? == before, "a commit changed a listing");
    let file = fs.file(dirs[7], "not durable")?;
    ensure!(fs.find(dirs[7], "not durable")? == file);
    fs.crash()?;
    ensure!(list(&fs)? == before, "a crash did not leave what was durable");
    fs.with_kernel("ro", |dir| {
        let seen = std::fs::read_dir(dir.join("dir 0"))?.count();
        ensure!(seen == before[0].len(), "the kernel lists {seen} names");
        Ok(())
    })?;
    fs.judge()
}

fn every_kind(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let times = Times {
        access: Timespec { sec: -5, nsec: 1 },
        modification: Timespec { sec: 1_700_000_000, nsec: 999_999_999 },
        change: Timespec { sec: 3, nsec: 3 },
        birth: Timespec { sec: 4, nsec: 4 },
    };
    let device = DeviceNumber { major: 259, minor: 70_000 };
    let long = [b'x'; 4095];
    let rows: [(&str, NewKind<'_>); 8] = [
        ("file", NewKind::File),
        ("dir", NewKind::Directory),
        ("link", NewKind::Symlink(b"some/where")),
        ("long", NewKind::Symlink(&long)),
        ("fifo", NewKind::Fifo),
        ("socket", NewKind::Socket),
        ("char", NewKind::CharDevice(DeviceNumber { major: 1, minor: 3 })),
        ("block", NewKind::BlockDevice(device)),
    ];
    let xattrs: [(&[u8], &[u8]); 2] = [(b"user.one", b"1"), (b"user.empty", b"")];
    for (name, new_kind) in rows {
        let xattrs = if matches!(new_kind, NewKind::File) { &xattrs[..] } else { &[] };
        let new = NewInode {
            kind: new_kind,
            mode: 0o6754,
            umask: 0o027,
            uid: 12,
            gid: 34,
            times: Some(times),
            xattrs,
            ..NewInode::file(0)
        };
        let made = fs.create(top, name.as_bytes(), &new)?;
        ensure!(made == fs.stat(made.id, Wait::Yes)?);
        ensure!(fs.find(top, name)? == made.id);
        ensure!(made.kind == new_kind.file_type() && made.nlink == 1);
    }
    ensure!(fs.read_link(fs.find(top, "link")?, Wait::Yes)? == b"some/where");
    fs.with_kernel("ro", |dir| {
        for (name, new_kind) in rows {
            let seen = std::fs::symlink_metadata(dir.join(name))?;
            let mode = if matches!(new_kind, NewKind::Symlink(_)) { 0o777 } else { 0o6750 };
            ensure!(seen.mode() & 0o7777 == mode, "{name}: mode 0{:o}", seen.mode());
            ensure!((seen.uid(), seen.gid(), seen.nlink()) == (12, 34, 1), "{name}");
            ensure!(
                (seen.atime(), seen.atime_nsec()) == (-5, 1),
                "{name}: {} {}",
                seen.atime(),
                seen.atime_nsec()
            );
            ensure!((seen.mtime(), seen.mtime_nsec()) == (1_700_000_000, 999_999_999), "{name}");
            ensure!((seen.ctime(), seen.ctime_nsec()) == (3, 3), "{name}");
            ensure!(seen.created()? == std::time::UNIX_EPOCH + std::time::Duration::new(4, 4), "{name}");
        }
        let file_type = |name: &str| std::fs::symlink_metadata(dir.join(name)).map(|seen| seen.file_type());
        ensure!(file_type("fifo")?.is_fifo() && file_type("socket")?.is_socket());
        let block = std::fs::symlink_metadata(dir.join("block"))?;
        ensure!(rustix::fs::major(block.rdev()) == 259 && rustix::fs::minor(block.rdev()) == 70_000);
        ensure!(std::fs::read_link(dir.join("long"))?.as_os_str().as_bytes() == long);
        let mut value = [0; 8];
        ensure!(rustix::fs::getxattr(dir.join("file"), "user.one", &mut value[..])? == 1 && value[0] == b'1');
        ensure!(
            std::fs::metadata(dir)?.size() == 2 * rows.iter().map(|(name, _)| name.len() as u64).sum::<u64>()
        );
        Ok(())
    })?;
    fs.judge()
}

fn refusals(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let file = fs.file(top, "file")?;
    let dir = fs.dir(top, "dir")?;
    fs.file(dir, "inner")?;
    let new = NewInode::file(0o644);
    let long = [b'n'; 256];
    let missing = InodeId::new(top.subvolume, ObjectId::new(9999));
    let rows = [
        ("taken", kind(fs.create(top, b"file", &new)), ErrorKind::AlreadyExists),
        ("dot", kind(fs.create(top, b".", &new)), ErrorKind::AlreadyExists),
        ("long", kind(fs.create(top, &long, &new)), ErrorKind::NameTooLong),
        ("slash", kind(fs.create(top, b"a/b", &new)), ErrorKind::InvalidInput),
        ("in a file", kind(fs.create(file, b"x", &new)), ErrorKind::NotADirectory),
        ("in nothing", kind(fs.create(missing, b"x", &new)), ErrorKind::Stale),
        ("look in a file", kind(fs.find(file, "x")), ErrorKind::NotADirectory),
        ("look for nothing", kind(fs.find(top, "x")), ErrorKind::NotFound),
        ("look for long", kind(fs.lookup(top, &long, Wait::Yes)), ErrorKind::NameTooLong),
        ("unlink nothing", kind(fs.unlink(top, b"x")), ErrorKind::NotFound),
        ("unlink a dir", kind(fs.unlink(top, b"dir")), ErrorKind::IsADirectory),
        ("rmdir a file", kind(fs.rmdir(top, b"file")), ErrorKind::NotADirectory),
        ("rmdir full", kind(fs.rmdir(top, b"dir")), ErrorKind::DirectoryNotEmpty),
        ("rmdir dot", kind(fs.rmdir(top, b".")), ErrorKind::InvalidInput),
        ("read link", kind(fs.read_link(file, Wait::Yes)), ErrorKind::InvalidInput),
        (
            "list a file",
            kind(fs.read_dir(file, 0, Wait::Yes, &mut |_| ControlFlow::Continue(()))),
            ErrorKind::NotADirectory,
        ),
    ];
    for (what, found, wanted) in rows {
        ensure!(found == Some(wanted), "{what}: {found:?}, wanted {wanted:?}");
    }
    let target = [b't'; 4096];
    let symlink = NewInode { kind: NewKind::Symlink(&target), ..NewInode::file(0) };
    ensure!(kind(fs.create(top, b"s", &symlink)) == Some(ErrorKind::NameTooLong));
    ensure!(fs.names(top)?.len() == 2);
    ensure!(fs.engine().read_only().is_none(), "no refusal aborted the transaction");
    fs.judge()
}

fn collisions(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let names = colliding_names(40);
    for name in &names {
        fs.create(top, name, &NewInode::file(0o600))?;
    }
    ensure!(kind(fs.create(top, &names[17], &NewInode::file(0o600))) == Some(ErrorKind::AlreadyExists));
    for name in names.iter().step_by(2) {
        fs.unlink(top, name)?;
    }
    fs.rename(top, &names[1], top, &names[0], creamery_fs::RenameMode::Replace)?;
    fs.rename(top, &names[3], top, &names[5], creamery_fs::RenameMode::Replace)?;
    fs.rename(top, &names[7], top, &names[9], creamery_fs::RenameMode::Exchange)?;
    let mut expected: BTreeSet<&[u8]> = names.iter().skip(1).step_by(2).map(|name| &name[..]).collect();
    expected.remove(&names[1][..]);
    expected.remove(&names[3][..]);
    expected.insert(&names[0]);
    for name in &names {
        ensure!(fs.lookup(top, name, Wait::Yes).is_ok() == expected.contains(&name[..]));
    }
    fs.with_kernel("rw", |dir| {
        let seen: BTreeSet<Vec<u8>> = std::fs::read_dir(dir)?
            .map(|entry| Ok(entry?.file_name().as_bytes().to_vec()))
            .collect::<Result<_>>()?;
        ensure!(seen.iter().map(|name| &name[..]).eq(expected.iter().copied()));
        for name in &expected {
            std::fs::symlink_metadata(dir.join(std::ffi::OsStr::from_bytes(name)))?;
        }
        std::fs::write(dir.join(std::ffi::OsStr::from_bytes(&names[30])), b"by the kernel")?;
        Ok(())
    })?;
    fs.unlink(top, &names[30])?;
    for name in expected {
        fs.unlink(top, name)?;
    }
    ensure!(fs.stat(top, Wait::Yes)?.size == 0);
    fs.judge()
}

fn too_many_collisions(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &["--nodesize", "4096"])?;
    let top = fs.top();
    let mut made = 0;
    let refused = loop {
        let name = &colliding_names(200)[made];
        match fs.create(top, name, &NewInode::file(0o600)) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    ensure!(refused.kind() == ErrorKind::TooManyCollisions, "{refused}");
    ensure!(made == (4096 - 101 - 25) / (30 + 48), "{made} names fit into a leaf");
    let name = &colliding_names(200)[made];
    let file = fs.file(top, "other")?;
    let refused = [
        fs.link(file, top, name).err(),
        fs.rename(top, b"other", top, name, Default::default()).err(),
        fs.create(top, name, &NewInode::directory(0o755)).err(),
        fs.create_subvolume(top, name, &NewInode::directory(0o755)).err(),
    ];
    for error in refused {
        ensure!(error.map(|error| error.kind()) == Some(ErrorKind::TooManyCollisions));
    }
    ensure!(fs.engine().read_only().is_none());
    fs.judge()
}

fn stable_listing(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &["--nodesize", "4096"])?;
    let top = fs.top();
    for number in 0..1000 {
        fs.file(top, &format!("file {number}"))?;
    }
    let mut seen = Vec::new();
    let mut offset = 0;
    // Seven entries at a time; of those seen, every third is removed and others are made between.
    loop {
        let mut taken = Vec::new();
        fs.read_dir(top, offset, Wait::Yes, &mut |entry| {
            if taken.len() == 7 {
                return ControlFlow::Break(());
            }
            offset = entry.next_offset;
            taken.push((entry.name.to_vec(), entry.kind));
            ControlFlow::Continue(())
        })?;
        if taken.is_empty() {
            break;
        }
        for (index, (name, found)) in taken.iter().enumerate() {
            if index % 3 == 0 && *found == FileType::File {
                fs.unlink(top, name)?;
            }
        }
        if seen.len() < 500 {
            fs.file(top, &format!("new {}", seen.len()))?;
        }
        seen.extend(taken.into_iter().map(|(name, _)| name));
    }
    ensure!(seen[..2] == [b".".to_vec(), b"..".to_vec()]);
    for number in 0..1000 {
        let name = format!("file {number}").into_bytes();
        ensure!(seen.iter().filter(|seen| **seen == name).count() == 1, "{number} was not seen once");
    }
    // Everything that is left can be removed while listing.
    for name in fs.names(top)? {
        fs.unlink(top, &name)?;
    }
    ensure!(fs.names(top)?.is_empty());
    ensure!(fs.end_of_dir(top, Wait::Yes)? == 2);
    fs.judge()
}

fn renaming_listing(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    for number in 0..100 {
        fs.file(top, &format!("file {number}"))?;
    }
    for round in 0..2 {
        let (end, mut offset, mut seen) = (fs.end_of_dir(top, Wait::Yes)?, 0, 0);
        loop {
            let mut taken = Vec::new();
            fs.read_dir_range(top, offset..end, Wait::Yes, &mut |entry| {
                if taken.len() == 7 {
                    return ControlFlow::Break(());
                }
                offset = entry.next_offset;
                taken.push((entry.name.to_vec(), entry.kind));
                ControlFlow::Continue(())
            })?;
            for (name, _) in taken.iter().filter(|(_, found)| *found == FileType::File) {
                seen += 1;
                ensure!(seen <= 100, "the listing goes on for ever");
                // A new name comes at the end, where the listing has not been yet.
                let new = format!("round {round} {seen}");
                fs.rename(top, name, top, new.as_bytes(), Default::default())?;
            }
            if taken.is_empty() {
                break;
            }
        }
        ensure!(seen == 100, "{seen} of 100 were seen");
    }
    fs.judge()
}

fn numbers_go_on(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let first = fs.file(top, "first")?;
    let second = fs.file(top, "second")?;
    ensure!(second.ino.get() == first.ino.get() + 1);
    fs.reopen()?;
    let third = fs.file(top, "third")?;
    ensure!(third.ino.get() == second.ino.get() + 1);
    ensure!(fs.names(top)? == [b"first".to_vec(), b"second".to_vec(), b"third".to_vec()]);
    ensure!(fs.end_of_dir(top, Wait::Yes)? == 5);
    fs.judge()
}

fn small_nodes(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &["--nodesize", "4096", "--csum", "sha256"])?;
    let top = fs.top();
    for number in 0..200 {
        let name = format!("{number:0>255}");
        let dir = fs.dir(top, &name)?;
        fs.file(dir, &name)?;
    }
    ensure!(fs.stat(top, Wait::Yes)?.size == 200 * 510);
    fs.with_kernel("ro", |dir| {
        for number in 0..200 {
            let name = format!("{number:0>255}");
            std::fs::symlink_metadata(dir.join(&name).join(&name))?;
        }
        Ok(())
    })?;
    fs.judge()
}

fn churn(fs: &Filesystem, top: InodeId, thread: u64) -> Result<()> {
    let mine = fs.create(top, format!("dir {thread}").as_bytes(), &NewInode::directory(0o755))?.id;
    for number in 0..300_u64 {
        let name = format!("{thread} {number}").into_bytes();
        let file = fs.create(top, &name, &NewInode::file(0o644))?.id;
        fs.link(file, mine, &name)?;
        if number % 3 == 0 {
            fs.rename(mine, &name, top, &[&name[..], b" moved"].concat(), creamery_fs::RenameMode::Replace)?;
        } else {
            fs.unlink(top, &name)?;
        }
        if number % 50 == 0 {
            fs.sync()?;
        }
    }
    Ok(())
}

fn threads(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &["--nodesize", "4096"])?;
    fs.options.inodes_cached = 200;
    fs.reopen()?;
    let top = fs.top();
    std::thread::scope(|scope| {
        let filesystem: &Filesystem = &fs;
        let workers: Vec<_> =
            (0..4).map(|thread| scope.spawn(move || churn(filesystem, top, thread))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    // Per thread: its directory, and two names for every third file ("moved" is a second name of the first).
    ensure!(fs.names(top)?.len() == 4 * (1 + 200));
    fs.with_kernel("ro", |dir| {
        ensure!(std::fs::read_dir(dir)?.count() == 4 * 201);
        for thread in 0..4 {
            ensure!(std::fs::read_dir(dir.join(format!("dir {thread}")))?.count() == 200);
        }
        Ok(())
    })?;
    fs.judge()
}

fn full(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("image");
    std::fs::File::create(&image)?.set_len(120 << 20)?;
    creamery_testkit::Run::new("mkfs.btrfs").args(["-q", "-m", "single"]).arg(&image).ok()?;
    let fs = ImageFixture::open(bench, image)?;
    let top = fs.top();
    let value = vec![b'v'; 3000];
    let xattrs: [(&[u8], &[u8]); 1] = [(b"user.large", &value)];
    let mut made = 0;
    let refused = loop {
        let new = NewInode { xattrs: &xattrs, ..NewInode::file(0o644) };
        match fs.create(top, format!("file {made}").as_bytes(), &new) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    ensure!(refused.kind() == ErrorKind::NoSpace, "{refused}");
    ensure!(made > 1000, "only {made} files");
    ensure!(fs.engine().read_only().is_none(), "{:?}", fs.engine().read_only());
    for number in 0..made {
        fs.unlink(top, format!("file {number}").as_bytes())?;
    }
    fs.file(top, "again")?;
    fs.judge()
}
