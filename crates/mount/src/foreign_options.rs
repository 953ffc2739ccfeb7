//! Mount options of Linux' Btrfs, as an fstab has them, that change nothing here: they are taken, so that the fstab serves both, and
//! who would miss something is told.

/// An option by its name; whether it has a value; what is worth knowing about it.
type Foreign = (&'static str, Takes, Option<&'static str>);

/// What stands behind the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Takes {
    Nothing,
    Number,
    NumberAbove0,
    /// One of these words.
    Word(&'static [&'static str]),
    Anything,
}

const OF_LINUX: [Foreign; 30] = [
    ("acl", Takes::Nothing, None),
    ("noacl", Takes::Nothing, Some("access control lists count all the same")),
    ("autodefrag", Takes::Nothing, Some("files are put together when asked: creamery filesystem defragment")),
    ("noautodefrag", Takes::Nothing, None),
    ("barrier", Takes::Nothing, None),
    (
        "nobarrier",
        Takes::Nothing,
        Some("the device is flushed all the same, so that a commit survives a power cut"),
    ),
    ("check_int", Takes::Nothing, Some("every block is checked before it is written, always")),
    ("check_int_data", Takes::Nothing, Some("every block is checked before it is written, always")),
    ("clear_cache", Takes::Nothing, Some("the free space tree is kept; creamery check looks at it")),
    ("nodatasum", Takes::Nothing, Some("new files have checksums; nodatacow is without")),
    ("degraded", Takes::Nothing, None),
    ("enospc_debug", Takes::Nothing, None),
    ("noenospc_debug", Takes::Nothing, None),
    (
        "fatal_errors",
        Takes::Word(&["bug", "panic"]),
        Some("after an error nothing is written any more; nothing panics"),
    ),
    ("fragment", Takes::Word(&["data", "metadata", "all"]), Some("space is not made to be in pieces")),
    ("inode_cache", Takes::Nothing, None),
    ("noinode_cache", Takes::Nothing, None),
    ("metadata_ratio", Takes::Number, Some("chunks for metadata are made when they are needed")),
    ("rescan_uuid_tree", Takes::Nothing, Some("the tree of UUIDs is not searched for what is missing")),
    ("skip_balance", Takes::Nothing, None),
    (
        "space_cache",
        Takes::Word(&["", "v1", "v2"]),
        Some(
            "a free space tree is kept where there is one; the older cache is never written, and Linux drops it",
        ),
    ),
    ("nospace_cache", Takes::Nothing, Some("a free space tree is kept where there is one")),
    ("ssd_spread", Takes::Nothing, Some("space is chosen as ever")),
    ("nossd_spread", Takes::Nothing, None),
    ("thread_pool", Takes::NumberAbove0, Some("there are as many threads as are needed")),
    ("user_subvol_rm_allowed", Takes::Nothing, Some("who may delete a subvolume is told in docs/mount.md")),
    ("nouser_subvol_rm_allowed", Takes::Nothing, None),
    ("device", Takes::Anything, Some("a filesystem of one device needs no other")),
    ("mand", Takes::Nothing, None),
    ("nomand", Takes::Nothing, None),
];

/// What a word of `-o` is to us that Linux' Btrfs knows and that changes nothing here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// It is no such word, or has no such value.
    No,
    Harmless,
    /// This is worth knowing.
    Note(&'static str),
}

pub(crate) fn look_up(word: &str) -> Known {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let Some((_, takes, note)) = OF_LINUX.iter().find(|(known, ..)| *known == name) else { return Known::No };
    let fits = match (takes, value) {
        (Takes::Nothing, None) => true,
        (Takes::Number, Some(value)) => value.parse::<u32>().is_ok(),
        (Takes::NumberAbove0, Some(value)) => value.parse::<u32>().is_ok_and(|number| number > 0),
        (Takes::Word(words), value) => words.contains(&value.unwrap_or_default()),
        (Takes::Anything, Some(value)) => !value.is_empty(),
        _ => false,
    };
    match note {
        _ if !fits => Known::No,
        // What is usual here.
        _ if word == "space_cache=v2" => Known::Harmless,
        Some(note) => Known::Note(note),
        None => Known::Harmless,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_linux_are_known_with_the_values_that_they_have() {
        for word in ["acl", "space_cache=v2", "skip_balance", "noautodefrag", "degraded"] {
            assert_eq!(look_up(word), Known::Harmless, "{word}");
        }
        for word in
            ["autodefrag", "thread_pool=8", "space_cache", "space_cache=v1", "device=/dev/sdb", "nobarrier"]
        {
            assert!(matches!(look_up(word), Known::Note(_)), "{word}");
        }
        for word in
            ["", "acl=1", "thread_pool", "thread_pool=", "thread_pool=x", "thread_pool=0", "space_cache=v3"]
        {
            assert_eq!(look_up(word), Known::No, "{word}");
        }
        for word in ["device", "device=", "fatal_errors", "fatal_errors=", "autodefragx", "metadata_ratio=1x"]
        {
            assert_eq!(look_up(word), Known::No, "{word}");
        }
    }
}
