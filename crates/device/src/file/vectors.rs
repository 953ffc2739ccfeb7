//! Writing data from several places of memory with few system calls.

use std::fs::File;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::os::unix::fs::FileExt;

/// Writes the parts one after the other. Ends early, without an error, if the file takes no more bytes, or a number of bytes that is no multiple
/// of `unit`. Returns the number of bytes written.
pub(super) fn write_parts(file: &File, parts: &[&[u8]], at: u64, unit: u64) -> Result<usize> {
    // The host refuses longer vectors.
    const PARTS_MAX: usize = 1024;
    let mut done = 0;
    for group in parts.chunks(PARTS_MAX) {
        let mut slices: Vec<IoSlice<'_>> = group.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, 0); // drops leading empty parts
        while !rest.is_empty() {
            let written = match rustix::io::pwritev(file, rest, at + done as u64) {
                Ok(written) => written,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            done += written;
            IoSlice::advance_slices(&mut rest, written);
            if written == 0 || !(written as u64).is_multiple_of(unit) {
                return Ok(done);
            }
        }
    }
    Ok(done)
}

/// Writes all of the parts one after the other. Returns the number of bytes.
pub(super) fn write_all(file: &File, parts: &[&[u8]], at: u64) -> Result<usize> {
    if let [part] = parts {
        return file.write_all_at(part, at).map(|()| part.len());
    }
    let len: usize = parts.iter().map(|part| part.len()).sum();
    match write_parts(file, parts, at, 1)? {
        written if written < len => Err(Error::from(ErrorKind::WriteZero)),
        written => Ok(written),
    }
}

/// Returns the bytes of the parts after the first `done`.
pub(super) fn behind<'p>(parts: &[&'p [u8]], mut done: usize) -> Vec<&'p [u8]> {
    let rest = parts.iter().map(|part| {
        let skipped = done.min(part.len());
        done -= skipped;
        &part[skipped..]
    });
    rest.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_behind_some_bytes_begins_within_a_part() {
        let parts: [&[u8]; 4] = [b"ab", b"", b"cde", b"f"];
        for (done, rest) in [(0, "abcdef"), (2, "cdef"), (3, "def"), (6, "")] {
            assert_eq!(behind(&parts, done).concat(), rest.as_bytes(), "{done}");
        }
    }

    #[test]
    fn parts_are_written_one_after_the_other() {
        let file = tempfile::tempfile().unwrap();
        let many = vec![&b"xy"[..]; 3000];
        assert_eq!(write_all(&file, &many, 1).unwrap(), 6000);
        assert_eq!(write_all(&file, &[], 0).unwrap(), 0);
        let mut read = vec![0; 6001];
        file.read_exact_at(&mut read, 0).unwrap();
        assert_eq!((read[0], &read[1..]), (0, &many.concat()[..]));
    }
}
