//! Comparing content.

/// Bytes that are compared at a time.
const STEP: usize = 64;

/// Whether both have the same bytes. The C library implements `==`, and that of static programs compares byte by byte.
///
/// ```
/// use creamery_base::is_same;
/// assert!(is_same(&[7; 100], &[7; 100]));
/// assert!(!is_same(&[7; 100], &[7; 99]));
/// ```
#[must_use]
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    let ((steps, rest), (other_steps, other_rest)) = (one.as_chunks::<STEP>(), other.as_chunks::<STEP>());
    one.len() == other.len()
        && steps.iter().zip(other_steps).all(|(one, other)| differing(one, other) == 0)
        && rest == other_rest
}

/// Returns a word with all bits that differ in any pair of words.
fn differing(one: &[u8; STEP], other: &[u8; STEP]) -> u64 {
    let (words, _) = one.as_chunks::<8>();
    let (other_words, _) = other.as_chunks::<8>();
    let pairs = words.iter().zip(other_words);
    pairs.fold(0, |bits, (one, other)| bits | (u64::from_ne_bytes(*one) ^ u64::from_ne_bytes(*other)))
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn each_byte_counts() {
        for len in [0, 1, 63, 64, 65, 127, 128, 4096] {
            let one: Vec<u8> = (0..len).map(|at| at as u8).collect();
            assert!(is_same(&one, &one.clone()), "{len}");
            for at in 0..len {
                let mut other = one.clone();
                other[at] ^= 0x80;
                assert!(!is_same(&one, &other), "{at} of {len}");
            }
        }
    }
}
