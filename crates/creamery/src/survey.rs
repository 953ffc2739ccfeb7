//! Finds the files that a loss of devices would destroy, before anything is touched.
//!
//! The profile of each chunk says without which devices its ranges can be read. A file is lost with any range of its data. If a chunk of
//! metadata is lost, all files are lost: nothing leads to them any more.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use creamery_base::{DevId, InodeId, Logical, Result, TreeId, Wait};
use creamery_format::BlockGroupFlags;
use creamery_volume::{Chunk, MemberState, Volume};

use crate::path::at;
use crate::walk::Walk;
use crate::{FileType, Filesystem};

/// The most losses in one survey: each has a bit.
const LOSSES_MAX: usize = 64;

/// The effect of losing some devices.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// let survey = creamery::Image::open(&image)?.volume().survey(|_, _| ())?;
/// let [now, without_it] = &survey.losses[..] else { panic!("one device") };
/// assert!(now.devices.is_empty() && !now.trees);
/// assert!(without_it.trees, "there is no other");
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Loss {
    /// The devices that would be missing, beside those that are missing already.
    pub devices: Vec<DevId>,
    /// Whether chunks of metadata would be lost, and all files with them.
    pub trees: bool,
    /// The number of files that would lose data.
    pub files: u64,
}

/// The result of a survey: the files that survive each further loss.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::open(&image)?;
/// assert_eq!(fs.volume().survey(|_, _| ())?.files, 0);
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Survey {
    /// The number of regular files in all subvolumes; a file with several names counts once.
    pub files: u64,
    /// First the case without a further loss; then the loss of each present device; then that of each two of them, if there are few.
    pub losses: Vec<Loss>,
}

/// Chunks, and a bit for each loss that makes one unreadable.
struct Chunks<'v> {
    volume: &'v Volume,
    losses: &'v [Loss],
    all: BTreeMap<u64, Arc<Chunk>>,
}

impl<'v> Chunks<'v> {
    fn of(volume: &'v Volume, losses: &'v [Loss]) -> Self {
        let all = volume.chunks().into_iter().map(|chunk| (chunk.start.get(), chunk)).collect();
        Self { volume, losses, all }
    }

    /// The losses that make a chunk of metadata unreadable.
    fn trees_lost_by(&self) -> u64 {
        let trees = BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM;
        let of_trees = self.all.values().filter(|chunk| chunk.flags.intersects(trees));
        of_trees.fold(0, |bits, chunk| bits | self.bits(chunk, chunk.start, chunk.len))
    }

    /// The losses that make a range unreadable.
    fn lost_by(&self, (at, len): (Logical, u64)) -> u64 {
        let chunk = self.all.range(..=at.get()).next_back();
        let chunk = chunk.filter(|(_, chunk)| at < chunk.end());
        chunk.map_or(0, |(_, chunk)| self.bits(chunk, at, len))
    }

    fn bits(&self, chunk: &Chunk, at: Logical, len: u64) -> u64 {
        // A member that missed writes or has failed does not count as a copy; but a chunk that cannot be written without it is whole.
        let counts_not = |dev| match self.volume.member_state(dev) {
            MemberState::Present | MemberState::Seed => false,
            MemberState::Stale(_) => self.volume.may_have_missed(dev, chunk),
            MemberState::Failed | MemberState::Missing => true,
        };
        let is_lost = |loss: &Loss| {
            !chunk.has_range_without(at, len, &|dev| counts_not(dev) || loss.devices.contains(&dev))
        };
        let numbered = self.losses.iter().enumerate();
        numbered.fold(0, |bits, (number, loss)| bits | (u64::from(is_lost(loss)) << number))
    }
}

impl Filesystem {
    pub(crate) fn survey(&self, mut each: impl FnMut(&Path, &[&Loss])) -> Result<Survey> {
        let engine = self.fs.engine();
        let state = |dev| engine.volume().member_state(dev);
        let devices = engine.devices().into_iter().map(|device| device.id);
        let mut losses = losses(&devices.filter(|id| state(*id) != MemberState::Missing).collect::<Vec<_>>());
        let chunks = Chunks::of(engine.volume(), &losses);
        let trees = chunks.trees_lost_by();
        let mut files = 0;
        let mut counted: HashSet<InodeId> = HashSet::new();
        let mut lost = vec![0; losses.len()];
        for entry in Walk::new(Arc::clone(&self.fs), self.fs.root(TreeId::FS)?, "/".into())? {
            let entry = entry?;
            let is_file = entry.file_type() == FileType::File;
            if !is_file || (self.fs.stat(entry.id, Wait::Yes)?.nlink > 1 && !counted.insert(entry.id)) {
                continue;
            }
            files += 1;
            let ranges = self.fs.data_ranges(entry.id).map_err(at(entry.path()))?;
            let bits = ranges.into_iter().fold(trees, |bits, range| bits | chunks.lost_by(range));
            let with: Vec<usize> = (0..losses.len()).filter(|number| bits & (1 << number) != 0).collect();
            with.iter().for_each(|number| lost[*number] += 1);
            each(entry.path(), &with.iter().map(|number| &losses[*number]).collect::<Vec<_>>());
        }
        for (number, (loss, files)) in losses.iter_mut().zip(lost).enumerate() {
            (loss.trees, loss.files) = (trees & (1 << number) != 0, files);
        }
        Ok(Survey { files, losses })
    }
}

fn losses(devices: &[DevId]) -> Vec<Loss> {
    let loss = |devices: &[DevId]| Loss { devices: devices.to_vec(), trees: false, files: 0 };
    let singles = devices.iter().take(LOSSES_MAX - 1).map(|one| loss(&[*one]));
    let mut losses: Vec<Loss> = std::iter::once(loss(&[])).chain(singles).collect();
    let pairs = devices.len() * devices.len().saturating_sub(1) / 2;
    if losses.len() + pairs <= LOSSES_MAX {
        let pairs = devices.iter().enumerate();
        losses.extend(
            pairs.flat_map(|(number, one)| devices[number + 1..].iter().map(move |two| loss(&[*one, *two]))),
        );
    }
    losses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_told_where_they_are_few() {
        let devices = |count: u64| (1..=count).map(DevId::new).collect::<Vec<_>>();
        for (count, told) in [(1, 2), (2, 4), (4, 11), (10, 56), (11, 12), (63, 64), (100, 64)] {
            assert_eq!(losses(&devices(count)).len(), told, "{count} devices");
        }
    }
}
