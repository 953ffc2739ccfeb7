//! The errors that devices had, as Linux counts them and keeps them in the device tree. Ours are not counted.

use std::ops::ControlFlow;

use creamery_base::{DevId, Result, TreeId};

use crate::{Filesystem, FoundItem, SearchKey};

/// `DEV_STATS` items: persistent items of the object 0.
const PERSISTENT_ITEM: u32 = 249;
const DEV_STATS: u64 = 0;

/// How many errors a device had since somebody set these numbers to nothing.
///
/// ```
/// let errors = creamery_fs::DeviceErrors { corruption: 3, ..Default::default() };
/// assert!(errors.any() && !creamery_fs::DeviceErrors::default().any());
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DeviceErrors {
    /// Writes that failed.
    pub write: u64,
    /// Reads that failed.
    pub read: u64,
    /// Flushes that failed.
    pub flush: u64,
    /// What was read did not agree with its checksum.
    pub corruption: u64,
    /// Blocks that were not of the transaction that they had to be of.
    pub generation: u64,
}

impl DeviceErrors {
    /// Whether there were any.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// As Linux puts them in a row; what is not there is none.
    #[must_use]
    pub fn of_counts(counts: &[u64]) -> Self {
        let count = |at: usize| counts.get(at).copied().unwrap_or(0);
        Self { write: count(0), read: count(1), flush: count(2), corruption: count(3), generation: count(4) }
    }

    /// Those in an item.
    #[must_use]
    pub fn of_item(data: &[u8]) -> Self {
        let (words, _) = data.as_chunks();
        Self::of_counts(&words.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>())
    }
}

impl Filesystem {
    /// The errors that Linux has counted of a device, as of the last commit; none where it has counted nothing.
    ///
    /// # Errors
    /// Device errors; damage.
    pub fn device_errors(&self, id: DevId) -> Result<DeviceErrors> {
        let (objects, types) = ((DEV_STATS, DEV_STATS), (PERSISTENT_ITEM, PERSISTENT_ITEM));
        let offsets = (id.get(), id.get());
        let key = SearchKey { objectids: objects, types, offsets, ..SearchKey::all_of(TreeId::DEV) };
        let mut found = DeviceErrors::default();
        self.tree_search(&key, &mut |item: FoundItem<'_>| {
            found = DeviceErrors::of_item(item.data);
            ControlFlow::Break(())
        })?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_no_error() {
        let words: Vec<u8> = [1_u64, 2, 3, 4, 5, 6].iter().flat_map(|word| word.to_le_bytes()).collect();
        let all = DeviceErrors { write: 1, read: 2, flush: 3, corruption: 4, generation: 5 };
        assert_eq!(DeviceErrors::of_item(&words), all);
        assert_eq!(DeviceErrors::of_item(&words[..31]), DeviceErrors { corruption: 0, generation: 0, ..all });
        assert!(!DeviceErrors::of_item(&[]).any());
    }
}
