//! Renaming: every combination, and at random beside the kernel.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_base::{ErrorKind, InodeId, Wait};
use creamery_fs::{FileType, NewInode, NewKind, RenameMode, SetAttributes, XattrMode};
use creamery_testkit::Judge::{BtrfsProgs, KernelBtrfs, LoopDevices, Root};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{LoopMount, Random, btrfs_check};
use rustix::fs::{CWD, RenameFlags, XattrFlags, renameat_with};
use rustix::io::Errno;

use crate::support::{ImageFixture, kind, make_image};

pub(crate) fn cases() -> Vec<Case> {
    let kernel = &[BtrfsProgs, KernelBtrfs, LoopDevices, Root];
    let mut cases = vec![
        Case::new("renames/every_combination_does_what_posix_says", &[BtrfsProgs], matrix),
        Case::new("renames/a_directory_never_goes_below_itself", &[BtrfsProgs], cycles),
        Case::new("renames/exchange_and_whiteout_are_what_the_kernel_sees", kernel, special),
        Case::new("renames/directories_moved_by_threads_stay_a_tree", &[BtrfsProgs], threads),
    ];
    for seed in 1..=6 {
        let name = format!("renames/random_operations_agree_with_the_kernel_{seed}");
        cases.push(Case::new(name, kernel, move |bench| random(bench, seed)));
    }
    cases
}

/// Makes the same things in two directories: a file, an empty directory, a full one.
fn furnish(fs: &ImageFixture, dir: InodeId) -> Result<()> {
    fs.file(dir, "file")?;
    fs.dir(dir, "empty")?;
    let full = fs.dir(dir, "full")?;
    fs.file(full, "inner")?;
    Ok(())
}

fn matrix(bench: &Bench) -> Result<()> {
    use ErrorKind::{AlreadyExists, DirectoryNotEmpty, IsADirectory, NotADirectory, NotFound};
    use RenameMode::{Exchange, NoReplace, Replace};
    let fs = ImageFixture::new(bench, &[])?;
    let rows: [(&str, &str, RenameMode, Option<ErrorKind>); 18] = [
        ("file", "new", Replace, None),
        ("file", "file", Replace, None),
        ("file", "empty", Replace, Some(IsADirectory)),
        ("file", "full", Replace, Some(IsADirectory)),
        ("empty", "new", Replace, None),
        ("empty", "file", Replace, Some(NotADirectory)),
        ("empty", "empty", Replace, None),
        ("full", "empty", Replace, None),
        ("full", "full", Replace, Some(DirectoryNotEmpty)),
        ("empty", "full", Replace, Some(DirectoryNotEmpty)),
        ("missing", "new", Replace, Some(NotFound)),
        ("file", "new", NoReplace, None),
        ("file", "file", NoReplace, Some(AlreadyExists)),
        ("full", "new", NoReplace, None),
        ("file", "new", Exchange, Some(NotFound)),
        ("file", "full", Exchange, None),
        ("full", "file", Exchange, None),
        ("empty", "full", Exchange, None),
    ];
    let top = fs.top();
    for (index, (name, new_name, mode, refused)) in rows.into_iter().enumerate() {
        let from = fs.dir(top, &format!("from {index}"))?;
        let to = fs.dir(top, &format!("to {index}"))?;
        furnish(&fs, from)?;
        furnish(&fs, to)?;
        let what = format!("{name} to {new_name}, {mode:?}");
        let (source, target) = (fs.find(from, name), fs.find(to, new_name));
        let result = fs.rename(from, name.as_bytes(), to, new_name.as_bytes(), mode);
        ensure!(kind(result) == refused, "{what}");
        let after = (fs.find(from, name), fs.find(to, new_name));
        if refused.is_some() {
            ensure!(
                (after.0.ok(), after.1.ok()) == (source.ok(), target.ok()),
                "{what}: changed all the same"
            );
            continue;
        }
        ensure!(after.1? == source?, "{what}");
        match mode {
            Exchange => ensure!(after.0? == target?, "{what}"),
            _ => {
                ensure!(kind(after.0) == Some(NotFound), "{what}");
                if let Ok(target) = target {
                    ensure!(kind(fs.stat(target, Wait::Yes)) == Some(ErrorKind::Stale), "{what}");
                }
            }
        }
        for dir in [from, to] {
            let size: usize = fs.names(dir)?.iter().map(|name| 2 * name.len()).sum();
            ensure!(fs.stat(dir, Wait::Yes)?.size == size as u64, "{what}");
        }
        ensure!(fs.parent(fs.find(to, new_name)?, Wait::Yes)? == to || new_name == "file" || name == "file");
    }
    // Within one directory, and onto itself.
    let dir = fs.dir(top, "one")?;
    furnish(&fs, dir)?;
    fs.rename(dir, b"full", dir, b"empty", Replace)?;
    fs.rename(dir, b"file", dir, b"file", Replace)?;
    fs.rename(dir, b"file", dir, b"empty", Exchange)?;
    ensure!(fs.stat(fs.find(dir, "empty")?, Wait::Yes)?.kind == FileType::File);
    ensure!(fs.names(fs.find(dir, "file")?)? == [b"inner".to_vec()]);
    fs.judge()
}

