//! `creamery-bench-beside NAME [OPTIONS]`: measurements beside others, in one run, on the same memory filesystem. `cargo xtask bench` builds and
//! runs it. The other program of this crate, `creamery-bench`, runs one workload on one side.
//!
//! Back of the envelope for `bench image`: reading 400 MB in 30,000 files takes 0.8 s on two cores and writing them to a
//! memory filesystem about as long, so a plain `cp -a` needs 1.5 to 2 s; an engine that creates a file in 5 us of
//! tree work adds 0.15 s. So the plain copy is the mark, and mkfs.btrfs with 6.8 s is to be beaten at least threefold.

mod check;
mod check_memory;
mod compress;
mod data;
mod direct;
mod durable;
mod flat;
mod fs_mark;
mod gate;
mod image;
mod kernel_set;
mod library;
mod measure;
mod memory;
mod names;
mod nocow_leaf;
mod options;
mod programs;
mod quiet;
mod quotas;
mod report;
mod requests;
mod scaling;
mod scrub;
mod seek;
mod server;
mod sets;
mod subvolumes;
mod switches;

use std::process::ExitCode;

use anyhow::{Result, bail};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("creamery-bench-beside: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<()> {
    let Some((name, options)) = words.split_first() else { bail!("which bench?") };
    let _quiet = quiet::QuietMemory::new();
    match *name {
        "image" => image::image(options),
        "fs_mark" => fs_mark::fs_mark(options),
        "data" => data::data(options),
        "direct" => direct::direct(options),
        "fsync" => durable::fsync(options),
        "dbench" => durable::dbench(options),
        "seek" => seek::seek(options),
        "nocow-leaf" => nocow_leaf::nocow_leaf(options),
        "nocow-fsync" => durable::nocow_fsync(options),
        "gate" => gate::gate(options),
        "snapshot" => subvolumes::snapshot(options),
        "clone" => subvolumes::clone(options),
        "drop" => subvolumes::drop_beside(options),
        "memory" => memory::memory(options),
        "check" => check::check(options),
        "compress" => compress::compress(options),
        "quotas" => quotas::quotas(options),
        "check-memory" => check_memory::check_memory(options),
        "early-unlock" => switches::early_unlock(options),
        "sets" => sets::sets(options),
        "scrub" => scrub::scrub(options),
        "fingers" => switches::fingers(options),
        "scaling" => scaling::scaling(options),
        "flat" => flat::flat(options),
        "requests" => requests::requests(options),
        "create" | "lookup" | "lookup-warm" | "readdir" | "unlink" | "mixed" => names::names(name, options),
        _ => bail!("there is no bench {name}: cargo xtask help lists them"),
    }
}
