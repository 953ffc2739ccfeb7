//! Filesystems of random sizes and sorts are filled by several writers, and have all that they accepted.

#[path = "support/refill.rs"]
#[allow(dead_code, reason = "its judge is what is used here")]
mod refill;

use creamery_sim::{FullRun, SimDevice};

/// Filesystems; `CREAMERY_ROUNDS` says otherwise, and `CREAMERY_SEED` which is the first.
const ROUNDS: u64 = 8;
/// Of so many one is checked by btrfs-progs.
const JUDGED_ONE_IN: u64 = 4;

fn from_env(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn whatever_a_full_filesystem_accepted_is_there() {
    let first = from_env("CREAMERY_SEED", 0);
    let mut failed = Vec::new();
    for seed in first..first + from_env("CREAMERY_ROUNDS", ROUNDS) {
        let run = FullRun::of(seed).run();
        let judged = run.and_then(|image| match seed % JUDGED_ONE_IN {
            0 => refill::judge(&SimDevice::new(image)),
            _ => Ok(()),
        });
        failed.extend(judged.err().map(|error| format!("{error:#}")));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
