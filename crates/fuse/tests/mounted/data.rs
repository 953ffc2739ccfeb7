//! File data: large and small, mapped, copied, sparse, synced.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::sync::atomic::Ordering;

use rustix::fs::{FallocateFlags, OFlags};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use crate::harness::Mounted;

const MIB: usize = 1 << 20;

fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn create(mount: &Mounted, name: &str) -> File {
    File::options().read(true).write(true).create(true).truncate(true).open(mount.path(name)).unwrap()
}

#[test]
fn a_mebibyte_travels_in_one_request_each_way() {
    let Some(mount) = Mounted::new("a_mebibyte_travels_in_one_request_each_way") else { return };
    let data = pattern(MIB, 7);
    fs::write(mount.path("file"), &data).unwrap();
    // The page cache reads ahead in smaller pieces; direct reads come as they are asked.
    let direct = OFlags::RDONLY | OFlags::DIRECT;
    let file = rustix::fs::open(mount.path("file"), direct, rustix::fs::Mode::empty()).unwrap();
    let mut back = vec![0; MIB + 4096];
    let start = back.as_ptr().align_offset(4096);
    assert_eq!(rustix::io::read(&file, &mut back[start..start + MIB]), Ok(MIB));
    assert_eq!(back[start..start + MIB], data);
    assert_eq!(mount.fs.counters.largest_read.load(Ordering::Relaxed), MIB as u64);
    assert_eq!(mount.fs.counters.largest_write.load(Ordering::Relaxed), MIB as u64);
}

#[test]
fn unaligned_pieces_and_appends_land_where_they_should() {
    let Some(mount) = Mounted::new("unaligned_pieces_and_appends_land_where_they_should") else { return };
    let mut want = pattern(3 * MIB + 123, 9);
    fs::write(mount.path("file"), &want).unwrap();
    let file = File::options().read(true).write(true).open(mount.path("file")).unwrap();
    for (offset, len) in [(1, 1), (4095, 2), (4096, 4096), (MIB - 7, 2 * MIB)] {
        let piece = pattern(len, offset as u32);
        file.write_all_at(&piece, offset as u64).unwrap();
        want[offset..offset + len].copy_from_slice(&piece);
    }
    let mut append = File::options().append(true).open(mount.path("file")).unwrap();
    append.write_all(b"tail").unwrap();
    want.extend(b"tail");
    assert_eq!(fs::read(mount.path("file")).unwrap(), want);
    file.set_len(5000).unwrap();
    file.set_len(10_000).unwrap();
    want.truncate(5000);
    want.resize(10_000, 0);
    assert_eq!(fs::read(mount.path("file")).unwrap(), want);
    drop(File::options().write(true).truncate(true).open(mount.path("file")).unwrap());
    assert_eq!(fs::metadata(mount.path("file")).unwrap().len(), 0);
}

#[test]
fn mapped_files_read_and_write() {
    let Some(mount) = Mounted::new("mapped_files_read_and_write") else { return };
    let data = pattern(100_000, 3);
    let mut file = create(&mount, "file");
    file.write_all(&data).unwrap();
    let len = 100_000;
    // SAFETY: a fresh mapping of a file that only this test changes, and not below its length.
    let map = unsafe {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        rustix::mm::mmap(std::ptr::null_mut(), len, flags, MapFlags::SHARED, &file, 0).unwrap()
    };
    // SAFETY: the mapping is `len` bytes long and unmapped only below.
    let bytes = unsafe { std::slice::from_raw_parts_mut(map.cast::<u8>(), len) };
    assert_eq!(bytes, data);
    bytes[50_000..50_004].copy_from_slice(b"mmap");
    // Written back before the last unmapping, which would do it under the lock of this process' address
    // space, that the server's threads need, too. SAFETY: the mapping is still there.
    unsafe { rustix::mm::msync(map, len, MsyncFlags::SYNC).unwrap() };
    let mut state = mount.fs.lock();
    let mut seen = [0; 4];
    let node = state.node(creamery_fuse::NodeId::new(2)).unwrap();
    let crate::memory::Content::File(data) = &node.content else { panic!("a file") };
    data.read(50_000, &mut seen);
    assert_eq!(&seen, b"mmap");
    drop(state);
    // SAFETY: `bytes` is not used any more.
    unsafe { rustix::mm::munmap(map, len).unwrap() };
}

