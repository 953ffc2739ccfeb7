//! Buffers for directory entries: as many as fit the reply.

use zerocopy::IntoBytes;

use super::reply::entry_out;
use super::wire;
use crate::types::Entry;

/// A name in a directory, for reading it.
///
/// ```
/// use creamery_fuse::protocol::DirectoryEntry;
/// let dot = DirectoryEntry { ino: 256, offset: 1, kind: 4, name: b"." };
/// assert_eq!(dot.kind, 4);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirectoryEntry<'a> {
    /// Inode number, as in [`Attr::ino`](crate::Attr::ino).
    pub ino: u64,
    /// The cookie with which reading continues *after* this entry. Any number but 0, stable while the
    /// directory is open, and better as long as the filesystem lives; below 2^63, or seekdir(3) fails on it.
    pub offset: u64,
    /// File type (`DT_REG`, ...), 0 if unknown.
    pub kind: u32,
    /// The name.
    pub name: &'a [u8],
}

/// Whether an entry fit into the reply.
///
/// ```
/// use creamery_fuse::protocol::{DirectoryEntry, DirectorySink, Pushed};
/// let mut room = [0; 40];
/// let mut sink = DirectorySink::new(&mut room);
/// let entry = DirectoryEntry { ino: 1, offset: 1, kind: 4, name: b"a" };
/// assert_eq!(sink.push(&entry), Pushed::Yes);
/// assert_eq!(sink.push(&entry), Pushed::Full);
/// ```
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// The entry is in the reply.
    Yes,
    /// The entry is not in the reply, which is full: push no further one.
    Full,
}

#[derive(Debug)]
struct Room<'a> {
    bytes: &'a mut [u8],
    used: usize,
    full: bool,
}

impl Room<'_> {
    /// Appends `head` and the name, padded to 8 bytes, or nothing at all.
    fn push(&mut self, head: &[u8], name: &[u8]) -> Pushed {
        let len = head.len().saturating_add(name.len());
        let padded = len.checked_next_multiple_of(8).unwrap_or(usize::MAX);
        let end = self.used.saturating_add(padded);
        let Some(place) = self.bytes.get_mut(self.used..end).filter(|_| !self.full) else {
            self.full = true;
            return Pushed::Full;
        };
        place[..head.len()].copy_from_slice(head);
        place[head.len()..len].copy_from_slice(name);
        place[len..].fill(0);
        self.used = end;
        Pushed::Yes
    }
}

fn dirent(entry: &DirectoryEntry<'_>) -> wire::Dirent {
    let namelen = u32::try_from(entry.name.len()).unwrap_or(u32::MAX);
    wire::Dirent { ino: entry.ino, off: entry.offset, namelen, kind: entry.kind }
}

/// Takes names for `readdir`.
///
/// ```
/// use creamery_fuse::protocol::{DirectoryEntry, DirectorySink};
/// let mut room = [0; 128];
/// let mut sink = DirectorySink::new(&mut room);
/// let _ = sink.push(&DirectoryEntry { ino: 257, offset: 3, kind: 8, name: b"file" });
/// assert_eq!(sink.len(), 32);
/// ```
#[derive(Debug)]
pub struct DirectorySink<'a> {
    room: Room<'a>,
    /// Inside a [`DirectoryPlusSink`]: empty attributes go before each name.
    plus: bool,
}

impl<'a> DirectorySink<'a> {
    /// A sink that fills `bytes`.
    #[must_use]
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self { room: Room { bytes, used: 0, full: false }, plus: false }
    }

    /// Appends an entry if it fits.
    pub fn push(&mut self, entry: &DirectoryEntry<'_>) -> Pushed {
        assert!(!entry.name.is_empty(), "a directory entry has a name");
        match self.plus {
            true => self.push_plus(entry, &wire::EntryOut::default()),
            false => self.room.push(dirent(entry).as_bytes(), entry.name),
        }
    }

    fn push_plus(&mut self, name: &DirectoryEntry<'_>, entry: &wire::EntryOut) -> Pushed {
        const SPLIT: usize = size_of::<wire::EntryOut>();
        let mut head = [0; PLUS_HEAD];
        head[..SPLIT].copy_from_slice(entry.as_bytes());
        head[SPLIT..].copy_from_slice(dirent(name).as_bytes());
        self.room.push(&head, name.name)
    }

    /// Bytes filled.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.room.used
    }

    /// Whether no entry is in.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.room.used == 0
    }
}

