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

use side::{Directory, Library, Setting, Side};
use workload::{Scale, Workload};

const USAGE: &str = "usage: creamery-bench create|lookup|lookup-warm|readdir|unlink|mixed (--image FILE | --dir DIR) [--threads N] [--files N] [--rounds N] [--cache-mib N] [--dirty-mib N] [--early-unlock on|off] [--fingers on|off] [--lock-times on|off]";

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
    let mut target = None;
    let mut setting = Setting::default();
    for pair in options.chunks(2) {
        let [name, value] = pair else { bail!("{} wants a value\n{USAGE}", pair[0]) };
        let number = || value.parse::<usize>().with_context(|| format!("{name} {value}"));
        match name.as_str() {
            "--image" | "--dir" => target = Some((name.as_str(), PathBuf::from(value))),
            "--threads" => scale.threads = number()?.max(1),
            "--files" => scale.files = number()?,
            "--rounds" => scale.rounds = number()?.max(1),
            "--cache-mib" => setting.cache_mib = Some(number()?),
            "--dirty-mib" => setting.dirty_mib = Some(number()?),
            "--early-unlock" => setting.early_unlock = Some(switch(value)?),
            "--fingers" => setting.fingers = Some(switch(value)?),
            "--lock-times" => setting.lock_times = switch(value)?,
            _ => bail!("unknown option {name}\n{USAGE}"),
        }
    }
    let side: Box<dyn Side> = match target.context(USAGE)? {
        ("--image", image) => Box::new(Library::open(&image, setting)?),
        (_, dir) => Box::new(Directory::new(dir)),
    };
    let times = workload.run(&*side, scale)?;
    let mut said = times.to_json();
    said["statistics"] = serde_json::to_value(side.statistics())?;
    side.close()?;
    Ok(said)
}

fn switch(value: &str) -> Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => bail!("{value} is neither on nor off\n{USAGE}"),
    }
}
