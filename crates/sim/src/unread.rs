//! What no read shows of a file that lost data.

use std::collections::BTreeSet;

/// What is not known of a file after data of it was lost.
#[derive(Clone, Debug)]
pub(crate) struct Unread {
    /// How many failures there were before.
    pub(crate) after: u64,
    /// The sectors that could not be read; none where nothing could.
    pub(crate) sectors: Option<BTreeSet<usize>>,
}

impl Unread {
    /// What is not known of a clone that has `len` sectors of this file, those from `from` on, at `to`.
    pub(crate) fn moved(&self, from: usize, len: usize, to: usize) -> Self {
        let within = |sectors: &BTreeSet<usize>| {
            sectors.range(from..from + len).map(|sector| sector - from + to).collect::<BTreeSet<_>>()
        };
        Self { after: self.after, sectors: self.sectors.as_ref().map(within) }
    }

    /// What is not known for either reason.
    pub(crate) fn or(self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        let sectors = self.sectors.zip(other.sectors).map(|(one, other)| &one | &other);
        Self { after: self.after.min(other.after), sectors }
    }
}
