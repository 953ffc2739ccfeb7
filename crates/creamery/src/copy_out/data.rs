//! The data of a copy, into a file or a stream of the host.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt;

use creamery_base::{Error, Result};

use crate::salvage::Data;
use crate::sink::Source;

/// A piece of a hole, in a stream.
const ZEROS: &[u8] = &[0; 64 << 10];

/// Writes data and holes into an empty file.
pub(super) fn fill(
    file: &File,
    source: &Source,
    data: &Data<'_>,
    failed: impl Fn(Error) -> Error + Copy,
) -> Result<()> {
    let host = |error: std::io::Error| failed(error.into());
    data.for_each_piece(|at, bytes| file.write_all_at(bytes, at).map_err(host))?;
    file.set_len(source.attributes.size).map_err(host)
}

/// Writes data and holes, which are zeros, one behind the other.
pub(super) fn pour(
    mut file: &File,
    source: &Source,
    data: &Data<'_>,
    failed: impl Fn(Error) -> Error + Copy,
) -> Result<()> {
    let host = |error: std::io::Error| failed(error.into());
    let mut written = 0;
    let zeros = |mut len: u64, mut file: &File| {
        while len > 0 {
            data.go_on()?;
            let piece = len.min(ZEROS.len() as u64);
            file.write_all(&ZEROS[..usize::try_from(piece).expect("short")]).map_err(host)?;
            len -= piece;
        }
        Ok(())
    };
    data.for_each_piece(|at, bytes| {
        zeros(at - written, file)?;
        written = at + bytes.len() as u64;
        file.write_all(bytes).map_err(host)
    })?;
    zeros(source.attributes.size.saturating_sub(written), file)
}
