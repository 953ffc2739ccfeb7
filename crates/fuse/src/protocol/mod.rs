//! The protocol of `/dev/fuse`, ABI 7.45: numbers, structures, decoding of requests, encoding of
//! answers. No I/O.
//!
//! # Invariants
//! - WIRE-1: every structure is declared once, in [`wire`], with its size asserted.
//! - WIRE-2: [`decode`] reads nothing outside the bytes it is given, allocates nothing and never panics,
//!   whatever they hold. A request that does not parse is [`Malformed`], and answered with an error.
//!   Shown by `no_mutation_of_a_request_panics_or_goes_unanswered`, `unknown_and_malformed_requests_get_their_errors`.
//! - WIRE-3: a [`Request`] borrows names and data from the request buffer; it is valid until the next read.
//!   Held by `Request`, which has the lifetime of the buffer.
//! - WIRE-4: requests the kernel awaits no answer for ([`Opcode::has_reply`]) never get one, not even an
//!   error.
//!   Shown by `every_request_that_awaits_an_answer_gets_one_and_no_other_does`, `no_mutation_of_a_request_panics_or_goes_unanswered`.

mod decode;
mod directory;
mod flags;
mod opcode;
mod reader;
mod reply;
mod request;
#[cfg(test)]
pub(crate) mod samples;
mod sink;
pub mod wire;

pub use decode::decode;
pub use directory::{DirectoryEntry, DirectoryPlusSink, DirectorySink, Pushed};
pub(crate) use flags::{EXPIRE_ONLY, UNIQUE_RESEND};
pub use flags::{
    InitFlags, IoctlFlags, MAJOR, MINOR, MINOR_MIN, OpenReplyFlags, ReleaseFlags, RenameFlags, StatxMask,
    WriteFlags,
};
pub use opcode::{NotifyCode, Opcode};
pub use reader::Malformed;
pub(crate) use reply::{Fixed, attr_out, entry_out, open_out, statfs_out, statx_out};
pub use request::{Forgets, Operation, Request};
pub use sink::ByteSink;
