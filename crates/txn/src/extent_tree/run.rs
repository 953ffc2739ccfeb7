//! Running one head: what is queued for an extent goes into the extent tree (`apply`). Which heads, and when: `run_refs`.

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
    /// Puts what is queued for an extent into the tree; none when nothing is.
    ///
    /// # Errors
    /// No space, device errors; damage: what is queued does not fit to what the tree says.
    pub(crate) fn run(&self, host: &dyn CowHost, at: Logical) -> Result<Option<Ran>> {
        let Some(locked) = self.refs.lock(at) else { return Ok(None) };
        let RefHead { kind, len, .. } = *locked.head();
        let applied = self.apply(host, at, locked.head())?;
        locked.ran(!matches!(applied.outcome, Outcome::Freed | Outcome::NeverThere));
        Ok(Some(Ran { kind, len, applied }))
    }
}
