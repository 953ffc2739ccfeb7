//! Attributes and extended attributes.

use std::os::unix::fs::MetadataExt;

use anyhow::{Result, ensure};
use creamery_base::{ErrorKind, Timespec, Wait};
use creamery_fs::{
    Access, FileType, InodeFlags, NewInode, NewKind, RenameMode, SetAttributes, Time, WritingUser, XattrMode,
};
use creamery_testkit::Judge::{BtrfsProgs, KernelBtrfs, LoopDevices, Root};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::tree::colliding_names;

use crate::support::{ImageFixture, kind};

pub(crate) fn cases() -> Vec<Case> {
    let kernel = &[BtrfsProgs, KernelBtrfs, LoopDevices, Root];
    vec![
        Case::new("attributes/what_is_set_is_what_the_kernel_sees", kernel, set),
        Case::new("attributes/marked_inodes_refuse_changes", &[BtrfsProgs], marked),
        Case::new("attributes/append_only_inodes_take_nothing_but_appends", &[BtrfsProgs], append_only),
        Case::new("attributes/names_touch_times_and_counters_as_linux_does", &[BtrfsProgs], times),
        Case::new("attributes/extended_attributes_with_one_hash", kernel, xattr_collisions),
        Case::new("attributes/extended_attributes_refuse_what_linux_refuses", &[BtrfsProgs], xattr_refusals),
        Case::new("attributes/the_kernels_extended_attributes_are_read_and_changed", kernel, kernel_xattrs),
        Case::new("attributes/figures_of_the_filesystem_are_about_the_kernels", kernel, figures),
        Case::new("attributes/flags_are_taken_over_by_new_inodes", kernel, inherited),
    ]
}

fn set(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let file = fs.file(top, "file")?;
    let far = Timespec { sec: 1 << 34, nsec: 1 };
    let old = Timespec { sec: -2_000_000_000, nsec: 999_999_999 };
    let changed = fs.set_attributes(
        file,
        &SetAttributes {
            mode: Some(0o4711),
            uid: Some(u32::MAX - 1),
            gid: Some(7),
            size: Some(1 << 40),
            atime: Some(Time::At(far)),
            mtime: Some(Time::At(old)),
            btime: Some(Time::At(old)),
            ..Default::default()
        },
    )?;
    ensure!((changed.size, changed.times.modification, changed.times.birth) == (1 << 40, old, old));
    ensure!(
        kind(fs.set_attributes(top, &SetAttributes { size: Some(0), ..Default::default() }))
            == Some(ErrorKind::IsADirectory)
    );
    let too_long = SetAttributes { size: Some(u64::MAX), ..Default::default() };
    ensure!(kind(fs.set_attributes(file, &too_long)) == Some(ErrorKind::FileTooLarge));
    let killed = SetAttributes { kill_suid_sgid: true, ..Default::default() };
    let suid = fs.file(top, "suid")?;
    fs.set_attributes(suid, &SetAttributes { mode: Some(0o6755), ..Default::default() })?;
    ensure!(fs.set_attributes(suid, &killed)?.mode == 0o100_755);
    fs.set_attributes(suid, &SetAttributes { mode: Some(0o6745), ..Default::default() })?;
    let open = fs.open_file(suid)?;
    let by = |writer: WritingUser| open.kill_privileges(|_| writer);
    ensure!(
        !by(WritingUser::Privileged)? && by(WritingUser::OfTheGroup)? && !by(WritingUser::OfTheGroup)?,
        "taken once"
    );
    ensure!(open.stat(Wait::Yes)?.mode == 0o102_745, "set-group-id without execute is no privilege");
    drop(open);
    fs.with_kernel("ro", |dir| {
        let seen = std::fs::metadata(dir.join("file"))?;
        ensure!((seen.mode(), seen.uid(), seen.gid(), seen.size()) == (0o104_711, u32::MAX - 1, 7, 1 << 40));
        ensure!((seen.atime(), seen.atime_nsec()) == (1 << 34, 1));
        ensure!((seen.mtime(), seen.mtime_nsec()) == (-2_000_000_000, 999_999_999));
        Ok(())
    })?;
    fs.judge()
}