fn cycles(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let a = fs.dir(top, "a")?;
    let b = fs.dir(a, "b")?;
    let c = fs.dir(b, "c")?;
    let refused = [
        fs.rename(top, b"a", a, b"x", RenameMode::Replace),
        fs.rename(top, b"a", c, b"x", RenameMode::Replace),
        fs.rename(a, b"b", b, b"c", RenameMode::Exchange),
        fs.rename(b, b"c", top, b"a", RenameMode::Exchange),
    ];
    for (index, result) in refused.into_iter().enumerate() {
        ensure!(kind(result) == Some(ErrorKind::InvalidInput), "{index}");
    }
    ensure!(kind(fs.rename(b, b"c", top, b"a", RenameMode::Replace)) == Some(ErrorKind::DirectoryNotEmpty));
    fs.rename(b, b"c", top, b"c", RenameMode::Replace)?;
    fs.rename(top, b"a", c, b"a", RenameMode::Replace)?;
    ensure!(fs.parent(a, Wait::Yes)? == c && fs.parent(c, Wait::Yes)? == top);
    fs.judge()
}

fn special(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let dir = fs.dir(top, "dir")?;
    let file = fs.file(top, "file")?;
    fs.rename(top, b"file", dir, b"moved", RenameMode::Whiteout)?;
    fs.file(dir, "loser")?;
    fs.rename(dir, b"moved", dir, b"loser", RenameMode::Whiteout)?;
    ensure!(fs.find(dir, "loser")? == file);
    fs.create(top, b"link", &NewInode { kind: NewKind::Symlink(b"t"), ..NewInode::file(0) })?;
    fs.rename(top, b"link", dir, b"loser", RenameMode::Exchange)?;
    ensure!(fs.find(top, "link")? == file);
    fs.with_kernel("ro", |mounted| {
        for path in ["file", "dir/moved"] {
            let whiteout = std::fs::symlink_metadata(mounted.join(path))?;
            ensure!(whiteout.mode() == 0o020_000 && whiteout.rdev() == 0, "{path}: 0{:o}", whiteout.mode());
        }
        ensure!(std::fs::read_link(mounted.join("dir/loser"))? == Path::new("t"));
        Ok(())
    })?;
    fs.judge()
}

fn threads(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &["--nodesize", "4096"])?;
    let top = fs.top();
    let dirs: Vec<InodeId> = (0..8).map(|number| fs.dir(top, &format!("{number}"))).collect::<Result<_>>()?;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (fs, dirs) = (&fs, &dirs);
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for _ in 0..500 {
                    let mut pick = || dirs[random.below(8) as usize];
                    let (moved, to) = (pick(), pick());
                    let name = format!("{}", dirs.iter().position(|dir| *dir == moved).expect("one of them"));
                    let Ok(from) = fs.parent(moved, Wait::Yes) else { continue };
                    let mode =
                        if random.below(3) == 0 { RenameMode::Exchange } else { RenameMode::NoReplace };
                    // Refusals and races are expected; a deadlock or a damaged tree is not.
                    let _ = fs.rename(from, name.as_bytes(), to, name.as_bytes(), mode);
                }
            });
        }
    });
    for dir in dirs {
        let mut at = dir;
        for depth in 0.. {
            ensure!(depth < 10, "directory {dir} hangs in a ring");
            if at == top {
                break;
            }
            at = fs.parent(at, Wait::Yes)?;
        }
    }
    ensure!(fs.engine().read_only().is_none());
    fs.judge()
}

