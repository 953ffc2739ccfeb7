//! What a scrub tells of.

use std::time::Duration;

use creamery_base::{DevId, Logical, Physical};

use super::Counts;

/// What is bad.
///
/// ```
/// use creamery_maint::scrub::What;
/// assert_ne!(What::Data, What::Tree);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// A copy of the superblock.
    Superblock,
    /// A tree block.
    Tree,
    /// A sector of data.
    Data,
    /// A sector of parity.
    Parity,
    /// A sector of data without a checksum, of which another copy differs.
    Differing,
    /// Trees that lead to what is in use: some of the device was not scrubbed.
    NotScrubbed,
}

/// What became of it, from the best to the worst.
///
/// ```
/// use creamery_maint::scrub::Outcome;
/// assert_ne!(Outcome::Mended, Outcome::Lost);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// It is good now.
    Mended,
    /// Something good is there, and nothing was to be written.
    Mendable,
    /// Nothing says which of two is right.
    Undecided,
    /// There is nothing good.
    Lost,
}

/// Something bad on a device.
///
/// ```no_run
/// # fn example(finding: &creamery_maint::scrub::Finding) {
/// println!("{:?} at {}: {} ({:?})", finding.what, finding.at, finding.why, finding.outcome);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Finding {
    /// What is bad.
    pub what: What,
    /// Where it lies.
    pub at: Physical,
    /// Its address, if it has one.
    pub logical: Option<Logical>,
    /// Expected and found, or why it was not read.
    pub why: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// Takes what a scrub finds. It is called from several threads.
///
/// ```
/// use creamery_base::DevId;
/// use creamery_maint::scrub::{Counts, Finding, Sink};
/// struct Print;
/// impl Sink for Print {
///     fn found(&self, finding: &Finding) {
///         println!("{}: {}", finding.at, finding.why);
///     }
///     fn goes_on(&self, _: DevId, _: &Counts) -> bool {
///         true
///     }
/// }
/// ```
pub trait Sink: Sync {
    /// Something is bad.
    fn found(&self, finding: &Finding);

    /// So much of a device is scrubbed. Whether to go on.
    fn goes_on(&self, device: DevId, counts: &Counts) -> bool;

    /// How fast a device is to be read, bytes a second; none, as fast as it can be. It is asked before each step.
    fn limit(&self, device: DevId) -> Option<u64> {
        let _ = device;
        None
    }

    /// Lets some time pass, so that a device is not read faster than that. Without one of its own the thread sleeps.
    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}
