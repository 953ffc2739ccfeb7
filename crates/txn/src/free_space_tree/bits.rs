//! Bits of a bitmap item.

/// Whether a bit is set.
pub(super) fn bit_at(data: &[u8], bit: u64) -> bool {
    let byte = usize::try_from(bit / 8).expect("a bitmap's bit");
    data[byte] & (1 << (bit % 8)) != 0
}

/// Sets or clears a bit.
pub(super) fn set_bit(data: &mut [u8], bit: u64, on: bool) {
    let byte = usize::try_from(bit / 8).expect("a bitmap's bit");
    if on {
        data[byte] |= 1 << (bit % 8);
    } else {
        data[byte] &= !(1 << (bit % 8));
    }
}
