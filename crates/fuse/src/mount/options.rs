//! Mount options, as `-o` takes them.

use creamery_base::{Error, Result};
use rustix::mount::MountFlags;

/// Options of a mount.
///
/// ```
/// use creamery_fuse::MountOptions;
/// let mut options = MountOptions::new("disk.img", "creamery");
/// let rest = options.parse("ro,noatime,subvol=home,allow_other").unwrap();
/// assert_eq!(rest, ["subvol=home"]);
/// assert!(options.read_only() && options.allow_other);
/// assert!(options.has("noatime") && !options.has("nodiratime"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountOptions {
    /// The source in `/proc/mounts` (`fsname=`).
    pub source: String,
    /// The type is shown as `fuse.` and this (`subtype=`); empty for plain `fuse`.
    pub subtype: String,
    /// Users other than the mounter may enter; needs `user_allow_other` in `/etc/fuse.conf` unless root
    /// mounts.
    pub allow_other: bool,
    /// The kernel checks permissions by mode and owner. On from the start; without it every operation must
    /// check by itself.
    pub default_permissions: bool,
    /// Mount through `fusermount3` even as root.
    pub through_helper: bool,
    /// Flags of mount(2). `nosuid` and `nodev` are on from the start, as for `fusermount3`.
    pub(super) flags: MountFlags,
}

/// Option words that set or clear a flag, in the spelling of mount(8).
const FLAGS: [(&str, MountFlags, bool); 21] = [
    ("ro", MountFlags::RDONLY, true),
    ("rw", MountFlags::RDONLY, false),
    ("nosuid", MountFlags::NOSUID, true),
    ("suid", MountFlags::NOSUID, false),
    ("nodev", MountFlags::NODEV, true),
    ("dev", MountFlags::NODEV, false),
    ("noexec", MountFlags::NOEXEC, true),
    ("exec", MountFlags::NOEXEC, false),
    ("noatime", MountFlags::NOATIME, true),
    ("atime", MountFlags::NOATIME, false),
    ("nodiratime", MountFlags::NODIRATIME, true),
    ("diratime", MountFlags::NODIRATIME, false),
    ("relatime", MountFlags::RELATIME, true),
    ("norelatime", MountFlags::RELATIME, false),
    ("sync", MountFlags::SYNCHRONOUS, true),
    ("async", MountFlags::SYNCHRONOUS, false),
    ("dirsync", MountFlags::DIRSYNC, true),
    ("strictatime", MountFlags::STRICTATIME, true),
    ("nostrictatime", MountFlags::STRICTATIME, false),
    ("lazytime", MountFlags::LAZYTIME, true),
    ("nolazytime", MountFlags::LAZYTIME, false),
];

impl MountOptions {
    /// Read-write, `nosuid`, `nodev`, `default_permissions`, for the mounter alone.
    #[must_use]
    pub fn new(source: &str, subtype: &str) -> Self {
        Self {
            source: source.to_owned(),
            subtype: subtype.to_owned(),
            allow_other: false,
            default_permissions: true,
            through_helper: false,
            flags: MountFlags::NOSUID | MountFlags::NODEV,
        }
    }

    /// Whether the mount rejects writes.
    #[must_use]
    pub const fn read_only(&self) -> bool {
        self.flags.contains(MountFlags::RDONLY)
    }

    /// Makes the mount read-only.
    pub fn set_read_only(&mut self) {
        self.flags.insert(MountFlags::RDONLY);
    }

    /// Whether a flag of mount(8) is on, by the option that sets it. The kernel does not move access times of a FUSE
    /// mount itself, so the server must follow `noatime` and similar flags.
    #[must_use]
    pub fn has(&self, word: &str) -> bool {
        FLAGS.iter().any(|&(name, flag, on)| on && name == word && self.flags.contains(flag))
    }

