//! Access times: noted when somebody tells that he has read, written later, and never in the way of anything else.

use anyhow::{Result, ensure};
use creamery_base::{InodeId, Timespec, Wait};
use creamery_fs::{Access, Atime, AtimeOptions, NewInode, NewKind, SetAttributes, Time};
use creamery_testkit::Judge::{BtrfsProgs, KernelBtrfs, LoopDevices, Root};
use creamery_testkit::harness::{Bench, Case};

use crate::support::ImageFixture;

const STRICT: AtimeOptions = AtimeOptions { atime: Atime::Strict, directories: true, lazy: false };

pub(crate) fn cases() -> Vec<Case> {
    let kernel = &[BtrfsProgs, KernelBtrfs, LoopDevices, Root];
    vec![
        Case::new("access_times/told_at_once_and_written_by_a_sync", kernel, told_and_written),
        Case::new(
            "access_times/a_change_of_an_inode_takes_its_access_time_along",
            &[BtrfsProgs],
            a_change_of_an_inode_takes_its_access_time_along,
        ),
        Case::new(
            "access_times/more_inodes_than_are_kept_in_memory",
            &[BtrfsProgs],
            access_times_survive_more_inodes_than_are_kept_in_memory,
        ),
        Case::new(
            "access_times/what_has_no_name_is_not_kept",
            &[BtrfsProgs],
            what_has_no_name_is_not_kept_for_its_access_time,
        ),
        Case::new("access_times/nothing_moves_where_nothing_may_change", &[BtrfsProgs], unmoved),
    ]
}

fn fixture(bench: &Bench, inodes_cached: usize) -> Result<ImageFixture> {
    let mut fs = ImageFixture::new(bench, &[])?;
    fs.options.atime = STRICT;
    fs.options.inodes_cached = inodes_cached;
    fs.reopen()?;
    Ok(fs)
}

fn atime(fs: &ImageFixture, id: InodeId) -> Result<Timespec> {
    Ok(fs.stat(id, Wait::Yes)?.times.access)
}

/// Tells an access, and returns the time that it has moved to.
fn access(fs: &ImageFixture, id: InodeId) -> Result<Timespec> {
    let before = atime(fs, id)?;
    fs.accessed(id);
    let after = atime(fs, id)?;
    ensure!(after > before, "{id}: {before:?} has become {after:?}");
    Ok(after)
}

fn told_and_written(bench: &Bench) -> Result<()> {
    let mut fs = fixture(bench, 1000)?;
    let top = fs.top();
    let link = NewInode { kind: NewKind::Symlink(b"target"), ..NewInode::file(0o777) };
    let ids = [fs.file(top, "file")?, fs.dir(top, "dir")?, fs.create(top, b"link", &link)?.id];
    fs.sync()?;
    let counters = ids.map(|id| fs.stat(id, Wait::Yes).map(|told| told.change_counter));
    let mut times = Vec::new();
    for id in ids {
        access(&fs, id)?;
        times.push(access(&fs, id)?);
    }
    // What is not written, a crash takes back, and nothing else.
    let open = fs.open_file_for(ids[0], Access::Read)?;
    open.sync()?;
    drop(open);
    fs.crash()?;
    for (id, time) in ids.iter().zip(&mut times) {
        ensure!(atime(&fs, *id)? < *time, "{id}: an access alone is not committed by an fsync");
        *time = access(&fs, *id)?;
    }
    fs.sync()?;
    fs.crash_and_check()?;
    for ((id, time), counter) in ids.iter().zip(&times).zip(counters) {
        let told = fs.stat(*id, Wait::Yes)?;
        ensure!(told.times.access == *time, "{id}: {:?} instead of {time:?}", told.times);
        ensure!(told.change_counter == counter?, "{id}: an access is no change");
    }
    let seen = fs.with_kernel("ro,noatime", |dir| {
        use std::os::unix::fs::MetadataExt;
        let names = ["file", "dir", "link"].map(|name| dir.join(name).symlink_metadata());
        names
            .into_iter()
            .map(|meta| meta.map(|meta| (meta.atime(), meta.atime_nsec())).map_err(Into::into))
            .collect::<Result<Vec<_>>>()
    })?;
    let times: Vec<_> = times.iter().map(|time| (time.sec, i64::from(time.nsec))).collect();
    ensure!(seen == times, "the kernel sees {seen:?}, want {times:?}");
    Ok(())
}

