//! Sets of small numbers. Each is kept once and identified by a number: equal sets have equal numbers.

use std::collections::HashMap;

/// All distinct sets.
pub(crate) struct Sets {
    members: Vec<Box<[u32]>>,
    names: HashMap<Box<[u32]>, u32>,
    unions: HashMap<(u32, u32), u32>,
    room: usize,
}

impl Sets {
    /// The number of the empty set.
    pub(crate) const EMPTY: u32 = 0;

    /// An empty collection; `bytes` limits the memory for the members of all sets.
    pub(crate) fn new(bytes: u64) -> Self {
        let room = usize::try_from(bytes / 16).unwrap_or(usize::MAX);
        let mut sets = Self { members: Vec::new(), names: HashMap::new(), unions: HashMap::new(), room };
        sets.name(Box::default());
        sets
    }

    fn name(&mut self, members: Box<[u32]>) -> u32 {
        if let Some(name) = self.names.get(&members) {
            return *name;
        }
        self.room = self.room.saturating_sub(members.len() + 4);
        let name = u32::try_from(self.members.len()).expect("fewer sets than fit in the room");
        self.members.push(members.clone());
        self.names.insert(members, name);
        name
    }

    pub(crate) fn single(&mut self, member: u32) -> u32 {
        self.name(Box::new([member]))
    }

    /// The union of both sets; `None` if there is no room for more sets.
    pub(crate) fn union(&mut self, a: u32, b: u32) -> Option<u32> {
        let pair = (a.min(b), a.max(b));
        if a == b || pair.0 == Self::EMPTY {
            return Some(pair.1);
        }
        if let Some(name) = self.unions.get(&pair) {
            return Some(*name);
        }
        let (a, b) = (&self.members[a as usize], &self.members[b as usize]);
        if self.room < a.len() + b.len() + 4 {
            return None;
        }
        let mut both = [&a[..], &b[..]].concat();
        both.sort_unstable();
        both.dedup();
        let name = self.name(both.into());
        self.room = self.room.saturating_sub(4);
        self.unions.insert(pair, name);
        Some(name)
    }

    pub(crate) fn members(&self, name: u32) -> &[u32] {
        &self.members[name as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::Sets;

    #[test]
    fn equal_sets_have_one_name_and_room_is_bounded() {
        let mut sets = Sets::new(1 << 20);
        let [a, b, c] = [7, 3, 9].map(|member| sets.single(member));
        let left = sets.union(a, b).and_then(|ab| sets.union(ab, c)).unwrap();
        let right = sets.union(b, c).and_then(|bc| sets.union(a, bc)).unwrap();
        assert_eq!(left, right);
        assert_eq!(sets.members(left), [3, 7, 9]);
        assert_eq!(sets.union(left, a), Some(left));
        assert_eq!(sets.union(Sets::EMPTY, a), Some(a));
        let mut tiny = Sets::new(300);
        let [a, b] = [1, 2].map(|member| tiny.single(member));
        assert_eq!(tiny.union(a, b), None);
    }
}
