//! Copying a few bytes by copying more.

/// The number of bytes that are copied at once.
pub(crate) const AT_ONCE: usize = 16;

/// Copies the first `len` bytes of `from` to `out`, from `at` on, if `len` is small and both sides have room for
/// [`AT_ONCE`] bytes. Else returns false, and copies nothing. Extra bytes are overwritten by the next copy, or arbitrary.
#[inline]
pub(crate) fn copy_few(from: &[u8], len: usize, out: &mut [u8], at: usize) -> bool {
    if len <= AT_ONCE
        && let Some(bytes) = from.first_chunk::<AT_ONCE>()
        && let Some(room) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<AT_ONCE>)
    {
        *room = *bytes;
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bytes_are_copied_where_there_is_room_for_more() {
        let from: Vec<u8> = (1..=20).collect();
        let rows = [(3, 0, true), (16, 4, true), (17, 0, false), (3, 5, false), (3, 21, false)];
        for (len, at, want) in rows {
            let mut out = [0; 20];
            assert_eq!(copy_few(&from, len, &mut out, at), want, "{len} bytes to {at}");
            let copied = if want { &from[..len] } else { &[] };
            assert!(out.get(at..).unwrap_or(&[]).starts_with(copied), "{len} bytes to {at}");
        }
        assert!(!copy_few(&from[..15], 3, &mut [0; 20], 0), "what is copied has no more");
    }
}
