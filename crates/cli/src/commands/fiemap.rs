//! `creamery filesystem fiemap`.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use creamery::Error;
use creamery::extents::{Fiemap, FiemapExtent, FiemapFlags, FiemapRequest};
use creamery_mount::LiveFile;
use serde::Serialize;

use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::json::Array;
use crate::output::{Output, writing};
use crate::path_in_image::{End, PathInImage};
use crate::size::Size;
use crate::view::{ViewArgs, refuse_if_on_mount};

/// Show which extents a file has, and where they lie.
///
/// The columns are those of filefrag -v, in blocks (inline data in bytes): where an extent
/// begins and ends in the file, where it lies in the filesystem's addresses, its length,
/// where it would lie if it continued the one before, and its flags:
///   last         no extent of the file lies behind it
///   unknown_loc  it lies nowhere yet
///   delalloc     it is in memory, and gets its place when it is written back
///   encoded      it is compressed
///   not_aligned  its length is not a whole number of blocks
///   inline       it is in the tree, beside the inode
///   unwritten    it is preallocated, and reads as zeros
///   shared       another file refers to it, or this one at another place
///   eof          the file ends within it, or before it
/// Holes are not listed.
///
/// Examples:
///   creamery filesystem fiemap disk.img:/var/log/journal
///   creamery filesystem fiemap --sync --json /mnt/database
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct FiemapArgs {
    /// The file: in an image that is not mounted, or on a live mount of one.
    #[arg(value_name = "IMAGE:/PATH|PATH")]
    place: OsString,

    /// Write back the data in memory first.
    #[arg(long)]
    sync: bool,

    /// Where the range begins; an extent that it begins in is listed whole.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    start: Size,

    /// Bytes of the range [default: to the end].
    #[arg(long, value_name = "SIZE")]
    length: Option<Size>,

    /// One JSON array; all figures are bytes.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewArgs,
}

const COMMAND: &str = "filesystem fiemap";

#[derive(Serialize)]
struct FiemapExtentJson {
    logical: u64,
    physical: u64,
    length: u64,
    flags: Vec<&'static str>,
}

/// The file, as the header describes it.
struct FiemapHeader {
    shown: OsString,
    len: u64,
    block: u64,
}

pub(crate) fn run(args: &FiemapArgs) -> Result<(), Failure> {
    let request = FiemapRequest {
        offset: args.start.0,
        len: args.length.map_or(u64::MAX, |Size(len)| len),
        sync: args.sync,
    };
    match End::parse(&args.place) {
        End::Host(path) => on_a_mount(args, path, &request),
        End::Image(place) => in_an_image(args, &place, &request),
    }
}

fn in_an_image(args: &FiemapArgs, place: &PathInImage, request: &FiemapRequest) -> Result<(), Failure> {
    let mut images = Images::new(COMMAND, &args.view);
    let failed = images.failed(&place.image);
    let fs = images.open(&place.image, Purpose::Read)?;
    let file = fs.open(&place.path).map_err(&failed)?;
    let (len, block) = (file.metadata().map_err(&failed)?.len(), u64::from(fs.volume().sector_size()));
    let header = FiemapHeader { shown: args.place.clone(), len, block };
    let path = place.path.display().to_string();
    print(args, &header, file.fiemap(request), |error| failed(error.context(&path)))
}

fn on_a_mount(args: &FiemapArgs, path: PathBuf, request: &FiemapRequest) -> Result<(), Failure> {
    let failed = |error| Failure::new(COMMAND, error);
    refuse_if_on_mount(&path).map_err(failed)?;
    let file = LiveFile::open(&path).map_err(failed)?.ok_or_else(|| {
        let text = format!("{} is not on a mount of an image", path.display());
        let advice = "name a file on a live mount, or IMAGE:/PATH in an image that is not mounted; \
                      elsewhere use `filefrag`";
        failed(Error::unsupported(text)).advise(advice)
    })?;
    let shown = path.display().to_string();
    let failed = |error: Error| {
        let is_told = error.to_string().contains(&shown);
        failed(if is_told { error } else { error.context(&shown) })
    };
    let header = FiemapHeader { shown: path.clone().into(), len: file.len(), block: file.block_size() };
    print(args, &header, file.fiemap(request).map_err(failed)?, failed)
}

