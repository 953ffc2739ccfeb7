//! Names that fall on the same directory hash, and clones whose references fall on the same.
//!
//! A directory item is found by the crc32c of its name; names with equal hashes share one item, which is the
//! rare path of every directory operation. The checksum is linear: names of one length, made of letters that differ
//! in one bit, collide exactly when the pattern of those bits lies in the kernel of a linear map into 32
//! bits. Forty-eight letters leave a kernel of at least 2^16 names, found by elimination instead of search. File
//! offsets in a reference to a data extent are hashed likewise.

/// Letters per name.
const LETTERS: usize = 48;

/// The hash of a directory entry's name: crc32c with the seed of all ones but the last bit, not inverted at the end.
///
/// ```
/// use creamery_testkit::tree::{colliding_names, name_hash};
/// let names = colliding_names(2);
/// assert_ne!(names[0], names[1]);
/// assert_eq!(name_hash(&names[0]), name_hash(&names[1]));
/// ```
#[must_use]
pub fn name_hash(name: &[u8]) -> u32 {
    crc32c(!1, name)
}

fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |mut crc, byte| {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
        crc
    })
}

/// `count` different names (at most 65,536) that have one hash.
#[must_use]
pub fn colliding_names(count: usize) -> Vec<Vec<u8>> {
    assert!(count <= 1 << 16);
    combinations(&kernel(), count)
        .map(|pattern| (0..LETTERS).map(|at| if pattern >> at & 1 == 1 { b'q' } else { b'p' }).collect())
        .collect()
}

/// Patterns of flipped letters that leave the hash as it is, linearly independent.
fn kernel() -> Vec<u64> {
    kernel_of((0..LETTERS).map(|at| {
        let mut flipped = [0u8; LETTERS];
        flipped[at] = b'p' ^ b'q';
        crc32c(0, &flipped)
    }))
}

/// File offsets at which clones of an extent in one file have references with one hash: `count` of them, at most 256, the
/// first is 0, the last may be in the range of petabytes.
///
/// ```
/// let offsets = creamery_testkit::tree::colliding_offsets(3);
/// assert!(offsets[0] == 0 && offsets.iter().all(|offset| offset % 4096 == 0));
/// ```
#[must_use]
pub fn colliding_offsets(count: usize) -> Vec<u64> {
    assert!(count <= 1 << 8);
    // Of forty bits that may differ the checksum takes part in 32.
    let kernel = kernel_of((12..52).map(|bit| crc32c(0, &(1_u64 << bit).to_le_bytes())));
    combinations(&kernel, count).map(|pattern| pattern << 12).collect()
}

/// The first sums of independent vectors.
fn combinations(kernel: &[u64], count: usize) -> impl Iterator<Item = u64> {
    (0..count).map(|choice| {
        let chosen = kernel.iter().enumerate().filter(|(bit, _)| choice >> bit & 1 == 1);
        chosen.fold(0, |pattern, (_, vector)| pattern ^ vector)
    })
}

/// Which combinations of vectors with these images have the image 0; linearly independent ones.
fn kernel_of(images: impl Iterator<Item = u32>) -> Vec<u64> {
    let mut pivots: Vec<(u32, u64)> = Vec::new();
    let mut kernel = Vec::new();
    for (at, mut image) in images.enumerate() {
        let mut pattern = 1u64 << at;
        for (pivot_image, pivot_pattern) in &pivots {
            if image ^ pivot_image < image {
                image ^= pivot_image;
                pattern ^= pivot_pattern;
            }
        }
        if image == 0 {
            kernel.push(pattern);
        } else {
            pivots.push((image, pattern));
            pivots.sort_by_key(|(image, _)| std::cmp::Reverse(*image));
        }
    }
    kernel
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{colliding_names, colliding_offsets, crc32c, name_hash};

    #[test]
    fn crc32c_gives_the_known_value() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
    }

    #[test]
    fn names_differ_and_their_hashes_do_not() {
        let names = colliding_names(300);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 300);
        assert_eq!(names.iter().map(|name| name_hash(name)).collect::<BTreeSet<_>>().len(), 1);
    }

    #[test]
    fn offsets_differ_and_their_hashes_do_not() {
        let offsets = colliding_offsets(256);
        assert_eq!(offsets.iter().collect::<BTreeSet<_>>().len(), 256);
        let hashes = offsets.iter().map(|offset| crc32c(!0, &offset.to_le_bytes()));
        assert_eq!(hashes.collect::<BTreeSet<_>>().len(), 1);
    }
}
