//! `creamery help`: the help of a command, and pages about topics.

use std::io::Write;

use clap::builder::{PossibleValuesParser, StyledStr};
use clap::error::ErrorKind;
use clap::{Args, Command};

use crate::failure::Failure;
use crate::help::{groups, markdown, pages, terminal};
use crate::output::{Output, writing};

/// Explain a command, or print a page about a topic.
///
/// The pages are those of the documentation: `creamery help rescue`, `creamery help mount-options`.
/// Without arguments it lists the commands and the pages.
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct HelpArgs {
    /// The words of a command, or the name of a page.
    #[arg(value_name = "COMMAND|PAGE")]
    words: Vec<String>,
}

/// The name of the command.
pub(super) const NAME: &str = "help";

/// Adds the commands and pages that a shell completes. Other words are accepted when the command runs.
pub(super) fn with_words(help: Command) -> Command {
    let words = PossibleValuesParser::new(groups::commands().chain(pages::names()));
    help.mut_arg("words", |arg| arg.value_parser(words))
}

/// Runs the command. `program` is the whole command line.
pub(crate) fn run(args: &HelpArgs, program: Command) -> Result<(), Failure> {
    let page = match args.words.as_slice() {
        [name] => pages::page(name),
        _ => None,
    };
    let explained = explained(args, program);
    if explained.is_none() && page.is_none() {
        let what = format!("unknown command or page \"{}\"", args.words.join(" "));
        return Err(Failure::usage("help", &what).advise("`creamery help` lists them"));
    }
    let mut out = Output::new();
    let told = explained.map_or(Ok(()), |help| out.styled(&help));
    let told = told.and_then(|()| page.map_or(Ok(()), |page| print(&mut out, page)));
    told.map_err(writing).and_then(|()| out.finish()).map_err(|error| Failure::new("help", error))
}

/// The `--help` text of the command that the words name, if they name one.
fn explained(args: &HelpArgs, mut program: Command) -> Option<StyledStr> {
    args.words.iter().try_fold(&program, |above, word| above.find_subcommand(word))?;
    let line = ["creamery"].into_iter().chain(args.words.iter().map(String::as_str)).chain(["--help"]);
    let answer = program.try_get_matches_from_mut(line).err()?;
    (answer.kind() == ErrorKind::DisplayHelp).then(|| answer.render())
}

fn print(out: &mut Output, page: &str) -> std::io::Result<()> {
    out.write_all(terminal::render(&markdown::parse(page), terminal::width()).as_bytes())
}
