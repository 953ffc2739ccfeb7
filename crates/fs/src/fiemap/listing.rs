//! A listing: batch after batch, with the entries that touch made one.

use creamery_base::{Error, ErrorKind, Result};

use super::extent::{FiemapExtent, FiemapFlags};

/// Some entries of a listing, as they were at one moment; those that touch are not joined yet, and none says that it is the last.
///
/// ```no_run
/// # fn example(file: &creamery_fs::OpenFile) -> creamery_base::Result<()> {
/// let request = creamery_fs::FiemapRequest::default();
/// let mut batch = file.fiemap_batch(&request, None)?;
/// while let Some(next) = batch.next {
///     println!("{} entries", batch.extents.len());
///     batch = file.fiemap_batch(&request, Some(next))?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FiemapBatch {
    /// In the order of the file. None does not say that nothing follows.
    pub extents: Vec<FiemapExtent>,
    /// Where to go on; none behind the last batch.
    pub next: Option<u64>,
    /// Of the last batch: whether no extent of the file lies behind the range.
    pub ends_file: bool,
}

/// The extents of a file, as they are listed; after an error nothing comes. It holds no lock between two.
///
/// ```
/// use creamery_fs::{Fiemap, FiemapBatch, FiemapExtent, FiemapFlags};
/// let extent = |logical, physical| FiemapExtent::new(logical, physical, 4096, FiemapFlags::empty());
/// let batches = [
///     FiemapBatch { extents: vec![extent(0, 65536), extent(4096, 69632)], next: Some(8192), ends_file: false },
///     FiemapBatch { extents: vec![extent(8192, 16384)], next: None, ends_file: true },
/// ];
/// let mut batches = batches.into_iter();
/// let listed = Fiemap::new(move |_| Ok(batches.next().unwrap_or_default()));
/// let listed: Vec<_> = listed.collect::<Result<_, _>>()?;
/// assert_eq!(listed[0].length, 8192);
/// assert_eq!((listed[1].physical, listed[1].flags), (16384, FiemapFlags::LAST));
/// # Ok::<(), creamery_base::Error>(())
/// ```
pub struct Fiemap<'f> {
    fetch: Box<dyn FnMut(Option<u64>) -> Result<FiemapBatch> + Send + 'f>,
    batch: std::vec::IntoIter<FiemapExtent>,
    stage: Stage,
    /// What may go on in the next entry.
    last: Option<FiemapExtent>,
}

/// What comes behind the batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Another one, from there on, or from the beginning.
    More(Option<u64>),
    /// Nothing of the range; of the file, maybe.
    Over { ends_file: bool },
    /// It failed, or all was told.
    Told,
}

impl<'f> Fiemap<'f> {
    /// The listing whose batches `fetch` makes: the first one, and then those from where the one before ended.
    pub fn new(fetch: impl FnMut(Option<u64>) -> Result<FiemapBatch> + Send + 'f) -> Self {
        Self { fetch: Box::new(fetch), batch: Vec::new().into_iter(), stage: Stage::More(None), last: None }
    }

    fn step(&mut self) -> Result<Option<FiemapExtent>> {
        loop {
            for entry in self.batch.by_ref() {
                match self.last.replace(entry) {
                    None => {}
                    Some(last) if last.end() > entry.logical => {
                        return Err(Error::new(ErrorKind::Io, "the file's extents overlap"));
                    }
                    Some(last) => match joined(&last, &entry) {
                        Some(one) => self.last = Some(one),
                        None => return Ok(Some(last)),
                    },
                }
            }
            match self.stage {
                Stage::More(from) => {
                    let batch = (self.fetch)(from)?;
                    if batch.next.is_some_and(|next| from.is_some_and(|from| next <= from)) {
                        return Err(Error::new(ErrorKind::Io, "the file's extents are a loop"));
                    }
                    self.batch = batch.extents.into_iter();
                    self.stage = match batch.next {
                        None => Stage::Over { ends_file: batch.ends_file },
                        next => Stage::More(next),
                    };
                }
                Stage::Over { ends_file } => {
                    self.stage = Stage::Told;
                    let last = |mut entry: FiemapExtent| {
                        entry.flags.set(FiemapFlags::LAST, ends_file);
                        entry
                    };
                    return Ok(self.last.take().map(last));
                }
                Stage::Told => return Ok(None),
            }
        }
    }
}

