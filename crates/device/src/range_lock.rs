//! Locks on ranges of a file, for users of a part of it.
//!
//! A writer of a whole file has it alone, by the lock of `in_use`. Every other user shares that lock, and in addition locks its
//! range: readers of whole files, and readers and writers of partitions. So two partitions of a file may be written at once, and
//! neither changes while a user has the whole file.
//!
//! The locks are those of open file descriptions (`F_OFD_SETLK`): like the lock of `in_use` they stay with the open file, even if another part of
//! this process opens and closes the file.

use std::fs::{self, File};
use std::ops::Range;
use std::os::fd::AsRawFd;

/// The operation on a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lock {
    /// A shared lock.
    Read,
    /// An exclusive lock.
    Write,
    /// Release the lock.
    Unlock,
}

/// The outcome of a lock call.
#[derive(Debug)]
pub(crate) enum Locked {
    Yes,
    /// Another open of the file, in this or another process, has a conflicting lock on a part of the range.
    Taken,
    Failed(std::io::Error),
}

/// All bytes, including those that a file may grow by.
pub(crate) const WHOLE: Range<u64> = 0..u64::MAX;

/// Locks the bytes of `range` in `file`, which is not empty, or unlocks them.
pub(crate) fn lock(file: &File, range: &Range<u64>, lock: Lock) -> Locked {
    assert!(range.start < range.end, "a length of 0 would mean all that follows");
    let kind = match lock {
        Lock::Read => libc::F_RDLCK,
        Lock::Write => libc::F_WRLCK,
        Lock::Unlock => libc::F_UNLCK,
    };
    // Offsets are signed on the host, and 0 stands for a length without an end.
    let Ok(start) = i64::try_from(range.start) else {
        return Locked::Failed(std::io::ErrorKind::InvalidInput.into());
    };
    let len = i64::try_from(range.end).map_or(0, |end| end - start);
    // SAFETY: all of its fields are integers, of which any bytes make some.
    let mut asked: libc::flock = unsafe { std::mem::zeroed() };
    asked.l_type = kind.try_into().expect("a number below 3");
    asked.l_whence = libc::SEEK_SET.try_into().expect("it is 0");
    asked.l_start = start;
    asked.l_len = len;
    // SAFETY: for F_OFD_SETLK the kernel reads one `flock` through the pointer and keeps nothing; `asked` lives across the call, and
    // the descriptor is that of an open file.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const asked) };
    if answer == 0 {
        return Locked::Yes;
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Locked::Taken,
        _ => Locked::Failed(error),
    }
}

/// Whether the descriptor `fd` of process `pid` holds a lock on a part of `range` that conflicts with `wanted`.
pub(crate) fn holds(pid: u32, fd: &str, range: &Range<u64>, wanted: Lock) -> bool {
    let told = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    told.lines().any(|line| is_in_the_way(line, range, wanted).unwrap_or(false))
}

/// Whether a line of fdinfo shows such a lock. `None` if the line is about something else.
fn is_in_the_way(line: &str, range: &Range<u64>, wanted: Lock) -> Option<bool> {
    // lock:	1: OFDLCK ADVISORY  WRITE -1 00:1c:30408 1048576 2097151
    let fields: Vec<&str> = line.strip_prefix("lock:")?.split_ascii_whitespace().collect();
    let [_, "OFDLCK", _, kind, _, _, first, last] = fields[..] else { return None };
    let last = if last == "EOF" { u64::MAX } else { last.parse().ok()? };
    let overlaps = first.parse::<u64>().ok()? < range.end && last >= range.start;
    Some(overlaps && (kind == "WRITE" || wanted == Lock::Write))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_locks_tell_who_is_in_the_way() {
        let line = "lock:\t1: OFDLCK ADVISORY  WRITE -1 00:1c:30408 1000 1999";
        let reads = line.replace("WRITE", "READ");
        let rows = [
            (line, 0..1000, Lock::Write, Some(false)),
            (line, 0..1001, Lock::Write, Some(true)),
            (line, 1999..2000, Lock::Read, Some(true)),
            (line, 2000..3000, Lock::Write, Some(false)),
            (&reads, 0..3000, Lock::Read, Some(false)),
            (&reads, WHOLE, Lock::Write, Some(true)),
            ("lock:\t1: FLOCK  ADVISORY  WRITE 4711 00:1c:30408 0 EOF", WHOLE, Lock::Write, None),
            ("pos:\t0", WHOLE, Lock::Write, None),
        ];
        for (line, range, wanted, want) in rows {
            assert_eq!(is_in_the_way(line, &range, wanted), want, "{line} {range:?} {wanted:?}");
        }
        let endless = line.replace("1999", "EOF");
        assert_eq!(is_in_the_way(&endless, &(1 << 60..1 << 61), Lock::Read), Some(true));
    }

    #[test]
    fn ranges_are_locked_apart_up_to_the_largest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "").unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let (a, b) = (open(), open());
        let largest = i64::MAX.cast_unsigned();
        for (one, other) in [(0..1, 1..2), (0..4096, 4096..largest), (largest - 1..largest, 0..largest - 1)] {
            for range in [&one, &WHOLE] {
                assert!(matches!(lock(&a, &one, Lock::Write), Locked::Yes));
                assert!(matches!(lock(&b, range, Lock::Read), Locked::Taken), "{range:?}");
                assert!(matches!(lock(&b, &other, Lock::Write), Locked::Yes), "{other:?}");
                for file in [&a, &b] {
                    assert!(matches!(lock(file, &WHOLE, Lock::Unlock), Locked::Yes));
                }
            }
        }
        assert!(matches!(lock(&a, &(u64::MAX - 1..u64::MAX), Lock::Read), Locked::Failed(_)));
    }
}