fn marked(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let dir = fs.dir(top, "dir")?;
    let file = fs.file(dir, "file")?;
    let set_flags = |fs: &ImageFixture, id, flags| {
        fs.set_attributes(id, &SetAttributes { flags: Some(flags), ..Default::default() })
    };
    set_flags(&fs, file, InodeFlags::IMMUTABLE)?;
    set_flags(&fs, dir, InodeFlags::APPEND)?;
    fs.reopen()?;
    let denied = Some(ErrorKind::PermissionDenied);
    let chmod = SetAttributes { mode: Some(0), ..Default::default() };
    let open = fs.open_file(file)?;
    ensure!(kind(fs.set_attributes(file, &chmod)) == denied);
    ensure!(kind(fs.set_xattr(file, b"user.a", b"", XattrMode::Any)) == denied);
    ensure!(kind(open.write_at(0, b"x")) == denied);
    ensure!(kind(fs.unlink(dir, b"file")) == denied);
    ensure!(kind(fs.link(file, top, b"x")) == denied);
    ensure!(kind(fs.rename(dir, b"file", top, b"x", Default::default())) == denied);
    let opened = |fs: &ImageFixture, access| kind(fs.open_file_for(file, access));
    ensure!(opened(&fs, Access::Read).is_none());
    ensure!(opened(&fs, Access::Append) == denied && opened(&fs, Access::Write) == denied);
    set_flags(&fs, file, InodeFlags::APPEND)?;
    ensure!(opened(&fs, Access::Append).is_none() && opened(&fs, Access::Write) == denied);
    ensure!(kind(fs.set_xattr(file, b"user.a", b"", XattrMode::Any)) == denied);
    let touch = |time| SetAttributes { mtime: Some(time), ..Default::default() };
    ensure!(kind(fs.set_attributes(file, &touch(Time::Now))).is_none());
    ensure!(kind(fs.set_attributes(file, &touch(Time::At(Timespec::default())))) == denied);
    fs.file(dir, "appended")?;
    ensure!(kind(fs.unlink(dir, b"appended")) == denied);
    let grows = fs.dir(top, "grows")?;
    let (old, other) = (fs.file(grows, "old")?, fs.file(top, "other")?);
    set_flags(&fs, grows, InodeFlags::APPEND)?;
    ensure!(kind(fs.rename(top, b"other", grows, b"old", RenameMode::Replace)) == denied);
    ensure!(kind(fs.rename(top, b"other", grows, b"old", RenameMode::Exchange)) == denied);
    fs.rename(top, b"other", grows, b"new", RenameMode::Replace)?;
    ensure!(fs.lookup(grows, b"old", Wait::Yes)? == old && fs.lookup(grows, b"new", Wait::Yes)? == other);
    set_flags(&fs, dir, InodeFlags::IMMUTABLE)?;
    ensure!(kind(fs.create(dir, b"x", &NewInode::file(0))) == denied);
    set_flags(&fs, dir, InodeFlags::empty())?;
    set_flags(&fs, file, InodeFlags::empty())?;
    fs.unlink(dir, b"file")?;
    fs.judge()
}

