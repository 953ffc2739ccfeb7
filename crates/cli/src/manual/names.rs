//! Sections of the manual, and the commands that have pages.

use clap::Command;

/// The section of pages about commands, in their file names and titles.
pub(super) const COMMANDS: &str = "1";
/// The section of pages about formats and options.
pub(super) const FORMS: &str = "5";

/// The commands that a group has.
pub(super) fn commands_of(group: &Command) -> impl Iterator<Item = &Command> {
    group.get_subcommands().filter(|below| !below.is_hide_set())
}