const PLUS_HEAD: usize = size_of::<wire::EntryOut>() + size_of::<wire::Dirent>();

/// Takes names with attributes for `readdirplus`. Each accepted entry gives the kernel a reference to its
/// node, like a lookup; "." and ".." must be pushed without attributes, through [`names`](Self::names).
///
/// ```
/// use std::time::Duration;
/// use creamery_fuse::{Attr, Entry, NodeId};
/// use creamery_fuse::protocol::{DirectoryEntry, DirectoryPlusSink, Pushed};
/// let mut room = [0; 256];
/// let mut sink = DirectoryPlusSink::new(&mut room);
/// let second = Duration::from_secs(1);
/// let node = NodeId::new(9);
/// let found = Entry { node, generation: 0, attr: Attr::default(), attr_valid: second, entry_valid: second };
/// let name = DirectoryEntry { ino: 257, offset: 3, kind: 8, name: b"file" };
/// let mut references = 0;
/// if sink.push(&name, &found) == Pushed::Yes {
///     references += 1; // only now does the kernel hold one
/// }
/// assert_eq!((references, sink.len()), (1, 160));
/// ```
#[derive(Debug)]
pub struct DirectoryPlusSink<'a> {
    names: DirectorySink<'a>,
}

impl<'a> DirectoryPlusSink<'a> {
    /// A sink that fills `bytes`.
    #[must_use]
    pub fn new(bytes: &'a mut [u8]) -> Self {
        let room = Room { bytes, used: 0, full: false };
        Self { names: DirectorySink { room, plus: true } }
    }

    /// Whether an entry with a name of `name_len` bytes still fits, so that attributes are not read and
    /// references not counted in vain.
    #[must_use]
    pub fn has_room(&self, name_len: usize) -> bool {
        let room = &self.names.room;
        let need = PLUS_HEAD.saturating_add(name_len).checked_next_multiple_of(8).unwrap_or(usize::MAX);
        !room.full && need <= room.bytes.len() - room.used
    }

    /// Appends an entry with its attributes if it fits.
    pub fn push(&mut self, name: &DirectoryEntry<'_>, entry: &Entry) -> Pushed {
        assert!(!matches!(name.name, b"" | b"." | b".."), "only a real name carries a reference");
        self.names.push_plus(name, &entry_out(entry))
    }

    /// Returns the sink for names without attributes, which carry no reference.
    pub fn names(&mut self) -> &mut DirectorySink<'a> {
        &mut self.names
    }

    /// Bytes filled.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether no entry is in.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromBytes;

    fn entry(name: &[u8]) -> DirectoryEntry<'_> {
        DirectoryEntry { ino: 300, offset: 7, kind: 8, name }
    }

    #[test]
    fn entries_are_padded_to_8_bytes_with_zeros() {
        let mut room = [0xff; 64];
        let mut sink = DirectorySink::new(&mut room);
        assert_eq!(sink.push(&entry(b"abc")), Pushed::Yes);
        assert_eq!(sink.len(), 32);
        let (raw, rest) = wire::Dirent::read_from_prefix(&room).unwrap();
        assert_eq!(raw, wire::Dirent { ino: 300, off: 7, namelen: 3, kind: 8 });
        assert_eq!(&rest[..8], b"abc\0\0\0\0\0");
    }

    #[test]
    fn after_full_nothing_more_goes_in() {
        let mut room = [0; 64];
        let mut sink = DirectorySink::new(&mut room);
        assert_eq!(sink.push(&entry(b"a")), Pushed::Yes);
        assert_eq!(sink.push(&entry(&[b'x'; 40])), Pushed::Full);
        assert_eq!(sink.push(&entry(b"b")), Pushed::Full, "order would break if a shorter name slipped in");
        assert_eq!(sink.len(), 32);
    }

    #[test]
    fn has_room_agrees_with_push() {
        for size in 0..400 {
            let mut bytes = vec![0; size];
            let mut sink = DirectoryPlusSink::new(&mut bytes);
            for len in [1, 8, 9, 30] {
                let name = vec![b'n'; len];
                let said = sink.has_room(len);
                assert_eq!(sink.names().push(&entry(&name)) == Pushed::Yes, said, "size {size}, name {len}");
            }
        }
    }
}
