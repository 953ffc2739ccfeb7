//! What became of an extent.

use creamery_base::{Generation, TreeId};

use super::owners::Owners;

/// What running one head did to its extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The extent is new.
    Inserted,
    /// Only its references changed.
    Changed,
    /// The last reference went.
    Freed,
    /// It was new and lost its references before anything was recorded.
    NeverThere,
}

/// What running one head did, for those who count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applied {
    pub(crate) outcome: Outcome,
    /// Who had the extent.
    pub(crate) before: Owners,
    /// Who has it now.
    pub(crate) after: Owners,
    /// For whom it counts where each extent counts for one, and when it was made.
    pub(crate) payer: Option<(TreeId, Generation)>,
}

impl Applied {
    pub(super) const fn unchanged(owners: Owners) -> Self {
        Self { outcome: Outcome::Changed, before: owners, after: owners, payer: None }
    }

    pub(super) const fn never_there() -> Self {
        let nobody = Owners::Nobody;
        Self { outcome: Outcome::NeverThere, before: nobody, after: nobody, payer: None }
    }
}
