//! Memory for pieces of different lengths, read one after the other.

/// A buffer that grows to the longest piece, and is not zeroed for each piece.
///
/// ```
/// let mut buffer = creamery_base::PieceBuffer::default();
/// buffer.of(4).copy_from_slice(b"milk");
/// assert_eq!(buffer.of(2), b"mi");
/// assert_eq!(buffer.of(8).len(), 8);
/// ```
#[derive(Default, Debug)]
pub struct PieceBuffer(Vec<u8>);

impl PieceBuffer {
    /// Returns `len` bytes for the next piece. They may still hold bytes of earlier pieces.
    pub fn of(&mut self, len: usize) -> &mut [u8] {
        if self.0.len() < len {
            self.0 = vec![0; len];
        }
        &mut self.0[..len]
    }
}
