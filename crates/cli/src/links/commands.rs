//! The groups and commands of btrfs-progs, and the messages for those that this program lacks: the same under the name `btrfs` and under
//! its own name.

use std::ffi::OsString;

use clap::Command;

/// Groups with their commands, and commands without a group.
pub(super) const COMMANDS: [(&str, &[&str]); 17] = [
    ("balance", &["start", "pause", "cancel", "resume", "status"]),
    ("check", &[]),
    ("device", &["add", "delete", "remove", "replace", "scan", "ready", "stats", "usage"]),
    (
        "filesystem",
        &["df", "du", "show", "sync", "defragment", "resize", "label", "usage", "mkswapfile", "commit-stats"],
    ),
    (
        "inspect-internal",
        &[
            "inode-resolve",
            "logical-resolve",
            "subvolid-resolve",
            "rootid",
            "map-swapfile",
            "min-dev-size",
            "dump-tree",
            "dump-super",
            "tree-stats",
            "list-chunks",
        ],
    ),
    ("property", &["get", "set", "list"]),
    ("qgroup", &["assign", "remove", "create", "clear-stale", "destroy", "show", "limit"]),
    ("quota", &["enable", "disable", "rescan", "status"]),
    ("receive", &[]),
    ("replace", &["start", "status", "cancel"]),
    (
        "rescue",
        &[
            "chunk-recover",
            "super-recover",
            "zero-log",
            "fix-device-size",
            "fix-data-checksum",
            "create-control-device",
            "clear-ino-cache",
            "clear-space-cache",
            "clear-uuid-tree",
        ],
    ),
    ("restore", &[]),
    ("scrub", &["start", "cancel", "resume", "status", "limit"]),
    ("send", &[]),
    (
        "subvolume",
        &["create", "delete", "list", "snapshot", "get-default", "set-default", "find-new", "show", "sync"],
    ),
    ("help", &[]),
    ("version", &[]),
];

/// Advice for a missing command, by command or group.
const INSTEAD: [(&str, &str); 16] = [
    ("balance", "mount the image with Linux, and balance there"),
    ("device add", "creamery writes to one device alone; mount the image with Linux, and add there"),
    ("device delete", "creamery writes to one device alone; mount the devices with Linux, and remove there"),
    ("device ready", "nothing registers devices here: name the image itself"),
    ("device remove", "creamery writes to one device alone; mount the devices with Linux, and remove there"),
    ("device replace", "mount the image with Linux, and replace there"),
    ("device scan", "nothing registers devices here: name the image itself"),
    ("device usage", "`creamery filesystem usage -T` shows what each device has"),
    ("filesystem commit-stats", "`creamery stats DIR` shows the commits of a mount"),
    ("filesystem sync", "`creamery sync DIR` does that"),
    ("inspect-internal list-chunks", "`creamery inspect-internal dump-tree -t chunk IMAGE` prints them"),
    ("inspect-internal min-dev-size", "`creamery filesystem usage IMAGE` shows what is used"),
    (
        "receive",
        "`creamery tar -x -f ARCHIVE IMAGE:/DIR` unpacks an archive, `creamery cp -a` copies between images",
    ),
    ("replace", "mount the image with Linux, and replace there"),
    (
        "send",
        "`creamery tar -c -f ARCHIVE IMAGE:/SUBVOLUME` writes an archive, `creamery diff` lists what differs between snapshots",
    ),
    ("version", "`creamery --version` prints it"),
];

/// The message for a missing command.
pub(super) fn missing(path: &[&str]) -> String {
    let whole = path.join(" ");
    let instead = [whole.as_str(), path.first().copied().unwrap_or_default()]
        .iter()
        .find_map(|name| INSTEAD.iter().find(|(of, _)| of == name));
    let what = format!("{whole} is not part of creamery {}", env!("CARGO_PKG_VERSION"));
    instead.map_or_else(|| what.clone(), |(_, instead)| format!("{what}; {instead}"))
}

/// The error for the command that `args` name, behind the name of the program. `None` if btrfs-progs has no such command, or this program
/// has it, too.
pub(crate) fn missing_of(args: &[OsString], program: &Command) -> Option<String> {
    let mut words = args.iter().skip(1).map_while(|word| word.to_str());
    let first = words.next()?;
    let first = program.find_subcommand(first).map_or(first, Command::get_name);
    let (group, within) = COMMANDS.iter().find(|(name, _)| *name == first)?;
    let mut path = vec![*group];
    path.extend(words.next().and_then(|word| within.iter().find(|name| **name == word)));
    let found = path.iter().try_fold(program, |command, name| command.find_subcommand(name));
    let is_there = found.is_some() || *group == "help";
    (!is_there).then(|| missing(&path))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn what_btrfs_progs_has_and_we_have_not_is_refused_by_name() {
        let said = |line: &str| {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            missing_of(&args, &Cli::command())
        };
        for (line, wanted) in [
            ("creamery send x", "send is not part of creamery"),
            ("creamery fi sync x", "filesystem sync is not part of"),
            ("creamery device add a b", "device add is not part of"),
            ("creamery inspect tree-stats x", "inspect-internal tree-stats is not part of"),
            ("creamery balance start --full /mnt", "mount the image with Linux, and balance there"),
        ] {
            let said = said(line).expect(line);
            assert!(said.contains(wanted), "{line}: {said}");
        }
        for line in [
            "creamery",
            "creamery nonsense",
            "creamery ls x",
            "creamery fi show",
            "creamery help",
            "creamery device x",
        ] {
            assert_eq!(said(line), None, "{line}");
        }
    }

    #[test]
    fn advice_is_given_of_what_is_missing_alone() {
        let program = Cli::command();
        for (name, _) in INSTEAD {
            let found = name.split(' ').try_fold(&program, |command, name| command.find_subcommand(name));
            assert!(found.is_none(), "{name} is there");
            assert!(
                COMMANDS.iter().any(|(group, within)| {
                    name == *group || within.iter().any(|command| name == format!("{group} {command}"))
                }),
                "{name} is none of btrfs-progs"
            );
        }
    }
}
