//! Damage that a reader ignores, to get files off a damaged filesystem: the words of Linux' mount option `rescue=`.
//!
//! Each word gives up one check or requirement of reading, and no other: intact parts are read and checked as
//! ever. A good copy always comes before one that is only accepted because its checksum is ignored.

use std::str::FromStr;

use creamery_base::{Error, Result};

/// The damage that is ignored. None by default; a writer ignores none.
///
/// ```
/// use creamery_volume::Rescue;
/// let rescue: Rescue = "ibadroots:nologreplay,idatacsums".parse()?;
/// assert!(rescue.ignore_bad_roots && rescue.no_log_replay && rescue.ignore_data_csums && !rescue.use_backup_root);
/// assert_eq!("all".parse::<Rescue>()?, Rescue::ALL);
/// assert!("everything".parse::<Rescue>().is_err());
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one for each word")]
pub struct Rescue {
    /// A log with fsyncs after the last commit is ignored.
    pub no_log_replay: bool,
    /// If the root tree is damaged, an earlier one is read, from a backup in the superblock.
    pub use_backup_root: bool,
    /// Trees that only writers need, and the checksum tree, may be unreadable.
    pub ignore_bad_roots: bool,
    /// Data is read even if it does not agree with its checksum, or has none.
    pub ignore_data_csums: bool,
    /// Tree blocks are read even if they do not agree with their checksum, if everything else in them is valid.
    pub ignore_meta_csums: bool,
    /// States in the superblock's flags that forbid even reading are ignored.
    pub ignore_super_flags: bool,
}

impl Rescue {
    /// All of these.
    pub const ALL: Self = Self {
        no_log_replay: true,
        use_backup_root: true,
        ignore_bad_roots: true,
        ignore_data_csums: true,
        ignore_meta_csums: true,
        ignore_super_flags: true,
    };

    /// The words, for messages.
    pub const WORDS: &str = "nologreplay, usebackuproot, ignorebadroots, ignoredatacsums, ignoremetacsums, ignoresuperflags or all";

    /// Returns the setting of one word, in its long or its short form; `None` if there is no such word.
    #[must_use]
    pub fn by_word(word: &str) -> Option<Self> {
        let none = Self::default();
        Some(match word {
            "nologreplay" => Self { no_log_replay: true, ..none },
            "usebackuproot" => Self { use_backup_root: true, ..none },
            "ignorebadroots" | "ibadroots" => Self { ignore_bad_roots: true, ..none },
            "ignoredatacsums" | "idatacsums" => Self { ignore_data_csums: true, ..none },
            "ignoremetacsums" | "imetacsums" => Self { ignore_meta_csums: true, ..none },
            "ignoresuperflags" | "isuperflags" => Self { ignore_super_flags: true, ..none },
            "all" => Self::ALL,
            _ => return None,
        })
    }

    /// Combines two settings.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            no_log_replay: self.no_log_replay || other.no_log_replay,
            use_backup_root: self.use_backup_root || other.use_backup_root,
            ignore_bad_roots: self.ignore_bad_roots || other.ignore_bad_roots,
            ignore_data_csums: self.ignore_data_csums || other.ignore_data_csums,
            ignore_meta_csums: self.ignore_meta_csums || other.ignore_meta_csums,
            ignore_super_flags: self.ignore_super_flags || other.ignore_super_flags,
        }
    }

    /// Checks that writing is possible. Errors: it ignores damage that a writer would make worse.
    pub fn check_writing(self) -> Result<()> {
        if self.use_backup_root {
            return Err(Error::invalid("an earlier root can only be read: its blocks may be in use again"));
        }
        if self != Self::default() {
            return Err(Error::invalid("rescue options allow reading only"));
        }
        Ok(())
    }
}

/// Parses words with `:` or `,` between.
impl FromStr for Rescue {
    type Err = Error;

    fn from_str(words: &str) -> Result<Self> {
        words.split([':', ',']).try_fold(Self::default(), |all, word| match Self::by_word(word) {
            Some(one) => Ok(all.and(one)),
            None => Err(Error::invalid(format!(
                "unknown rescue option '{}': expected {}",
                word.escape_debug(),
                Self::WORDS
            ))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_short_words_mean_the_same() {
        for (long, short) in [
            ("ignorebadroots", "ibadroots"),
            ("ignoredatacsums", "idatacsums"),
            ("ignoremetacsums", "imetacsums"),
            ("ignoresuperflags", "isuperflags"),
        ] {
            assert_eq!(Rescue::by_word(long), Rescue::by_word(short));
            assert!(Rescue::by_word(long).is_some_and(|rescue| rescue != Rescue::default()));
        }
    }

    #[test]
    fn all_is_each_of_them() {
        let each = "nologreplay:usebackuproot:ibadroots:idatacsums:imetacsums:isuperflags";
        assert_eq!(each.parse::<Rescue>().unwrap(), Rescue::ALL);
        for wrong in ["", "all:", "nothing", "all all"] {
            assert!(wrong.parse::<Rescue>().unwrap_err().to_string().contains("expected nologreplay"));
        }
    }

    #[test]
    fn who_writes_passes_over_nothing() {
        assert!(Rescue::default().check_writing().is_ok());
        for words in ["usebackuproot", "nologreplay", "imetacsums"] {
            let refused = words.parse::<Rescue>().unwrap().check_writing().unwrap_err();
            assert!(refused.to_string().contains("read"));
        }
    }
}
