//! Memory for requests and replies, aligned to pages.

const PAGE: usize = 4096;

/// A zeroed block that starts at a page and is touched by the system only where it is used.
pub(super) struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    pub(super) fn new(len: usize) -> Self {
        let bytes = vec![0; len + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        assert!(start < PAGE, "alignment of bytes can always be had");
        Self { bytes, start, len }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_at_a_page_and_has_the_length_asked_for() {
        for len in [1, 4096, 1_000_001] {
            let mut buffer = AlignedBuffer::new(len);
            assert_eq!(buffer.as_slice().as_ptr() as usize % PAGE, 0);
            assert_eq!(buffer.as_mut_slice().len(), len);
        }
    }
}
