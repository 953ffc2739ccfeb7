//! What a scrub tells of.

use std::fmt;
use std::time::Duration;

use creamery_base::{DevId, Error, Escaped, Logical, Physical, Result};

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
    /// A sector of parity of data without a checksum.
    UnsummedParity,
    /// A sector of data without a checksum, of which another copy differs.
    Differing,
    /// Trees that lead to what is in use: some of the device was not scrubbed.
    NotScrubbed,
}

impl What {
    /// All there are.
    pub const ALL: [Self; 7] = [
        Self::Superblock,
        Self::Tree,
        Self::Data,
        Self::Parity,
        Self::UnsummedParity,
        Self::Differing,
        Self::NotScrubbed,
    ];

    /// Whether files have it: its address is one of their data.
    #[must_use]
    pub const fn is_of_files(self) -> bool {
        matches!(self, Self::Data | Self::UnsummedParity | Self::Differing)
    }

    /// Its words in a report.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Tree => "tree block",
            Self::Data => "data",
            Self::Parity => "parity",
            Self::UnsummedParity => "parity of data without checksum",
            Self::Differing => "data without checksum",
            Self::NotScrubbed => "block group",
        }
    }
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
    /// Something good is there, and writing it failed.
    Unwritten,
    /// There is nothing good.
    Lost,
}

impl Outcome {
    /// All there are.
    pub const ALL: [Self; 5] = [Self::Mended, Self::Mendable, Self::Undecided, Self::Unwritten, Self::Lost];

    /// Its word in a report.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Mended => "mended",
            Self::Mendable => "mendable",
            Self::Undecided => "undecided",
            Self::Unwritten => "unwritten",
            Self::Lost => "lost",
        }
    }
}

/// What became of something bad, and why what is good was not written there.
#[derive(Debug)]
pub(super) struct Rewritten {
    pub(super) outcome: Outcome,
    failure: Option<Error>,
}

impl Rewritten {
    /// Nothing was written.
    pub(super) const fn not(outcome: Outcome) -> Self {
        Self { outcome, failure: None }
    }

    /// Writing ended like that.
    pub(super) fn by(written: Result<()>) -> Self {
        match written {
            Ok(()) => Self::not(Outcome::Mended),
            Err(error) => Self { outcome: Outcome::Unwritten, failure: Some(error) },
        }
    }

    /// Why the place is bad, and why it still is.
    pub(super) fn why(&self, bad: &str) -> String {
        match &self.failure {
            Some(error) => format!("{bad}; writing what is good failed: {error}"),
            None => bad.to_owned(),
        }
    }
}

/// Something bad on a device. It is shown as one line of a report, which [`parse`](Self::parse) reads.
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

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.what.words(), self.at)?;
        if let Some(logical) = self.logical {
            write!(f, ", logical {logical}")?;
        }
        write!(f, ", {}: {}", self.outcome.word(), Escaped(self.why.as_bytes()))
    }
}

impl Finding {
    /// A device that could not be scrubbed any more.
    #[must_use]
    pub fn of_device(dev: DevId, error: &Error) -> Self {
        let at = Physical { dev, offset: 0 };
        Self { what: What::NotScrubbed, at, logical: None, why: error.to_string(), outcome: Outcome::Lost }
    }

    /// The finding that a line of a report shows; none if it shows none.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let (head, rest) = line.split_once(" at devid ")?;
        let (place, why) = rest.split_once(": ")?;
        let (place, outcome) = place.rsplit_once(", ")?;
        let (place, logical) = match place.split_once(", logical ") {
            Some((place, logical)) => (place, Some(Logical::new(logical.parse().ok()?))),
            None => (place, None),
        };
        let (dev, offset) = place.split_once(" offset ")?;
        let at = Physical { dev: DevId::new(dev.parse().ok()?), offset: offset.parse().ok()? };
        Some(Self {
            what: What::ALL.into_iter().find(|what| what.words() == head)?,
            at,
            logical,
            why: why.to_owned(),
            outcome: Outcome::ALL.into_iter().find(|known| known.word() == outcome)?,
        })
    }
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

/// What is found is not reported.
pub(super) struct Unheard;

impl Sink for Unheard {
    fn found(&self, _: &Finding) {}

    fn goes_on(&self, _: DevId, _: &Counts) -> bool {
        true
    }
}
