//! The rules of compression, its state and its counters.
//!
//! The following settings apply to a file; a later line overrides the earlier ones:
//!
//! | | |
//! |---|---|
//! | nothing | it is stored as it is |
//! | the mount, `compress=` | compressed, if that looks worth the time |
//! | the flag COMPRESS: `chattr +c`, the property `btrfs.compression` | compressed, if that looks worth the time |
//! | the flag NOCOMPRESS: `chattr +m`, the property `none`, or set because the file's first part did not get shorter | it is not |
//! | the mount, `compress-force=` | compressed, also with the flag NOCOMPRESS |
//! | NODATACOW or NODATASUM | never: its sectors are overwritten one by one, or have no checksums |
//!
//! The algorithm is that of the property, else that of the mount, else zlib. The level is the mount's, or the nearest level that the algorithm has. Linux does the
//! same.
//!
//! `data/packing` compresses the data; `unpacked` keeps recently decompressed extents.

mod unpacked;

use std::str::FromStr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, Result};
use creamery_codec::{CompressionMethod, CompressionType, Packer};
use creamery_format::{Compression, Incompat, InodeFlags};

use unpacked::UnpackedExtents;

/// The compression of new extents. It parses like Linux' option: `zstd`, `zstd:5`, `zlib:9`, `lzo`.
///
/// ```
/// use creamery_fs::Compress;
/// let compress: Compress = "zstd:5".parse()?;
/// assert_eq!((compress.method.to_string().as_str(), compress.force), ("zstd:5", false));
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compress {
    /// The algorithm and its level.
    pub method: CompressionMethod,
    /// Compresses also files with the flag NOCOMPRESS, and data that does not look compressible.
    pub force: bool,
}

impl Compress {
    /// Parses a method, or `no` or `none` for no compression.
    ///
    /// ```
    /// use creamery_fs::Compress;
    /// assert_eq!(Compress::option("no")?, None);
    /// assert_eq!(Compress::option("lzo")?, Some("lzo".parse()?));
    /// # Ok::<(), creamery_base::Error>(())
    /// ```
    ///
    /// # Errors
    /// The text is no compression method.
    pub fn option(text: &str) -> Result<Option<Self>> {
        if matches!(text, "no" | "none") { Ok(None) } else { text.parse().map(Some) }
    }
}

impl FromStr for Compress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let method = text.parse().map_err(|error| Error::invalid(format!("\"{text}\": {error}")))?;
        Ok(Self { method, force: false })
    }
}

/// Idle packers that are kept: each may have 3 MiB.
const PACKERS_KEPT: usize = 8;

/// How the data of one file is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub(crate) method: CompressionMethod,
    /// Compression is tried in any case.
    pub(crate) is_forced: bool,
    /// If the file's first part does not get shorter, later data is stored as it is.
    pub(crate) may_give_up: bool,
}

/// The state of compression that all files of a filesystem share.
pub(crate) struct CompressionState {
    /// The mount option ([`encode`]): every write reads it, and a remount changes it.
    option: AtomicU32,
    /// Idle packers.
    packers: RankedMutex<Vec<Packer>, { rank::LEAF }>,
    chunks: AtomicU64,
    bytes: AtomicU64,
    packed_bytes: AtomicU64,
    refused: AtomicU64,
    unlikely: AtomicU64,
    /// Recently decompressed extents.
    pub(crate) unpacked: UnpackedExtents,
}

/// Counters of compression since the open.
#[derive(Clone, Copy)]
pub(crate) struct CompressionCounters {
    pub(crate) chunks: u64,
    pub(crate) bytes: u64,
    pub(crate) packed_bytes: u64,
    pub(crate) refused: u64,
    pub(crate) unlikely: u64,
    pub(crate) unpacked: u64,
    pub(crate) unpacked_hits: u64,
}

/// Why a chunk of data is stored as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Plain {
    /// It did not get shorter.
    Refused,
    /// It did not look compressible.
    Unlikely,
}

impl CompressionState {
    pub(crate) fn new(option: Option<Compress>) -> Self {
        Self {
            option: AtomicU32::new(encode(option)),
            packers: RankedMutex::default(),
            chunks: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            packed_bytes: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            unlikely: AtomicU64::new(0),
            unpacked: UnpackedExtents::default(),
        }
    }

