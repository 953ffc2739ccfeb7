//! `pack_set MEMBER.. | zstd -19 > crates/fuzzing/sets/NAME.zst`: packs the non-zero parts of the members of a set, for the target
//! `member_sets`.
//!
//! The existing sets have 128 MiB members with nodes of 4 KiB. Linux made and filled them: directories, short and long files, one without
//! checksums, a hole, a snapshot.

use std::fs::File;
use std::io::{BufReader, Read, Write};

const PAGE: usize = 4096;

fn main() -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for (member, path) in (0_u8..).zip(std::env::args_os().skip(1)) {
        let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
        let mut page = [0; PAGE];
        let mut number = 0_u32;
        while file.read_exact(&mut page).is_ok() {
            if page.iter().any(|byte| *byte != 0) {
                out.write_all(&[member])?;
                out.write_all(&number.to_le_bytes())?;
                out.write_all(&page)?;
            }
            number += 1;
        }
    }
    out.flush()
}
