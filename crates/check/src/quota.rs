//! Quota groups: compares the numbers in the quota tree with the use of the subvolumes.
//!
//! With full quotas, a group refers to an extent (a tree block or data, whole) when one of its subvolumes reaches it, and has it
//! exclusively when no other subvolume does. So each extent needs the set of subvolumes that reach it. Most blocks have one parent and
//! share its set. A block with several parents begins a *segment*, and so does the root of a subvolume. One walk over each block finds the
//! segments, their parents and the data extents that each segment refers to. Each set is kept once ([`Sets`]). Data extents need a table,
//! so if there are very many, the walk is repeated for a share of them at a time.
//!
//! With simple quotas an extent belongs to the subvolume that created it, regardless of its users: a tree block has that in its header,
//! data in an owner ref. Extents older than the quotas belong to no subvolume. The walks over the extent tree and the subvolumes sum these
//! up in passing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use creamery_base::{ObjectId, Result, TreeId};
use creamery_format::{BlockRef, Expected, FileExtent, Key, KeyType, RawQgroupInfo, RawQgroupStatus};
use zerocopy::FromBytes;

use crate::hash;
use crate::problem::Problem;
use crate::reader::Reader;
use crate::references::References;
use crate::report::{ProblemSite, Sink};
use crate::sets::Sets;
use crate::walk::{Again, Leaf, Meta, Root, Sequence, TreeBlocks, Walker};

/// Version of the status item.
const VERSION: u64 = 1;
const FLAG_ON: u64 = 1;
const FLAG_RESCAN: u64 = 2;
const FLAG_INCONSISTENT: u64 = 4;
const FLAG_SIMPLE: u64 = 8;
/// Approximate memory of a data extent in the table, bytes.
const EXTENT_BYTES: u64 = 64;

/// Bytes that a group refers to, and those that no other group has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Used {
    referenced: u64,
    exclusive: u64,
}

/// The content of the quota tree.
#[derive(Default)]
pub(crate) struct QuotaTree {
    flags: Option<u64>,
    /// The transaction of its numbers.
    generation: u64,
    /// The first generation that counts with simple quotas.
    since: u64,
    groups: BTreeMap<u64, Used>,
    /// Groups with a limit item, also one of all zeros (no limit).
    limited: BTreeSet<u64>,
    /// The parents of each group.
    parents: BTreeMap<u64, BTreeSet<u64>>,
    /// Pairs of member and parent, from the items of the parents.
    members: BTreeSet<(u64, u64)>,
}

impl Sequence<Vec<u8>> for QuotaTree {
    fn leaf(&mut self, _meta: &Meta, bytes: Vec<u8>) {
        let leaf = BlockRef::new(&bytes);
        for slot in 0..leaf.count() {
            let (key, data) = (leaf.key(slot), leaf.data(slot));
            match key.kind {
                // Linux looks it up by its key, which is all zeros but for the type.
                KeyType::QGROUP_STATUS if (key.objectid.get(), key.offset) == (0, 0) => {
                    let Ok((status, more)) = RawQgroupStatus::ref_from_prefix(data) else { continue };
                    self.flags = (status.version.get() == VERSION).then_some(status.flags.get());
                    self.generation = status.generation.get();
                    self.since = more.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                }
                KeyType::QGROUP_INFO => {
                    let Ok(info) = RawQgroupInfo::ref_from_bytes(data) else { continue };
                    let (referenced, exclusive) = (info.referenced.get(), info.exclusive.get());
                    self.groups.insert(key.offset, Used { referenced, exclusive });
                }
                KeyType::QGROUP_LIMIT => drop(self.limited.insert(key.offset)),
                KeyType::QGROUP_RELATION => {
                    let (a, b) = (key.objectid.get(), key.offset);
                    if a < b {
                        self.parents.entry(a).or_default().insert(b);
                    } else {
                        self.members.insert((b, a));
                    }
                }
                _ => {}
            }
        }
    }
}

impl QuotaTree {
    /// The generation from which on simple quotas count, if they are on.
    pub(crate) fn simple_since(&self) -> Option<u64> {
        let simple = self.flags.is_some_and(|flags| flags & FLAG_SIMPLE != 0);
        simple.then_some(self.since)
    }

