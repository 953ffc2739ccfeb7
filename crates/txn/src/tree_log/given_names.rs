//! The names in a log, and their inodes: a replay could not give one name to two inodes.

use std::collections::{BTreeMap, HashMap};

use creamery_base::{ObjectId, memory};

use super::inode_log::LogLink;

/// The names that the log of a subvolume gives to inodes, and the numbers of their entries.
#[derive(Default)]
pub(super) struct GivenNames {
    of: HashMap<ObjectId, Vec<LogLink>>,
    names: HashMap<ObjectId, HashMap<Vec<u8>, ObjectId>>,
    numbers: BTreeMap<(ObjectId, u64), ObjectId>,
    /// Bytes of names.
    name_bytes: usize,
}

impl GivenNames {
    /// The inode with a link's name, and the inode with its number.
    pub(super) fn owners(&self, link: &LogLink) -> impl Iterator<Item = ObjectId> {
        let by_name = self.names.get(&link.dir).and_then(|names| names.get(&link.name));
        let by_number = self.numbers.get(&(link.dir, link.index));
        by_name.into_iter().chain(by_number).copied()
    }

    /// The names of an inode.
    pub(super) fn of(&self, ino: ObjectId) -> &[LogLink] {
        self.of.get(&ino).map_or(&[], Vec::as_slice)
    }

    /// The numbers of a directory's entries, each with its inode.
    pub(super) fn entries_of(&self, dir: ObjectId) -> Vec<(u64, ObjectId)> {
        let entries = self.numbers.range((dir, 0)..=(dir, u64::MAX));
        entries.map(|((_, number), ino)| (*number, *ino)).collect()
    }

    /// Gives an inode these names and no others.
    pub(super) fn give(&mut self, ino: ObjectId, links: &[LogLink]) {
        for link in self.of.remove(&ino).unwrap_or_default() {
            self.name_bytes -= 2 * link.name.len();
            let number = (link.dir, link.index);
            if self.numbers.get(&number) == Some(&ino) {
                self.numbers.remove(&number);
            }
            if let Some(names) = self.names.get_mut(&link.dir)
                && names.get(&link.name) == Some(&ino)
            {
                names.remove(&link.name);
            }
        }
        for link in links {
            self.names.entry(link.dir).or_default().insert(link.name.clone(), ino);
            self.numbers.insert((link.dir, link.index), ino);
            self.name_bytes += 2 * link.name.len();
        }
        if !links.is_empty() {
            self.of.insert(ino, links.to_vec());
        }
    }

    /// Memory in use, bytes.
    pub(super) fn memory(&self) -> u64 {
        memory::hash_map::<ObjectId, Vec<LogLink>>(self.of.capacity())
            + memory::hash_map::<ObjectId, HashMap<Vec<u8>, ObjectId>>(self.names.capacity())
            + self
                .names
                .values()
                .map(|names| memory::hash_map::<Vec<u8>, ObjectId>(names.capacity()))
                .sum::<u64>()
            + memory::vec::<((ObjectId, u64), ObjectId)>(self.numbers.len())
            + memory::vec::<LogLink>(self.of.values().map(Vec::len).sum())
            + self.name_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u64, name: &[u8]) -> LogLink {
        LogLink { dir: ObjectId::FIRST_FREE, index, name: name.to_vec() }
    }

    #[test]
    fn a_name_is_one_inode_s() {
        let [first, second] = [257, 258].map(ObjectId::new);
        let mut given = GivenNames::default();
        let owners = |given: &GivenNames, link: &LogLink| given.owners(link).collect::<Vec<_>>();
        given.give(first, &[link(2, b"a"), link(3, b"b")]);
        assert_eq!(owners(&given, &link(3, b"a")), [first, first]);
        assert_eq!(owners(&given, &link(9, b"c")), []);
        // Both are put at once, and have changed their names.
        given.give(second, &[link(4, b"a")]);
        given.give(first, &[link(5, b"c")]);
        assert_eq!(owners(&given, &link(2, b"a")), [second]);
        assert_eq!(given.entries_of(ObjectId::FIRST_FREE), [(4, second), (5, first)]);
        assert_eq!((given.of(first), given.of(second)), (&[link(5, b"c")][..], &[link(4, b"a")][..]));
        given.give(first, &[]);
        given.give(second, &[]);
        let names: usize = given.names.values().map(HashMap::len).sum();
        assert_eq!((names, given.numbers.len(), given.of.len(), given.name_bytes), (0, 0, 0, 0));
    }
}
