//! Groups, their members, and their sums.

use std::collections::{BTreeMap, BTreeSet};

use creamery_base::{Error, ErrorKind, QgroupId, Result, TreeId};
use creamery_format::RawQgroupLimit;

use super::changed::Roots;

/// Limit flags: for referenced bytes, for exclusive bytes.
const MAX_REFERENCED: u64 = 1;
const MAX_EXCLUSIVE: u64 = 2;

/// Bytes of a group.
///
/// ```
/// assert_eq!(creamery_txn::QgroupUsage::default().referenced, 0);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct QgroupUsage {
    /// Of extents that the group reaches.
    pub referenced: u64,
    /// Of extents that no subvolume outside the group reaches.
    pub exclusive: u64,
}

impl QgroupUsage {
    /// The usage, if all of it is exclusive or `apart` is set; else `None`.
    fn alone(self, apart: bool) -> Option<Self> {
        (apart || self.referenced == self.exclusive).then_some(self)
    }

    fn with(self, other: Self) -> Option<Self> {
        Some(Self {
            referenced: self.referenced.checked_add(other.referenced)?,
            exclusive: self.exclusive.checked_add(other.exclusive)?,
        })
    }

    /// Adds or takes bytes. False when there are too few to take, or the sum overflows.
    pub(super) fn change(&mut self, by: Self, gone: bool) -> bool {
        let change = if gone { Change::Take } else { Change::Add };
        let referenced = change.apply(&mut self.referenced, by.referenced);
        change.apply(&mut self.exclusive, by.exclusive) && referenced
    }
}

/// The most that a group may have, bytes; `None` is unlimited.
///
/// ```
/// assert_eq!(creamery_txn::QgroupLimits::default().referenced, None);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct QgroupLimits {
    /// Of extents that the group reaches.
    pub referenced: Option<u64>,
    /// Of extents that no subvolume outside the group reaches.
    pub exclusive: Option<u64>,
}

/// A quota group for display.
///
/// ```
/// use creamery_base::{QgroupId, TreeId};
/// let group = creamery_txn::Qgroup {
///     id: QgroupId::of(TreeId::FS),
///     usage: Default::default(),
///     limits: Default::default(),
///     parents: vec![],
///     members: vec![],
/// };
/// assert_eq!(group.id.level(), 0);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Qgroup {
    /// Its id.
    pub id: QgroupId,
    /// Usage at the last commit, plus known changes since.
    pub usage: QgroupUsage,
    /// Its limits.
    pub limits: QgroupLimits,
    /// The groups of which it is a member.
    pub parents: Vec<QgroupId>,
    /// Its members.
    pub members: Vec<QgroupId>,
}

/// A group.
pub(crate) struct Group {
    pub(super) usage: QgroupUsage,
    pub(super) limit: RawQgroupLimit,
    parents: BTreeSet<QgroupId>,
    members: BTreeSet<QgroupId>,
    /// Bytes promised to writers.
    pub(super) reserved: u64,
    /// Bytes written in the running transaction, whether they are in the sums already or not.
    pub(super) pending: u64,
    /// Whether its sums differ from those in the quota tree.
    pub(super) dirty: bool,
}

impl Group {
    pub(super) fn new(usage: QgroupUsage, limit: RawQgroupLimit) -> Self {
        let (parents, members) = Default::default();
        Self { usage, limit, parents, members, reserved: 0, pending: 0, dirty: false }
    }

    pub(super) fn limits(&self) -> QgroupLimits {
        let flags = self.limit.flags.get();
        QgroupLimits {
            referenced: (flags & MAX_REFERENCED != 0).then(|| self.limit.max_referenced.get()),
            exclusive: (flags & MAX_EXCLUSIVE != 0).then(|| self.limit.max_exclusive.get()),
        }
    }