    /// Judges the status of a tree that was read completely, as of the transaction `newest`.
    pub(crate) fn judge_status(&self, newest: u64, sink: &Sink) {
        let place = ProblemSite::key(TreeId::QUOTA, Key::new(0.into(), KeyType::QGROUP_STATUS, 0));
        let Some(flags) = self.flags else {
            return sink.add(Problem::QuotaStatusMissing, place, "");
        };
        let unknown = flags & !(FLAG_ON | FLAG_RESCAN | FLAG_INCONSISTENT | FLAG_SIMPLE);
        if unknown != 0 {
            sink.add(Problem::QuotaStatusFlags, place.clone(), format!("0x{unknown:x} of 0x{flags:x}"));
        }
        // Linux takes the numbers for inconsistent then. Simple quotas have another generation there.
        let counts = flags & (FLAG_ON | FLAG_SIMPLE | FLAG_INCONSISTENT) == FLAG_ON;
        if counts && self.generation != newest {
            let message = format!("status of transaction {}, expected {newest}", self.generation);
            sink.add(Problem::QuotaInconsistent, place, message);
        }
    }

    /// Whether the numbers can be compared: there is a status of a known version, and no rescan is running.
    pub(crate) fn can_be_judged(&self) -> bool {
        self.flags.is_some_and(|flags| flags & FLAG_RESCAN == 0)
    }

    /// A subvolume's own group, and all groups that it is a member of, directly or not.
    fn groups_of(&self, tree: u64) -> HashSet<u64> {
        let mut found = HashSet::from([tree]);
        let mut waiting = vec![tree];
        while let Some(group) = waiting.pop() {
            let parents = self.parents.get(&group).into_iter().flatten();
            waiting.extend(parents.copied().filter(|parent| found.insert(*parent)));
        }
        found
    }

    /// The expected numbers of the groups if these sets of subvolumes use these bytes.
    fn expected(&self, usage: &[(Vec<u64>, u64)]) -> BTreeMap<u64, Used> {
        let mut groups_of: HashMap<u64, HashSet<u64>> = HashMap::new();
        let mut expected: BTreeMap<u64, Used> = BTreeMap::new();
        for (trees, bytes) in usage {
            let mut members: HashMap<u64, usize> = HashMap::new();
            for tree in trees {
                let groups = groups_of.entry(*tree).or_insert_with(|| self.groups_of(*tree));
                groups.iter().for_each(|group| *members.entry(*group).or_default() += 1);
            }
            for (group, count) in members {
                let used = expected.entry(group).or_default();
                used.referenced = used.referenced.saturating_add(*bytes);
                if count == trees.len() {
                    used.exclusive = used.exclusive.saturating_add(*bytes);
                }
            }
        }
        expected
    }

    fn judge_relations(&self, sink: &Sink) {
        let listed = |(member, parents): (&u64, &BTreeSet<u64>)| {
            let member = *member;
            parents.iter().map(move |parent| (member, *parent)).collect::<Vec<_>>()
        };
        let upwards: BTreeSet<(u64, u64)> = self.parents.iter().flat_map(listed).collect();
        for &(member, parent) in upwards.symmetric_difference(&self.members) {
            let key = Key::new(member.into(), KeyType::QGROUP_RELATION, parent);
            sink.add(Problem::QuotaRelationHalf, ProblemSite::key(TreeId::QUOTA, key), "");
        }
        for &(member, parent) in upwards.union(&self.members) {
            for group in [member, parent].into_iter().filter(|group| !self.groups.contains_key(group)) {
                let key = Key::new(member.into(), KeyType::QGROUP_RELATION, parent);
                let message = format!("group {}/{}", group >> 48, group & ((1 << 48) - 1));
                sink.add(Problem::QuotaGroupMissing, ProblemSite::key(TreeId::QUOTA, key), message);
            }
        }
    }

    /// Checks that every group has numbers and limits, and that every one of these subvolumes has a group.
    pub(crate) fn judge_groups(&self, subvolumes: impl Iterator<Item = u64>, sink: &Sink) {
        // Else Linux knows that the numbers are wrong, or does not use them.
        if self.flags.is_none_or(|flags| flags & (FLAG_ON | FLAG_INCONSISTENT) != FLAG_ON) {
            return;
        }
        let place =
            |kind, group: u64| ProblemSite::key(TreeId::QUOTA, Key::new(ObjectId::new(0), kind, group));
        for group in self.groups.keys().filter(|group| !self.limited.contains(group)) {
            sink.add(Problem::QuotaGroupHalf, place(KeyType::QGROUP_INFO, *group), "no limits");
        }
        for group in self.limited.iter().filter(|group| !self.groups.contains_key(group)) {
            sink.add(Problem::QuotaGroupHalf, place(KeyType::QGROUP_LIMIT, *group), "no numbers");
        }
        for tree in subvolumes.filter(|tree| !self.groups.contains_key(tree)) {
            sink.add(Problem::QuotaGroupNone, place(KeyType::QGROUP_INFO, tree), "");
        }
    }

