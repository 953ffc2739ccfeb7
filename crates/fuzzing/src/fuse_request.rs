//! Requests of `/dev/fuse` that no kernel sends, to the adapter over a filesystem in memory.

use std::sync::Arc;

use creamery_fuse::protocol::{InitFlags, Opcode, wire};
use creamery_fuse::{Agreement, Operations, Responder};
use creamery_mount::{Adapter, Owner};
use creamery_sim::open;
use zerocopy::{FromBytes, IntoBytes};

use crate::base::base;
use crate::input::Input;
use crate::readers::assert_clean;

const REQUESTS_MAX: usize = 64;
const PAYLOAD: u32 = 128 << 10;

/// A filesystem without any operation: every request gets its default answer.
struct Nothing;

impl Operations for Nothing {}

/// Sends the requests in the input to the mount's adapter, or to a filesystem without operations, and checks each answer.
///
/// ```
/// creamery_fuzzing::fuse_request(b"\x00\x01\x01\x04\x00name");
/// ```
pub fn fuse_request(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.byte();
    let flags = InitFlags::from_bits_retain(input.long());
    let agreement = Agreement { minor: 45, flags, max_write: PAYLOAD };
    if how & 1 != 0 {
        let mut responder = Responder::new(Arc::new(Nothing), agreement);
        return send_all(&mut responder, &mut input, how);
    }
    let device = base(usize::from(how >> 1 & 1)).device();
    let fs = open(&device).expect("a whole filesystem opens");
    let root = fs.root(fs.default_subvolume()).expect("it has a root");
    let mut responder =
        Responder::new(Arc::new(Adapter::new(Arc::clone(&fs), root, Owner::default())), agreement);
    send_all(&mut responder, &mut input, how);
    drop(responder);
    if how & 8 != 0 && fs.sync().is_ok() {
        fs.engine().volume().close().expect("a device that never fails");
        drop(fs);
        assert_clean(&device);
    }
}

fn send_all(responder: &mut Responder, input: &mut Input<'_>, how: u8) {
    let mut unique = 1;
    for _ in 0..REQUESTS_MAX {
        if input.is_empty() {
            break;
        }
        let bytes = match how & 4 {
            0 => request(input, unique),
            _ => input.take(40 + 512).to_vec(),
        };
        unique += 2;
        let answer = responder.answer(&bytes);
        judge(&bytes, answer.as_deref());
    }
}

/// A request with a valid header; the input gives its content.
fn request(input: &mut Input<'_>, unique: u64) -> Vec<u8> {
    let opcode = match input.byte() {
        255 => input.word(),
        number => Opcode::ALL[usize::from(number) % Opcode::ALL.len()] as u32,
    };
    let nodeid = match input.byte() {
        0 => 1,
        255 => input.long(),
        number => 255 + u64::from(number),
    };
    let len = input.half() % 1024;
    let body = input.take(usize::from(len));
    let len = (size_of::<wire::InHeader>() + body.len()) as u32;
    let header = wire::InHeader { len, opcode, unique, nodeid, pid: 1, ..wire::InHeader::default() };
    [header.as_bytes(), body].concat()
}

/// Checks that each request that expects an answer gets exactly one, with its number and a right length.
fn judge(request: &[u8], answer: Option<&[u8]>) {
    let Ok((header, _)) = wire::InHeader::read_from_prefix(request) else {
        return assert!(answer.is_none(), "an answer to no request");
    };
    let opcode = Opcode::from_number(header.opcode);
    let awaited = opcode.is_none_or(|opcode| opcode.has_reply());
    assert_eq!(answer.is_some(), awaited, "an answer to {opcode:?}");
    let Some(answer) = answer else { return };
    let (out, body) = wire::OutHeader::read_from_prefix(answer).expect("an answer has a header");
    assert_eq!((out.len as usize, out.unique), (answer.len(), header.unique), "the header of the answer");
    assert!(out.error <= 0 && out.error > -1000, "error {}", out.error);
    assert!(out.error == 0 || body.is_empty(), "an error with something behind it");
}
