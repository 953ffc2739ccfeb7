//! Mount options (`-o`), beyond those of the transport.

use std::path::{Path, PathBuf};
use std::time::Duration;

use creamery_base::{Error, Result};
use creamery_device::DeviceIo;
use creamery_fs::{Compress, FsOptions};
use creamery_fuse::MountOptions;
use creamery_txn::DiscardPolicy;
use creamery_volume::{NamedSet, Rescue};
use serde::{Deserialize, Serialize};

use crate::foreign_options::{self, KnownOption};
use crate::rescue::{self, Word};

/// Default time between commits, as on Linux.
const COMMIT_DEFAULT: Duration = Duration::from_secs(30);

/// The commit interval, an hour at most; as on Linux, 0 means the default.
fn commit_interval(seconds: u64) -> Duration {
    if seconds == 0 { COMMIT_DEFAULT } else { Duration::from_secs(seconds.min(3600)) }
}

/// The value of `subvol=`. An empty one is refused, as on Linux.
fn path_of_subvolume(word: &str, value: &str) -> Result<String> {
    if value.is_empty() {
        let what = format!("mount option {word}: expected a path, such as subvol=/home");
        return Err(Error::invalid(what));
    }
    Ok(value.to_owned())
}

/// The policy of `discard`; as on Linux, the option without a value means `sync`.
fn discard_policy(value: &str) -> Result<DiscardPolicy> {
    match value {
        "" | "sync" => Ok(DiscardPolicy::Sync),
        "async" => Ok(DiscardPolicy::Async),
        _ => Err(Error::invalid(format!("mount option discard={value}: expected sync or async"))),
    }
}

/// Parses a number like the kernel: after 0x in base 16, after 0 in base 8.
fn number(text: &str) -> Option<u64> {
    let (digits, base) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    // The digits must not contain a sign, which `from_str_radix` would accept.
    let is_plain = digits.bytes().all(|digit| digit.is_ascii_alphanumeric());
    if is_plain { u64::from_str_radix(digits, base).ok() } else { None }
}

/// Parses a number of bytes, with an optional suffix K, M or G.
fn bytes(text: &str) -> Option<u64> {
    let shift = match text.bytes().last()?.to_ascii_lowercase() {
        b'k' => 10,
        b'm' => 20,
        b'g' => 30,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    number(digits)?.checked_mul(1 << shift)
}

/// Parses a compression option; as on Linux, the option without a value means zlib.
fn compress(word: &str) -> Result<Option<Compress>> {
    let (name, value) = word.split_once('=').unwrap_or((word, "zlib"));
    let compress = Compress::option(value).map_err(|error| error.context(format!("mount option {word}")))?;
    Ok(compress.map(|compress| Compress { force: name == "compress-force", ..compress }))
}

/// The error for `direct_io`, which means another thing to FUSE.
const OF_FUSE: &str = "mount option direct_io: not supported for files of the mount; use directio to read and write the image past the host's \
                       cache";

/// Options of mount(8) and fstab that do not concern a filesystem.
const IGNORED: [&str; 10] =
    ["auto", "noauto", "user", "nouser", "users", "owner", "group", "nofail", "_netdev", "loop"];

/// Options that concern the server's writes.
const OF_WRITING: [&str; 17] = [
    "commit",
    "discard",
    "nodiscard",
    "flushoncommit",
    "noflushoncommit",
    "delalloc",
    "nodelalloc",
    "datacow",
    "datasum",
    "nodatacow",
    "compress",
    "compress-force",
    "max_inline",
    "treelog",
    "notreelog",
    "ssd",
    "nossd",
];

/// Entries of the mount table that only the kernel writes; mount(8) repeats them in a remount.
const OF_THE_KERNEL: [&str; 5] = ["user_id=", "group_id=", "rootmode=", "fd=", "max_read="];

/// The owner that the mount shows, and gives to new files, in place of the real one.
///
/// ```
/// assert_eq!(creamery_mount::Owner::default().uid, None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    /// User for all files.
    pub uid: Option<u32>,
    /// Group for all files.
    pub gid: Option<u32>,
    /// Treats every asker as root (`fakeroot`): everything is allowed, owners can be changed, and new files belong to root.
    pub is_fakeroot: bool,
}

