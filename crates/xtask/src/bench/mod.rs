//! Measurements beside others, in one run, on the same memory filesystem.
//!
//! Back of the envelope for `bench image`: reading 400 MB in 30,000 files takes 0.8 s on two cores and writing them to a
//! memory filesystem about as long, so a plain `cp -a` needs 1.5 to 2 s; an engine that creates a file in 5 us of
//! tree work adds 0.15 s. So the plain copy is the mark, and mkfs.btrfs with 6.8 s is to be beaten at least threefold.

mod check;
mod check_memory;
mod data;
mod flat;
mod fs_mark;
mod image;
mod library;
mod measure;
mod memory;
mod names;
mod quiet;
mod report;
mod scaling;
mod server;
mod switches;

use anyhow::{Context, Result, bail};

/// `cargo xtask bench NAME [OPTIONS]`.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    let Some((name, options)) = words.split_first() else { bail!("which bench?") };
    let _quiet = quiet::QuietMemory::new();
    match *name {
        "image" => image::image(options),
        "fs_mark" => fs_mark::fs_mark(options),
        "data" => data::data(options),
        "memory" => memory::memory(options),
        "check" => check::check(options),
        "check-memory" => check_memory::check_memory(options),
        "early-unlock" => switches::early_unlock(options),
        "fingers" => switches::fingers(options),
        "scaling" => scaling::scaling(options),
        "flat" => flat::flat(options),
        "create" | "lookup" | "lookup-warm" | "readdir" | "unlink" | "mixed" => names::names(name, options),
        _ => bail!("there is no bench {name}: cargo xtask help lists them"),
    }
}

/// What the words after the command's name say.
struct Options {
    files: u64,
    bytes: u64,
    runs: usize,
    dry: bool,
}

fn options(mut options: Options, words: &[&str]) -> Result<Options> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = || -> Result<u64> {
            let text = words.next().with_context(|| format!("{word} needs a number"))?;
            text.replace('_', "").parse().with_context(|| format!("{word} {text}"))
        };
        match *word {
            "--files" => options.files = number()?,
            "--bytes" => options.bytes = number()?,
            "--runs" => options.runs = usize::try_from(number()?)?.max(1),
            "--dry" => options.dry = true,
            _ => bail!("unknown option {word}: --files N, --bytes N, --runs N, --dry"),
        }
    }
    Ok(options)
}
