//! Which listings the kernel may keep.
//!
//! It can keep what it was told of a directory and answer from that the next time. Left to itself it does not keep that right
//! (Linux 6.18): an answer that was given before a change, to one process, is kept as what there is after it when a second one
//! begins to list between the change and the first one's taking the answer in. So of several who have a directory open at
//! once only one, the *keeper*, has leave to touch what is kept: it alone fills it, and reads from it. And what an earlier
//! keeper has left is good for a later one only if no name has changed since the earlier one opened the directory.
//!
//! ```text
//!   OPENDIR        somebody is keeper                      -> neither filled nor read
//!                  nobody is, names have changed since     -> dropped, and filled anew
//!                  nobody is, none has                     -> kept
//!   RELEASEDIR     of the keeper                           -> nobody is
//! ```
//!
//! Of a listing that the kernel answers the server does not hear, so it moves no access time.
//!
//! # Invariants
//! - KEPT-1: of each directory there is one keeper at most.
//! - KEPT-2: what is kept was all told after the last change of a name. A change is noted after it was made and before it is
//!   answered: who opened the directory before may have been told what was there before.

/// What the kernel may do with the listing of a directory that is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keeping {
    /// Neither keep it nor use what is kept.
    Nothing,
    /// Forget what it has, and keep this one.
    Anew,
    /// Use what it has.
    What,
}

/// What is known of the listings of a directory, for as long as the kernel knows that.
#[derive(Clone, Default, Debug)]
pub(crate) struct Directory {
    /// Where listings end that have begun.
    pub(crate) end: Option<u64>,
    /// How often names have changed.
    changes: u64,
    /// How often they had when the last keeper came.
    kept_at: Option<u64>,
    /// The number of the keeper.
    keeper: Option<u64>,
}

impl Directory {
    /// Somebody opens it, with a number that nobody else has.
    pub(crate) fn open(&mut self, number: u64) -> Keeping {
        if self.keeper.is_some() {
            return Keeping::Nothing;
        }
        self.keeper = Some(number);
        let is_good = self.kept_at == Some(self.changes);
        self.kept_at = Some(self.changes);
        if is_good { Keeping::What } else { Keeping::Anew }
    }

    /// Whoever opened it with this number has closed it.
    pub(crate) fn close(&mut self, number: u64) {
        if self.keeper == Some(number) {
            self.keeper = None;
        }
    }

    /// A name in it has changed, or what `..` is.
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
        dir.name_changed(); // the keeper may have been told both
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
