//! `creamery-bench WORKLOAD SIDE [--threads N] [--files N] [--rounds N]`: one workload on one side, its times as one line
//! of JSON. `cargo xtask bench` runs both sides in turn and compares.
//!
//! The side is `--image FILE`, a filesystem that the library opens, or `--dir DIR`, one that is mounted. Both do the same
//! operations by the same names, from as many threads.

mod side;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use side::{Directory, Library, Side};
use workload::{Scale, Workload};

const USAGE: &str = "usage: creamery-bench create|lookup|lookup-warm|readdir|unlink|mixed (--image FILE | --dir DIR) [--threads N] [--files N] [--rounds N]";

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("creamery-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<serde_json::Value> {
    let (workload, options) = words.split_first().context(USAGE)?;
    let workload = Workload::parse(workload).context(USAGE)?;
    let mut scale = Scale { threads: 1, files: 100_000, rounds: 1 };
    let mut side: Option<Box<dyn Side>> = None;
    for pair in options.chunks(2) {
        let [name, value] = pair else { bail!("{} wants a value\n{USAGE}", pair[0]) };
        let number = || value.parse::<usize>().with_context(|| format!("{name} {value}"));
        match name.as_str() {
            "--image" => side = Some(Box::new(Library::open(&PathBuf::from(value))?)),
            "--dir" => side = Some(Box::new(Directory::new(value))),
            "--threads" => scale.threads = number()?.max(1),
            "--files" => scale.files = number()?,
            "--rounds" => scale.rounds = number()?.max(1),
            _ => bail!("unknown option {name}\n{USAGE}"),
        }
    }
    let side = side.context(USAGE)?;
    let times = workload.run(&*side, scale)?;
    side.close()?;
    Ok(times.to_json())
}
