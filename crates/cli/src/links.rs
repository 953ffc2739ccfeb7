//! The names of other programs to which this one answers through a link: `btrfs`; `btrfstune`; `mkfs.btrfs`, which mkfs(8) and scripts
//! call; and `fsck.btrfs`, which checks the entries of fstab(5) when a system starts. (`mount.fuse.creamery` is in `commands/helper`.)

mod btrfs;
mod commands;
mod hand_over;
mod link;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use creamery::partitions::ImageName;

pub(crate) use commands::missing_of;
pub(crate) use link::Link;

use crate::failure::say;
use crate::output::tell;

/// The exit status of fsck(8) for an operational error.
const OPERATIONAL_ERROR: u8 = 8;

/// Parses a call whose first word is the name of another program; `None` for the program's own name. `program` is the whole command line.
pub(crate) fn follow(args: &[OsString], program: &Command) -> Option<Link> {
    let (first, rest) = args.split_first()?;
    match Path::new(first).file_name()?.to_str()? {
        "btrfs" => Some(btrfs::follow(rest, program)),
        "mkfs.btrfs" => Some(mkfs(rest)),
        "btrfstune" => Some(tune(rest)),
        "fsck.btrfs" => Some(Link::Done(fsck(rest))),
        _ => None,
    }
}

fn mkfs(args: &[OsString]) -> Link {
    if args.iter().any(|arg| arg == "-V" || arg == "--version") {
        tell(format_args!("mkfs.btrfs, part of creamery {}", crate::help::VERSION));
        return Link::Done(ExitCode::SUCCESS);
    }
    let words = ["creamery", "mkfs"].into_iter().map(OsString::from);
    Link::Words(words.chain(args.iter().filter_map(without_verbose)).collect())
}

fn tune(args: &[OsString]) -> Link {
    if args.iter().any(|arg| arg == "--version") {
        tell(format_args!("btrfstune, part of creamery {}", crate::help::VERSION));
        return Link::Done(ExitCode::SUCCESS);
    }
    let words = ["creamery", "tune"].into_iter().map(OsString::from);
    Link::Words(words.chain(args.iter().cloned()).collect())
}

/// Removes `-v`, alone or among other letters: there is no more output than the usual one.
fn without_verbose(arg: &OsString) -> Option<OsString> {
    const LETTERS: &str = "vfqMK";
    let letters = arg.to_str().and_then(|arg| arg.strip_prefix('-')).filter(|letters| !letters.is_empty());
    match letters {
        // A shorter prefix could be --version.
        Some(word) if word.starts_with("-verb") && "-verbose".starts_with(word) => None,
        Some(letters) if letters.chars().all(|letter| LETTERS.contains(letter)) => {
            let rest = letters.replace('v', "");
            (!rest.is_empty()).then(|| format!("-{rest}").into())
        }
        _ => Some(arg.clone()),
    }
}

/// `fsck.btrfs` does as little as that of btrfs-progs: after a crash a Btrfs needs no repair when a system starts.
fn fsck(args: &[OsString]) -> ExitCode {
    let is_option = |arg: &&OsString| arg.as_encoded_bytes().starts_with(b"-");
    let is_automatic = args.iter().filter(is_option).any(|arg| {
        let letters = arg.as_encoded_bytes();
        letters.iter().any(|letter| b"aApy".contains(letter))
    });
    let Some(device) = args.iter().rfind(|arg| !is_option(arg)) else {
        say("fsck.btrfs: no device is named");
        return ExitCode::from(OPERATIONAL_ERROR);
    };
    if ImageName::metadata(device).is_err() {
        say(&format!("fsck.btrfs: {} does not exist", shown(device)));
        return ExitCode::from(OPERATIONAL_ERROR);
    }
    if !is_automatic {
        say(&format!("fsck.btrfs does nothing; to check it, use `creamery check {}`", shown(device)));
    }
    ExitCode::SUCCESS
}

fn shown(name: &OsStr) -> String {
    creamery::error::Escaped(name.as_encoded_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(words: &str) -> Option<Vec<String>> {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        match super::follow(&words, &Command::new("creamery"))? {
            Link::Words(words) => {
                Some(words.into_iter().map(|word| word.into_string().expect("text")).collect())
            }
            Link::Done(_) => Some(Vec::new()),
        }
    }

    #[test]
    fn the_name_that_it_is_called_by_says_what_is_wanted() {
        let mkfs = follow("/usr/sbin/mkfs.btrfs -vf -v -L x --verbose --verb disk.img").expect("a link");
        assert_eq!(mkfs, ["creamery", "mkfs", "-f", "-L", "x", "disk.img"]);
        assert_eq!(follow("btrfstune -r x").expect("a link"), ["creamery", "tune", "-r", "x"]);
        assert_eq!(follow("mkfs.btrfs -V").expect("a link"), [""; 0]);
        assert_eq!(follow("fsck.btrfs -a /dev/none").expect("a link"), [""; 0]);
        for own in ["creamery mkfs x", "/usr/bin/creamery", "mkfs.ext4 x", "btrfsck x"] {
            assert_eq!(follow(own), None, "{own}");
        }
    }
}
