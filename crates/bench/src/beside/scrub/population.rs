//! What is scrubbed: many files of any length, and some of them removed again.

use std::path::Path;

use anyhow::Result;
use creamery_testkit::Random;

const LEN_MIN: u64 = 2 << 10;
const LEN_MAX: u64 = 512 << 10;
/// One file of so many is removed.
const REMOVED: u64 = 16;
const DIRECTORIES: u64 = 16;

/// Makes `files` files in `dir`.
pub(super) fn fill(dir: &Path, files: u64) -> Result<()> {
    let mut random = Random::new(5);
    let content = random.bytes(usize::try_from(2 * LEN_MAX)?);
    for number in 0..DIRECTORIES {
        std::fs::create_dir(dir.join(format!("d{number}")))?;
    }
    let path = |number: u64| dir.join(format!("d{}/f{number}", number % DIRECTORIES));
    for number in 0..files {
        let len = LEN_MIN + random.below(LEN_MAX - LEN_MIN);
        let from = random.below(LEN_MAX);
        let content = &content[usize::try_from(from)?..usize::try_from(from + len)?];
        std::fs::write(path(number), content)?;
    }
    let mut numbers: Vec<u64> = (0..files).collect();
    random.shuffle(&mut numbers);
    for number in numbers.into_iter().take(usize::try_from(files / REMOVED)?) {
        std::fs::remove_file(path(number))?;
    }
    Ok(())
}

/// Makes `files` files of one sector each, in blocks of a tree as small as they can be: most of what a scrub waits for are trees.
pub(super) fn fill_small(dir: &Path, files: u64) -> Result<()> {
    let content = Random::new(6).bytes(4096);
    for number in 0..files {
        let directory = dir.join(format!("d{}", number / 1000));
        if number % 1000 == 0 {
            std::fs::create_dir(&directory)?;
        }
        std::fs::write(directory.join(format!("f{number}")), &content)?;
    }
    Ok(())
}
