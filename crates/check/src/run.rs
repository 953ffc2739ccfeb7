//! The order of a check.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::{DevId, ObjectId, Result, TreeId};
use creamery_format::{BlockRef, CompatRo, Incompat, Key, KeyType};
use creamery_volume::Volume;

use crate::bad_data::BadData;
use crate::chunks::{ChunkSequence, ChunkTable, ChunkTree, DeviceExtents};
use crate::csums::{SumsContext, SumsSequence};
use crate::extents::{BlockGroup, ExtentSequence, Extents, block_group, bytes_of};
use crate::features::Features;
use crate::free_space::FreeSpaceSequence;
use crate::fs_tree::{self, LeafContext, Memory, Nothing, SubvolumeSequence};
use crate::inode_group::GroupRules;
use crate::links;
use crate::logs::{LogData, LogRoots, LogSequence};
use crate::options::{CheckOptions, Progress};
use crate::parity::ParityCheck;
use crate::problem::Problem;
use crate::quota::{self, QuotaTree};
use crate::ranges::Ranges;
use crate::reader::{Copies, Reader};
use crate::references::References;
use crate::report::{Counts, ProblemSite, Report, Sink};
use crate::roots::{Roots, UuidTree, holds_block, lookup};
use crate::superblocks;
use crate::unwritten::Unwritten;
use crate::walk::{Leaf, Meta, Root, Sequence, Walker};

/// Checks a whole filesystem.
///
/// ```no_run
/// # fn main() -> Result<(), creamery_base::Error> {
/// use creamery_check::{CheckOptions, NoProgress, check};
/// use creamery_device::{Access, FileDevice};
/// use creamery_volume::{Mode, Volume};
/// let device = FileDevice::open("disk.img", Access::ReadOnly)?;
/// let volume = Volume::open(vec![std::sync::Arc::new(device)], Mode::ReadOnly)?;
/// let report = check(&volume, &CheckOptions::default(), &NoProgress)?;
/// for finding in &report.findings {
///     println!("{finding}");
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// No verdict is possible: a feature or profile is not supported, or a device is missing. Damage, and devices that fail to read a block,
/// are findings.
pub fn check(volume: &Volume, options: &CheckOptions, progress: &dyn Progress) -> Result<Report> {
    let sink = Sink::new(options.findings_limit);
    let counts = {
        let copies = if options.reads_data() { Copies::All } else { Copies::UpToGood };
        let reader = Reader::new(volume, &sink).looking_at(copies);
        let references = References::new();
        let features = Features::new(volume.superblock().incompat());
        Check {
            reader: &reader,
            options,
            progress,
            references: &references,
            features: &features,
            counts: Counts::default(),
        }
        .run()?
    };
    Ok(sink.into_report(counts))
}

struct Check<'a> {
    reader: &'a Reader<'a>,
    options: &'a CheckOptions,
    progress: &'a dyn Progress,
    references: &'a References,
    features: &'a Features,
    counts: Counts,
}

/// Results of earlier phases that later ones need.
struct Found {
    roots: Roots,
    extents: Extents,
    chunks: ChunkTree,
    table: ChunkTable,
    quota: QuotaTree,
    logs: LogData,
}

