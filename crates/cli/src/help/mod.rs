//! What the program says of itself: its commands in groups, pages about topics, and its version.
//!
//! A page is a file of `docs/use`. The build script packs all of them into the program, so `creamery help TOPIC` needs no package, and the
//! page is that of the program's own commit. [`markdown`] reads the few forms that the pages use; [`terminal`] and the manual
//! (`crate::manual`) print them.

mod groups;
pub(crate) mod markdown;
pub(crate) mod pages;
pub(crate) mod terminal;

use clap::Command;

pub(crate) use groups::group_of;

/// The version with the commit and its date, where the build knew them.
pub(crate) const VERSION: &str = env!("CREAMERY_VERSION");

/// What option groups that many commands have in common are called in their help.
pub(crate) const PATHS: &str = "Where paths begin (creamery help paths)";
/// The same of damaged images.
pub(crate) const RESCUE: &str = "Damaged images (creamery help rescue)";

/// A line of a list ends without a full stop, however the line about the command was written.
fn without_stop(command: Command) -> Command {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    command.about(about.trim_end_matches('.').to_owned()).mut_subcommands(without_stop)
}

/// The command line whose overview has the commands in groups, and names the pages.
pub(crate) fn with_overview(program: Command) -> Command {
    let program = program.mut_subcommands(without_stop);
    let groups = groups::overview(&program);
    let pages: Vec<&str> = pages::names().collect();
    let pages = terminal::wrapped(&pages.join(", "), 4, terminal::WIDTH);
    let header = program.get_styles().get_header();
    let after = format!(
        "{header}Pages:{header:#}  creamery help PAGE\n{pages}\n\n`creamery COMMAND --help` explains a command, `-h` in short."
    );
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\n{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    program.help_template(template).after_help(after)
}