    /// Takes a list with commas and returns the options that do not belong to the transport, in their order.
    ///
    /// # Errors
    /// The errors of [`apply`](Self::apply) for the first bad option; the options before it are taken.
    pub fn parse<'a>(&mut self, list: &'a str) -> Result<Vec<&'a str>> {
        let mut rest = Vec::new();
        for word in list.split(',').filter(|word| !word.is_empty()) {
            if !self.apply(word)? {
                rest.push(word);
            }
        }
        Ok(rest)
    }

    /// Takes one option. False if it does not belong to the transport.
    ///
    /// # Errors
    /// The option is the kernel's own: `fd`, `rootmode`, `user_id` or `group_id` with a value.
    pub fn apply(&mut self, word: &str) -> Result<bool> {
        if let Some(&(_, flag, on)) = FLAGS.iter().find(|(name, ..)| *name == word) {
            self.flags.set(flag, on);
            return Ok(true);
        }
        match word.split_once('=') {
            Some(("fsname", source)) => self.source = source.to_owned(),
            Some(("subtype", subtype)) => self.subtype = subtype.to_owned(),
            Some(("fd" | "rootmode" | "user_id" | "group_id", _)) => {
                return Err(Error::invalid(format!("mount option {word} is reserved for the kernel")));
            }
            Some(_) => return Ok(false),
            None => match word {
                "defaults" => {}
                "allow_other" => self.allow_other = true,
                "default_permissions" => self.default_permissions = true,
                _ => return Ok(false),
            },
        }
        Ok(true)
    }

    /// The type for mount(2).
    pub(super) fn kind(&self) -> String {
        if self.subtype.is_empty() { "fuse".to_owned() } else { format!("fuse.{}", self.subtype) }
    }

    /// The source for mount(2).
    pub(super) fn source(&self) -> &str {
        match (self.source.is_empty(), self.subtype.is_empty()) {
            (false, _) => &self.source,
            (true, false) => &self.subtype,
            (true, true) => "fuse",
        }
    }

    /// The options for the kernel's FUSE, without the four that only the mounter knows.
    pub(super) fn kernel_words(&self) -> String {
        let mut words = String::new();
        for (word, on) in
            [("default_permissions", self.default_permissions), ("allow_other", self.allow_other)]
        {
            if on {
                words.push(',');
                words.push_str(word);
            }
        }
        words
    }

    /// The options for `fusermount3 -o`.
    pub(super) fn fusermount_words(&self) -> String {
        let mut words = String::from(if self.read_only() { "ro" } else { "rw" });
        for (word, flag, on) in FLAGS {
            // An unprivileged user cannot request `suid` and `dev` through `fusermount3`.
            if on && flag != MountFlags::RDONLY && self.flags.contains(flag) && known_to_fusermount(word) {
                words.push(',');
                words.push_str(word);
            }
        }
        words.push_str(&self.kernel_words());
        words.push_str(",fsname=");
        words.push_str(&escaped(self.source()));
        if !self.subtype.is_empty() {
            words.push_str(",subtype=");
            words.push_str(&escaped(&self.subtype));
        }
        words
    }
}

fn known_to_fusermount(word: &str) -> bool {
    matches!(word, "nosuid" | "nodev" | "noexec" | "noatime" | "sync" | "dirsync")
}

/// Commas and backslashes separate and escape in the list.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_opposite_words_counts() {
        let mut options = MountOptions::new("a", "b");
        assert_eq!(options.parse("ro,suid,,rw,noexec").unwrap(), Vec::<&str>::new());
        assert!(!options.read_only());
        assert_eq!(options.flags, MountFlags::NODEV | MountFlags::NOEXEC);
    }

    #[test]
    fn words_for_the_helper_are_escaped_and_known_to_it() {
        let mut options = MountOptions::new("", "");
        options.parse("noatime,relatime,strictatime,allow_other,fsname=x").unwrap();
        options.source = "a,b\\c".to_owned();
        assert_eq!(
            options.fusermount_words(),
            "rw,nosuid,nodev,noatime,default_permissions,allow_other,fsname=a\\,b\\\\c"
        );
    }

    #[test]
    fn what_only_the_mounter_knows_is_refused() {
        assert!(MountOptions::new("", "").apply("fd=3").is_err());
        assert!(!MountOptions::new("", "").apply("commit=30").unwrap());
    }
}
