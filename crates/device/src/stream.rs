//! A device over any stream with read, write and seek: an archive's member, a file behind a cache, a remote disk.
//!
//! A stream has one position, so one request runs at a time. It is the easy way to use a library user's own storage, not a fast
//! one: a device that can run several requests at once implements [`BlockDevice`] itself.

use std::io::{self, Read, Seek, SeekFrom, Write};

use creamery_base::gate::{self, Reason};
use creamery_base::lock::{ProcessMutex, rank};
use creamery_base::{Error, ErrorKind, Result};

use crate::device::check_range;
use crate::{BlockDevice, Completion, DeviceId, Reply, Request};

/// A device over a stream with seek.
///
/// Its length is the stream's length at its creation, and does not change. A flush makes data durable only as far as the stream's own
/// [`Write::flush`] does: for a [`std::fs::File`] that is not at all, so image files use
/// [`FileDevice`](crate::FileDevice).
///
/// ```
/// use std::io::Cursor;
/// use creamery_device::{BlockDevice, StreamDevice};
/// let device = StreamDevice::new(Cursor::new(vec![0; 1 << 20]), "a vector")?;
/// device.write_at(4096, b"cream")?;
/// assert!(device.write_at((1 << 20) - 4, b"cream").is_err());
/// assert_eq!(&device.into_inner().into_inner()[4096..4101], b"cream");
/// # Ok::<(), creamery_base::Error>(())
/// ```
pub struct StreamDevice<S> {
    id: DeviceId,
    name: String,
    len: u64,
    state: ProcessMutex<StreamState<S>, { rank::DEVICE }>,
    /// `None` for a read-only stream.
    writer: Option<Writer<S>>,
}

/// The write operations of a stream.
struct Writer<S> {
    /// Writes the parts at the stream's position.
    write: fn(&mut S, &mut dyn Iterator<Item = &[u8]>) -> io::Result<()>,
    flush: fn(&mut S) -> io::Result<()>,
}

struct StreamState<S> {
    stream: S,
    /// DEV-2.
    flush_failed: bool,
    /// DEV-4.
    closed: bool,
}

impl<S: Read + Write + Seek + Send> StreamDevice<S> {
    /// Creates a device for reading and writing. `name` is for messages.
    ///
    /// # Errors
    /// The stream cannot report its length.
    pub fn new(stream: S, name: impl Into<String>) -> Result<Self> {
        let writer = Writer {
            write: |stream: &mut S, parts| {
                for part in parts {
                    stream.write_all(part)?;
                }
                Ok(())
            },
            flush: S::flush,
        };
        Self::over(stream, name.into(), Some(writer))
    }
}

impl<S: Read + Seek + Send> StreamDevice<S> {
    /// Creates a read-only device. `name` is for messages.
    ///
    /// ```
    /// use std::io::Cursor;
    /// use creamery_device::{BlockDevice, StreamDevice};
    /// let device = StreamDevice::read_only(Cursor::new(b"whole milk"), "ten bytes")?;
    /// assert_eq!(device.len(), 10);
    /// assert!(device.write_at(0, b"skimmed").is_err());
    /// # Ok::<(), creamery_base::Error>(())
    /// ```
    ///
    /// # Errors
    /// The stream cannot report its length.
    pub fn read_only(stream: S, name: impl Into<String>) -> Result<Self> {
        Self::over(stream, name.into(), None)
    }
}

impl<S: Seek + Send> StreamDevice<S> {
    fn over(mut stream: S, name: String, writer: Option<Writer<S>>) -> Result<Self> {
        let len = stream.seek(SeekFrom::End(0)).map_err(|error| Error::from(error).context(&name))?;
        let state = StreamState { stream, flush_failed: false, closed: false };
        Ok(Self { id: DeviceId::unique(), name, len, state: ProcessMutex::new(state), writer })
    }
}

impl<S> StreamDevice<S> {
    /// Returns the stream. If a filesystem shares the device, close the filesystem first.
    pub fn into_inner(self) -> S {
        self.state.into_inner().stream
    }
}

