//! The field of Q: GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d) and the generator 2.
//!
//! A byte is a polynomial over bits. Adding is XOR, so each value is its own negative. The generator has the order 255: its powers
//! 2^0 to 2^254 differ, so Q tells at most 255 data columns apart.

/// The rest of the polynomial: it is added when doubling shifts out the top bit.
pub(super) const REST: u8 = 0x1d;

/// The powers of the generator before they repeat.
pub(super) const ORDER: usize = 255;

/// `value` times 2. Without a branch, so that a loop over bytes becomes vector instructions.
#[inline(always)]
pub(super) const fn double(value: u8) -> u8 {
    (value << 1) ^ (((value as i8) >> 7) as u8 & REST)
}

/// The product of `a` and `b`, a bit of `b` at a time.
pub(super) const fn product(a: u8, b: u8) -> u8 {
    let (mut sum, mut a, mut b) = (0, a, b);
    while b != 0 {
        sum ^= a * (b & 1);
        a = double(a);
        b >>= 1;
    }
    sum
}

/// 2 to the power of `exponent`.
pub(super) const fn power(exponent: usize) -> u8 {
    let (mut value, mut at) = (1, 0);
    while at < exponent % ORDER {
        value = double(value);
        at += 1;
    }
    value
}

/// The value whose product with `value` is 1: the 254th power, because the 255th is 1. Zero has none.
pub(super) const fn inverse(value: u8) -> u8 {
    assert!(value != 0);
    // 254 is 2 + 4 + 8 + ... + 128.
    let (mut result, mut square, mut at) = (1, value, 0);
    while at < 7 {
        square = product(square, square);
        result = product(result, square);
        at += 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_but_zero_has_an_inverse() {
        for value in 1..=u8::MAX {
            assert_eq!(product(value, inverse(value)), 1, "{value}");
        }
    }

    #[test]
    fn the_powers_of_two_are_all_values_but_zero() {
        let mut seen = [false; 256];
        (0..ORDER).for_each(|exponent| seen[usize::from(power(exponent))] = true);
        assert!(!seen[0]);
        assert!(seen[1..].iter().all(|seen| *seen));
        assert_eq!(power(ORDER), 1);
        assert_eq!(power(8), REST);
    }
}