fn a_change_of_an_inode_takes_its_access_time_along(bench: &Bench) -> Result<()> {
    let mut fs = fixture(bench, 1000)?;
    let top = fs.top();
    let (file, dir) = (fs.file(top, "file")?, fs.dir(top, "dir")?);
    fs.sync()?;
    let (of_file, of_dir) = (access(&fs, file)?, access(&fs, dir)?);
    fs.open_file_for(file, Access::Write)?.write_at(0, b"content")?;
    fs.file(dir, "entry")?;
    ensure!((atime(&fs, file)?, atime(&fs, dir)?) == (of_file, of_dir), "a change has taken them back");
    // Those who change commit without a word about access times.
    fs.open_file(file)?.sync()?;
    fs.engine().commit()?;
    fs.crash_and_check()?;
    ensure!((atime(&fs, file)?, atime(&fs, dir)?) == (of_file, of_dir), "they are not in the tree");
    // A time that is set counts, whatever was noted before; a directory's that was put off, too.
    let old = Timespec { sec: 1, nsec: 1 };
    fs.file(dir, "another")?;
    for id in [file, dir] {
        access(&fs, id)?;
        fs.set_attributes(id, &SetAttributes { atime: Some(Time::At(old)), ..Default::default() })?;
        ensure!(atime(&fs, id)? == old, "{id}");
    }
    fs.sync()?;
    fs.crash()?;
    ensure!((atime(&fs, file)?, atime(&fs, dir)?) == (old, old));
    fs.file(dir, "third")?;
    let of_dir = access(&fs, dir)?;
    fs.reopen()?;
    ensure!(atime(&fs, dir)? == of_dir, "what was put off before the access was written after it");
    fs.judge()
}

fn access_times_survive_more_inodes_than_are_kept_in_memory(bench: &Bench) -> Result<()> {
    const FILES: usize = 6000;
    let mut fs = fixture(bench, 64)?;
    let files =
        (0..FILES).map(|number| fs.file(fs.top(), &format!("{number}"))).collect::<Result<Vec<_>>>()?;
    fs.reopen()?;
    let times = files.iter().map(|id| access(&fs, *id)).collect::<Result<Vec<_>>>()?;
    for round in ["in memory", "on disk"] {
        for (id, time) in files.iter().zip(&times) {
            ensure!(atime(&fs, *id)? == *time, "{round}: {id}");
        }
        fs.reopen()?;
    }
    let cached = fs.statistics().inodes_cached as usize;
    ensure!(cached < FILES / 2, "{cached} inodes are still in memory");
    fs.judge()
}

fn what_has_no_name_is_not_kept_for_its_access_time(bench: &Bench) -> Result<()> {
    let fs = fixture(bench, 1000)?;
    let top = fs.top();
    let file = fs.file(top, "file")?;
    access(&fs, file)?;
    let open = fs.open_file(file)?;
    fs.unlink(top, b"file")?;
    open.accessed();
    fs.close(open);
    fs.settle()?;
    ensure!(fs.stat(file, Wait::Yes).is_err(), "it is gone with its last user");
    let (made, open) = fs.tmpfile(top, &NewInode::file(0o600))?;
    open.accessed();
    let time = open.stat(Wait::Yes)?.times.access;
    ensure!(time > made.times.access);
    fs.link(made.id, top, b"named")?;
    fs.close(open);
    ensure!(atime(&fs, made.id)? == time);
    fs.judge()
}

fn unmoved(bench: &Bench) -> Result<()> {
    let fs = fixture(bench, 1000)?;
    let subvolume = fs.create_subvolume(fs.top(), b"subvolume", &NewInode::directory(0o755))?;
    let file = fs.file(subvolume, "file")?;
    let time = access(&fs, file)?;
    fs.set_subvolume_read_only(subvolume.subvolume, true)?;
    fs.accessed(file);
    ensure!(atime(&fs, file)? == time, "the subvolume is read-only");
    fs.set_subvolume_read_only(subvolume.subvolume, false)?;
    fs.set_atime(AtimeOptions::default());
    fs.accessed(file);
    ensure!(atime(&fs, file)? == time, "they are not to be moved");
    fs.set_atime(STRICT);
    access(&fs, file)?;
    fs.judge()
}