    /// Compares every group with the use of its subvolumes.
    pub(crate) fn judge(&self, usage: &[(Vec<u64>, u64)], sink: &Sink) {
        let expected = self.expected(usage);
        let inconsistent = self.flags.is_some_and(|flags| flags & FLAG_INCONSISTENT != 0);
        if inconsistent {
            let place = ProblemSite::key(TreeId::QUOTA, Key::new(0.into(), KeyType::QGROUP_STATUS, 0));
            sink.add(Problem::QuotaInconsistent, place, "");
        }
        self.judge_relations(sink);
        let say = |group: u64, problem, found: u64, want: u64| {
            if found != want && !inconsistent {
                let key = Key::new(ObjectId::new(0), KeyType::QGROUP_INFO, group);
                sink.add(
                    problem,
                    ProblemSite::key(TreeId::QUOTA, key),
                    format!("expected {want}, found {found}"),
                );
            }
        };
        for (group, found) in &self.groups {
            let want = expected.get(group).copied().unwrap_or_default();
            say(*group, Problem::QuotaReferenced, found.referenced, want.referenced);
            say(*group, Problem::QuotaExclusive, found.exclusive, want.exclusive);
        }
    }
}

/// Bytes by the set of subvolumes that use them.
pub(crate) type Usage = Vec<(Vec<u64>, u64)>;

/// A part of the forest that one set of subvolumes reaches: below one block, down to the next ones with several parents.
struct Segment {
    level: u8,
    bytes: u64,
    parents: Vec<u32>,
    /// The subvolume, if the segment begins at its root.
    tree: Option<u32>,
}

/// Data extents of a leaf: address and length.
type DataOfLeaf = Vec<(u64, u64)>;

struct Shares<'a> {
    tables: &'a TreeBlocks,
    node_size: u64,
    segments: Vec<Segment>,
    of_block: HashMap<u64, u32>,
    /// The segments of the nodes from the root down to the current one.
    stack: Vec<u32>,
    /// Length and set of segments by address.
    data: HashMap<u64, (u64, u32)>,
    sets: Sets,
    overflow: bool,
}

impl Shares<'_> {
    fn begin_tree(&mut self, tree: u32) {
        self.stack = vec![self.add(u8::MAX, Vec::new(), Some(tree))];
    }

    fn add(&mut self, level: u8, parents: Vec<u32>, tree: Option<u32>) -> u32 {
        let number = u32::try_from(self.segments.len()).expect("fewer segments than tree blocks");
        self.segments.push(Segment { level, bytes: 0, parents, tree });
        number
    }

    fn current(&self) -> u32 {
        *self.stack.last().expect("the tree's own segment lies at the bottom")
    }

    /// The segment of a block at its first visit.
    fn enter(&mut self, meta: &Meta) -> u32 {
        let mut segment = self.current();
        if self.tables.shared(meta.logical) {
            segment = self.add(meta.level, vec![segment], None);
            self.of_block.insert(meta.logical.get(), segment);
        }
        let bytes = &mut self.segments[segment as usize].bytes;
        *bytes = bytes.saturating_add(self.node_size);
        segment
    }

    /// The bytes of each set of trees.
    fn usage(mut self, memory_limit: u64) -> Option<HashMap<Vec<u32>, u64>> {
        let mut trees = Sets::new(memory_limit);
        let mut of_segment = vec![Sets::EMPTY; self.segments.len()];
        let mut order: Vec<usize> = (0..self.segments.len()).collect();
        // Parents have higher levels, so they come first.
        order.sort_by_key(|number| std::cmp::Reverse(self.segments[*number].level));
        let mut usage: HashMap<u32, u64> = HashMap::new();
        for number in order {
            let segment = &mut self.segments[number];
            let mut set = segment.tree.map_or(Sets::EMPTY, |tree| trees.single(tree));
            segment.parents.sort_unstable();
            segment.parents.dedup();
            for parent in &segment.parents {
                set = trees.union(set, of_segment[*parent as usize])?;
            }
            of_segment[number] = set;
            *usage.entry(set).or_default() += segment.bytes;
        }
        let mut known: HashMap<u32, u32> = HashMap::new();
        for (len, segments) in self.data.values() {
            let set = match known.get(segments) {
                Some(set) => *set,
                None => {
                    let mut set = Sets::EMPTY;
                    for segment in self.sets.members(*segments) {
                        set = trees.union(set, of_segment[*segment as usize])?;
                    }
                    known.insert(*segments, set);
                    set
                }
            };
            let bytes = usage.entry(set).or_default();
            *bytes = bytes.saturating_add(*len);
        }
        Some(usage.into_iter().map(|(set, bytes)| (trees.members(set).to_vec(), bytes)).collect())
    }
}

