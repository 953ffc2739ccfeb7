//! The users of data in the last commit: `backref_walk`, with the trees of the engine.

use std::collections::HashMap;

use creamery_base::{Error, InodeId, Logical, Result};

use super::Engine;
use crate::backref_walk::{CommittedBlocks, ExtentUsers, Few, Trees, Walk};

/// Extents whose number of users is cached. When there are more, the cache is cleared.
const KNOWN_MAX: usize = 64 << 10;
/// Questions after which it looks for a newer commit.
const STALE_AFTER: u32 = 1000;

/// Answers whether files share their data, for many extents one after the other, each in much less time than it takes to name all
/// users. The answers are for a commit, not for later changes; after many questions for a later commit, so that it does not keep space
/// from being used again.
///
/// ```no_run
/// # fn show(engine: &creamery_txn::Engine, at: creamery_base::Logical, id: creamery_base::InodeId) -> creamery_base::Result<()> {
/// let mut sharing = engine.sharing()?;
/// println!("{}", if sharing.is_shared(at, id, 0)? { "shared" } else { "exclusive" });
/// # Ok(())
/// # }
/// ```
pub struct Sharing<'e> {
    engine: &'e Engine,
    walk: Walk<CommittedBlocks<'e>>,
    known: HashMap<Logical, Few>,
    asked: u32,
}

impl Sharing<'_> {
    /// Whether a file other than `id` refers to the data extent that begins at `at`, or that file itself at another place: `base` is
    /// the offset in the file where the extent would begin, the item's offset in the file less its offset in the extent, in 64 bits. Items
    /// that show parts of an extent where they were written share nothing with each other. False for an extent that the commit does not
    /// have, and for one whose users damage hides when the rescue option ignores bad trees.
    ///
    /// # Errors
    /// Device errors; damage.
    pub fn is_shared(&mut self, at: Logical, id: InodeId, base: u64) -> Result<bool> {
        self.asked += 1;
        if self.asked >= STALE_AFTER {
            self.renew()?;
        }
        let few = match self.known.get(&at) {
            Some(few) => *few,
            None => self.look(at)?,
        };
        Ok(match few {
            Few::Nobody => false,
            Few::One(user, where_in_it) => (user, where_in_it) != (id, base),
            Few::Several => true,
        })
    }

    /// Whether the rescue option ignores this error of a damaged extent tree.
    fn passes_over(&self, error: &Error) -> bool {
        error.kind().is_damage() && self.engine.volume().rescue().ignore_bad_roots
    }

    fn look(&mut self, at: Logical) -> Result<Few> {
        let few = match self.walk.few(at) {
            // The notes of the volume name the tree that is left out; the users are unknown.
            Err(error) if self.passes_over(&error) => Few::Nobody,
            few => few?,
        };
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(at, few);
        Ok(few)
    }

    fn renew(&mut self) -> Result<()> {
        self.asked = 0;
        if self.engine.commit_root_guard().generation() != self.walk.guard().generation() {
            self.walk = Walk::for_few(self.engine.committed_trees()?);
            self.known.clear();
        }
        Ok(())
    }
}

impl Engine {
    /// The users of the data extent that contains `at`, in the last commit.
    ///
    /// # Errors
    /// Not found: there is no data extent. Device errors; damage.
    pub fn extent_users(&self, at: Logical) -> Result<ExtentUsers> {
        Walk::for_all(self.committed_trees()?).users(at)
    }

    /// Begins to answer which files share their data.
    ///
    /// # Errors
    /// Device errors; damage.
    pub fn sharing(&self) -> Result<Sharing<'_>> {
        let walk = Walk::for_few(self.committed_trees()?);
        Ok(Sharing { engine: self, walk, known: HashMap::new(), asked: 0 })
    }

    /// The trees of the last commit, for walking them.
    fn committed_trees(&self) -> Result<Trees<CommittedBlocks<'_>>> {
        // The guard comes first: it keeps at least the blocks of the pointer that is read after it.
        let guard = self.commit_root_guard();
        let root_tree = self.root_tree.tree().commit_root();
        Trees::new(CommittedBlocks::new(&self.store, guard), root_tree)
    }
}
