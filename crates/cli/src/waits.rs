//! `--wait SECONDS`: an option of every command that takes the lock of an image.

use std::sync::OnceLock;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command};

use crate::failure::say;
use crate::interrupt;

const ID: &str = "lock_wait";

/// Commands that take no lock, and one whose --wait is an option of btrfs-progs with another meaning.
const WITHOUT: [&str; 12] = [
    "umount",
    "mounts",
    "stats",
    "sync",
    "generate",
    "inspect-internal dump-super",
    "inspect-internal dump-tree",
    "inspect-internal partitions",
    "rescue scan",
    "rescue find-root",
    "quota rescan",
    "help",
];

/// The value of the option.
static SECONDS: OnceLock<u64> = OnceLock::new();

/// Adds the option to the commands that take locks.
pub(crate) fn with_option(program: Command) -> Command {
    below(program, "")
}

fn below(mut command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in &names {
        let path = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
        if !WITHOUT.contains(&path.as_str()) {
            command = command.mut_subcommand(name, |sub| below(sub, &path));
        }
    }
    if path.is_empty() || !names.is_empty() {
        return command;
    }
    let option = Arg::new(ID).long("wait").value_name("SECONDS").value_parser(seconds);
    command.arg(option.help("Wait at most this long for an image that is in use"))
}

fn seconds(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "expected a whole number of seconds".to_owned())
}

/// Makes opens wait as `matches` say.
pub(crate) fn follow(matches: &ArgMatches) {
    let mut leaf = matches;
    while let Some((_, below)) = leaf.subcommand() {
        leaf = below;
    }
    let Ok(Some(seconds)) = leaf.try_get_one::<u64>(ID) else { return };
    let _ = SECONDS.set(*seconds); // only this function sets it
    let tell = |error: &creamery::Error| say(&format!("creamery: waiting: {}", error.without_kind()));
    creamery::device::wait_for_users(Duration::from_secs(*seconds), tell, || interrupt::go_on().is_ok());
}

/// Whether opens wait.
pub(crate) fn is_asked() -> bool {
    SECONDS.get().is_some_and(|seconds| *seconds > 0)
}

/// The words that pass the option on to another call of this program.
pub(crate) fn words() -> Option<[String; 2]> {
    SECONDS.get().map(|seconds| ["--wait".to_owned(), seconds.to_string()])
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn the_option_is_where_a_lock_is_taken() {
        let program = with_option(Cli::command());
        let parse = |line: &str| program.clone().try_get_matches_from(line.split(' '));
        for line in [
            "creamery ls --wait 3 x",
            "creamery mkfs --wait=0 x",
            "creamery subvolume list --wait 3 x",
            "creamery check --wait 1 x",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        for line in [
            "creamery stats --wait 3 x",
            "creamery umount --wait 3 x",
            "creamery ls --wait x",
            "creamery ls --wait -1 x",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        for path in WITHOUT.iter().filter(|path| **path != "help") {
            let found = path.split(' ').try_fold(&program, |command, name| command.find_subcommand(name));
            assert!(found.is_some(), "{path} is not there");
        }
    }
}
