//! Blocks that may be the root of a commit's root tree.

use std::collections::BTreeMap;

use creamery_base::{Error, Generation, Logical, TreeId};
use creamery_volume::Volume;

use super::progress::SearchProgress;
use crate::inspect::push_chunks;
use crate::rescue::{candidate_at, tree_block_places};

/// Blocks of one generation that are kept at most; of the root tree's blocks those of the highest level.
const OF_ONE_MAX: usize = 64;
/// Commits that are kept at most, the newest ones: each is judged separately.
const COMMITS_MAX: usize = 4096;
/// Blocks between two progress reports.
const BETWEEN: u64 = 256;

/// A block that may be the root of a commit's root tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RootTreeCandidate {
    pub(super) generation: Generation,
    pub(super) logical: Logical,
    pub(super) level: u8,
    /// Whether the superblock or one of its backups leads to it.
    pub(super) is_named: bool,
}

/// Where the search looks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CandidateSearch {
    /// In the superblock and its backups.
    Named,
    /// In all metadata chunks, too.
    All,
    /// In all metadata chunks, roots of one generation alone.
    Only(Generation),
}

/// All blocks that were found, by generation.
pub(super) struct Candidates(BTreeMap<Generation, Vec<RootTreeCandidate>>);

impl Candidates {
    pub(super) fn search(volume: &Volume, search: CandidateSearch, progress: &dyn SearchProgress) -> Self {
        let superblock = volume.superblock();
        let mut all = Self(BTreeMap::new());
        for named in std::iter::once(superblock.clone()).chain(superblock.backups()) {
            let (logical, level) = named.root();
            all.push(RootTreeCandidate { generation: named.generation(), logical, level, is_named: true });
        }
        if search == CandidateSearch::Named {
            return all;
        }
        let of = tree_block_places(volume, &superblock).count() as u64;
        for (done, at) in (0..).zip(tree_block_places(volume, &superblock)) {
            if done % BETWEEN == 0 {
                progress.at(done, Some(of));
            }
            let Some(found) = candidate_at(volume, &superblock, TreeId::ROOT, at) else { continue };
            let is_wanted = match search {
                CandidateSearch::Only(generation) => found.generation == generation,
                // A newer block was never committed.
                _ => found.generation <= superblock.generation(),
            };
            if is_wanted {
                let (generation, logical, level) = (found.generation, found.logical, found.level);
                all.push(RootTreeCandidate { generation, logical, level, is_named: false });
            }
        }
        all
    }

    fn push(&mut self, candidate: RootTreeCandidate) {
        let Self(all) = self;
        let of_one = all.entry(candidate.generation).or_default();
        if of_one.iter().any(|other| (other.logical, other.level) == (candidate.logical, candidate.level)) {
            return;
        }
        of_one.push(candidate);
        // Blocks that the superblock or a backup names come first, then those of the highest level, of these the last.
        of_one.sort_by_key(|one| (!one.is_named, u8::MAX - one.level, u64::MAX - one.logical.get()));
        of_one.truncate(OF_ONE_MAX);
        if all.len() > COMMITS_MAX {
            all.pop_first();
        }
    }

    /// The candidates of one commit, the likeliest first.
    pub(super) fn of(&self, generation: Generation) -> Option<Vec<RootTreeCandidate>> {
        self.0.get(&generation).cloned()
    }

    /// The candidates of each commit, the newest first.
    pub(super) fn newest_first(self) -> impl Iterator<Item = Vec<RootTreeCandidate>> {
        self.0.into_iter().rev().map(|(_, all)| all)
    }
}

/// Maps all chunks, and reports one that cannot be mapped.
pub(super) fn map_chunks(volume: &Volume) -> Option<String> {
    push_chunks(volume, &volume.superblock(), &mut Vec::new()).map(unread_chunks)
}

/// The consequence of a chunk that could not be mapped, in words.
pub(super) fn unread_chunks(unread: Error) -> String {
    format!("not all of the chunk tree could be read, and what is in other chunks counts as gone: {unread}")
}