impl<S: Read + Seek + Send> StreamDevice<S> {
    /// Runs `work` on the stream, positioned at `offset` (DEV-1, DEV-4).
    fn at<T>(
        &self,
        offset: u64,
        len: u64,
        work: impl FnOnce(&mut StreamState<S>) -> io::Result<T>,
    ) -> Result<T> {
        check_range(offset, len, self.len).map_err(|error| error.context(&self.name))?;
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::new(ErrorKind::Stale, format!("{} was closed", self.name)));
        }
        let outcome = state.stream.seek(SeekFrom::Start(offset)).and_then(|_| work(&mut state));
        outcome
            .map_err(|error| Error::from(error).context(format!("{len} bytes at {offset} of {}", self.name)))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.at(offset, out.len() as u64, |state| state.stream.read_exact(out))
    }

    fn write<'a>(&self, offset: u64, len: u64, mut parts: impl Iterator<Item = &'a [u8]>) -> Result<()> {
        let Some(writer) = &self.writer else {
            return Err(Error::new(ErrorKind::ReadOnly, format!("{} is open read-only", self.name)));
        };
        self.at(offset, len, |state| (writer.write)(&mut state.stream, &mut parts))
    }

    fn flush_stream(&self) -> Result<()> {
        // A read-only device has nothing to make durable.
        let Some(writer) = &self.writer else { return Ok(()) };
        self.at(0, 0, |state| {
            if state.flush_failed {
                return Err(io::Error::other(
                    "an earlier flush failed: what was written since cannot be promised",
                ));
            }
            let outcome = (writer.flush)(&mut state.stream);
            state.flush_failed = outcome.is_err();
            outcome
        })
    }

    fn run(&self, request: Request) -> Result<Reply> {
        match request {
            Request::Read { offset, mut buffer } => {
                self.read(offset, &mut buffer).map(|()| Reply::Read(buffer))
            }
            Request::Write { offset, data } => {
                self.write(offset, data.len() as u64, data.iter()).map(|()| Reply::Done)
            }
            Request::Flush => self.flush_stream().map(|()| Reply::Done),
            Request::Discard { .. } => Err(Error::unsupported(format!("discarding in {}", self.name))),
        }
    }
}

impl<S: Read + Seek + Send> BlockDevice for StreamDevice<S> {
    fn submit(&self, request: Request, done: Completion) {
        let outcome = gate::passing(Reason::Device, || self.run(request));
        done(outcome);
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn id(&self) -> DeviceId {
        self.id
    }

    fn describe(&self) -> String {
        self.name.clone()
    }

    fn close(&self) {
        self.state.lock().closed = true;
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A stream whose flush fails once, like that of a disk that was unplugged and plugged in again.
    struct Pulled(Cursor<Vec<u8>>, u32);

    impl Read for Pulled {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.0.read(out)
        }
    }

    impl Seek for Pulled {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    impl Write for Pulled {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            self.1 += 1;
            if self.1 == 1 { Err(io::Error::other("pulled")) } else { Ok(()) }
        }
    }

    #[test]
    fn a_request_beyond_the_end_changes_nothing() {
        let device = StreamDevice::new(Cursor::new(vec![7; 4096]), "a vector").unwrap();
        for (offset, len) in [(4096, 1), (4095, 2), (u64::MAX, 1), (u64::MAX, 0)] {
            assert!(device.write_at(offset, &vec![0; len]).is_err(), "{len} bytes at {offset}");
            assert!(device.read_at(offset, &mut vec![0; len]).is_err(), "{len} bytes at {offset}");
        }
        device.write_at(4096, &[]).unwrap();
        assert_eq!(device.into_inner().into_inner(), vec![7; 4096]);
    }

    #[test]
    fn a_flush_that_failed_once_fails_for_ever() {
        let device = StreamDevice::new(Pulled(Cursor::new(vec![0; 4096]), 0), "a disk").unwrap();
        assert!(device.flush().is_err() && device.flush().is_err());
        assert_eq!(device.into_inner().1, 1);
    }

    #[test]
    fn what_was_closed_is_not_touched() {
        let device = StreamDevice::new(Cursor::new(vec![0; 4096]), "a vector").unwrap();
        device.close();
        assert_eq!(device.write_at(0, b"late").unwrap_err().kind(), ErrorKind::Stale);
        assert_eq!(device.read_at(0, &mut [0]).unwrap_err().kind(), ErrorKind::Stale);
    }

    #[test]
    fn one_that_is_only_read_is_flushed_and_not_written() {
        let device = StreamDevice::read_only(Cursor::new(vec![3; 4096]), "a vector").unwrap();
        device.flush().unwrap();
        assert_eq!(device.write_at(0, b"x").unwrap_err().kind(), ErrorKind::ReadOnly);
        assert_eq!(device.discard(0, 4096).unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