impl Owner {
    /// Owner and group of a new file of a user with these ids.
    pub(crate) fn of_new(self, uid: u32, gid: u32) -> (u32, u32) {
        let (uid, gid) = if self.is_fakeroot { (0, 0) } else { (uid, gid) };
        (self.uid.unwrap_or(uid), self.gid.unwrap_or(gid))
    }
}

/// Options of a mount.
///
/// ```
/// let options = creamery_mount::Options::parse("disk.img", ["ro,subvol=/home,commit=5"]).unwrap();
/// assert!(options.transport.read_only());
/// assert_eq!(options.subvol.as_deref(), Some("/home"));
/// assert_eq!(options.discard, creamery_txn::DiscardPolicy::Off);
/// assert!(creamery_mount::Options::parse("disk.img", ["compress=gzip"]).is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Options of the transport.
    pub transport: MountOptions,
    /// Path of the subvolume to mount, from the top level.
    pub subvol: Option<String>,
    /// Id of the subvolume to mount.
    pub subvolid: Option<u64>,
    /// Time between commits.
    pub commit: Duration,
    /// Whether the device gets discards for freed space.
    pub discard: DiscardPolicy,
    /// Whether a commit also writes all earlier data.
    pub flush_on_commit: bool,
    /// New files are overwritten in place.
    pub nodatacow: bool,
    /// Compression of new data.
    pub compress: Option<Compress>,
    /// The largest file that is stored in the tree itself, bytes.
    pub max_inline: u64,
    /// Whether a sync writes to a log, if that is enough.
    pub treelog: bool,
    /// True: the device counts as not rotational (`ssd`). False: as rotational (`nossd`). `None`: as the device reports.
    pub ssd: Option<bool>,
    /// Whether written data stays in memory for a while.
    pub delalloc: bool,
    /// If the first superblock is damaged, writes from a copy, without the changes that only the first one leads to.
    pub use_super_copy: bool,
    /// Damage that is ignored, to get files off a damaged filesystem.
    pub rescue: Rescue,
    /// Other devices of the filesystem; further ones are searched for beside the first one.
    pub devices: Vec<PathBuf>,
    /// Devices may be missing, as many as the profiles tolerate.
    pub degraded: bool,
    /// Counts, by rank, how often threads of the server find a lock taken, for the statistics.
    pub lock_statistics: bool,
    /// The I/O mode of the devices.
    pub io: DeviceIo,
    /// The owner that the mount shows.
    pub owner: Owner,
    /// The log file of the server's process, for the statistics ([`crate::statistics`]); not an option of `-o`.
    pub log: Option<String>,
    /// The directory for the status of scrubs; not an option of `-o`.
    pub state: Option<PathBuf>,
    /// Notes about options that have no effect here.
    pub notes: Vec<String>,
    /// Changes the flags of the existing mount instead of mounting.
    pub remount: bool,
    /// The options among them that concern the server's writes.
    pub(crate) of_writing: Vec<String>,
    /// The last option among them that is only for read-only mounts, and its effect.
    of_readers: Option<(String, &'static str)>,
}

/// The compression of new data on a mount.
///
/// ```
/// let options = creamery_mount::Options::parse("disk.img", ["compress=zstd"]).unwrap();
/// assert_eq!(options.writing().compression.compress.as_deref(), Some("zstd:3"));
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Compression {
    /// The value of `compress=` or `compress-force=`; `None` without compression.
    pub compress: Option<String>,
    /// Whether it is `compress-force=`.
    pub compress_force: bool,
}

impl Compression {
    pub(crate) fn of(option: Option<Compress>) -> Self {
        Self {
            compress: option.map(|compress| compress.method.to_string()),
            compress_force: option.is_some_and(|compress| compress.force),
        }
    }

    /// Parses the stored value. Errors: it is not a valid compression.
    pub(crate) fn read(&self) -> Result<Option<Compress>> {
        let read = self.compress.as_deref().map(str::parse::<Compress>).transpose()?;
        Ok(read.map(|compress| Compress { force: self.compress_force, ..compress }))
    }
}

