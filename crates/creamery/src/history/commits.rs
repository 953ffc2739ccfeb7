//! The commits of a filesystem, each opened as a filesystem.

use std::collections::HashMap;

use creamery_base::{ErrorKind, Generation, InodeId, Result, TreeId, Wait};
use creamery_device::Access;
use creamery_volume::{DeviceSet, NamedSet, Rescue, Volume};

use super::candidates::{CandidateSearch, Candidates};
use super::judge::{FoundRootTree, Judge, TreeOfCommit};
use super::progress::SearchProgress;
use crate::inspect::open_mapped;
use crate::{Filesystem, Image};

/// A filesystem whose earlier commits are opened on demand.
pub(super) struct Commits {
    volume: Volume,
    /// The last commit.
    pub(super) current: Present,
    /// The earlier commits, the newest first.
    pub(super) earlier: Vec<FoundRootTree>,
}

/// The last commit, to see which files of earlier ones still exist.
pub(super) struct Present {
    /// `None` if damage keeps it from being opened: then it has no files.
    fs: Option<Filesystem>,
    pub(super) trees: HashMap<TreeId, TreeOfCommit>,
}

impl Commits {
    /// Opens the commits of one generation, or all.
    pub(super) fn open(
        image: &NamedSet,
        only: Option<Generation>,
        progress: &dyn SearchProgress,
    ) -> Result<Self> {
        Self::on(image.open(Access::ReadOnly, Self::volume_on)?, only, progress)
    }

    /// A volume on these devices, with all chunks mapped.
    pub(super) fn volume_on(devices: DeviceSet) -> Result<Volume> {
        let passed_over = Rescue { ignore_super_flags: true, ignore_bad_roots: true, ..Rescue::default() };
        Ok(open_mapped(devices, passed_over)?.0)
    }

    pub(super) fn on(
        volume: Volume,
        only: Option<Generation>,
        progress: &dyn SearchProgress,
    ) -> Result<Self> {
        let last = volume.superblock();
        let opened = volume.by_root_tree(last.root().0).and_then(|volume| Image::options().open_on(volume));
        let fs = match opened {
            Err(error) if error.kind().is_damage() => None,
            opened => Some(opened?),
        };
        let mut judge = Judge::new(&volume, progress);
        let ends = judge.ends();
        let named = only.is_some_and(|only| {
            Candidates::search(&volume, CandidateSearch::Named, progress).of(only).is_some()
        });
        let search = if named {
            CandidateSearch::Named
        } else {
            only.map_or(CandidateSearch::All, CandidateSearch::Only)
        };
        let all = Candidates::search(&volume, search, progress);
        let (mut trees, mut earlier) = (HashMap::new(), Vec::new());
        for found in all.newest_first().filter_map(|candidates| judge.pick(&candidates, ends)) {
            let generation = found.candidate.generation;
            if generation == last.generation() {
                trees = found.tree.trees.iter().map(|tree| (tree.id, *tree)).collect();
            }
            let is_wanted = match only {
                None => generation < last.generation(),
                Some(only) => generation == only,
            };
            if is_wanted && found.tree.has_root() {
                earlier.push(found);
            }
        }
        drop(judge);
        Ok(Self { volume, current: Present { fs, trees }, earlier })
    }

    /// The volume on the devices, with all chunks mapped.
    pub(super) const fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Opens a commit. Trees that reading does not need may be gone; without the checksum tree, reading data is an error (HISTORY-3).
    pub(super) fn show(&self, commit: &FoundRootTree) -> Result<Filesystem> {
        let volume = self.volume.by_root_tree(commit.candidate.logical)?;
        Image::options().generation(commit.candidate.generation).open_on(volume)
    }
}

/// The fate of a file of an earlier commit in the last commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// The file still exists.
    There,
    /// The file no longer exists.
    Gone,
    /// The items that would show it are damaged: the last commit does not show the file either.
    Lost,
}

impl Present {
    /// Whether the last commit can be read at all.
    pub(super) const fn is_open(&self) -> bool {
        self.fs.is_some()
    }

    /// Whether an inode still exists and has a name, and is the one that transaction `generation` made.
    ///
    /// # Errors
    /// Errors of the device, except damage.
    pub(super) fn fate(&self, id: InodeId, generation: Generation) -> Result<Fate> {
        let Some(fs) = &self.fs else { return Ok(Fate::Lost) };
        if !self.trees.contains_key(&id.subvolume) {
            return Ok(Fate::Gone);
        }
        match fs.fs.stat(id, Wait::Yes) {
            Ok(found) if found.generation == generation && found.nlink > 0 => Ok(Fate::There),
            Ok(_) => Ok(Fate::Gone),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale) => Ok(Fate::Gone),
            Err(error) if error.kind().is_damage() => Ok(Fate::Lost),
            Err(error) => Err(error),
        }
    }

    /// Whether the subvolume still exists, and its number does not belong to another one.
    pub(super) fn has_subvolume(&self, tree: &TreeOfCommit) -> bool {
        self.trees.get(&tree.id).is_some_and(|now| now.uuid == tree.uuid)
    }
}