impl Check<'_> {
    fn run(mut self) -> Result<Counts> {
        let mut walker = Walker::new(self.reader, self.references, self.options.threads);
        self.progress.phase("chunks");
        let chunks = self.chunk_tree(&mut walker)?;
        self.progress.phase("roots");
        let mut roots = Roots::default();
        let roots_complete = walker.walk(&self.root_tree(), &self.with_data(bytes_of), &mut roots)?;
        if self.reader.volume.has_stale_members() {
            roots.expect_one_history(self.reader.volume)?;
        }
        roots.judge_items(&self.required_trees(), roots_complete, self.reader);
        if roots_complete {
            roots.judge_default(self.features, self.reader.sink);
        }
        let mut quota = QuotaTree::default();
        let mut quota_complete = false;
        if let Some(root) = roots.find(TreeId::QUOTA) {
            quota_complete = walker.walk(&root, &bytes_of, &mut quota)?;
            if quota_complete {
                quota.judge_status(self.reader.generation.get(), self.reader.sink);
            }
        }
        let logs = self.logs(&mut walker)?;
        let log_blocks = logs.blocks;
        self.progress.phase("extents");
        let mut table = chunks.table();
        let mut extents_complete = roots_complete;
        let mut extents = Extents::default();
        if let Some(root) = roots.find(TreeId::EXTENT) {
            let sequence = self.extent_sequence(self.references, &mut table, false);
            let mut sequence = sequence.owned_since(quota.simple_since());
            extents_complete &= walker.walk(&root, &bytes_of, &mut sequence)?;
            extents = sequence.finish();
        }
        let mut groups_complete = extents_complete;
        if let Some(root) = roots.find(TreeId::BLOCK_GROUP) {
            let mut groups = Groups(std::mem::take(&mut extents.groups));
            groups_complete &= walker.walk(&root, &bytes_of, &mut groups)?;
            extents.groups = groups.0;
        }
        let mut found = Found { roots, extents, chunks, table, quota, logs };
        let owned = std::mem::take(&mut found.extents.owned);
        walker.set_tables(&found.extents.tree_blocks);
        self.devices(&mut walker, &found, groups_complete)?;
        self.free_space(&mut walker, &found, extents_complete)?;
        let (sums, bad) = self.checksums(&mut walker, &found, extents_complete)?;
        if self.options.check_parity && extents_complete {
            self.parity(&found, sums.as_ref(), &bad);
        }
        self.space_caches(&found, extents_complete);
        let owned = self.subvolumes(&mut walker, &found, (sums.as_ref(), &bad), owned)?;
        bad.report(self.reader.sink);
        self.other_trees(&mut walker, &found)?;
        let complete = walker.complete;
        self.counts.tree_blocks = walker.blocks_seen() - log_blocks;
        self.quotas(&found, owned, complete && quota_complete)?;
        self.progress.tree_blocks(walker.blocks_seen());
        self.owners(&mut walker, &found)?;
        drop(walker);
        self.progress.phase("references");
        self.explain_references(&found, complete, extents_complete)?;
        self.features.report(self.reader.sink);
        self.counts.trees = found.roots.items.len() as u64 + 2;
        self.counts.data_extents = found.extents.data_extents;
        self.counts.data_bytes = found.extents.data_bytes;
        Ok(self.counts)
    }

    fn root_tree(&self) -> Root {
        let superblock = self.reader.volume.superblock();
        let (logical, level) = superblock.root();
        Root::unshared(TreeId::ROOT, logical, level, superblock.generation())
    }

    fn chunk_root(&self) -> Root {
        let (logical, level, generation) = self.reader.volume.superblock().chunk_root();
        Root::unshared(TreeId::CHUNK, logical, level, generation)
    }

    fn required_trees(&self) -> Vec<TreeId> {
        let superblock = self.reader.volume.superblock();
        let mut trees = vec![TreeId::EXTENT, TreeId::DEV, TreeId::FS, TreeId::CSUM, TreeId::DATA_RELOC];
        if superblock.compat_ro().contains(CompatRo::FREE_SPACE_TREE) {
            trees.push(TreeId::FREE_SPACE);
        }
        if superblock.compat_ro().contains(CompatRo::BLOCK_GROUP_TREE) {
            trees.push(TreeId::BLOCK_GROUP);
        }
        trees
    }

    /// A digest that also notes the data that a leaf refers to (the root tree has files, too, in filesystems with the old free space
    /// cache).
    fn with_data<'s, T>(
        &'s self,
        digest: impl Fn(&Leaf<'_>) -> T + Sync + 's,
    ) -> impl Fn(&Leaf<'_>) -> T + Sync + 's {
        move |leaf| {
            fs_tree::find_all_data(self.references, leaf);
            digest(leaf)
        }
    }

    fn chunk_tree(&self, walker: &mut Walker<'_>) -> Result<ChunkTree> {
        let (sink, volume) = (self.reader.sink, self.reader.volume);
        let mut sequence = ChunkSequence { sink, volume, found: ChunkTree::default() };
        let is_whole = walker.walk(&self.chunk_root(), &bytes_of, &mut sequence)?;
        if is_whole {
            sequence.found.compare_superblock(volume, sink);
        }
        // Every block has this in its header; a block without it is a finding.
        self.features.see(Incompat::MIXED_BACKREF, ProblemSite::default);
        sequence.found.see_features(self.features);
        let devices: Vec<DevId> = sequence.found.device_ids().collect();
        // A device that only a damaged block lists is not foreign.
        if is_whole {
            volume.judge_devices(&devices)?;
        }
        superblocks::check(volume, sequence.found.devices(), sink);
        superblocks::judge_numbers(volume, sink);
        Ok(sequence.found)
    }

    fn extent_sequence<'s>(
        &'s self,
        references: &'s References,
        table: &'s mut ChunkTable,
        references_only: bool,
    ) -> ExtentSequence<'s> {
        ExtentSequence::new(self.reader, references, self.features, table, references_only)
    }

    fn devices(&self, walker: &mut Walker<'_>, found: &Found, groups_complete: bool) -> Result<()> {
        self.progress.phase("devices");
        let sink = self.reader.sink;
        if let Some(root) = found.roots.find(TreeId::DEV) {
            let mut extents = DeviceExtents::default();
            let complete = walker.walk(&root, &bytes_of, &mut extents)?;
            found.chunks.compare_device_tree(extents, complete, sink);
        }
        let groups = &found.extents.groups;
        found.chunks.compare_groups(groups, &found.table, groups_complete, sink);
        let want = groups.iter().fold(0_u64, |sum, group| sum.saturating_add(group.used));
        let used = self.reader.volume.superblock().bytes_used();
        if groups_complete && used != want {
            let message = format!("expected {want}, found {used}");
            sink.add(Problem::SuperblockBytesUsed, ProblemSite::default(), message);
        }
        Ok(())
    }

    fn free_space(&self, walker: &mut Walker<'_>, found: &Found, extents_complete: bool) -> Result<()> {
        let Some(root) = found.roots.find(TreeId::FREE_SPACE) else { return Ok(()) };
        self.progress.phase("free space");
        let valid = self.reader.volume.superblock().compat_ro().contains(CompatRo::FREE_SPACE_TREE_VALID);
        if !valid || !extents_complete {
            walker.walk(&root, &|_: &Leaf<'_>| (), &mut Nothing)?;
            return Ok(());
        }
        let mut sequence = FreeSpaceSequence::new(
            self.reader.sink,
            &found.extents.used,
            &found.table,
            &found.extents.groups,
            self.reader.sector_size,
        );
        let complete = walker.walk(&root, &bytes_of, &mut sequence)?;
        sequence.finish(complete);
        Ok(())
    }

    /// Data with checksums (`None` if the checksum tree could not be read completely), and the data that does not match.
    fn checksums(
        &mut self,
        walker: &mut Walker<'_>,
        found: &Found,
        extents_complete: bool,
    ) -> Result<(Option<Ranges>, BadData)> {
        let Some(root) = found.roots.find(TreeId::CSUM) else {
            return Ok((None, BadData::new(Vec::new())));
        };
        self.progress.phase("checksums");
        let verified = AtomicU64::new(0);
        let context = SumsContext {
            reader: self.reader,
            read_data: self.options.reads_data(),
            progress: self.progress,
            verified: &verified,
        };
        if extents_complete {
            found.logs.judge_places(&found.extents.data, self.reader.sink);
        }
        let logged = found.logs.ranges();
        let mut sequence = SumsSequence {
            reader: self.reader,
            data: extents_complete.then_some(&found.extents.data),
            logged: &logged,
            ranges: Ranges::default(),
            bytes: 0,
            end: 0,
            bad: Vec::new(),
            bad_limit: self.options.findings_limit,
        };
        let complete = walker.walk(&root, &|leaf: &Leaf<'_>| context.digest(leaf), &mut sequence)?;
        self.counts.checksummed_bytes = sequence.bytes;
        self.counts.verified_bytes = verified.load(Ordering::Relaxed);
        if complete {
            found.logs.judge(&sequence.ranges, self.reader.sink);
        }
        Ok((complete.then_some(sequence.ranges), BadData::new(sequence.bad)))
    }

    fn parity(&mut self, found: &Found, sums: Option<&Ranges>, bad: &BadData) {
        self.progress.phase("parity");
        let (reader, extents) = (self.reader, &found.extents);
        // Bad sectors beyond the limit of findings are not known.
        let sums = sums.filter(|_| bad.len() < self.options.findings_limit);
        let check = ParityCheck { reader, used: &extents.used, sums, bad, tree_blocks: &extents.tree_blocks };
        self.counts.parity_bytes = check.run();
    }

    /// Judges caches of the old kind, unless all of them are out of date.
    fn space_caches(&self, found: &Found, extents_complete: bool) {
        let superblock = self.reader.volume.superblock();
        let current = superblock.raw().cache_generation.get() == superblock.generation().get();
        if current && extents_complete {
            let extents = &found.extents;
            found.roots.caches.judge(self.reader, &extents.groups, &extents.used, &found.table);
        }
    }

    /// Judges quota groups, unless a subvolume is being deleted: then the numbers are about to change.
    fn quotas(&self, found: &Found, owned: HashMap<u64, u64>, complete: bool) -> Result<()> {
        let subvolumes: Vec<Root> =
            found.roots.roots().map(|(root, _)| root).filter(|root| root.tree.is_subvolume()).collect();
        if !complete || !found.quota.can_be_judged() || subvolumes.iter().any(|root| root.dropped.is_some()) {
            return Ok(());
        }
        self.progress.phase("quotas");
        let living =
            found.roots.roots().filter(|(root, item)| root.tree.is_subvolume() && item.refs.get() > 0);
        found.quota.judge_groups(living.map(|(root, _)| root.tree.get()), self.reader.sink);
        if found.quota.simple_since().is_some() {
            let usage: Vec<_> = owned.into_iter().map(|(tree, bytes)| (vec![tree], bytes)).collect();
            found.quota.judge(&usage, self.reader.sink);
            return Ok(());
        }
        let effort = quota::Effort {
            data_extents: found.extents.data_extents,
            memory_limit: self.options.memory_limit,
            threads: self.options.threads,
        };
        match quota::usage(self.reader, &subvolumes, &found.extents.tree_blocks, &effort)? {
            Some(usage) => found.quota.judge(&usage, self.reader.sink),
            None => self.reader.sink.add(Problem::QuotaUncounted, ProblemSite::tree(TreeId::QUOTA), ""),
        }
        Ok(())
    }

    /// Judges files and directories. For simple quotas it takes and returns bytes by the tree that created them.
    fn subvolumes(
        &mut self,
        walker: &mut Walker<'_>,
        found: &Found,
        (sums, bad): (Option<&Ranges>, &BadData),
        mut owned: HashMap<u64, u64>,
    ) -> Result<HashMap<u64, u64>> {
        self.progress.phase("files");
        let superblock = self.reader.volume.superblock();
        let mut memory = Memory::default();
        let unwritten = Unwritten::new();
        for (root, item) in found.roots.roots().filter(|(root, _)| root.tree.is_shareable()) {
            let rules = GroupRules {
                tree: root.tree,
                generation: self.reader.generation.get(),
                sector_size: self.reader.sector_size,
                no_holes: superblock.incompat().contains(Incompat::NO_HOLES),
                checksums: root.tree != TreeId::DATA_RELOC && sums.is_some(),
            };
            let context = LeafContext {
                rules,
                reader: self.reader,
                sink: self.reader.sink,
                references: self.references,
                features: self.features,
                unwritten: &unwritten,
                sums,
                bad,
                read_data: self.options.reads_data(),
            };
            let digest = |leaf: &Leaf<'_>| fs_tree::digest(&context, leaf);
            let tables = &found.extents.tree_blocks;
            let sequence = SubvolumeSequence::new(rules, self.reader.sink, tables, &mut memory);
            let mut sequence = sequence.owned_since(found.quota.simple_since());
            let complete = walker.walk(&root, &digest, &mut sequence)?;
            for (tree, blocks) in sequence.take_owned() {
                *owned.entry(tree).or_default() += blocks * self.reader.node_size;
            }
            self.progress.tree_blocks(walker.blocks_seen());
            if root.dropped.is_some() {
                continue; // half of it is gone already, which is valid
            }
            let summary = sequence.finish();
            self.counts.inodes = self.counts.inodes.saturating_add(summary.inodes);
            if !complete || summary.is_broken() {
                continue;
            }
            if !summary.adds_up() {
                links::explain(self.reader, &root, summary.inodes, self.options.memory_limit)?;
            }
            let directory = Key::new(ObjectId::FIRST_FREE, KeyType::INODE_ITEM, 0);
            let (named, want) = (item.root_dirid.get(), ObjectId::FIRST_FREE.get());
            if named != want {
                let message = format!("root item names inode {named}, expected {want}");
                self.reader.sink.add(Problem::RootDirectory, ProblemSite::tree(root.tree), message);
            }
            if lookup(self.reader, &root, directory)?.is_none() {
                self.reader.sink.add(Problem::RootDirectory, ProblemSite::key(root.tree, directory), "");
            }
        }
        let shareable: Vec<Root> =
            found.roots.roots().map(|(root, _)| root).filter(|root| root.tree.is_shareable()).collect();
        unwritten.report(self.reader, &shareable, self.options.threads)?;
        found.roots.judge_refs(self.reader)?;
        Ok(owned)
    }

    fn other_trees(&self, walker: &mut Walker<'_>, found: &Found) -> Result<()> {
        self.progress.phase("other trees");
        const JUDGED: [TreeId; 7] = [
            TreeId::EXTENT,
            TreeId::BLOCK_GROUP,
            TreeId::DEV,
            TreeId::FREE_SPACE,
            TreeId::CSUM,
            TreeId::UUID,
            TreeId::QUOTA,
        ];
        let rest = |root: &Root| !JUDGED.contains(&root.tree) && !root.tree.is_shareable();
        for (root, _) in found.roots.roots().filter(|(root, _)| rest(root)) {
            walker.walk(&root, &self.with_data(|_: &Leaf<'_>| ()), &mut Nothing)?;
        }
        let Some(root) = found.roots.find(TreeId::UUID) else { return Ok(()) };
        let mut listed = UuidTree::default();
        let complete = walker.walk(&root, &bytes_of, &mut listed)?;
        let superblock = self.reader.volume.superblock();
        if complete && superblock.raw().uuid_tree_generation.get() == superblock.generation().get() {
            found.roots.judge_uuids(&listed, self.reader.sink);
        }
        Ok(())
    }

    /// Judges log trees: synced changes after the last commit, which the next mount adds to the filesystem.
    fn logs(&self, walker: &mut Walker<'_>) -> Result<LogData> {
        let superblock = self.reader.volume.superblock();
        let mut data = LogData::default();
        let Some((logical, level)) = superblock.log_root() else { return Ok(data) };
        self.progress.phase("logs");
        let before = walker.blocks_seen();
        // Log trees have no extent items.
        walker.count(false);
        let generation = superblock.generation().next();
        let mut logs = LogRoots { sink: self.reader.sink, generation, found: Vec::new() };
        let root = Root::unshared(TreeId::TREE_LOG, logical, level, generation);
        walker.walk(&root, &bytes_of, &mut logs)?;
        let of: Vec<String> = logs.found.iter().map(|(of, _)| of.to_string()).collect();
        let message = format!("of {} trees: {}", of.len(), of.join(", "));
        self.reader.sink.add(
            Problem::LogWaiting,
            ProblemSite::block(TreeId::TREE_LOG, logical, Some(level)),
            message,
        );
        for (of, root) in logs.found {
            let mut sequence = LogSequence::new(of, self.reader, &mut data);
            walker.walk(&root, &bytes_of, &mut sequence)?;
        }
        walker.count(true);
        data.blocks = walker.blocks_seen() - before;
        Ok(data)
    }

    /// Checks that blocks to which no tree refers by name are in the tree of their header.
    fn owners(&self, walker: &mut Walker<'_>, found: &Found) -> Result<()> {
        for block in walker.take_unowned() {
            let held = match found.roots.find(block.owner) {
                Some(root) => holds_block(self.reader, &root, &block)?,
                None => false,
            };
            if !held {
                block.report_owner(self.reader.sink);
            }
        }
        Ok(())
    }

    /// If the sums of references differ, walks everything once more and lists the differences.
    fn explain_references(&self, found: &Found, complete: bool, extents_complete: bool) -> Result<()> {
        let Some((second, left_out)) = self.references.collect(self.options.memory_limit) else {
            return Ok(());
        };
        let quiet = Sink::new(0);
        let reader = Reader::new(self.reader.volume, &quiet);
        let mut walker = Walker::new(&reader, &second, self.options.threads);
        walker.set_tables(&found.extents.tree_blocks);
        let data = |leaf: &Leaf<'_>| fs_tree::find_all_data(&second, leaf);
        for root in [self.chunk_root(), self.root_tree()] {
            walker.walk(&root, &data, &mut Nothing)?;
        }
        for (root, _) in found.roots.roots() {
            if root.tree == TreeId::EXTENT {
                let mut table = ChunkTable::default();
                let mut sequence = self.extent_sequence(&second, &mut table, true);
                walker.walk(&root, &bytes_of, &mut sequence)?;
                sequence.finish();
            } else {
                walker.walk(&root, &data, &mut Nothing)?;
            }
        }
        drop(walker);
        second.report(self.reader.sink, complete, extents_complete);
        if left_out > 0 {
            let message = format!("{left_out} groups of extents more");
            self.reader.sink.add(Problem::ReferencesUnexplained, ProblemSite::tree(TreeId::EXTENT), message);
        }
        Ok(())
    }
}

/// Collects the items of the block group tree.
struct Groups(Vec<BlockGroup>);

impl Sequence<Vec<u8>> for Groups {
    fn leaf(&mut self, _meta: &Meta, bytes: Vec<u8>) {
        let leaf = BlockRef::new(&bytes);
        for slot in 0..leaf.count() {
            self.0.extend(block_group(leaf.key(slot), leaf.data(slot), TreeId::BLOCK_GROUP));
        }
    }
}
