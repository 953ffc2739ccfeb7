//! `rescue=`: damage that is ignored, with the values of Linux and one of ours.

use creamery_base::{Error, Result};
use creamery_volume::Rescue;

/// The meaning of a value of `rescue=`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    /// Damage that a reader ignores.
    Reading(Rescue),
    /// Writes from a copy of the superblock; Linux does not have this value.
    UseSuperCopy,
}

/// Parses a value, in its long or its short form. Errors: an unknown value, or several at once.
pub(crate) fn parse(value: &str) -> Result<Word> {
    if value == "usesupercopy" {
        return Ok(Word::UseSuperCopy);
    }
    let why = match Rescue::by_word(value) {
        Some(rescue) => return Ok(Word::Reading(rescue)),
        None if value.contains(':') => {
            "expected one word each: rescue=nologreplay,rescue=usebackuproot".to_owned()
        }
        None => format!("expected usesupercopy, {}", Rescue::WORDS),
    };
    Err(Error::invalid(format!("mount option rescue={value}: {why}")))
}

/// The reason why a writable mount must not ignore this damage.
pub(crate) fn only_readers(what: Rescue) -> &'static str {
    match what {
        Rescue { use_backup_root: true, .. } => "reads an earlier root, whose blocks may be in use again",
        Rescue { no_log_replay: true, .. } => "ignores a log",
        _ => "ignores damage",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_of_linux_is_one_of_ours() {
        for word in [
            "nologreplay",
            "usebackuproot",
            "ignorebadroots",
            "ibadroots",
            "ignoredatacsums",
            "idatacsums",
            "ignoremetacsums",
            "imetacsums",
            "ignoresuperflags",
            "isuperflags",
            "all",
        ] {
            assert_eq!(parse(word).unwrap(), Word::Reading(word.parse().unwrap()));
        }
        assert_eq!(parse("usesupercopy").unwrap(), Word::UseSuperCopy);
    }

    #[test]
    fn others_are_refused_with_the_reason() {
        for (word, reason) in
            [("nologreplay:usebackuproot", "one word each"), ("", "expected"), ("x", "expected")]
        {
            let error = parse(word).unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains(word), "{word}: {error}");
        }
    }
}