/// Whoever may append may do nothing else, whatever they opened and when.
fn append_only(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &[])?;
    let file = fs.file(fs.top(), "log")?;
    let open = fs.open_file_for(file, Access::Write)?;
    open.write_at(0, &[1; 10_000])?;
    fs.set_attributes(file, &SetAttributes { flags: Some(InodeFlags::APPEND), ..Default::default() })?;
    let denied = Some(ErrorKind::PermissionDenied);
    for offset in [0, 4_096, 9_999, 10_000, 10_001] {
        ensure!(kind(open.write_at(offset, b"x")) == denied, "written at {offset}");
    }
    for offset in [0, 4_096, 9_999, 10_001, 20_000] {
        ensure!(kind(open.append_at(offset, b"x")) == denied, "appended at {offset}");
    }
    ensure!(open.append_at(10_000, b"x")? == 1);
    for size in [0, 10_001, 20_000] {
        ensure!(kind(fs.set_attributes(file, &SetAttributes::truncate(size))) == denied, "cut to {size}");
    }
    let mut content = vec![0; 20_000];
    ensure!(open.read_at(0, &mut content, Wait::Yes)? == 10_001, "only one was appended");
    ensure!(content[..10_000] == [1; 10_000] && content[10_000] == b'x');
    fs.set_attributes(file, &SetAttributes { flags: Some(InodeFlags::IMMUTABLE), ..Default::default() })?;
    ensure!(kind(open.append_at(10_001, b"x")) == denied, "immutable");
    fs.set_attributes(file, &SetAttributes { flags: Some(InodeFlags::empty()), ..Default::default() })?;
    ensure!(open.append_at(5, b"y")? == 1, "what is not marked is written anywhere");
    drop(open);
    fs.judge()
}

type AttributeStep<'a> = &'a dyn Fn() -> creamery_base::Result<()>;

fn times(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let past = Timespec { sec: 1000, nsec: 0 };
    let set_past = |id| {
        fs.set_attributes(
            id,
            &SetAttributes { mtime: Some(Time::At(past)), ctime: Some(Time::At(past)), ..Default::default() },
        )
    };
    let dir = fs.dir(top, "dir")?;
    let file = fs.file(top, "file")?;
    let steps: [(&str, AttributeStep<'_>, bool, bool); 5] = [
        ("link", &|| fs.link(file, top, b"second").map(drop), true, true),
        ("unlink", &|| fs.unlink(top, b"second"), true, true),
        ("rename", &|| fs.rename(top, b"file", top, b"third", Default::default()), true, true),
        ("create beside", &|| fs.create(top, b"beside", &NewInode::file(0)).map(drop), true, false),
        ("xattr", &|| fs.set_xattr(file, b"user.a", b"1", XattrMode::Any), false, true),
    ];
    for (what, step, dir_changes, file_changes) in steps {
        let (dir_before, file_before) = (set_past(top)?, set_past(file)?);
        step()?;
        let (dir_after, file_after) = (fs.stat(top, Wait::Yes)?, fs.stat(file, Wait::Yes)?);
        ensure!((dir_after.times.modification != past) == dir_changes, "{what}: the directory's mtime");
        ensure!((dir_after.times.change != past) == dir_changes, "{what}: the directory's ctime");
        ensure!((dir_after.change_counter != dir_before.change_counter) == dir_changes, "{what}");
        ensure!(file_after.times.modification == past, "{what}: the file's mtime");
        ensure!((file_after.times.change != past) == file_changes, "{what}: the file's ctime");
        ensure!((file_after.change_counter != file_before.change_counter) == file_changes, "{what}");
    }
    ensure!(fs.stat(dir, Wait::Yes)?.nlink == 1);
    fs.judge()
}

fn xattr_collisions(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &["--nodesize", "4096"])?;
    let file = fs.file(fs.top(), "file")?;
    // A common prefix leaves a linear checksum's collisions what they are.
    let names: Vec<Vec<u8>> = colliding_names(12).iter().map(|name| [b"user.", &name[..]].concat()).collect();
    for (index, name) in names.iter().enumerate() {
        fs.set_xattr(file, name, &vec![b'x'; index * 7], XattrMode::Create)?;
    }
    fs.set_xattr(file, &names[3], b"longer than it was before, by a good deal", XattrMode::Replace)?;
    fs.set_xattr(file, &names[4], b"", XattrMode::Any)?;
    fs.remove_xattr(file, &names[5])?;
    ensure!(kind(fs.set_xattr(file, &names[0], b"", XattrMode::Create)) == Some(ErrorKind::AlreadyExists));
    ensure!(kind(fs.set_xattr(file, &names[5], b"", XattrMode::Replace)) == Some(ErrorKind::NoAttribute));
    let refused = fs.set_xattr(file, &names[5], &[b'x'; 3200], XattrMode::Any);
    ensure!(kind(refused) == Some(ErrorKind::NoSpace));
    fs.with_kernel("ro", |dir| {
        for (index, name) in names.iter().enumerate() {
            let mut value = [0; 100];
            let read = rustix::fs::getxattr(dir.join("file"), &name[..], &mut value[..]).ok();
            let wanted = match index {
                3 => Some(41),
                4 => Some(0),
                5 => None,
                _ => Some(index * 7),
            };
            ensure!(read == wanted, "attribute {index}: {read:?} bytes");
        }
        Ok(())
    })?;
    ensure!(fs.list_xattrs(file, Wait::Yes)?.len() == 11);
    for name in fs.list_xattrs(file, Wait::Yes)? {
        fs.remove_xattr(file, &name)?;
    }
    ensure!(fs.list_xattrs(file, Wait::Yes)?.is_empty());
    fs.judge()
}

