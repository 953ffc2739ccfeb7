//! A device with direct I/O does the same as one without.

use std::fs;
use std::path::{Path, PathBuf};

use creamery_base::ErrorKind;
use creamery_device::{
    Access, AlignedBuffer, BlockDevice, DeviceIo, DirectRequests, FileDevice, Parts, Reply, Request,
};

use crate::file::{answers_requests, keeps_the_rules};
use crate::support::TestLoop;

/// Creates a file of `len` sevens beside the build's files: temporary files are often in memory.
fn scratch(len: usize) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("disk.img");
    fs::write(&path, vec![7; len]).unwrap();
    (dir, path)
}

/// Opens a device with direct I/O. `None` if the file does not allow it.
fn open(path: &Path) -> Option<FileDevice> {
    match FileDevice::open_with(path, Access::ReadWrite, DeviceIo::Direct) {
        Ok(device) => Some(device),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            println!("skipped: {error}");
            None
        }
    }
}

fn read(device: &FileDevice, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = AlignedBuffer::zeroed(len);
    device.read_at(at, &mut bytes).unwrap();
    bytes.to_vec()
}

#[test]
fn a_direct_file_keeps_the_rules() {
    let (_dir, path) = scratch(10 << 20);
    let Some(device) = open(&path) else { return };
    keeps_the_rules(&device);
    answers_requests(&device);
    device.close();
    assert_eq!(device.read_at(0, &mut [0; 512]).unwrap_err().kind(), ErrorKind::Stale, "DEV-4");
}

#[test]
fn each_request_goes_the_way_that_its_range_and_memory_allow() {
    let (_dir, path) = scratch(8 << 20);
    let Some(device) = open(&path) else { return };
    let mut buffer = AlignedBuffer::from_slice(&vec![1; 3 << 20]);
    device.write_at(0, &buffer).unwrap();
    device.read_at(1 << 20, &mut buffer).unwrap();
    let count = |straight, bounced, cached| DirectRequests { straight, bounced, cached };
    assert_eq!(device.direct_requests(), count(2, 0, 0));

    let numbers: Vec<u8> = (0..(3 << 20) + 1).map(|number| u8::try_from(number % 251).unwrap()).collect();
    buffer[1..].copy_from_slice(&numbers[1..3 << 20]);
    // Longer than the intermediate buffer, and its memory begins at an odd byte.
    let odd = &numbers[1..(2 << 20) + 4097];
    device.write_at(4096, odd).unwrap();
    let mut back = vec![0; numbers.len()];
    device.read_at(4096, &mut back[1..=odd.len()]).unwrap();
    assert_eq!(&back[1..=odd.len()], odd);
    device.write_vectored_at(4 << 20, &[&odd[..100], &[], &odd[100..8192]]).unwrap();
    assert_eq!(read(&device, 4 << 20, 8192), odd[..8192]);
    assert_eq!(device.direct_requests(), count(3, 3, 0));

    device.write_at(100, b"middle").unwrap();
    assert_eq!(read(&device, 99, 8), b"\x01middle\x01");
    device.read_at(0, &mut []).unwrap();
    device.write_at(0, &[]).unwrap();
    assert_eq!(device.direct_requests(), count(3, 3, 2));
}

#[test]
fn what_goes_one_way_is_seen_the_other_way_before_any_flush() {
    let (_dir, path) = scratch(1 << 20);
    let Some(device) = open(&path) else { return };
    for round in 0..20_u8 {
        device.write_at(8192, &AlignedBuffer::from_slice(&[round; 4096])).unwrap();
        assert_eq!(read(&device, 8200, 8), [round; 8], "written past the cache, read through it");
        device.write_at(8200, &[round + 100; 8]).unwrap();
        let mut expected = vec![round; 4096];
        expected[8..16].fill(round + 100);
        assert_eq!(read(&device, 8192, 4096), expected, "written through the cache, read past it");
        assert_eq!(fs::read(&path).unwrap()[8192..12288], expected, "as others see it");
    }
    device.flush().unwrap();
}

