//! Sections that the command line does not provide: exit statuses, environment, files, and further reading.

/// Whether a section is on the page of a command.
type IsOf = fn(&str) -> bool;

/// Exit statuses of most commands.
const USUAL: [(&str, &str); 3] = [
    ("0", "Success."),
    (
        "1",
        "Something failed: a line on standard error says what, why, and what to do next. The rest is done.",
    ),
    ("2", "The command line is invalid; nothing was done."),
];

/// Commands with other exit statuses.
const OTHERWISE: [(&str, &[(&str, &str)]); 7] = [
    (
        "scrub start",
        &[
            ("0", "No errors are left."),
            ("1", "Nothing could be scrubbed."),
            ("2", "The command line is invalid."),
            ("3", "Errors are left."),
        ],
    ),
    (
        "scrub resume",
        &[
            ("0", "No errors are left."),
            ("1", "Nothing could be scrubbed."),
            ("2", "There is nothing to resume, or the command line is invalid."),
            ("3", "Errors are left."),
        ],
    ),
    (
        "scrub cancel",
        &[
            ("0", "The scrub has ended."),
            ("1", "It could not be ended."),
            ("2", "No scrub runs, or the command line is invalid."),
        ],
    ),
    (
        "check",
        &[
            ("0", "No errors; there may be warnings."),
            ("4", "There are errors."),
            ("8", "It could not be checked."),
            ("16", "The command line is invalid."),
        ],
    ),
    (
        "diff",
        &[
            ("0", "No differences."),
            ("1", "There are differences."),
            ("2", "Something could not be read, or the command line is invalid."),
        ],
    ),
    (
        "rescue super-recover",
        &[
            ("0", "All copies are intact."),
            ("1", "It failed."),
            ("2", "Some copies were written, or the command line is invalid."),
            ("4", "Some copies are damaged, and the answer was not to write them."),
        ],
    ),
    (
        "device stats",
        &[
            ("0", "Success."),
            ("1", "Something failed."),
            ("2", "The command line is invalid."),
            ("64", "With --check: a device has errors."),
        ],
    ),
];

/// A signal ends every command in the same way.
const BY_SIGNAL: (&str, &str) =
    ("130, 143", "SIGINT or SIGTERM ended it: a line says what is done and what is left.");

/// The exit statuses of the command with these words.
pub(super) fn exit_statuses(words: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let own = OTHERWISE.iter().find(|(command, _)| *command == words).map_or(&USUAL[..], |(_, own)| own);
    own.iter().copied().chain([BY_SIGNAL])
}

fn writes(words: &str) -> bool {
    const WRITERS: [&str; 20] = [
        "mkfs",
        "cp",
        "mv",
        "ln",
        "mkdir",
        "rm",
        "chmod",
        "chown",
        "touch",
        "truncate",
        "fallocate",
        "dedupe",
        "tar",
        "tune",
        "subvolume",
        "quota",
        "qgroup",
        "property",
        "filesystem",
        "rescue",
    ];
    WRITERS.iter().any(|writer| words.split(' ').next() == Some(writer))
}

fn is_whole(words: &str) -> bool {
    words.is_empty()
}

/// Variables, and the commands that use them.
const VARIABLES: [(&str, &str, IsOf); 6] = [
    (
        "SOURCE_DATE_EPOCH",
        "Time of all writes to an image that is not mounted, in seconds since 1970. The same steps on the same image then give the \
         same bytes, also UUIDs of subvolumes.",
        |words| writes(words) || is_whole(words),
    ),
    ("TMPDIR", "Where an archive that comes from a pipe is kept while it is read.", |words| {
        matches!(words, "mkfs" | "tar" | "")
    }),
    ("XDG_STATE_HOME, HOME, XDG_RUNTIME_DIR", "Where a mount writes its log.", |words| {
        matches!(words, "mount" | "")
    }),
    ("PATH", "As btrfs: where to find the program of btrfs-progs.", is_whole),
    ("NO_COLOR, CLICOLOR, CLICOLOR_FORCE", "Whether output has colours.", |_| true),
    ("RUST_BACKTRACE", "1: print a backtrace on a bug of the program.", is_whole),
];

