//! What the parts of the bench need.

use creamery_testkit::Scratch;

use crate::options::BesideOptions;
use crate::programs::Programs;

/// Programs, a place, and how much is done.
pub(super) struct ScrubStage {
    pub(super) programs: Programs,
    pub(super) scratch: Scratch,
    pub(super) options: BesideOptions,
}