fn print(
    args: &FiemapArgs,
    header: &FiemapHeader,
    extents: Fiemap<'_>,
    failed: impl Fn(Error) -> Failure,
) -> Result<(), Failure> {
    let mut out = Output::new();
    let printing = |error| Failure::new(COMMAND, writing(error));
    // A file whose extents cannot be listed gets no header.
    let mut extents = extents.peekable();
    if let Some(Err(error)) = extents.next_if(Result::is_err) {
        return Err(failed(error));
    }
    let mut failure = None;
    let listed = extents.map_while(|extent| extent.map_err(|error| failure = Some(failed(error))).ok());
    let printed = if args.json {
        as_json(&mut out, listed).map(|()| None)
    } else {
        as_table(&mut out, header, listed).map(Some)
    };
    // The count is known only if all extents were listed.
    if let Some(count) = printed.map_err(printing)?
        && failure.is_none()
    {
        as_sum(&mut out, header, count).map_err(printing)?;
    }
    out.finish().map_err(|error| Failure::new(COMMAND, error))?;
    failure.map_or(Ok(()), Err)
}

fn as_json(out: &mut Output, extents: impl Iterator<Item = FiemapExtent>) -> io::Result<()> {
    let mut array = Array::begin(out)?;
    for extent in extents {
        let FiemapExtent { logical, physical, length, flags, .. } = extent;
        array.push(&FiemapExtentJson { logical, physical, length, flags: flags.names().collect() })?;
    }
    array.end()
}

/// Prints the table. Returns the number of extents that are not contiguous on the device.
fn as_table(
    out: &mut Output,
    header: &FiemapHeader,
    extents: impl Iterator<Item = FiemapExtent>,
) -> io::Result<u64> {
    let FiemapHeader { shown, len, block } = header;
    let blocks = len.div_ceil(*block);
    write!(out, "File size of ")?;
    out.path(shown.as_ref())?;
    let unit = if blocks == 1 { "block" } else { "blocks" };
    writeln!(out, " is {len} ({blocks} {unit} of {block} bytes)")?;
    let (mut last, mut apart) = (None, 0_u64);
    for (number, extent) in extents.enumerate() {
        if number == 0 {
            writeln!(out, " ext:     logical_offset:        physical_offset: length:   expected: flags:")?;
        }
        let expected = last.as_ref().and_then(|last| expected_behind(last, &extent));
        apart += u64::from(last.is_none_or(|last| !lies(&last) || !lies(&extent)) || expected.is_some());
        row(out, header, number, &extent, expected)?;
        last = Some(extent);
    }
    Ok(apart)
}

fn as_sum(out: &mut Output, header: &FiemapHeader, count: u64) -> io::Result<()> {
    out.path(header.shown.as_ref())?;
    writeln!(out, ": {count} extent{} found", if count == 1 { "" } else { "s" })
}

/// Whether the extent has an address of its own.
fn lies(extent: &FiemapExtent) -> bool {
    !extent.flags.intersects(FiemapFlags::UNKNOWN | FiemapFlags::DATA_INLINE)
}

/// The address expected for an extent that is not contiguous with the last one: right behind it, or as far behind it as in the file.
fn expected_behind(last: &FiemapExtent, extent: &FiemapExtent) -> Option<u64> {
    let dense = last.physical.saturating_add(last.length);
    let sparse = dense.saturating_add(extent.logical.saturating_sub(last.end()));
    let goes_on = extent.physical == dense || extent.physical == sparse;
    (lies(last) && lies(extent) && !goes_on).then_some(sparse)
}

fn row(
    out: &mut Output,
    header: &FiemapHeader,
    number: usize,
    extent: &FiemapExtent,
    expected: Option<u64>,
) -> io::Result<()> {
    let unit = if extent.flags.contains(FiemapFlags::NOT_ALIGNED) { 1 } else { header.block };
    let (logical, physical, length) = (extent.logical / unit, extent.physical / unit, extent.length / unit);
    let to_last = length.saturating_sub(1);
    let physical_last = if lies(extent) || unit == 1 { physical.saturating_add(to_last) } else { 0 };
    let expected = expected.map_or_else(String::new, |at| format!("{}:", at / header.block));
    let is_at_end = extent.end() >= header.len;
    let flags: Vec<_> = extent.flags.names().chain(is_at_end.then_some("eof")).collect();
    let line = format!(
        "{number:4}: {logical:8}..{:8}: {physical:10}..{physical_last:10}: {length:6}: {expected:>11} {}",
        logical.saturating_add(to_last),
        flags.join(",")
    );
    writeln!(out, "{}", line.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_is_expected_behind_the_last_one_or_as_far_as_in_the_file() {
        let extent = |logical, physical, flags| FiemapExtent::new(logical, physical, 8192, flags);
        let none = FiemapFlags::empty();
        let last = extent(0, 65536, none);
        let rows = [
            (extent(8192, 73728, none), None),
            (extent(16384, 73728, none), None),
            (extent(16384, 81920, none), None),
            (extent(16384, 4096, none), Some(81920)),
            (extent(8192, 81920, none), Some(73728)),
            (extent(8192, 0, FiemapFlags::UNKNOWN), None),
        ];
        for (next, expected) in rows {
            assert_eq!(expected_behind(&last, &next), expected, "{next:?}");
        }
    }
}
