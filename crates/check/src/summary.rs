//! The meaning of a stretch of a subvolume, in a form in which neighbouring stretches can be joined.
//!
//! Several threads digest a subvolume's leaves, and snapshots share subtrees. Both need the meaning of a stretch of leaves as a value, such
//! that the meaning of two neighbouring stretches follows from their values alone ([`Summary::join`] is associative). The summary of a
//! shared subtree is kept and reused for every snapshot that has it, so the work grows with the blocks, not with the snapshots.
//!
//! A summary has the two inodes at its ends, which may go on outside, and sums over all names. Inodes completely inside were judged when
//! they were closed. In a whole tree the sums are zero:
//! - links: directory entries by index minus inode refs;
//! - types: types in entries minus the types of the inodes that they name;
//! - orphans: inodes without links minus orphan items.

use crate::inode_group::{Group, GroupRules};
use crate::report::Sink;

/// The meaning of a stretch; see the head of this file.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Summary {
    /// The first inode; the only one if there is no `tail`.
    head: Option<Group>,
    tail: Option<Group>,
    pub(crate) links: u64,
    pub(crate) types: u64,
    pub(crate) orphans: u64,
    pub(crate) inodes: u64,
    /// Whether there is a hole before the first and after the last inode.
    torn: (bool, bool),
    /// Whether a part could not be read; then sums prove nothing.
    broken: bool,
}

impl Summary {
    /// A stretch that could not be read.
    pub(crate) fn hole() -> Self {
        Self { torn: (true, true), broken: true, ..Self::default() }
    }

    /// A stretch of (a part of) one inode only.
    pub(crate) fn of(group: Group) -> Self {
        Self { head: Some(group), ..Self::default() }
    }

    /// Joins this stretch and the next one.
    pub(crate) fn join(self, next: Self, rules: &GroupRules, sink: &Sink) -> Self {
        let mut sum = Self {
            head: self.head,
            tail: self.tail,
            links: self.links.wrapping_add(next.links),
            types: self.types.wrapping_add(next.types),
            orphans: self.orphans.wrapping_add(next.orphans),
            inodes: self.inodes + next.inodes,
            torn: (self.torn.0, next.torn.1),
            broken: self.broken || next.broken,
        };
        let Some(mut first) = next.head else {
            // The next stretch is empty, or a hole.
            if next.torn.0 {
                match sum.last_mut() {
                    Some(last) => last.torn = true,
                    None => sum.torn.0 = true,
                }
            }
            sum.torn.1 |= self.torn.1;
            return sum;
        };
        let Some(mut last) = self.tail.or(self.head) else {
            first.torn |= self.torn.1;
            sum.torn.0 |= next.torn.0;
            sum.head = Some(first);
            sum.tail = next.tail;
            return sum;
        };
        last.torn |= next.torn.0;
        first.torn |= self.torn.1;
        if last.ino == first.ino {
            let middle = last.join(first);
            match (self.tail, next.tail) {
                (Some(_), Some(_)) => {
                    sum.close(&middle, rules, sink);
                    sum.tail = next.tail;
                }
                (Some(_), None) => sum.tail = Some(middle),
                (None, _) => {
                    sum.head = Some(middle);
                    sum.tail = next.tail;
                }
            }
            return sum;
        }
        match self.tail {
            Some(_) => sum.close(&last, rules, sink),
            None => sum.head = Some(last),
        }
        match next.tail {
            Some(_) => {
                sum.close(&first, rules, sink);
                sum.tail = next.tail;
            }
            None => sum.tail = Some(first),
        }
        sum
    }

    fn last_mut(&mut self) -> Option<&mut Group> {
        if self.tail.is_some() { self.tail.as_mut() } else { self.head.as_mut() }
    }

    /// Ends the summary of a whole tree.
    pub(crate) fn finish(mut self, rules: &GroupRules, sink: &Sink) -> Self {
        for group in [self.head.take(), self.tail.take()].into_iter().flatten() {
            self.close(&group, rules, sink);
        }
        self
    }

    /// Whether the sums are those of a whole and valid tree.
    pub(crate) const fn adds_up(&self) -> bool {
        matches!((self.links, self.types, self.orphans), (0, 0, 0))
    }

    /// Whether a part of it could not be read.
    pub(crate) const fn is_broken(&self) -> bool {
        self.broken
    }

    /// Ends an inode: no more items of it follow.
    pub(crate) fn close(&mut self, group: &Group, rules: &GroupRules, sink: &Sink) {
        group.judge(rules, sink);
        let (links, types) = group.entry_shares();
        self.links = self.links.wrapping_add(links);
        self.types = self.types.wrapping_add(types);
        if group.is_inode() {
            self.types = self.types.wrapping_sub(group.type_share());
            self.orphans = self.orphans.wrapping_add(group.orphan_share());
            self.inodes += u64::from(group.has_inode());
        }
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::TreeId;

    use super::*;
    use crate::problem::Problem;
    use crate::report::Counts;

    const RULES: GroupRules =
        GroupRules { tree: TreeId::FS, generation: 9, sector_size: 4096, no_holes: true, checksums: true };

    fn stretch(inos: &[u64]) -> Summary {
        let quiet = Sink::new(0);
        inos.iter().fold(Summary::default(), |sum, ino| {
            let mut group = Group::new(*ino);
            group.add_name(1);
            sum.join(Summary::of(group), &RULES, &quiet)
        })
    }

    /// The numbers of closed inodes: each of them lacks its inode item.
    fn closed(parts: &[Summary], fold_right: bool) -> Vec<String> {
        let sink = Sink::new(100);
        let whole = if fold_right {
            parts.iter().rev().fold(Summary::default(), |sum, part| part.join(sum, &RULES, &sink))
        } else {
            parts.iter().fold(Summary::default(), |sum, part| sum.join(*part, &RULES, &sink))
        };
        whole.finish(&RULES, &sink);
        let report = sink.into_report(Counts::default());
        assert!(report.findings.iter().all(|finding| finding.number == Problem::InodeMissing.number()));
        let mut keys: Vec<String> = report.findings.into_iter().filter_map(|it| it.place.key).collect();
        keys.sort();
        keys
    }

    #[test]
    fn putting_together_closes_each_inode_once_whatever_the_order() {
        let parts = [stretch(&[300]), stretch(&[300]), stretch(&[300, 301]), stretch(&[301, 302, 303])];
        let left = closed(&parts, false);
        assert_eq!(left, closed(&parts, true));
        assert_eq!(left.len(), 3, "302 was closed when its stretch was made: {left:?}");
    }

    #[test]
    fn inodes_beside_a_hole_are_not_judged() {
        let parts = [stretch(&[300, 301]), Summary::hole(), stretch(&[302, 303])];
        for fold_right in [false, true] {
            let keys = closed(&parts, fold_right);
            assert_eq!(keys.len(), 2, "{keys:?}");
            assert!(keys[0].contains("300") && keys[1].contains("303"), "{keys:?}");
        }
    }
}