#[test]
fn copy_file_range_is_done_by_the_server() {
    let Some(mount) = Mounted::new("copy_file_range_is_done_by_the_server") else { return };
    let data = pattern(3 * MIB, 5);
    let (from, to) = (create(&mount, "from"), create(&mount, "to"));
    from.write_all_at(&data, 0).unwrap();
    let (mut off_in, mut off_out) = (0, 10);
    while off_in < data.len() as u64 {
        let left = data.len() - off_in as usize;
        let copied =
            rustix::fs::copy_file_range(&from, Some(&mut off_in), &to, Some(&mut off_out), left).unwrap();
        assert!(copied > 0);
    }
    assert!(mount.fs.counters.copies.load(Ordering::Relaxed) >= 3);
    let copy = fs::read(mount.path("to")).unwrap();
    assert_eq!((&copy[..10], &copy[10..]), (&[0; 10][..], &data[..]));
}

#[test]
fn holes_are_found_and_punched() {
    let Some(mount) = Mounted::new("holes_are_found_and_punched") else { return };
    let mut file = create(&mount, "sparse");
    file.write_all_at(&[1; 4096], 1 << 20).unwrap();
    file.write_all_at(&[2; 4096], 3 << 20).unwrap();
    let seek = |to| rustix::fs::seek(&file, to);
    assert_eq!(seek(rustix::fs::SeekFrom::Data(0)), Ok(1 << 20));
    assert_eq!(seek(rustix::fs::SeekFrom::Hole(1 << 20)), Ok((1 << 20) + 4096));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(2 << 20)), Ok(3 << 20));
    assert_eq!(seek(rustix::fs::SeekFrom::Data(4 << 20)), Err(rustix::io::Errno::NXIO));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 1 << 20, 4096).unwrap();
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)), Ok(3 << 20));
    let mut bytes = [9; 4096];
    file.seek(SeekFrom::Start(1 << 20)).unwrap();
    file.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, [0; 4096]);
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 8 << 20).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!((meta.len(), meta.blocks()), (8 << 20, 8));
}

#[test]
fn fsync_and_fdatasync_arrive_apart() {
    let Some(mount) = Mounted::new("fsync_and_fdatasync_arrive_apart") else { return };
    let file = create(&mount, "file");
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    File::open(&mount.dir).unwrap().sync_all().unwrap();
    let counters = &mount.fs.counters;
    assert_eq!(counters.fsyncs.load(Ordering::SeqCst), 2);
    assert_eq!(counters.datasyncs.load(Ordering::SeqCst), 1);
}

#[test]
fn a_write_by_somebody_else_clears_setuid() {
    let test = "a_write_by_somebody_else_clears_setuid";
    let Some(mount) = Mounted::new(test) else { return };
    let path = mount.path("program");
    fs::write(&path, "x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    fs::write(&path, "root may").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode(), 0o106_777);
    let script = format!("echo more >> '{}'", path.display());
    let setpriv = ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script];
    match std::process::Command::new("setpriv").args(setpriv).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => return crate::harness::skip(test, &format!("running setpriv: {error}")),
    }
    assert_eq!(fs::metadata(&path).unwrap().mode(), 0o100_777);
}

#[test]
fn stale_pages_go_when_the_server_says_so() {
    let Some(mount) = Mounted::new("stale_pages_go_when_the_server_says_so") else { return };
    fs::write(mount.path("file"), "old").unwrap();
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"old");
    let id = creamery_fuse::NodeId::new(2);
    if let crate::memory::Content::File(data) = &mut mount.fs.lock().node(id).unwrap().content {
        data.write(0, b"new");
    }
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"old");
    mount.notifier.inval_inode(id, 0, 0).unwrap();
    assert_eq!(fs::read(mount.path("file")).unwrap(), b"new");
}
