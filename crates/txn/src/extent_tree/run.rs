//! Running one head: putting the queued changes of an extent into the extent tree (`apply`). `run_refs` decides which heads run, and when.

use creamery_base::{Logical, Result};
use creamery_tree::CowHost;

use super::backref::ExtentKind;
use super::outcome::{Applied, Outcome};
use super::ref_head::RefHead;
use super::tree::ExtentTree;

/// A head that has run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    pub(crate) kind: ExtentKind,
    pub(crate) len: u64,
    pub(crate) applied: Applied,
}

impl ExtentTree {
    /// Puts the queued changes of an extent into the tree; `None` when there are none.
    ///
    /// # Errors
    /// No space, device errors; damage: the changes contradict the tree.
    pub(crate) fn run(&self, host: &dyn CowHost, at: Logical) -> Result<Option<Ran>> {
        let Some(locked) = self.refs.lock(at) else { return Ok(None) };
        let RefHead { kind, len, .. } = *locked.head();
        let applied = self.apply(host, at, locked.head())?;
        locked.ran(!matches!(applied.outcome, Outcome::Freed | Outcome::NeverThere));
        Ok(Some(Ran { kind, len, applied }))
    }
}
