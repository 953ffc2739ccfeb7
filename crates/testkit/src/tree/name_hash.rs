//! Names that fall on the same directory hash.
//!
//! A directory item is found by the crc32c of its name; names with equal hashes share one item, which is the
//! rare path of every directory operation. The checksum is linear: names of one length, made of letters that differ
//! in one bit, collide exactly when the pattern of those bits lies in the kernel of a linear map into 32
//! bits. Forty-eight letters leave a kernel of at least 2^16 names, found by elimination instead of search.

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
    let kernel = kernel();
    (0..count)
        .map(|choice| {
            let chosen = kernel.iter().enumerate().filter(|(bit, _)| choice >> bit & 1 == 1);
            let pattern = chosen.fold(0u64, |pattern, (_, vector)| pattern ^ vector);
            (0..LETTERS).map(|at| if pattern >> at & 1 == 1 { b'q' } else { b'p' }).collect()
        })
        .collect()
}

/// Patterns of flipped letters that leave the hash as it is, linearly independent.
fn kernel() -> Vec<u64> {
    let mut pivots: Vec<(u32, u64)> = Vec::new();
    let mut kernel = Vec::new();
    for at in 0..LETTERS {
        let mut flipped = [0u8; LETTERS];
        flipped[at] = b'p' ^ b'q';
        let (mut image, mut pattern) = (crc32c(0, &flipped), 1u64 << at);
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

    use super::{colliding_names, crc32c, name_hash};

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
}