/// Both as one, if the second one begins where the first one ends, in the file and on the device. What lies nowhere, or in the tree,
/// has no place to go on from.
fn joined(first: &FiemapExtent, second: &FiemapExtent) -> Option<FiemapExtent> {
    let goes_on = first.flags == second.flags
        && first.end() == second.logical
        && first.physical.checked_add(first.length) == Some(second.physical);
    let length = first.length.checked_add(second.length).filter(|_| goes_on)?;
    Some(FiemapExtent { length, ..*first })
}

impl Iterator for Fiemap<'_> {
    type Item = Result<FiemapExtent>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.stage == Stage::Told {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.stage = Stage::Told;
            self.batch = Vec::new().into_iter();
        }
        step.transpose()
    }
}

impl std::iter::FusedIterator for Fiemap<'_> {}

impl std::fmt::Debug for Fiemap<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fiemap").field("last", &self.last).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(logical: u64, physical: u64, flags: FiemapFlags) -> FiemapExtent {
        FiemapExtent::new(logical, physical, 4096, flags)
    }

    fn listed(batches: Vec<FiemapBatch>) -> Result<Vec<FiemapExtent>> {
        let mut batches = batches.into_iter();
        Fiemap::new(move |_| Ok(batches.next().unwrap_or_default())).collect()
    }

    #[test]
    fn what_goes_on_in_file_and_device_with_equal_flags_is_one_entry() {
        let none = FiemapFlags::empty();
        let rows = [
            (entry(0, 8192, none), entry(4096, 12288, none), true),
            (entry(0, 8192, none), entry(8192, 12288, none), false),
            (entry(0, 8192, none), entry(4096, 16384, none), false),
            (entry(0, 8192, none), entry(4096, 12288, FiemapFlags::SHARED), false),
            (entry(0, 0, FiemapFlags::DELAYED), entry(4096, 0, FiemapFlags::DELAYED), false),
            (entry(0, u64::MAX - 4095, none), entry(4096, 0, none), false),
        ];
        for (first, second, is_one) in rows {
            for apart in [false, true] {
                let batch =
                    |extents, next: Option<u64>| FiemapBatch { extents, next, ends_file: next.is_none() };
                let batches = if apart {
                    vec![batch(vec![first], Some(second.logical)), batch(vec![second], None)]
                } else {
                    vec![batch(vec![first, second], None)]
                };
                let found = listed(batches).expect("a listing");
                assert_eq!(found.len(), 2 - usize::from(is_one), "{first:?} {second:?}");
                let last: Vec<bool> =
                    found.iter().map(|entry| entry.flags.contains(FiemapFlags::LAST)).collect();
                assert_eq!(last.iter().rposition(|last| *last), Some(found.len() - 1));
                assert_eq!(last.iter().filter(|last| **last).count(), 1);
            }
        }
    }

    #[test]
    fn whoever_makes_batches_cannot_make_a_listing_overlap_or_run_for_ever() {
        let none = FiemapFlags::empty();
        let twice = FiemapBatch { extents: vec![entry(0, 8192, none); 2], next: None, ends_file: true };
        assert_eq!(listed(vec![twice]).map_err(|error| error.kind()), Err(ErrorKind::Io));
        let mut stuck = Fiemap::new(|_| Ok(FiemapBatch { next: Some(7), ..FiemapBatch::default() }));
        assert!(stuck.next().is_some_and(|step| step.is_err()) && stuck.next().is_none());
    }
}
