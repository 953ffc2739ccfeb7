//! `creamery generate`: the files of a package beside the program, generated from its command line.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Command, Subcommand};
use clap_complete::Shell;

use super::help;
use crate::failure::Failure;
use crate::manual;
use crate::output::{Output, writing};

const NAME: &str = "creamery";

#[derive(Subcommand, Debug)]
pub(crate) enum GenerateCommand {
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Print completions for a shell.
///
/// Examples:
///   creamery generate completions bash > ~/.local/share/bash-completion/completions/creamery
///   creamery generate completions fish > ~/.config/fish/completions/creamery.fish
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

/// Write the manual into a directory that exists: a page for each command, and creamery(5).
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Runs the command. `program` is the whole command line.
pub(crate) fn run(command: &GenerateCommand, program: Command) -> Result<(), Failure> {
    match command {
        GenerateCommand::Completions(args) => completions(args, program),
        GenerateCommand::Man(args) => man(args, program),
    }
}

fn completions(args: &CompletionsArgs, mut program: Command) -> Result<(), Failure> {
    let mut out = Output::new();
    // The generator cannot return write errors, so it writes to memory, and the script is written here.
    let mut script = Vec::new();
    program = program.mut_subcommand(help::NAME, help::with_words);
    clap_complete::generate(args.shell, &mut program, NAME, &mut script);
    out.write_all(&script)
        .map_err(writing)
        .and_then(|()| out.finish())
        .map_err(|error| Failure::new("generate completions", error))
}

fn man(args: &ManArgs, program: Command) -> Result<(), Failure> {
    manual::write(program, &args.dir).map_err(|error| Failure::new("generate man", error.on_host(&args.dir)))
}