#[test]
fn the_last_bytes_of_a_file_of_an_odd_length_are_read_and_written() {
    let (_dir, path) = scratch(3 * 4096 + 100);
    let Some(device) = open(&path) else { return };
    let tail = AlignedBuffer::from_slice(&[3; 4196]);
    device.write_at(2 * 4096, &tail).unwrap();
    assert_eq!(read(&device, 2 * 4096, 4196), tail[..]);
    device.write_at(3 * 4096, &[4; 100]).unwrap();
    assert_eq!(read(&device, 0, 3 * 4096 + 100)[3 * 4096 - 1..3 * 4096 + 1], [3, 4]);
    device.flush().unwrap();
    device.close();
    assert_eq!(fs::metadata(&path).unwrap().len(), 3 * 4096 + 100);
}

#[test]
fn a_file_that_grows_and_shrinks_is_written_behind_its_old_end() {
    let (_dir, path) = scratch(4096 + 1);
    let Some(device) = open(&path) else { return };
    assert_eq!(device.lengthen(1 << 20).unwrap(), 1 << 20);
    let block = AlignedBuffer::from_slice(&[5; 65536]);
    device.write_at((1 << 20) - 65536, &block).unwrap();
    assert_eq!(read(&device, 4096, 4), [7, 0, 0, 0]);
    assert_eq!(read(&device, (1 << 20) - 65536, 65536), block[..]);
    device.resize(1 << 19).unwrap();
    assert_eq!(device.write_at(1 << 19, &block).unwrap_err().kind(), ErrorKind::Io, "DEV-1");
    device.zero(0, 8192).unwrap();
    assert_eq!(read(&device, 0, 16384), vec![0; 16384]);
    device.flush().unwrap();
}

/// Each thread has every eighth sector of 512 bytes, and writes it past the cache or, a byte shorter, through it: sectors of one page go both ways at once.
#[test]
fn requests_beside_each_other_go_both_ways_without_a_failed_flush() {
    let (_dir, path) = scratch(1 << 20);
    if let Some(device) = open(&path) {
        go_both_ways(&device);
    }
    // Unlike files, a block device is not locked by the kernel for writes into its cache.
    if let Some(node) = TestLoop::attach(&path) {
        go_both_ways(&FileDevice::open_with(&node.0, Access::ReadWrite, DeviceIo::Direct).unwrap());
    }
}

fn go_both_ways(device: &FileDevice) {
    const ROUNDS: u8 = 20;
    std::thread::scope(|scope| {
        for thread in 0..8_u64 {
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    for page in 0..32_u64 {
                        let sector = AlignedBuffer::from_slice(&[round; 512]);
                        let short = (page + thread + u64::from(round)).is_multiple_of(3);
                        let bytes = if short { &sector[..511] } else { &sector[..] };
                        device.write_at(page * 4096 + thread * 512, bytes).unwrap();
                    }
                    device.flush().unwrap();
                }
            });
        }
    });
    device.flush().unwrap();
    for (number, sector) in read(device, 0, 32 * 4096).chunks(512).enumerate() {
        assert!(sector[..511].iter().all(|byte| *byte == ROUNDS), "sector {number}");
    }
    let DirectRequests { straight, cached, .. } = device.direct_requests();
    assert!(cached > 0 && straight + cached >= 8 * 20 * 32, "{straight} {cached}");
}

