//! Filesystems of random sizes and sorts are filled by several writers, and have all that they accepted.

use creamery_sim::{FullRun, SimDevice};
use creamery_testkit::{asked_seed, rounds};

use crate::refill;

/// Filesystems: of every change, and of a proof.
const ROUNDS: (u64, u64) = (8, 300);
/// Of so many one is checked by btrfs-progs.
const JUDGED_ONE_IN: u64 = 4;

#[test]
fn whatever_a_full_filesystem_accepted_is_there() {
    let first = asked_seed();
    let mut failed = Vec::new();
    for seed in first..first + rounds(ROUNDS.0, ROUNDS.1) {
        let run = FullRun::of(seed).run();
        let judged = run.and_then(|image| match seed % JUDGED_ONE_IN {
            0 => refill::judge(&SimDevice::new(image)),
            _ => Ok(()),
        });
        failed.extend(judged.err().map(|error| format!("{error:#}")));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
