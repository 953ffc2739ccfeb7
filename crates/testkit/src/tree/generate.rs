//! The benches' tree: log-normal file sizes with a median of 3.6 KB, as a source tree or a root filesystem has.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::Random;

const MEDIAN_BYTES: f64 = 3_600.0;
const FILES_PER_DIR: u64 = 24;
const DIRS_PER_DIR: u64 = 6;
const POOL_BYTES: usize = 4 << 20;

/// The amounts of a generated tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generated {
    /// Regular files.
    pub files: u64,
    /// Folders, the root not counted.
    pub dirs: u64,
    /// Bytes of content.
    pub bytes: u64,
}

/// Fills the folder `dir` with `files` files of `total_bytes` together. The content follows from `seed`.
///
/// ```
/// let scratch = creamery_testkit::Scratch::new("generate").unwrap();
/// let made = creamery_testkit::tree::generate(scratch.path(), 100, 1_000_000, 1).unwrap();
/// assert_eq!((made.files, made.bytes), (100, 1_000_000));
/// ```
///
/// # Errors
/// The host has no room for it.
pub fn generate(dir: &Path, files: u64, total_bytes: u64, seed: u64) -> Result<Generated> {
    generate_of(dir, files, total_bytes, seed, |random| random.bytes(POOL_BYTES))
}

/// Fills `dir` like [`generate`], with files that compress about as well as prose.
///
/// # Errors
/// The host has no room for it.
pub fn generate_text(dir: &Path, files: u64, total_bytes: u64, seed: u64) -> Result<Generated> {
    generate_of(dir, files, total_bytes, seed, |random| random.text(POOL_BYTES))
}

fn generate_of(
    dir: &Path,
    files: u64,
    total_bytes: u64,
    seed: u64,
    pool: impl FnOnce(&mut Random) -> Vec<u8>,
) -> Result<Generated> {
    let mut random = Random::new(seed);
    let sizes = sizes(&mut random, files, total_bytes);
    let dirs = make_dirs(dir, files.div_ceil(FILES_PER_DIR))?;
    let pool = pool(&mut random);
    for (index, size) in (0..files).zip(&sizes) {
        let home = &dirs[(index / FILES_PER_DIR) as usize];
        let path = home.join(file_name(&mut random, index));
        let mut file = File::create_new(&path).with_context(|| format!("making {}", path.display()))?;
        let mut left = *size;
        while left > 0 {
            let start = random.below(POOL_BYTES as u64 / 2) as usize;
            let part = left.min((POOL_BYTES / 2) as u64) as usize;
            file.write_all(&pool[start..start + part])?;
            left -= part as u64;
        }
    }
    Ok(Generated { files, dirs: dirs.len() as u64 - 1, bytes: sizes.iter().sum() })
}

/// Log-normal sizes with a fixed median, and a spread with which they add up to about `total`. The difference is spread over the larger
/// half, so the sum is exact and the median stays.
fn sizes(random: &mut Random, files: u64, total: u64) -> Vec<u64> {
    if files == 0 {
        return Vec::new();
    }
    let mean = total as f64 / files as f64;
    let median = MEDIAN_BYTES.min(mean);
    let spread = (2.0 * (mean / median).ln()).sqrt();
    let mut sizes: Vec<u64> =
        (0..files).map(|_| (median * (spread * random.normal()).exp()) as u64).collect();
    let sum: u64 = sizes.iter().sum();
    let larger: u64 = sizes.iter().filter(|size| **size as f64 > median).sum();
    let wanted = (larger + total).saturating_sub(sum);
    if larger > 0 {
        let scale = wanted as f64 / larger as f64;
        for size in sizes.iter_mut().filter(|size| **size as f64 > median) {
            *size = (*size as f64 * scale) as u64;
        }
    }
    let sum: u64 = sizes.iter().sum();
    if let Some(largest) = sizes.iter_mut().max() {
        *largest = (*largest + total).saturating_sub(sum);
    }
    sizes
}

fn make_dirs(root: &Path, count: u64) -> Result<Vec<PathBuf>> {
    let mut dirs = vec![root.to_owned()];
    for index in 1..count.max(1) {
        let parent = &dirs[((index - 1) / DIRS_PER_DIR) as usize];
        let dir = parent.join(format!("dir-{index}"));
        std::fs::create_dir(&dir).with_context(|| format!("making {}", dir.display()))?;
        dirs.push(dir);
    }
    Ok(dirs)
}

fn file_name(random: &mut Random, index: u64) -> String {
    const ENDINGS: [&str; 6] = ["c", "h", "rs", "txt", "o", "json"];
    let mut name = format!("file-{index}-");
    for _ in 0..random.below(16) {
        name.push((b'a' + random.below(26) as u8) as char);
    }
    name + "." + ENDINGS[random.below(6) as usize]
}

#[cfg(test)]
mod tests {
    use super::sizes;
    use crate::Random;

    #[test]
    fn sizes_add_up_and_keep_the_median() {
        let mut sizes = sizes(&mut Random::new(1), 30_000, 400_000_000);
        assert_eq!(sizes.iter().sum::<u64>(), 400_000_000);
        sizes.sort_unstable();
        let median = sizes[sizes.len() / 2];
        assert!((3_400..3_800).contains(&median), "median {median}");
    }
}
