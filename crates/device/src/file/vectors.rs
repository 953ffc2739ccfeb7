//! Writing what lies in several places of memory by few system calls.

use std::fs::File;
use std::io::{IoSlice, Result};

/// Writes the parts one after the other. It ends early, without an error, where the file takes nothing more, or a number of bytes that is no multiple
/// of `unit`. How many bytes were written.
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
