//! The program's own help: its commands in groups, pages about topics, and its version.
//!
//! A page is a file of `docs/use`. The build script packs all of them into the program, so `creamery help TOPIC` needs no package, and the
//! page is that of the program's own commit. [`markdown`] reads the few forms that the pages use; [`terminal`] and the manual
//! (`crate::manual`) print them.

pub(crate) mod groups;
pub(crate) mod markdown;
pub(crate) mod pages;
pub(crate) mod terminal;

use clap::Command;

pub(crate) use groups::group_of;

/// The version, with the commit and its date if the build knew them.
pub(crate) const VERSION: &str = env!("CREAMERY_VERSION");

/// The title of common options about paths in help.
pub(crate) const PATHS: &str = "Where paths begin (creamery help paths)";
/// The title of the options about filesystems of several devices in help.
pub(crate) const DEVICES: &str = "Several devices (creamery help sets)";
/// The title of the options about damaged images in help.
pub(crate) const RESCUE: &str = "Damaged images (creamery help rescue)";

/// Removes the full stop from the description of a command, for lists.
fn without_stop(command: Command) -> Command {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    command.about(about.trim_end_matches('.').to_owned()).mut_subcommands(without_stop)
}

/// Adds the overview to a command line: the commands in groups, and the names of the pages.
pub(crate) fn with_overview(program: Command) -> Command {
    let program = program.mut_subcommands(without_stop);
    let groups = groups::overview(&program);
    let pages: Vec<&str> = pages::names().collect();
    let pages = terminal::wrapped(&pages.join(", "), 4, terminal::WIDTH);
    let header = program.get_styles().get_header();
    let after = format!(
        "{header}Pages:{header:#}  creamery help PAGE\n{pages}\n\n`creamery COMMAND --help` explains a command."
    );
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\n{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    program.help_template(template).after_help(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(command: &Command, found: &mut Vec<(String, String)>) {
        let long = command.get_long_about().map(ToString::to_string).unwrap_or_default();
        found.push((command.get_name().to_owned(), long));
        command.get_subcommands().for_each(|below| all(below, found));
    }

    #[test]
    fn each_example_has_a_line_of_its_own() {
        let mut found = Vec::new();
        all(&crate::program(), &mut found);
        let with_examples =
            found.iter().filter_map(|(name, long)| Some((name, long.split_once("Examples:")?.1)));
        for (name, examples) in with_examples {
            let lines: Vec<&str> = examples.lines().filter(|line| !line.trim().is_empty()).collect();
            assert!(!lines.is_empty(), "{name} has no examples");
            for line in lines {
                assert!(line.starts_with("  ") && line.matches("creamery ").count() <= 2, "{name}: {line:?}");
            }
        }
    }

    #[test]
    fn lines_that_stay_as_they_are_fit_a_terminal() {
        let mut found = Vec::new();
        all(&crate::program(), &mut found);
        let verbatim = found.iter().filter(|(_, long)| long.contains("\n  "));
        let lines = verbatim.flat_map(|(name, long)| long.lines().map(move |line| (name, line)));
        let long: Vec<_> = lines.filter(|(_, line)| line.chars().count() > terminal::WIDTH).collect();
        assert!(long.is_empty(), "{long:#?}");
    }
}
