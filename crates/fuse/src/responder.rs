//! Answers requests in memory, from bytes to bytes, without a mount and without a kernel.

use std::sync::Arc;

use creamery_device::{AlignedBuffer, SharedBytes};
use zerocopy::FromBytes;

use crate::dispatch::{Answer, Handler, Message, Server, refuse};
use crate::errno::Errno;
use crate::negotiate::Agreement;
use crate::operations::Operations;
use crate::protocol::{Fixed, wire};

/// Does the work of a session's worker, one request after the other, for callers that have the request in memory:
/// tests, and fuzzing.
///
/// ```
/// use creamery_fuse::{Agreement, Operations, Responder, protocol::InitFlags};
/// struct Nothing;
/// impl Operations for Nothing {}
/// let agreement = Agreement { minor: 45, flags: InitFlags::empty(), max_write: 4096 };
/// let mut responder = Responder::new(std::sync::Arc::new(Nothing), agreement);
/// assert_eq!(responder.answer(b"too short for a header"), None);
/// ```
pub struct Responder {
    server: Server,
    payload: Vec<u8>,
}

impl Responder {
    /// Answers with `operations`, by the agreement.
    #[must_use]
    pub fn new(operations: Arc<dyn Operations>, agreement: Agreement) -> Self {
        let payload = vec![0; usize::try_from(agreement.max_write).expect("32 bits fit")];
        Self { server: Server::new(operations, agreement, 1, Arc::default()), payload }
    }

    /// Returns the message to the kernel, or `None` if the kernel waits for none. Bytes that are not a request get no
    /// answer either: a session ends there.
    pub fn answer(&mut self, request: &[u8]) -> Option<Vec<u8>> {
        let (header, body) = wire::InHeader::read_from_prefix(request).ok()?;
        let answer = match usize::try_from(header.len) {
            Ok(len) if len == request.len() => {
                let data = body.get(size_of::<wire::WriteIn>()..).unwrap_or_default();
                let data = &SharedBytes::from(AlignedBuffer::from_slice(data));
                let message = Message { header: &header, body, rest: &[], data };
                self.server.handle(0, &message, &mut self.payload)
            }
            _ => refuse(header.opcode, Errno::EIO),
        };
        let (error, mut fixed, payload) = match answer {
            Answer::None => return None,
            Answer::Error(errno) => (-errno.get(), Fixed::EMPTY, &[][..]),
            Answer::Reply(fixed, len) => (0, fixed, &self.payload[..len]),
        };
        Some([fixed.headed(header.unique, error, payload.len()), payload].concat())
    }
}