fn xattr_refusals(bench: &Bench) -> Result<()> {
    let fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let file = fs.file(top, "file")?;
    let long = [b"user.", &[b'n'; 251][..]].concat();
    let rows: [(&str, &[u8], usize, ErrorKind); 6] = [
        ("no namespace", b"name", 1, ErrorKind::Unsupported),
        ("unknown namespace", b"os2.name", 1, ErrorKind::Unsupported),
        ("unknown system attribute", b"system.name", 1, ErrorKind::Unsupported),
        ("long name", &long, 1, ErrorKind::Range),
        ("long value", b"user.a", 16_300, ErrorKind::NoSpace),
        ("unknown compression", b"btrfs.compression", 3, ErrorKind::InvalidInput),
    ];
    for (what, name, len, wanted) in rows {
        let found = kind(fs.set_xattr(file, name, &vec![b'v'; len], XattrMode::Any));
        ensure!(found == Some(wanted), "{what}: {found:?}");
    }
    ensure!(kind(fs.get_xattr(file, b"user.none", Wait::Yes)) == Some(ErrorKind::NoAttribute));
    ensure!(kind(fs.remove_xattr(file, b"user.none")) == Some(ErrorKind::NoAttribute));
    // The largest that fits.
    fs.set_xattr(file, b"user.a", &vec![b'v'; 16384 - 101 - 25 - 30 - 6], XattrMode::Any)?;
    fs.judge()
}

fn kernel_xattrs(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    fs.with_kernel("rw", |dir| {
        std::fs::write(dir.join("file"), b"")?;
        for number in 0..50 {
            let name = format!("user.{number}");
            let value = vec![b'k'; number * 20];
            rustix::fs::setxattr(dir.join("file"), name, &value, rustix::fs::XattrFlags::empty())?;
        }
        Ok(())
    })?;
    let file = fs.find(fs.top(), "file")?;
    ensure!(fs.list_xattrs(file, Wait::Yes)?.len() == 50);
    for number in 0..50_usize {
        let name = format!("user.{number}").into_bytes();
        ensure!(fs.get_xattr(file, &name, Wait::Yes)? == vec![b'k'; number * 20]);
        fs.set_xattr(file, &name, &vec![b'c'; 1000 - number * 20], XattrMode::Replace)?;
    }
    fs.with_kernel("ro", |dir| {
        for number in 0..50 {
            let mut value = [0; 2000];
            let read = rustix::fs::getxattr(dir.join("file"), format!("user.{number}"), &mut value[..])?;
            ensure!(read == 1000 - number * 20);
        }
        Ok(())
    })?;
    fs.judge()
}