    /// Bytes for which its limits have room.
    pub(super) fn left(&self) -> u64 {
        let promised = self.reserved.saturating_add(self.pending);
        let below = |used: u64, limit: Option<u64>| {
            limit.map_or(u64::MAX, |most| most.saturating_sub(used.saturating_add(promised)))
        };
        let QgroupLimits { referenced, exclusive } = self.limits();
        below(self.usage.referenced, referenced).min(below(self.usage.exclusive, exclusive))
    }

    pub(super) fn set_limits(&mut self, limits: QgroupLimits) {
        let mut flags = self.limit.flags.get() & !(MAX_REFERENCED | MAX_EXCLUSIVE);
        if limits.referenced.is_some() {
            flags |= MAX_REFERENCED;
        }
        if limits.exclusive.is_some() {
            flags |= MAX_EXCLUSIVE;
        }
        self.limit.flags = flags.into();
        self.limit.max_referenced = limits.referenced.unwrap_or(0).into();
        self.limit.max_exclusive = limits.exclusive.unwrap_or(0).into();
    }
}

/// The effect of an extent's bytes on a sum.
#[derive(Clone, Copy)]
enum Change {
    None,
    Add,
    Take,
}

impl Change {
    const fn between(before: bool, after: bool) -> Self {
        match (before, after) {
            (false, true) => Self::Add,
            (true, false) => Self::Take,
            _ => Self::None,
        }
    }

    /// Applies it to a sum. False when there is too little to take.
    fn apply(self, sum: &mut u64, len: u64) -> bool {
        let changed = match self {
            Self::None => return true,
            Self::Add => sum.checked_add(len),
            Self::Take => sum.checked_sub(len),
        };
        *sum = changed.unwrap_or(0);
        changed.is_some()
    }
}

/// All groups.
#[derive(Default)]
pub(crate) struct Forest {
    groups: BTreeMap<QgroupId, Group>,
    /// Number of pairs of a member and its group.
    relations: usize,
}

impl Forest {
    pub(super) fn get(&self, id: QgroupId) -> Option<&Group> {
        self.groups.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: QgroupId) -> Option<&mut Group> {
        self.groups.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: QgroupId, group: Group) {
        self.groups.insert(id, group);
    }

