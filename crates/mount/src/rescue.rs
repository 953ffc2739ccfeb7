//! `rescue=`: what Linux' Btrfs leaves out where a filesystem is damaged, and which of it is done here.

use creamery_base::{Error, Result};

/// What a word behind `rescue=` asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rescue {
    /// A log is passed over.
    NoLogReplay,
    /// The root tree is found by a backup of the superblock's, where its own way is damaged.
    UseBackupRoot,
    /// A copy of the superblock is written from; Linux does not have this one.
    UseSuperCopy,
    /// All that there is for those who read.
    All,
}

/// What is not done of [`Rescue::All`].
pub(crate) const NOT_OF_ALL: &str =
    "a log is passed over and backups of the root tree are tried; checksums and roots are believed as ever";

const CHECKED: &str =
    "checksums always count here: what does not agree with its own is an error of that file alone";
const ROOTS: &str = "trees that cannot be found are not left out here: try usebackuproot";
const SUPER_FLAGS: &str = "which flags of the superblock forbid reading does not change here";

/// By a word, in its long or its short form. Errors: a word that Linux does not have, and those that are not done here, by name.
pub(crate) fn parse(value: &str) -> Result<Rescue> {
    let why = match value {
        "nologreplay" => return Ok(Rescue::NoLogReplay),
        "usebackuproot" => return Ok(Rescue::UseBackupRoot),
        "usesupercopy" => return Ok(Rescue::UseSuperCopy),
        "all" => return Ok(Rescue::All),
        "ignorebadroots" | "ibadroots" => ROOTS,
        "ignoredatacsums" | "idatacsums" | "ignoremetacsums" | "imetacsums" => CHECKED,
        "ignoresuperflags" | "isuperflags" => SUPER_FLAGS,
        _ if value.contains(':') => {
            "one word each, as on Linux 6.18: rescue=nologreplay,rescue=usebackuproot"
        }
        _ => "want nologreplay, usebackuproot, usesupercopy or all",
    };
    Err(Error::invalid(format!("mount option rescue={value}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_of_linux_is_done_or_refused_with_its_reason() {
        for (word, wanted) in [
            ("nologreplay", Rescue::NoLogReplay),
            ("usebackuproot", Rescue::UseBackupRoot),
            ("usesupercopy", Rescue::UseSuperCopy),
            ("all", Rescue::All),
        ] {
            assert_eq!(parse(word).unwrap(), wanted);
        }
        for (word, reason) in [
            ("ignorebadroots", "usebackuproot"),
            ("ibadroots", "usebackuproot"),
            ("ignoredatacsums", "checksums"),
            ("idatacsums", "checksums"),
            ("ignoremetacsums", "checksums"),
            ("imetacsums", "checksums"),
            ("ignoresuperflags", "flags"),
            ("isuperflags", "flags"),
            ("nologreplay:usebackuproot", "one word each"),
            ("", "want"),
        ] {
            let error = parse(word).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(word), "{word}: {error}");
        }
    }
}