#[test]
fn requests_that_are_submitted_go_past_the_cache() {
    let (_dir, path) = scratch(1 << 20);
    let Some(device) = open(&path) else { return };
    let data = Parts::from_iter([vec![1; 4096], vec![2; 65536]].map(|part| AlignedBuffer::from_slice(&part)));
    assert_eq!(device.start(Request::Write { offset: 4096, data }).wait().unwrap(), Reply::Done);
    let request = Request::Read { offset: 4096, buffer: AlignedBuffer::zeroed(8192) };
    let Reply::Read(buffer) = device.start(request).wait().unwrap() else { panic!("it was a read") };
    assert_eq!((buffer[4095], buffer[4096]), (1, 2));
    assert_eq!(device.direct_requests(), DirectRequests { straight: 2, bounced: 0, cached: 0 });
    assert!(!device.will_read(0, 4096), "nothing is fetched into the cache");
}

#[test]
fn a_part_goes_past_the_cache_and_reaches_nothing_outside_of_it() {
    let (_dir, path) = scratch(1 << 20);
    let mut name = path.clone().into_os_string();
    name.push("@@64K");
    let Some(device) = open(Path::new(&name)) else { return };
    device.write_at(0, &AlignedBuffer::from_slice(&[1; 4096])).unwrap();
    device.write_at(device.len() - 1, &[2]).unwrap();
    assert_eq!(device.direct_requests(), DirectRequests { straight: 1, bounced: 0, cached: 1 });
    device.close();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(
        (bytes[65535], bytes[65536], bytes[65536 + 4096], bytes[(1 << 20) - 1]),
        (7, 1, 7, 2),
        "DEV-5"
    );
}

#[test]
fn a_reader_goes_past_the_cache_and_writes_nothing() {
    let (_dir, path) = scratch(1 << 20);
    let opened = FileDevice::open_with(&path, Access::ReadOnly, DeviceIo::Direct);
    let Ok(device) = opened else { return println!("skipped: {}", opened.err().unwrap()) };
    assert_eq!(read(&device, 0, 4096), [7; 4096]);
    assert_eq!(device.direct_requests().straight, 1);
    assert_eq!(device.write_at(0, &[1; 4096]).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert!(FileDevice::open(&path, Access::ReadOnly).is_ok(), "beside others");
    drop(device);
    assert!(FileDevice::open(&path, Access::ReadWrite).is_ok(), "no descriptor keeps a lock");
}

#[test]
fn a_file_in_memory_is_refused_with_the_way_on() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return println!("skipped: /dev/shm missing") };
    let path = dir.path().join("disk.img");
    fs::write(&path, vec![0; 1 << 20]).unwrap();
    let Err(error) = FileDevice::open_with(&path, Access::ReadWrite, DeviceIo::Direct) else {
        return println!("skipped: /dev/shm is not in memory");
    };
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.to_string().contains("tmpfs")
            && error.advice().is_some_and(|advice| advice.contains("--direct-io")),
        "{error}"
    );
    assert!(FileDevice::open(&path, Access::ReadWrite).is_ok(), "the lock was given back");
}

#[test]
fn a_block_device_goes_past_the_cache_by_its_sectors() {
    for (options, sector) in [(&[][..], 512), (&["-b", "4096"], 4096)] {
        let (_dir, path) = scratch(4 << 20);
        let Some(node) = TestLoop::attach_as(&path, options) else { return };
        let device = FileDevice::open_with(&node.0, Access::ReadWrite, DeviceIo::Direct).unwrap();
        assert_eq!(device.sector_size(), sector);
        let block = AlignedBuffer::from_slice(&vec![1; usize::try_from(sector).unwrap()]);
        device.write_at(sector, &block).unwrap();
        assert_eq!(read(&device, sector, block.len()), block[..]);
        assert_eq!(device.direct_requests(), DirectRequests { straight: 2, bounced: 0, cached: 0 });
        device.write_at(sector + 1, &[2]).unwrap();
        assert_eq!(read(&device, sector, block.len())[..3], [1, 2, 1]);
        device.discard(1 << 20, 1 << 20).unwrap();
        device.zero(0, 1 << 20).unwrap();
        assert_eq!(read(&device, 0, 8192), [0; 8192]);
        device.flush().unwrap();
    }
}