/// One operation, on paths of at most two components.
#[derive(Debug)]
enum Op {
    Create(Vec<u8>),
    Mkdir(Vec<u8>),
    Symlink(Vec<u8>),
    Link(Vec<u8>, Vec<u8>),
    Unlink(Vec<u8>),
    Rmdir(Vec<u8>),
    Rename(Vec<u8>, Vec<u8>, RenameMode),
    Chmod(Vec<u8>, u32),
    SetXattr(Vec<u8>, u64),
    RemoveXattr(Vec<u8>),
}

fn path(random: &mut Random) -> Vec<u8> {
    let mut path = Vec::new();
    for level in 0..=random.below(3) {
        if level > 0 {
            path.push(b'/');
        }
        path.push(b'a' + random.below(4) as u8);
    }
    path
}

fn next_op(random: &mut Random) -> Op {
    let one = path(random);
    match random.below(16) {
        0..=1 => Op::Create(one),
        2..=4 => Op::Mkdir(one),
        5 => Op::Symlink(one),
        6..=7 => Op::Link(one, path(random)),
        8 => Op::Unlink(one),
        9 => Op::Rmdir(one),
        10 => Op::Rename(one, path(random), RenameMode::NoReplace),
        11 => Op::Rename(one, path(random), RenameMode::Exchange),
        12..=13 => Op::Rename(one, path(random), RenameMode::Replace),
        14 => Op::Chmod(one, random.below(0o10000) as u32),
        _ if random.below(2) == 0 => Op::SetXattr(one, random.below(3000)),
        _ => Op::RemoveXattr(one),
    }
}

fn walk_to(fs: &ImageFixture, path: &[u8]) -> creamery_base::Result<InodeId> {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
        .try_fold(fs.top(), |dir, name| fs.lookup(dir, name, Wait::Yes))
}

fn split(fs: &ImageFixture, path: &[u8]) -> creamery_base::Result<(InodeId, Vec<u8>)> {
    let at = path.iter().rposition(|byte| *byte == b'/');
    let (dir, name) = at.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
    let dir = walk_to(fs, dir)?;
    // Like the kernel, before anything is looked for in it.
    if fs.stat(dir, Wait::Yes)?.kind != FileType::Directory {
        return Err(ErrorKind::NotADirectory.into());
    }
    Ok((dir, name.to_vec()))
}

fn ours(fs: &ImageFixture, op: &Op) -> creamery_base::Result<()> {
    let make = |path: &[u8], kind: NewKind<'_>| {
        let (dir, name) = split(fs, path)?;
        fs.create(dir, &name, &NewInode { kind, mode: 0o750, ..NewInode::file(0) }).map(drop)
    };
    match op {
        Op::Create(path) => make(path, NewKind::File),
        Op::Mkdir(path) => make(path, NewKind::Directory),
        Op::Symlink(path) => make(path, NewKind::Symlink(b"target")),
        Op::Link(old, new) => {
            let target = walk_to(fs, old)?;
            let (dir, name) = split(fs, new)?;
            fs.link(target, dir, &name).map(drop)
        }
        Op::Unlink(path) => split(fs, path).and_then(|(dir, name)| fs.unlink(dir, &name)),
        Op::Rmdir(path) => split(fs, path).and_then(|(dir, name)| fs.rmdir(dir, &name)),
        Op::Rename(old, new, mode) => {
            let (from, name) = split(fs, old)?;
            let (to, new_name) = split(fs, new)?;
            fs.rename(from, &name, to, &new_name, *mode)
        }
        Op::Chmod(path, mode) => {
            let id = walk_to(fs, path)?;
            if fs.stat(id, Wait::Yes)?.kind == FileType::Symlink {
                return Err(ErrorKind::Unsupported.into());
            }
            fs.set_attributes(id, &SetAttributes { mode: Some(*mode), ..Default::default() }).map(drop)
        }
        Op::SetXattr(path, len) => {
            let value = vec![b'v'; usize::try_from(*len).expect("small")];
            fs.set_xattr(walk_to(fs, path)?, b"trusted.test", &value, XattrMode::Any)
        }
        Op::RemoveXattr(path) => fs.remove_xattr(walk_to(fs, path)?, b"trusted.test"),
    }
}