    /// The most items that describe all groups.
    pub(super) fn items(&self) -> usize {
        2 * (self.groups.len() + self.relations) + 1
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (QgroupId, &mut Group)> {
        self.groups.iter_mut().map(|(id, group)| (*id, group))
    }

    pub(super) fn is_limited(&self) -> bool {
        self.groups.values().any(|group| group.limits() != QgroupLimits::default())
    }

    /// All groups, for display.
    pub(super) fn list(&self) -> Vec<Qgroup> {
        let shown = |(id, group): (&QgroupId, &Group)| Qgroup {
            id: *id,
            usage: group.usage,
            limits: group.limits(),
            parents: group.parents.iter().copied().collect(),
            members: group.members.iter().copied().collect(),
        };
        self.groups.iter().map(shown).collect()
    }

    pub(super) fn parents(&self, id: QgroupId) -> impl Iterator<Item = QgroupId> {
        self.groups.get(&id).into_iter().flat_map(|group| group.parents.iter().copied())
    }

    /// Makes `member` a member of `group`. Errors: invalid; not found; already exists.
    pub(super) fn assign(&mut self, member: QgroupId, group: QgroupId) -> Result<()> {
        if member.level() >= group.level() {
            let message = format!("quota group {member} cannot join {group}: expected a higher level");
            return Err(Error::invalid(message));
        }
        for id in [member, group] {
            if !self.groups.contains_key(&id) {
                return Err(Error::new(ErrorKind::NotFound, format!("quota group {id}")));
            }
        }
        let below = self.groups.get_mut(&member).expect("it was looked for");
        if !below.parents.insert(group) {
            let message = format!("quota group {member} as a member of {group}");
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        self.groups.get_mut(&group).expect("it was looked for").members.insert(member);
        self.relations += 1;
        Ok(())
    }

    /// Ends a membership. False when there was none.
    pub(super) fn unassign(&mut self, member: QgroupId, group: QgroupId) -> bool {
        let was = self.groups.get_mut(&member).is_some_and(|below| below.parents.remove(&group));
        if let Some(above) = self.groups.get_mut(&group) {
            above.members.remove(&member);
        }
        self.relations -= usize::from(was);
        was
    }

    /// Removes a group. Errors: not found; in use: it has members.
    pub(super) fn remove(&mut self, id: QgroupId) -> Result<Vec<QgroupId>> {
        let missing = || Error::new(ErrorKind::NotFound, format!("quota group {id}"));
        let group = self.groups.get(&id).ok_or_else(missing)?;
        if let Some(member) = group.members.first() {
            return Err(Error::new(ErrorKind::Busy, format!("quota group {id} has member {member}")));
        }
        let parents: Vec<_> = group.parents.iter().copied().collect();
        for &parent in &parents {
            self.unassign(id, parent);
        }
        self.groups.remove(&id);
        Ok(parents)
    }

    /// The group and all groups above it, each once.
    pub(super) fn with_ancestors(&self, id: QgroupId) -> Vec<QgroupId> {
        self.reached(id, |group| &group.parents).into_iter().collect()
    }

    /// The group of a subvolume and all groups above it. Empty if the subvolume's number is that of a group of groups.
    pub(super) fn groups_of(&self, subvolume: TreeId) -> Vec<QgroupId> {
        let id = QgroupId::of(subvolume);
        if id.level() == 0 { self.with_ancestors(id) } else { Vec::new() }
    }

    /// The subvolumes in a group and in all groups below it.
    pub(super) fn subvolumes(&self, id: QgroupId) -> BTreeSet<TreeId> {
        self.reached(id, |group| &group.members).into_iter().filter_map(QgroupId::subvolume).collect()
    }

    /// The usage that the subvolumes in `member` bring to `group` and to all groups above it; `None` where no sum gives it. A subvolume that reaches
    /// one of these by another way brings nothing to it: call this while `member` is no member of `group`. With `apart`, no two subvolumes count the same bytes.
    pub(super) fn brought(
        &self,
        member: QgroupId,
        group: QgroupId,
        apart: bool,
    ) -> Vec<(QgroupId, Option<QgroupUsage>)> {
        let above = self.with_ancestors(group);
        let subvolumes = self.subvolumes(member);
        let mut new = vec![(0, Some(QgroupUsage::default())); above.len()];
        for id in subvolumes.iter().map(|&subvolume| QgroupId::of(subvolume)) {
            let ways = self.reached(id, |group| &group.parents);
            let brings = self.groups[&id].usage.alone(apart);
            for (_, (count, sum)) in above.iter().zip(&mut new).filter(|(id, _)| !ways.contains(id)) {
                *count += 1;
                *sum = sum.zip(brings).and_then(|(sum, brings)| sum.with(brings));
            }
        }
        // The member's own sum is right even where its subvolumes share among themselves.
        let whole = self.groups.get(&member).and_then(|group| group.usage.alone(apart));
        let told = |(id, (count, sum))| (id, if count == subvolumes.len() { whole } else { sum });
        above.into_iter().zip(new).map(told).collect()
    }

    /// The group, and all that is reached from it by `next`. It follows each once: there may be a great many ways.
    fn reached(&self, id: QgroupId, next: impl Fn(&Group) -> &BTreeSet<QgroupId>) -> BTreeSet<QgroupId> {
        let (mut found, mut left) = (BTreeSet::new(), vec![id]);
        while let Some(id) = left.pop() {
            if let Some(group) = self.groups.get(&id)
                && found.insert(id)
            {
                left.extend(next(group));
            }
        }
        found
    }

    /// Counts an extent of one subvolume that comes or goes. False when a sum was too small.
    pub(super) fn count_one(&mut self, root: TreeId, len: u64, gone: bool) -> bool {
        if QgroupId::of(root).level() > 0 {
            return true;
        }
        let change = if gone { Change::Take } else { Change::Add };
        self.count_in(QgroupId::of(root), |group| {
            let referenced = change.apply(&mut group.usage.referenced, len);
            change.apply(&mut group.usage.exclusive, len) && referenced
        })
    }

    /// Calls `count` for a group and all groups above it. False when any call was false.
    pub(super) fn count_in(&mut self, id: QgroupId, mut count: impl FnMut(&mut Group) -> bool) -> bool {
        let mut all = true;
        let alone = self.groups.get(&id).is_some_and(|group| group.parents.is_empty());
        let ids = if alone { vec![id] } else { self.with_ancestors(id) };
        for id in ids {
            let group = self.groups.get_mut(&id).expect("it was found");
            group.dirty = true;
            all &= count(group);
        }
        all
    }

    /// Counts an extent whose set of subvolumes changes. False when a sum was too small.
    pub(super) fn count(&mut self, before: &Roots, after: &Roots, len: u64) -> bool {
        if before == after {
            return true;
        }
        let mut seen: BTreeMap<QgroupId, (usize, usize)> = BTreeMap::new();
        for root in before {
            self.groups_of(*root).iter().for_each(|&id| seen.entry(id).or_default().0 += 1);
        }
        for root in after {
            self.groups_of(*root).iter().for_each(|&id| seen.entry(id).or_default().1 += 1);
        }
        let mut all = true;
        for (id, (was, is)) in seen {
            let alone = |reach: usize, of: &Roots| reach > 0 && reach == of.len();
            let referenced = Change::between(was > 0, is > 0);
            let exclusive = Change::between(alone(was, before), alone(is, after));
            let group = self.groups.get_mut(&id).expect("it was found");
            let usage = group.usage;
            all &= referenced.apply(&mut group.usage.referenced, len);
            all &= exclusive.apply(&mut group.usage.exclusive, len);
            group.dirty |= group.usage != usage;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> Group {
        Group::new(QgroupUsage::default(), super::super::items::no_limit())
    }

    fn id(level: u16, number: u64) -> QgroupId {
        QgroupId::new(level, number).expect("small")
    }

    /// Subvolumes 256 and 257 in 1/1, 258 in 1/2, all of that in 2/1.
    fn forest() -> Forest {
        let mut forest = Forest::default();
        for (level, number) in [(0, 256), (0, 257), (0, 258), (1, 1), (1, 2), (2, 1)] {
            forest.insert(id(level, number), group());
        }
        for (member, above) in
            [((0, 256), (1, 1)), ((0, 257), (1, 1)), ((0, 258), (1, 2)), ((1, 1), (2, 1)), ((1, 2), (2, 1))]
        {
            forest.assign(id(member.0, member.1), id(above.0, above.1)).expect("a member");
        }
        forest
    }

    fn usage(forest: &Forest, level: u16, number: u64) -> (u64, u64) {
        let QgroupUsage { referenced, exclusive } = forest.get(id(level, number)).expect("a group").usage;
        (referenced, exclusive)
    }

    fn roots(ids: &[u64]) -> Roots {
        ids.iter().map(|&id| TreeId::new(id)).collect()
    }

    #[test]
    fn a_group_counts_an_extent_once_and_alone_when_nobody_outside_has_it() {
        let mut forest = forest();
        assert!(forest.count(&roots(&[]), &roots(&[256, 257]), 10));
        assert_eq!(
            [usage(&forest, 0, 256), usage(&forest, 1, 1), usage(&forest, 2, 1)],
            [(10, 0), (10, 10), (10, 10)]
        );
        assert!(forest.count(&roots(&[256, 257]), &roots(&[256, 258]), 10));
        assert_eq!([usage(&forest, 0, 257), usage(&forest, 0, 258)], [(0, 0), (10, 0)]);
        assert_eq!(
            [usage(&forest, 1, 1), usage(&forest, 1, 2), usage(&forest, 2, 1)],
            [(10, 0), (10, 0), (10, 10)]
        );
        // A subvolume without a group counts as an outsider, too.
        assert!(forest.count(&roots(&[256, 258]), &roots(&[256, 999]), 10));
        assert_eq!([usage(&forest, 0, 256), usage(&forest, 2, 1)], [(10, 0), (10, 0)]);
        assert!(forest.count(&roots(&[256, 999]), &roots(&[256]), 10));
        assert_eq!([usage(&forest, 0, 256), usage(&forest, 1, 1)], [(10, 10), (10, 10)]);
        assert!(forest.count_one(TreeId::new(256), 10, true));
        assert!((256..259).all(|number| usage(&forest, 0, number) == (0, 0)));
        assert!(!forest.count_one(TreeId::new(256), 10, true), "there is nothing to take");
        assert_eq!(usage(&forest, 0, 256), (0, 0));
    }

    #[test]
    fn what_reaches_a_group_by_two_ways_is_brought_once() {
        let mut forest = forest();
        for (number, usage) in [(256, (10, 10)), (257, (20, 20)), (258, (40, 30))] {
            let (referenced, exclusive) = usage;
            forest.get_mut(id(0, number)).expect("a group").usage = QgroupUsage { referenced, exclusive };
        }
        forest.get_mut(id(1, 1)).expect("a group").usage = QgroupUsage { referenced: 30, exclusive: 30 };
        let brought = |forest: &Forest, member, group, apart| -> Vec<_> {
            let brought = forest.brought(member, group, apart).into_iter();
            brought.map(|(id, usage)| (id, usage.map(|usage| (usage.referenced, usage.exclusive)))).collect()
        };
        let some = |referenced, exclusive| Some((referenced, exclusive));
        // All of them are in 2/1 already.
        let wanted = [(id(1, 2), some(10, 10)), (id(2, 1), some(0, 0))];
        assert_eq!(brought(&forest, id(0, 256), id(1, 2), false), wanted);
        // Other subvolumes share the extents of 258.
        forest.insert(id(1, 3), group());
        assert_eq!(brought(&forest, id(0, 258), id(1, 3), false), [(id(1, 3), None)]);
        assert_eq!(brought(&forest, id(0, 258), id(1, 3), true), [(id(1, 3), some(40, 30))]);
        // Of the two in 1/1 one is there.
        forest.insert(id(2, 2), group());
        forest.assign(id(0, 256), id(2, 2)).expect("a member");
        assert_eq!(brought(&forest, id(1, 1), id(2, 2), false), [(id(2, 2), some(20, 20))]);
        forest.get_mut(id(0, 257)).expect("a group").usage.exclusive = 19;
        assert_eq!(brought(&forest, id(1, 1), id(2, 2), false), [(id(2, 2), None)]);
        assert_eq!(brought(&forest, id(1, 1), id(1, 3), false), [(id(1, 3), some(30, 30))]);
    }

    #[test]
    fn members_have_lower_levels() {
        let mut forest = forest();
        let errors = [((1, 1), (1, 2)), ((2, 1), (1, 1)), ((0, 256), (1, 9)), ((0, 256), (1, 1))].map(
            |(member, above)| {
                forest.assign(id(member.0, member.1), id(above.0, above.1)).expect_err("wrong").kind()
            },
        );
        let wanted =
            [ErrorKind::InvalidInput, ErrorKind::InvalidInput, ErrorKind::NotFound, ErrorKind::AlreadyExists];
        assert_eq!(errors, wanted);
        assert_eq!(forest.remove(id(1, 1)).expect_err("it has members").kind(), ErrorKind::Busy);
        assert_eq!(forest.subvolumes(id(2, 1)), roots(&[256, 257, 258]));
        assert!(forest.unassign(id(0, 258), id(1, 2)) && !forest.unassign(id(0, 258), id(1, 2)));
        assert_eq!(forest.remove(id(1, 2)).expect("it has none"), [id(2, 1)]);
        assert_eq!(forest.subvolumes(id(2, 1)), roots(&[256, 257]));
    }
}
