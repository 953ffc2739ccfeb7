use super::*;
use crate::protocol::samples::{Sample, samples};
use crate::protocol::{DirectoryEntry, InitFlags, Pushed};
use crate::types::{FileHandle, IoctlReply, IoctlRequest, NodeId, ReadRequest, WriteRequest};
use creamery_device::AlignedBuffer;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::{FromBytes, IntoBytes};

/// Answers whatever can be answered with as much as is allowed.
#[derive(Default)]
struct Eager {
    forgotten: AtomicU64,
    observed: AtomicU64,
    destroyed: AtomicU64,
}

type DispatchContext<'a> = &'a RequestContext<'a>;

impl Operations for Eager {
    fn observe(&self, _: &Request<'_>) {
        self.observed.fetch_add(1, Ordering::Relaxed);
    }
    fn destroy(&self) {
        self.destroyed.fetch_add(1, Ordering::Relaxed);
    }
    fn forget(&self, _: NodeId, lookups: u64) {
        self.forgotten.fetch_add(lookups, Ordering::Relaxed);
    }
    fn read(&self, _: DispatchContext<'_>, _: NodeId, _: &ReadRequest, out: &mut [u8]) -> Result<usize> {
        out.fill(7);
        Ok(out.len())
    }
    fn write(
        &self,
        _: DispatchContext<'_>,
        _: NodeId,
        _: &WriteRequest,
        data: &SharedBytes,
    ) -> Result<usize> {
        Ok(data.len())
    }
    fn readlink(&self, _: DispatchContext<'_>, node: NodeId, target: &mut ByteSink<'_>) -> Result<()> {
        target.put(&vec![b'x'; node.get() as usize]);
        Ok(())
    }
    fn getxattr(&self, _: DispatchContext<'_>, _: NodeId, _: &[u8], value: &mut ByteSink<'_>) -> Result<()> {
        value.put(&[1; 100]);
        Ok(())
    }
    fn listxattr(&self, _: DispatchContext<'_>, _: NodeId, names: &mut ByteSink<'_>) -> Result<()> {
        names.put_name(b"user.x");
        Ok(())
    }
    fn readdir(
        &self,
        _: DispatchContext<'_>,
        _: NodeId,
        _: FileHandle,
        _: u64,
        sink: &mut DirectorySink<'_>,
    ) -> Result<()> {
        let entry = DirectoryEntry { ino: 1, offset: 1, kind: 8, name: b"name" };
        while sink.push(&entry) == Pushed::Yes {}
        Ok(())
    }
    fn ioctl(
        &self,
        _: DispatchContext<'_>,
        _: NodeId,
        _: &IoctlRequest,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<IoctlReply> {
        let len = input.len().min(output.len());
        output[..len].copy_from_slice(&input[..len]);
        Ok(IoctlReply { result: 0, len })
    }
}

const PAYLOAD: usize = 1 << 16;

fn server() -> (Arc<Eager>, Server) {
    let eager = Arc::new(Eager::default());
    let agreement = Agreement { minor: 45, flags: InitFlags::SETXATTR_EXT, max_write: PAYLOAD as u32 };
    (eager.clone(), Server::new(eager, agreement, 1, Arc::default()))
}

fn ask(server: &Server, sample: &Sample, payload: &mut [u8]) -> Answer {
    handle(server, &sample.header, (&sample.body, &[]), payload)
}

fn handle(
    server: &Server,
    header: &wire::InHeader,
    (body, rest): (&[u8], &[u8]),
    payload: &mut [u8],
) -> Answer {
    let data = &SharedBytes::from(AlignedBuffer::zeroed(body.len() + rest.len()));
    server.handle(0, &Message { header, body, rest, data }, payload)
}

fn xattr(size: u32) -> Sample {
    let raw = wire::GetxattrIn { size, padding: 0 };
    Sample::new(Opcode::Getxattr, &[raw.as_bytes(), b"user.x\0"])
}

#[test]
fn every_request_that_awaits_an_answer_gets_one_and_no_other_does() {
    let (eager, server) = server();
    let mut payload = vec![0; PAYLOAD];
    for sample in samples() {
        let opcode = Opcode::from_number(sample.header.opcode).unwrap();
        let answered = !matches!(ask(&server, &sample, &mut payload), Answer::None);
        assert_eq!(answered, opcode.has_reply(), "{opcode:?}");
    }
    assert_eq!(eager.forgotten.load(Ordering::Relaxed), 8);
    assert!(eager.observed.load(Ordering::Relaxed) > 40);
    server.destroy();
    assert_eq!(eager.destroyed.load(Ordering::Relaxed), 1, "DESTROY was among them");
}

#[test]
fn unknown_and_malformed_requests_get_their_errors() {
    let (_, server) = server();
    let mut unknown = Sample::new(Opcode::Lookup, &[b"x\0"]);
    unknown.header.opcode = 9999;
    assert!(matches!(ask(&server, &unknown, &mut []), Answer::Error(Errno::ENOSYS)));
    let torn = Sample::new(Opcode::Lookup, &[b"x"]);
    assert!(matches!(ask(&server, &torn, &mut []), Answer::Error(Errno::EIO)));
    let torn = Sample::new(Opcode::Forget, &[b"x"]);
    assert!(matches!(ask(&server, &torn, &mut []), Answer::None));
    let again = &samples()[samples().iter().position(|s| s.header.opcode == 26).unwrap()];
    assert!(matches!(ask(&server, again, &mut []), Answer::Error(Errno::EIO)));
}

#[test]
fn values_tell_their_size_or_fit_or_do_not() {
    let (_, server) = server();
    let mut payload = vec![0; PAYLOAD];
    let Answer::Reply(fixed, 0) = ask(&server, &xattr(0), &mut payload) else { panic!("size only") };
    assert_eq!(wire::GetxattrOut::read_from_bytes(fixed.as_bytes()).unwrap().size, 100);
    assert!(matches!(ask(&server, &xattr(99), &mut payload), Answer::Error(Errno::ERANGE)));
    let Answer::Reply(fixed, 100) = ask(&server, &xattr(100), &mut payload) else { panic!("value") };
    assert!(fixed.as_bytes().is_empty());
    assert_eq!(payload[..101], [&[1; 100][..], &[0]].concat());
}

#[test]
fn sizes_past_the_reply_buffer_are_cut() {
    let (_, server) = server();
    let mut payload = vec![0; PAYLOAD];
    let read = wire::ReadIn { size: u32::MAX, ..Default::default() };
    let sample = Sample::new(Opcode::Read, &[read.as_bytes()]);
    assert!(matches!(ask(&server, &sample, &mut payload), Answer::Reply(_, PAYLOAD)));
    let sample = Sample::new(Opcode::Readdirplus, &[read.as_bytes()]);
    // 128 of attributes, 24 of entry, 8 of name.
    let whole = PAYLOAD / 160 * 160;
    assert!(matches!(ask(&server, &sample, &mut payload), Answer::Reply(_, len) if len == whole));
}

#[test]
fn a_target_too_long_for_a_page_is_an_error() {
    let (_, server) = server();
    let mut payload = vec![0; PAYLOAD];
    let mut sample = Sample::new(Opcode::Readlink, &[]);
    for (len, fits) in [(4095, true), (4096, false)] {
        sample.header.nodeid = len;
        match ask(&server, &sample, &mut payload) {
            Answer::Reply(_, found) => assert!(fits && found as u64 == len),
            Answer::Error(errno) => assert!(!fits && errno == Errno::ENAMETOOLONG),
            Answer::None => panic!("an answer is awaited"),
        }
    }
}

#[test]
fn the_narrow_copy_never_answers_more_than_32_bits() {
    struct Copies;
    impl Operations for Copies {
        fn copy_file_range(
            &self,
            _: DispatchContext<'_>,
            _: &crate::CopySide,
            _: &crate::CopySide,
            len: u64,
            _: u64,
        ) -> Result<u64> {
            Ok(len)
        }
    }
    let agreement = Agreement { minor: 45, flags: InitFlags::empty(), max_write: 4096 };
    let server = Server::new(Arc::new(Copies), agreement, 1, Arc::default());
    let answer = |opcode: Opcode| {
        let all = samples();
        let sample = all.iter().find(|sample| sample.header.opcode == opcode as u32).unwrap();
        match ask(&server, sample, &mut []) {
            Answer::Reply(fixed, 0) => u64::read_from_bytes(fixed.as_bytes()).unwrap(),
            _ => panic!("a reply is awaited"),
        }
    };
    assert_eq!(answer(Opcode::CopyFileRange64), 6 << 30);
    assert_eq!(answer(Opcode::CopyFileRange), 0xffff_f000);
}

/// Steele, Lea and Flood's splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below as u64) as usize
    }
}

