//! Decides which listings the kernel may cache.
//!
//! The kernel can cache a listing of a directory and use it for later readers. Alone it does not do that correctly
//! (Linux 6.18). If a second process begins to list between a change and the moment when the first process receives an answer
//! from before that change, the kernel caches that answer as current. So of several processes that have a directory open at
//! once only one, the *keeper*, may touch the cache: it alone fills it, and reads from it. And the cache of an earlier
//! keeper is valid for a later one only if no name has changed since the earlier one opened the directory.
//!
//! ```text
//!   OPENDIR        there is a keeper                       -> the cache is neither filled nor read
//!                  no keeper, and a name has changed since -> the cache is dropped, and filled anew
//!                  no keeper, and no change                -> the cache is used
//!   RELEASEDIR     by the keeper                           -> there is no keeper
//! ```
//!
//! The server does not see a listing from the cache, so it moves no access time.
//!
//! # Invariants
//! - KEPT-1: of each directory there is one keeper at most. Shown by `there_is_one_keeper`.
//! - KEPT-2: the whole cached listing was returned after the last change of a name. A change is recorded after it is made and before it is
//!   answered: a process that opened the directory before may have received the older state.
//!   Shown by `what_is_kept_is_good_until_a_name_changes`, `a_listing_is_kept_until_a_name_changes_and_for_one_at_a_time`.

/// The kernel's use of its cached listing for an open directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keeping {
    /// Neither fills nor uses the cache.
    Nothing,
    /// Drops the cache, and fills it with this listing.
    Anew,
    /// Uses the cache.
    What,
}

/// State of the listings of a directory, for as long as the kernel knows the directory.
#[derive(Clone, Default, Debug)]
pub(crate) struct Directory {
    /// The end of the listings in progress.
    pub(crate) end: Option<u64>,
    /// Number of changes of names.
    changes: u64,
    /// That number when the last keeper opened the directory.
    kept_at: Option<u64>,
    /// The handle number of the keeper.
    keeper: Option<u64>,
}

impl Directory {
    /// Opens the directory with a unique number.
    pub(crate) fn open(&mut self, number: u64) -> Keeping {
        if self.keeper.is_some() {
            return Keeping::Nothing;
        }
        self.keeper = Some(number);
        let is_good = self.kept_at == Some(self.changes);
        self.kept_at = Some(self.changes);
        if is_good { Keeping::What } else { Keeping::Anew }
    }

    /// Closes the directory that was opened with this number.
    pub(crate) fn close(&mut self, number: u64) {
        if self.keeper == Some(number) {
            self.keeper = None;
        }
    }

    /// Records that a name in the directory, or its `..`, has changed.
    pub(crate) const fn name_changed(&mut self) {
        self.changes = self.changes.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_good_until_a_name_changes() {
        let mut dir = Directory::default();
        for want in [Keeping::Anew, Keeping::What, Keeping::What] {
            assert_eq!(dir.open(1), want);
            dir.close(1);
        }
        dir.name_changed();
        assert_eq!(dir.open(2), Keeping::Anew);
        dir.name_changed(); // the keeper may have received both states
        dir.close(2);
        assert_eq!(dir.open(3), Keeping::Anew);
        dir.close(3);
        assert_eq!(dir.open(4), Keeping::What);
    }

    #[test]
    fn there_is_one_keeper() {
        let mut dir = Directory::default();
        assert_eq!(dir.open(1), Keeping::Anew);
        assert_eq!(dir.open(2), Keeping::Nothing);
        dir.close(2);
        assert_eq!(dir.open(3), Keeping::Nothing, "the first is still there");
        dir.close(1);
        assert_eq!(dir.open(4), Keeping::What);
        dir.close(1);
        assert_eq!(dir.open(5), Keeping::Nothing, "a late word of another changes nothing");
    }
}
