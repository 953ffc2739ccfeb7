//! What was synced is there, whenever power fails.

use creamery_sim::{Canary, MadeBy, fresh_image, log_run};

#[test]
fn what_was_synced_survives_every_power_cut() {
    for seed in 0..6 {
        let node_size = if seed % 2 == 0 { 4096 } else { 16384 };
        let image = fresh_image(&MadeBy { node_size, ..MadeBy::default() }).expect("an image");
        let report = log_run(&image, seed, 150, None).unwrap_or_else(|error| panic!("{error:#}"));
        println!("seed {seed}: {report:?}");
        assert!(report.logged > 20 && report.replayed > 20, "{report:?}");
    }
}

#[test]
fn a_device_that_ignores_the_flush_of_a_log_is_noticed() {
    for canary in [Canary::NoFlushBeforeSuperblock, Canary::NoFlushAfterSuperblock] {
        let image = fresh_image(&MadeBy::default()).expect("an image");
        let noticed = (0..10).find_map(|seed| log_run(&image, seed, 300, Some(canary)).err());
        println!("{canary:?}: {:#}", noticed.expect("a broken promise"));
    }
}
