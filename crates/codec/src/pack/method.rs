//! Compression algorithms and their levels, in the words of Linux' mount options.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// An algorithm for compressed file data.
///
/// ```
/// use creamery_codec::CompressionType;
/// assert_eq!(CompressionType::Zstd.to_string(), "zstd");
/// assert_eq!(CompressionType::Zlib.levels(), Some(1..=9));
/// assert_eq!(CompressionType::Lzo.levels(), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CompressionType {
    /// DEFLATE in a zlib stream.
    Zlib,
    /// LZO1X, each sector by itself.
    Lzo,
    /// A Zstandard frame.
    Zstd,
}

impl CompressionType {
    /// All of them, in the order of their numbers in a `btrfs_file_extent_item`.
    pub const ALL: [Self; 3] = [Self::Zlib, Self::Lzo, Self::Zstd];

    /// Returns its levels. If these include 0, it stands for the default.
    #[must_use]
    pub const fn levels(self) -> Option<RangeInclusive<i32>> {
        match self {
            Self::Zlib => Some(1..=9),
            Self::Lzo => None,
            Self::Zstd => Some(-15..=15),
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
            Self::Lzo => "lzo",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for CompressionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// The level if the user names none.
const DEFAULT_LEVEL: i32 = 3;

/// An algorithm and its level.
///
/// Levels have the meaning of Linux 6.18: 0 is the default, a level that is too low or too high becomes the lowest or
/// highest, and `lzo` accepts a level and ignores it.
///
/// ```
/// use creamery_codec::{CompressionMethod, CompressionType};
/// let method: CompressionMethod = "zstd:-5".parse()?;
/// assert_eq!(method, CompressionMethod::new(CompressionType::Zstd).with_level(-5));
/// assert_eq!("zlib:100".parse::<CompressionMethod>()?.to_string(), "zlib:9");
/// assert_eq!("lzo:3".parse::<CompressionMethod>()?.to_string(), "lzo");
/// # Ok::<(), creamery_codec::ParseCompressionMethodError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CompressionMethod {
    kind: CompressionType,
    level: i32,
}

impl CompressionMethod {
    /// Creates the method of this algorithm at its default level.
    #[must_use]
    pub const fn new(kind: CompressionType) -> Self {
        Self { kind, level: DEFAULT_LEVEL }
    }

    /// Returns the algorithm at the level that Linux uses for `level`.
    #[must_use]
    pub fn with_level(self, level: i32) -> Self {
        let level = match self.kind.levels() {
            Some(levels) if level != 0 => level.clamp(*levels.start(), *levels.end()),
            _ => DEFAULT_LEVEL,
        };
        Self { level, ..self }
    }

    /// Parses like [`FromStr`], but fails for a level that the algorithm does not have, like mkfs.btrfs.
    /// 0 stands for the default level.
    ///
    /// ```
    /// use creamery_codec::CompressionMethod;
    /// assert_eq!(CompressionMethod::with_its_level("zlib:9")?.level(), Some(9));
    /// let error = CompressionMethod::with_its_level("zstd:16").unwrap_err();
    /// assert_eq!(error.to_string(), "zstd has no level 16, expected -15 to 15");
    /// # Ok::<(), creamery_codec::ParseCompressionMethodError>(())
    /// ```
    ///
    /// # Errors
    /// The text names no algorithm, or a level that it does not have.
    pub fn with_its_level(text: &str) -> Result<Self, ParseCompressionMethodError> {
        let (kind, level) = split(text)?;
        // mkfs.btrfs accepts one level of LZO, which changes nothing.
        let (lowest, highest) = kind.levels().map_or((0, 1), RangeInclusive::into_inner);
        if level != 0 && !(lowest..=highest).contains(&level) {
            return Err(ParseCompressionMethodError::NoSuchLevel { kind, level, lowest, highest });
        }
        Ok(Self::new(kind).with_level(level))
    }

    /// The algorithm.
    #[must_use]
    pub const fn kind(self) -> CompressionType {
        self.kind
    }

    /// The level, if the algorithm has levels.
    #[must_use]
    pub const fn level(self) -> Option<i32> {
        match self.kind {
            CompressionType::Lzo => None,
            CompressionType::Zlib | CompressionType::Zstd => Some(self.level),
        }
    }
}

impl fmt::Display for CompressionMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level() {
            Some(level) => write!(f, "{}:{level}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

/// The error of parsing a compression method.
///
/// ```
/// use creamery_codec::CompressionMethod;
/// let error = "gzip".parse::<CompressionMethod>().unwrap_err();
/// assert_eq!(error.to_string(), "unknown compression, expected zlib, lzo or zstd, optionally with a level: zstd:3");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ParseCompressionMethodError {
    /// There is no such algorithm, or the text behind the colon is no number.
    #[error("unknown compression, expected zlib, lzo or zstd, optionally with a level: zstd:3")]
    Unknown,
    /// The algorithm has no such level.
    #[error("{kind} has no level {level}, expected {lowest} to {highest}")]
    NoSuchLevel {
        /// The algorithm.
        kind: CompressionType,
        /// The given level.
        level: i32,
        /// The lowest level.
        lowest: i32,
        /// The highest level.
        highest: i32,
    },
}

/// Splits a text into algorithm and level; the level is 0 if the text has none.
fn split(text: &str) -> Result<(CompressionType, i32), ParseCompressionMethodError> {
    let unknown = ParseCompressionMethodError::Unknown;
    let (word, level) = match text.split_once(':') {
        Some((word, level)) => (word, level.parse().map_err(|_| unknown)?),
        None => (text, 0),
    };
    let kind = CompressionType::ALL.into_iter().find(|kind| kind.word() == word);
    Ok((kind.ok_or(unknown)?, level))
}

impl FromStr for CompressionMethod {
    type Err = ParseCompressionMethodError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, level) = split(text)?;
        Ok(Self::new(kind).with_level(level))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text that Linux 6.18 shows in `/proc/self/mountinfo` for each `compress=`; `None`: it fails with EINVAL.
    const LINUX: &[(&str, Option<&str>)] = &[
        ("zlib", Some("zlib:3")),
        ("zlib:0", Some("zlib:3")),
        ("zlib:-0", Some("zlib:3")),
        ("zlib:1", Some("zlib:1")),
        ("zlib:9", Some("zlib:9")),
        ("zlib:10", Some("zlib:9")),
        ("zlib:2147483647", Some("zlib:9")),
        ("zlib:-1", Some("zlib:1")),
        ("zlib:-2147483648", Some("zlib:1")),
        ("zlib:03", Some("zlib:3")),
        ("zlib:+3", Some("zlib:3")),
        ("lzo", Some("lzo")),
        ("lzo:0", Some("lzo")),
        ("lzo:3", Some("lzo")),
        ("lzo:-1", Some("lzo")),
        ("lzo:99", Some("lzo")),
        ("zstd", Some("zstd:3")),
        ("zstd:0", Some("zstd:3")),
        ("zstd:1", Some("zstd:1")),
        ("zstd:15", Some("zstd:15")),
        ("zstd:16", Some("zstd:15")),
        ("zstd:-1", Some("zstd:-1")),
        ("zstd:-15", Some("zstd:-15")),
        ("zstd:-16", Some("zstd:-15")),
        ("zstd:+5", Some("zstd:5")),
        ("zstd:010", Some("zstd:10")),
        ("", None),
        ("zlib:", None),
        ("zlib:x", None),
        ("zlib:3x", None),
        ("zlib:3 ", None),
        ("zlib: 3", None),
        ("zlib:0x3", None),
        ("zlib:+", None),
        ("zlib:+-3", None),
        ("zlib3", None),
        ("zlib-3", None),
        ("zlibx", None),
        ("ZLIB", None),
        ("Zlib", None),
        (" zlib", None),
        ("zlib:4294967299", None),
        ("lzo:", None),
        ("lzo:x", None),
        ("lzox", None),
        ("LZO", None),
        ("lzo:99999999999", None),
        ("zstd:", None),
        ("zstd:-", None),
        ("zstd:--5", None),
        ("zstd:5:5", None),
        ("zstd5", None),
        ("zstd:2147483648", None),
        ("zstd:-2147483649", None),
        ("lz4", None),
        ("zl", None),
        ("0", None),
        ("1", None),
    ];

    #[test]
    fn words_mean_what_they_mean_to_linux() {
        for (text, shown) in LINUX {
            let method = text.parse::<CompressionMethod>().ok();
            assert_eq!(method.map(|method| method.to_string()).as_deref(), *shown, "{text:?}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        for kind in CompressionType::ALL {
            for level in kind.levels().unwrap_or(0..=0) {
                let method = CompressionMethod::new(kind).with_level(level);
                assert_eq!(method.to_string().parse(), Ok(method));
                assert_eq!(method.kind(), kind);
            }
        }
    }
}
