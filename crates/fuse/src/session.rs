//! A session: one mount from `INIT` to the last request.
//!
//! [`Session::mount`] mounts and answers `INIT` on the calling thread, so when it returns the filesystem is
//! there: a program that forks first can mount in the child, tell its parent over a pipe, and then
//! [`run`](Session::run). No thread exists before `run`, so the child needs to inherit none.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Result};
use zerocopy::FromBytes;

use crate::counts::RequestCounts;
use crate::dispatch::{Answer, Server};
use crate::errno::Errno;
use crate::mount::{Mount, MountOptions, Unmount};
use crate::negotiate::{Agreement, MAX_WRITE, Negotiation};
use crate::notify::Notifier;
use crate::operations::Operations;
use crate::protocol::{Fixed, InitFlags, MAJOR, Opcode, Operation, decode, wire};
use crate::transport::classic::{Buffers, Classic, Parts, Received, receive, send};
use crate::transport::{Device, Transport};

/// A mounted filesystem.
///
/// ```no_run
/// use std::{path::Path, sync::Arc};
/// use creamery_fuse::{MountOptions, Operations, Session};
///
/// fn serve(filesystem: Arc<dyn Operations>) -> creamery_base::Result<()> {
///     let options = MountOptions::new("disk.img", "creamery");
///     let session = Session::mount(filesystem, Path::new("/mnt"), &options)?;
///     println!("mounted, speaking 7.{}", session.agreement().minor);
///     session.run(4) // until somebody unmounts it
/// }
/// ```
pub struct Session {
    operations: Arc<dyn Operations>,
    agreement: Agreement,
    device: Arc<Device>,
    mount: Arc<Mount>,
    requests: Arc<RequestCounts>,
}

impl Session {
    /// Mounts on `point` and answers `INIT`. When it returns, the mount is there and requests wait for
    /// [`run`](Self::run).
    ///
    /// # Errors
    /// `point` cannot be opened, the kernel or `fusermount3` rejects the mount, or the errors of [`attach`](Self::attach).
    pub fn mount(operations: Arc<dyn Operations>, point: &Path, options: &MountOptions) -> Result<Self> {
        let (mount, device) = Mount::new(point, options)?;
        Self::begin(operations, mount, device)
    }

    /// Serves a descriptor of `/dev/fuse` that another process mounts. Waits for `INIT` and answers it.
    ///
    /// # Errors
    /// `Unsupported`: the kernel's first request is not a valid `INIT`, its protocol is too old, or [`Operations::init`] fails.
    /// `Io`: the mount ends before `INIT`, no version is agreed on, or the descriptor cannot be read. Others: writing the answer fails.
    pub fn attach(operations: Arc<dyn Operations>, fd: OwnedFd) -> Result<Self> {
        Self::begin(operations, Mount::foreign(), Device::from(fd))
    }

    fn begin(operations: Arc<dyn Operations>, mount: Mount, device: Device) -> Result<Self> {
        match handshake(operations.as_ref(), &device) {
            Ok(agreement) => {
                let (device, mount) = (Arc::new(device), Arc::new(mount));
                Ok(Self { operations, agreement, device, mount, requests: Arc::default() })
            }
            Err(error) => {
                // The first error says more than an error of the cleanup.
                let _ = mount.unmount(Unmount::Lazy);
                Err(error)
            }
        }
    }

    /// Returns the agreement with the kernel.
    #[must_use]
    pub const fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// Returns the resolved mount point; empty for [`attach`](Self::attach).
    #[must_use]
    pub fn mount_point(&self) -> &Path {
        self.mount.point()
    }

    /// Returns a handle that can end the session from another thread.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        Unmounter { mount: Arc::clone(&self.mount) }
    }

    /// Returns the counts of requests so far, without `INIT`; they go on while the session runs.
    #[must_use]
    pub fn requests(&self) -> Arc<RequestCounts> {
        Arc::clone(&self.requests)
    }

    /// Returns a handle that notifies the kernel of changes.
    #[must_use]
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.device))
    }

    /// Serves requests with `workers` threads, including the calling one, until the filesystem is unmounted;
    /// then calls [`Operations::destroy`] and returns. One worker is the fastest for one client, because no other
    /// thread is ever woken. Several are needed if operations can block, or to receive interrupts.
    ///
    /// # Errors
    /// `Io`: cloning `/dev/fuse` for a worker fails, or a worker cannot read a request or send an answer. A mount by
    /// [`mount`](Self::mount) is then detached.
    ///
    /// # Panics
    /// `workers` is 0. No other panic reaches the caller. A panic of an operation is answered with `EIO` ([`Operations::panicked`]). A
    /// panic of the transport prints its message, detaches the mount and aborts the process.
    pub fn run(self, workers: usize) -> Result<()> {
        let requests = Arc::clone(&self.requests);
        let server = Server::new(Arc::clone(&self.operations), self.agreement, workers, requests);
        let detach = || {
            // If this fails, too, nothing more can be done: the process is about to end.
            let _ = self.mount.unmount(Unmount::Lazy);
        };
        let transport = Classic {
            device: &self.device,
            workers,
            max_write: self.agreement.max_write as usize,
            detach: &detach,
        };
        let result = transport.serve(&server);
        self.mount.clean_up();
        server.destroy();
        result
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The session did not run, or a failure ended it: no thread answers any more.
        let _ = self.mount.unmount(Unmount::Lazy);
    }
}

