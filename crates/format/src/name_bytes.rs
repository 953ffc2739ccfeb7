//! Finding bytes that a name must not have. Names are checked whenever one is made, and in every block that is read or written,
//! so this checks eight bytes at a time.

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = LOW << 7;

/// Returns the position of the first byte of `name` that is one of `bad`.
///
/// ```
/// use creamery_format::position_of_any;
/// assert_eq!(position_of_any(b"a/b", [0, b'/']), Some(1));
/// assert_eq!(position_of_any(b"a name", [0, b'/']), None);
/// ```
#[must_use]
pub fn position_of_any(name: &[u8], bad: [u8; 2]) -> Option<usize> {
    let (words, rest) = name.as_chunks::<8>();
    let in_words =
        words.iter().fold(0, |any, word| any | zero_bytes(*word, bad[0]) | zero_bytes(*word, bad[1]));
    if in_words == 0 && !rest.iter().any(|byte| bad.contains(byte)) {
        return None;
    }
    name.iter().position(|byte| bad.contains(byte))
}

/// Not 0 if a byte of `word` is `byte`: there the difference is 0, and subtracting 1 sets the high bit.
fn zero_bytes(word: [u8; 8], byte: u8) -> u64 {
    let different = u64::from_le_bytes(word) ^ (LOW * u64::from(byte));
    different.wrapping_sub(LOW) & !different & HIGH
}

#[cfg(test)]
mod tests {
    use super::position_of_any;

    #[test]
    fn every_byte_is_found_at_every_place_and_no_other() {
        for len in 0..20 {
            for at in 0..len {
                for byte in 0..=u8::MAX {
                    for beside in [1, b'/' - 1, b'/' + 1, 0x80, 0xff] {
                        let mut name = vec![beside; len];
                        name[at] = byte;
                        let found = matches!(byte, 0 | b'/').then_some(at);
                        assert_eq!(position_of_any(&name, [0, b'/']), found, "{name:?}");
                    }
                }
            }
        }
    }
}