fn inherited(bench: &Bench) -> Result<()> {
    let mut fs = ImageFixture::new(bench, &[])?;
    let top = fs.top();
    let nocow = fs.dir(top, "nocow")?;
    let flags = SetAttributes { flags: Some(InodeFlags::NODATACOW), ..Default::default() };
    fs.set_attributes(nocow, &flags)?;
    let file = fs.file(nocow, "file")?;
    ensure!(fs.stat(file, Wait::Yes)?.flags == InodeFlags::NODATACOW | InodeFlags::NODATASUM);
    let packed = fs.dir(top, "packed")?;
    fs.set_xattr(packed, b"btrfs.compression", b"zstd", XattrMode::Any)?;
    let sub = fs.dir(packed, "sub")?;
    let file = fs.file(sub, "file")?;
    ensure!(fs.stat(file, Wait::Yes)?.flags == InodeFlags::COMPRESS);
    ensure!(fs.get_xattr(file, b"btrfs.compression", Wait::Yes)? == b"zstd");
    let fifo = fs.create(packed, b"fifo", &NewInode { kind: NewKind::Fifo, ..NewInode::file(0) })?;
    ensure!(fifo.flags == InodeFlags::empty() && fifo.kind == FileType::Fifo);
    ensure!(fs.list_xattrs(fifo.id, Wait::Yes)?.is_empty());
    // A set-group-id directory hands its group on, and the bit to directories.
    let group = fs.dir(top, "group")?;
    let setgid = SetAttributes { mode: Some(0o2775), gid: Some(77), ..Default::default() };
    fs.set_attributes(group, &setgid)?;
    let (file, dir) = (fs.file(group, "file")?, fs.dir(group, "dir")?);
    let (file, dir) = (fs.stat(file, Wait::Yes)?, fs.stat(dir, Wait::Yes)?);
    ensure!((file.gid, file.mode) == (77, 0o100_644) && (dir.gid, dir.mode) == (77, 0o042_755));
    // Not to subvolumes, but to whiteouts.
    let subvolume = fs.stat(fs.create_subvolume(group, b"sub", &NewInode::directory(0o755))?, Wait::Yes)?;
    ensure!((subvolume.gid, subvolume.mode) == (0, 0o040_755), "{subvolume:?}");
    fs.rename(group, b"file", group, b"moved", RenameMode::Whiteout)?;
    let whiteout = fs.stat(fs.find(group, "file")?, Wait::Yes)?;
    ensure!((whiteout.gid, whiteout.mode) == (77, 0o020_000), "{whiteout:?}");
    fs.with_kernel("ro", |dir| {
        let mut value = [0; 10];
        let read = rustix::fs::getxattr(dir.join("packed/sub/file"), "btrfs.compression", &mut value[..])?;
        ensure!(&value[..read] == b"zstd");
        Ok(())
    })?;
    fs.judge()
}

fn figures(bench: &Bench) -> Result<()> {
    for profile in ["single", "dup"] {
        let mut fs = ImageFixture::new(bench, &["-m", "dup", "-d", profile])?;
        let file = fs.open_file(fs.file(fs.top(), "file")?)?;
        file.write_at(0, &vec![b'd'; 30 << 20])?;
        fs.close(file);
        fs.sync()?;
        let ours = fs.statfs();
        let theirs = fs.with_kernel("ro", |dir| Ok(rustix::fs::statvfs(dir)?))?;
        // Linux keeps some megabytes back for its own use, and leaves out what is too little for another chunk.
        let near = |mine: u64, theirs: u64| mine.abs_diff(theirs) * u64::from(ours.block_size) <= 40 << 20;
        ensure!(
            near(ours.blocks, theirs.f_blocks),
            "{profile}: {ours:?}, {} {} {}",
            theirs.f_blocks,
            theirs.f_bfree,
            theirs.f_bavail
        );
        ensure!(
            near(ours.blocks_free, theirs.f_bfree),
            "{profile}: {ours:?}, {} {} {}",
            theirs.f_blocks,
            theirs.f_bfree,
            theirs.f_bavail
        );
        ensure!(
            near(ours.blocks_available, theirs.f_bavail),
            "{profile}: {ours:?}, {} {} {}",
            theirs.f_blocks,
            theirs.f_bfree,
            theirs.f_bavail
        );
        ensure!(
            u64::from(ours.block_size) == theirs.f_bsize && u64::from(ours.name_len_max) == theirs.f_namemax
        );
        fs.judge()?;
    }
    Ok(())
}
