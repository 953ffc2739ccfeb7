//! The findings of a check, and the amount of work it did.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, ErrorKind, Escaped, Logical, Result, TreeId};
use creamery_format::{BlockSite, Corruption, Key};
use serde::Serialize;

use crate::corruption::problem_of;
use crate::damaged_sector::DamagedSector;
use crate::problem::{Problem, Severity};

/// One problem that the check found.
///
/// ```
/// use creamery_check::{Finding, Problem};
/// let finding = Finding::new(Problem::ExtentOverlap, Default::default(), "extent 4096, expected 0, found 1");
/// assert_eq!(finding.to_string(), "error 401: extents overlap: extent 4096, expected 0, found 1");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// The permanent number.
    pub number: u16,
    /// The severity.
    pub severity: Severity,
    /// The problem, in fixed words.
    pub title: &'static str,
    /// The place of the problem.
    pub place: ProblemSite,
    /// The details: found and expected values.
    pub message: String,
}

/// The place of a problem, as far as it is one place.
///
/// ```
/// assert!(creamery_check::ProblemSite::default().tree.is_none());
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ProblemSite {
    /// The tree; ids near 2^64 are the negative ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tree: Option<u64>,
    /// The tree block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// Its level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
    /// The item or key pointer in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<u64>,
    /// Its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The inode of the file, in findings about file data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// The sector, in findings about file data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sector: Option<Box<DamagedSector>>,
}

impl ProblemSite {
    /// A whole tree.
    pub(crate) fn tree(tree: TreeId) -> Self {
        Self { tree: Some(tree.get()), ..Self::default() }
    }

    /// An item, by its key.
    pub(crate) fn key(tree: TreeId, key: Key) -> Self {
        Self { key: Some(key.to_string()), ..Self::tree(tree) }
    }

    /// A slot of a leaf.
    pub(crate) fn slot(tree: TreeId, block: Logical, slot: usize, key: Key) -> Self {
        Self { block: Some(block.get()), level: Some(0), slot: Some(slot as u64), ..Self::key(tree, key) }
    }

    /// A tree block.
    pub(crate) fn block(tree: TreeId, block: Logical, level: Option<u8>) -> Self {
        Self { block: Some(block.get()), level, ..Self::tree(tree) }
    }
}

impl From<&BlockSite> for ProblemSite {
    fn from(site: &BlockSite) -> Self {
        Self {
            tree: site.tree.map(TreeId::get),
            block: Some(site.logical.get()),
            level: site.level,
            slot: site.slot.map(|slot| slot as u64),
            key: site.key.map(|key| key.to_string()),
            inode: None,
            sector: None,
        }
    }
}

impl fmt::Display for ProblemSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        let mut word = |f: &mut fmt::Formatter<'_>, name: &str, value: &dyn fmt::Display| {
            let outcome = write!(f, "{between}{name}={value}");
            between = " ";
            outcome
        };
        if let Some(tree) = self.tree {
            word(f, "tree", &tree.cast_signed())?;
        }
        if let Some(block) = self.block {
            word(f, "block", &block)?;
        }
        if let Some(level) = self.level.filter(|level| *level > 0) {
            word(f, "level", &level)?;
        }
        if let Some(slot) = self.slot {
            word(f, "slot", &slot)?;
        }
        if let Some(key) = &self.key {
            word(f, "key", key)?;
        }
        Ok(())
    }
}

impl Finding {
    /// A finding at a place.
    #[must_use]
    pub fn new(problem: Problem, place: ProblemSite, message: impl Into<String>) -> Self {
        let (number, severity, title) = (problem.number(), problem.severity(), problem.title());
        Self { number, severity, title, place, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity, self.number, self.title)?;
        let place = self.place.to_string();
        if !place.is_empty() {
            write!(f, ": {place}")?;
        }
        if !self.message.is_empty() {
            // The message may contain file names, which can have any bytes.
            write!(f, ": {}", Escaped(self.message.as_bytes()))?;
        }
        match &self.place.sector {
            Some(sector) => sector.tell_files(f),
            None => Ok(()),
        }
    }
}

