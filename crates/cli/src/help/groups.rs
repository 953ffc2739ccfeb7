//! The commands in groups, for the overview and the manual.

use std::fmt::Write;

use clap::Command;

use super::terminal::{WIDTH, wrapped};

/// Titles and commands, in the order in which users need them.
const GROUPS: [(&str, &[&str]); 7] = [
    (
        "Files",
        &[
            "ls",
            "cat",
            "stat",
            "cp",
            "mv",
            "ln",
            "mkdir",
            "rm",
            "chmod",
            "chown",
            "touch",
            "truncate",
            "find",
            "fallocate",
            "dedupe",
        ],
    ),
    ("Images", &["mkfs", "tar", "diff", "df", "report", "filesystem", "device"]),
    ("Subvolumes", &["subvolume", "quota", "qgroup", "property"]),
    ("Mounts", &["mount", "umount", "mounts", "stats", "sync"]),
    ("Damage", &["check", "scrub", "history", "undelete", "restore", "rescue"]),
    ("Structure", &["inspect-internal", "tune"]),
    ("This program", &["generate", "help"]),
];

/// Columns before a command's description.
const INDENT: usize = 20;

/// All commands.
pub(crate) fn commands() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|(_, commands)| *commands).copied()
}

/// All groups, with a line about each command of `program`.
pub(super) fn overview(program: &Command) -> String {
    let header = program.get_styles().get_header();
    let literal = program.get_styles().get_literal();
    let mut text = String::new();
    for (title, commands) in GROUPS {
        let _ = writeln!(text, "{header}{title}:{header:#}");
        for name in commands {
            let command =
                program.find_subcommand(name).expect("each command of a group is one of the program");
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let about = wrapped(&about, INDENT, WIDTH);
            let _ = writeln!(text, "  {literal}{name:<18}{literal:#}{}", about.trim_start());
        }
        text.push('\n');
    }
    text.pop();
    text
}

/// The commands of the group `name`.
pub(crate) fn group_of(name: &str) -> &'static [&'static str] {
    GROUPS.iter().map(|(_, commands)| *commands).find(|commands| commands.contains(&name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn each_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, commands)| *commands).copied().collect();
        grouped.sort_unstable();
        let program = Cli::command();
        let mut commands: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
        commands.sort_unstable();
        assert_eq!(grouped, commands);
    }

    #[test]
    fn a_command_has_one_line_of_the_overview() {
        let overview = overview(&crate::program().styles(clap::builder::Styles::plain()));
        for line in overview.lines() {
            assert!(line.len() <= WIDTH, "{line:?} is longer than a terminal");
            assert!(!line.starts_with("    "), "{line:?} goes on from the line before");
        }
    }
}
