//! The findings of a scrub.

use std::fmt;
use std::time::Duration;

use creamery_base::{DevId, Error, Escaped, Logical, Physical, Result};

use super::Counts;

/// The kind of a bad object.
///
/// ```
/// use creamery_maint::scrub::FindingKind;
/// assert_ne!(FindingKind::Data, FindingKind::Tree);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FindingKind {
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
    /// A sector of data without a checksum that differs from another copy.
    Differing,
    /// Damaged trees that should show the space in use: some of the device was not scrubbed.
    NotScrubbed,
}

impl FindingKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Superblock,
        Self::Tree,
        Self::Data,
        Self::Parity,
        Self::UnsummedParity,
        Self::Differing,
        Self::NotScrubbed,
    ];

    /// Whether it belongs to files: its address is one of their data.
    #[must_use]
    pub const fn is_of_files(self) -> bool {
        matches!(self, Self::Data | Self::UnsummedParity | Self::Differing)
    }

    /// The words for it in a report.
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

/// The outcome for a bad object, from the best to the worst.
///
/// ```
/// use creamery_maint::scrub::Outcome;
/// assert_ne!(Outcome::Mended, Outcome::Lost);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Outcome {
    /// It is repaired.
    Mended,
    /// A good copy exists, but nothing was to be written.
    Mendable,
    /// It is unknown which of two copies is right.
    Undecided,
    /// A good copy exists, but writing it failed.
    Unwritten,
    /// There is no good copy.
    Lost,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 5] = [Self::Mended, Self::Mendable, Self::Undecided, Self::Unwritten, Self::Lost];

    /// The word for it in a report.
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

/// The outcome for a bad object, and the reason why it was not rewritten.
#[derive(Debug)]
pub(super) struct Rewritten {
    pub(super) outcome: Outcome,
    failure: Option<Error>,
}

impl Rewritten {
    /// An outcome without a write.
    pub(super) const fn not(outcome: Outcome) -> Self {
        Self { outcome, failure: None }
    }

    /// The outcome of a write.
    pub(super) fn by(written: Result<()>) -> Self {
        match written {
            Ok(()) => Self::not(Outcome::Mended),
            Err(error) => Self { outcome: Outcome::Unwritten, failure: Some(error) },
        }
    }

    /// The reason why the object is bad, and why it was not repaired.
    pub(super) fn why(&self, bad: &str) -> String {
        match &self.failure {
            Some(error) => format!("{bad}; writing what is good failed: {error}"),
            None => bad.to_owned(),
        }
    }
}

/// A bad object on a device. It is shown as one line of a report, which [`parse`](Self::parse) reads.
///
/// ```no_run
/// # fn example(finding: &creamery_maint::scrub::Finding) {
/// println!("{:?} at {}: {} ({:?})", finding.what, finding.at, finding.why, finding.outcome);
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Finding {
    /// The kind of object.
    pub what: FindingKind,
    /// Its place on the device.
    pub at: Physical,
    /// Its address, if it has one.
    pub logical: Option<Logical>,
    /// The expected and found values, or the read error.
    pub why: String,
    /// The outcome.
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
    /// The finding about a device that could not be scrubbed any more.
    #[must_use]
    pub fn of_device(dev: DevId, error: &Error) -> Self {
        let at = Physical { dev, offset: 0 };
        Self {
            what: FindingKind::NotScrubbed,
            at,
            logical: None,
            why: error.to_string(),
            outcome: Outcome::Lost,
        }
    }

    /// Parses a line of a report; `None` if it is no finding.
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
            what: FindingKind::ALL.into_iter().find(|what| what.words() == head)?,
            at,
            logical,
            why: why.to_owned(),
            outcome: Outcome::ALL.into_iter().find(|known| known.word() == outcome)?,
        })
    }
}

/// Receives the findings of a scrub, from several threads.
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
    /// Reports a bad object.
    fn found(&self, finding: &Finding);

    /// Reports the counts of a device so far. Returns whether to go on.
    fn goes_on(&self, device: DevId, counts: &Counts) -> bool;

    /// The limit of a device's read rate, bytes a second; `None` is no limit. The scrub asks before each step.
    fn limit(&self, device: DevId) -> Option<u64> {
        let _ = device;
        None
    }

    /// Waits, so that a device is not read faster than its limit. The default puts the thread to sleep.
    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Drops all findings.
pub(super) struct Unheard;

impl Sink for Unheard {
    fn found(&self, _: &Finding) {}

    fn goes_on(&self, _: DevId, _: &Counts) -> bool {
        true
    }
}
