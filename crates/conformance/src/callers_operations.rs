//! The operations that a mount offers to callers, as rows of the table in `callers`: controls of Btrfs, the program's own commands, and ordinary
//! system calls.
//!
//! In a command `S` stands for the subvolume, `ID` for its number, `PROGRAM` for a program that sends Linux' controls, `CREAMERY` for the
//! program under test, and `BTRFS` for that on a mount of ours, for btrfs-progs on one of Linux. btrfs-progs sets labels for root alone, so there
//! `PROGRAM` does.

/// A row of the table.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) command: &'static str,
    /// The subvolume has a file for it.
    pub(crate) has_file: bool,
    /// Both sides print the same.
    pub(crate) prints: bool,
    /// The command on Linux' side, where that is another one.
    pub(crate) on_linux: Option<&'static str>,
    /// Takes back, as root and on the mount itself, what it changes beyond the subvolume.
    pub(crate) undo: &'static str,
}

impl Operation {
    const fn of(name: &'static str, command: &'static str) -> Self {
        Self { name, command, has_file: false, prints: true, on_linux: None, undo: "" }
    }

    const fn on_file(self) -> Self {
        Self { has_file: true, ..self }
    }

    /// The program words its answers as it likes on each side.
    const fn own_words(self) -> Self {
        Self { prints: false, ..self }
    }

    const fn on_linux(self, command: &'static str) -> Self {
        Self { on_linux: Some(command), ..self }
    }

    const fn undone(self, undo: &'static str) -> Self {
        Self { undo, ..self }
    }
}

/// Of Linux' controls about subvolumes.
const CONTROLS: [Operation; 10] = [
    Operation::of("create", "PROGRAM create S new"),
    Operation::of("destroy", "PROGRAM destroy . S"),
    Operation::of("destroy by number", "PROGRAM destroy-id . ID"),
    Operation::of("make read-only", "PROGRAM flags S 2"),
    Operation::of("make writable", "PROGRAM flags S 0"),
    Operation::of("make the default", "PROGRAM default . ID").undone("PROGRAM default . 5"),
    Operation::of("clear received", "PROGRAM received S"),
    Operation::of("search", "PROGRAM search-once . ID 256 0 1 1"),
    Operation::of("look up", "PROGRAM lookup . ID 256"),
    Operation::of("look up a file", "PROGRAM lookup . ID 257").on_file(),
];

/// The program's commands, which send controls.
const COMMANDS: [Operation; 13] = [
    Operation::of("snapshot", "BTRFS subvolume snapshot S S.snapshot").own_words(),
    Operation::of("read-only snapshot", "BTRFS subvolume snapshot -r S S.snapshot").own_words(),
    Operation::of("subvolume list", "BTRFS subvolume list .").own_words(),
    Operation::of("subvolume show", "BTRFS subvolume show S").own_words(),
    Operation::of("quota enable", "BTRFS quota enable .").own_words().undone("BTRFS quota disable ."),
    Operation::of("quota group", "BTRFS qgroup create 1/7 .").own_words(),
    Operation::of("quota limit", "BTRFS qgroup limit 1G S").own_words(),
    Operation::of("label", "BTRFS filesystem label . marked")
        .own_words()
        .on_linux("PROGRAM label . marked | grep -q ok")
        .undone("BTRFS filesystem label . ''"),
    Operation::of("resize", "BTRFS filesystem resize max .").own_words(),
    Operation::of("trim", "BTRFS filesystem trim .").own_words().on_linux("fstrim ."),
    Operation::of("defragment", "BTRFS filesystem defragment S/file").on_file().own_words(),
    Operation::of("compression", "BTRFS property set S/file compression zlib").on_file().own_words(),
    Operation::of("paths of an inode", "CREAMERY inspect-internal inode-resolve 257 S").on_file().own_words(),
];

/// Ordinary requests.
const REQUESTS: [Operation; 27] = [
    Operation::of("rmdir", "rmdir S"),
    Operation::of("rename", "mv -T S S.renamed"),
    Operation::of("move", "mv -T S other/S"),
    Operation::of("write", "sh -c 'echo more >> S/file'").on_file(),
    Operation::of("cut while opening", "sh -c ': > S/file'").on_file(),
    Operation::of("cut", "truncate -s 1 S/file").on_file(),
    Operation::of("preallocate", "fallocate -l 20000 S/file").on_file(),
    Operation::of("punch", "fallocate -p -o 0 -l 4 S/file").on_file(),
    Operation::of("read", "cat S/file").on_file(),
    Operation::of("list", "ls S").on_file(),
    Operation::of("make a file", "sh -c ': > S/new'"),
    Operation::of("make a directory", "mkdir S/new"),
    Operation::of("make a link", "ln -s target S/new"),
    Operation::of("make a pipe", "mkfifo S/new"),
    Operation::of("make a device", "mknod S/new c 1 3"),
    Operation::of("another name", "ln S/file S/new").on_file(),
    Operation::of("unlink", "rm -f S/file").on_file(),
    Operation::of("rename a file", "mv -T S/file S/new").on_file(),
    Operation::of("chmod", "chmod 2750 S/file").on_file(),
    Operation::of("chown", "chown 1001 S/file").on_file(),
    Operation::of("chgrp", "chgrp 1000 S/file").on_file(),
    Operation::of("set times", "touch -d @1000 S/file").on_file(),
    Operation::of("touch", "touch S/file").on_file(),
    Operation::of("user attribute", "setfattr -n user.mark -v 1 S/file").on_file(),
    Operation::of("trusted attribute", "setfattr -n trusted.mark -v 1 S/file").on_file(),
    Operation::of("set an ACL", "setfacl -m u:55:r S/file").on_file(),
    Operation::of("mark a file", "chattr +A S/file").on_file(),
];

/// All rows.
pub(crate) fn operations() -> impl Iterator<Item = Operation> {
    CONTROLS.into_iter().chain(COMMANDS).chain(REQUESTS)
}
