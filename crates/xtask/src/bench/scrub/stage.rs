//! What the parts of the bench need.

use creamery_testkit::Scratch;

use crate::bench::options::Options;
use crate::bench::programs::Programs;

/// Programs, a place, and how much is done.
pub(super) struct Stage {
    pub(super) programs: Programs,
    pub(super) scratch: Scratch,
    pub(super) options: Options,
}
