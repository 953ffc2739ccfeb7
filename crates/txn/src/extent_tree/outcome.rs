//! The effect of a head on its extent.

use creamery_base::{Generation, TreeId};

use super::owners::Owners;

/// The effect of running one head on its extent.
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

/// The result of running one head, for accounting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applied {
    pub(crate) outcome: Outcome,
    /// The owners before.
    pub(crate) before: Owners,
    /// The owners after.
    pub(crate) after: Owners,
    /// The tree for which the extent counts under simple quotas, and the generation in which it was made.
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