    /// The mount option.
    pub(crate) fn option(&self) -> Option<Compress> {
        decode(self.option.load(Ordering::Relaxed))
    }

    pub(crate) fn set_option(&self, option: Option<Compress>) {
        self.option.store(encode(option), Ordering::Relaxed);
    }

    /// Calls `pack` with an idle packer, or with a new one.
    pub(crate) fn with_packer<R>(&self, pack: impl FnOnce(&mut Packer) -> R) -> R {
        let idle = self.packers.lock().pop();
        let mut packer = idle.unwrap_or_default();
        let packed = pack(&mut packer);
        let mut packers = self.packers.lock();
        if packers.len() < PACKERS_KEPT {
            packers.push(packer);
        }
        packed
    }

    /// Counts a chunk of `len` bytes that is stored in `packed` bytes.
    pub(crate) fn count_packed(&self, len: u64, packed: u64) {
        for (counter, number) in [(&self.chunks, 1), (&self.bytes, len), (&self.packed_bytes, packed)] {
            counter.fetch_add(number, Ordering::Relaxed);
        }
    }

    /// Counts a chunk that is stored as it is.
    pub(crate) fn count_plain(&self, why: Plain) {
        let counter = match why {
            Plain::Refused => &self.refused,
            Plain::Unlikely => &self.unlikely,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counters(&self) -> CompressionCounters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (unpacked, unpacked_hits) = self.unpacked.counted();
        CompressionCounters {
            chunks: of(&self.chunks),
            bytes: of(&self.bytes),
            packed_bytes: of(&self.packed_bytes),
            refused: of(&self.refused),
            unlikely: of(&self.unlikely),
            unpacked,
            unpacked_hits,
        }
    }
}

/// Encodes an option in a word: whether there is one, whether it is forced, the algorithm, and its level plus 128.
fn encode(option: Option<Compress>) -> u32 {
    let Some(Compress { method, force }) = option else { return 0 };
    let kind = CompressionType::ALL.into_iter().position(|kind| kind == method.kind()).expect("one of them");
    let level = method.level().unwrap_or_default() - i32::from(i8::MIN);
    let [level, kind] = [u8::try_from(level).expect("a level fits in a byte"), kind as u8];
    u32::from_le_bytes([1, force.into(), kind, level])
}

fn decode(word: u32) -> Option<Compress> {
    let [is_there, force, kind, level] = word.to_le_bytes();
    let method = CompressionMethod::new(CompressionType::ALL[usize::from(kind)]);
    let method = method.with_level(i32::from(level) + i32::from(i8::MIN));
    (is_there == 1).then_some(Compress { method, force: force == 1 })
}

/// Whether the data of a file with these flags may be compressed, under the mount option `option`. This ignores the file's property.
pub(crate) fn may_be(option: Option<Compress>, flags: InodeFlags) -> bool {
    let is_forced = option.is_some_and(|option| option.force);
    let is_wanted = option.is_some() || flags.contains(InodeFlags::COMPRESS);
    !flags.intersects(InodeFlags::NODATACOW | InodeFlags::NODATASUM)
        && (is_forced || is_wanted && !flags.contains(InodeFlags::NOCOMPRESS))
}

/// How a file's data is compressed; `None` if it is not. `property` is the file's property.
pub(crate) fn wanted(option: Option<Compress>, flags: InodeFlags, property: Option<&[u8]>) -> Option<Wanted> {
    if !may_be(option, flags) {
        return None;
    }
    let own = property.and_then(algorithm);
    let kind = own.or(option.map(|option| option.method.kind())).unwrap_or(CompressionType::Zlib);
    let level = option.and_then(|option| option.method.level()).unwrap_or_default();
    let is_forced = option.is_some_and(|option| option.force);
    Some(Wanted {
        method: CompressionMethod::new(kind).with_level(level),
        is_forced,
        may_give_up: !is_forced && !flags.contains(InodeFlags::COMPRESS),
    })
}

/// The part of `marks` to set on a file. `marks` were decided when the file had the flags `then`; now it has `now`. A mark from compression does not override a flag
/// that a user has set meanwhile.
pub(crate) fn marks_that_hold(marks: InodeFlags, then: InodeFlags, now: InodeFlags) -> InodeFlags {
    let words = InodeFlags::COMPRESS
        .union(InodeFlags::NOCOMPRESS)
        .union(InodeFlags::NODATACOW)
        .union(InodeFlags::NODATASUM);
    if then.intersection(words) == now.intersection(words) { marks } else { marks - InodeFlags::NOCOMPRESS }
}

/// The compression property of a file that gets these flags; `None` if it has none from then on.
pub(crate) fn property(option: Option<Compress>, flags: InodeFlags) -> Option<String> {
    let usual = option.map_or(CompressionType::Zlib, |option| option.method.kind());
    flags.contains(InodeFlags::COMPRESS).then(|| usual.to_string())
}

/// The algorithm that a property names. A level, or any other text behind the name, is ignored.
pub(crate) fn algorithm(property: &[u8]) -> Option<CompressionType> {
    CompressionType::ALL.into_iter().find(|kind| property.starts_with(kind.to_string().as_bytes()))
}

/// The feature bit of a filesystem with data that is compressed so; empty if it needs none.
pub(crate) const fn incompat(compression: Compression) -> Incompat {
    match compression {
        Compression::Lzo => Incompat::COMPRESS_LZO,
        Compression::Zstd => Incompat::COMPRESS_ZSTD,
        Compression::None | Compression::Zlib => Incompat::empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(option: &str, force: bool, flags: InodeFlags, property: &str) -> Option<String> {
        let option =
            (!option.is_empty()).then(|| Compress { method: option.parse().expect("a method"), force });
        let property = (!property.is_empty()).then_some(property.as_bytes());
        wanted(option, flags, property).map(|wanted| {
            let forced = if wanted.is_forced { " forced" } else { "" };
            format!("{}{forced}", wanted.method)
        })
    }

    #[test]
    fn an_option_is_kept_as_it_is() {
        assert_eq!(decode(encode(None)), None);
        for text in ["zlib", "zlib:1", "zlib:9", "lzo", "zstd", "zstd:-15", "zstd:15"] {
            for force in [false, true] {
                let option = Some(Compress { method: text.parse().expect("a method"), force });
                assert_eq!(decode(encode(option)), option);
            }
        }
    }

    #[test]
    fn a_mark_is_not_set_over_what_was_said_meanwhile() {
        let (none, yes, no) = (InodeFlags::empty(), InodeFlags::COMPRESS, InodeFlags::NOCOMPRESS);
        let (in_place, other) = (InodeFlags::NODATACOW | InodeFlags::NODATASUM, InodeFlags::NODUMP);
        for (then, now, holds) in [
            (none, none, true),
            (none, other, true),
            (none, yes, false),
            (none, in_place, false),
            (no, none, false),
        ] {
            let wanted = if holds { no } else { none };
            assert_eq!(marks_that_hold(no, then, now), wanted, "{then:?}, {now:?}");
            let prealloc = InodeFlags::PREALLOC;
            assert_eq!(marks_that_hold(no | prealloc, then, now), wanted | prealloc, "{then:?}, {now:?}");
        }
    }

    #[test]
    fn the_later_word_counts() {
        let (none, yes, no) = (InodeFlags::empty(), InodeFlags::COMPRESS, InodeFlags::NOCOMPRESS);
        let rows = [
            ("", false, none, "", None),
            ("zstd:7", false, none, "", Some("zstd:7")),
            ("zstd:7", false, no, "", None),
            ("zstd:7", true, no, "none", Some("zstd:7 forced")),
            ("", false, yes, "", Some("zlib:3")),
            ("", false, yes, "zstd", Some("zstd:3")),
            ("lzo", false, yes, "zlib:9", Some("zlib:3")),
            ("zstd:15", false, yes, "zlib", Some("zlib:9")),
            ("zstd:-15", true, yes, "zlib", Some("zlib:1 forced")),
            ("zlib:9", false, yes, "lzo", Some("lzo")),
            ("zlib:9", true, InodeFlags::NODATASUM, "", None),
            ("zlib:9", true, yes | InodeFlags::NODATACOW, "zstd", None),
        ];
        for (option, force, flags, property, wanted) in rows {
            let found = said(option, force, flags, property);
            assert_eq!(found.as_deref(), wanted, "{option} {force} {flags:?} {property}");
        }
    }
}
