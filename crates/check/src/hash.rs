//! Hashes for comparing multisets: one side adds and the other one subtracts the hashes of its members, and the sum is zero if both have
//! equal members.
//!
//! Every hash is odd, so a count times a hash is zero, in 64 bits, only for a count of zero.

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const STEP: u64 = 0xd1b5_4a32_d192_ed03;

const fn fold(a: u64, b: u64) -> u64 {
    let product = (a as u128).wrapping_mul(b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

/// One odd hash for a sequence of numbers.
pub(crate) fn numbers(kind: u64, row: &[u64]) -> u64 {
    let start = fold(SEED ^ kind, STEP);
    row.iter().fold(start, |hash, number| fold(hash ^ number ^ STEP, SEED).rotate_left(29) ^ *number) | 1
}

/// One hash for a name.
pub(crate) fn name(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut hash = fold(SEED ^ bytes.len() as u64, STEP);
    for word in words {
        hash = fold(hash ^ u64::from_le_bytes(*word), STEP).wrapping_add(SEED);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    fold(hash ^ u64::from_le_bytes(last), SEED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_rows_and_names_have_different_hashes() {
        let mut seen = std::collections::HashSet::new();
        for a in 0..64 {
            for b in 0..64 {
                assert!(seen.insert(numbers(1, &[a, b])), "{a} {b}");
            }
        }
        let mut seen = std::collections::HashSet::new();
        assert!((0..5000).all(|n: u32| seen.insert(name(format!("f{n}").as_bytes()))));
    }
}