fn kernels(root: &Path, op: &Op) -> rustix::io::Result<()> {
    let at = |path: &[u8]| -> PathBuf { root.join(OsStr::from_bytes(path)) };
    let raw =
        |result: std::io::Result<()>| result.map_err(|error| Errno::from_io_error(&error).expect("an errno"));
    match op {
        Op::Create(path) => {
            let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::EXCL | rustix::fs::OFlags::WRONLY;
            rustix::fs::open(at(path), flags, 0o750.into()).map(drop)
        }
        Op::Mkdir(path) => rustix::fs::mkdir(at(path), 0o750.into()),
        Op::Symlink(path) => raw(std::os::unix::fs::symlink("target", at(path))),
        Op::Link(old, new) => raw(std::fs::hard_link(at(old), at(new))),
        Op::Unlink(path) => rustix::fs::unlink(at(path)),
        Op::Rmdir(path) => rustix::fs::rmdir(at(path)),
        Op::Rename(old, new, mode) => {
            let flags = match mode {
                RenameMode::Exchange => RenameFlags::EXCHANGE,
                RenameMode::NoReplace => RenameFlags::NOREPLACE,
                _ => RenameFlags::empty(),
            };
            renameat_with(CWD, at(old), CWD, at(new), flags)
        }
        Op::Chmod(path, mode) => {
            let seen = raw(std::fs::symlink_metadata(at(path)).map(|_| ()));
            seen?;
            if at(path).is_symlink() {
                return Err(Errno::OPNOTSUPP);
            }
            rustix::fs::chmod(at(path), (*mode).into())
        }
        Op::SetXattr(path, len) => {
            let value = vec![b'v'; usize::try_from(*len).expect("small")];
            rustix::fs::lsetxattr(at(path), "trusted.test", &value, XattrFlags::empty())
        }
        Op::RemoveXattr(path) => rustix::fs::lremovexattr(at(path), "trusted.test"),
    }
}

/// The system call's answer as it stands for one of ours.
fn matches(ours: ErrorKind, kernels: Errno) -> bool {
    let errno = match ours {
        ErrorKind::NotFound => Errno::NOENT,
        ErrorKind::AlreadyExists => Errno::EXIST,
        ErrorKind::NotADirectory => Errno::NOTDIR,
        ErrorKind::IsADirectory => Errno::ISDIR,
        ErrorKind::DirectoryNotEmpty => Errno::NOTEMPTY,
        ErrorKind::InvalidInput => Errno::INVAL,
        ErrorKind::PermissionDenied => Errno::PERM,
        ErrorKind::NoAttribute => Errno::NODATA,
        ErrorKind::Unsupported => Errno::OPNOTSUPP,
        ErrorKind::NoSpace => Errno::NOSPC,
        _ => return false,
    };
    // Looking through a symbolic link is the caller's business: the kernel follows it, to nowhere.
    errno == kernels || (ours == ErrorKind::NotADirectory && kernels == Errno::NOENT)
}

fn random(bench: &Bench, seed: u64) -> Result<()> {
    let mkfs = if seed.is_multiple_of(2) { &["--nodesize", "4096"][..] } else { &[] };
    let mut fs = ImageFixture::new(bench, mkfs)?;
    let other = bench.scratch.file("kernels");
    make_image(&other, mkfs)?;
    let mount = LoopMount::mount(&other, &bench.scratch.dir("kernel")?, "")?;
    let mut numbers = Random::new(seed);
    for step in 0..3000 {
        let op = next_op(&mut numbers);
        let (mine, mut theirs) = (ours(&fs, &op), kernels(mount.dir(), &op));
        if let (Op::SetXattr(path, _), Err(Errno::NOSPC)) = (&op, theirs) {
            // Linux lets no attribute grow that its leaf has no room for; we split the leaf.
            kernels(mount.dir(), &Op::RemoveXattr(path.clone()))?;
            theirs = kernels(mount.dir(), &op);
        }
        let agree = match (&mine, &theirs) {
            (Ok(()), Ok(())) => true,
            (Err(mine), Err(theirs)) => matches(mine.kind(), *theirs),
            _ => false,
        };
        ensure!(agree, "step {step}: {op:?}: {mine:?}, the kernel says {theirs:?}");
        match step % 500 {
            100 => fs.sync()?,
            400 => fs.reopen()?,
            _ => {}
        }
    }
    let compare = Compare { mtime: false, root: false, ..Compare::default() };
    let want = Walk::take(mount.dir())?;
    ensure!(want.len() > 5, "the kernel's tree is too small to tell anything");
    fs.with_kernel("ro", |dir| {
        expect_same("after the random operations", &want, &Walk::take(dir)?, &compare)
    })?;
    fs.judge().context("ours")?;
    mount.unmount()?;
    btrfs_check(&other)
}