/// Files, and the commands that use them.
const FILES: [(&str, &str, IsOf); 4] = [
    ("/dev/fuse", "Without it nothing can be mounted.", |words| matches!(words, "mount" | "")),
    (
        "/etc/fuse.conf",
        "With user_allow_other in it ordinary users may give others access to their mounts.",
        |words| matches!(words, "mount" | ""),
    ),
    (
        "$XDG_STATE_HOME/creamery, ~/.local/state/creamery, /var/log/creamery",
        "Logs of mounts; `creamery stats DIR` shows that of a mount. A mount that ends well leaves none.",
        |words| matches!(words, "mount" | "umount" | "stats" | ""),
    ),
    (
        "/sbin/mount.fuse.creamery, /sbin/umount.fuse.creamery",
        "Links to the program, for mount(8) and umount(8).",
        |words| matches!(words, "mount" | "umount" | ""),
    ),
];

/// The variables that the command with these words uses.
pub(super) fn variables(words: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    of(&VARIABLES, words)
}

/// The files that the command with these words uses.
pub(super) fn files(words: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    of(&FILES, words)
}

fn of(
    table: &'static [(&'static str, &'static str, IsOf)],
    words: &str,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    table.iter().filter(move |(.., is_of)| is_of(words)).map(|(name, about, _)| (*name, *about))
}

/// Manual pages of similar commands that readers may know.
const OTHERS: [(&str, &str); 22] = [
    ("", "btrfs(8), btrfs(5), mkfs.btrfs(8), fuse(8)"),
    ("mkfs", "mkfs.btrfs(8)"),
    ("mount", "mount(8), fuse(8), btrfs(5)"),
    ("umount", "umount(8)"),
    ("ls", "ls(1)"),
    ("cat", "cat(1)"),
    ("stat", "stat(1)"),
    ("cp", "cp(1)"),
    ("mv", "mv(1)"),
    ("ln", "ln(1)"),
    ("rm", "rm(1)"),
    ("mkdir", "mkdir(1)"),
    ("find", "find(1)"),
    ("tar", "tar(1)"),
    ("df", "df(1)"),
    ("fallocate", "fallocate(1)"),
    ("truncate", "truncate(1)"),
    ("check", "btrfs-check(8)"),
    ("restore", "btrfs-restore(8)"),
    ("subvolume", "btrfs-subvolume(8)"),
    ("filesystem", "btrfs-filesystem(8)"),
    ("tune", "btrfstune(8)"),
];

/// Further reading about the command with these words.
pub(super) fn others(words: &str) -> Option<&'static str> {
    let find = |words: &str| OTHERS.iter().find(|(command, _)| *command == words).map(|(_, pages)| *pages);
    find(words).or_else(|| find(words.split(' ').next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn sections_are_of_commands_that_exist() {
        let program = Cli::command();
        let named =
            OTHERWISE.iter().map(|(command, _)| *command).chain(OTHERS.iter().map(|(command, _)| *command));
        for words in named.filter(|words| !words.is_empty()) {
            let found = words.split(' ').try_fold(&program, |command, name| command.find_subcommand(name));
            assert!(found.is_some(), "{words}");
        }
    }

    #[test]
    fn statuses_are_those_of_the_command() {
        assert!(exit_statuses("check").any(|(status, _)| status == "16"));
        assert_eq!(
            exit_statuses("ls").map(|(status, _)| status).collect::<Vec<_>>(),
            ["0", "1", "2", "130, 143"]
        );
        assert!(variables("cp").any(|(name, _)| name == "SOURCE_DATE_EPOCH"));
        assert!(variables("ls").all(|(name, _)| name != "SOURCE_DATE_EPOCH"));
    }
}
