//! `creamery truncate`.

use std::ffi::OsString;
use std::str::FromStr;

use clap::Args;
use creamery::{Error, ErrorKind, Filesystem, OpenOptions};

use crate::failure::{Failure, with_all};
use crate::images::{Images, Purpose};
use crate::new_file::or_remove;
use crate::path_in_image::PathInImage;
use crate::size::Size;
use crate::view::WriteArgs;

/// Set the size of files in an image: cut them, or add a hole.
///
/// SIZE is a number of bytes, such as 10M. A sign before it makes it a change: + and - extend
/// and reduce by it, < and > are the maximum and the minimum, / and % round down and up to a
/// multiple. A missing file is created.
///
/// Examples:
///   creamery truncate -s 1G disk.img:/swap
///   creamery truncate -s %4K disk.img:/var/db
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct TruncateArgs {
    /// The size.
    #[arg(short = 's', long, value_name = "[+-<>/%]SIZE", allow_hyphen_values = true)]
    size: NewSize,

    /// Do not create files.
    #[arg(short = 'c', long)]
    no_create: bool,

    /// The files.
    #[arg(value_name = "IMAGE:/PATH", required = true)]
    places: Vec<OsString>,

    #[command(flatten)]
    write: WriteArgs,
}

/// An absolute or relative size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NewSize {
    Exactly(u64),
    More(u64),
    Less(u64),
    AtMost(u64),
    AtLeast(u64),
    RoundDown(u64),
    RoundUp(u64),
}

impl NewSize {
    /// The new size of a file of `old` bytes; `None` if it is too large.
    fn of(self, old: u64) -> Option<u64> {
        match self {
            Self::Exactly(size) => Some(size),
            Self::More(by) => old.checked_add(by),
            Self::Less(by) => Some(old.saturating_sub(by)),
            Self::AtMost(size) => Some(old.min(size)),
            Self::AtLeast(size) => Some(old.max(size)),
            Self::RoundDown(unit) => Some(old - old % unit),
            Self::RoundUp(unit) => old.checked_next_multiple_of(unit),
        }
    }
}

/// Parses a size as coreutils do: MB is a power of 1000, M and MiB one of 1024, and a unit alone is one of it.
fn size(text: &str) -> Result<u64, String> {
    let text = if text.starts_with(|first: char| first.is_ascii_alphabetic()) {
        format!("1{text}")
    } else {
        text.into()
    };
    let thousands = text.strip_suffix('B').and_then(|text| {
        let power = "KMGTPE".find(text.chars().last()?.to_ascii_uppercase())?;
        Some((text.get(..text.len() - 1)?, 1000_u64.pow(u32::try_from(power).ok()? + 1)))
    });
    match thousands {
        None => text.parse().map(|Size(size)| size),
        Some((number, unit)) => {
            let number = number.parse::<u64>().map_err(|_| {
                format!("invalid size '{text}': expected a number with an optional suffix, such as 512M")
            })?;
            number.checked_mul(unit).ok_or_else(|| format!("'{text}' is too large"))
        }
    }
}

impl FromStr for NewSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let make = match text.as_bytes().first() {
            Some(b'+') => Self::More,
            Some(b'-') => Self::Less,
            Some(b'<') => Self::AtMost,
            Some(b'>') => Self::AtLeast,
            Some(b'/') => Self::RoundDown,
            Some(b'%') => Self::RoundUp,
            _ => return size(text).map(Self::Exactly),
        };
        let new = make(size(&text[1..])?);
        match new {
            Self::RoundDown(0) | Self::RoundUp(0) => Err("cannot round to a multiple of 0".to_owned()),
            new => Ok(new),
        }
    }
}

pub(crate) fn run(args: &TruncateArgs) -> Result<(), Failure> {
    let mut images = Images::to_write("truncate", &args.write);
    let outcome = with_all(&args.places, |text| {
        let place = images.place(text)?;
        let failed = images.failed(&place.image);
        let fs = images.open(&place.image, Purpose::Write)?;
        or_remove(fs, &place.path, || truncate(fs, &place, args)).map_err(failed)
    });
    images.finish(outcome)
}

fn truncate(fs: &Filesystem, place: &PathInImage, args: &TruncateArgs) -> Result<(), Error> {
    let path = &place.path;
    let file = match OpenOptions::new().write(true).create(!args.no_create).open(fs, path) {
        Err(error) if args.no_create && error.kind() == ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let in_file = |error: Error| error.context(path.display());
    let old = file.metadata().map_err(in_file)?.len();
    let too_large = || in_file(Error::invalid("the new size is more than 16 EiB"));
    file.set_len(args.size.of(old).ok_or_else(too_large)?).map_err(in_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_truncate() {
        for (text, old, new) in [
            ("3", 10, Some(3)),
            ("1K", 10, Some(1024)),
            ("K", 10, Some(1024)),
            ("1MB", 10, Some(1_000_000)),
            ("+2kB", 10, Some(2010)),
            ("1MiB", 10, Some(1 << 20)),
            ("18EB", 10, Some(18 * 10_u64.pow(18))),
            ("+3", 10, Some(13)),
            ("-3", 10, Some(7)),
            ("-30", 10, Some(0)),
            ("<3", 10, Some(3)),
            (">30", 10, Some(30)),
            ("/4", 10, Some(8)),
            ("%4", 10, Some(12)),
            ("%4", 12, Some(12)),
            ("+1", u64::MAX, None),
            ("%4", u64::MAX, None),
        ] {
            assert_eq!(text.parse::<NewSize>().expect(text).of(old), new, "{text} of {old}");
        }
        for text in ["", "+", "x", "/0", "%0", "--1", "19EB", "MBB"] {
            assert!(text.parse::<NewSize>().is_err(), "{text}");
        }
    }
}