/// The amounts that a check has looked at.
///
/// ```
/// assert_eq!(creamery_check::Counts::default().tree_blocks, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Trees, without log trees.
    pub trees: u64,
    /// Tree blocks, each counted once.
    pub tree_blocks: u64,
    /// Inodes. An inode that snapshots share counts once.
    pub inodes: u64,
    /// Extents of data.
    pub data_extents: u64,
    /// Bytes of these extents.
    pub data_bytes: u64,
    /// Bytes that have checksums.
    pub checksummed_bytes: u64,
    /// Bytes of data that were read and compared with their checksums.
    pub verified_bytes: u64,
    /// Bytes of parity that were read and compared with their data.
    pub parity_bytes: u64,
    /// Findings that are errors, listed or not.
    pub errors: u64,
    /// Findings that are warnings, listed or not.
    pub warnings: u64,
}

/// The outcome of a check.
///
/// ```
/// let report = creamery_check::Report::default();
/// assert!(report.is_clean());
/// assert_eq!(report.exit_status(), 0);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Report {
    /// The findings, sorted by number; at most [`CheckOptions::findings_limit`](crate::CheckOptions::findings_limit).
    pub findings: Vec<Finding>,
    /// The amounts of checked items.
    pub counts: Counts,
}

impl Report {
    /// Whether there are no errors; warnings do not count.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.counts.errors == 0
    }

    /// The exit status of fsck(8): 0 for a clean filesystem, 4 for errors that are left uncorrected.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        if self.is_clean() { 0 } else { 4 }
    }
}

/// The exit status of fsck(8) for the outcome of opening and checking: 0 clean, 4 damaged, 8 could not be checked.
///
/// ```
/// use creamery_base::{Error, ErrorKind};
/// assert_eq!(creamery_check::exit_status(&Err(Error::from(ErrorKind::Unsupported))), 8);
/// ```
#[must_use]
pub fn exit_status(outcome: &Result<Report, Error>) -> u8 {
    match outcome {
        Ok(report) => report.exit_status(),
        Err(error) if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unreadable) => 4,
        Err(_) => 8,
    }
}

/// Collects findings from several threads; keeps the first ones and counts the rest.
pub(crate) struct Sink {
    limit: usize,
    kept: RankedMutex<Vec<Finding>, { rank::LEAF }>,
    /// Leaves that Linux refuses.
    refused: RankedMutex<Vec<Corruption>, { rank::LEAF }>,
    errors: AtomicU64,
    warnings: AtomicU64,
}

impl Sink {
    pub(crate) const fn new(limit: usize) -> Self {
        Self {
            limit,
            kept: RankedMutex::new(Vec::new()),
            refused: RankedMutex::new(Vec::new()),
            errors: AtomicU64::new(0),
            warnings: AtomicU64::new(0),
        }
    }

    pub(crate) fn add(&self, problem: Problem, place: ProblemSite, message: impl Into<String>) {
        match problem.severity() {
            Severity::Error => &self.errors,
            Severity::Warning => &self.warnings,
        }
        .fetch_add(1, Ordering::Relaxed);
        let mut kept = self.kept.lock();
        if kept.len() < self.limit {
            kept.push(Finding::new(problem, place, message));
        }
    }

    /// Notes that Linux refuses a leaf. The final report names the leaf, unless a finding about that item explains it.
    pub(crate) fn refuse(&self, damage: Corruption) {
        let mut refused = self.refused.lock();
        if refused.len() < self.limit {
            refused.push(damage);
        }
    }

    fn tell_refused(&self) {
        let refused = std::mem::take(&mut *self.refused.lock());
        for damage in refused {
            let place = ProblemSite::from(damage.site());
            let is_told = self.kept.lock().iter().any(|finding| {
                let told = &finding.place;
                let same_block = told.block.is_none() || told.block == place.block;
                finding.severity == Severity::Error
                    && same_block
                    && told.key.is_some()
                    && told.key == place.key
            });
            if !is_told {
                self.add(problem_of(&damage), place, damage.kind().to_string());
            }
        }
    }

    /// The report, in an order that does not depend on the threads.
    pub(crate) fn into_report(self, counts: Counts) -> Report {
        self.tell_refused();
        let mut findings = self.kept.into_inner();
        findings.sort_by(|a, b| {
            let order = |it: &Finding| (it.number, it.place.tree, it.place.block, it.place.slot);
            order(a).cmp(&order(b)).then_with(|| a.message.cmp(&b.message))
        });
        let (errors, warnings) = (self.errors.into_inner(), self.warnings.into_inner());
        Report { findings, counts: Counts { errors, warnings, ..counts } }
    }
}
