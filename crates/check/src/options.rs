//! What a caller may choose, and how it is told what goes on.

/// How to check.
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
    /// Read all parity and compare it with what its data has; reads all data as well.
    pub check_parity: bool,
    /// Threads that read and verify blocks.
    pub threads: usize,
    /// Bytes that explaining a disagreement may use for lists; the tables of the check itself grow with the number
    /// of tree blocks and of gaps between extents, about 60 bytes for each.
    pub memory_limit: u64,
    /// Findings that are listed; the rest is only counted.
    pub findings_limit: usize,
}

impl CheckOptions {
    /// Whether data is read.
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

/// Is told what goes on.
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
    /// A new part begins.
    fn phase(&self, name: &'static str);
    /// So many tree blocks were read, in all.
    fn tree_blocks(&self, _done: u64) {}
    /// So many bytes of data were verified, in all.
    fn data_bytes(&self, _done: u64) {}
}

/// Is told and says nothing.
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
