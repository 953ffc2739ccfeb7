//! Calls as `btrfs` with a path on a mount of Linux' own Btrfs: btrfs-progs does the work there. Its `btrfs` comes after this one in PATH.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use creamery::Image;
use creamery::error::Escaped;
use creamery::partitions::ImageName;
use creamery_mount::{Live, is_on_linux};

use crate::failure::warn;
use crate::path_in_image::{End, is_no_image, parent_of};

/// The programs that this call was handed over to already, separated by ':'. A copy of this program, or a wrapper that calls it, looks for
/// another one.
const WITNESS: &str = "CREAMERY_HANDED_OVER_TO";

/// Commands that read or repair devices and images, not mounts.
const OF_DEVICES: [&[&str]; 7] = [
    &["check"],
    &["rescue"],
    &["restore"],
    &["inspect-internal", "dump-super"],
    &["inspect-internal", "dump-tree"],
    &["inspect-internal", "tree-stats"],
    &["inspect-internal", "list-chunks"],
];

/// Commands that this program runs on a mount of Linux itself, if there is no other `btrfs`.
const OWN: [&[&str]; 10] = [
    &["property"],
    &["device", "stats"],
    &["filesystem", "df"],
    &["filesystem", "du"],
    &["filesystem", "usage"],
    &["inspect-internal", "inode-resolve"],
    &["inspect-internal", "logical-resolve"],
    &["inspect-internal", "rootid"],
    &["inspect-internal", "subvolid-resolve"],
    &["help"],
];

/// Commands about files: on a mount of Linux they are about the file itself, also if it is an image.
const OF_FILES: [&[&str]; 3] = [&["property"], &["filesystem", "du"], &["filesystem", "defragment"]];

/// Commands whose operands may be names of files to create.
const THAT_MAKE: [&[&str]; 3] =
    [&["subvolume", "create"], &["subvolume", "snapshot"], &["filesystem", "mkswapfile"]];

/// Commands with one path, which comes first or last; their other words are names, sizes and values.
const WITH_FIRST: [&[&str]; 2] = [&["filesystem", "label"], &["property"]];
const WITH_LAST: [&[&str]; 2] = [&["filesystem", "resize"], &["qgroup"]];

fn is_one_of(path: &[&str], commands: &[&[&str]]) -> bool {
    commands.iter().any(|command| path.starts_with(command))
}

/// Hands the call `all`, whose command is `path` and whose other words are `rest`, over to btrfs-progs if it is about a mount of Linux.
/// Then this does not return.
/// Errors: the call is about a mount of Linux, and no other `btrfs` can be run.
pub(super) fn where_linux_serves(path: &[&str], all: &[OsString], rest: &[OsString]) -> Result<(), String> {
    if is_one_of(path, &OF_DEVICES) {
        return Ok(());
    }
    let Some(operand) = operand_of_linux(path, rest) else { return Ok(()) };
    let tried = std::env::var_os(WITNESS).unwrap_or_default();
    let why = match other_btrfs(&tried) {
        None if tried.is_empty() => "PATH has no `btrfs` but this one".to_owned(),
        None => {
            format!("{} called this program back, and PATH has no other", Escaped(tried.as_encoded_bytes()))
        }
        Some(other) => {
            let failed = Command::new(&other).args(all).env(WITNESS, with(tried, &other)).exec();
            format!("{}: {failed}", other.display())
        }
    };
    if is_one_of(path, &OWN) {
        return Ok(());
    }
    let operand = Escaped(operand.as_os_str().as_encoded_bytes()).to_string();
    Err(format!(
        "{}: {operand} is on a mount of Linux' own Btrfs, which needs btrfs-progs: {why}; install btrfs-progs, or name an image",
        path.join(" ")
    ))
}

/// The first operand on a mount of Linux, if no operand is in an image or on a mount of ours.
fn operand_of_linux(command: &[&str], words: &[OsString]) -> Option<PathBuf> {
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    // `property get -t TYPE PATH`
    let is_value = |at: usize| is_one_of(command, &WITH_FIRST) && at > 0 && words[at - 1] == "-t";
    let operands = words.iter().enumerate().filter(|(at, word)| !is_option(word) && !is_value(*at));
    let mut operands: Vec<&OsString> = operands.map(|(_, word)| word).collect();
    if is_one_of(command, &WITH_FIRST) {
        operands.truncate(1);
    } else if is_one_of(command, &WITH_LAST) {
        operands = operands.pop().into_iter().collect();
    }
    let mut found = None;
    for word in operands {
        match place_of(command, word) {
            HandOverTarget::Ours => return None,
            HandOverTarget::Linux(path) => found = found.or(Some(path)),
            HandOverTarget::Elsewhere => {}
        }
    }
    found
}