/// Ends a session from another thread (or a signal's).
///
/// ```no_run
/// # fn example(session: creamery_fuse::Session) -> creamery_base::Result<()> {
/// use creamery_fuse::Unmount;
/// let unmounter = session.unmounter();
/// let server = std::thread::spawn(move || session.run(2));
/// unmounter.unmount(Unmount::WhenIdle)?;
/// server.join().expect("run does not panic")
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Unmounter {
    mount: Arc<Mount>,
}

impl Unmounter {
    /// Unmounts; [`run`](Session::run) returns soon after. Succeeds if it is unmounted already. An operation must not
    /// call it: unmounting can wait for requests.
    ///
    /// # Errors
    /// The error of umount2(2) or `fusermount3`, such as `Busy`; `NotFound`: the mount was not found in the mount table.
    /// `Unsupported`: the session serves a descriptor of [`Session::attach`], or `fusermount3` is not installed.
    pub fn unmount(&self, how: Unmount) -> Result<()> {
        self.mount.unmount(how)
    }

    /// Whether the session's mount is known to be gone.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.mount.is_gone()
    }
}

/// Answers `INIT`. A kernel with a later major version gets ours, and asks again.
fn handshake(operations: &dyn Operations, device: &Device) -> Result<Agreement> {
    const ROUNDS: usize = 3;
    let mut buffers = Buffers::new(MAX_WRITE as usize);
    for _ in 0..ROUNDS {
        let Received::Request(len) = receive(device, &mut buffers)? else {
            return Err(Error::new(ErrorKind::Io, "unmounted before INIT"));
        };
        let Parts { header, body, .. } = buffers.split(len)?;
        let refuse = |errno: Errno, what: &str| {
            // The kernel fails the mount's users with its own error.
            let _ = send(device, header.unique, &Answer::Error(errno), &[]);
            Err(Error::new(ErrorKind::Unsupported, what.to_owned()))
        };
        let answer = |out: &wire::InitOut| {
            send(device, header.unique, &Answer::Reply(Fixed::of(out), 0), &[])
                .map_err(|errno| Error::from(std::io::Error::from(errno)).context("answering INIT"))
        };
        if Opcode::from_number(header.opcode) != Some(Opcode::Init) {
            return refuse(Errno::EIO, "expected INIT, found another request");
        }
        // Only the first two words of the structure are the same in every major version.
        match wire::MajorMinor::read_from_prefix(body) {
            Ok((version, _)) if version.major > MAJOR => {
                answer(&wire::InitOut { major: MAJOR, ..wire::InitOut::default() })?;
                continue;
            }
            Ok((version, _)) if version.major == MAJOR => {}
            _ => return refuse(Errno::EPROTO, "unknown major version of FUSE"),
        }
        let Ok(Operation::Init { init, flags2 }) =
            decode(&header, body, &[], InitFlags::empty()).map(|request| request.operation)
        else {
            return refuse(Errno::EPROTO, "malformed INIT");
        };
        let mut negotiation = match Negotiation::from_wire(&init, flags2) {
            Ok(negotiation) => negotiation,
            Err(error) => return refuse(Errno::EPROTO, &error.to_string()),
        };
        if let Err(errno) = operations.init(&mut negotiation) {
            return refuse(errno, &format!("starting the filesystem: {errno}"));
        }
        let page = u32::try_from(rustix::param::page_size()).expect("a page is smaller than 4 GiB");
        let (out, agreement) = negotiation.settle(page);
        answer(&out)?;
        return Ok(agreement);
    }
    Err(Error::new(ErrorKind::Io, "agreeing on a protocol version"))
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
