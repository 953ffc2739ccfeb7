//! Thousands of power cuts on a simulated device, some of them before judges: `cargo xtask crash` builds and runs this program.
//!
//! `crash [--seed S] [--states N] [--judged N]`

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use creamery_sim::{Campaign, campaign};

const STATES: usize = 3000;
const JUDGED: usize = 200;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match wanted(&words).and_then(|wanted| run(&wanted)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crash: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The campaign that the options describe.
fn wanted(options: &[String]) -> Result<Campaign> {
    let mut wanted = Campaign { seed: 1, states: STATES, judged: JUDGED };
    for pair in options.chunks(2) {
        let [name, value] = pair else {
            bail!("{}: expected --seed, --states or --judged and a number", pair.join(" "))
        };
        let number: u64 = value.parse().with_context(|| format!("{name} {value}: expected a number"))?;
        match name.as_str() {
            "--seed" => wanted.seed = number,
            "--states" => wanted.states = usize::try_from(number)?,
            "--judged" => wanted.judged = usize::try_from(number)?,
            _ => bail!("unknown option {name}: expected --seed, --states or --judged"),
        }
    }
    Ok(wanted)
}

fn run(wanted: &Campaign) -> Result<()> {
    let start = Instant::now();
    for line in campaign(wanted)? {
        println!("{line}");
    }
    println!("seed {}, {:.0} s", wanted.seed, start.elapsed().as_secs_f64());
    Ok(())
}
