//! Logs are replayed as a whole, whenever power fails.

use creamery_sim::{MadeBy, Taste, random_run, replay_run};

#[test]
fn a_replay_survives_every_power_cut() {
    let mut tried = 0;
    for seed in 0..12 {
        let node_size = if seed % 2 == 0 { 4096 } else { 16384 };
        let made_by = MadeBy { node_size, ..MadeBy::default() };
        let image = random_run(seed, 300, &made_by, Taste::default()).expect("random work");
        tried += replay_run(&image, seed, 40).expect("it is replayed as a whole");
    }
    assert!(tried > 100, "{tried} states");
}
