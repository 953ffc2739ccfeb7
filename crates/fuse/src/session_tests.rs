// Sessions over a socket that keeps messages apart, in the place of `/dev/fuse`.

use super::*;
use crate::protocol::samples::{Sample, samples};
use crate::types::{Attr, AttrReply, FileHandle, NodeId, RequestContext};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::time::Duration;
use zerocopy::IntoBytes;

struct Root;

impl Operations for Root {
    fn init(&self, negotiation: &mut Negotiation) -> crate::Result<()> {
        negotiation.decline(InitFlags::ASYNC_READ);
        Ok(())
    }
    fn getattr(&self, _: &RequestContext<'_>, _: NodeId, _: Option<FileHandle>) -> crate::Result<AttrReply> {
        Ok(AttrReply { attr: Attr { ino: 42, ..Attr::default() }, valid: Duration::ZERO })
    }
}

struct Kernel {
    socket: OwnedFd,
}

impl Kernel {
    fn new() -> (Self, OwnedFd) {
        let kind = SocketType::SEQPACKET;
        let (socket, fd) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        (Self { socket }, fd)
    }

    fn send(&self, bytes: &[u8]) {
        assert_eq!(rustix::io::write(&self.socket, bytes), Ok(bytes.len()));
    }

    fn receive(&self) -> (wire::OutHeader, Vec<u8>) {
        let mut bytes = vec![0; 4096];
        let len = rustix::io::read(&self.socket, &mut bytes).unwrap();
        let (header, body) = wire::OutHeader::read_from_prefix(&bytes[..len]).unwrap();
        assert_eq!(header.len as usize, len);
        (header, body.to_vec())
    }
}

fn sample(opcode: Opcode) -> Sample {
    samples().into_iter().find(|sample| sample.header.opcode == opcode as u32).unwrap()
}

fn init(major: u32, minor: u32) -> Vec<u8> {
    let init = wire::InitIn { major, minor, max_readahead: 0, flags: 1 };
    Sample::new(Opcode::Init, &[init.as_bytes()]).bytes()
}

#[test]
fn a_session_answers_init_then_requests_then_ends_with_its_channel() {
    let (kernel, fd) = Kernel::new();
    kernel.send(&sample(Opcode::Init).bytes());
    let session = Session::attach(Arc::new(Root), fd).unwrap();
    let (header, body) = kernel.receive();
    assert_eq!((header.error, header.unique), (0, 1026));
    let out = wire::InitOut::read_from_bytes(&body).unwrap();
    assert_eq!((out.major, out.minor, out.max_write, out.time_gran), (7, 45, 1 << 20, 1));
    assert_eq!(u64::from(out.flags) & InitFlags::ASYNC_READ.bits(), 0, "declined");
    assert_ne!(out.flags2, 0);
    assert_eq!(session.agreement().minor, 45);

    kernel.send(&sample(Opcode::Getattr).bytes());
    kernel.send(&sample(Opcode::Forget).bytes());
    let mut longer = sample(Opcode::Statfs);
    longer.header.len += 1;
    kernel.send(&longer.bytes());
    let (header, body) = {
        let server = std::thread::spawn(move || session.run(1));
        let first = kernel.receive();
        let (second, _) = kernel.receive();
        assert_eq!((second.error, second.unique), (-5, 1017), "a length that is not the message's");
        drop(kernel);
        server.join().unwrap().unwrap();
        first
    };
    assert_eq!((header.error, header.unique), (0, 1003));
    assert_eq!(wire::AttrOut::read_from_bytes(&body).unwrap().attr.ino, 42);
}

#[test]
fn a_later_major_version_is_told_ours_and_asks_again() {
    let (kernel, fd) = Kernel::new();
    kernel.send(&init(8, 1));
    kernel.send(&init(7, 45));
    Session::attach(Arc::new(Root), fd).unwrap();
    let (header, body) = kernel.receive();
    assert_eq!((header.error, wire::InitOut::read_from_bytes(&body).unwrap().major), (0, 7));
    let (header, body) = kernel.receive();
    assert_eq!((header.error, wire::InitOut::read_from_bytes(&body).unwrap().minor), (0, 45));
}

#[test]
fn a_kernel_we_cannot_talk_to_gets_an_error_and_so_does_the_caller() {
    let torn = Sample::new(Opcode::Init, &[&[7, 0, 0]]).bytes();
    let other = sample(Opcode::Getattr).bytes();
    for (first, words) in [
        (init(7, 30), "7.30"),
        (init(6, 1), "unknown major version"),
        (torn, "unknown major version"),
        (other, "another request"),
    ] {
        let (kernel, fd) = Kernel::new();
        kernel.send(&first);
        let error = Session::attach(Arc::new(Root), fd).err().unwrap();
        assert!(error.to_string().contains(words), "{error}");
        assert!(kernel.receive().0.error < 0);
    }
    let (kernel, fd) = Kernel::new();
    drop(kernel);
    assert!(Session::attach(Arc::new(Root), fd).is_err());
}

#[test]
fn less_than_a_header_ends_the_session_with_an_error() {
    let (kernel, fd) = Kernel::new();
    kernel.send(&init(7, 45));
    let session = Session::attach(Arc::new(Root), fd).unwrap();
    kernel.receive();
    kernel.send(b"short");
    assert!(session.run(1).is_err());
}

/// Panics at every statfs and forget, and remembers the messages of [`Operations::panicked`].
#[derive(Default)]
struct Fragile {
    told: std::sync::Mutex<Vec<String>>,
}

impl Operations for Fragile {
    fn panicked(&self, panic: &creamery_base::panics::Panic) {
        self.told.lock().unwrap().push(panic.to_string());
    }
    fn getattr(&self, _: &RequestContext<'_>, _: NodeId, _: Option<FileHandle>) -> crate::Result<AttrReply> {
        Ok(AttrReply { attr: Attr { ino: 42, ..Attr::default() }, valid: Duration::ZERO })
    }
    fn statfs(&self, _: &RequestContext<'_>, _: NodeId) -> crate::Result<crate::Statfs> {
        panic!("no figures today")
    }
    fn forget(&self, _: NodeId, _: u64) {
        panic!("cannot forget")
    }
}

#[test]
fn an_operation_that_panics_fails_and_the_session_goes_on() {
    for workers in [1, 3] {
        let (kernel, fd) = Kernel::new();
        kernel.send(&sample(Opcode::Init).bytes());
        let fragile = Arc::new(Fragile::default());
        let session = Session::attach(fragile.clone(), fd).unwrap();
        kernel.receive();
        let server = std::thread::spawn(move || session.run(workers));
        for _ in 0..5 {
            kernel.send(&sample(Opcode::Statfs).bytes());
            assert_eq!(kernel.receive().0.error, -5, "EIO");
            kernel.send(&sample(Opcode::Forget).bytes()); // which nobody answers
            kernel.send(&sample(Opcode::Getattr).bytes());
            assert_eq!(kernel.receive().0.error, 0, "others are answered");
        }
        drop(kernel);
        server.join().unwrap().unwrap();
        let told = fragile.told.lock().unwrap();
        assert_eq!(told.len(), 10);
        let told = |words: &str| told.iter().filter(|told| told.contains(words)).count();
        assert_eq!((told("no figures today"), told("cannot forget"), told("session_tests.rs:")), (5, 5, 10));
    }
}
