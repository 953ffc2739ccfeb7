//! Mount options of Linux' Btrfs from an fstab that have no effect here. They are accepted, so that the fstab works for both, with
//! a note if an expected effect is missing. Options that Linux 6.18 rejects are rejected with the reason.

/// The name of an option; whether it has a value; a note about it.
type Foreign = (&'static str, Takes, Option<&'static str>);

/// The value behind the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Takes {
    Nothing,
    Number,
    NumberAbove0,
    /// One of these words.
    Word(&'static [&'static str]),
    Anything,
}

const NO_SELINUX: Option<&str> = Some("files are not labelled by the mount");

const OF_LINUX: [Foreign; 28] = [
    ("acl", Takes::Nothing, None),
    ("noacl", Takes::Nothing, Some("access control lists stay in effect")),
    ("autodefrag", Takes::Nothing, Some("not automatic: use `creamery filesystem defragment`")),
    ("noautodefrag", Takes::Nothing, None),
    ("barrier", Takes::Nothing, None),
    ("nobarrier", Takes::Nothing, Some("the device is still flushed, so that a commit survives a power cut")),
    ("clear_cache", Takes::Nothing, Some("the free space tree is kept; `creamery check` verifies it")),
    ("nodatasum", Takes::Nothing, Some("new files have checksums; use nodatacow for none")),
    ("enospc_debug", Takes::Nothing, Some("no more messages are printed when space is short")),
    ("noenospc_debug", Takes::Nothing, None),
    (
        "fatal_errors",
        Takes::Word(&["bug", "panic"]),
        Some("an error makes the mount read-only; nothing panics"),
    ),
    ("metadata_ratio", Takes::Number, Some("chunks for metadata are made when they are needed")),
    ("rescan_uuid_tree", Takes::Nothing, Some("the UUID tree is not rescanned")),
    ("skip_balance", Takes::Nothing, None),
    (
        "space_cache",
        Takes::Word(&["", "v1", "v2"]),
        Some(
            "a free space tree is kept where there is one; the older cache is never written, and Linux drops it",
        ),
    ),
    ("nospace_cache", Takes::Nothing, Some("a free space tree is kept where there is one")),
    ("ssd_spread", Takes::Nothing, Some("the allocator is unchanged")),
    ("nossd_spread", Takes::Nothing, None),
    ("thread_pool", Takes::NumberAbove0, Some("the number of threads is automatic")),
    ("user_subvol_rm_allowed", Takes::Nothing, Some("for the rules see `creamery help mount`")),
    ("mand", Takes::Nothing, None),
    ("nomand", Takes::Nothing, None),
    ("iversion", Takes::Nothing, None),
    ("noiversion", Takes::Nothing, Some("changes are still counted")),
    ("context", Takes::Anything, NO_SELINUX),
    ("fscontext", Takes::Anything, NO_SELINUX),
    ("defcontext", Takes::Anything, NO_SELINUX),
    ("rootcontext", Takes::Anything, NO_SELINUX),
];

const FOR_DEBUGGING: &str = "only for debugging builds of Linux";

/// Names that Linux 6.18 does not accept either, with any value, and why.
const REFUSED: [(&str, &str); 10] = [
    ("alloc_start", "Linux dropped it; leave it out"),
    ("subvolrootid", "Linux dropped it; leave it out"),
    ("recovery", "Linux dropped it; use ro,rescue=usebackuproot"),
    ("inode_cache", "Linux dropped it in 5.11; leave it out"),
    ("noinode_cache", "Linux dropped it in 5.11; leave it out"),
    ("check_int", "Linux dropped it in 6.7; here every block is checked before it is written"),
    ("check_int_data", "Linux dropped it in 6.7; here every block is checked before it is written"),
    ("check_int_print_mask", "Linux dropped it in 6.7; here every block is checked before it is written"),
    ("fragment", FOR_DEBUGGING),
    ("ref_verify", FOR_DEBUGGING),
];

/// The meaning of an option of Linux' Btrfs that has no effect here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KnownOption {
    /// It is not such an option.
    No,
    /// The option does not have this value.
    NoSuchValue,
    Harmless,
    /// It is accepted, with a note.
    Note(&'static str),
    /// It is rejected, for this reason.
    Refused(&'static str),
}

pub(crate) fn look_up(word: &str) -> KnownOption {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return KnownOption::Refused(why);
    }
    let Some((_, takes, note)) = OF_LINUX.iter().find(|(known, ..)| *known == name) else {
        return KnownOption::No;
    };
    let fits = match (takes, value) {
        (Takes::Nothing, None) => true,
        (Takes::Number, Some(value)) => value.parse::<u32>().is_ok(),
        (Takes::NumberAbove0, Some(value)) => value.parse::<u32>().is_ok_and(|number| number > 0),
        (Takes::Word(words), value) => words.contains(&value.unwrap_or_default()),
        (Takes::Anything, Some(value)) => !value.is_empty(),
        _ => false,
    };
    match note {
        _ if !fits => KnownOption::NoSuchValue,
        // This is the default here.
        _ if word == "space_cache=v2" => KnownOption::Harmless,
        Some(note) => KnownOption::Note(note),
        None => KnownOption::Harmless,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_on_mount_options_names_them() {
        let page = include_str!("../../../docs/use/mount-options.md");
        let named = |word: &str| ["`", "=`", "="].iter().any(|end| page.contains(&format!("`{word}{end}")));
        let known = OF_LINUX.iter().map(|(name, ..)| *name).chain(REFUSED.iter().map(|(name, _)| *name));
        for word in known {
            let is_opposite = word.strip_prefix("no").is_some_and(named);
            let is_of_selinux = word.ends_with("context");
            assert!(named(word) || is_opposite || is_of_selinux, "{word}");
        }
    }

    #[test]
    fn words_of_linux_are_known_with_the_values_that_they_have() {
        for word in ["acl", "space_cache=v2", "skip_balance", "noautodefrag"] {
            assert_eq!(look_up(word), KnownOption::Harmless, "{word}");
        }
        for word in ["autodefrag", "thread_pool=8", "space_cache", "space_cache=v1", "nobarrier"] {
            assert!(matches!(look_up(word), KnownOption::Note(_)), "{word}");
        }
        for word in
            ["acl=1", "thread_pool", "thread_pool=", "thread_pool=x", "thread_pool=0", "space_cache=v3"]
        {
            assert_eq!(look_up(word), KnownOption::NoSuchValue, "{word}");
        }
        for word in ["inode_cache", "check_int", "check_int_print_mask=1", "recovery", "fragment=data"] {
            assert!(matches!(look_up(word), KnownOption::Refused(_)), "{word}");
        }
        for word in ["context=", "fatal_errors", "fatal_errors=", "metadata_ratio=1x"] {
            assert_eq!(look_up(word), KnownOption::NoSuchValue, "{word}");
        }
        for word in ["", "autodefragx"] {
            assert_eq!(look_up(word), KnownOption::No, "{word}");
        }
    }
}
