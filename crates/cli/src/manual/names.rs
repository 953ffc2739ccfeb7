//! Sections of the manual, and which commands have pages.

use clap::Command;

/// What a page of commands has in its name, and in its title.
pub(super) const COMMANDS: &str = "1";
/// What a page about forms and options has.
pub(super) const FORMS: &str = "5";

/// The commands that a group has.
pub(super) fn commands_of(group: &Command) -> impl Iterator<Item = &Command> {
    group.get_subcommands().filter(|below| !below.is_hide_set())
}
