//! Reads, refusals and reports of a file device.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use creamery_base::{ErrorKind, gate};
use creamery_device::{Access, AlignedBuffer, BlockDevice, FileDevice, MemoryDevice, Parts, Reply, Request};

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    (dir, path)
}

fn open(path: &Path, access: Access) -> FileDevice {
    FileDevice::open(path, access).unwrap()
}

/// The rules that every back end keeps.
pub(crate) fn keeps_the_rules(device: &dyn BlockDevice) {
    let len = device.len();
    device.write_at(len - 3, b"end").unwrap();
    device.write_vectored_at(100, &[b"", b"one", b"", b"two", b"three", b""]).unwrap();
    let mut bytes = [0; 11];
    device.read_at(100, &mut bytes).unwrap();
    assert_eq!(&bytes, b"onetwothree");
    device.flush().unwrap();

    for (offset, data_len) in [(len - 2, 3), (len, 1), (u64::MAX, 2), (u64::MAX - 1, 1)] {
        let data = vec![1; data_len];
        assert_eq!(device.write_at(offset, &data).unwrap_err().kind(), ErrorKind::Io, "writing at {offset}");
        assert_eq!(device.write_vectored_at(offset, &[&data]).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(device.read_at(offset, &mut data.clone()).unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(device.zero(offset, data_len as u64).unwrap_err().kind(), ErrorKind::Io);
    }
    device.read_at(len - 3, &mut bytes[..3]).unwrap();
    assert_eq!(&bytes[..3], b"end");

    device.write_at(0, &vec![7; 200_000]).unwrap();
    device.zero(5_000, 100_000).unwrap();
    let mut read = vec![0; 200_000];
    device.read_at(0, &mut read).unwrap();
    assert!(read[..5_000].iter().all(|&b| b == 7));
    assert!(read[5_000..105_000].iter().all(|&b| b == 0));
    assert!(read[105_000..].iter().all(|&b| b == 7));

    let waits = gate::waits_of_this_thread();
    device.read_at(0, &mut bytes).unwrap();
    device.write_at(0, &bytes).unwrap();
    device.write_vectored_at(0, &[&bytes]).unwrap();
    device.flush().unwrap();
    assert_eq!(gate::waits_of_this_thread() - waits, 4, "every blocking call passes the gate once");
}

fn submitted(device: &dyn BlockDevice, request: Request) -> creamery_base::Result<Reply> {
    let (send, receive) = mpsc::channel();
    device.submit(request, Box::new(move |outcome| send.send(outcome).unwrap()));
    receive.recv().unwrap()
}

/// Submitted requests have the same effects as the blocking calls.
pub(crate) fn answers_requests(device: &dyn BlockDevice) {
    let data = Parts::from_iter([[9; 512].as_slice(), &[9; 7680]].map(AlignedBuffer::from_slice));
    assert_eq!(submitted(device, Request::Write { offset: 4096, data }).unwrap(), Reply::Done);
    assert_eq!(submitted(device, Request::Flush).unwrap(), Reply::Done);
    let read =
        submitted(device, Request::Read { offset: 8192, buffer: AlignedBuffer::zeroed(8192) }).unwrap();
    let mut expected = AlignedBuffer::zeroed(8192);
    expected[..4096].fill(9);
    assert_eq!(read, Reply::Read(expected));
    let beyond = Request::Read { offset: device.len(), buffer: AlignedBuffer::zeroed(1) };
    assert_eq!(submitted(device, beyond).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(submitted(device, Request::Discard { offset: 0, len: 16384 }).unwrap(), Reply::Done);
}

#[test]
fn a_file_keeps_the_rules() {
    let (_dir, path) = scratch();
    let device = FileDevice::create(&path, 10 << 20).unwrap();
    keeps_the_rules(&device);
}

#[test]
fn memory_keeps_the_rules() {
    keeps_the_rules(&MemoryDevice::new(10 << 20));
}

#[test]
fn requests_are_answered_by_files_and_memory() {
    let (_dir, path) = scratch();
    answers_requests(&FileDevice::create(&path, 10 << 20).unwrap());
    answers_requests(&MemoryDevice::new(10 << 20));
}

/// A device that has nothing but the required methods.
struct Plain(MemoryDevice);

impl BlockDevice for Plain {
    fn submit(&self, request: Request, done: creamery_device::Completion) {
        self.0.submit(request, done);
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
    fn id(&self) -> creamery_device::DeviceId {
        self.0.id()
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
}

#[test]
fn the_provided_calls_keep_the_rules_too() {
    let plain = Plain(MemoryDevice::new(10 << 20));
    keeps_the_rules(&plain);
    plain.discard(0, 4096).unwrap();
    assert_eq!(plain.resize(1).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn what_was_written_is_there_after_reopening() {
    let (_dir, path) = scratch();
    let device = FileDevice::create(&path, 1 << 20).unwrap();
    device.write_at(4096, b"kept").unwrap();
    device.flush().unwrap();
    drop(device);
    let device = open(&path, Access::ReadOnly);
    assert_eq!(device.len(), 1 << 20);
    let mut bytes = [0; 4];
    device.read_at(4096, &mut bytes).unwrap();
    assert_eq!(&bytes, b"kept");
}

#[test]
fn a_new_file_is_sparse_and_gives_discarded_space_back() {
    let (_dir, path) = scratch();
    let device = FileDevice::create(&path, 1 << 40).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().blocks(), 0);
    device.write_at(1 << 30, &vec![1; 1 << 20]).unwrap();
    device.flush().unwrap();
    let full = fs::metadata(&path).unwrap().blocks();
    device.discard(1 << 30, 1 << 20).unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() < full);
}

#[test]
fn creating_over_something_leaves_it_alone() {
    let (_dir, path) = scratch();
    fs::write(&path, b"precious").unwrap();
    assert_eq!(FileDevice::create(&path, 4096).err().unwrap().kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_failed_creation_leaves_no_file() {
    let (_dir, path) = scratch();
    let error = FileDevice::create(&path, u64::MAX).err().unwrap();
    assert!(error.to_string().contains("disk.img"), "{error}");
    assert!(!path.exists());
}

#[test]
fn a_read_only_device_refuses_every_change() {
    let (_dir, path) = scratch();
    fs::write(&path, vec![1; 8192]).unwrap();
    let device = open(&path, Access::ReadOnly);
    assert_eq!(device.write_at(0, &[2]).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(device.write_vectored_at(0, &[&[2]]).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(device.discard(0, 1).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(device.zero(0, 1).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(device.resize(1).unwrap_err().kind(), ErrorKind::ReadOnly);
    device.flush().unwrap();
    drop(device);
    assert_eq!(fs::read(&path).unwrap(), vec![1; 8192]);
}

#[test]
fn resizing_moves_the_end() {
    let (_dir, path) = scratch();
    let file = FileDevice::create(&path, 4096).unwrap();
    let memory = MemoryDevice::new(4096);
    for device in [&file as &dyn BlockDevice, &memory] {
        device.write_at(4000, &[5; 96]).unwrap();
        device.resize(1 << 20).unwrap();
        device.write_at(1 << 19, b"now inside").unwrap();
        device.resize(4050).unwrap();
        assert!(device.write_at(4050, &[1]).is_err());
        device.resize(8192).unwrap();
        let mut bytes = [1; 192];
        device.read_at(4000, &mut bytes).unwrap();
        assert_eq!(bytes[..50], [5; 50]);
        assert_eq!(bytes[50..], [0; 142], "what lay beyond a shorter end is gone");
    }
    drop(file);
    assert_eq!(fs::metadata(&path).unwrap().len(), 8192);
}

#[test]
fn a_copy_in_memory_has_the_same_bytes_and_no_holes_in_memory() {
    let (_dir, path) = scratch();
    let file = FileDevice::create(&path, 300 << 20).unwrap();
    file.write_at((300 << 20) - 5, b"tail!").unwrap();
    let copy = MemoryDevice::copy_of(&file).unwrap();
    let mut bytes = [0; 5];
    copy.read_at((300 << 20) - 5, &mut bytes).unwrap();
    assert_eq!((&bytes, copy.bytes_in_memory()), (b"tail!", 16384));
}

#[test]
fn what_is_no_disk_is_refused_by_name() {
    let (dir, path) = scratch();
    let missing = FileDevice::open(&path, Access::ReadWrite).err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains("disk.img"), "{missing}");
    assert_eq!(FileDevice::open(dir.path(), Access::ReadOnly).err().unwrap().kind(), ErrorKind::InvalidInput);
    assert_eq!(
        FileDevice::open("/dev/null", Access::ReadOnly).err().unwrap().kind(),
        ErrorKind::InvalidInput
    );
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    assert_eq!(FileDevice::open(&path, Access::ReadOnly).err().unwrap().kind(), ErrorKind::InvalidInput);
}

#[test]
fn an_error_says_what_where_and_why() {
    let (_dir, path) = scratch();
    let device = FileDevice::create(&path, 4096).unwrap();
    let error = device.read_at(4000, &mut [0; 100]).unwrap_err().to_string();
    for part in ["disk.img", "100 bytes at 4000", "4096"] {
        assert!(error.contains(part), "{error}");
    }
    // Another process makes the file shorter.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    let error = device.read_at(0, &mut [0; 4096]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("reading 4096 bytes at 0 of"), "{error}");
}

/// The device never cuts the file, and reads its present length.
#[test]
fn lengthening_cuts_nothing_that_somebody_else_made_longer() {
    let (_dir, path) = scratch();
    fs::write(&path, [7; 8192]).unwrap();
    let device = open(&path, Access::ReadWrite);
    assert_eq!((device.lengthen(4096).unwrap(), device.lengthen(0).unwrap()), (8192, 8192));
    fs::File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
    assert_eq!(device.len(), 8192);
    assert_eq!((device.lengthen(65536).unwrap(), device.len()), (1 << 20, 1 << 20));
    assert_eq!((device.lengthen(2 << 20).unwrap(), fs::metadata(&path).unwrap().len()), (2 << 20, 2 << 20));
    std::thread::scope(|scope| {
        for more in 1..=8_u64 {
            let device = &device;
            scope.spawn(move || device.lengthen((2 << 20) + more * 4096).unwrap());
        }
    });
    assert_eq!(fs::metadata(&path).unwrap().len(), (2 << 20) + 8 * 4096);
}

#[test]
fn what_was_submitted_ends_before_the_device_is_closed() {
    const PIECE: usize = 64 << 10;
    let (_dir, path) = scratch();
    let device = FileDevice::create(&path, 32 << 20).unwrap();
    let (send, receive) = mpsc::channel();
    // More requests than the queue holds.
    for number in 0..256_u64 {
        let piece = AlignedBuffer::from_slice(&vec![u8::try_from(number).unwrap(); PIECE]);
        let request = Request::Write { offset: number * PIECE as u64, data: piece.into() };
        let send = send.clone();
        device.submit(request, Box::new(move |outcome| send.send(outcome).unwrap()));
    }
    device.close();
    assert_eq!(receive.try_iter().map(Result::unwrap).count(), 256, "DEV-6");
    let late = submitted(&device, Request::Flush).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Stale, "DEV-4");
    let bytes = std::fs::read(&path).unwrap();
    let pieces = bytes.chunks(PIECE).take(256).enumerate();
    assert!(pieces.into_iter().all(|(number, piece)| piece.iter().all(|byte| usize::from(*byte) == number)));
}

#[test]
fn requests_that_are_carried_out_are_answered_before_the_call_returns() {
    let (_dir, path) = scratch();
    let device = FileDevice::create(&path, 1 << 20).unwrap();
    let (send, receive) = mpsc::channel();
    let ask = |request: Request| {
        let send = send.clone();
        let done: creamery_device::Completion = Box::new(move |outcome| send.send(outcome).unwrap());
        (request, done)
    };
    let data = AlignedBuffer::from_slice(&[7; 65536]).into();
    let read = Request::Read { offset: 65536, buffer: AlignedBuffer::zeroed(4) };
    device.carry_out(vec![ask(Request::Write { offset: 65536, data }), ask(Request::Flush), ask(read)]);
    let answers: Vec<Reply> = receive.try_iter().map(Result::unwrap).collect();
    assert_eq!(answers, [Reply::Done, Reply::Done, Reply::Read(AlignedBuffer::from_slice(&[7; 4]))]);
}