impl Sequence<DataOfLeaf> for Shares<'_> {
    fn leaf(&mut self, meta: &Meta, extents: DataOfLeaf) {
        let segment = self.enter(meta);
        let own = self.sets.single(segment);
        for (bytenr, len) in extents {
            let entry = self.data.entry(bytenr).or_insert((len, own));
            match self.sets.union(entry.1, own) {
                Some(set) => entry.1 = set,
                None => self.overflow = true,
            }
        }
    }

    fn begin(&mut self, meta: &Meta) {
        let segment = self.enter(meta);
        self.stack.push(segment);
    }

    fn end(&mut self, _meta: &Meta) {
        self.stack.pop();
    }

    fn again(&mut self, want: &Expected, _upper: Option<Key>) -> Again {
        // A block that is not known as shared and is visited twice is reported already.
        if let Some(segment) = self.of_block.get(&want.logical.get()) {
            let parent = self.current();
            self.segments[*segment as usize].parents.push(parent);
        }
        Again::Known
    }
}

fn data_of(leaf: &Leaf<'_>, mine: &dyn Fn(u64) -> bool) -> DataOfLeaf {
    let mut found = Vec::new();
    for slot in 0..leaf.block.count() {
        if leaf.block.key(slot).kind != KeyType::EXTENT_DATA {
            continue;
        }
        let parsed = FileExtent::parse(leaf.block.data(slot));
        if let Ok(FileExtent::Regular(extent) | FileExtent::Prealloc(extent)) = parsed {
            let bytenr = extent.disk_bytenr.get();
            if !extent.is_hole() && mine(bytenr) {
                found.push((bytenr, extent.disk_num_bytes.get()));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// The amount of work, and the host's resources for it.
pub(crate) struct Effort {
    pub(crate) data_extents: u64,
    pub(crate) memory_limit: u64,
    pub(crate) threads: usize,
}

/// The bytes that each set of subvolumes uses. `None` if a part cannot be read, or the sets would exceed the memory limit.
///
/// # Errors
/// The volume does not support this kind of chunk.
pub(crate) fn usage(
    volume_reader: &Reader<'_>,
    roots: &[Root],
    tables: &TreeBlocks,
    effort: &Effort,
) -> Result<Option<Usage>> {
    let quiet = Sink::new(0);
    let reader = Reader::new(volume_reader.volume, &quiet);
    let shares = effort.data_extents.saturating_mul(EXTENT_BYTES) / effort.memory_limit.max(1) + 1;
    let mut usage: HashMap<Vec<u32>, u64> = HashMap::new();
    for share in 0..shares {
        let mine = |bytenr: u64| shares == 1 || (hash::numbers(6, &[bytenr]) >> 1) % shares == share;
        let references = References::new();
        let mut walker = Walker::new(&reader, &references, effort.threads);
        walker.count(false);
        let mut found = Shares {
            tables,
            node_size: if share == 0 { reader.node_size } else { 0 },
            segments: Vec::new(),
            of_block: HashMap::new(),
            stack: Vec::new(),
            data: HashMap::new(),
            sets: Sets::new(effort.memory_limit / 4),
            overflow: false,
        };
        for (number, root) in roots.iter().enumerate() {
            found.begin_tree(u32::try_from(number).unwrap_or(u32::MAX));
            walker.walk(root, &|leaf: &Leaf<'_>| data_of(leaf, &mine), &mut found)?;
        }
        if !walker.complete || found.overflow {
            return Ok(None);
        }
        let Some(part) = found.usage(effort.memory_limit / 4) else { return Ok(None) };
        for (set, bytes) in part {
            let sum = usage.entry(set).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
    let named = |set: Vec<u32>| set.into_iter().map(|number| roots[number as usize].tree.get()).collect();
    Ok(Some(usage.into_iter().map(|(set, bytes)| (named(set), bytes)).collect()))
}
