//! Shared bytes, and lists of them for one request.

use std::borrow::Cow;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::AlignedBuffer;

/// A shared buffer, or a part of one. Cloning it copies no bytes.
///
/// ```
/// use creamery_device::{AlignedBuffer, SharedBytes};
/// let whole = SharedBytes::from(AlignedBuffer::from_slice(b"cream"));
/// assert_eq!(*whole.slice(1..4), *b"rea");
/// ```
#[derive(Clone, Debug)]
pub struct SharedBytes {
    buffer: Arc<AlignedBuffer>,
    range: Range<usize>,
}

impl SharedBytes {
    /// Returns a part of these bytes.
    ///
    /// # Panics
    /// If it ends beyond them.
    #[must_use]
    pub fn slice(&self, part: Range<usize>) -> Self {
        assert!(part.start <= part.end && part.end <= self.range.len(), "a part of what there is");
        let range = self.range.start + part.start..self.range.start + part.end;
        Self { buffer: Arc::clone(&self.buffer), range }
    }
}

impl From<Arc<AlignedBuffer>> for SharedBytes {
    fn from(buffer: Arc<AlignedBuffer>) -> Self {
        let range = 0..buffer.len();
        Self { buffer, range }
    }
}

impl From<AlignedBuffer> for SharedBytes {
    fn from(buffer: AlignedBuffer) -> Self {
        Arc::new(buffer).into()
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

/// The data of a write: shared bytes that lie one after another on the device, but anywhere in memory.
///
/// ```
/// use creamery_device::{AlignedBuffer, Parts, SharedBytes};
/// let words = [b"sweet ", b"cream ", b"butter"].map(|word| SharedBytes::from(AlignedBuffer::from_slice(word)));
/// let parts = Parts::from_iter(words);
/// assert_eq!((parts.len(), parts.iter().count()), (18, 3));
/// assert_eq!(*parts.slice(3..8).contiguous(), *b"et cr");
/// ```
#[derive(Clone, Default, Debug)]
pub struct Parts {
    /// None of them is empty.
    parts: Vec<SharedBytes>,
    len: usize,
}

impl Parts {
    /// Returns the number of bytes in all.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends `bytes`.
    pub fn push(&mut self, bytes: SharedBytes) {
        if !bytes.is_empty() {
            self.len += bytes.len();
            self.parts.push(bytes);
        }
    }

    /// Appends the bytes of `others` that lie in `range`.
    ///
    /// # Panics
    /// If it ends beyond them.
    pub fn extend_from(&mut self, others: &Self, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= others.len, "a part of what there is");
        let mut from = 0;
        for bytes in &others.parts {
            let end = from + bytes.len();
            let (first, last) = (range.start.max(from), range.end.min(end));
            if first < last {
                self.push(bytes.slice(first - from..last - from));
            }
            from = end;
        }
    }

    /// Returns the bytes that lie in `range`.
    ///
    /// # Panics
    /// If it ends beyond them.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let mut parts = Self::default();
        parts.extend_from(self, range);
        parts
    }

    /// The parts, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|bytes| &**bytes)
    }

    /// Returns all bytes as one slice; copies them unless there is only one part.
    #[must_use]
    pub fn contiguous(&self) -> Cow<'_, [u8]> {
        match &self.parts[..] {
            [] => Cow::Borrowed(&[]),
            [bytes] => Cow::Borrowed(bytes),
            _ => Cow::Owned(self.iter().collect::<Vec<&[u8]>>().concat()),
        }
    }
}

impl<B: Into<SharedBytes>> From<B> for Parts {
    fn from(bytes: B) -> Self {
        Self::from_iter([bytes])
    }
}

impl<B: Into<SharedBytes>> FromIterator<B> for Parts {
    fn from_iter<I: IntoIterator<Item = B>>(buffers: I) -> Self {
        let mut parts = Self::default();
        buffers.into_iter().for_each(|buffer| parts.push(buffer.into()));
        parts
    }
}
