//! Hashing numbers that a filesystem assigned.

use std::hash::Hasher;

/// Hashes ids: small numbers, side by side, which an attacker gains nothing by choosing. One multiplication spreads
/// them (the constant is 2^64 divided by the golden ratio).
///
/// ```
/// use std::collections::HashMap;
/// use std::hash::BuildHasherDefault;
/// let mut names: HashMap<u64, &str, BuildHasherDefault<creamery_base::IdHasher>> = HashMap::default();
/// names.insert(257, "file");
/// assert_eq!(names[&257], "file");
/// ```
#[derive(Default, Debug)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
