//! Keeping the machine from measuring itself.
//!
//! A virtual machine may hand memory that nobody uses back to its host (free page reporting), some seconds after it became
//! free. The next program that wants it waits for the host, page by page; and the reporting itself takes a processor's time.
//! So a run's system time depends on what ran before and when: the same program takes a third longer or not. While a bench
//! runs, only the largest pieces are reported, which is the least that can be asked for.

use std::fs;

const PAGE_REPORTING_ORDER: &str = "/sys/module/page_reporting/parameters/page_reporting_order";
/// The largest order of free pages.
const LARGEST: &str = "10";

/// As long as it lives, the machine reports less free memory. Where it reports none, or this process may not say so, it does nothing.
pub(super) struct QuietMemory {
    before: Option<String>,
}

impl QuietMemory {
    /// Remembers how it was.
    pub(super) fn new() -> Self {
        let before = fs::read_to_string(PAGE_REPORTING_ORDER).ok();
        let set = |_: &String| fs::write(PAGE_REPORTING_ORDER, LARGEST).is_ok();
        Self { before: before.filter(set) }
    }
}

impl Drop for QuietMemory {
    fn drop(&mut self) {
        if let Some(before) = &self.before
            && let Err(error) = fs::write(PAGE_REPORTING_ORDER, before.trim())
        {
            eprintln!("{PAGE_REPORTING_ORDER} should be {} again: {error}", before.trim());
        }
    }
}
