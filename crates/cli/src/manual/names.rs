//! Sections of the manual, and which commands have pages.

use clap::Command;

/// What a page of commands has in its name, and in its title.
pub(super) const COMMANDS: &str = "1";
/// What a page about forms and options has.
pub(super) const FORMS: &str = "5";

/// The commands that a group has, but for the help that clap gives to each group.
pub(super) fn commands_of(group: &Command) -> impl Iterator<Item = &Command> {
    let is_program = group.get_name() == "creamery";
    group
        .get_subcommands()
        .filter(move |below| !below.is_hide_set() && (is_program || below.get_name() != "help"))
}
