//! Buffers for values and lists of names: they count all bytes, and keep as many as fit.

/// Takes the bytes of an extended attribute, of a list of names or of a symlink's target. The caller of the
/// system call may have asked for the size only, or given too small a buffer; the sink handles that.
///
/// ```
/// use creamery_fuse::protocol::ByteSink;
/// let mut room = [0; 4];
/// let mut sink = ByteSink::new(&mut room);
/// sink.put(b"user.a\0");
/// assert_eq!((sink.len(), sink.fits()), (7, false));
/// ```
#[derive(Debug)]
pub struct ByteSink<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl<'a> ByteSink<'a> {
    /// A sink that keeps as much as `room` holds.
    #[must_use]
    pub fn new(room: &'a mut [u8]) -> Self {
        Self { room, len: 0 }
    }

    /// Appends `bytes`.
    pub fn put(&mut self, bytes: &[u8]) {
        let end = self.len.saturating_add(bytes.len());
        if let Some(place) = self.room.get_mut(self.len..end) {
            place.copy_from_slice(bytes);
        }
        self.len = end;
    }

    /// Appends a name to a list of them: the name and a NUL.
    pub fn put_name(&mut self, name: &[u8]) {
        self.put(name);
        self.put(&[0]);
    }

    /// Number of bytes so far, kept or not.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was put yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether all bytes were kept.
    #[must_use]
    pub const fn fits(&self) -> bool {
        self.len <= self.room.len()
    }

    /// Bytes that fit; 0 when only the size was asked for.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.room.len()
    }
}
