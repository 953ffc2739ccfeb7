//! `cargo xtask crash`: thousands of power cuts, some of them before judges.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use creamery_sim::{Campaign, campaign};

const STATES: usize = 3000;
const JUDGED: usize = 200;

/// Runs what the options say and tells what was seen.
pub(crate) fn crash(options: &[&str]) -> Result<()> {
    let mut wanted = Campaign { seed: 1, states: STATES, judged: JUDGED };
    for pair in options.chunks(2) {
        let &[name, value] = pair else { bail!("{} wants a number", pair.join(" ")) };
        let number: u64 = value.parse().with_context(|| format!("{name} {value}"))?;
        match name {
            "--seed" => wanted.seed = number,
            "--states" => wanted.states = usize::try_from(number)?,
            "--judged" => wanted.judged = usize::try_from(number)?,
            _ => bail!("unknown option {name}"),
        }
    }
    let start = Instant::now();
    for line in campaign(&wanted)? {
        println!("{line}");
    }
    println!("seed {}, {:.0} s", wanted.seed, start.elapsed().as_secs_f64());
    Ok(())
}
