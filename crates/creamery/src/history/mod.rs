//! Finds the earlier commits that can still be read, and files in them that the last one does not have.
//!
//! A commit overwrites no tree block of the commit before. It writes new blocks, up to a new root of the root tree, and points the
//! superblock there. The old blocks stay on the device until their space is used again or discarded. An earlier commit can be read as long
//! as its blocks are there. Nothing is written here.
//!
//! # Where commits are looked for
//! The superblock leads to the last commit, and its backups lead to up to four; the search looks in all metadata chunks for blocks of the
//! root tree. The chunk tree is the current one: a block in a chunk that is gone counts as gone. Blocks of a transaction that was never
//! committed are newer than the superblock, and left out.
//!
//! A block of the root tree that the search finds may be a root, or a part of a larger root tree whose root is gone. Each root tree begins
//! with items of the extent tree; the last of the items that readers need are those of the data relocation tree. So a complete root tree
//! has both.
//!
//! Linux also writes blocks in the midst of a transaction, when memory is short, and replaces them before the commit. Such a root tree
//! looks whole, but its items are still those of the commit before. Each commit changes the extent tree, because it counts the commit's own
//! blocks; so in the root tree of a commit the root of the extent tree has the transaction of the commit (HISTORY-1).
//!
//! # What is judged
//! - HISTORY-1: a block counts as the root of a commit only if the superblock or a backup names it, or its tree reaches from the first tree
//!   to the last and has an extent tree of the same transaction.
//!   Shown by `a_block_of_a_root_tree_that_is_no_root_is_no_commit`, `a_root_tree_of_the_midst_of_a_transaction_is_no_commit`.
//! - HISTORY-2: a commit is whole only after each block that its trees reach was read, or was proved before: by checksum, address,
//!   generation, level, owner and first key. A subtree is proved once, even if several commits share it. A subvolume that was deleted
//!   before the commit does not count: its blocks are freed step by step.
//!   Shown by `commits_of_the_kernel`, `commits_of_ours`: what is called whole reads as it was.
//! - HISTORY-3: data is read through the trees of its own commit, including the checksum tree. An extent that another file uses by now does
//!   not match its checksum there, and reading it is an error.
//!   Shown by `data_is_judged_by_the_checksums_of_its_own_commit`, `data_that_was_overwritten_since_is_an_error_and_never_other_bytes`.
//!
//! The pointers between blocks bound the work: levels decrease by one, and the fate of a subtree is remembered.

mod candidates;
mod commit;
mod commits;
mod gone;
mod judge;
mod progress;
mod undelete;

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Generation, Logical, Result};
use creamery_device::{Access, BlockDevice};
use creamery_volume::{DeviceSet, NamedSet, Rescue, Volume};

pub use commit::{Commit, CommitState, History};
#[doc(hidden)]
pub use gone::gone_files_of_device;
pub use gone::{GoneFile, GoneFiles, gone_files};
pub use progress::{NoSearchProgress, SearchProgress};
pub use undelete::{UndeleteOptions, Undeleted, undelete};

use self::candidates::{CandidateSearch, Candidates, map_chunks, unread_chunks};
use self::judge::{FoundRootTree, Judge};
use crate::inspect::open_mapped;

/// Lists the commits that are left in an image; [`ImageOptions::generation`](crate::ImageOptions::generation) opens one. Reads all tree
/// blocks.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// use creamery::history::{CommitState, NoSearchProgress, history};
/// let commits = history(&image, &NoSearchProgress)?.commits;
/// assert!(commits[0].is_current && commits[0].state == CommitState::Whole);
/// # Ok::<(), creamery::Error>(())
/// ```
///
/// # Errors
/// Those of opening; the image is open for writing.
pub fn history(image: impl Into<NamedSet>, progress: &dyn SearchProgress) -> Result<History> {
    let image = image.into();
    let (volume, unread) =
        image.open(Access::ReadOnly, |devices| open_mapped(devices, passed_over(image.is_degraded())))?;
    history_of(&volume, unread, progress)
}

/// Lists the commits of a device that is open already. For tests of this project; not part of the stability promise.
///
/// # Errors
/// Those of [`history`].
#[doc(hidden)]
pub fn history_of_device(device: Arc<dyn BlockDevice>) -> Result<History> {
    let (volume, unread) = open_mapped(DeviceSet::from(device), passed_over(false))?;
    history_of(&volume, unread, &NoSearchProgress)
}

/// Blocks that are lost with missing devices count as gone.
fn passed_over(is_degraded: bool) -> Rescue {
    Rescue { ignore_super_flags: true, ignore_bad_roots: is_degraded, ..Rescue::default() }
}

fn history_of(volume: &Volume, unread: Option<Error>, progress: &dyn SearchProgress) -> Result<History> {
    let unread = unread.map(unread_chunks);
    let mut judge = Judge::new(volume, progress);
    let current = volume.superblock().generation();
    let mut commits = Vec::new();
    for found in commits_of(volume, &mut judge, progress) {
        let state = judge.state(&found.tree);
        let FoundRootTree { candidate, tree } = found;
        commits.push(Commit {
            generation: candidate.generation,
            root: candidate.logical,
            level: candidate.level,
            time: tree.time(candidate.generation),
            state,
            is_current: candidate.generation == current,
        });
    }
    Ok(History { commits, notes: volume.notes().into_iter().chain(unread).collect() })
}

/// The roots of all commits that are left, the newest first. All chunks are mapped.
fn commits_of<'v>(
    volume: &'v Volume,
    judge: &mut Judge<'v>,
    progress: &dyn SearchProgress,
) -> Vec<FoundRootTree> {
    let candidates = Candidates::search(volume, CandidateSearch::All, progress);
    let ends = judge.ends();
    candidates.newest_first().filter_map(|all| judge.pick(&all, ends)).collect()
}

/// A volume that shows the commit `generation` in place of the last one.
///
/// # Errors
/// `NotFound`: no root of it is left. Damage.
pub(crate) fn volume_at(volume: Volume, generation: Generation) -> Result<Volume> {
    let superblock = volume.superblock();
    if generation == superblock.generation() {
        return Ok(volume);
    }
    // A chunk that cannot be mapped only hides its own content.
    map_chunks(&volume);
    let root = root_of(&volume, generation);
    let root = root.ok_or_else(|| {
        let name = volume.describe();
        let newest = superblock.generation();
        let what = if generation > superblock.generation() {
            format!("{name}: there is no commit of generation {generation}, the last one is {newest}")
        } else {
            format!("{name}: no root of the commit of generation {generation} is left")
        };
        let error = Error::new(ErrorKind::NotFound, what);
        // One of several devices names the filesystem.
        let one = volume.device(superblock.dev_item().dev_id()).map_or(name, |device| device.describe());
        error.advise(format!("`creamery history {one}` lists the commits that can be read"))
    })?;
    volume.by_root_tree(root)
}

/// Finds the root block of the root tree of a commit, in the superblock's backups, else by a search.
fn root_of(volume: &Volume, generation: Generation) -> Option<Logical> {
    let mut judge = Judge::new(volume, &NoSearchProgress);
    let ends = judge.ends();
    [CandidateSearch::Named, CandidateSearch::Only(generation)].into_iter().find_map(|search| {
        let candidates = Candidates::search(volume, search, &NoSearchProgress);
        let found = judge.pick(&candidates.of(generation)?, ends)?;
        found.tree.has_root().then_some(found.candidate.logical)
    })
}

#[cfg(test)]
mod tests;
