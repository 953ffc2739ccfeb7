//! The commits of a filesystem, each as a filesystem of its own.

use std::collections::HashMap;

use creamery_base::{ErrorKind, Generation, InodeId, Result, TreeId, Wait};
use creamery_device::Access;
use creamery_volume::{DeviceSet, NamedSet, Rescue, Volume};

use super::candidates::{Candidates, Search};
use super::judge::{Found, Judge, TreeOfCommit};
use super::progress::SearchProgress;
use crate::inspect::open_mapped;
use crate::{Filesystem, Image};

/// A filesystem whose earlier commits are opened, each when it is asked for.
pub(super) struct Commits {
    volume: Volume,
    /// The last one.
    pub(super) current: Present,
    /// The others, the newest first.
    pub(super) earlier: Vec<Found>,
}

/// The last commit: what of others is still there.
pub(super) struct Present {
    /// None where damage keeps it from being opened: then nothing is there.
    fs: Option<Filesystem>,
    pub(super) trees: HashMap<TreeId, TreeOfCommit>,
}

impl Commits {
    /// Those of one generation, or all.
    pub(super) fn open(
        image: &NamedSet,
        only: Option<Generation>,
        progress: &dyn SearchProgress,
    ) -> Result<Self> {
        Self::on(image.open(Access::ReadOnly, Self::volume_on)?, only, progress)
    }

    /// Devices with all chunks mapped.
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
        let named =
            only.is_some_and(|only| Candidates::search(&volume, Search::Named, progress).of(only).is_some());
        let search = if named { Search::Named } else { only.map_or(Search::All, Search::Only) };
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

    /// The devices, with all chunks mapped.
    pub(super) const fn volume(&self) -> &Volume {
        &self.volume
    }

    /// One of them. Trees may be gone that reading can do without; without that of checksums data is an error (HISTORY-3).
    pub(super) fn show(&self, commit: &Found) -> Result<Filesystem> {
        let volume = self.volume.by_root_tree(commit.candidate.logical)?;
        Image::options().generation(commit.candidate.generation).open_on(volume)
    }
}

/// What of a file is in the last commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// It is there.
    There,
    /// It is not.
    Gone,
    /// What would tell is damaged: the last commit does not show it either.
    Lost,
}

impl Present {
    /// Whether it can be read at all.
    pub(super) const fn is_open(&self) -> bool {
        self.fs.is_some()
    }

    /// Whether an inode is there still, with a name, and is the one that was made in transaction `generation`.
    ///
    /// # Errors
    /// The device's, but for damage.
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

    /// Whether the subvolume is there still, and not another one that has its number.
    pub(super) fn has_subvolume(&self, tree: &TreeOfCommit) -> bool {
        self.trees.get(&tree.id).is_some_and(|now| now.uuid == tree.uuid)
    }
}