/// The server's options for writing, from the mount. Only the compression can change later.
///
/// ```
/// let options = creamery_mount::Options::parse("disk.img", ["commit=5,nodelalloc"]).unwrap();
/// assert_eq!((options.writing().commit_seconds, options.writing().delalloc), (5, false));
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Writing {
    /// `commit=`.
    pub commit_seconds: u64,
    /// `discard=`: "sync", "async" or "off".
    pub discard: String,
    /// `flushoncommit`.
    pub flush_on_commit: bool,
    /// `delalloc`.
    pub delalloc: bool,
    /// `nodatacow`.
    pub nodatacow: bool,
    /// The compression of new data.
    #[serde(flatten)]
    pub compression: Compression,
    /// `max_inline=`.
    pub max_inline: u64,
    /// `treelog`.
    pub treelog: bool,
    /// `ssd`, or `nossd`; `None` without either.
    pub ssd: Option<bool>,
}

/// The handling of an unknown option.
#[derive(Clone, Copy)]
enum Unknown {
    IsAnError,
    IsLeftOut,
}

impl Options {
    /// Parses lists of options. Errors: an unknown option, by name, or an invalid value.
    pub fn parse<'a>(source: &str, lists: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        Self::read(source, lists, Unknown::IsAnError)
    }

    /// Parses lists of options like [`Options::parse`], but ignores unknown ones (mount -s).
    pub fn parse_sloppy<'a>(source: &str, lists: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        Self::read(source, lists, Unknown::IsLeftOut)
    }

    fn read<'a>(source: &str, lists: impl IntoIterator<Item = &'a str>, unknown: Unknown) -> Result<Self> {
        let mut options = Self::new(source);
        let words: Vec<&str> = lists.into_iter().flat_map(|list| list.split(',')).collect();
        options.remount = words.contains(&"remount");
        for word in words {
            let repeated = options.remount && OF_THE_KERNEL.iter().any(|start| word.starts_with(start));
            if word.is_empty() || word == "remount" || repeated || options.transport.apply(word)? {
                continue;
            }
            match (options.apply(word), unknown) {
                (Err(error), Unknown::IsAnError) => return Err(error),
                (Ok(()), _) | (Err(_), Unknown::IsLeftOut) => {}
            }
        }
        if options.owner.is_fakeroot
            && (options.transport.allow_other || options.transport.default_permissions)
        {
            let what = "mount option fakeroot: cannot be used with allow_other or default_permissions";
            return Err(Error::invalid(what));
        }
        if let (Some((word, what)), false) = (&options.of_readers, options.transport.read_only()) {
            let what = format!("mount option {word}: requires ro: it {what}");
            return Err(Error::invalid(what));
        }
        Ok(options)
    }

    fn new(source: &str) -> Self {
        Self {
            transport: MountOptions::new(source, "creamery"),
            subvol: None,
            subvolid: None,
            commit: COMMIT_DEFAULT,
            discard: DiscardPolicy::Off,
            flush_on_commit: false,
            nodatacow: false,
            compress: None,
            max_inline: FsOptions::default().max_inline,
            treelog: true,
            ssd: None,
            delalloc: true,
            use_super_copy: false,
            rescue: Rescue::default(),
            devices: Vec::new(),
            degraded: false,
            lock_statistics: false,
            io: DeviceIo::Buffered,
            owner: Owner::default(),
            log: None,
            state: None,
            notes: Vec::new(),
            remount: false,
            of_writing: Vec::new(),
            of_readers: None,
        }
    }

    /// Returns the filesystem whose first device is `image`.
    #[must_use]
    pub fn set(&self, image: &Path) -> NamedSet {
        let set = NamedSet::new(image).devices(&self.devices);
        let set = if self.io == DeviceIo::Direct { set.direct_io() } else { set };
        if self.degraded { set.degraded() } else { set }
    }

    /// Returns the options for writing.
    #[must_use]
    pub fn writing(&self) -> Writing {
        let discard = match self.discard {
            DiscardPolicy::Off => "off",
            DiscardPolicy::Sync => "sync",
            DiscardPolicy::Async => "async",
        };
        Writing {
            commit_seconds: self.commit.as_secs(),
            discard: discard.to_owned(),
            flush_on_commit: self.flush_on_commit,
            delalloc: self.delalloc,
            nodatacow: self.nodatacow,
            compression: Compression::of(self.compress),
            max_inline: self.max_inline,
            treelog: self.treelog,
            ssd: self.ssd,
        }
    }

    /// The first option for writing that differs from `kept`, the options of a running server.
    pub(crate) fn first_that_changes(&self, kept: &Writing) -> Option<&str> {
        let changes = |word: &&String| {
            let mut alone = Self::new("");
            let known = alone.apply(word).is_ok();
            let wanted = alone.writing();
            let name = word.split('=').next().unwrap_or_default();
            known
                && match name {
                    "commit" => wanted.commit_seconds != kept.commit_seconds,
                    "discard" | "nodiscard" => wanted.discard != kept.discard,
                    "flushoncommit" | "noflushoncommit" => wanted.flush_on_commit != kept.flush_on_commit,
                    "datacow" | "datasum" | "nodatacow" => wanted.nodatacow != kept.nodatacow,
                    // Data that is overwritten in place is not compressed.
                    "compress" | "compress-force" => wanted.compression.compress.is_some() && kept.nodatacow,
                    "max_inline" => wanted.max_inline != kept.max_inline,
                    "treelog" | "notreelog" => wanted.treelog != kept.treelog,
                    "ssd" | "nossd" => wanted.ssd != kept.ssd,
                    _ => wanted.delalloc != kept.delalloc,
                }
        };
        self.of_writing.iter().find(changes).map(String::as_str)
    }

    /// The compression in these options, if they set one.
    pub(crate) fn compression(&self) -> Option<Compression> {
        let is_said = self.of_writing.iter().any(|word| word.starts_with("compress"));
        is_said.then(|| Compression::of(self.compress))
    }

    fn apply(&mut self, word: &str) -> Result<()> {
        if IGNORED.contains(&word)
            || word.starts_with("x-")
            || word.starts_with("X-")
            || word.starts_with("comment=")
        {
            return Ok(());
        }
        if self.knows_as_foreign(word)? {
            return Ok(());
        }
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let not_a_number = || Error::invalid(format!("mount option {word}: expected a number"));
        let number = || number(value).ok_or_else(not_a_number);
        // The largest number means nobody, in Linux as in chown(2).
        let nobody = || Error::invalid(format!("mount option {word}: invalid ID"));
        let id =
            || number().and_then(|id| u32::try_from(id).ok().filter(|&id| id != u32::MAX).ok_or_else(nobody));
        match name {
            "subvol" => self.subvol = Some(path_of_subvolume(word, value)?),
            "subvolid" => self.subvolid = Some(number()?),
            "commit" => {
                self.commit = commit_interval(u32::try_from(number()?).map_err(|_| not_a_number())?.into())
            }
            "discard" => self.discard = discard_policy(value)?,
            "nodiscard" if value.is_empty() => self.discard = DiscardPolicy::Off,
            "flushoncommit" | "noflushoncommit" if value.is_empty() => {
                self.flush_on_commit = name == "flushoncommit";
            }
            "delalloc" | "nodelalloc" if value.is_empty() => self.delalloc = name == "delalloc",
            "max_inline" => self.max_inline = bytes(value).ok_or_else(not_a_number)?,
            // Of these and compression the later one counts, as on Linux: data that is overwritten in place is not compressed.
            "datacow" | "datasum" | "nodatacow" if value.is_empty() => {
                self.nodatacow = name == "nodatacow";
                self.compress = self.compress.filter(|_| !self.nodatacow);
            }
            "compress" | "compress-force" => {
                self.compress = compress(word)?;
                self.nodatacow &= self.compress.is_none();
            }
            "treelog" | "notreelog" if value.is_empty() => self.treelog = name == "treelog",
            "ssd" | "nossd" if value.is_empty() => self.ssd = Some(name == "ssd"),
            "nologreplay" | "norecovery" if value.is_empty() => {
                self.rescue(rescue::parse("nologreplay")?, word)
            }
            "usesupercopy" | "usebackuproot" if value.is_empty() => self.rescue(rescue::parse(name)?, word),
            "rescue" => self.rescue(rescue::parse(value)?, word),
            "device" if !value.is_empty() => self.devices.push(value.into()),
            "device" => {
                return Err(Error::invalid("mount option device: expected a path, such as device=/dev/sdb"));
            }
            "degraded" if value.is_empty() => self.degraded = true,
            "lockstats" if value.is_empty() => self.lock_statistics = true,
            "directio" if value.is_empty() => self.io = DeviceIo::Direct,
            "direct_io" if value.is_empty() => return Err(Error::invalid(OF_FUSE)),
            "uid" => self.owner.uid = Some(id()?),
            "gid" => self.owner.gid = Some(id()?),
            "fakeroot" if value.is_empty() => self.fakeroot(),
            _ => {
                return Err(Error::invalid(format!(
                    "unknown mount option \"{word}\": \
                     expected ro, rw, subvol=, subvolid=, commit=, discard=, flushoncommit, nodelalloc, nodatacow, compress=, compress-force=, max_inline=, notreelog, ssd, nossd, nologreplay, usesupercopy, usebackuproot, rescue=, device=, degraded, directio, lockstats, uid=, gid=, fakeroot, allow_other, or one of mount(8); see `creamery help mount-options`"
                )));
            }
        }
        if OF_WRITING.contains(&name) {
            self.of_writing.push(word.to_owned());
        }
        Ok(())
    }

    /// Whether the option belongs to Linux' Btrfs and has no effect here. Errors: an invalid value, or one that Linux rejects, too.
    fn knows_as_foreign(&mut self, word: &str) -> Result<bool> {
        let refused = |why| Err(Error::invalid(format!("mount option {word}: {why}")));
        match foreign_options::look_up(word) {
            KnownOption::No => Ok(false),
            KnownOption::NoSuchValue => refused("invalid value"),
            KnownOption::Harmless => Ok(true),
            KnownOption::Note(note) => {
                self.notes.push(format!("mount option {word}: {note}"));
                Ok(true)
            }
            KnownOption::Refused(why) => refused(why),
        }
    }

    fn fakeroot(&mut self) {
        self.owner.is_fakeroot = true;
        // With this option the kernel would check the asker against owners and modes.
        self.transport.default_permissions = false;
    }

    fn rescue(&mut self, what: Word, word: &str) {
        match what {
            Word::UseSuperCopy => self.use_super_copy = true,
            Word::Reading(rescue) => {
                self.rescue = self.rescue.and(rescue);
                self.of_readers = Some((word.to_owned(), rescue::only_readers(rescue)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/use/mount-options.md");

    /// The options in the first cells of the page's tables.
    fn words_of_page() -> impl Iterator<Item = &'static str> {
        let first_cells = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
        first_cells.flat_map(|(cell, _)| cell.split('`').filter(|word| !word.is_empty() && *word != ", "))
    }

    #[test]
    fn the_page_has_every_option_and_no_other() {
        let words: Vec<&str> = words_of_page().collect();
        assert!(words.len() > 45, "{words:?}");
        for word in &words {
            let sample =
                word.replace("ALGORITHM:LEVEL", "zstd:3").replace("PATH", "/a").replace("BYTES", "2K");
            let sample = sample.replace("SECONDS", "5").replace("ID", "5").replace("DEVICE", "/dev/sdb");
            let parsed = Options::parse("disk.img", ["ro", &sample]);
            assert!(parsed.is_ok(), "{word}: {:?}", parsed.err());
        }
        for known in OF_WRITING.iter().filter(|word| **word != "datasum") {
            assert!(words.iter().any(|word| word.split('=').next() == Some(known)), "{known}");
        }
        for passed_over in IGNORED {
            assert!(PAGE.contains(&format!("`{passed_over}`")), "{passed_over}");
        }
    }
}