enum HandOverTarget {
    Ours,
    Linux(PathBuf),
    Elsewhere,
}

fn place_of(command: &[&str], word: &OsStr) -> HandOverTarget {
    let is_of_files = is_one_of(command, &OF_FILES);
    let End::Host(path) = End::parse(word) else { return HandOverTarget::Ours };
    let there = match std::fs::metadata(&path) {
        Ok(meta) if meta.is_dir() => path.clone(),
        Ok(meta) if meta.is_file() => match Image::open(&path) {
            _ if is_of_files && is_on_linux(&path) => path.clone(),
            Err(error) if is_no_image(&error) => path.clone(),
            _ => return HandOverTarget::Ours,
        },
        // A file that a command creates, or does not find, belongs to its parent directory.
        Err(_) if ImageName::metadata(&path).is_ok() => return HandOverTarget::Ours, // a partition
        // A word without a slash may be anything.
        Err(_) if path.components().count() == 1 && !is_one_of(command, &THAT_MAKE) => {
            return HandOverTarget::Elsewhere;
        }
        Err(_) => match path.ancestors().skip(1).find(|above| above.as_os_str().is_empty() || above.is_dir())
        {
            Some(above) if above.as_os_str().is_empty() => PathBuf::from("."),
            Some(above) => above.to_owned(),
            None => return HandOverTarget::Elsewhere,
        },
        Ok(_) => return HandOverTarget::Elsewhere,
    };
    let dir = if there.is_dir() { &there } else { parent_of(&there) };
    match is_on_linux(&there) {
        true => HandOverTarget::Linux(path),
        false if Live::at(dir).is_ok_and(|live| live.is_some()) => HandOverTarget::Ours,
        false => HandOverTarget::Elsewhere,
    }
}

/// Options of btrfs-progs' `filesystem show` that change nothing in the output of this program.
const OF_SHOW: [&str; 4] = ["-d", "--all-devices", "-m", "--mounted"];
/// Options that both programs have.
const OF_BOTH: [&str; 8] =
    ["--raw", "--human-readable", "--iec", "--si", "--kbytes", "--mbytes", "--gbytes", "--tbytes"];

/// Runs btrfs-progs first if the call `all` is to show all filesystems: filesystems that Linux has mounted, and those on disks, come before
/// ours. Returns the options that are left for this program, or `None` if the caller of this call shows ours.
pub(super) fn show_those_of_linux(all: &[OsString], rest: &[OsString]) -> Option<Vec<OsString>> {
    let is_known = |word: &&OsString| OF_SHOW.iter().any(|option| *word == option);
    let tried = std::env::var_os(WITNESS).unwrap_or_default();
    let is_taken = |word: &&OsString| is_known(word) || OF_BOTH.iter().any(|option| **word == **option);
    let others = other_btrfs(&tried).filter(|_| rest.iter().all(|word| is_taken(&word)));
    let has_come_back = !tried.is_empty();
    let was_shown = others.is_some();
    if let Some(other) = others {
        let shown = Command::new(&other).args(all).env(WITNESS, with(tried, &other)).status();
        let why = match shown {
            Ok(status) if status.success() => None,
            Ok(status) => Some(format!("it ended with {status}")),
            Err(error) => Some(error.to_string()),
        };
        why.iter().for_each(|why| warn(&format!("btrfs: {}: {why}", other.display())));
    }
    // If a wrapper called this program, the first call shows ours. Filesystems on disks are shown already.
    let ours = |shown: bool| {
        let words = rest.iter().filter(|word| !(shown && is_known(word))).cloned();
        shown.then(|| "--mounted".into()).into_iter().chain(words).collect()
    };
    (!has_come_back).then(|| ours(was_shown))
}

/// The list of programs `tried` with one more.
fn with(mut tried: OsString, other: &Path) -> OsString {
    if !tried.is_empty() {
        tried.push(":");
    }
    tried.push(other);
    tried
}

/// The first `btrfs` in PATH that is not this program under any name, and is not among `tried`.
fn other_btrfs(tried: &OsStr) -> Option<PathBuf> {
    let number = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    let mut passed: Vec<_> = std::env::split_paths(tried).filter_map(|name| number(&name)).collect();
    passed.push(number(&std::env::current_exe().ok()?)?);
    let path = std::env::var_os("PATH")?;
    let names = std::env::split_paths(&path).filter(|dir| dir.is_absolute()).map(|dir| dir.join("btrfs"));
    names.into_iter().find(|name| {
        let is_program = std::fs::metadata(name)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
        is_program && number(name).is_some_and(|number| !passed.contains(&number))
    })
}
