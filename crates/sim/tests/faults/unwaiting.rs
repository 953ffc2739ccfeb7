//! Direct requests that must not wait.

use creamery_sim::{MadeBy, fresh_image, unwaiting_run};
use creamery_testkit::share_or_whole;

#[test]
fn what_is_refused_leaves_no_trace_and_is_carried_out_by_a_thread_that_waits() {
    let base = fresh_image(&MadeBy::default()).expect("an image");
    for seed in 1..=share_or_whole(3, 10) {
        let report = unwaiting_run(&base, seed, 10_000).unwrap_or_else(|error| panic!("{error:#}"));
        println!("{report:?}");
        assert!(report.begun > 500 && report.retried > 300, "{report:?}");
        assert!(report.not_compared < report.attempts / 100, "{report:?}");
        assert!(report.refused.len() >= 10 && report.steps.1 > 50, "{report:?}");
    }
}
