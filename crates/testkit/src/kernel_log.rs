//! The kernel's messages about btrfs since a given moment.
//!
//! The log is opened before the kernel gets any work, and read afterwards. Lines that the ring lost in between are reported as a complaint
//! of their own, so silence means that there was none. The ring is small and the whole machine writes into it, so a thread follows it from
//! the first moment and keeps the lines about btrfs.

use std::fs::File;
use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Seek, SeekFrom, pipe};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;

const RECORD_BYTES_MAX: usize = 8192;

/// A kernel log that is followed from its opening until drop.
///
/// ```no_run
/// use creamery_testkit::KernelLog;
/// let mut log = KernelLog::start().unwrap();
/// assert!(log.complaints("loop0").unwrap().is_empty());
/// ```
pub struct KernelLog {
    ring: Arc<Mutex<Ring>>,
    /// The follower thread ends when this end of its pipe is closed.
    alive: Option<PipeWriter>,
    follower: Option<JoinHandle<()>>,
}

/// The kernel's ring from the mark on, and the lines kept so far.
struct Ring {
    file: File,
    lines: Vec<String>,
}

impl KernelLog {
    /// Sets the mark at the present end of the log.
    ///
    /// # Errors
    /// `/dev/kmsg` cannot be read, which only the superuser may.
    pub fn start() -> Result<Self> {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let mut file =
            File::options().read(true).custom_flags(flags).open("/dev/kmsg").context("opening /dev/kmsg")?;
        file.seek(SeekFrom::End(0)).context("finding the end of the kernel log")?;
        let readable = file.try_clone().context("a second handle of the kernel log")?;
        let (end, alive) = pipe().context("a pipe for the follower of the kernel log")?;
        let ring = Arc::new(Mutex::new(Ring { file, lines: Vec::new() }));
        let follower = thread::Builder::new()
            .name("kernel-log".to_owned())
            .spawn({
                let ring = Arc::clone(&ring);
                move || follow(&ring, &readable, &end)
            })
            .context("starting the follower of the kernel log")?;
        Ok(Self { ring, alive: Some(alive), follower: Some(follower) })
    }

    /// The lines since the mark (or since the last call) that complain about btrfs on `device`, for example `loop0`.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn complaints(&mut self, device: &str) -> Result<Vec<String>> {
        let mut ring = lock(&self.ring);
        ring.read()?;
        let lines = std::mem::take(&mut ring.lines);
        Ok(lines.into_iter().filter(|line| line == OVERFLOWED || is_complaint(line, device)).collect())
    }
}

impl Drop for KernelLog {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(follower) = self.follower.take() {
            let _ = follower.join();
        }
    }
}

const OVERFLOWED: &str = "the kernel log overflowed: lines were lost";

/// Reads whenever there are new lines. An error ends it: the next call of `complaints` meets the same error and returns it.
fn follow(ring: &Mutex<Ring>, readable: &File, end: &PipeReader) {
    loop {
        let mut ready = [PollFd::new(readable, PollFlags::IN), PollFd::new(end, PollFlags::empty())];
        match poll(&mut ready, None) {
            Err(Errno::INTR) => {}
            Ok(_) if ready[1].revents().is_empty() && lock(ring).read().is_ok() => {}
            _ => return,
        }
    }
}

impl Ring {
    /// Keeps the lines about btrfs among those that the ring has now.
    fn read(&mut self) -> Result<()> {
        let mut record = vec![0; RECORD_BYTES_MAX];
        loop {
            match self.file.read(&mut record) {
                Ok(0) => return Ok(()),
                Ok(len) => {
                    let line = message(&record[..len]);
                    if is_about_btrfs(&line) {
                        self.lines.push(line);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => self.lines.push(OVERFLOWED.to_owned()),
                Err(error) => return Err(error).context("reading the kernel log"),
            }
        }
    }
}

fn lock(ring: &Mutex<Ring>) -> MutexGuard<'_, Ring> {
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The text of a record: the first line behind the first `;`.
fn message(record: &[u8]) -> String {
    let text = String::from_utf8_lossy(record);
    let text = text.split_once(';').map_or(&*text, |(_, message)| message);
    text.lines().next().unwrap_or_default().to_owned()
}

fn is_about_btrfs(line: &str) -> bool {
    line.contains("fs/btrfs/") || line.starts_with("BTRFS")
}

fn is_complaint(line: &str, device: &str) -> bool {
    if line.contains("fs/btrfs/") {
        return line.contains("WARNING") || line.contains("BUG");
    }
    let Some(rest) = line.strip_prefix("BTRFS") else { return false };
    let ours = rest.find("(device ").is_some_and(|at| {
        let name = &rest[at + "(device ".len()..];
        name.split([' ', ')', ':']).next() == Some(device)
    });
    if rest.contains("space cache v1 is being deprecated") {
        return false; // the kernel prints it for every such request
    }
    if rest.contains("qgroup inherit needs a rescan") {
        return false; // a snapshot was taken into a quota group, on request
    }
    let level = rest.split_whitespace().next().unwrap_or_default().trim_end_matches(':');
    let grave = ["warning", "error", "critical", "alert", "emergency"].contains(&level);
    let telling = ["corrupt", "csum", "checksum", "bad tree", "mismatch", "read error", "corrected", "abort"];
    let damage =
        !rest.contains("using ") && telling.iter().any(|word| rest.to_ascii_lowercase().contains(word));
    ours && (grave || damage)
}

#[cfg(test)]
mod tests {
    use super::{is_about_btrfs, is_complaint, message};

    #[test]
    fn only_complaints_about_the_device_are_kept() {
        for (line, kept) in [
            ("BTRFS info (device loop0): using crc32c (crc32c-lib) checksum algorithm", false),
            ("BTRFS info (device loop0): first mount of filesystem 6b1f", false),
            ("BTRFS warning (device loop0): csum failed root 5 ino 257 off 0", true),
            ("BTRFS error (device loop0 state EA): bdev /dev/loop0 errs: wr 0, rd 0", true),
            ("BTRFS critical (device loop01): corrupt leaf", false),
            ("BTRFS info (device loop0): read error corrected: ino 257 off 0", true),
            ("BTRFS: device fsid 6b1f devid 1 transid 8 /dev/loop0", false),
            ("WARNING: CPU: 1 PID: 77 at fs/btrfs/extent-tree.c:3000 foo+0x1/0x2", true),
            ("EXT4-fs (loop0): mounted filesystem", false),
        ] {
            assert!(!kept || is_about_btrfs(line), "{line} would not be kept until it is asked for");
            assert_eq!(is_complaint(line, "loop0"), kept, "{line}");
        }
    }

    #[test]
    fn the_message_is_what_follows_the_prefix() {
        assert_eq!(message(b"6,1234,5678,-;BTRFS info: x\n SUBSYSTEM=block\n"), "BTRFS info: x");
    }
}