/// Bits flipped, bytes replaced by telling values, cut, and pieces of other requests put in.
fn mutate(random: &mut Random, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
    for _ in 0..=random.next(6) {
        let at = random.next(bytes.len().max(1));
        match random.next(5) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.next(8),
            1 => {
                for byte in bytes.iter_mut().skip(at).take(1 << random.next(4)) {
                    *byte = [0, 0xff, 0x7f, 0x80, b'/'][random.next(5)];
                }
            }
            2 => bytes.truncate(at),
            3 => {
                let other = &others[random.next(others.len())];
                bytes.extend_from_slice(&other[random.next(other.len())..]);
            }
            _ => bytes.truncate(bytes.len() & !7),
        }
    }
}

#[test]
fn no_mutation_of_a_request_panics_or_goes_unanswered() {
    let (_, server) = server();
    let whole: Vec<Vec<u8>> = samples().iter().map(Sample::bytes).collect();
    let mut payload = vec![0; PAYLOAD];
    let mut random = Random(45);
    let mut refused = 0;
    for round in 0..60_000 {
        let mut bytes = whole[round % whole.len()].clone();
        mutate(&mut random, &mut bytes, &whole);
        let Ok((header, body)) = wire::InHeader::read_from_prefix(&bytes) else { continue };
        // Readlink of the eager server makes targets as long as the node's number.
        let header = wire::InHeader { nodeid: header.nodeid % 5000, ..header };
        let (body, rest) =
            body.split_at(if round % 2 == 0 { body.len() } else { random.next(body.len() + 1) });
        match handle(&server, &header, (body, rest), &mut payload) {
            Answer::None => {
                let opcode = Opcode::from_number(header.opcode);
                assert!(opcode.is_some_and(|opcode| !opcode.has_reply()), "{header:?}");
            }
            Answer::Reply(fixed, len) => assert!(fixed.as_bytes().len() <= 288 && len <= PAYLOAD),
            Answer::Error(_) => refused += 1,
        }
    }
    assert!(refused > 1000, "only {refused} were refused: the mutations miss");
}
