//! Options of a check, and the callbacks for its progress.

/// The options of a check.
///
/// ```
/// use creamery_check::CheckOptions;
/// let options = CheckOptions { check_data_csum: true, ..CheckOptions::default() };
/// assert!(options.threads >= 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckOptions {
    /// Read all data and compare it with its checksums: each copy of data, and each copy of tree blocks.
    pub check_data_csum: bool,
    /// Read all parity and compare it with its data. This reads all data as well.
    pub check_parity: bool,
    /// Threads that read and verify blocks.
    pub threads: usize,
    /// Bytes for lists that explain a disagreement. The tables of the check itself grow with the number of tree blocks and of gaps between
    /// extents, about 60 bytes for each.
    pub memory_limit: u64,
    /// Maximum number of listed findings; further ones are only counted.
    pub findings_limit: usize,
}

impl CheckOptions {
    /// Whether the check reads data.
    pub(crate) const fn reads_data(&self) -> bool {
        self.check_data_csum || self.check_parity
    }
}

impl Default for CheckOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
        Self {
            check_data_csum: false,
            check_parity: false,
            threads,
            memory_limit: 256 << 20,
            findings_limit: 10_000,
        }
    }
}

/// Receives the progress of a check.
///
/// ```
/// struct Print;
/// impl creamery_check::Progress for Print {
///     fn phase(&self, name: &'static str) {
///         println!("checking {name}");
///     }
/// }
/// ```
pub trait Progress: Sync {
    /// Called when a new phase begins.
    fn phase(&self, name: &'static str);
    /// Called with the total number of tree blocks read so far.
    fn tree_blocks(&self, _done: u64) {}
    /// Called with the total number of data bytes verified so far.
    fn data_bytes(&self, _done: u64) {}
}

/// Ignores all progress.
///
/// ```
/// use creamery_check::{NoProgress, Progress};
/// NoProgress.phase("extents");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn phase(&self, _name: &'static str) {}
}
